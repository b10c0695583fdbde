//! From a server's answer to a tool's result: what a model can read, and the same as structured content.

use serde_json::{Map, Value, json};
use vance_shared::json::Raw;
use vance_shared::tool::ToolResult;

mod body;
mod cut;
mod tree;
use body::Content;

/// Images, sounds and other bytes that travel with a result; models do not read them as text, so they may be larger than text.
pub const MAX_BINARY_BYTES: usize = 1024 * 1024;
/// Characters of one header that are shown.
const MAX_HEADER_CHARS: usize = 1000;
/// Characters of a server's words on its refusal that stand in the reason of a call: what is wrong with which field stands at its beginning.
const MAX_REFUSAL_CHARS: usize = 400;
/// Headers that say something to whoever called.
const SHOWN: [&str; 6] = ["location", "link", "retry-after", "etag", "x-total-count", "content-disposition"];

/// An answer, read as far as it may be.
#[derive(Debug, Clone, Copy)]
pub struct Answer<'a> {
    /// The status code.
    pub status: u16,
    /// Its words; empty if there are none.
    pub reason: &'a str,
    /// Names in any case.
    pub headers: &'a [(String, String)],
    /// Decoded from its transfer and content encoding.
    pub body: &'a [u8],
}

/// Makes the result. Text and JSON have at most `max_bytes`; JSON that is longer loses items, texts and fields, and stays JSON.
pub fn shape(answer: Answer<'_>, max_bytes: usize) -> ToolResult {
    let failed = is_failure(answer.status);
    let mut content: Vec<Value> = Vec::new();
    if failed {
        content.push(text(status_line(answer)));
    }
    let body = body::read(answer.body, header(answer, "content-type"), max_bytes);
    let mut structured = Structured { answer, body: None, truncated: false };
    match body {
        Content::Nothing if failed => {}
        Content::Nothing => content.push(text(format!("{} (no content)", status_line(answer)))),
        Content::Json { text: json, truncated } => {
            structured.truncated = truncated;
            structured.body = Some(json.clone());
            content.push(text(json));
        }
        Content::Text { text: plain, truncated } => {
            structured.truncated = truncated;
            structured.body = Some(Value::from(plain.as_str()).to_string());
            content.push(text(plain));
        }
        Content::Bytes { media_type, base64 } => content.push(bytes(&media_type, &base64)),
        Content::TooLarge { media_type, bytes } => {
            structured.truncated = true;
            content.push(text(format!(
                "{media_type}, {bytes} bytes: more than the {MAX_BINARY_BYTES} that a result holds"
            )));
        }
    }
    ToolResult { content: Raw::from(Value::Array(content)), structured: Some(structured.raw()), is_error: failed }
}

/// Refusals, and redirects that were not followed.
pub fn is_failure(status: u16) -> bool {
    status >= 400 || (300..400).contains(&status) && status != 304
}

/// `HTTP 404 Not Found`.
pub fn status_line(answer: Answer<'_>) -> String {
    let reason = crate::text::clean(answer.reason, 100);
    if reason.is_empty() { format!("HTTP {}", answer.status) } else { format!("HTTP {} {reason}", answer.status) }
}

/// Why a call failed, for people: the status, and how the server's own words begin.
pub fn refusal(answer: Answer<'_>, result: &ToolResult) -> String {
    let status = status_line(answer);
    let text = result.joined_text();
    let said = text.strip_prefix(&status).unwrap_or(&text).split_whitespace().collect::<Vec<_>>().join(" ");
    if said.is_empty() { status } else { format!("{status}: {}", crate::text::clean(&said, MAX_REFUSAL_CHARS)) }
}

fn header<'a>(answer: Answer<'a>, name: &str) -> Option<&'a str> {
    answer.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

fn text(text: String) -> Value {
    json!({"type": "text", "text": text})
}

fn bytes(media_type: &str, base64: &str) -> Value {
    match media_type.split('/').next() {
        Some(kind @ ("image" | "audio")) => json!({"type": kind, "mimeType": media_type, "data": base64}),
        Some(_) | None => {
            json!({"type": "resource", "resource": {"uri": "response:body", "mimeType": media_type, "blob": base64}})
        }
    }
}

/// `{status, headers, body, truncated}`; what says nothing is left out.
struct Structured<'a> {
    answer: Answer<'a>,
    /// JSON text.
    body: Option<String>,
    truncated: bool,
}

impl Structured<'_> {
    fn raw(&self) -> Raw {
        let mut out = format!("{{\"status\":{}", self.answer.status);
        let headers = shown(self.answer.headers);
        if !headers.is_empty() {
            out.push_str(&format!(",\"headers\":{}", Value::Object(headers)));
        }
        if let Some(body) = &self.body {
            // As text: numbers keep all their digits.
            out.push_str(&format!(",\"body\":{body}"));
        }
        if self.truncated {
            out.push_str(",\"truncated\":true");
        }
        out.push('}');
        Raw::parse(out).unwrap_or_else(|_| Raw::from(json!({"status": self.answer.status})))
    }
}

fn shown(headers: &[(String, String)]) -> Map<String, Value> {
    let mut found: Map<String, Value> = Map::new();
    for (name, value) in headers {
        let name = name.to_ascii_lowercase();
        let wanted = SHOWN.contains(&name.as_str())
            || name.starts_with("ratelimit")
            || name.starts_with("x-ratelimit")
            || name.starts_with("x-rate-limit")
            || name.ends_with("request-id")
            || name.ends_with("requestid");
        if !wanted {
            continue;
        }
        let value = crate::text::clean(value, MAX_HEADER_CHARS);
        match found.get_mut(&name) {
            Some(Value::String(known)) => known.push_str(&format!(", {value}")),
            Some(_) | None => drop(found.insert(name, value.into())),
        }
    }
    found
}

#[cfg(test)]
mod tests;

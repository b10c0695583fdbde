//! What one line (or event) from a server is. Pure, and lenient where servers are known to be sloppy: ids as strings or floats, half a character, batches.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::handle::Progress;

/// One message.
#[derive(Debug)]
pub(crate) enum Inbound<'a> {
    /// An answer to a request of ours.
    Reply {
        /// The request's id, if it can be read as one of ours.
        id: Option<u64>,
        /// Result or error object.
        body: Result<&'a RawValue, &'a RawValue>,
    },
    /// `notifications/progress` with a token that can be read.
    Progress {
        /// The request's progress token.
        token: u64,
        /// What it says.
        progress: Progress,
    },
    /// Another notification or request: the whole message.
    Other(&'a RawValue),
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProgressParams<'a> {
    #[serde(borrow)]
    progress_token: &'a RawValue,
    #[serde(default)]
    progress: Option<f64>,
    #[serde(default)]
    total: Option<f64>,
    #[serde(default)]
    message: Option<String>,
}

/// The text of a line: half a character becomes U+FFFD, so that the rest of an answer survives.
pub(crate) fn text_of(line: &[u8]) -> Cow<'_, str> {
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    let line = line.trim_ascii();
    // Checked at many times the speed of the lossy way, which hardly any line needs.
    std::str::from_utf8(line).map_or_else(|_| String::from_utf8_lossy(line), Cow::Borrowed)
}

/// Reads a line. `None`: it holds no message.
pub(crate) fn read(text: &str) -> Option<Vec<Inbound<'_>>> {
    if text.starts_with('[') {
        let parts: Vec<&RawValue> = serde_json::from_str(text).ok()?;
        let messages: Vec<Inbound<'_>> = parts.into_iter().filter_map(|part| message(part.get())).collect();
        return (!messages.is_empty()).then_some(messages);
    }
    if !text.starts_with('{') {
        return None;
    }
    message(text).map(|message| vec![message])
}

fn message(whole: &str) -> Option<Inbound<'_>> {
    let envelope: Envelope<'_> = serde_json::from_str(whole).ok()?;
    match (envelope.method.as_deref(), envelope.id) {
        (Some("notifications/progress"), None) => {
            let params: ProgressParams<'_> = serde_json::from_str(envelope.params?.get()).ok()?;
            let token = lenient_id(params.progress_token.get())?;
            let fraction = match (params.progress, params.total) {
                (Some(done), Some(total)) if total > 0.0 => Some((done / total).clamp(0.0, 1.0)),
                _ => None,
            };
            Some(Inbound::Progress { token, progress: Progress { fraction, message: params.message } })
        }
        (Some(_), _) => Some(Inbound::Other(serde_json::from_str(whole).ok()?)),
        (None, Some(id)) => {
            let body = match (envelope.error, envelope.result) {
                (Some(error), _) => Err(error),
                (None, Some(result)) => Ok(result),
                (None, None) => Ok(RawValue::NULL),
            };
            Some(Inbound::Reply { id: lenient_id(id.get()), body })
        }
        (None, None) => envelope.error.map(|error| Inbound::Reply { id: None, body: Err(error) }),
    }
}

/// `7`, `7.0` and `"7"` are all 7.
fn lenient_id(text: &str) -> Option<u64> {
    let text = text.trim_matches('"');
    if let Ok(id) = text.parse() {
        return Some(id);
    }
    let number: f64 = text.parse().ok()?;
    // Up to 2^53 a float holds every integer.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    (number.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&number)).then_some(number as u64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn shape(line: &[u8]) -> String {
        let text = text_of(line);
        let Some(messages) = read(&text) else { return "garbage".into() };
        let shapes = messages.iter().map(|message| match message {
            Inbound::Reply { id, body: Ok(result) } => format!("result {id:?} {}", result.get()),
            Inbound::Reply { id, body: Err(error) } => format!("error {id:?} {}", error.get()),
            Inbound::Progress { token, progress } => format!("progress {token} {:?}", progress.fraction),
            Inbound::Other(whole) => format!("other {}", whole.get().len()),
        });
        shapes.collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn lines_are_told_apart() {
        for (line, want) in [
            (&br#"{"jsonrpc":"2.0","id":7,"result":{"a":1}}"#[..], r#"result Some(7) {"a":1}"#),
            (br#"{"id":"7","result":1}"#, "result Some(7) 1"),
            (br#"{"id":7.0,"result":null}"#, "result Some(7) null"),
            (br#"{"id":7.5,"result":1}"#, "result None 1"),
            (br#"{"id":-7,"error":{"code":1}}"#, r#"error None {"code":1}"#),
            (br#"{"id":null,"error":{"code":1}}"#, r#"error None {"code":1}"#),
            (b"  {\"id\":1,\"result\":\"\xc3\"}\r", "result Some(1) \"\u{fffd}\""),
            (b"\xEF\xBB\xBF{\"id\":1,\"result\":2}", "result Some(1) 2"),
            (br#"{"id":3,"method":"ping"}"#, "other 24"),
            (
                br#"{"method":"notifications/progress","params":{"progressToken":"9","progress":1,"total":4}}"#,
                "progress 9 Some(0.25)",
            ),
            (br#"{"method":"notifications/progress","params":{"progressToken":9,"progress":1}}"#, "progress 9 None"),
            (br#"[{"id":1,"result":1},{"id":2,"result":2}]"#, "result Some(1) 1; result Some(2) 2"),
            (b"Server listening on stdio", "garbage"),
            (br#"{"level":"info","msg":"hi"}"#, "garbage"),
            (br#"{"id":1,"result":"#, "garbage"),
            (b"", "garbage"),
        ] {
            assert_eq!(shape(line), want, "{}", String::from_utf8_lossy(line));
        }
    }
}

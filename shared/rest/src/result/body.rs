//! What a body is: by its type, and by a look at it where the type says nothing.

use serde_json::Value;

use super::tree::Tree;
use super::{MAX_BINARY_BYTES, cut};
use crate::cut::{essence, is_json};
use crate::request::base64;

/// A body as a result can hold it.
pub(super) enum Content {
    Nothing,
    Json { text: String, truncated: bool },
    Text { text: String, truncated: bool },
    Bytes { media_type: String, base64: String },
    TooLarge { media_type: String, bytes: usize },
}

/// Reads a body. What is no text in its own encoding stays bytes: nothing is decoded with losses.
pub(super) fn read(body: &[u8], content_type: Option<&str>, max_bytes: usize) -> Content {
    if body.is_empty() {
        return Content::Nothing;
    }
    let said = content_type.unwrap_or_default();
    let media_type = essence(said);
    let kind = if media_type.is_empty() { guess(body) } else { kind(&media_type) };
    match (kind, decode(body, said)) {
        (Kind::Json, Some(text)) => json(&text, max_bytes).unwrap_or_else(|| plain(&text, max_bytes)),
        (Kind::Text, Some(text)) => plain(&text, max_bytes),
        (Kind::Json | Kind::Text, None) | (Kind::Bytes, _) => bytes(body, &media_type),
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Json,
    Text,
    Bytes,
}

fn kind(media_type: &str) -> Kind {
    const TEXTS: [&str; 9] = [
        "application/xml",
        "application/javascript",
        "application/ecmascript",
        "application/x-www-form-urlencoded",
        "application/x-ndjson",
        "application/jsonl",
        "application/graphql",
        "application/sql",
        "application/toml",
    ];
    match media_type {
        _ if is_json(media_type) => Kind::Json,
        _ if media_type.starts_with("text/") || media_type.ends_with("+xml") || media_type.contains("yaml") => {
            Kind::Text
        }
        _ if TEXTS.contains(&media_type) => Kind::Text,
        _ => Kind::Bytes,
    }
}

/// Nothing is said about the body.
fn guess(body: &[u8]) -> Kind {
    match body.iter().find(|b| !b.is_ascii_whitespace()) {
        Some(b'{' | b'[') => Kind::Json,
        _ if body.contains(&0) => Kind::Bytes,
        _ => Kind::Text,
    }
}

fn decode(body: &[u8], content_type: &str) -> Option<String> {
    let charset = content_type.split(';').skip(1).find_map(|part| {
        let (key, value) = part.split_once('=')?;
        key.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"').to_ascii_lowercase())
    });
    let body = body.strip_prefix(b"\xef\xbb\xbf").unwrap_or(body);
    match charset.as_deref() {
        Some("iso-8859-1" | "latin1") if std::str::from_utf8(body).is_err() => {
            Some(body.iter().map(|b| char::from(*b)).collect())
        }
        Some("utf-16" | "utf-16le" | "utf-16be") => utf16(body, charset.as_deref() == Some("utf-16be")),
        Some(_) | None => std::str::from_utf8(body).ok().map(str::to_owned),
    }
}

fn utf16(body: &[u8], big: bool) -> Option<String> {
    let (body, big) = match body {
        [0xfe, 0xff, rest @ ..] => (rest, true),
        [0xff, 0xfe, rest @ ..] => (rest, false),
        rest => (rest, big),
    };
    let (pairs, rest) = body.as_chunks::<2>();
    let units = pairs.iter().map(|pair| if big { u16::from_be_bytes(*pair) } else { u16::from_le_bytes(*pair) });
    let text: Result<String, _> = char::decode_utf16(units).collect();
    text.ok().filter(|_| rest.is_empty())
}

/// None: it is no JSON, whatever it says it is.
fn json(text: &str, max_bytes: usize) -> Option<Content> {
    if text.len() <= max_bytes {
        serde_json::from_str::<Value>(text).ok()?;
        return Some(Content::Json { text: text.trim().to_owned(), truncated: false });
    }
    let (text, truncated) = cut::within(&Tree::parse(text, max_bytes)?, max_bytes);
    Some(Content::Json { text, truncated })
}

fn plain(text: &str, max_bytes: usize) -> Content {
    if text.len() <= max_bytes {
        return Content::Text { text: text.to_owned(), truncated: false };
    }
    // Room for the note.
    let end = text.floor_char_boundary(max_bytes.saturating_sub(40));
    let note = format!("\n… {} more bytes", text.len() - end);
    Content::Text { text: format!("{}{note}", &text[..end]), truncated: true }
}

fn bytes(body: &[u8], media_type: &str) -> Content {
    let media_type = if media_type.is_empty() { "application/octet-stream" } else { media_type };
    let media_type = crate::text::clean(media_type, 100);
    if body.len() > MAX_BINARY_BYTES {
        return Content::TooLarge { media_type, bytes: body.len() };
    }
    Content::Bytes { media_type, base64: base64(body) }
}

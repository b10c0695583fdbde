//! Results that are too large to travel: their large parts stay where they were made, and in their place go a handle, a size, a
//! digest and the beginning.

use base64::Engine as _;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::call::{Fault, Outcome};
use crate::ids::{BlobHandle, ClientId};
use crate::json::Raw;
use crate::limits::MESSAGE_BYTES;
use crate::tool::ToolResult;

/// Largest result that travels whole: what one message may carry, less its envelope.
pub const WHOLE_BYTES: usize = MESSAGE_BYTES - 64 * 1024;

/// In a result that does not travel whole, parts up to this size still do.
pub const PART_BYTES: usize = 64 * 1024;

/// How much of a kept text is shown in its place: enough to see what it is.
pub const PREVIEW_BYTES: usize = 1024;

/// Longest message of a failure that has a result besides: the result holds the whole text.
const MESSAGE_SHOWN_BYTES: usize = 4 * 1024;

/// What is known of something that is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// By which it is asked for.
    pub handle: BlobHandle,
    /// In bytes.
    pub size: u64,
    /// What it is.
    pub media_type: String,
    /// SHA-256 of it, in hexadecimal digits.
    pub sha256: String,
}

/// Keeps bytes of a media type.
pub type Keep<'a> = dyn FnMut(&[u8], &str) -> Result<Kept, Fault> + 'a;

impl BlobHandle {
    /// A new handle of something that a client keeps; without one the server does. Who keeps it is part of the handle, so that
    /// nobody has to remember where it is.
    pub fn on(client: Option<&ClientId>) -> Self {
        let own = Self::generate();
        match client {
            // An identity that leaves no room is the server's problem alone: then it is not found.
            Some(client) => Self::parse(&format!("{own}.{client}")).unwrap_or(own),
            None => own,
        }
    }

    /// The client that keeps it; none: the server does.
    pub fn client(&self) -> Option<ClientId> {
        self.as_str().split_once('.').and_then(|(_, client)| ClientId::parse(client).ok())
    }
}

/// True if an outcome's payload does not travel whole.
pub fn is_too_large(outcome: &Outcome) -> bool {
    match outcome {
        Outcome::Done(result) | Outcome::Failed { result: Some(result), .. } => result.bytes() > WHOLE_BYTES,
        Outcome::Failed { result: None, .. } | Outcome::Cancelled { .. } | Outcome::Unknown { .. } => false,
    }
}

/// The outcome as it travels: with what is too large kept by `keep`.
pub fn within_limits(outcome: Outcome, keep: &mut Keep<'_>) -> Outcome {
    match outcome {
        Outcome::Done(result) if result.bytes() > WHOLE_BYTES => match shrink(&result, keep) {
            Ok(result) => Outcome::Done(result),
            Err(error) => Outcome::Failed { error, result: None },
        },
        Outcome::Failed { error, result: Some(result) } => {
            let large = result.bytes() > WHOLE_BYTES;
            let error =
                if large || result.bytes() + error.message.len() > WHOLE_BYTES / 2 { cut(error) } else { error };
            match if large { shrink(&result, keep) } else { Ok(result) } {
                Ok(result) => Outcome::Failed { error, result: Some(result) },
                // Its own failure says more than that its result could not be kept.
                Err(_) => Outcome::Failed { error, result: None },
            }
        }
        outcome => outcome,
    }
}

fn cut(error: Fault) -> Fault {
    let bytes = error.message.len();
    if bytes <= MESSAGE_SHOWN_BYTES {
        return error;
    }
    let end = error.message.floor_char_boundary(MESSAGE_SHOWN_BYTES);
    Fault { message: format!("{}… ({bytes} bytes)", &error.message[..end]), code: error.code }
}

fn shrink(result: &ToolResult, keep: &mut Keep<'_>) -> Result<ToolResult, Fault> {
    let structured = match &result.structured {
        Some(large) if large.get().len() > PART_BYTES => {
            let kept = keep(large.get().as_bytes(), "application/json")?;
            Some(Raw::from(json!({ "blob": kept })))
        }
        other => other.clone(),
    };
    let parts: Vec<Raw> = result.content.to().unwrap_or_default();
    let mut content = Vec::with_capacity(parts.len() + 1);
    for part in parts {
        if part.get().len() > PART_BYTES {
            content.extend(in_place_of(&part, keep)?);
        } else {
            content.push(part);
        }
    }
    let mut small = ToolResult { content: array(&content), structured, is_error: result.is_error };
    if small.bytes() > WHOLE_BYTES {
        // Very many parts.
        let kept = keep(result.content.get().as_bytes(), "application/json")?;
        small.content = array(&[told(&kept, None), link(&kept)]);
    }
    Ok(small)
}

fn array(parts: &[Raw]) -> Raw {
    Raw::of(parts).unwrap_or_else(|_| Raw::null())
}

#[derive(Deserialize)]
struct Part {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    data: Option<String>,
    #[serde(rename = "mimeType", default)]
    mime_type: Option<String>,
    #[serde(default)]
    resource: Option<Resource>,
}

#[derive(Deserialize)]
struct Resource {
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    blob: Option<String>,
    #[serde(rename = "mimeType", default)]
    mime_type: Option<String>,
}

/// What goes in a large part's place.
fn in_place_of(part: &Raw, keep: &mut Keep<'_>) -> Result<[Raw; 2], Fault> {
    let whole = || (part.get().as_bytes().to_vec(), "application/json".to_owned(), false);
    let (bytes, media_type, is_text) = match part.to::<Part>() {
        Ok(Part { kind, text: Some(text), .. }) if kind == "text" => (text.into_bytes(), "text/plain".to_owned(), true),
        Ok(Part { data: Some(data), mime_type, .. }) => match base64(&data) {
            Some(bytes) => (bytes, media(mime_type, "application/octet-stream"), false),
            None => whole(),
        },
        Ok(Part { resource: Some(Resource { text: Some(text), mime_type, .. }), .. }) => {
            (text.into_bytes(), media(mime_type, "text/plain"), true)
        }
        Ok(Part { resource: Some(Resource { blob: Some(data), mime_type, .. }), .. }) => match base64(&data) {
            Some(bytes) => (bytes, media(mime_type, "application/octet-stream"), false),
            None => whole(),
        },
        Ok(_) | Err(_) => whole(),
    };
    let kept = keep(&bytes, &media_type)?;
    let preview = is_text.then(|| {
        let end = bytes.len().min(PREVIEW_BYTES);
        String::from_utf8_lossy(&bytes[..end]).trim_end_matches('\u{fffd}').to_owned()
    });
    Ok([told(&kept, preview), link(&kept)])
}

/// A media type as a header can carry it.
fn media(named: Option<String>, usual: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "/+-._;= ".contains(c);
    named.filter(|n| n.contains('/') && n.len() <= 100 && n.chars().all(fits)).unwrap_or_else(|| usual.to_owned())
}

/// For people, and for models that read only text.
fn told(kept: &Kept, preview: Option<String>) -> Raw {
    let Kept { handle, size, media_type, .. } = kept;
    let whole = format!("[{size} bytes of {media_type} are kept: GET /api/v1/blobs/{handle}]");
    let text = match preview {
        Some(preview) => format!("{preview}…\n{whole}"),
        None => whole,
    };
    Raw::from(json!({ "type": "text", "text": text }))
}

fn link(kept: &Kept) -> Raw {
    let Kept { handle, size, media_type, sha256 } = kept;
    Raw::from(json!({
        "type": "resource_link", "uri": format!("blob:{handle}"), "name": handle, "mimeType": media_type, "size": size,
        "_meta": {"vancetope/sha256": sha256},
    }))
}

fn base64(text: &str) -> Option<Vec<u8>> {
    base64::engine::general_purpose::STANDARD.decode(text).ok()
}

#[cfg(test)]
mod tests;

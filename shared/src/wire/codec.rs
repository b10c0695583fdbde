//! Text to frame and back. The envelope is read first, then the frame: raw JSON does not survive tagged enums.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{ErrorFrame, ToBrain, ToFoot};
use crate::show;

/// Most frames are no larger.
const FRAME_BYTES_LIKELY: usize = 384;

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
}

/// What a text frame turned out to be.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant)] // lives for one match
pub enum Decoded<F> {
    /// A frame.
    Frame(F),
    /// A well-formed object of a type that this release does not know: answer with this error, go on.
    Unknown(ErrorFrame),
    /// Not a frame: answer with this error, go on.
    Malformed(ErrorFrame),
}

fn kind(text: &str) -> Result<Cow<'_, str>, ErrorFrame> {
    // As both of our ends write it: then a large frame is read once, not twice.
    if let Some((kind, _)) = text.strip_prefix(r#"{"type":""#).and_then(|rest| rest.split_once('"'))
        && !kind.contains('\\')
    {
        return Ok(Cow::Borrowed(kind));
    }
    serde_json::from_str::<Envelope<'_>>(text).map(|e| e.kind).map_err(|e| malformed("a frame", &e))
}

fn malformed(what: &str, error: &serde_json::Error) -> ErrorFrame {
    ErrorFrame {
        code: "malformed_frame".to_owned(),
        message: show::plain(&format!("cannot read {what}: {error}; expected one JSON object with a string `type`")),
        id: None,
    }
}

fn unknown(kind: &str) -> ErrorFrame {
    ErrorFrame {
        code: "unknown_type".to_owned(),
        message: format!("frame type {} is not known here and was ignored", show::quoted(kind, 40)),
        id: None,
    }
}

fn read<'a, T: Deserialize<'a>, F>(text: &'a str, kind: &str, wrap: impl FnOnce(T) -> F) -> Decoded<F> {
    match serde_json::from_str::<T>(text) {
        Ok(body) => Decoded::Frame(wrap(body)),
        Err(error) => Decoded::Malformed(malformed(&format!("`{kind}`"), &error)),
    }
}

/// Reads a frame that a Foot sent.
pub fn decode_to_brain(text: &str) -> Decoded<ToBrain> {
    let kind = match kind(text) {
        Ok(kind) => kind,
        Err(error) => return Decoded::Malformed(error),
    };
    match kind.as_ref() {
        "client_connected" => read(text, &kind, ToBrain::ClientConnected),
        "tools_changed" => read(text, &kind, ToBrain::ToolsChanged),
        "accepted" => read(text, &kind, ToBrain::Accepted),
        "progress" => read(text, &kind, ToBrain::Progress),
        "result" => read(text, &kind, ToBrain::Result),
        "result_part" => read(text, &kind, ToBrain::ResultPart),
        "elicit" => read(text, &kind, ToBrain::Elicit),
        "elicit_end" => read(text, &kind, ToBrain::ElicitEnd),
        "elicit_reply" => read(text, &kind, ToBrain::ElicitReply),
        "blob_part" => read(text, &kind, ToBrain::BlobPart),
        "ping" => read(text, &kind, ToBrain::Ping),
        "pong" => read(text, &kind, ToBrain::Pong),
        "drain" => read(text, &kind, ToBrain::Drain),
        "error" => read(text, &kind, ToBrain::Error),
        other => Decoded::Unknown(unknown(other)),
    }
}

/// Reads a frame that a Brain sent.
pub fn decode_to_foot(text: &str) -> Decoded<ToFoot> {
    let kind = match kind(text) {
        Ok(kind) => kind,
        Err(error) => return Decoded::Malformed(error),
    };
    match kind.as_ref() {
        "welcome" => read(text, &kind, ToFoot::Welcome),
        "call" => read(text, &kind, ToFoot::Call),
        "result_ack" => read(text, &kind, ToFoot::ResultAck),
        "cancel" => read(text, &kind, ToFoot::Cancel),
        "elicit_reply" => read(text, &kind, ToFoot::ElicitReply),
        "elicit" => read(text, &kind, |elicit| ToFoot::Elicit(Box::new(elicit))),
        "elicit_end" => read(text, &kind, ToFoot::ElicitEnd),
        "blob_get" => read(text, &kind, ToFoot::BlobGet),
        "ping" => read(text, &kind, ToFoot::Ping),
        "pong" => read(text, &kind, ToFoot::Pong),
        "drain" => read(text, &kind, ToFoot::Drain),
        "error" => read(text, &kind, ToFoot::Error),
        other => Decoded::Unknown(unknown(other)),
    }
}

/// A frame's text. Frames hold only strings, numbers and raw JSON, so this does not fail; should it ever, the peer gets an `error` frame.
pub fn encode<F: Serialize>(frame: &F) -> String {
    encode_within(frame, FRAME_BYTES_LIKELY)
}

/// The same, with the number of bytes that it will probably have: a large text is not moved while it grows.
pub(super) fn encode_within<F: Serialize>(frame: &F, bytes: usize) -> String {
    let mut text = Vec::with_capacity(bytes);
    let written = serde_json::to_writer(&mut text, frame).map_err(|error| error.to_string());
    let text = written.and_then(|()| String::from_utf8(text).map_err(|error| error.to_string()));
    text.unwrap_or_else(|error| {
        format!(r#"{{"type":"error","code":"encode","message":"{}"}}"#, show::plain(&error).replace(['"', '\\'], " "))
    })
}

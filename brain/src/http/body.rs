//! Bodies: read within a size and a time, then as text, then as JSON whose every mistake has its line.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use axum::body::{Bytes, HttpBody};
use axum::extract::{FromRequest, Request};
use http::HeaderMap;
use http::header::{CONTENT_LENGTH, EXPECT};
use tokio::time::timeout;
use vance_shared::doc::{Fields, Problem, Problems, read_json};

use super::answer::{Answer, bad_body};
use crate::api::ApiError;

/// Largest body: a tree of ten thousand tasks, and more than a call may carry over the wire.
pub(super) const MAX_BODY_BYTES: usize = 4 * 1024 * 1024;
/// How much of a body that is too large is read and thrown away, so that its sender comes to read the answer.
const MAX_DISCARDED_BYTES: usize = 4 * MAX_BODY_BYTES;
/// How long a body may take: 4 MiB over a line of 150 KiB/s.
const BODY_WAIT: Duration = Duration::from_secs(30);
/// What a body is called in problems.
pub(super) const BODY: &str = "request body";

/// A body as text.
pub(super) struct Text(pub(super) String);

impl<S: Sync> FromRequest<S> for Text {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &S) -> Answer<Self> {
        let (parts, body) = request.into_parts();
        Self::of(&parts.headers, body).await
    }
}

impl Text {
    /// Reads a body to its end.
    pub(super) async fn of<B>(headers: &HeaderMap, body: B) -> Answer<Self>
    where
        B: HttpBody<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let late = || {
            let text = format!("the body did not come within {} s; send it again", BODY_WAIT.as_secs());
            ApiError::new(408, "body_timeout", text)
        };
        let bytes = timeout(BODY_WAIT, read(headers, body)).await.map_err(|_| late())??;
        match String::from_utf8(bytes) {
            Ok(text) => Ok(Self(text)),
            Err(error) => {
                let good = error.utf8_error().valid_up_to();
                let lines = error.as_bytes().iter().take(good).filter(|byte| **byte == b'\n').count();
                let line = u32::try_from(lines + 1).unwrap_or(u32::MAX);
                Err(bad_body(&[Problem::new(BODY, line, "the body is not UTF-8")]))
            }
        }
    }
}

fn too_large() -> ApiError {
    let text = format!("the body is larger than {MAX_BODY_BYTES} bytes; split it");
    ApiError::new(413, "too_large", text)
}

async fn read<B>(headers: &HeaderMap, mut body: B) -> Answer<Vec<u8>>
where
    B: HttpBody<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let declared = headers.get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse::<usize>().ok());
    let declared = declared.unwrap_or(0);
    // Who asks first, or announces far too much, is told without reading.
    if declared > MAX_BODY_BYTES && (headers.contains_key(EXPECT) || declared > MAX_DISCARDED_BYTES) {
        return Err(too_large());
    }
    let mut next = async || loop {
        match poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            None => return Ok(None),
            // Trailers are not looked at.
            Some(Ok(frame)) => match frame.into_data() {
                Ok(chunk) => return Ok(Some(chunk)),
                Err(_) => continue,
            },
            Some(Err(error)) => {
                let why = vance_shared::show::plain(&error.to_string());
                return Err(ApiError::new(400, "bad_request", format!("the body broke off: {why}")));
            }
        }
    };
    let mut bytes = Vec::with_capacity(declared.min(MAX_BODY_BYTES));
    while let Some(chunk) = next().await? {
        if bytes.len() + Bytes::len(&chunk) > MAX_BODY_BYTES {
            let mut discarded = bytes.len() + chunk.len();
            while discarded <= MAX_DISCARDED_BYTES {
                match next().await? {
                    Some(chunk) => discarded += chunk.len(),
                    None => break,
                }
            }
            return Err(too_large());
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// Reads a JSON object, strictly; a blank body is an empty one.
pub(super) fn parse<T>(text: &str, what: &str, read: impl FnOnce(&mut Fields<'_>) -> T) -> Answer<T> {
    let text = if text.trim().is_empty() { "{}" } else { text };
    let problems = Problems::new(BODY);
    let Some(node) = read_json(text, &problems) else { return Err(bad_body(&problems.into_list())) };
    let value = Fields::of(&node, what, &problems).map(|mut fields| {
        let value = read(&mut fields);
        fields.finish();
        value
    });
    problems.into_result(value).map_err(|list| bad_body(&list))
}

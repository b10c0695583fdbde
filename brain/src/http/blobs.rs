//! `GET /api/v1/blobs/{handle}`: what was too large to travel, piece by piece: no more is read from its keeper than the caller takes.

use std::io;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::response::Response;
use futures_util::stream;
use http::header::{
    ACCEPT_RANGES, CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderValue, RANGE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, StatusCode};
use vance_shared::ids::BlobHandle;

use super::App;
use super::answer::Answer;
use super::gate::{ApiCaller, header};
use super::query::{Params, Segment};
use crate::api::ApiError;
use crate::blobs::{self, Piece};
use crate::hub::Brain;

/// The handler.
pub(super) async fn blob(
    State(app): State<Arc<App>>,
    ApiCaller(who): ApiCaller,
    Segment(handle): Segment,
    params: Params,
    headers: HeaderMap,
) -> Answer {
    params.take([])?;
    let handle = BlobHandle::parse(&handle).map_err(|e| ApiError::new(404, "blob_not_found", e.to_string()))?;
    let wanted = header(&headers, RANGE.as_str())?.and_then(Wanted::parse);
    // What it is has to be known before the answer begins; for all but the last bytes the first piece says so as well.
    let begin = match wanted {
        Some(Wanted::From(first, _)) => first,
        Some(Wanted::Last(_)) | None => 0,
    };
    let first = blobs::read(&app.brain, &who.name, &handle, begin).await?;
    let size = first.kept.size;
    let Some((from, to)) = wanted.map_or(Some((0, size)), |wanted| wanted.within(size)) else {
        let text = format!("it has {size} bytes; none of them is in that range");
        let mut response = axum::response::IntoResponse::into_response(ApiError::new(416, "bad_range", text));
        response.headers_mut().insert(CONTENT_RANGE, value(&format!("bytes */{size}"))?);
        return Ok(response);
    };
    let first = if from == begin { first } else { blobs::read(&app.brain, &who.name, &handle, from).await? };
    let kept = first.kept.clone();
    let rest = Rest { brain: app.brain.clone(), owner: who.name.to_string(), handle, at: from, to, first: Some(first) };
    let mut response = Response::new(Body::from_stream(stream::try_unfold(rest, Rest::next)));
    if wanted.is_some() {
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    let headers = response.headers_mut();
    if wanted.is_some() {
        let last = to.saturating_sub(1);
        headers.insert(CONTENT_RANGE, value(&format!("bytes {from}-{last}/{size}"))?);
    }
    headers.insert(CONTENT_TYPE, value(&kept.media_type)?);
    headers.insert(CONTENT_LENGTH, HeaderValue::from(to - from));
    headers.insert(ETAG, value(&format!("\"{}\"", kept.sha256))?);
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    // A tool made it: a browser shows none of it as a page of ours.
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_DISPOSITION, HeaderValue::from_static("attachment"));
    Ok(response)
}

fn value(text: &str) -> Answer<HeaderValue> {
    HeaderValue::from_str(text).map_err(|_| ApiError::new(503, "unavailable", "the client says what no header can say"))
}

/// What a `Range` header asks for. Several ranges, or units that are not known, count as no header, as the standard has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// From here, to here if that is said (included).
    From(u64, Option<u64>),
    /// So many at the end.
    Last(u64),
}

impl Wanted {
    fn parse(text: &str) -> Option<Self> {
        let (first, last) = text.trim().strip_prefix("bytes=")?.split_once('-')?;
        let (first, last) = (first.trim(), last.trim());
        match (first.is_empty(), last.is_empty()) {
            (true, true) => None,
            (true, false) => last.parse().ok().map(Self::Last),
            (false, true) => Some(Self::From(first.parse().ok()?, None)),
            (false, false) => {
                let (first, last) = (first.parse().ok()?, last.parse().ok()?);
                (first <= last).then_some(Self::From(first, Some(last)))
            }
        }
    }

    /// From and to (excluded); `None`: there is nothing of it.
    fn within(self, size: u64) -> Option<(u64, u64)> {
        match self {
            Self::From(first, last) => {
                let to = last.map_or(size, |last| last.saturating_add(1).min(size));
                (first < size).then_some((first, to))
            }
            Self::Last(count) => (count > 0 && size > 0).then_some((size.saturating_sub(count), size)),
        }
    }
}

struct Rest {
    brain: Brain,
    owner: String,
    handle: BlobHandle,
    at: u64,
    to: u64,
    first: Option<Piece>,
}

impl Rest {
    /// The next piece. An error ends the body before its length: the caller sees that it is not whole.
    async fn next(mut self) -> io::Result<Option<(Bytes, Self)>> {
        let left = usize::try_from(self.to - self.at).unwrap_or(usize::MAX);
        if left == 0 {
            return Ok(None);
        }
        let piece = match self.first.take() {
            Some(piece) => piece,
            None => {
                let read = blobs::read(&self.brain, &self.owner, &self.handle, self.at).await;
                read.map_err(|error| io::Error::other(error.fault.message))?
            }
        };
        let mut bytes = Bytes::from(piece.bytes);
        bytes.truncate(left);
        if bytes.is_empty() {
            return Err(io::Error::other("it is shorter than it was"));
        }
        self.at += bytes.len() as u64;
        Ok(Some((bytes, self)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_the_standard_has_them() {
        let whole = 100;
        for (text, want) in [
            ("bytes=0-0", Some((0, 1))),
            ("bytes=10-", Some((10, 100))),
            ("bytes=10-5000", Some((10, 100))),
            ("bytes=-7", Some((93, 100))),
            ("bytes=-700", Some((0, 100))),
            (" bytes=1 - 2 ", Some((1, 3))),
            ("bytes=100-", None),
            ("bytes=-0", None),
        ] {
            assert_eq!(Wanted::parse(text).map(|wanted| wanted.within(whole)), Some(want), "{text}");
        }
        for other in
            ["bytes=", "bytes=-", "bytes=5-3", "bytes=1-2,4-5", "lines=1-2", "bytes=x-", "bytes=-99999999999999999999"]
        {
            assert_eq!(Wanted::parse(other), None, "{other}");
        }
    }
}

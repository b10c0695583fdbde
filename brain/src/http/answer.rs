//! Answers: JSON, and errors in their one shape.

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER, SEC_WEBSOCKET_VERSION, UPGRADE, WWW_AUTHENTICATE};
use http::{HeaderName, StatusCode};
use serde_json::Value;
use vance_shared::doc::Problem;

use crate::api::ApiError;

/// What the parts of this module give: an answer or an error.
pub(super) type Answer<T = Response> = Result<T, ApiError>;

/// A JSON body.
pub(super) fn json(status: u16, body: &Value) -> Response {
    text(status, body.to_string())
}

/// A body that is JSON already.
pub(super) fn text(status: u16, body: String) -> Response {
    with_type(status, "application/json", body)
}

/// A body with its type.
pub(super) fn with_type(status: u16, content_type: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// A response with one more header.
pub(super) fn with_header(mut response: Response, name: HeaderName, value: &'static str) -> Response {
    response.headers_mut().insert(name, HeaderValue::from_static(value));
    response
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let response = json(self.status, &self.body());
        match self.status {
            401 => with_header(response, WWW_AUTHENTICATE, "Bearer realm=\"vance-brain\""),
            426 => {
                let response = with_header(response, UPGRADE, "websocket");
                with_header(response, SEC_WEBSOCKET_VERSION, super::socket::VERSION)
            }
            // A moment is enough for a restart or a free place.
            429 | 503 => with_header(response, RETRY_AFTER, "1"),
            _ => response,
        }
    }
}

/// What is wrong in a body: the first problem is the message, all of them are listed.
pub(super) fn bad_body(problems: &[Problem]) -> ApiError {
    let first = problems.first().map(ToString::to_string).unwrap_or_default();
    let more = if problems.len() > 1 { format!(" (and {} more)", problems.len() - 1) } else { String::new() };
    let list = serde_json::to_value(problems).unwrap_or_default();
    ApiError::new(400, "bad_request", format!("{first}{more}")).with("problems", list)
}

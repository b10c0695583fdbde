//! The SDK's errors in our words: what went wrong, and whether a tool may have run. Never an URL or a header: they may hold a secret.

use std::error::Error;

use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::auth::AuthError;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use vance_shared::show::{plain, quoted};

use crate::auth::{HttpError, is_unauthorized};
use crate::lane::Reply;

/// Characters of a foreign error that are worth showing.
const SHOWN_CHARS: usize = 300;

/// Answers that a server gives before it has looked for a tool.
const REFUSED_UNREAD: [&str; 6] = ["HTTP 400", "HTTP 404", "HTTP 405", "HTTP 406", "HTTP 413", "HTTP 415"];

/// What a failed request means, with the reason if the server has to be reached anew.
pub(crate) fn verdict(error: ServiceError) -> (Reply, Option<String>) {
    match error {
        ServiceError::McpError(error) => {
            (Reply::Error { code: i64::from(error.code.0), message: error.message.into_owned() }, None)
        }
        ServiceError::TransportClosed => lost("the connection was closed".to_owned(), true, true),
        ServiceError::TransportSend(error) => match error.error.downcast_ref::<HttpError>() {
            Some(error) if refuses(error) => (Reply::Refused(http(error)), None),
            Some(error) => {
                let (began, gone) = reach(error);
                lost(http(error), began, gone)
            }
            None => lost(cut(error.error.as_ref()), true, true),
        },
        other => (Reply::Error { code: 0, message: cut(&other) }, None),
    }
}

fn lost(why: String, began: bool, gone: bool) -> (Reply, Option<String>) {
    (Reply::Lost { why: why.clone(), began }, gone.then_some(why))
}

/// The server lets us in no more; nothing of the request reached a tool.
fn refuses(error: &HttpError) -> bool {
    matches!(
        error,
        StreamableHttpError::AuthRequired(_) | StreamableHttpError::InsufficientScope(_) | StreamableHttpError::Auth(_)
    ) || is_unauthorized(error)
        || says(error, "HTTP 403")
}

/// An answer that the SDK tells by its text alone.
fn says(error: &HttpError, status: &str) -> bool {
    matches!(error, StreamableHttpError::UnexpectedServerResponse(text) if text.starts_with(status))
}

/// Whether a greeting failed for who we are.
pub(crate) fn is_refusal(error: &ClientInitializeError) -> bool {
    match error {
        ClientInitializeError::TransportError { error, .. } => {
            error.error.downcast_ref::<HttpError>().is_some_and(refuses)
        }
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => is_refusal(fallback),
        _ => false,
    }
}

/// (the request may have reached a tool, the server has to be reached anew)
fn reach(error: &HttpError) -> (bool, bool) {
    match error {
        StreamableHttpError::Client(error) => (!error.is_connect(), true),
        // Refused before a tool was looked at.
        StreamableHttpError::SessionExpired => (false, true),
        // The server refused the request itself.
        error if REFUSED_UNREAD.iter().any(|status| says(error, status)) => (false, false),
        StreamableHttpError::HttpStatus(status) => (status.status != 429, false),
        StreamableHttpError::ResponseBodyTooLarge { .. } | StreamableHttpError::UnexpectedServerResponse(_) => {
            (true, false)
        }
        _ => (true, true),
    }
}

/// Why a server could not be greeted.
pub(crate) fn handshake(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => {
            error.error.downcast_ref::<HttpError>().map_or_else(|| cut(error.error.as_ref()), http)
        }
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => handshake(fallback),
        ClientInitializeError::JsonRpcError(error) => {
            format!("the server refuses: {} (JSON-RPC error {})", quoted(&error.message, SHOWN_CHARS), error.code.0)
        }
        ClientInitializeError::ConnectionClosed(_) => "the connection was closed".to_owned(),
        other => cut(other),
    }
}

fn http(error: &HttpError) -> String {
    match error {
        StreamableHttpError::Client(error) => request(error),
        StreamableHttpError::AuthRequired(_) => "the server wants authorization (HTTP 401)".to_owned(),
        StreamableHttpError::InsufficientScope(_) => "the server refuses these credentials (HTTP 403)".to_owned(),
        StreamableHttpError::Auth(AuthError::AuthorizationFailed(why)) => why.clone(),
        error if says(error, "HTTP 403") => "the server refuses these credentials (HTTP 403)".to_owned(),
        error if is_unauthorized(error) => "the server wants authorization (HTTP 401)".to_owned(),
        StreamableHttpError::SessionExpired => "the server does not know the session any more (HTTP 404)".to_owned(),
        other => cut(other),
    }
}

/// An HTTP library's error: the library hides what matters in the last cause.
pub(crate) fn request(error: &reqwest::Error) -> String {
    let what = match error.status() {
        Some(status) => format!("HTTP {}", status.as_u16()),
        None if error.is_connect() => format!("cannot connect{}", error.url().and_then(host).unwrap_or_default()),
        None if error.is_timeout() => "timed out".to_owned(),
        None => "the HTTP exchange failed".to_owned(),
    };
    let mut last: Option<&dyn Error> = None;
    let mut next = error.source();
    while let Some(cause) = next {
        last = Some(cause);
        next = cause.source();
    }
    last.map_or(what.clone(), |cause| format!("{what}: {}", cut(cause)))
}

/// Of an address only who was meant: its query may hold a key.
fn host(url: &reqwest::Url) -> Option<String> {
    let host = plain(url.host_str()?);
    Some(url.port().map_or_else(|| format!(" to {host}"), |port| format!(" to {host}:{port}")))
}

fn cut(error: &dyn Error) -> String {
    plain(&error.to_string().chars().take(SHOWN_CHARS).collect::<String>())
}

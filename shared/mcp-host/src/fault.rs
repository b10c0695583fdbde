//! The SDK's errors in our words: what went wrong, and whether a tool may have run. Never an URL or a header: they may hold a secret.

use std::error::Error;

use rmcp::service::{ClientInitializeError, ServiceError};
use rmcp::transport::auth::AuthError;
use rmcp::transport::streamable_http_client::StreamableHttpError;
use vance_shared::show::{plain, quoted};

use crate::auth::{HttpError, is_unauthorized};
use crate::lane::Reply;
use crate::mask::Mask;

/// Characters of a foreign error that are worth showing.
const SHOWN_CHARS: usize = 300;

/// Answers that a server gives before it has looked for a tool.
const REFUSED_UNREAD: [&str; 6] = ["HTTP 400", "HTTP 404", "HTTP 405", "HTTP 406", "HTTP 413", "HTTP 415"];

/// What a failed request leaves open: whether the server is still there, for others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// It may have forgotten the session, or not know this request only.
    Session,
    /// It may be gone, or have answered this request badly only.
    Server,
}

/// What a failed request means, and what it leaves open.
pub(crate) fn verdict(error: ServiceError, mask: &Mask) -> (Reply, Option<Doubt>) {
    match error {
        ServiceError::McpError(error) => {
            (Reply::Error { code: i64::from(error.code.0), message: error.message.into_owned() }, None)
        }
        ServiceError::TransportClosed => lost("the connection was closed".to_owned(), true, Some(Doubt::Server)),
        ServiceError::TransportSend(error) => match error.error.downcast_ref::<HttpError>() {
            Some(error) if refuses(error) => (Reply::Refused(http(error, mask)), None),
            Some(error) => {
                let (began, doubt) = reach(error);
                lost(http(error, mask), began, doubt)
            }
            None => lost(cut(error.error.as_ref(), mask), true, Some(Doubt::Server)),
        },
        other => (Reply::Error { code: 0, message: cut(&other, mask) }, None),
    }
}

fn lost(why: String, began: bool, doubt: Option<Doubt>) -> (Reply, Option<Doubt>) {
    (Reply::Lost { why, began }, doubt)
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

/// Whether nobody answered at an address, which passes by itself: a network, a host or a process that is away. A certificate that
/// is not believed does not pass.
pub(crate) fn is_away(error: &ClientInitializeError) -> bool {
    match error {
        ClientInitializeError::TransportError { error, .. } => match error.error.downcast_ref::<HttpError>() {
            Some(StreamableHttpError::Client(error)) => error.status().is_none() && !is_about_trust(error),
            Some(StreamableHttpError::HttpStatus(_)) => true,
            Some(_) | None => false,
        },
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => is_away(fallback),
        ClientInitializeError::ConnectionClosed(_) => true,
        _ => false,
    }
}

fn is_about_trust(error: &reqwest::Error) -> bool {
    std::iter::successors(error.source(), |cause| (**cause).source())
        .any(|cause| cause.downcast_ref::<std::io::Error>().is_some_and(is_invalid))
}

/// TLS tells its faults as data that makes no sense, in an error within another.
fn is_invalid(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::InvalidData
        || error.get_ref().and_then(|inner| inner.downcast_ref::<std::io::Error>()).is_some_and(is_invalid)
}

/// Whether the request may have reached a tool, and what it leaves open.
fn reach(error: &HttpError) -> (bool, Option<Doubt>) {
    match error {
        StreamableHttpError::Client(error) => (!error.is_connect(), Some(Doubt::Server)),
        // Refused before a tool was looked at.
        StreamableHttpError::SessionExpired => (false, Some(Doubt::Session)),
        // The server refused the request itself.
        error if REFUSED_UNREAD.iter().any(|status| says(error, status)) => (false, None),
        StreamableHttpError::HttpStatus(status) => (status.status != 429, None),
        // It is there: it answered, if badly.
        StreamableHttpError::ResponseBodyTooLarge { .. }
        | StreamableHttpError::UnexpectedServerResponse(_)
        | StreamableHttpError::UnexpectedContentType(_)
        | StreamableHttpError::Deserialize(_) => (true, None),
        _ => (true, Some(Doubt::Server)),
    }
}

/// Why a server could not be greeted.
pub(crate) fn handshake(error: &ClientInitializeError, mask: &Mask) -> String {
    match error {
        ClientInitializeError::TransportError { error, .. } => error
            .error
            .downcast_ref::<HttpError>()
            .map_or_else(|| cut(error.error.as_ref(), mask), |error| http(error, mask)),
        ClientInitializeError::LegacyFallbackFailed { fallback, .. } => handshake(fallback, mask),
        ClientInitializeError::JsonRpcError(error) => {
            format!(
                "the server refuses: {} (JSON-RPC error {})",
                quoted(&mask.text(&error.message), SHOWN_CHARS),
                error.code.0
            )
        }
        ClientInitializeError::ConnectionClosed(_) => "the connection was closed".to_owned(),
        other => cut(other, mask),
    }
}

fn http(error: &HttpError, mask: &Mask) -> String {
    match error {
        StreamableHttpError::Client(error) => request(error),
        StreamableHttpError::AuthRequired(_) => "the server wants authorization (HTTP 401)".to_owned(),
        StreamableHttpError::InsufficientScope(_) => "the server refuses these credentials (HTTP 403)".to_owned(),
        StreamableHttpError::Auth(AuthError::AuthorizationFailed(why)) => why.clone(),
        error if says(error, "HTTP 403") => "the server refuses these credentials (HTTP 403)".to_owned(),
        error if is_unauthorized(error) => "the server wants authorization (HTTP 401)".to_owned(),
        StreamableHttpError::SessionExpired => "the server does not know the session any more (HTTP 404)".to_owned(),
        other => cut(other, mask),
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
    last.map_or(what.clone(), |cause| format!("{what}: {}", shortened(&cause.to_string())))
}

/// Of an address only who was meant: its query may hold a key.
fn host(url: &reqwest::Url) -> Option<String> {
    let host = plain(url.host_str()?);
    Some(url.port().map_or_else(|| format!(" to {host}"), |port| format!(" to {host}:{port}")))
}

/// The whole text is masked, then it is cut: half a secret would not be found.
fn cut(error: &dyn Error, mask: &Mask) -> String {
    shortened(&mask.text(&error.to_string()))
}

fn shortened(text: &str) -> String {
    plain(&text.chars().take(SHOWN_CHARS).collect::<String>())
}

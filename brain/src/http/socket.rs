//! `GET /ws`: the upgrade to the wire. Our own, over hyper, so that the wire's end is the one WebSocket library of the product.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{CONNECTION, HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, UPGRADE};
use http::{StatusCode, Version};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::App;
use super::answer::Answer;
use super::gate::{FootCaller, header};
use crate::api::ApiError;
use crate::link;

/// The one version that there is.
pub(super) const VERSION: &str = "13";
/// Bytes of a key before base64.
const KEY_BYTES: usize = 16;

/// Answers 101 and hands the connection to [`link::serve_socket`].
pub(super) async fn upgrade(
    State(app): State<Arc<App>>,
    FootCaller(caller): FootCaller,
    mut request: Request,
) -> Answer {
    let accept = check(&request)?;
    if app.shutdown.is_cancelled() {
        return Err(ApiError::new(503, "draining", "the Brain is shutting down; connect again in a moment"));
    }
    let place = app.new_sockets.clone().try_acquire_owned();
    let place =
        place.map_err(|_| ApiError::new(503, "busy", "too many clients connect at once; try again in a moment"))?;
    let upgrade = hyper::upgrade::on(&mut request);
    let (brain, cut) = (app.brain.clone(), app.cut.clone());
    let serving = app.sockets.track_future(async move {
        let io = match upgrade.await {
            Ok(upgraded) => TokioIo::new(upgraded),
            Err(error) => return tracing::debug!(%error, "a client went away before its upgrade"),
        };
        tokio::select! {
            () = link::serve_socket(brain, caller, io, place) => {}
            () = cut.cancelled() => {}
        }
    });
    vance_supervise::near(serving);
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    Ok(response)
}

/// The value of `Sec-WebSocket-Accept`, or what is wrong with the handshake (RFC 6455, 4.2.1).
fn check(request: &Request) -> Answer<HeaderValue> {
    let headers = request.headers();
    let asks = request.version() == Version::HTTP_11
        && lists(headers, &CONNECTION, "upgrade")
        && lists(headers, &UPGRADE, "websocket");
    if !asks || header(headers, "sec-websocket-version")? != Some(VERSION) {
        let text = "this is the wire for Feet: a WebSocket handshake of version 13 is needed (`vancetope --brain URL` makes one)";
        return Err(ApiError::new(426, "upgrade_required", text));
    }
    let key = header(headers, "sec-websocket-key")?;
    let key = key.filter(|key| STANDARD.decode(key).is_ok_and(|nonce| nonce.len() == KEY_BYTES));
    let accept = key.and_then(|key| HeaderValue::from_str(&derive_accept_key(key.as_bytes())).ok());
    accept.ok_or_else(|| {
        ApiError::new(400, "bad_handshake", "the handshake needs one `Sec-WebSocket-Key` of 16 bytes in base64")
    })
}

/// True if a header of comma-separated words has this one.
fn lists(headers: &HeaderMap, name: &HeaderName, word: &str) -> bool {
    let values = headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).any(|found| found.trim().eq_ignore_ascii_case(word))
}

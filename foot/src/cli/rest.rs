//! `--rest-api`: a small HTTP interface for debugging this Foot, for programs of the same user on the same machine.
//!
//! It lists and calls tools and loads packs anew. It answers no question: what needs a yes is asked at the terminal, if this
//! process has one, and refused otherwise.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::extract::rejection::JsonRejection;
use axum::extract::{DefaultBodyLimit, Path as Named, Request, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::{Value, json};
use subtle::ConstantTimeEq as _;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use vance_foot_core::merge::LeftOut;
use vance_shared::doc::parse_duration;
use vance_shared::ids::CallId;
use vance_shared::json::Raw;

use super::failure::Failure;
use super::tools::outcome_json;
use crate::engine::{Foot, LocalCall};
use crate::secret;

/// Requests at once: a person and a script or two.
const MAX_AT_ONCE: usize = 16;
/// Largest body, in bytes: what a call may carry over the wire, too.
const MAX_BODY_BYTES: usize = 8 * 1024 * 1024;
/// How long requests that are under way may hold up the end.
const END_WITHIN: Duration = Duration::from_secs(1);

/// A running interface. Ends with [`Rest::end`], or with the process.
pub(super) struct Rest {
    /// Where it listens.
    pub(super) address: SocketAddr,
    stop: CancellationToken,
    served: tokio::task::JoinHandle<std::io::Result<()>>,
}

#[derive(Clone)]
struct Shared {
    /// Not held between requests: the Foot ends when its owner says so.
    foot: Weak<Foot>,
    token: Arc<str>,
    hosts: Arc<[String]>,
    room: Arc<Semaphore>,
    stop: CancellationToken,
}

impl Rest {
    /// Listens; the token is made at the first start. `address` is this machine's own (the command line checks it).
    pub(super) async fn start(address: SocketAddr, home: &Path, foot: &Arc<Foot>) -> Result<Self, Failure> {
        let fault = |what: String, error: std::io::Error| Failure::Foot(format!("--rest-api: {what}: {error}"));
        let path = home.join("state").join("rest-api.token");
        let token = secret::read_or_make(&path).map_err(|error| fault(path.display().to_string(), error))?;
        let listener = TcpListener::bind(address).await.map_err(|error| fault(address.to_string(), error))?;
        let address = listener.local_addr().map_err(|error| fault(address.to_string(), error))?;
        let stop = CancellationToken::new();
        let hosts = [format!("{}:{}", shown(address), address.port()), format!("localhost:{}", address.port())];
        let shared = Shared {
            foot: Arc::downgrade(foot),
            token: token.into(),
            hosts: Arc::new(hosts),
            room: Arc::new(Semaphore::new(MAX_AT_ONCE)),
            stop: stop.clone(),
        };
        let server = axum::serve(listener, routes(shared)).with_graceful_shutdown(stop.clone().cancelled_owned());
        Ok(Self { address, stop, served: tokio::spawn(server.into_future()) })
    }

    /// Takes no more requests and ends those that are under way.
    pub(super) async fn end(self) {
        self.stop.cancel();
        if tokio::time::timeout(END_WITHIN, self.served).await.is_err() {
            tracing::debug!("requests of the debug interface are left behind");
        }
    }
}

fn shown(address: SocketAddr) -> String {
    match address {
        SocketAddr::V4(v4) => v4.ip().to_string(),
        SocketAddr::V6(v6) => format!("[{}]", v6.ip()),
    }
}

fn routes(shared: Shared) -> Router {
    Router::new()
        .route("/tools", get(tools))
        .route("/tools/{name}/call", post(call))
        .route("/tools/reload", post(reload))
        .route("/packs", get(packs))
        .fallback(|| async { refuse(StatusCode::NOT_FOUND, "not_found", "there is no such route") })
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .layer(from_fn_with_state(shared.clone(), guard))
        .with_state(shared)
}

fn refuse(status: StatusCode, code: &str, message: &str) -> Response {
    (status, Json(json!({"error": {"code": code, "message": message}}))).into_response()
}

/// Host and Origin before the token: a page in a browser learns nothing, whatever name it gave this address.
async fn guard(State(shared): State<Shared>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    if let Err((status, code, message)) = admitted(request.uri(), headers, &shared.hosts, &shared.token) {
        return refuse(status, code, message);
    }
    let Ok(_room) = shared.room.try_acquire() else {
        return refuse(StatusCode::TOO_MANY_REQUESTS, "busy", "too many requests at once, try again");
    };
    tokio::select! {
        answer = next.run(request) => answer,
        () = shared.stop.cancelled() => refuse(StatusCode::SERVICE_UNAVAILABLE, "stopping", "this Foot ends"),
    }
}

type Refusal = (StatusCode, &'static str, &'static str);

fn admitted(uri: &Uri, headers: &HeaderMap, hosts: &[String], token: &str) -> Result<(), Refusal> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    // Whoever stands between could have looked at the other one.
    if headers.get_all(header::HOST).iter().count() > 1 {
        return Err((StatusCode::BAD_REQUEST, "host", "there is more than one Host"));
    }
    if uri.authority().is_some_and(|there| !hosts.iter().any(|own| own == there.as_str())) {
        return Err((StatusCode::BAD_REQUEST, "host", "the request's address is not this machine's own"));
    }
    if !text(header::HOST).is_some_and(|host| hosts.iter().any(|own| own == host)) {
        return Err((StatusCode::FORBIDDEN, "host", "this Host is not this machine's own"));
    }
    if headers.contains_key(header::ORIGIN) {
        return Err((StatusCode::FORBIDDEN, "origin", "not for pages in a browser"));
    }
    let given = text(header::AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default();
    if !bool::from(given.trim().as_bytes().ct_eq(token.as_bytes())) {
        let why = "send `Authorization: Bearer TOKEN`; the token is in <home>/state/rest-api.token";
        return Err((StatusCode::UNAUTHORIZED, "unauthorized", why));
    }
    Ok(())
}

fn gone() -> Response {
    refuse(StatusCode::SERVICE_UNAVAILABLE, "stopping", "this Foot ends")
}

async fn tools(State(shared): State<Shared>) -> Response {
    let Some(foot) = shared.foot.upgrade() else { return gone() };
    let tools: Vec<Value> = foot
        .tools()
        .iter()
        .map(|t| {
            json!({
                "name": t.name, "pack": t.pack, "description": t.description, "labels": t.labels, "replay": t.replay,
                "input_schema": t.input_schema, "output_schema": t.output_schema,
            })
        })
        .collect();
    Json(json!({ "tools": tools })).into_response()
}

async fn packs(State(shared): State<Shared>) -> Response {
    let Some(foot) = shared.foot.upgrade() else { return gone() };
    Json(json!({ "packs": foot.packs().await })).into_response()
}

/// Packs that ask are asked at the terminal, if there is one.
async fn reload(State(shared): State<Shared>) -> Response {
    let Some(foot) = shared.foot.upgrade() else { return gone() };
    let summary = foot.reload().await;
    Json(json!({
        "summary": summary.to_string(), "loaded": summary.loaded, "tools": summary.tools,
        "skipped": left(&summary.skipped), "failed": left(&summary.failed),
    }))
    .into_response()
}

fn left(packs: &[LeftOut]) -> Vec<Value> {
    packs.iter().map(|l| json!({"pack": l.pack, "file": l.file, "reason": l.reason})).collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    #[serde(default = "Raw::empty_object")]
    arguments: Raw,
    timeout: Option<String>,
}

async fn call(
    State(shared): State<Shared>,
    Named(name): Named<String>,
    wanted: Result<Json<Wanted>, JsonRejection>,
) -> Response {
    let Some(foot) = shared.foot.upgrade() else { return gone() };
    let bad = |why: &str| refuse(StatusCode::BAD_REQUEST, "bad_request", why);
    let Wanted { arguments, timeout } = match wanted {
        Ok(Json(wanted)) => wanted,
        Err(rejection) => return refuse(rejection.status(), "bad_request", &rejection.body_text()),
    };
    if !arguments.value().is_object() {
        return bad("`arguments` has to be an object");
    }
    let timeout = match timeout.as_deref().map(parse_duration).transpose() {
        Ok(timeout) => timeout,
        Err(why) => return bad(&format!("`timeout`: {why}")),
    };
    let call_id = CallId::generate();
    // Dropped with the request: who hangs up does not want it any more.
    let cancel = CancellationToken::new();
    let _hangs_up = cancel.clone().drop_guard();
    let local = LocalCall { call_id: call_id.clone(), tool: name.clone(), arguments, timeout, cancel, progress: None };
    let outcome = foot.call_local(local).await;
    Json(outcome_json(&call_id, &name, &outcome)).into_response()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_a_program_of_this_machine_with_the_token_is_admitted() {
        let hosts = ["127.0.0.1:7".to_owned(), "localhost:7".to_owned()];
        let good = [("host", "127.0.0.1:7"), ("authorization", "Bearer t")];
        for (headers, want) in [
            (&good[..], None),
            (&[good[0], good[0], good[1]], Some(400)),
            (&[good[0], ("host", "evil.example:7"), good[1]], Some(400)),
            (&[("host", "localhost:7"), good[1]], None),
            (&[("host", "evil.example:7"), good[1]], Some(403)),
            (&[("host", "127.0.0.1:8"), good[1]], Some(403)),
            (&[good[1]], Some(403)),
            (&[good[0], good[1], ("origin", "http://127.0.0.1:7")], Some(403)),
            (&[good[0], good[1], ("origin", "null")], Some(403)),
            (&[good[0]], Some(401)),
            (&[good[0], ("authorization", "Bearer x")], Some(401)),
            (&[good[0], ("authorization", "Basic t")], Some(401)),
            (&[good[0], ("authorization", "Bearer ")], Some(401)),
        ] {
            let mut map = HeaderMap::new();
            for (name, value) in headers {
                map.append(header::HeaderName::from_bytes(name.as_bytes()).unwrap(), value.parse().unwrap());
            }
            let got =
                admitted(&Uri::from_static("/tools"), &map, &hosts, "t").err().map(|(status, _, _)| status.as_u16());
            assert_eq!(got, want, "{headers:?}");
        }
        let mut map = HeaderMap::new();
        for (name, value) in good {
            map.append(name, value.parse().unwrap());
        }
        for (address, want) in [
            ("http://127.0.0.1:7/tools", None),
            ("http://localhost:7/tools", None),
            ("http://evil.example:7/tools", Some(400)),
            ("http://127.0.0.1/tools", Some(400)),
            ("http://u@127.0.0.1:7/tools", Some(400)),
            ("127.0.0.1:8", Some(400)),
        ] {
            let got =
                admitted(&Uri::from_static(address), &map, &hosts, "t").err().map(|(status, _, _)| status.as_u16());
            assert_eq!(got, want, "{address}");
        }
    }
}

//! What stands before every route: where the request comes from, and whose it is.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::FromRequestParts;
use axum::response::{IntoResponse as _, Response};
use http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN};
use http::request::Parts;
use http::{Method, Request, Uri};
use hyper::body::Incoming;
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};
use tracing::Instrument as _;
use vance_observability::names::{HTTP_METHOD, HTTP_PATH, HTTP_STATUS, SPAN_HTTP_REQUEST};
use vance_observability::spans::{Kind, Span};
use vance_shared::show::plain;
use vance_shared::trace::TraceContext;

use super::answer::Answer;
use super::routes::OPEN;
use super::strangers::Visitor;
use super::{App, handlers, routes};
use crate::api::ApiError;
use crate::guardrails::{Guardrails, Refused};
use crate::tokens::{Principal, Principals, Scope};

/// How long a request without a valid token waits for its answer: guessing is slow, a person does not notice.
const REFUSAL_WAIT: Duration = Duration::from_millis(50);
/// Such requests at once, so 1,280 a second; one more is told to come later. Valid tokens never wait here.
const MAX_REFUSALS: usize = 64;
/// Scopes of the API.
const API: &[Scope] = &[Scope::Api];
/// Scopes of the wire.
const FOOT: &[Scope] = &[Scope::Foot];
/// Scopes of `/metrics`.
const WATCH: &[Scope] = &[Scope::Admin, Scope::Api];
/// Of a foreign path in a log line.
const MAX_PATH_CHARS: usize = 200;

/// The gate with what lies behind it.
pub(super) struct Gate {
    guardrails: Guardrails,
    principals: Arc<Principals>,
    refusals: Refusals,
    router: TowerToHyperService<Router>,
    app: Arc<App>,
}

impl Gate {
    pub(super) fn new(guardrails: Guardrails, principals: Arc<Principals>, app: Arc<App>) -> Self {
        let router = TowerToHyperService::new(routes::router(app.clone()));
        Self { guardrails, principals, refusals: Refusals::new(), router, app }
    }

    /// Answers a request, whatever it is.
    pub(super) async fn handle(&self, request: Request<Incoming>, visitor: &Visitor) -> Response {
        let begun = Instant::now();
        let (method, uri) = (request.method().clone(), request.uri().clone());
        let method = || plain(method.as_str());
        let path = || plain(&uri.path().chars().take(MAX_PATH_CHARS).collect::<String>());
        // Costs nothing unless somebody wants to see it.
        let span = tracing::debug_span!(SPAN_HTTP_REQUEST, { HTTP_METHOD } = %method(), { HTTP_PATH } = %path());
        let response = self.admit(request, visitor).instrument(span.clone()).await;
        let status = response.status().as_u16();
        let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        // A Brain that cannot take work is news; what callers do wrong is theirs.
        if status >= 500 {
            tracing::warn!({ HTTP_METHOD } = %method(), { HTTP_PATH } = %path(), { HTTP_STATUS } = status, ms, "answered");
        } else {
            span.in_scope(|| tracing::debug!({ HTTP_STATUS } = status, ms, "answered"));
        }
        response
    }

    async fn admit(&self, mut request: Request<Incoming>, visitor: &Visitor) -> Response {
        if let Err(refused) = self.check_place(request.headers(), request.uri()) {
            return refused.into_response();
        }
        let mut caller = self.caller(request.headers());
        if caller.is_none() && !OPEN.contains(&request.uri().path()) {
            if !visitor.refuse() {
                return too_often().into_response();
            }
            let refused = self.refusals.answer().await;
            caller = match refused.status {
                401 => self.principals.known_by_now(bearer(request.headers())),
                _ => None,
            };
            if caller.is_none() {
                return refused.into_response();
            }
        }
        if let Some(caller) = caller {
            visitor.welcome();
            request.extensions_mut().insert(caller);
        }
        let span = traced(request.uri().path()).then(|| open_span(&request));
        if let Some(span) = &span {
            request.extensions_mut().insert(span.context());
        }
        let revoked = request.extensions().get::<Principal>().map(|who| who.revoked.clone()).unwrap_or_default();
        let answered = async {
            // Past the table to the same handler: finding it costs more than it does itself.
            match called_tool(&request).map(str::to_owned) {
                Some(tool) => handlers::call_straight(&self.app, tool, request).await,
                None => match self.router.call(request).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                },
            }
        };
        // What a token opened ends with it: dropped, a call is cancelled where it runs.
        let response = tokio::select! {
            biased;
            () = revoked.cancelled() => token_revoked().into_response(),
            response = answered => response,
        };
        if let Some(span) = span {
            close_span(span, response.status().as_u16());
        }
        response
    }

    fn check_place(&self, headers: &HeaderMap, uri: &Uri) -> Answer<()> {
        let host = single(headers, &HOST)?;
        let origin = single(headers, &ORIGIN)?;
        let checked = self.guardrails.check(host, origin).and_then(|()| match uri.authority() {
            // A request that names the host in its first line as well.
            Some(authority) => self.guardrails.check(Some(authority.as_str()), None),
            None => Ok(()),
        });
        checked.map_err(|refused| {
            let code = match refused {
                Refused::Host(_) => "host_not_allowed",
                Refused::Origin(_) => "origin_not_allowed",
            };
            ApiError::new(403, code, refused.to_string())
        })
    }

    fn caller(&self, headers: &HeaderMap) -> Option<Principal> {
        self.principals.authenticate_header(bearer(headers))
    }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    single(headers, &AUTHORIZATION).ok().flatten()
}

/// The tool of a call, if its name stands in the path as it is.
fn called_tool<B>(request: &Request<B>) -> Option<&str> {
    let name = request.uri().path().strip_prefix("/api/v1/tools/")?.strip_suffix("/call")?;
    let plain = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b));
    (request.method() == Method::POST && plain).then_some(name)
}

/// Which requests have a span: those that ask for something. A stream of events is open for hours, and a scrape tells nothing.
fn traced(path: &str) -> bool {
    path.starts_with("/api/v1/") && path != "/api/v1/events"
}

fn open_span(request: &Request<Incoming>) -> Span {
    // Somebody else's mistake in a trace costs no call.
    let caller = request.headers().get("traceparent").and_then(|v| v.to_str().ok()).and_then(TraceContext::parse);
    let span = Span::root(SPAN_HTTP_REQUEST, Kind::Server, caller);
    if !span.is_recorded() {
        return span;
    }
    span.with(HTTP_METHOD, plain(request.method().as_str())).with(HTTP_PATH, plain(request.uri().path()))
}

fn close_span(span: Span, status: u16) {
    let outcome = match status {
        ..400 => "done",
        400..500 => "refused",
        500.. => "failed",
    };
    span.with_number(HTTP_STATUS, status.into()).end(outcome);
}

/// Answers to those without a token: slow, and not too many at once.
struct Refusals(Semaphore);

impl Refusals {
    fn new() -> Self {
        Self(Semaphore::new(MAX_REFUSALS))
    }

    async fn answer(&self) -> ApiError {
        let Ok(_place) = self.0.try_acquire() else {
            return ApiError::new(429, "busy", "too many requests without a valid token; try again later");
        };
        sleep(REFUSAL_WAIT).await;
        let text = "a valid token is needed: send `Authorization: Bearer TOKEN`; `vance-brain token new --name NAME` makes one, and the Brain's own is in <home>/brain/local.token";
        ApiError::new(401, "unauthorized", text)
    }
}

fn token_revoked() -> ApiError {
    ApiError::new(401, "unauthorized", "this token was revoked; a call that it ran was told to stop")
}

fn too_often() -> ApiError {
    ApiError::new(429, "busy", "too many requests without a valid token from this address; try again in a minute")
}

/// A header that may stand once. Twice, or unreadable, is a trick: two readers could see two values.
fn single<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Answer<Option<&'a str>> {
    let mut values = headers.get_all(name).iter();
    let bad = || ApiError::new(400, "bad_header", format!("the header `{name}` must stand once, in printable ASCII"));
    let Some(first) = values.next() else { return Ok(None) };
    if values.next().is_some() {
        return Err(bad());
    }
    first.to_str().map(Some).map_err(|_| bad())
}

/// A header that a handler wants, in printable ASCII, standing once.
pub(super) fn header<'a>(headers: &'a HeaderMap, name: &'static str) -> Answer<Option<&'a str>> {
    single(headers, &HeaderName::from_static(name))
}

fn caller(parts: &Parts, wanted: &[Scope]) -> Answer<Principal> {
    let found = parts.extensions.get::<Principal>();
    // The gate lets nobody through without one, so this is the answer of a route that was forgotten in it.
    let principal = found.ok_or_else(|| ApiError::new(401, "unauthorized", "a valid token is needed"))?;
    if wanted.iter().any(|scope| principal.may(*scope)) {
        return Ok(principal.clone());
    }
    let words = |scopes: &[Scope]| scopes.iter().map(|s| s.word()).collect::<Vec<_>>().join(" or ");
    let text = format!(
        "this token may not do that: it takes one with the scope {}, and this one has {}",
        words(wanted),
        principal.scopes.iter().map(|s| s.word()).collect::<Vec<_>>().join(", "),
    );
    Err(ApiError::new(403, "forbidden", text))
}

/// The span of the request.
pub(super) struct Within(pub(super) TraceContext);

impl<S: Sync> FromRequestParts<S> for Within {
    type Rejection = Infallible;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self(parts.extensions.get().copied().unwrap_or_else(TraceContext::root)))
    }
}

/// A caller of the API.
pub(super) struct ApiCaller(pub(super) Principal);
/// A caller who attaches as a client.
pub(super) struct FootCaller(pub(super) Principal);
/// A caller who watches.
pub(super) struct Watcher;

impl<S: Sync> FromRequestParts<S> for ApiCaller {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Answer<Self> {
        caller(parts, API).map(Self)
    }
}

impl<S: Sync> FromRequestParts<S> for FootCaller {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Answer<Self> {
        caller(parts, FOOT).map(Self)
    }
}

impl<S: Sync> FromRequestParts<S> for Watcher {
    type Rejection = ApiError;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Answer<Self> {
        caller(parts, WATCH).map(|_| Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_calls_whose_tool_is_plain_to_see_go_past_the_table() {
        for (method, path, tool) in [
            ("POST", "/api/v1/tools/a__b-c.d/call", Some("a__b-c.d")),
            ("POST", "/api/v1/tools/a/call?b=c", Some("a")),
            ("GET", "/api/v1/tools/a/call", None),
            ("POST", "/api/v1/tools/a%20b/call", None),
            ("POST", "/api/v1/tools//call", None),
            ("POST", "/api/v1/tools/call", None),
            ("POST", "/api/v1/tools/a/b/call", None),
            ("POST", "/api/v1/tools/a/call/", None),
        ] {
            let request = Request::builder().method(method).uri(path).body(()).unwrap_or_default();
            assert_eq!(called_tool(&request), tool, "{method} {path}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_are_slow_and_bounded() {
        let (refusals, begun) = (Refusals::new(), Instant::now());
        let answers = futures_util::future::join_all((0..MAX_REFUSALS + 10).map(|_| refusals.answer())).await;
        let of = |status: u16| answers.iter().filter(|a| a.status == status).count();
        assert_eq!((of(401), of(429)), (MAX_REFUSALS, 10));
        assert_eq!(begun.elapsed(), REFUSAL_WAIT);
        assert_eq!(refusals.answer().await.status, 401, "places come back");
    }
}

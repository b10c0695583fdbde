//! Every route, in one table: the router is made from it, and the API's description is tested against it.

use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::routing::{MethodFilter, MethodRouter, on};
use vance_shared::show::quoted;

use super::answer::Answer;
use super::{App, blobs, events, handlers, socket};
use crate::api::ApiError;

/// Paths that are answered without a token.
pub(super) const OPEN: [&str; 2] = ["/healthz", "/readyz"];

/// One route.
pub(super) struct Route {
    /// How.
    pub(super) method: MethodFilter,
    /// Where, with `{…}` for what varies.
    pub(super) path: &'static str,
    handler: fn(MethodFilter) -> MethodRouter<Arc<App>>,
}

const GET: MethodFilter = MethodFilter::GET;
const POST: MethodFilter = MethodFilter::POST;

/// All of them.
pub(super) const ROUTES: &[Route] = &[
    route(GET, "/healthz", |m| on(m, handlers::healthz)),
    route(GET, "/readyz", |m| on(m, handlers::readyz)),
    route(GET, "/metrics", |m| on(m, handlers::metrics)),
    route(GET, "/ws", |m| on(m, socket::upgrade)),
    route(GET, "/api/v1/openapi.json", |m| on(m, handlers::openapi)),
    route(POST, "/api/v1/tasks", |m| on(m, handlers::submit)),
    route(GET, "/api/v1/tasks", |m| on(m, handlers::tasks)),
    route(GET, "/api/v1/tasks/{id}", |m| on(m, handlers::task)),
    route(POST, "/api/v1/tasks/{id}/cancel", |m| on(m, handlers::cancel)),
    route(POST, "/api/v1/tasks/{id}/retry", |m| on(m, handlers::retry)),
    route(POST, "/api/v1/tasks/{id}/resolve", |m| on(m, handlers::resolve)),
    route(POST, "/api/v1/tasks/{id}/answer", |m| on(m, handlers::answer_question)),
    route(GET, "/api/v1/questions", |m| on(m, handlers::questions)),
    route(POST, "/api/v1/questions/{id}/answer", |m| on(m, handlers::answer_one)),
    route(GET, "/api/v1/sessions", |m| on(m, handlers::sessions)),
    route(GET, "/api/v1/sessions/{id}", |m| on(m, handlers::session)),
    route(GET, "/api/v1/sessions/{id}/tools", |m| on(m, handlers::session_tools)),
    route(POST, "/api/v1/tools/{name}/call", |m| on(m, handlers::call)),
    route(GET, "/api/v1/blobs/{handle}", |m| on(m, blobs::blob)),
    route(GET, "/api/v1/events", |m| on(m, events::events)),
];

const fn route(method: MethodFilter, path: &'static str, handler: fn(MethodFilter) -> MethodRouter<Arc<App>>) -> Route {
    Route { method, path, handler }
}

/// The router of [`ROUTES`], and of nothing else.
pub(super) fn router(app: Arc<App>) -> Router {
    let router =
        ROUTES.iter().fold(Router::new(), |router, route| router.route(route.path, (route.handler)(route.method)));
    router.method_not_allowed_fallback(wrong_method).fallback(unknown).with_state(app)
}

async fn unknown(request: Request) -> Answer {
    let path = quoted(request.uri().path(), 120);
    let text = format!("there is nothing at {path}; /api/v1/openapi.json describes every route");
    Err(ApiError::new(404, "not_found", text))
}

async fn wrong_method(request: Request) -> Answer {
    let (method, path) = (quoted(request.method().as_str(), 20), quoted(request.uri().path(), 120));
    let text = format!("{path} does not take {method}; the Allow header names what it takes");
    Err(ApiError::new(405, "method_not_allowed", text))
}

//! The API's handlers: parse what comes in, ask [`crate::api`], give what it says.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, State};
use axum::response::{IntoResponse as _, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderName};
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::{Value, json};
use vance_brain_core::spec::ExecutionTarget;
use vance_shared::doc::{Fields, parse_duration};
use vance_shared::ids::{ClientId, QuestionId, SessionId};
use vance_shared::json::Raw;
use vance_shared::question::{self, Action};
use vance_shared::trace::TraceContext;

use super::App;
use super::answer::{self, Answer, with_header, with_type};
use super::body::{BODY, Text, parse};
use super::gate::{ApiCaller, Watcher, Within, header};
use super::query::{Params, Segment, bad};
use crate::api::commands::{Verb, command};
use crate::api::direct::{self, DirectRequest};
use crate::api::queries::{self, TaskFilter};
use crate::api::questions;
use crate::api::submit::{self, Submission};
use crate::api::{ApiError, queries::health};
use crate::hub::Brain;
use crate::tokens::{Principal, Scope};

/// The API's description.
pub(super) const OPENAPI: &str = include_str!("openapi.json");

/// A tree up to this size is read on the main thread: in less time than another thread takes to wake, twice.
const NEAR_BYTES: usize = 2 * 1024;

/// Header of an answer that was given before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// `GET /healthz`: the process answers.
pub(super) async fn healthz() -> Response {
    with_type(200, "application/json", r#"{"status":"ok"}"#)
}

/// A caller who is known, if there is one.
pub(super) struct MaybeCaller(Option<Principal>);

impl<S: Sync> FromRequestParts<S> for MaybeCaller {
    type Rejection = std::convert::Infallible;
    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        Ok(Self(parts.extensions.get::<Principal>().cloned()))
    }
}

/// `GET /readyz`: work is taken and stored. Numbers are for callers who are known.
pub(super) async fn readyz(State(app): State<Arc<App>>, MaybeCaller(caller): MaybeCaller) -> Response {
    let details = health(&app.brain).await;
    let ready = !app.shutdown.is_cancelled() && details.get("ready") == Some(&Value::Bool(true));
    let known = caller.is_some_and(|who| who.may(Scope::Api) || who.may(Scope::Admin));
    if ready {
        let mut body = json!({ "status": "ready" });
        if let (true, Some(body)) = (known, body.as_object_mut()) {
            body.insert("details".to_owned(), details);
        }
        return answer::json(200, &body);
    }
    let error = ApiError::new(503, "not_ready", "the Brain does not take work now; its log says why");
    if known { error.with("details", details).into_response() } else { error.into_response() }
}

/// `GET /metrics`: Prometheus' text format.
pub(super) async fn metrics(State(app): State<Arc<App>>, _: Watcher) -> Response {
    with_type(200, "text/plain; version=0.0.4; charset=utf-8", app.metrics.render())
}

/// `GET /api/v1/openapi.json`.
pub(super) async fn openapi(_: ApiCaller) -> Response {
    with_type(200, "application/json", OPENAPI)
}

/// `POST /api/v1/tasks`.
pub(super) async fn submit(
    State(app): State<Arc<App>>,
    ApiCaller(who): ApiCaller,
    params: Params,
    Within(trace): Within,
    headers: HeaderMap,
    Text(text): Text,
) -> Answer {
    let [session] = params.take(["session"])?;
    let client = header(&headers, "vance-client")?.map(|id| {
        ClientId::parse(id).map_err(|e| ApiError::new(400, "bad_header", format!("the header `Vance-Client`: {e}")))
    });
    let submission = Submission {
        owner: who.name.to_string(),
        file: BODY.to_owned(),
        text,
        session: session.map(|id| session_id(&id)).transpose()?,
        idempotency_key: header(&headers, "idempotency-key")?.map(str::to_owned),
        client: client.transpose()?,
        trace,
    };
    let near = submission.text.len() <= NEAR_BYTES;
    let run = move |brain: Brain| async move { submit::submit(&brain, submission).await };
    let given = if near { kept(&app.brain, run).await? } else { detached(&app.brain, run).await? };
    let response = answer::json(201, &given.body);
    Ok(if given.replayed { with_header(response, REPLAYED, "true") } else { response })
}

/// `GET /api/v1/tasks`.
pub(super) async fn tasks(State(app): State<Arc<App>>, ApiCaller(who): ApiCaller, params: Params) -> Answer {
    let [state, session, tree, after, limit] = params.take(["state", "session", "tree", "after", "limit"])?;
    let limit = limit.map(|text| {
        text.parse::<usize>().ok().filter(|n| *n > 0).ok_or_else(|| bad("`limit` is a whole number from 1".to_owned()))
    });
    let filter = TaskFilter { state, session, tree, after, limit: limit.transpose()? };
    detached(&app.brain, move |brain| async move {
        Ok(answer::text(200, queries::tasks(&brain, &who.name, filter).await?.get().to_owned()))
    })
    .await
}

/// `GET /api/v1/tasks/{id}`.
pub(super) async fn task(
    State(app): State<Arc<App>>,
    ApiCaller(who): ApiCaller,
    Segment(id): Segment,
    params: Params,
) -> Answer {
    params.take([])?;
    Ok(answer::json(200, &queries::task(&app.brain, &who.name, &id).await?))
}

/// `POST /api/v1/tasks/{id}/cancel`.
pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    ApiCaller(who): ApiCaller,
    Segment(id): Segment,
    Text(text): Text,
) -> Answer {
    let reason = parse(&text, "a cancel", |f| f.take_str("reason").map(str::to_owned))?;
    on_task(&app.brain, who, id, Verb::Cancel { reason }).await
}

/// `POST /api/v1/tasks/{id}/retry`.
pub(super) async fn retry(
    State(app): State<Arc<App>>,
    ApiCaller(who): ApiCaller,
    Segment(id): Segment,
    Text(text): Text,
) -> Answer {
    let any_client = parse(&text, "a retry", |f| f.take_bool("any_client"))?.unwrap_or_default();
    on_task(&app.brain, who, id, Verb::Retry { any_client }).await
}

/// `POST /api/v1/tasks/{id}/resolve`.
pub(super) async fn resolve(
    State(app): State<Arc<App>>,
    ApiCaller(who): ApiCaller,
    Segment(id): Segment,
    Text(text): Text,
) -> Answer {
    let (verdict, output) = parse(&text, "a verdict", |f| {
        f.require("as", "one of: done, failed, retry");
        let words = [("done", "done"), ("failed", "failed"), ("retry", "retry")];
        (f.take_enum("as", &words).unwrap_or_default(), f.take_value("output"))
    })?;
    on_task(&app.brain, who, id, Verb::Resolve { r#as: verdict.to_owned(), output }).await
}

/// `POST /api/v1/tasks/{id}/answer`.
pub(super) async fn answer_question(
    State(app): State<Arc<App>>,
    ApiCaller(who): ApiCaller,
    Segment(id): Segment,
    Text(text): Text,
) -> Answer {
    let (answer, question) = parse(&text, "an answer", |f| (said(f), f.take_str("question").map(str::to_owned)))?;
    let question = question.map(|id| question_id(&id)).transpose()?;
    on_task(&app.brain, who, id, Verb::Answer { question, answer }).await
}

/// `GET /api/v1/questions`.
pub(super) async fn questions(State(app): State<Arc<App>>, ApiCaller(who): ApiCaller, params: Params) -> Answer {
    params.take([])?;
    Ok(answer::json(200, &questions::list(&app.brain, &who.name)))
}

/// `POST /api/v1/questions/{id}/answer`.
pub(super) async fn answer_one(
    State(app): State<Arc<App>>,
    ApiCaller(who): ApiCaller,
    Segment(id): Segment,
    Text(text): Text,
) -> Answer {
    let given = parse(&text, "an answer", said)?;
    let id = question_id(&id)?;
    let said = detached(&app.brain, move |brain| async move { questions::answer(&brain, &who.name, &id, given).await });
    Ok(answer::json(200, &said.await?))
}

/// What a person says, from a body.
fn said(fields: &mut Fields<'_>) -> question::Answer {
    fields.require("action", "one of: accept, decline, cancel");
    let words = [Action::Accept, Action::Decline, Action::Cancel].map(|action| (action.word(), action));
    let action = fields.take_enum("action", &words).unwrap_or(Action::Cancel);
    let content = fields.take_value("content").filter(|content| !content.is_null());
    question::Answer { action, content: content.map(Raw::from) }
}

fn question_id(text: &str) -> Answer<QuestionId> {
    QuestionId::parse(text).map_err(|e| ApiError::new(400, "bad_question", format!("the question: {e}")))
}

async fn on_task(brain: &Brain, who: Principal, id: String, verb: Verb) -> Answer {
    let task = detached(brain, move |brain| async move { command(&brain, &who.name, &id, verb).await }).await?;
    Ok(answer::json(200, &task))
}

/// `GET /api/v1/sessions`.
pub(super) async fn sessions(State(app): State<Arc<App>>, ApiCaller(who): ApiCaller, params: Params) -> Answer {
    params.take([])?;
    detached(
        &app.brain,
        move |brain| async move { Ok(answer::json(200, &queries::sessions(&brain, &who.name).await?)) },
    )
    .await
}

/// `GET /api/v1/sessions/{id}`.
pub(super) async fn session(
    State(app): State<Arc<App>>,
    ApiCaller(who): ApiCaller,
    Segment(id): Segment,
    params: Params,
) -> Answer {
    params.take([])?;
    Ok(answer::json(200, &queries::session(&app.brain, &who.name, &id).await?))
}

/// `GET /api/v1/sessions/{id}/tools`.
pub(super) async fn session_tools(
    State(app): State<Arc<App>>,
    ApiCaller(who): ApiCaller,
    Segment(id): Segment,
    params: Params,
) -> Answer {
    let [engine] = params.take(["engine"])?;
    Ok(answer::json(200, &queries::session_tools(&app.brain, &who.name, &id, engine.as_deref()).await?))
}

/// `POST /api/v1/tools/{name}/call`.
pub(super) async fn call(
    State(app): State<Arc<App>>,
    ApiCaller(who): ApiCaller,
    Segment(tool): Segment,
    Within(trace): Within,
    headers: HeaderMap,
    Text(text): Text,
) -> Answer {
    call_tool(&app, who, tool, trace, (&headers, &text)).await
}

/// The same for a request whose path is read already.
pub(super) async fn call_straight(app: &Arc<App>, tool: String, request: http::Request<Incoming>) -> Response {
    let (mut parts, body) = request.into_parts();
    let answer = async {
        let ApiCaller(who) = ApiCaller::from_request_parts(&mut parts, &()).await?;
        let trace = parts.extensions.get().copied().unwrap_or_else(TraceContext::root);
        let Text(text) = Text::of(&parts.headers, body).await?;
        call_tool(app, who, tool, trace, (&parts.headers, &text)).await
    };
    answer.await.into_response()
}

async fn call_tool(
    app: &App,
    who: Principal,
    tool: String,
    trace: TraceContext,
    (headers, text): (&HeaderMap, &str),
) -> Answer {
    let body = CallBody::read(text)?;
    let request = DirectRequest {
        owner: who.name.to_string(),
        tool,
        arguments: body.arguments.unwrap_or_else(Raw::empty_object),
        session: body.session.map(|id| session_id(&id)).transpose()?,
        client: body.client,
        target: body.execution_target.unwrap_or_default(),
        timeout: body.timeout.map(|Timeout(timeout)| timeout),
        durable: body.durable.unwrap_or(false),
        asks: body.ask.or(body.durable).unwrap_or(false),
        idempotency_key: header(headers, "idempotency-key")?.map(str::to_owned),
        trace,
    };
    // A caller who goes away cancels its call, unless it wanted the call to outlive it.
    let given = if request.durable {
        detached(&app.brain, move |brain| async move { direct::call(&brain, request).await }).await?
    } else {
        direct::call(&app.brain, request).await?
    };
    Ok(answer::text(given.status, given.body))
}

/// Runs something to its end, also if its caller goes away in the middle: what is stored must also be handed on. Off the main
/// thread, because a tree or a list of ten thousand tasks is read or written in tens of milliseconds, and calls do not wait for that.
async fn detached<T, F>(brain: &Brain, run: impl FnOnce(Brain) -> F) -> Answer<T>
where
    T: Send + 'static,
    F: Future<Output = Answer<T>> + Send + 'static,
{
    vance_supervise::beside(run(brain.clone())).await.unwrap_or_else(|error| failed(&error))
}

/// The same on the main thread, for what is small.
async fn kept<T, F>(brain: &Brain, run: impl FnOnce(Brain) -> F) -> Answer<T>
where
    T: Send + 'static,
    F: Future<Output = Answer<T>> + Send + 'static,
{
    tokio::spawn(run(brain.clone())).await.unwrap_or_else(|error| failed(&error))
}

fn failed<T>(error: &tokio::task::JoinError) -> Answer<T> {
    tracing::error!(%error, "a request failed inside");
    Err(ApiError::new(500, "internal", "the request failed inside the Brain; its log says where"))
}

fn session_id(text: &str) -> Answer<SessionId> {
    SessionId::parse(text).map_err(|e| ApiError::new(400, "bad_session", format!("the session: {e}")))
}

/// What a call says. Read in one pass that leaves the arguments as they are; only a body with mistakes is read again, for
/// all of them with their lines.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CallBody {
    arguments: Option<Raw>,
    session: Option<String>,
    client: Option<String>,
    execution_target: Option<ExecutionTarget>,
    timeout: Option<Timeout>,
    durable: Option<bool>,
    ask: Option<bool>,
}

/// `30s`, or seconds as a number; never zero.
#[derive(Deserialize)]
#[serde(try_from = "Value")]
struct Timeout(Duration);

impl TryFrom<Value> for Timeout {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let text = match &value {
            Value::String(text) => text.clone(),
            Value::Number(seconds) => format!("{seconds}s"),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => String::new(),
        };
        let timeout = parse_duration(&text)?;
        if timeout.is_zero() { Err("a timeout is more than nothing".to_owned()) } else { Ok(Self(timeout)) }
    }
}

impl CallBody {
    fn read(text: &str) -> Answer<Self> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let quick = serde_json::from_str::<Self>(text);
        let object = |raw: &Raw| raw.get().starts_with('{');
        let fault = match quick {
            Ok(body) if body.arguments.as_ref().is_none_or(object) => return Ok(body),
            Ok(_) => "`arguments` is no object".to_owned(),
            Err(error) => vance_shared::show::plain(&error.to_string()),
        };
        parse(text, "a call", Self::explain)?;
        // The two readers disagree: then the strict one's word counts.
        Err(ApiError::new(400, "bad_request", format!("{BODY}: {fault}")))
    }

    fn explain(fields: &mut Fields<'_>) {
        let target = ExecutionTarget::default();
        fields.take_object("arguments");
        for name in ["session", "client"] {
            fields.take_str(name);
        }
        fields.take_enum("execution_target", &["auto", "server", "client", "any"].map(|word| (word, target)));
        fields.take_timeout("timeout");
        fields.take_bool("durable");
        fields.take_bool("ask");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_call_is_read_strictly_and_every_mistake_has_its_line() {
        for (text, want) in [
            ("", None),
            ("{}", None),
            (r#"{"arguments": {"a": 1}, "timeout": "30s", "durable": true, "execution_target": "client"}"#, None),
            (r#"{"arguments": {}, "timeout": 1.5, "session": "s", "client": null}"#, None),
            ("{\"arguments\":\n [1]}", Some(":2: ")),
            ("{\"argumens\": {}}", Some("arguments")),
            ("{\"arguments\": {},\n\"timeout\": \"soon\"}", Some(":2: ")),
            ("{\"timeout\": 0}", Some("timeout")),
            ("{\"timeout\": true}", Some("timeout")),
            ("{\"execution_target\": \"moon\"}", Some("one of: auto, server, client, any")),
            ("{\"arguments\": {}", Some("request body:1")),
            ("[]", Some("request body:1")),
            ("{\"durable\": \"yes\"}", Some("durable")),
        ] {
            match (CallBody::read(text), want) {
                (Ok(_), None) => {}
                (Err(error), Some(part)) => {
                    assert!(error.status == 400 && error.fault.message.contains(part), "{text}: {error:?}");
                }
                (got, _) => panic!("{text}: {:?}", got.err()),
            }
        }
        assert_eq!(CallBody::read(r#"{"timeout": 1.5}"#).unwrap().timeout.unwrap().0, Duration::from_millis(1500));
    }
}

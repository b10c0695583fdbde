//! One call of one tool, routed like any other, without a task around it. Nothing is stored; with `durable` an absent client
//! makes it a task instead.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use vance_brain_core::registry::SessionView;
use vance_brain_core::route::{self, Decision, Wish};
use vance_brain_core::session::News;
use vance_brain_core::spec::{ExecutionTarget, Mode};
use vance_shared::call::Outcome;
use vance_shared::ids::{CallId, ClientId, SessionId};
use vance_shared::json::Raw;
use vance_shared::limits::PROGRESS_CAP;
use vance_shared::names::ToolName;
use vance_shared::tool::Replay;
use vance_shared::trace::TraceContext;
use vance_shared::wire;

use super::ApiError;
use super::submit::{Submission, submit};
use crate::actors::session::{DirectCall, ToSession, WithCall};
use crate::blobs;
use crate::directory::{Directory, Missing, SessionHandle};
use crate::executor::ServerCall;
use crate::hub::{Brain, now_ms};
use crate::rows::time;
use asks::{About, Asks};
use spans::CallSpans;

mod asks;
mod shown;
mod spans;

/// News that wait for whoever called.
const NEWS: usize = 64;

/// After the deadline of the call, until the caller is told that the outcome is unknown.
const SLACK: Duration = Duration::from_secs(20);

/// What is wanted.
#[derive(Debug, Clone)]
pub struct DirectRequest {
    /// The principal.
    pub owner: String,
    /// The tool.
    pub tool: String,
    /// A JSON object.
    pub arguments: Raw,
    /// In which session; default: the owner's.
    pub session: Option<SessionId>,
    /// On which client (name or id).
    pub client: Option<String>,
    /// Where.
    pub target: ExecutionTarget,
    /// Deadline.
    pub timeout: Option<Duration>,
    /// An absent client makes it a task.
    pub durable: bool,
    /// A question of its server waits for an answer; else it is declined.
    pub asks: bool,
    /// The same key with the same call is the same task: only for durable calls.
    pub idempotency_key: Option<String>,
    /// The span of the request.
    pub trace: TraceContext,
}

/// What came out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirectAnswer {
    /// 200, or 202 with a task.
    pub status: u16,
    /// `{"call": …, "result": …}`, or the submission's answer.
    pub body: String,
}

struct Run {
    call_id: CallId,
    tool: ToolName,
    client: Option<(ClientId, String)>,
    attempts: u32,
    started_at: i64,
    trace: TraceContext,
}

impl Run {
    fn route(&self) -> &'static str {
        if self.client.is_some() { "client" } else { "server" }
    }
}

/// Calls a tool.
pub async fn call(brain: &Brain, request: DirectRequest) -> Result<DirectAnswer, ApiError> {
    let tool = ToolName::parse(&request.tool).map_err(|e| ApiError::new(404, "unknown_tool", e.to_string()))?;
    let session_id = match &request.session {
        Some(id) => id.clone(),
        None => Directory::default_id(&request.owner)?,
    };
    let missing = if request.session.is_some() { Missing::Fault } else { Missing::Create(Mode::Interactive) };
    let session = brain.directory.open(brain, &request.owner, &session_id, missing).await?;
    if request.idempotency_key.is_some() {
        return keyed(brain, &request, &session_id).await;
    }
    let timeout = request.timeout.unwrap_or(brain.config.defaults.call_timeout);
    let published = session.published();
    let registry = brain.registry.load_full();
    let wish = Wish { target: request.target, client: request.client.as_deref(), ..Wish::default() };
    let mut run = Run {
        call_id: CallId::generate(),
        tool: tool.clone(),
        client: None,
        attempts: 1,
        started_at: now_ms(),
        trace: request.trace,
    };
    let declined = Arc::<AtomicU32>::default();
    let about = |client: Option<(ClientId, String)>| About {
        brain: brain.clone(),
        session: session.clone(),
        tool: tool.to_string(),
        client,
        waits: request.asks,
        declined: declined.clone(),
    };
    let outcome = match route::decide(&registry, &published.view, &wish, &tool) {
        Decision::Server { tool } => {
            let pack = registry.server_pack(&tool);
            let call_id = run.call_id.clone();
            let mut spans = CallSpans::new(&session_id);
            let (arguments, trace) = (request.arguments.clone(), spans.open(&run));
            let person = about(None).person(&run.call_id);
            let (progress, task_id) = (None, None);
            let owner = request.owner.clone();
            let call = ServerCall { call_id, tool, pack, arguments, timeout, owner, trace, task_id, progress, person };
            let outcome = brain.executor.run(call).await;
            let outcome = blobs::within_limits(brain, &run.call_id, &request.owner, outcome).await;
            spans.end(&run, &outcome);
            outcome
        }
        Decision::Client { client_id, tool: target } => {
            if let Some(fault) = wire::too_large_to_send(&request.arguments) {
                return Err(fault.into());
            }
            let replay = registry.lookup(&published.view, &tool).map(|k| k.replay()).unwrap_or_default();
            run.client = Some((client_id.clone(), machine(&published.view, &client_id)));
            let sent = Sent { client_id, target, replay, timeout, arguments: request.arguments.clone() };
            // Its calls are with the session that it is attached to, whichever session asks.
            let place = brain.directory.place_of(&sent.client_id).unwrap_or_else(|| session.clone());
            let asks = Asks::new(about(run.client.clone()), run.call_id.clone());
            match on_client(&place, sent, &mut run, asks).await {
                Some(outcome) => outcome,
                None => return absent(brain, &request, &session_id).await,
            }
        }
        Decision::Block | Decision::Queue | Decision::Skip => return absent(brain, &request, &session_id).await,
        Decision::Fail(fault) => return Err(fault.into()),
    };
    if let Outcome::Failed { error, result: None } = &outcome
        && matches!(error.code.as_str(), "busy")
    {
        return Err(error.clone().into());
    }
    let declined = declined.load(Ordering::Relaxed);
    Ok(DirectAnswer { status: 200, body: answer(&run, &outcome, declined) })
}

fn machine(view: &SessionView, client_id: &ClientId) -> String {
    view.clients.iter().find(|c| c.client_id == *client_id).map(|c| c.machine.clone()).unwrap_or_default()
}

/// A key is kept with a task: the same call again is the same task, and not another one.
async fn keyed(brain: &Brain, request: &DirectRequest, session_id: &SessionId) -> Result<DirectAnswer, ApiError> {
    if !request.durable {
        let message = "Idempotency-Key is for calls with \"durable\": true, which are kept as tasks; this call is not";
        return Err(ApiError::new(400, "bad_idempotency_key", message));
    }
    absent(brain, request, session_id).await
}

/// The call as a task's step, with the time that its caller gives it.
fn step(tool: &str, arguments: &Raw, timeout: Option<Duration>) -> Value {
    let mut step = json!({"call": tool, "with": literal(arguments.value())});
    if let Some(timeout) = timeout {
        step["timeout"] = json!(format!("{}ms", timeout.as_millis()));
    }
    step
}

async fn absent(brain: &Brain, request: &DirectRequest, session_id: &SessionId) -> Result<DirectAnswer, ApiError> {
    let tool = &request.tool;
    if !request.durable {
        let message = format!(
            "Waiting for Client for Tool: {tool}; no connected client of session {session_id} offers it: connect one, or send \"durable\": true to make it a task that waits"
        );
        return Err(ApiError::new(409, "client_absent", message));
    }
    let target = match request.target {
        ExecutionTarget::Auto => "auto",
        ExecutionTarget::Server => "server",
        ExecutionTarget::Client => "client",
        ExecutionTarget::Any => "any",
    };
    let mut task = json!({
        "id": "call", "goal": format!("call {tool}"), "execution_target": target, "offline_strategy": "block",
        "steps": [step(tool, &request.arguments, request.timeout)],
    });
    if let (Some(client), Some(task)) = (&request.client, task.as_object_mut()) {
        task.insert("client".to_owned(), json!(client));
    }
    let tree = json!({"session": session_id, "tasks": [task]});
    let submission = Submission {
        owner: request.owner.clone(),
        file: "call".to_owned(),
        text: tree.to_string(),
        idempotency_key: request.idempotency_key.clone(),
        client: None,
        session: None,
        trace: request.trace,
    };
    let submitted = submit(brain, submission).await?;
    Ok(DirectAnswer { status: 202, body: submitted.body.to_string() })
}

/// Arguments of a call are values, not expressions: what looks like one is quoted.
fn literal(value: Value) -> Value {
    match value {
        Value::String(text) if text.contains("{{") || text.contains("{%") || text.contains("{#") => {
            Value::String(format!("{{{{ {} }}}}", Value::String(text)))
        }
        Value::Array(items) => Value::Array(items.into_iter().map(literal).collect()),
        Value::Object(map) => Value::Object(map.into_iter().map(|(k, v)| (k, literal(v))).collect()),
        other => other,
    }
}

struct Sent {
    client_id: ClientId,
    target: ToolName,
    replay: Replay,
    timeout: Duration,
    arguments: Raw,
}

/// Cancels a client's call when whoever waits for it goes away.
struct Abandon {
    session: Option<Arc<SessionHandle>>,
    client_id: ClientId,
    call_id: CallId,
}

impl Drop for Abandon {
    fn drop(&mut self) {
        if let Some(session) = self.session.take() {
            let message = ToSession::Cancel {
                client_id: self.client_id.clone(),
                call_id: self.call_id.clone(),
                reason: "the caller went away".to_owned(),
            };
            // A session that restarts has lost the call anyway; the client hears of it at its next hello.
            session.actor.tell(message).ok();
        }
    }
}

async fn on_client(session: &Arc<SessionHandle>, sent: Sent, run: &mut Run, asks: Asks) -> Option<Outcome> {
    let mut spans = CallSpans::new(&session.session_id);
    let outcome = deliver(session, sent, run, asks, &mut spans).await;
    match &outcome {
        Some(outcome) => spans.end(run, outcome),
        None => spans.close("not_run"),
    }
    outcome
}

/// `None`: the client went away before anything was sent.
async fn deliver(
    session: &Arc<SessionHandle>,
    sent: Sent,
    run: &mut Run,
    mut asks: Asks,
    spans: &mut CallSpans<'_>,
) -> Option<Outcome> {
    let restarting = || Outcome::failed("restarting", "the session is being restarted; try again");
    let mut deadline = Instant::now() + sent.timeout + SLACK;
    let mut abandon =
        Abandon { session: Some(session.clone()), client_id: sent.client_id.clone(), call_id: run.call_id.clone() };
    'delivery: loop {
        let timeout_ms = u64::try_from(sent.timeout.as_millis()).unwrap_or(u64::MAX);
        let call = wire::Call {
            call_id: run.call_id.clone(),
            attempt: run.attempts,
            tool: sent.target.as_str().to_owned(),
            arguments: sent.arguments.clone(),
            timeout_ms,
            cap_ms: timeout_ms.saturating_mul(u64::from(PROGRESS_CAP)),
            answer_ms: asks.within().map(|within| u64::try_from(within.as_millis()).unwrap_or(u64::MAX)),
            traceparent: spans.open(run),
        };
        let (news, mut inbox) = mpsc::channel(NEWS);
        let with = WithCall { client_id: Some(sent.client_id.clone()), call: Arc::new(call), replay: sent.replay };
        if session.actor.post(DirectCall { with, news }).await.is_err() {
            return Some(restarting());
        }
        let mut until = deadline;
        loop {
            let news = tokio::select! {
                reply = asks.answered() => {
                    say(session, &sent.client_id, reply);
                    (deadline, until) = again(sent.timeout);
                    continue;
                }
                news = tokio::time::timeout_at(until, inbox.recv()) => news.map(|news| news.map(|news| *news)),
            };
            match news {
                Ok(Some(News::Ended(outcome))) => {
                    abandon.session = None;
                    return Some(outcome);
                }
                Ok(Some(News::NotSent { busy })) => {
                    abandon.session = None;
                    let text = "the client has no room for another call; try again later";
                    return busy.then(|| Outcome::failed("busy", text));
                }
                Ok(Some(News::NeverArrived)) => {
                    spans.close("never_arrived");
                    run.attempts += 1;
                    continue 'delivery;
                }
                Ok(Some(News::Progress(_))) if asks.is_open() => {}
                Ok(Some(News::Progress(_))) => {
                    until = (Instant::now() + sent.timeout + SLACK).min(deadline + sent.timeout * PROGRESS_CAP);
                }
                Ok(Some(News::Asked(question))) => {
                    if let Some(reply) = asks.asked(question) {
                        say(session, &sent.client_id, reply);
                    }
                    // A person's time is not the tool's.
                    if let Some(within) = asks.within().filter(|_| asks.is_open()) {
                        until = Instant::now() + within + SLACK;
                    }
                }
                Ok(Some(News::QuestionEnded(end))) => {
                    if asks.ended(&end) {
                        (deadline, until) = again(sent.timeout);
                    }
                }
                Ok(Some(News::Suspended)) => spans.close("suspended"),
                Ok(Some(News::Attached)) => spans.go_on(run),
                Ok(None) => {
                    abandon.session = None;
                    return Some(lost(sent.replay, "the session was restarted while the call was out"));
                }
                // Dropping `abandon` cancels it on the client, now or when it is back.
                Err(_) => return Some(lost(sent.replay, "the client did not answer in time (its line may be cut)")),
            }
        }
    }
}

/// After a question the call has its whole time again.
fn again(timeout: Duration) -> (Instant, Instant) {
    let deadline = Instant::now() + timeout + SLACK;
    (deadline, deadline)
}

fn say(session: &SessionHandle, client_id: &ClientId, reply: wire::ElicitReply) {
    let message = ToSession::Reply { client_id: client_id.clone(), reply };
    // Not taken: the client asks again with its next connection, and the call has its deadline.
    session.actor.tell(message).ok();
}

fn lost(replay: Replay, reason: &str) -> Outcome {
    match replay {
        Replay::Safe => Outcome::failed("timeout", reason),
        Replay::Unsafe => Outcome::Unknown { reason: reason.to_owned() },
    }
}

fn answer(run: &Run, outcome: &Outcome, declined_questions: u32) -> String {
    let (client_id, machine) = run.client.as_ref().map(|(id, machine)| (id, machine.as_str())).unzip();
    let call = shown::Call {
        call_id: &run.call_id,
        tool: &run.tool,
        route: run.route(),
        client_id,
        machine,
        attempts: run.attempts,
        outcome: outcome.word(),
        declined_questions,
        trace_id: run.trace.trace_id(),
        started_at: time(run.started_at),
        ended_at: time(now_ms()),
    };
    shown::answer(call, outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_becomes_a_task_keeps_the_time_that_its_caller_gives_it() {
        for (timeout, want) in [(None, Value::Null), (Some(Duration::from_secs(600)), json!("600000ms"))] {
            assert_eq!(step("p__slow", &Raw::empty_object(), timeout)["timeout"], want);
        }
    }
}

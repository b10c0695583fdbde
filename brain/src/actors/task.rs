//! One live task: folds its stream, decides by the task machine, stores, then acts.
//!
//! Everything reaches it through the scheduler, which therefore knows when nothing is on its way and a waiting task's actor
//! can end. While a commit is under way the mailbox stands still: inputs are decided in the order in which they came.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::oneshot;
use vance_brain_core::expression::render_arguments;
use vance_brain_core::route::{self, Decision, Wish};
use vance_brain_core::spec::{Mode, StepSpec};
use vance_brain_core::task::{Effect, Input, OpenCall, Place, Routed, State, Task, Wait};
use vance_mcp_host::ProgressSink;
use vance_observability::names::TRACE_ID;
use vance_shared::call::Fault;
use vance_shared::ids::{CallId, ClientId, QuestionId, TaskId};
use vance_shared::json::Raw;
use vance_shared::limits::PROGRESS_CAP;
use vance_shared::trace::TraceContext;
use vance_shared::wire;
use vance_supervise::{Actor, ActorFutureExt, AsyncContext, Context, Exit, Handler, Message, WrapFuture};

use loading::{LoadError, Loaded, load};
use reports::Reports;
use spans::Spans;

use super::scheduler::{FromTask, Report, ServerEnded};
use super::session::{ToSession, WithCall};
use crate::blobs;
use crate::directory::SessionHandle;
use crate::executor::ServerCall;
use crate::hub::{Brain, now_ms};
use crate::progress::Whose;
use crate::questions;
use crate::rows;
use crate::store::{Batch, StoreError};

mod asks;
mod loading;
mod reports;
mod spans;

/// Pause before a commit is tried again while the store is away: it doubles up to the second value.
const STORE_RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Pause before a session that is being restarted is asked again.
const SESSION_RETRY: Duration = Duration::from_millis(200);

/// The answer to a person's command.
pub type Reply = oneshot::Sender<Result<(), Fault>>;

/// The one message of a task.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ToTask {
    /// What happened.
    pub input: Input,
    /// Who waits for the answer.
    pub reply: Option<Reply>,
}

/// Kept over restarts of one task's actor, and read by the scheduler.
#[derive(Debug)]
pub struct Tally {
    /// Which of the task's actors it is: later ones have higher numbers.
    seat: u64,
    /// Inputs of the scheduler that were begun.
    handled: AtomicU64,
    /// Starts of the actor.
    starts: AtomicU32,
}

impl Tally {
    /// For a new actor.
    pub fn new(seat: u64) -> Self {
        Self { seat, handled: AtomicU64::new(0), starts: AtomicU32::new(0) }
    }
}

/// The actor.
pub struct TaskActor {
    brain: Brain,
    exit: Exit,
    task_id: TaskId,
    task: Option<Task>,
    session: Option<Arc<SessionHandle>>,
    /// Outputs of the tasks that the steps refer to, by the file's ids.
    others: Value,
    tally: Arc<Tally>,
    /// The view's revision on which the last routing decided.
    seen: u64,
    backlog: VecDeque<ToTask>,
    spans: Spans,
    /// The question with which it said to wait; none: it has said nothing yet.
    said_question: Option<Option<QuestionId>>,
    reports: Reports,
}

impl TaskActor {
    /// An actor that folds the task's stream when it starts.
    pub fn new(brain: Brain, exit: Exit, task_id: TaskId, tally: Arc<Tally>) -> Self {
        Self {
            brain,
            exit,
            task_id,
            task: None,
            session: None,
            others: Value::Null,
            tally,
            seen: 0,
            backlog: VecDeque::new(),
            spans: Spans::default(),
            said_question: None,
            reports: Reports::default(),
        }
    }

    fn report(&self, report: Report) {
        let (seat, handled) = (self.tally.seat, self.tally.handled.load(Relaxed));
        let message = FromTask { task_id: self.task_id.clone(), seat, handled, report };
        self.reports.say(&self.brain.scheduler, message);
    }

    fn loaded(&mut self, loaded: Result<Loaded, LoadError>, ctx: &mut Context<Self>) {
        match loaded {
            Ok(loaded) => {
                let mut task = loaded.task;
                if let Some(call_id) = task.held_by_server().cloned().filter(|id| self.brain.executor.runs(id)) {
                    task.runs_here(call_id);
                }
                self.task = Some(task);
                self.session = Some(loaded.session);
                self.others = loaded.others;
                self.says_question();
                let opened = self.task.as_ref().and_then(Task::held);
                if opened.is_some() {
                    // What this task told the scheduler before a commit that failed may not be what is stored.
                    self.report(Report::Held { closed: None, opened });
                }
                if self.tally.starts.fetch_add(1, Relaxed) > 0 {
                    // It died on its way: what it was told then is lost, so it looks again itself.
                    self.turn(Input::Start, None, ctx);
                }
                let backlog = std::mem::take(&mut self.backlog);
                for message in backlog {
                    self.take(message, ctx);
                }
            }
            Err(error) => self.exit.fail(ctx, format!("cannot load task {}: {error}", self.task_id)),
        }
    }

    fn take(&mut self, message: ToTask, ctx: &mut Context<Self>) {
        self.tally.handled.fetch_add(1, Relaxed);
        self.turn(message.input, message.reply, ctx);
    }

    /// One input: decide (routing included), store, act.
    fn turn(&mut self, input: Input, reply: Option<Reply>, ctx: &mut Context<Self>) {
        let Some(task) = &self.task else { return };
        let (state, before) = (task.state, task.held());
        self.spans.resume(task);
        let mut events = Vec::new();
        let mut effects = Vec::new();
        let mut inputs = VecDeque::from([input]);
        let mut refused = None;
        while let Some(input) = inputs.pop_front() {
            let Some(task) = self.task.as_mut() else { return };
            let step = task.handle(input, now_ms());
            self.spans.decided(task, &step.events);
            events.extend(step.events);
            refused = refused.or(step.refused);
            for effect in step.effects {
                match effect {
                    Effect::Route => inputs.push_back(Input::Routed(self.route())),
                    other => effects.push(other),
                }
            }
        }
        let Some(task) = &self.task else { return };
        let held = task.held();
        if held != before {
            let closed = before.filter(|b| held.as_ref() != Some(b)).map(|(call_id, _)| call_id);
            self.report(Report::Held { closed, opened: held });
        }
        let answer = match refused {
            Some(fault) => Err(fault),
            None => Ok(()),
        };
        if events.is_empty() {
            self.act(effects, reply, answer, ctx);
            return;
        }
        let batch = Batch {
            appends: vec![rows::append(state, task, &events)],
            rows: vec![rows::task_row(task)],
            at_ms: task.updated_at,
            ..Batch::default()
        };
        let brain = self.brain.clone();
        let commit = async move { commit(&brain, batch).await };
        ctx.wait(commit.into_actor(self).map(move |stored, actor, ctx| match stored {
            Ok(()) => actor.act(effects, reply, answer, ctx),
            // Somebody else wrote: fold again, from what is stored.
            Err(error) => actor.exit.fail(ctx, format!("task {}: {error}", actor.task_id)),
        }));
    }

    fn act(&mut self, effects: Vec<Effect>, reply: Option<Reply>, answer: Result<(), Fault>, ctx: &mut Context<Self>) {
        let refused = answer.is_err();
        if let Some(reply) = reply {
            // Whoever asked may be gone.
            reply.send(answer).ok();
        }
        self.says_question();
        let parks = effects.contains(&Effect::Park);
        let rests = effects.iter().any(|effect| matches!(effect, Effect::LookAgain(_)));
        for effect in effects {
            self.perform(effect, ctx);
        }
        let Some(task) = &self.task else { return };
        self.spans.settled(task);
        match task.state {
            State::Blocked | State::Queued if parks || refused => {
                if let Some(wait) = task.wait.clone() {
                    let wake_on = match &wait {
                        Wait::Client { tool, .. } => self.brain.registry.load().client_names(tool),
                        Wait::Suspended { .. } | Wait::Answer { .. } | Wait::Unknown { .. } => Vec::new(),
                    };
                    self.report(Report::Parked { wait, wake_on, seen: self.seen });
                }
            }
            State::Completed | State::Failed | State::Cancelled | State::Skipped => {
                self.report(Report::Ended { state: task.state });
            }
            State::Pending => {
                self.report(Report::Pending);
            }
            State::Running => {
                self.report(if rests { Report::Resting } else { Report::Running });
                self.arm_timeout(ctx);
            }
            State::Blocked | State::Queued => {}
        }
    }

    fn perform(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        match effect {
            Effect::Dispatch(call) => self.dispatch(call, ctx),
            Effect::Reattach(call) => {
                let with = self.with_call(&call, call.trace);
                let session = self.where_it_is(with.client_id.as_ref());
                self.tell_session(session, ToSession::Reattach(with), ctx);
            }
            Effect::CancelCall(call_id, client_id, reason) => match client_id {
                None => self.brain.executor.cancel(&call_id),
                Some(client_id) => {
                    let there = self.where_it_is(Some(&client_id));
                    let own = self.session.clone().filter(|own| !there.as_ref().is_some_and(|t| Arc::ptr_eq(t, own)));
                    for session in there.into_iter().chain(own) {
                        let (client_id, call_id, reason) = (client_id.clone(), call_id.clone(), reason.clone());
                        // A session that restarts has no connections: the client's next hello lists the call, and nobody waits for it.
                        session.actor.tell(ToSession::Cancel { client_id, call_id, reason }).ok();
                    }
                }
            },
            Effect::Reply { client_id: None, question_id, answer, .. } => {
                self.brain.executor.questions().answer(&question_id, answer);
            }
            Effect::Reply { client_id: Some(client_id), call_id, question_id, answer } => {
                let reply = wire::ElicitReply::of(call_id, question_id, answer);
                self.brain.directory.reply(client_id, reply);
            }
            Effect::Ack(call_id, client_id) => self.brain.directory.acknowledge(&client_id, call_id),
            Effect::LookAgain(after) => self.rest(after.mul_f64(1.0 + fastrand::f64() / 2.0), ctx),
            Effect::ChildrenMayRun => {
                self.report(Report::ChildrenMayRun);
            }
            // Reported from the state, in `act`; routing is done in `turn`.
            Effect::Park | Effect::Ended | Effect::Route => {}
        }
    }

    /// After the pause it asks for a slot again.
    fn rest(&mut self, pause: Duration, ctx: &mut Context<Self>) {
        ctx.run_later(pause, |actor, _| {
            if actor.task.as_ref().is_some_and(|task| task.state == State::Running) {
                actor.report(Report::Rested);
            }
        });
    }

    fn arm_timeout(&self, ctx: &mut Context<Self>) {
        let Some(left) = self.task.as_ref().and_then(|t| t.time_left_ms(now_ms())) else { return };
        let left = Duration::from_millis(u64::try_from(left).unwrap_or(0));
        ctx.run_later(left, |actor, ctx| {
            let over = actor.task.as_ref().and_then(|t| t.time_left_ms(now_ms())).is_some_and(|left| left <= 0);
            if over {
                actor.turn(Input::TimedOut, None, ctx);
            }
        });
    }

    fn dispatch(&mut self, call: OpenCall, ctx: &mut Context<Self>) {
        let Some(task) = &self.task else { return };
        let trace = self.spans.dispatched(task, &call);
        tracing::debug!(task_id = %self.task_id, call_id = %call.call_id, tool = %call.tool, { TRACE_ID } = trace.trace_id(), "a call leaves");
        match &call.place {
            Place::Server => {
                let pack = self.brain.registry.load().server_pack(&call.target_tool);
                let (followers, whose) = (self.brain.progress.clone(), self.whose(&call.call_id));
                let progress: ProgressSink = Arc::new(move |said: vance_mcp_host::Progress| {
                    if let Some(whose) = whose.clone() {
                        followers.tell(whose, said.fraction, said.message);
                    }
                });
                let server_call = ServerCall {
                    call_id: call.call_id.clone(),
                    tool: call.target_tool,
                    pack,
                    arguments: call.arguments,
                    timeout: Duration::from_millis(call.timeout_ms),
                    owner: task.head.owner.clone(),
                    trace,
                    task_id: Some(self.task_id.clone()),
                    progress: Some(progress),
                    person: questions::person(&self.brain, &self.task_id, &call.call_id),
                };
                let owner = task.head.owner.clone();
                let (brain, task_id, call_id) = (self.brain.clone(), self.task_id.clone(), call.call_id);
                tokio::spawn(async move {
                    let outcome = brain.executor.run(server_call).await;
                    let outcome = blobs::within_limits(&brain, &call_id, &owner, outcome).await;
                    let message = ServerEnded { task_id, call_id, outcome };
                    if let Err(refusal) = brain.scheduler.post(message).await {
                        tracing::warn!(%refusal, "the scheduler did not take a result; the task decides by its replay class");
                    }
                });
            }
            Place::Client { .. } => {
                // Routed within its own session, unless that borrows the client; sent again it follows the client.
                let session = match call.attempt {
                    1 if !self.borrows(call.place.client()) => self.session.clone(),
                    _ => self.where_it_is(call.place.client()),
                };
                self.tell_session(session, ToSession::Dispatch(self.with_call(&call, trace)), ctx);
            }
        }
    }

    /// Whose a call is, for those who follow.
    fn whose(&self, call_id: &CallId) -> Option<Whose> {
        let (task, session) = self.task.as_ref().zip(self.session.as_ref())?;
        Some(Whose {
            owner: session.owner.clone(),
            session_id: task.head.session_id.clone(),
            tree_id: task.head.tree_id.clone(),
            task_id: self.task_id.clone(),
            id: task.head.spec.id.clone(),
            call_id: call_id.clone(),
        })
    }

    fn with_call(&self, call: &OpenCall, traceparent: TraceContext) -> WithCall {
        WithCall {
            client_id: call.place.client().cloned(),
            call: Arc::new(wire::Call {
                call_id: call.call_id.clone(),
                attempt: call.attempt,
                tool: call.target_tool.as_str().to_owned(),
                arguments: call.arguments.clone(),
                timeout_ms: call.timeout_ms,
                cap_ms: call.timeout_ms.saturating_mul(u64::from(PROGRESS_CAP)),
                answer_ms: Some(ms(self.brain.config.defaults.answer_within)),
                traceparent,
            }),
            replay: call.replay,
        }
    }

    /// True if the client is lent by another session of the owner.
    fn borrows(&self, client_id: Option<&ClientId>) -> bool {
        self.session.as_ref().is_some_and(|session| {
            let published = session.published();
            let mut lent = published.view.clients.iter().skip(published.own);
            session.mode == Mode::Autonomous || lent.any(|client| Some(&client.client_id) == client_id)
        })
    }

    /// The session in which a client is now: it may have gone to another one with this task's call. It is the same owner's.
    fn where_it_is(&self, client_id: Option<&ClientId>) -> Option<Arc<SessionHandle>> {
        client_id.and_then(|id| self.brain.directory.place_of(id)).or_else(|| self.session.clone())
    }

    fn tell_session(&self, session: Option<Arc<SessionHandle>>, message: ToSession, ctx: &mut Context<Self>) {
        let Some(session) = session else { return };
        if let Err(refusal) = session.actor.tell(message) {
            tracing::warn!(task_id = %self.task_id, session = session.actor.name(), %refusal, "the session did not take a message");
            // It stays the same open call; looking again asks how it stands.
            ctx.run_later(SESSION_RETRY, |actor, ctx| actor.turn(Input::Start, None, ctx));
        }
    }

    /// Where the current step goes, with its arguments evaluated.
    fn route(&mut self) -> Routed {
        let (Some(task), Some(session)) = (&self.task, &self.session) else { return Routed::Wait { queued: false } };
        let Some(step) = task.current_step() else {
            return Routed::Fault(Fault::new("internal", "there is no step to route"));
        };
        let published = session.published();
        self.seen = published.revision;
        let registry = self.brain.registry.load();
        let spec = &task.head.spec;
        let wish = Wish {
            target: spec.execution_target,
            tools: spec.tools.as_deref(),
            engine: task.head.engine.as_ref(),
            strategy: spec.offline_strategy,
            autonomous: task.head.autonomous,
            client: spec.client.as_deref(),
            submitted_by: task.head.submitted_by.as_ref(),
            served_by: task.served_by(),
            works_in: task.works_in(),
            any_client: spec.any_client,
        };
        let (target_tool, place) = match route::decide(&registry, &published.view, &wish, &step.call) {
            // Its pack still starts: whether it is safe to run twice is not known before the pack says so.
            Decision::Server { tool } if !registry.server_tools.contains_key(&tool) => return Routed::NotYet,
            Decision::Server { tool } => (tool, Place::Server),
            Decision::Client { client_id, tool } => {
                let client = published.view.clients.iter().find(|c| c.client_id == client_id);
                let machine = client.map(|c| c.machine.clone()).unwrap_or_default();
                let folder = client.filter(|c| route::works_in_folder(c, &tool)).and_then(|c| c.working_dir.clone());
                (tool, Place::Client { client_id, machine, folder })
            }
            Decision::Block => return Routed::Wait { queued: false },
            Decision::Queue => return Routed::Wait { queued: true },
            Decision::Skip => return Routed::Skip,
            Decision::Fail(fault) => return Routed::Fault(fault),
        };
        let arguments = match render_arguments(&step.with, &self.context(task)) {
            Ok(arguments) => Raw::from(Value::Object(arguments)),
            Err(error) => return Routed::Fault(Fault::new("expression", error.to_string())),
        };
        if let (Place::Client { .. }, Some(fault)) = (&place, wire::too_large_to_send(&arguments)) {
            return Routed::Fault(fault);
        }
        let known = registry.lookup(&published.view, &step.call);
        Routed::Placed(OpenCall {
            call_id: CallId::generate(),
            attempt: 1,
            step: task.step,
            tool: step.call.clone(),
            target_tool,
            place,
            arguments,
            replay: known.map(|k| k.replay()).unwrap_or_default(),
            timeout_ms: self.timeout_ms(step),
            trace: self.spans.of_next_call(task),
        })
    }

    fn timeout_ms(&self, step: &StepSpec) -> u64 {
        ms(step.timeout.unwrap_or(self.brain.config.defaults.call_timeout))
    }

    /// What expressions see: earlier steps by name, `tasks.ID`.
    fn context(&self, task: &Task) -> Value {
        let mut context: Map<String, Value> = task.results.iter().map(|(k, v)| (k.clone(), v.clone())).collect();
        context.insert("tasks".to_owned(), self.others.clone());
        Value::Object(context)
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Stores, and goes on trying while the store is away: nothing that the API accepted is lost by a full disk.
async fn commit(brain: &Brain, batch: Batch) -> Result<(), StoreError> {
    let mut pause = STORE_RETRY.0;
    loop {
        match brain.store.commit(batch.clone()).await {
            Ok(_) => return Ok(()),
            Err(error @ (StoreError::Full { .. } | StoreError::Unavailable { .. })) => {
                tracing::error!(%error, retry_in_ms = pause.as_millis(), "cannot store a task's events; the task waits");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(STORE_RETRY.1);
            }
            Err(error) => return Err(error),
        }
    }
}

impl Actor for TaskActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let load = load(self.brain.clone(), self.task_id.clone());
        ctx.wait(load.into_actor(self).map(|loaded, actor, ctx| actor.loaded(loaded, ctx)));
    }
}

impl Handler<ToTask> for TaskActor {
    type Result = ();

    fn handle(&mut self, message: ToTask, ctx: &mut Self::Context) {
        if self.task.is_none() {
            self.backlog.push_back(message);
        } else {
            self.take(message, ctx);
        }
    }
}

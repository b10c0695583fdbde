//! The table of calls: performs what `vance_foot_core::calls` decides.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use actix::StreamHandler;
use futures_util::stream::poll_fn;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use vance_blobs::Blobs;
use vance_foot_core::calls::{Calls, Effect, Event, Row, RowState};
use vance_shared::call::{Fault, Outcome};
use vance_shared::ids::CallId;
use vance_shared::limits::{ANSWER_WITHIN, INFLIGHT_CALLS};
use vance_shared::trace::TraceContext;
use vance_shared::wire::{Call, CallResult, Elicit, ElicitEnd, ElicitReply, Inflight, Progress, ToBrain};
use vance_supervise::{Actor, ActorRef, AsyncContext as _, Context, Exit, Handler, Message, MessageResult, Refusal};

use super::catalogue::Catalogue;
use super::link::{Link, ToLink};
use super::questions::Questions;
use super::run::{self, Job};
use super::runs::Runs;
use crate::journal::{CallJournal, Written};

/// Open questions are said again this often: a Brain whose store failed in that moment has not kept them.
const SAY_AGAIN: Duration = Duration::from_secs(30);
/// Results up to this size wait for the socket in memory; larger ones wait in the journal.
const INLINE_BYTES: usize = 256 * 1024;
/// How often the table looks for results that were not acknowledged.
const TICK: Duration = Duration::from_secs(10);
/// Pause before a result is offered again to a table that restarts.
const OFFER_AGAIN: Duration = Duration::from_millis(50);

/// Where frames for the Brain go, for the life of one line.
#[derive(Clone)]
pub(crate) struct Outbox {
    /// Which line.
    pub(crate) generation: u64,
    /// Small frames; they overtake results.
    pub(crate) control: mpsc::Sender<ToBrain>,
    /// Results.
    pub(crate) results: mpsc::Sender<Outgoing>,
}

/// A result on its way.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// At hand.
    Ready(CallResult),
    /// To be read from the journal when its turn comes.
    FromJournal(FromJournal),
}

/// A result that the journal holds.
#[derive(Debug)]
pub(crate) struct FromJournal {
    pub(crate) call_id: CallId,
    pub(crate) attempt: u32,
    pub(crate) traceparent: Option<TraceContext>,
}

/// What the Dispatcher is told.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) enum ToDispatcher {
    /// The Brain's welcome came over a new line.
    Up { outbox: Outbox, inflight: Vec<CallId> },
    /// A line is gone.
    Down { generation: u64 },
    /// The Brain sent a call.
    Call(Box<Call>),
    /// The Brain wants a call stopped. The run itself is already told.
    Cancel { call_id: CallId, reason: String },
    /// The Brain has stored a result.
    ResultAck { call_id: CallId },
    /// A tool is done.
    Ended { call_id: CallId, outcome: Outcome },
    /// A running call is so far.
    Progress(Progress),
    /// A question, or the end of one.
    OfQuestion(Box<ToBrain>),
    /// The Brain has an answer.
    ElicitReply(ElicitReply),
    /// Another client's call asks.
    Shown(Box<Elicit>),
    /// That is over.
    ShownIsOver(ElicitEnd),
    /// The person here answers it.
    Answers(ElicitReply),
    /// No new calls from here on.
    Drain,
    /// The test of a table that falls.
    #[cfg(test)]
    Panic,
}

/// Asks for what the hello says of the calls.
#[derive(Message)]
#[rtype(result = "Inflight")]
pub(crate) struct TakeInflight;

/// Asks how many results wait for their ack.
#[derive(Message)]
#[rtype(result = "usize")]
pub(crate) struct Unacked;

/// What a Dispatcher needs, and what outlives it.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) me: ActorRef<Dispatcher>,
    pub(crate) link: ActorRef<Link>,
    pub(crate) journal: Arc<dyn CallJournal>,
    pub(crate) runs: Arc<Runs>,
    pub(crate) questions: Arc<Questions>,
    pub(crate) blobs: Option<Arc<Blobs>>,
    pub(crate) catalogue: watch::Receiver<Arc<Catalogue>>,
}

pub(crate) struct Dispatcher {
    exit: Exit,
    shared: Shared,
    calls: Calls,
    outbox: Option<Outbox>,
    reports: mpsc::Sender<Written>,
    draining: bool,
    since: Instant,
}

impl Dispatcher {
    pub(crate) fn new(exit: Exit, shared: Shared) -> Self {
        // Replaced when the actor starts; nobody can send a report before.
        let (reports, _) = mpsc::channel(1);
        let calls = Calls::boot([], INFLIGHT_CALLS);
        Self { exit, shared, calls, outbox: None, reports, draining: false, since: Instant::now() }
    }

    fn apply(&mut self, event: Event) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            for effect in self.calls.apply(self.since.elapsed(), event) {
                events.extend(self.perform(effect));
            }
        }
    }

    /// Gives an event if the effect failed in a way that the table must know.
    fn perform(&mut self, effect: Effect) -> Option<Event> {
        match effect {
            Effect::Begin { call_id, attempt, tool, replay, durable } => {
                let report = durable.then(|| self.reports.clone());
                let begun = self.shared.journal.begin(call_id.clone(), attempt, tool, replay, report);
                match begun {
                    Ok(()) => None,
                    Err(fault) if durable => Some(Event::Journalled { call_id, written: Err(fault.to_string()) }),
                    Err(fault) => {
                        tracing::debug!(%call_id, "a safe call runs without a journal row: {fault}");
                        None
                    }
                }
            }
            Effect::Accept(accepted) => {
                self.control(ToBrain::Accepted(accepted));
                None
            }
            Effect::Run(call) => self.run(*call),
            Effect::Store(result) => {
                let call_id = result.call_id.clone();
                if let Err(fault) = self.shared.journal.store(result) {
                    tracing::warn!(%call_id, "a result cannot be kept: {fault}");
                }
                None
            }
            Effect::Send(result) => {
                let result = match result.outcome.bytes() > INLINE_BYTES {
                    true => Outgoing::FromJournal(FromJournal {
                        call_id: result.call_id,
                        attempt: result.attempt,
                        traceparent: result.traceparent,
                    }),
                    false => Outgoing::Ready(result),
                };
                self.result(result);
                None
            }
            Effect::Resend { call_id, attempt, traceparent } => {
                self.result(Outgoing::FromJournal(FromJournal { call_id, attempt, traceparent }));
                None
            }
            Effect::CancelRun { call_id, reason } => {
                self.shared.runs.cancel(&call_id, &reason);
                None
            }
            Effect::Forget(call_id) => {
                if let Some(blobs) = &self.shared.blobs {
                    blobs.delivered(&call_id);
                }
                if let Err(fault) = self.shared.journal.forget(call_id.clone()) {
                    tracing::warn!(%call_id, "an acknowledged call stays in the journal: {fault}");
                }
                None
            }
        }
    }

    fn run(&self, call: Call) -> Option<Event> {
        let Call { call_id, tool, arguments, timeout_ms, cap_ms, answer_ms, traceparent, .. } = call;
        let found = self.shared.catalogue.borrow().find(&tool).cloned();
        let tool = match found {
            Ok(tool) => tool,
            Err(error) => return Some(Event::Ended { call_id, outcome: Outcome::Failed { error, result: None } }),
        };
        let cancel = self.shared.runs.begin(call_id.clone());
        let (timeout, cap) = (Duration::from_millis(timeout_ms), Duration::from_millis(cap_ms));
        let person = self.shared.questions.person(&call_id, answer_ms.map_or(ANSWER_WITHIN, Duration::from_millis));
        let (keep, trace) = (self.shared.blobs.clone(), Some(traceparent));
        let job = Job { call_id: call_id.clone(), tool, arguments, timeout, cap, trace, cancel, person, keep };
        let (dispatcher, runs) = (self.shared.me.clone(), Arc::clone(&self.shared.runs));
        let questions = Arc::clone(&self.shared.questions);
        // A task of its own on this thread: it outlives this actor, and `ctx.spawn` costs more the more of them there are.
        tokio::task::spawn_local(async move {
            let outcome = run::run(job, |(fraction, message)| {
                let progress = Progress { call_id: call_id.clone(), fraction, message, traceparent: Some(traceparent) };
                if dispatcher.tell(ToDispatcher::Progress(progress)).is_err() {
                    tracing::debug!(%call_id, "progress is not told: busy");
                }
            })
            .await;
            let outcome = match (outcome, runs.reason(&call_id)) {
                (Outcome::Cancelled { .. }, Some(reason)) => Outcome::Cancelled { reason },
                (outcome, _) => outcome,
            };
            questions.forget(&call_id);
            metrics::counter!("vance_foot_calls_total", "outcome" => outcome.word()).increment(1);
            offer(&dispatcher, call_id.clone(), outcome).await;
            runs.end(&call_id);
        });
        None
    }

    fn control(&mut self, frame: ToBrain) {
        let Some(outbox) = &self.outbox else { return };
        match outbox.control.try_send(frame) {
            Ok(()) => {}
            // The line is gone; its end is on the way to us, and the next hello says all.
            Err(mpsc::error::TrySendError::Closed(_)) => self.outbox = None,
            Err(mpsc::error::TrySendError::Full(_)) => self.give_up_line("the Brain does not read"),
        }
    }

    fn tell_questions(&mut self) {
        for frame in self.shared.questions.all() {
            self.control(frame);
        }
    }

    fn result(&mut self, result: Outgoing) {
        let Some(outbox) = &self.outbox else { return };
        if outbox.results.try_send(result).is_err_and(|e| matches!(e, mpsc::error::TrySendError::Full(_))) {
            self.give_up_line("too many results wait");
        }
    }

    /// The next line begins with a hello, which reconciles whatever this one did not carry.
    fn give_up_line(&mut self, why: &str) {
        if let Some(outbox) = self.outbox.take()
            && self.shared.link.tell(ToLink::Cycle { generation: outbox.generation, why: why.to_owned() }).is_err()
        {
            tracing::debug!("the link is busy; it notices by itself");
        }
    }
}

/// Hands an outcome to the table, however often the table restarts.
async fn offer(dispatcher: &ActorRef<Dispatcher>, call_id: CallId, outcome: Outcome) {
    loop {
        let ended = ToDispatcher::Ended { call_id: call_id.clone(), outcome: outcome.clone() };
        match dispatcher.send(ended).await {
            Ok(()) | Err(Refusal::Stopped) => return,
            Err(Refusal::Full | Refusal::Restarting) => tokio::time::sleep(OFFER_AGAIN).await,
        }
    }
}

impl Actor for Dispatcher {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let rows = match self.shared.journal.rows() {
            Ok(rows) => rows,
            Err(fault) => return self.exit.fail(ctx, fault.to_string()),
        };
        if let Some(blobs) = &self.shared.blobs {
            let acknowledged = |row: &&Row| row.state == RowState::Forgotten;
            let open: HashSet<&CallId> = rows.iter().filter(|r| !acknowledged(r)).map(|row| &row.call_id).collect();
            blobs.settle(|call_id| open.contains(call_id));
        }
        let runs = Arc::clone(&self.shared.runs);
        let attach = |row: Row| match row.state {
            RowState::Running { .. } => {
                let attached = runs.is_running(&row.call_id);
                Row { state: RowState::Running { attached }, ..row }
            }
            RowState::Finished | RowState::Forgotten => row,
        };
        self.calls = Calls::boot(rows.into_iter().map(attach), INFLIGHT_CALLS)
            .after_a_loss(self.shared.journal.follows_a_loss());
        let (reports, mut written) = mpsc::channel(INFLIGHT_CALLS);
        self.reports = reports;
        ctx.add_stream(poll_fn(move |cx| written.poll_recv(cx)));
        let mut said = tokio::time::Instant::now();
        ctx.run_interval(TICK, move |dispatcher, _| {
            dispatcher.apply(Event::Tick);
            if dispatcher.shared.questions.is_unsaid() || said.elapsed() >= SAY_AGAIN {
                said = tokio::time::Instant::now();
                dispatcher.tell_questions();
            }
        });
    }
}

impl StreamHandler<Written> for Dispatcher {
    fn handle(&mut self, Written { call_id, written }: Written, _: &mut Self::Context) {
        self.apply(Event::Journalled { call_id, written });
    }

    fn finished(&mut self, _: &mut Self::Context) {}
}

impl Handler<ToDispatcher> for Dispatcher {
    type Result = ();

    fn handle(&mut self, message: ToDispatcher, _: &mut Self::Context) {
        match message {
            ToDispatcher::Up { outbox, inflight } => {
                self.outbox = Some(outbox);
                // Should its end not have been heard: what is still open comes again.
                self.shared.questions.shown.line_gone();
                self.apply(Event::Connected { inflight });
                self.tell_questions();
            }
            ToDispatcher::Down { generation } => {
                if self.outbox.as_ref().is_none_or(|outbox| outbox.generation == generation) {
                    self.outbox = None;
                    self.shared.questions.shown.line_gone();
                    self.apply(Event::Disconnected);
                }
            }
            // Not journalled, so the Brain sends it again to whoever comes after us.
            ToDispatcher::Call(call) if self.draining => {
                tracing::debug!(call_id = %call.call_id, "not taken: draining")
            }
            ToDispatcher::Call(call) => {
                let tool: Result<_, Fault> =
                    self.shared.catalogue.borrow().find(&call.tool).map(|tool| tool.spec.replay);
                self.apply(Event::Call { call: *call, tool });
            }
            ToDispatcher::Cancel { call_id, reason } => self.apply(Event::Cancel { call_id, reason }),
            ToDispatcher::ResultAck { call_id } => self.apply(Event::ResultAck { call_id }),
            ToDispatcher::Ended { call_id, outcome } => self.apply(Event::Ended { call_id, outcome }),
            ToDispatcher::Progress(progress) => self.control(ToBrain::Progress(progress)),
            ToDispatcher::OfQuestion(frame) => self.control(*frame),
            ToDispatcher::ElicitReply(reply) => {
                if let Some(end) = self.shared.questions.answer(reply) {
                    self.control(ToBrain::ElicitEnd(end));
                }
            }
            ToDispatcher::Shown(elicit) => {
                if let Some(reply) = self.shared.questions.shown.asked(*elicit) {
                    self.control(ToBrain::ElicitReply(reply));
                }
            }
            ToDispatcher::ShownIsOver(end) => self.shared.questions.shown.over(&end),
            ToDispatcher::Answers(reply) => self.control(ToBrain::ElicitReply(reply)),
            #[cfg(test)]
            ToDispatcher::Panic => std::panic::panic_any("asked to"),
            ToDispatcher::Drain => {
                self.draining = true;
                self.control(ToBrain::Drain(vance_shared::wire::Drain { reason: "this client stops".to_owned() }));
            }
        }
    }
}

impl Handler<TakeInflight> for Dispatcher {
    type Result = MessageResult<TakeInflight>;

    fn handle(&mut self, _: TakeInflight, _: &mut Self::Context) -> Self::Result {
        // A hello begins a new line; whatever the old one still held is said again.
        self.outbox = None;
        self.apply(Event::Disconnected);
        MessageResult(self.calls.inflight())
    }
}

impl Handler<Unacked> for Dispatcher {
    type Result = usize;

    fn handle(&mut self, _: Unacked, _: &mut Self::Context) -> usize {
        self.calls.inflight().finished.len()
    }
}

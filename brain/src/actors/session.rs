//! One session: its clients' connections and the calls that are out to them. Decisions are the session machine's; this shell
//! owns the outboxes, publishes the view, and tells the scheduler.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, mpsc};
use vance_brain_core::session::{ClientInfo, Effect, Input, News, Session, Showing};
use vance_shared::ids::{CallId, ClientId};
use vance_shared::limits;
use vance_shared::tool::Replay;
use vance_shared::wire::{self, ErrorFrame, Refused, ToBrain, ToFoot, WireTool};
use vance_supervise::{Actor, AsyncContext, Context, Handler, Message, MessageResult, Refusal};

use super::scheduler::{CallNews, Presence, SessionRestarted, Unclaimed, online};
use crate::directory::SessionHandle;
use crate::hub::Brain;
use crate::outbox::Outbox;

mod blobs;
mod direct;
mod drain;
mod questions;
mod tools;
pub use blobs::GetBlob;
pub use direct::DirectCall;
pub use drain::DrainAll;
pub use questions::LookAtQuestions;
use tools::NotTaken;
pub use tools::Rejudge;

/// Messages that a session's mailbox holds; a socket that sends more waits.
pub const MAILBOX: usize = 1_024;

/// Smallest time between two looks at deadlines.
const TICK_MIN: Duration = Duration::from_millis(100);

/// Until what the scheduler did not take is told again.
const SAY_AGAIN: Duration = Duration::from_millis(200);

/// News of calls that wait for the scheduler: many times what can be in flight to the clients of a busy session.
const MAX_UNHEARD: usize = 16_384;

/// A call as the session needs it.
#[derive(Debug, Clone)]
pub struct WithCall {
    /// Who runs it; `None` for a server call, which no session gets.
    pub client_id: Option<ClientId>,
    /// What is sent.
    pub call: Arc<wire::Call>,
    /// May it run twice?
    pub replay: Replay,
}

/// What tasks and sockets tell a session.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub enum ToSession {
    /// Send a task's call.
    Dispatch(WithCall),
    /// How does a task's call stand?
    Reattach(WithCall),
    /// Stop a call.
    Cancel {
        /// On whom.
        client_id: ClientId,
        /// The call.
        call_id: CallId,
        /// Why.
        reason: String,
    },
    /// A result is stored.
    Ack {
        /// Whose.
        client_id: ClientId,
        /// The call.
        call_id: CallId,
    },
    /// The answer to a question.
    Reply {
        /// Whose.
        client_id: ClientId,
        /// The answer.
        reply: wire::ElicitReply,
    },
    /// A frame of a client.
    Frame {
        /// Whose.
        client_id: ClientId,
        /// Which connection.
        epoch: u64,
        /// The frame.
        frame: Box<ToBrain>,
        /// Of those that its connection may have here at a time; given back when it is handled.
        place: OwnedSemaphorePermit,
    },
    /// A connection ended.
    Detach {
        /// Whose.
        client_id: ClientId,
        /// Which connection.
        epoch: u64,
    },
    /// The client went to another session.
    Evict {
        /// Who.
        client_id: ClientId,
    },
}

/// A client said hello.
#[derive(Message)]
#[rtype(result = "Attached")]
pub struct Attach {
    /// Who.
    pub client_id: ClientId,
    /// Fencing number of the connection.
    pub epoch: u64,
    /// About it.
    pub info: ClientInfo,
    /// Its tools.
    pub tools: Vec<WireTool>,
    /// Packs that still start.
    pub loading: BTreeSet<String>,
    /// What its journal says.
    pub inflight: wire::Inflight,
    /// Calls that tasks hold open on it.
    pub held: BTreeSet<CallId>,
    /// Where its frames go. The first one is its `welcome`.
    pub outbox: Outbox,
}

/// The answer to [`Attach`].
#[derive(Debug)]
pub struct Attached;

struct Link {
    epoch: u64,
    outbox: Outbox,
}

impl Drop for Link {
    /// Also when the actor falls: its socket would live on, and its client believe that somebody hears it.
    fn drop(&mut self) {
        self.outbox.close();
    }
}

/// The actor.
pub struct SessionActor {
    brain: Brain,
    handle: Arc<SessionHandle>,
    machine: Session,
    links: HashMap<ClientId, Link>,
    direct: HashMap<CallId, mpsc::Sender<Box<News>>>,
    /// When the next look at deadlines is armed.
    armed_ms: Option<i64>,
    refused: Vec<Refused>,
    not_taken: HashMap<ClientId, NotTaken>,
    /// The scheduler has not taken the last view.
    unsaid: bool,
    /// News of calls that the scheduler has not taken yet, in order.
    unheard: VecDeque<CallNews>,
    /// A look at both is armed.
    saying_again: bool,
    /// Results that whoever called has got: to be acknowledged.
    given: Vec<(ClientId, CallId)>,
    blobs: blobs::Waiting,
    showing: Showing,
    /// Another look at the open questions is armed.
    looks_again: bool,
}

impl SessionActor {
    /// A session without connections.
    pub fn new(brain: Brain, handle: Arc<SessionHandle>) -> Self {
        let grace = i64::try_from(brain.config.defaults.grace.as_millis()).unwrap_or(i64::MAX / 4);
        Self {
            brain,
            handle,
            machine: Session::new(grace, limits::INFLIGHT_CALLS),
            links: HashMap::new(),
            direct: HashMap::new(),
            armed_ms: None,
            refused: Vec::new(),
            not_taken: HashMap::new(),
            unsaid: false,
            unheard: VecDeque::new(),
            saying_again: false,
            given: Vec::new(),
            blobs: blobs::Waiting::default(),
            showing: Showing::default(),
            looks_again: false,
        }
    }

    fn turn(&mut self, input: Input, ctx: &mut Context<Self>) {
        let mut effects = self.machine.handle(input, self.brain.ticks());
        while !effects.is_empty() {
            let mut full = Vec::new();
            for effect in effects {
                self.perform(effect, &mut full);
            }
            effects = full
                .into_iter()
                .flat_map(|id| self.machine.handle(Input::OutboxFull(id), self.brain.ticks()))
                .collect();
            for (client_id, call_id) in std::mem::take(&mut self.given) {
                effects.extend(self.machine.handle(Input::Ack { client_id, call_id }, self.brain.ticks()));
            }
        }
        self.say_again(ctx);
        self.arm(ctx);
    }

    fn perform(&mut self, effect: Effect, full: &mut Vec<CallId>) {
        match effect {
            Effect::Send { client_id, frame } => {
                if let Some(call_id) = self.send(&client_id, frame) {
                    full.push(call_id);
                }
            }
            Effect::Welcome { client_id, inflight } => {
                let Some(link) = self.links.get(&client_id) else { return };
                let welcome = wire::Welcome {
                    session_id: self.handle.session_id.clone(),
                    client_id: client_id.clone(),
                    epoch: link.epoch,
                    protocol: wire::PROTOCOL,
                    heartbeat_ms: u64::try_from(limits::HEARTBEAT.as_millis()).unwrap_or(10_000),
                    limits: wire::Limits::default(),
                    refused: std::mem::take(&mut self.refused),
                    inflight,
                };
                self.send(&client_id, ToFoot::Welcome(welcome));
            }
            Effect::Deliver { client_id, call_id, news } => self.deliver(client_id, call_id, news),
            Effect::Unclaimed { client_id, call_id, outcome } => {
                let message = Unclaimed { client_id, call_id, outcome };
                // Not taken: the client keeps the result and sends it again when it reconnects.
                self.brain.scheduler.tell(message).ok();
            }
            Effect::Supersede { client_id, epoch } => {
                if self.links.get(&client_id).is_some_and(|l| l.epoch == epoch)
                    && let Some(link) = self.links.remove(&client_id)
                {
                    link.outbox.supersede();
                }
            }
            Effect::ViewChanged => self.publish(),
        }
    }

    /// Puts a frame into a client's outbox. A call that finds no room is named; a connection that cannot even take an
    /// acknowledgement is stuck and is closed.
    fn send(&mut self, client_id: &ClientId, frame: ToFoot) -> Option<CallId> {
        let link = self.links.get(client_id)?;
        match frame {
            ToFoot::Call(call) => {
                let call_id = call.call_id.clone();
                link.outbox.send(ToFoot::Call(call)).is_err().then_some(call_id)
            }
            ToFoot::Welcome(_)
            | ToFoot::ResultAck(_)
            | ToFoot::Cancel(_)
            | ToFoot::ElicitReply(_)
            | ToFoot::Elicit(_)
            | ToFoot::ElicitEnd(_)
            | ToFoot::BlobGet(_)
            | ToFoot::Ping(_)
            | ToFoot::Pong(_)
            | ToFoot::Drain(_)
            | ToFoot::Error(_) => {
                // Said once: whatever else is for it finds no room either, until its end is noticed.
                if link.outbox.send_urgent(frame).is_err() && !link.outbox.is_closing() {
                    tracing::warn!(%client_id, "the client does not read; its connection is closed");
                    link.outbox.close();
                }
                None
            }
        }
    }

    fn deliver(&mut self, client_id: ClientId, call_id: CallId, news: News) {
        let ended = matches!(news, News::Ended(_) | News::NotSent { .. });
        if let Some(waiter) = self.direct.get(&call_id) {
            let has_result = matches!(news, News::Ended(_));
            // A waiter that does not read is gone or will ask again; its call ends with its own deadline.
            if waiter.try_send(Box::new(news)).is_ok() && has_result {
                self.given.push((client_id, call_id.clone()));
            }
            if ended {
                self.direct.remove(&call_id);
            }
            return;
        }
        let message = CallNews { client_id, call_id, news };
        if !self.unheard.is_empty() {
            // In order: what was said first is heard first.
            return self.keep(message);
        }
        match self.brain.scheduler.tell(message.clone()) {
            Ok(()) => {}
            Err(Refusal::Full) => self.keep(message),
            Err(refusal @ (Refusal::Restarting | Refusal::Stopped)) => {
                // Its tasks ask again how their calls stand.
                tracing::warn!(call_id = %message.call_id, %refusal, "the scheduler did not take news of a call");
            }
        }
    }

    /// Keeps news for a scheduler that has no room: they are told in [`Self::say_again`].
    fn keep(&mut self, message: CallNews) {
        if self.unheard.len() < MAX_UNHEARD {
            self.unheard.push_back(message);
        } else {
            tracing::error!(call_id = %message.call_id, "news of a call is lost: more than {MAX_UNHEARD} wait for the scheduler");
        }
    }

    fn tell_unheard(&mut self) {
        while let Some(message) = self.unheard.front() {
            if self.brain.scheduler.tell(message.clone()) == Err(Refusal::Full) {
                return;
            }
            self.unheard.pop_front();
        }
    }

    fn publish(&mut self) {
        self.forget_those_who_left();
        let clients = self.machine.view();
        let revision = self.handle.publish(clients);
        let online = online(&self.handle.published().view.clients);
        let presence = Presence { session_id: self.handle.session_id.clone(), revision, online };
        // Not taken: said again soon, for it may be the last change for hours. A scheduler that restarts reads the view itself.
        let said = self.brain.scheduler.tell(presence).is_ok();
        self.unsaid = !(self.brain.directory.lend(&self.brain, &self.handle) && said);
    }

    fn say_again(&mut self, ctx: &mut Context<Self>) {
        let all_said = !self.unsaid && self.unheard.is_empty();
        if self.saying_again || all_said {
            return;
        }
        self.saying_again = true;
        tracing::warn!(session_id = %self.handle.session_id, "the scheduler is full; it is told again soon");
        ctx.run_later(SAY_AGAIN, |actor, ctx| {
            actor.saying_again = false;
            // Calls first: a view that comes before news of its calls would wake tasks for nothing.
            actor.tell_unheard();
            if actor.unsaid {
                actor.publish();
            }
            actor.say_again(ctx);
        });
    }

    fn arm(&mut self, ctx: &mut Context<Self>) {
        let Some(next) = self.machine.next_tick_ms() else { return };
        if self.armed_ms.is_some_and(|armed| armed <= next) {
            return;
        }
        self.armed_ms = Some(next);
        let wait = Duration::from_millis(u64::try_from(next - self.brain.ticks()).unwrap_or(0)).max(TICK_MIN);
        ctx.run_later(wait, move |actor, ctx| {
            if actor.armed_ms == Some(next) {
                actor.armed_ms = None;
            }
            actor.turn(Input::Tick, ctx);
        });
    }

    fn frame(
        &mut self,
        client_id: ClientId,
        epoch: u64,
        frame: ToBrain,
        place: OwnedSemaphorePermit,
        ctx: &mut Context<Self>,
    ) {
        match frame {
            ToBrain::ToolsChanged(change) => self.tools_changed(client_id, epoch, change, ctx),
            ToBrain::Accepted(accepted) => {
                self.turn(Input::Accepted { client_id, epoch, call_id: accepted.call_id }, ctx);
            }
            ToBrain::Progress(progress) => self.turn(Input::Progress { client_id, epoch, progress }, ctx),
            ToBrain::Result(result) => {
                let (call_id, outcome) = (result.call_id, result.outcome);
                self.turn(Input::Result { client_id, epoch, call_id, outcome }, ctx);
            }
            ToBrain::Elicit(question) => self.turn(Input::Asked { client_id, epoch, question }, ctx),
            ToBrain::ElicitEnd(end) => self.turn(Input::QuestionEnded { client_id, epoch, end }, ctx),
            ToBrain::ElicitReply(reply) => self.answered(&client_id, epoch, reply, place),
            ToBrain::BlobPart(part) => self.blobs.answer(&client_id, part),
            ToBrain::Drain(_) => self.turn(Input::Draining { client_id, epoch }, ctx),
            ToBrain::Error(error) => {
                let (code, text) = (vance_shared::show::plain(&error.code), vance_shared::show::plain(&error.message));
                tracing::warn!(%client_id, code, text, "a client reported an error");
            }
            ToBrain::ClientConnected(_) => {
                let error = ErrorFrame {
                    code: "already_connected".to_owned(),
                    message: "client_connected comes once, first; report changes with tools_changed".to_owned(),
                    id: None,
                };
                self.send(&client_id, ToFoot::Error(error));
            }
            // The socket's task puts parts together and answers heartbeats.
            ToBrain::ResultPart(_) | ToBrain::Ping(_) | ToBrain::Pong(_) => {}
        }
    }
}

impl Actor for SessionActor {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        if self.handle.starts() > 0 {
            // Connections of the actor before this one are gone with their outboxes; clients come back by themselves. Said before
            // the view, by which it is known whose calls were out to clients of this session.
            self.handle.looks_at_questions();
            self.brain.scheduler.tell(SessionRestarted(self.handle.session_id.clone())).ok();
            self.publish();
            self.say_again(ctx);
        }
    }
}

impl Handler<ToSession> for SessionActor {
    type Result = ();

    fn handle(&mut self, message: ToSession, ctx: &mut Self::Context) {
        match message {
            ToSession::Dispatch(WithCall { client_id: Some(client_id), call, replay }) => {
                self.turn(Input::Dispatch { client_id, call, replay }, ctx);
            }
            ToSession::Reattach(WithCall { client_id: Some(client_id), call, replay }) => {
                self.turn(Input::Reattach { client_id, call, replay }, ctx);
            }
            ToSession::Dispatch(_) | ToSession::Reattach(_) => {}
            ToSession::Cancel { client_id, call_id, reason } => {
                self.direct.remove(&call_id);
                self.turn(Input::Cancel { client_id, call_id, reason }, ctx);
            }
            ToSession::Reply { client_id, reply } => self.turn(Input::Reply { client_id, reply }, ctx),
            ToSession::Ack { client_id, call_id } => self.turn(Input::Ack { client_id, call_id }, ctx),
            ToSession::Frame { client_id, epoch, frame, place } => {
                self.frame(client_id, epoch, *frame, place, ctx);
            }
            ToSession::Detach { client_id, epoch } => {
                if self.links.get(&client_id).is_some_and(|l| l.epoch == epoch) {
                    self.links.remove(&client_id);
                    self.blobs.gone(&client_id);
                }
                self.turn(Input::Detach { client_id, epoch }, ctx);
            }
            ToSession::Evict { client_id } => {
                if let Some(link) = self.links.remove(&client_id) {
                    self.blobs.gone(&client_id);
                    link.outbox.supersede();
                    self.turn(Input::Detach { client_id, epoch: link.epoch }, ctx);
                }
            }
        }
    }
}

impl Handler<Attach> for SessionActor {
    type Result = MessageResult<Attach>;

    fn handle(&mut self, attach: Attach, ctx: &mut Self::Context) -> Self::Result {
        let Attach { client_id, epoch, info, tools, loading, inflight, held, outbox } = attach;
        if self.links.get(&client_id).is_some_and(|l| l.epoch > epoch) {
            // A later connection of the same client is already here.
            outbox.supersede();
            return MessageResult(Attached);
        }
        self.forget_refused(&client_id);
        let (tools, refused) = self.take(&client_id, &Arc::default(), Vec::new(), tools);
        self.refused = refused;
        self.brain.directory.learn(&self.brain, &self.handle, &tools);
        // What an older connection was asked for, this one does not answer.
        self.blobs.gone(&client_id);
        let older = self.links.insert(client_id.clone(), Link { epoch, outbox });
        self.turn(Input::Attach { client_id, epoch, info, tools, loading, inflight, held }, ctx);
        if let Some(older) = older {
            older.outbox.supersede();
        }
        self.look_at_questions(ctx);
        MessageResult(Attached)
    }
}

//! The line's keeper: performs what `vance_foot_core::link` decides.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use actix::SpawnHandle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use vance_blobs::Blobs;
use vance_foot_core::link::{Action, End, Event, Link as Machine, Stop};
use vance_mcp_host::stamps::Stamps;
use vance_shared::ids::SessionId;
use vance_shared::limits::HEARTBEAT_MISSES;
use vance_shared::show::plain;
use vance_shared::wire::{ClientConnected, Ping, ToBrain, Welcome};
use vance_supervise::{Actor, ActorRef, AsyncContext as _, Context, Handler, Message};

use super::catalogue::Catalogue;
use super::connection::Connection;
use super::dial::Dial;
use super::dispatcher::Dispatcher;
use super::line::{self, Heard};
use super::runs::Runs;
use crate::journal::CallJournal;

/// Gives the token as it is now: it may be made, or change, while this Foot waits for its Brain.
pub type TokenSource = Arc<dyn Fn() -> Bearer + Send + Sync>;

/// A token and where it comes from.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Bearer {
    /// The token, if there is one.
    pub token: Option<String>,
    /// How its files look: who stores the same token again wants it tried again.
    pub files: Stamps,
}

impl From<Option<String>> for Bearer {
    fn from(token: Option<String>) -> Self {
        Self { token, files: Stamps::default() }
    }
}

/// Refused without having had one.
const NO_TOKEN: &str = "it wants a token, and none was sent: there is none for it here; store one with `vancetope login URL`, or set VANCE_TOKEN to \
                        the content of brain/local.token in the Brain's home, or use the Brain's own VANCE_HOME";
/// Below a life, in the number that the hello carries: which line of that process it is.
const LINE_BITS: u32 = 20;

/// Refused, the link looks this often whether a token was stored.
const TOKEN_LOOK: Duration = Duration::from_secs(5);

/// What the Link is told.
#[derive(Message)]
#[rtype(result = "()")]
pub(crate) enum ToLink {
    /// The Brain took the hello.
    Welcomed { generation: u64, welcome: Box<Welcome>, control: mpsc::Sender<ToBrain> },
    /// A line is over.
    Ended { generation: u64, end: End },
    /// A line is of no use any more.
    Cycle { generation: u64, why: String },
    /// This Foot goes: close the line, say so, and open no other.
    Leave { gone: oneshot::Sender<()> },
}

/// What a Link needs, and what outlives it.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) me: ActorRef<Link>,
    pub(crate) dispatcher: ActorRef<Dispatcher>,
    pub(crate) journal: Arc<dyn CallJournal>,
    pub(crate) runs: Arc<Runs>,
    pub(crate) blobs: Option<Arc<Blobs>>,
    pub(crate) catalogue: watch::Receiver<Arc<Catalogue>>,
    pub(crate) connection: watch::Sender<Connection>,
    /// `ws://…/ws`.
    pub(crate) url: String,
    /// The Brain's address as the person wrote it.
    pub(crate) brain: String,
    pub(crate) token: TokenSource,
    pub(crate) dial: Dial,
    /// Everything of the hello but tools and calls.
    pub(crate) hello: ClientConnected,
    /// The session that `new_session` made: a reconnect goes back to it.
    pub(crate) made_session: Arc<OnceLock<SessionId>>,
    /// Lines of this process so far.
    pub(crate) lines: Arc<AtomicU64>,
}

pub(crate) struct Link {
    shared: Shared,
    machine: Machine,
    since: Instant,
    generation: u64,
    heard: Heard,
    line: Option<JoinHandle<()>>,
    control: Option<mpsc::Sender<ToBrain>>,
    epoch: Option<u64>,
    used: Bearer,
    /// The Brain said no, and this may pass: a look at the token is worth while.
    refused: bool,
    looked: Instant,
    timer: Option<SpawnHandle>,
    leaving: CancellationToken,
    /// What the Brain said to the last hello that it did not take.
    said: Arc<OnceLock<String>>,
    /// Who waits until the line is closed.
    gone: Option<oneshot::Sender<()>>,
}

impl Link {
    pub(crate) fn new(shared: Shared) -> Self {
        let since = Instant::now();
        Self {
            shared,
            machine: Machine::new(),
            since,
            generation: 0,
            heard: Heard::new(since),
            line: None,
            control: None,
            epoch: None,
            used: Bearer::default(),
            refused: false,
            looked: since,
            timer: None,
            leaving: CancellationToken::new(),
            said: Arc::default(),
            gone: None,
        }
    }

    fn apply(&mut self, event: Event, ctx: &mut Context<Self>) {
        let now = self.since.elapsed();
        for action in self.machine.apply(now, event, fastrand::u32(..)) {
            self.perform(action);
        }
        if let Some(timer) = self.timer.take() {
            ctx.cancel_future(timer);
        }
        let wait = self.machine.next_tick(self.since.elapsed());
        self.timer = Some(ctx.run_later(wait, |link, ctx| {
            link.timer = None;
            link.tick(ctx);
        }));
    }

    fn tick(&mut self, ctx: &mut Context<Self>) {
        if self.refused && self.machine.is_stopped() && self.looked.elapsed() >= TOKEN_LOOK {
            self.looked = Instant::now();
            if (self.shared.token)() != self.used {
                tracing::info!("a token was stored, trying the Brain at {} again", self.shared.brain);
                self.refused = false;
                self.shared.connection.send_replace(Connection::Connecting);
                return self.apply(Event::Start, ctx);
            }
        }
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.apply(Event::Tick { wall, heard: self.heard.at() }, ctx);
    }

    fn perform(&mut self, action: Action) {
        match action {
            Action::Connect => self.connect(),
            Action::Ping => {
                let ping = ToBrain::Ping(Ping { nonce: fastrand::u64(..) });
                if self.control.as_ref().is_some_and(|control| control.try_send(ping).is_err()) {
                    tracing::debug!("no ping: the Brain does not read");
                }
            }
            Action::Drop { why } => {
                tracing::debug!("the line is dropped: {why}");
                self.drop_line();
            }
            Action::SayLost { why } => {
                self.refused = false;
                self.shared.connection.send_replace(Connection::Connecting);
                let brain = &self.shared.brain;
                tracing::warn!("no line to the Brain at {brain} ({why}); trying again until it answers");
            }
            Action::Stop(stop) => {
                self.drop_line();
                self.refused = match stop {
                    Stop::Unauthorized | Stop::Forbidden => true,
                    Stop::Superseded | Stop::Protocol => false,
                };
                self.looked = Instant::now();
                let why = match (stop, &self.used.token) {
                    (Stop::Unauthorized, None) => NO_TOKEN.to_owned(),
                    (Stop::Forbidden, _) if self.said.get().is_some() => self.said.get().cloned().unwrap_or_default(),
                    (stop, _) => match self.said.get().filter(|_| stop == Stop::Protocol) {
                        Some(said) => format!("{stop} (it says: {said})"),
                        None => stop.to_string(),
                    },
                };
                let is_final = matches!(stop, Stop::Superseded | Stop::Protocol);
                tracing::error!("the Brain at {}: {why}", self.shared.brain);
                self.shared.connection.send_replace(Connection::Refused { why, is_final });
            }
        }
    }

    fn connect(&mut self) {
        self.drop_line();
        self.said = Arc::default();
        self.generation += 1;
        self.used = (self.shared.token)();
        let lines = self.shared.lines.fetch_add(1, Ordering::Relaxed) + 1;
        // A hello that was held up on a line given up since must not take over the one after it.
        let life = self.shared.hello.life.map(|life| (life << LINE_BITS) | lines.min((1 << LINE_BITS) - 1));
        let mut hello = ClientConnected { epoch: self.epoch, life, ..self.shared.hello.clone() };
        if let Some(made) = self.shared.made_session.get() {
            hello.session_id = Some(made.clone());
            hello.new_session = false;
        }
        let job = line::Job {
            generation: self.generation,
            url: self.shared.url.clone(),
            token: self.used.token.clone(),
            dial: Arc::clone(&self.shared.dial),
            hello,
            catalogue: self.shared.catalogue.clone(),
            dispatcher: self.shared.dispatcher.clone(),
            link: self.shared.me.clone(),
            journal: Arc::clone(&self.shared.journal),
            runs: Arc::clone(&self.shared.runs),
            blobs: self.shared.blobs.clone(),
            heard: self.heard.clone(),
            leaving: self.leaving.clone(),
            said: Arc::clone(&self.said),
        };
        let (link, generation) = (self.shared.me.clone(), self.generation);
        self.line = Some(tokio::task::spawn_local(async move {
            let end = line::run(job).await;
            if let Err(refusal) = link.post(ToLink::Ended { generation, end }).await {
                // The link notices by the silence.
                tracing::debug!("the end of a line is not told: {refusal}");
            }
        }));
    }

    fn drop_line(&mut self) {
        self.control = None;
        if let Some(line) = self.line.take() {
            line.abort();
        }
    }

    fn welcomed(&mut self, welcome: &Welcome) {
        self.refused = false;
        self.epoch = Some(welcome.epoch);
        if self.shared.hello.new_session {
            self.shared.made_session.get_or_init(|| welcome.session_id.clone());
        }
        tracing::info!("connected to the Brain at {}, session {}", self.shared.brain, welcome.session_id);
        for refused in &welcome.refused {
            tracing::warn!("the Brain does not take tool {}: {}", plain(&refused.name), plain(&refused.reason));
        }
        self.shared.connection.send_replace(Connection::Online {
            session_id: welcome.session_id.clone(),
            client_id: welcome.client_id.clone(),
        });
    }
}

impl Actor for Link {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.shared.connection.send_replace(Connection::Connecting);
        self.apply(Event::Start, ctx);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.drop_line();
    }
}

impl Handler<ToLink> for Link {
    type Result = ();

    fn handle(&mut self, message: ToLink, ctx: &mut Self::Context) {
        match message {
            ToLink::Welcomed { generation, welcome, control } if generation == self.generation => {
                self.control = Some(control);
                self.welcomed(&welcome);
                let heartbeat = Duration::from_millis(welcome.heartbeat_ms);
                self.apply(Event::Welcomed { heartbeat, misses: HEARTBEAT_MISSES }, ctx);
            }
            ToLink::Leave { gone } => {
                self.leaving.cancel();
                if self.machine.is_online() {
                    self.gone = Some(gone);
                }
            }
            ToLink::Ended { .. } | ToLink::Cycle { .. } if self.leaving.is_cancelled() => {
                self.drop_line();
                // Dropped is said as well.
                self.gone = None;
            }
            ToLink::Ended { generation, end } if generation == self.generation => {
                self.drop_line();
                self.apply(Event::Ended(end), ctx);
            }
            ToLink::Cycle { generation, why } if generation == self.generation => {
                self.drop_line();
                self.apply(Event::Ended(End::Broken(why)), ctx);
            }
            ToLink::Welcomed { .. } | ToLink::Ended { .. } | ToLink::Cycle { .. } => {
                tracing::debug!("news of an older line");
            }
        }
    }
}

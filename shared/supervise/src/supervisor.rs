//! The handle of a supervisor: start children, stop them, see them, end it all.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use tokio::sync::{mpsc, oneshot, watch};

use crate::exit::ExitReason;
use crate::spec::{ChildSpec, SupervisorSpec};
use crate::tree;

/// Commands a supervisor holds; it takes each at once, so this is a burst.
const COMMANDS: usize = 64;

/// A child as its supervisor sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChildStatus {
    /// The child's name.
    pub name: String,
    /// What it does now.
    pub state: ChildState,
    /// Restarts over its whole life.
    pub restarts: u32,
    /// How it last ended, as text: `normal`, `shutdown`, `failed: …`, `panicked: …`.
    pub last_exit: Option<String>,
}

/// What a child does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildState {
    /// It runs.
    Up,
    /// It ended, or is being stopped, and will be started again.
    Restarting,
    /// It is being stopped for good.
    Stopping,
    /// It ended with a fault and is not started again. The last 64 of these are kept.
    Failed,
}

/// Why a child was not started.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// A child of this name exists.
    #[error("a child named `{0}` exists already")]
    Duplicate(String),
    /// The supervisor has as many children as it may.
    #[error("supervisor has {0} children, the most it may have")]
    Full(usize),
    /// The supervisor has ended, is ending, or is not up yet.
    #[error("supervisor is not running")]
    NotRunning,
}

/// A handle to a supervisor, valid over its restarts when it is nested; from any thread.
///
/// Dropping handles ends nothing.
#[derive(Clone)]
pub struct SupervisorRef {
    shared: Arc<Shared>,
}

struct Shared {
    commands: ArcSwapOption<mpsc::Sender<Command>>,
    life: watch::Sender<Life>,
}

/// The lives of the supervisor behind a handle. A nested one may end and start again before anyone
/// looks, so ends are counted: whoever waits for one cannot miss it.
#[derive(Debug, Default)]
struct Life {
    running: bool,
    ends: u64,
    last: Option<ExitReason>,
}

pub(crate) enum Command {
    Start(ChildSpec, oneshot::Sender<Result<(), StartError>>),
    Stop(String, oneshot::Sender<bool>),
    Children(oneshot::Sender<Vec<ChildStatus>>),
    Strike(String, oneshot::Sender<bool>),
    Shutdown,
}

impl SupervisorRef {
    /// A handle for a nested supervisor that is still to be started, by [`ChildSpec::supervisor`].
    /// Until then it has no children and takes none.
    pub fn new() -> SupervisorRef {
        let shared = Shared { commands: ArcSwapOption::empty(), life: watch::Sender::default() };
        SupervisorRef { shared: Arc::new(shared) }
    }

    /// Starts a supervisor and its first children on the current thread, which must be an
    /// Arbiter's or a `LocalSet`'s. The references of the children are bound when this returns.
    pub fn start(spec: SupervisorSpec) -> SupervisorRef {
        let handle = SupervisorRef::new();
        tree::start_root(spec, &handle);
        handle
    }

    /// Starts one more child. On `Ok` its reference is bound, unless a group restart is under way,
    /// which it joins. A factory that panics is treated like a child that fell later. A failed
    /// child of the same name is replaced.
    pub async fn start_child(&self, child: ChildSpec) -> Result<(), StartError> {
        self.ask(|reply| Command::Start(child, reply)).await.unwrap_or(Err(StartError::NotRunning))
    }

    /// Stops a child: gracefully, and by force after its grace. `true` when it is gone, `false`
    /// when there is none of this name.
    pub async fn stop_child(&self, name: &str) -> bool {
        self.ask(|reply| Command::Stop(name.to_owned(), reply)).await.unwrap_or(false)
    }

    /// The children in start order; none when the supervisor is not running.
    pub async fn children(&self) -> Vec<ChildStatus> {
        self.ask(Command::Children).await.unwrap_or_default()
    }

    /// Makes a child that is an actor panic when what waits in its mailbox is handled: for tests of what becomes of the others.
    /// `false`: it is not there, or its mailbox is full.
    pub async fn strike(&self, name: &str) -> bool {
        self.ask(|reply| Command::Strike(name.to_owned(), reply)).await.unwrap_or(false)
    }

    /// Stops all children in parallel, each with its grace, and then the supervisor. Returns when
    /// all are gone; at once when it is not running. A nested supervisor stopped this way is not
    /// started again.
    pub async fn shutdown(&self) {
        let Some(commands) = self.shared.commands.load_full() else { return };
        if commands.send(Command::Shutdown).await.is_ok() {
            commands.closed().await;
        }
    }

    /// Resolves when the supervisor gives up or is shut down, at once if it is not running any
    /// more. A nested one may be started again by its parent after that.
    pub async fn ended(&self) -> ExitReason {
        let mut life = self.shared.life.subscribe();
        let seen = {
            let now = life.borrow();
            if now.running { now.ends } else { now.ends.saturating_sub(1) }
        };
        let last = life.wait_for(|now| now.ends > seen).await.map(|now| now.last.clone());
        match last {
            Ok(Some(reason)) => reason,
            // The sender lives in `self`, and an end has a reason: neither can be.
            Ok(None) | Err(_) => ExitReason::Shutdown,
        }
    }

    /// `None`: the supervisor is not running, or ended before it answered.
    async fn ask<T>(&self, command: impl FnOnce(oneshot::Sender<T>) -> Command) -> Option<T> {
        let commands = self.shared.commands.load_full()?;
        let (reply, answer) = oneshot::channel();
        commands.send(command(reply)).await.ok()?;
        answer.await.ok()
    }

    /// A task takes over behind this handle.
    pub(crate) fn bind(&self) -> mpsc::Receiver<Command> {
        let (commands, receiver) = mpsc::channel(COMMANDS);
        self.shared.life.send_modify(|life| life.running = true);
        self.shared.commands.store(Some(Arc::new(commands)));
        receiver
    }

    /// The task behind this handle has ended.
    pub(crate) fn unbind(&self, reason: ExitReason) {
        self.shared.commands.store(None);
        self.shared.life.send_modify(|life| {
            life.running = false;
            life.ends += 1;
            life.last = Some(reason);
        });
    }
}

impl Default for SupervisorRef {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SupervisorRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SupervisorRef").field("life", &*self.shared.life.borrow()).finish()
    }
}

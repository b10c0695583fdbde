//! What all parts of a running Brain share: handles only, each cheap to clone; who owns the state behind one is said there.

use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use tokio::time::Instant;
use vance_blobs::Blobs;
use vance_brain_core::config::BrainConfig;
use vance_brain_core::registry::Registry;
use vance_shared::doc::Problem;
use vance_supervise::{ActorRef, SupervisorRef};

use crate::actors::pack_loader::PackLoader;
use crate::actors::registry::RegistryActor;
use crate::actors::scheduler::Scheduler;
use crate::directory::Directory;
use crate::executor::Executor;
use crate::progress::Progresses;
use crate::questions::open::OpenQuestions;
use crate::store::Store;

/// A running Brain's handles.
pub struct Hub {
    /// The event store; its writer is owned by the store gate.
    pub store: Store,
    /// The tool table: the registry actor writes snapshots, everybody reads them without waiting.
    pub registry: ArcSwap<Registry>,
    /// Changes of the tool table go here.
    pub registry_actor: ActorRef<RegistryActor>,
    /// Starts and ends server packs, and reads the files again.
    pub pack_loader: ActorRef<PackLoader>,
    /// How the last reading of the files went; the loader writes it.
    pub files: ArcSwap<Files>,
    /// Decides which task runs.
    pub scheduler: ActorRef<Scheduler>,
    /// Task actors live below it.
    pub tasks: SupervisorRef,
    /// Sessions by id.
    pub directory: Directory,
    /// Questions that wait for a person.
    pub questions: OpenQuestions,
    /// How far calls are, for whoever follows.
    pub progress: Progresses,
    /// Runs server tools.
    pub executor: Executor,
    /// What is too large to travel; nothing is kept where there is no folder for it.
    pub blobs: OnceLock<Arc<Blobs>>,
    /// `brain.yaml`.
    pub config: BrainConfig,
    /// When it started: zero of [`Hub::ticks`].
    pub started: Instant,
}

/// How a reading of the files went.
#[derive(Debug, Clone, Default)]
pub struct Files {
    /// Milliseconds since 1970.
    pub read_at: i64,
    /// All that is wrong. Of a bad file counts what it said before.
    pub problems: Vec<Problem>,
    /// `brain.yaml` is not what this Brain runs with.
    pub needs_restart: bool,
}

/// Shared by everything.
pub type Brain = Arc<Hub>;

impl Hub {
    /// Milliseconds since the start, on a clock that does not go back.
    pub fn ticks(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_millis()).unwrap_or(i64::MAX)
    }
}

/// Milliseconds since 1970: for what is stored and shown.
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

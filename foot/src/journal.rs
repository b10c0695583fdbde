//! The calls that this Foot took on, kept over a crash of its process: one SQLite file and one thread that writes it.
//!
//! Writes are grouped. A group that holds the beginning of an unsafe call is flushed to disk before that call is accepted;
//! any other group is only written, so it survives the end of the process but not a power cut, which costs a safe call
//! one more run and an unsafe one an `unknown`. What happens to one call within a group is one write; a safe call that is over
//! and acknowledged by then leaves no row, for its Brain has the result and asks no more.

use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use futures_util::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use vance_foot_core::calls::Row;
use vance_shared::call::Outcome;
use vance_shared::ids::CallId;
use vance_shared::tool::Replay;
use vance_shared::wire::CallResult;

use desk::Desk;

mod desk;
mod file;
mod group;
mod writer;

/// Why a journal cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum JournalFault {
    /// SQLite says no.
    #[error("{path}: {error}")]
    Store {
        /// The file.
        path: String,
        /// Why.
        error: rusqlite::Error,
    },
    /// The file system says no.
    #[error("{path}: {error}")]
    Io {
        /// The file.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// A later release wrote the file.
    #[error("{path} was written by a later release (version {found}, this one reads {known}); update this Foot")]
    Later {
        /// The file.
        path: String,
        /// Its version.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// The writer is gone.
    #[error("the journal's writer has ended")]
    Ended,
    /// More writes wait than may wait.
    #[error("the journal's disk does not keep up")]
    Full,
}

/// The answer to a durable write.
#[derive(Debug)]
pub struct Written {
    /// The call.
    pub call_id: CallId,
    /// The error is for people.
    pub written: Result<(), String>,
}

/// What the journal has of a result.
#[derive(Debug, Clone, PartialEq)]
pub enum Kept {
    /// It is here.
    Here(Outcome),
    /// It was acknowledged and forgotten.
    Forgotten,
    /// It should be here and is not: the disk did not take it, or the file is damaged.
    Lost,
}

/// What the writer is asked to do.
pub(super) enum Op {
    Begin { call_id: CallId, attempt: u32, tool: String, replay: Replay, durable: Option<mpsc::Sender<Written>> },
    Store(CallResult),
    Forget(CallId),
    Load(CallId, oneshot::Sender<Kept>),
    Rows(SyncSender<Vec<Row>>),
    Flush(oneshot::Sender<()>),
}

/// What a journal has to do: the file does it, and a simulation in memory.
pub trait CallJournal: Send + Sync {
    /// Writes the beginning of a call. With `report` it is flushed to disk first, and the report says so.
    fn begin(
        &self,
        call_id: CallId,
        attempt: u32,
        tool: String,
        replay: Replay,
        report: Option<mpsc::Sender<Written>>,
    ) -> Result<(), JournalFault>;
    /// Keeps a result until it is forgotten.
    fn store(&self, result: CallResult) -> Result<(), JournalFault>;
    /// Drops a result and keeps the call's tombstone.
    fn forget(&self, call_id: CallId) -> Result<(), JournalFault>;
    /// What is kept of a call's result.
    fn load(&self, call_id: CallId) -> BoxFuture<'_, Kept>;
    /// All calls, tombstones included, in the order of their beginning. Waits for the disk: for an actor's start only.
    fn rows(&self) -> Result<Vec<Row>, JournalFault>;
    /// Waits until all that was asked for so far is written.
    fn flush(&self) -> BoxFuture<'_, Result<(), JournalFault>>;
    /// A journal of the same identity was lost not long ago: calls that are not here may have run.
    fn follows_a_loss(&self) -> bool {
        false
    }
}

/// An open journal file. Shared by reference; closing waits for what is queued.
pub struct Journal {
    desk: Arc<Desk>,
    follows_a_loss: bool,
    /// Taken once, by `Drop`.
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Journal {
    /// Opens the file, or makes it. One that is damaged is set aside with a warning: what it held is lost, and the Brain decides
    /// about the calls that it counted on. `expected`: there was one before, so that a missing file is a lost one.
    pub fn open(path: &Path, expected: bool) -> Result<Self, JournalFault> {
        let store = file::open(path, expected)?;
        let follows_a_loss = store.follows_a_loss();
        let desk = Arc::new(Desk::default());
        let desk_of_writer = Arc::clone(&desk);
        let thread = std::thread::Builder::new()
            .name("vance-journal".to_owned())
            .spawn(move || writer::run(store, desk_of_writer))
            .map_err(|error| JournalFault::Io { path: crate::paths::shown(path), error })?;
        Ok(Self { desk, follows_a_loss, thread: Mutex::new(Some(thread)) })
    }
}

impl CallJournal for Journal {
    fn begin(
        &self,
        call_id: CallId,
        attempt: u32,
        tool: String,
        replay: Replay,
        report: Option<mpsc::Sender<Written>>,
    ) -> Result<(), JournalFault> {
        self.desk.put(Op::Begin { call_id, attempt, tool, replay, durable: report })
    }

    fn store(&self, result: CallResult) -> Result<(), JournalFault> {
        self.desk.put(Op::Store(result))
    }

    fn forget(&self, call_id: CallId) -> Result<(), JournalFault> {
        self.desk.put(Op::Forget(call_id))
    }

    fn load(&self, call_id: CallId) -> BoxFuture<'_, Kept> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            match self.desk.put(Op::Load(call_id, answer)) {
                Ok(()) => answered.await.unwrap_or(Kept::Lost),
                Err(_) => Kept::Lost,
            }
        })
    }

    fn rows(&self) -> Result<Vec<Row>, JournalFault> {
        let (answer, answered) = sync_channel(1);
        self.desk.put(Op::Rows(answer))?;
        answered.recv().map_err(|_| JournalFault::Ended)
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), JournalFault>> {
        Box::pin(async move {
            let (answer, answered) = oneshot::channel();
            self.desk.put(Op::Flush(answer))?;
            answered.await.map_err(|_| JournalFault::Ended)
        })
    }

    fn follows_a_loss(&self) -> bool {
        self.follows_a_loss
    }
}

impl Drop for Journal {
    /// Ends the work and waits for the writer.
    fn drop(&mut self) {
        self.desk.close();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(_)) = thread.map(JoinHandle::join) {
            tracing::error!("the journal's writer panicked");
        }
    }
}

#[cfg(test)]
mod tests;

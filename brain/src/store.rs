//! The event store: what the Brain knows is the fold of its events, and rows are projections written in the same
//! transaction.
//!
//! ```text
//!  Store (clone, any thread) ──commit──▶ bounded queue ──▶ writer thread: group commit, one disk flush for all that wait
//!        │                                                      │ after the flush, in order
//!        ├──reads──▶ reader connections (spawn_blocking)        └──▶ answers, then subscribers
//! ```
//!
//! What must stay true: a commit that answered is on the disk; a batch is there as a whole or not at all; a stream's
//! versions are 1, 2, 3 … without a gap; events reach subscribers in the order of `seq`.

mod lock;
mod read;
mod sqlite;
mod transact;
mod writer;

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::broadcast;
use vance_shared::json::Raw;

pub use writer::{Writer, WriterEnd, WriterSeat};

/// Bytes of one batch: three results of the largest size that the wire carries, and what belongs to them.
pub const MAX_BATCH_BYTES: usize = 32 * 1024 * 1024;
/// Events or rows of one read; more is read in pages.
pub const MAX_PAGE: usize = 10_000;
/// Rows of a read whose filter names no limit.
pub const DEFAULT_PAGE: usize = 1_000;

/// An event to be written.
#[derive(Debug, Clone)]
pub struct NewEvent {
    /// What happened, snake_case.
    pub kind: &'static str,
    /// Its content.
    pub data: Raw,
}

/// An event as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredEvent {
    /// Place among all events, from 1, rising with each event.
    pub seq: u64,
    /// What it happened to.
    pub stream: String,
    /// Place in its stream, from 1, without gaps.
    pub version: u32,
    /// What happened.
    pub kind: String,
    /// Its content.
    pub data: Raw,
    /// When, as the batch said: milliseconds since 1970.
    pub at_ms: i64,
}

/// Events for one stream.
#[derive(Debug, Clone)]
pub struct Append {
    /// The stream.
    pub stream: String,
    /// Version of its last event as the caller knows it; 0 = a new stream. Anything else is a [`StoreError::Conflict`].
    pub expected_version: u32,
    /// In order. Without any, only the version is checked.
    pub events: Vec<NewEvent>,
}

/// A projection: the current state of something, found by its kind and key.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// `task`, `tree`, `session`, `client`, `idempotency`, `known_tools`, …
    pub kind: Cow<'static, str>,
    /// Unique in its kind.
    pub key: String,
    /// What it belongs to, such as a session.
    pub parent: Option<String>,
    /// Whose it is: a principal.
    pub owner: Option<String>,
    /// A word to find it by.
    pub state: Option<String>,
    /// Its content.
    pub data: Raw,
}

/// What is written together, or not at all.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    /// Events.
    pub appends: Vec<Append>,
    /// Rows to write, new or over the old ones.
    pub rows: Vec<Row>,
    /// Rows that must be new: one that is there makes the batch a [`StoreError::Exists`].
    pub insert: Vec<Row>,
    /// Rows to remove, by kind and key; a missing one is not a fault.
    pub removed: Vec<(Cow<'static, str>, String)>,
    /// When: milliseconds since 1970.
    pub at_ms: i64,
}

/// Which rows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only of this parent.
    pub parent: Option<String>,
    /// Only of this owner.
    pub owner: Option<String>,
    /// Only in one of these states; empty: in any, also without one.
    pub states: Vec<String>,
    /// Only beyond this key, in the order of the answer.
    pub after_key: Option<String>,
    /// Highest key first. Generated ids sort by time, so this is newest first.
    pub descending: bool,
    /// At most this many; `None`: [`DEFAULT_PAGE`]. Never more than [`MAX_PAGE`].
    pub limit: Option<usize>,
    /// For lists: a row of more than [`SLIM_BYTES`] comes without its `view.output` (`view.output_bytes` says how large that is), and an
    /// answer ends once it has [`SLIM_PAGE_BYTES`].
    pub slim: bool,
}

/// A row of a list that is larger comes without its output: that of one task is up to 16 MiB, a list has up to ten thousand.
pub const SLIM_BYTES: usize = 64 * 1024;

/// Bytes of a list, but for its last row.
pub const SLIM_PAGE_BYTES: usize = 16 * 1024 * 1024;

/// Where a batch's events are: `first_seq..=last_seq`. Without events the range is empty (`first_seq` = `last_seq` + 1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// Place of the batch's first event.
    pub first_seq: u64,
    /// Place of its last one.
    pub last_seq: u64,
}

/// Why the store did not do it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Somebody else wrote to the stream first. Nothing of the batch was written.
    #[error("stream {stream} is at version {actual}, expected {expected}")]
    Conflict {
        /// The stream.
        stream: String,
        /// What the batch said.
        expected: u32,
        /// What is there.
        actual: u32,
    },
    /// A row that must be new is there. Nothing of the batch was written.
    #[error("{kind} {key} exists already")]
    Exists {
        /// The row's kind.
        kind: String,
        /// Its key.
        key: String,
    },
    /// More than [`MAX_BATCH_BYTES`]. Nothing was written.
    #[error("a batch of {bytes} bytes is too large, at most {MAX_BATCH_BYTES} are written at once")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// The disk is full. Nothing of the batch was written; the next one is tried again.
    #[error("the store's disk is full: {reason}")]
    Full {
        /// What the engine said.
        reason: String,
    },
    /// The store is away for now. The batch may or may not have been written (as a whole): read before you write again.
    #[error("the store is unavailable: {reason}")]
    Unavailable {
        /// What the engine said.
        reason: String,
    },
    /// The file's content is damaged.
    #[error("the store is damaged: {reason}")]
    Corrupt {
        /// What the engine said.
        reason: String,
    },
}

/// Why a store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process has it.
    #[error("another brain (process {pid}) uses the store in {}", dir.display())]
    Locked {
        /// The holder's process id, as it wrote it.
        pid: String,
        /// The data folder.
        dir: PathBuf,
    },
    /// A later release wrote it.
    #[error("{} has format {found}, this program knows formats up to {known}: use the newer release", file.display())]
    Newer {
        /// The store's file.
        file: PathBuf,
        /// Its format.
        found: i64,
        /// Ours.
        known: i64,
    },
    /// A folder or file that cannot be made or read.
    #[error("cannot open {}: {source}", path.display())]
    Io {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The engine refused.
    #[error("cannot open {}: {reason}", file.display())]
    Engine {
        /// The store's file.
        file: PathBuf,
        /// What the engine said.
        reason: String,
    },
}

/// What has gone through the store since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoreStats {
    /// Batches written.
    pub commits: u64,
    /// Transactions that carried them: one disk flush each.
    pub transactions: u64,
}

/// What an engine has to do. SQLite does it for one Brain; the trait stays small enough for an engine that several share.
pub trait EventStore: Send + Sync {
    /// Writes a batch. Durable when it resolves.
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Committed, StoreError>>;
    /// All events of a stream, in order.
    fn stream(&self, stream: String) -> BoxFuture<'_, Result<Vec<StoredEvent>, StoreError>>;
    /// Events after a place.
    fn after(&self, seq: u64, limit: usize) -> BoxFuture<'_, Result<Vec<StoredEvent>, StoreError>>;
    /// One row.
    fn row(&self, kind: String, key: String) -> BoxFuture<'_, Result<Option<Row>, StoreError>>;
    /// Rows of a kind, by key.
    fn rows(&self, kind: String, filter: Filter) -> BoxFuture<'_, Result<Vec<Row>, StoreError>>;
    /// The next number of a counter.
    fn next_counter(&self, name: String) -> BoxFuture<'_, Result<u64, StoreError>>;
    /// Place of the last event that subscribers were told of; 0 without one.
    fn last_seq(&self) -> u64;
    /// Events from now on.
    fn subscribe(&self) -> broadcast::Receiver<Arc<StoredEvent>>;
    /// Resolves when writes are taken.
    fn ready(&self) -> BoxFuture<'_, ()>;
    /// Whether writes are taken and the last one reached the disk.
    fn is_available(&self) -> bool;
    /// Counts since the opening.
    fn stats(&self) -> StoreStats;
}

/// A handle on the store: cheap to clone, stays valid over restarts of what is behind it.
#[derive(Clone)]
pub struct Store(Arc<dyn EventStore>);

impl Store {
    /// Opens (or makes) the store in a data folder and takes the folder's lock. Writes are answered `Unavailable` until
    /// somebody starts a writer on the seat. The lock goes with the last handle, seat and writer.
    pub fn open(dir: &Path) -> Result<(Self, WriterSeat), OpenError> {
        let engine = Arc::new(sqlite::Sqlite::open(dir)?);
        Ok((Self(engine.clone()), WriterSeat::new(engine)))
    }

    /// A handle on an engine of one's own.
    pub fn over(engine: Arc<dyn EventStore>) -> Self {
        Self(engine)
    }

    /// Writes a batch, all or nothing; durable when it resolves. Dropping the future does not take the batch back.
    pub async fn commit(&self, batch: Batch) -> Result<Committed, StoreError> {
        self.0.commit(batch).await
    }

    /// Writes a row unless one of its kind and key is there; `false`: it was there and stays as it was.
    pub async fn create_row(&self, row: Row) -> Result<bool, StoreError> {
        match self.0.commit(Batch { insert: vec![row], ..Batch::default() }).await {
            Ok(_) => Ok(true),
            Err(StoreError::Exists { .. }) => Ok(false),
            Err(other) => Err(other),
        }
    }

    /// All events of a stream, in order; empty: no such stream.
    pub async fn stream(&self, stream: &str) -> Result<Vec<StoredEvent>, StoreError> {
        self.0.stream(stream.to_owned()).await
    }

    /// Events after a place, in order, at most `limit` (and [`MAX_PAGE`]).
    pub async fn after(&self, seq: u64, limit: usize) -> Result<Vec<StoredEvent>, StoreError> {
        self.0.after(seq, limit).await
    }

    /// One row.
    pub async fn row(&self, kind: &str, key: &str) -> Result<Option<Row>, StoreError> {
        self.0.row(kind.to_owned(), key.to_owned()).await
    }

    /// Rows of a kind that the filter lets through, by key.
    pub async fn rows(&self, kind: &str, filter: Filter) -> Result<Vec<Row>, StoreError> {
        self.0.rows(kind.to_owned(), filter).await
    }

    /// The next number of a counter, from 1: never given twice, also not after a crash.
    pub async fn next_counter(&self, name: &str) -> Result<u64, StoreError> {
        self.0.next_counter(name.to_owned()).await
    }

    /// Place of the last event that subscribers were told of; 0 without one. Asked after [`Store::subscribe`], it is where
    /// the subscription begins or a later place.
    pub fn last_seq(&self) -> u64 {
        self.0.last_seq()
    }

    /// Events from now on, after their commit, in order. Who falls behind by more than a thousand is told so and reads on
    /// with [`Store::after`].
    pub fn subscribe(&self) -> broadcast::Receiver<Arc<StoredEvent>> {
        self.0.subscribe()
    }

    /// Resolves when a writer is there.
    pub async fn ready(&self) {
        self.0.ready().await;
    }

    /// Whether a writer is there and its last transaction reached the disk.
    pub fn is_available(&self) -> bool {
        self.0.is_available()
    }

    /// Counts since the opening.
    pub fn stats(&self) -> StoreStats {
        self.0.stats()
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("stats", &self.stats()).finish()
    }
}

impl Batch {
    /// Roughly what it weighs: payloads and names.
    fn bytes(&self) -> usize {
        let events =
            self.appends.iter().flat_map(|a| a.events.iter().map(|e| a.stream.len() + e.data.get().len() + 64));
        let rows = self.rows.iter().chain(&self.insert).map(|r| r.key.len() + r.data.get().len() + 64);
        events.sum::<usize>() + rows.sum::<usize>() + self.removed.len() * 64
    }
}

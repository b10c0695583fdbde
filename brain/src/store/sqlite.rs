//! The SQLite engine: files, format, and the handle that puts work in front of writer and readers.

use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{BoxFuture, FutureExt as _};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use tokio::sync::{Semaphore, broadcast, mpsc, oneshot, watch};

use super::lock::{self, DirLock};
use super::read::{self, Readers};
use super::writer::{Answer, Job, Work};
use super::{
    Batch, Committed, EventStore, Filter, MAX_BATCH_BYTES, OpenError, Row, StoreError, StoreStats, StoredEvent,
};

/// Events that a slow subscriber may be behind before it has to read them again.
const SUBSCRIBER_EVENTS: usize = 1024;
/// Bytes that wait for the writer, in KiB: two of the largest batches. More waits in its own caller.
const QUEUE_KIB: usize = 2 * MAX_BATCH_BYTES / 1024;
/// How long a connection waits for a lock that another connection of this process holds (a checkpoint).
const BUSY_WAIT: Duration = Duration::from_secs(5);
/// Statements that a connection keeps compiled: all that there are, but for lists with unusual filters.
const STATEMENTS: usize = 32;

/// Steps from each format to the next. Never changed, only added to; `PRAGMA user_version` is how many were taken.
const MIGRATIONS: &[&str] = &[
    // 1: a stream's versions are unique, so two writers cannot both append; rows are found by what the API asks for.
    "CREATE TABLE events (
        seq INTEGER PRIMARY KEY,
        stream TEXT NOT NULL,
        version INTEGER NOT NULL,
        kind TEXT NOT NULL,
        data TEXT NOT NULL,
        at_ms INTEGER NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX events_stream ON events (stream, version);
    CREATE TABLE projections (
        kind TEXT NOT NULL,
        key TEXT NOT NULL,
        parent TEXT,
        owner TEXT,
        state TEXT,
        data TEXT NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX projections_key ON projections (kind, key);
    CREATE INDEX projections_parent ON projections (kind, parent, key) WHERE parent IS NOT NULL;
    CREATE INDEX projections_owner ON projections (kind, owner, key) WHERE owner IS NOT NULL;
    CREATE INDEX projections_state ON projections (kind, state, key) WHERE state IS NOT NULL;
    CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) STRICT, WITHOUT ROWID;",
];

/// What writer and handles share.
pub(super) struct Shared {
    pub(super) file: PathBuf,
    pub(super) events: broadcast::Sender<Arc<StoredEvent>>,
    /// Place of the last event that subscribers were told of.
    pub(super) published: AtomicU64,
    pub(super) commits: AtomicU64,
    pub(super) transactions: AtomicU64,
    /// The last transaction reached the disk.
    pub(super) healthy: AtomicBool,
    /// Held by the writer for its life: a new one begins when the old one is gone, so that events stay in order.
    pub(super) place: Mutex<()>,
    #[allow(dead_code, reason = "held, not read: the folder is free when the last user is gone")]
    lock: DirLock,
}

/// The engine.
pub(super) struct Sqlite {
    pub(super) shared: Arc<Shared>,
    /// The running writer's queue.
    pub(super) seat: watch::Sender<Option<mpsc::Sender<Job>>>,
    budget: Arc<Semaphore>,
    readers: Readers,
}

impl Sqlite {
    pub(super) fn open(dir: &Path) -> Result<Self, OpenError> {
        let lock = lock::take(dir)?;
        let file = dir.join("brain.db");
        // The engine gives its side files the mode of this one.
        std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&file)
            .map_err(|source| OpenError::Io { path: file.clone(), source })?;
        let engine = |e: rusqlite::Error| OpenError::Engine { file: file.clone(), reason: e.to_string() };
        let mut connection = connect(&file).map_err(engine)?;
        let found: i64 = connection.query_row("PRAGMA user_version", [], |row| row.get(0)).map_err(engine)?;
        let known = i64::try_from(MIGRATIONS.len()).unwrap_or(i64::MAX);
        if found > known {
            return Err(OpenError::Newer { file, found, known });
        }
        migrate(&mut connection, found).map_err(engine)?;
        let last = last_seq(&connection).map_err(engine)?;
        let shared = Shared {
            file: file.clone(),
            events: broadcast::Sender::new(SUBSCRIBER_EVENTS),
            published: AtomicU64::new(last),
            commits: AtomicU64::new(0),
            transactions: AtomicU64::new(0),
            healthy: AtomicBool::new(true),
            place: Mutex::new(()),
            lock,
        };
        Ok(Self {
            shared: Arc::new(shared),
            seat: watch::Sender::new(None),
            budget: Arc::new(Semaphore::new(QUEUE_KIB)),
            readers: Readers::new(file),
        })
    }

    async fn ask<T>(&self, kib: usize, job: impl FnOnce(Answer<T>) -> Work) -> Result<T, StoreError> {
        let unavailable = |reason: &str| StoreError::Unavailable { reason: reason.to_owned() };
        let permits = u32::try_from(kib).unwrap_or(u32::MAX);
        let permit = self.budget.clone().acquire_many_owned(permits).await.map_err(|_| unavailable("it is closed"))?;
        let queue = self.seat.borrow().clone().ok_or_else(|| unavailable("it is being restarted"))?;
        let (answer, answered) = oneshot::channel();
        let sent = queue.send(Job { work: job(answer), permit }).await;
        sent.map_err(|_| unavailable("it is being restarted"))?;
        answered.await.map_err(|_| unavailable("its writer ended before it answered"))?
    }

    /// Runs something on the writer's own connection, between two groups.
    #[cfg(test)]
    pub(super) async fn on_writer(&self, run: impl FnOnce(&Connection) + Send + 'static) -> Result<(), StoreError> {
        self.ask(1, |answer| Work::Run(Box::new(run), answer)).await
    }
}

impl EventStore for Sqlite {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Committed, StoreError>> {
        async move {
            let bytes = batch.bytes();
            if bytes > MAX_BATCH_BYTES {
                return Err(StoreError::TooLarge { bytes });
            }
            self.ask(bytes / 1024 + 1, |answer| Work::Commit(batch, answer)).await
        }
        .boxed()
    }

    fn stream(&self, stream: String) -> BoxFuture<'_, Result<Vec<StoredEvent>, StoreError>> {
        self.readers.with(move |c| read::stream(c, &stream)).boxed()
    }

    fn after(&self, seq: u64, limit: usize) -> BoxFuture<'_, Result<Vec<StoredEvent>, StoreError>> {
        self.readers.with(move |c| read::after(c, seq, limit)).boxed()
    }

    fn row(&self, kind: String, key: String) -> BoxFuture<'_, Result<Option<Row>, StoreError>> {
        self.readers.with(move |c| read::row(c, &kind, &key)).boxed()
    }

    fn rows(&self, kind: String, filter: Filter) -> BoxFuture<'_, Result<Vec<Row>, StoreError>> {
        self.readers.with(move |c| read::rows(c, &kind, &filter)).boxed()
    }

    fn next_counter(&self, name: String) -> BoxFuture<'_, Result<u64, StoreError>> {
        self.ask(1, |answer| Work::Count(name, answer)).boxed()
    }

    fn last_seq(&self) -> u64 {
        self.shared.published.load(Ordering::Relaxed)
    }

    fn subscribe(&self) -> broadcast::Receiver<Arc<StoredEvent>> {
        self.shared.events.subscribe()
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        async move {
            let mut seat = self.seat.subscribe();
            // The sender lives as long as `self`, so the wait only ends with a writer.
            if seat.wait_for(Option::is_some).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
        .boxed()
    }

    fn is_available(&self) -> bool {
        self.seat.borrow().is_some() && self.shared.healthy.load(Ordering::Relaxed)
    }

    fn stats(&self) -> StoreStats {
        StoreStats {
            commits: self.shared.commits.load(Ordering::Relaxed),
            transactions: self.shared.transactions.load(Ordering::Relaxed),
        }
    }
}

/// A connection for writing.
pub(super) fn connect(file: &Path) -> rusqlite::Result<Connection> {
    // No CREATE: a file that vanished under us is a fault to report, not a reason to begin anew.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(file, flags)?;
    connection.busy_timeout(BUSY_WAIT)?;
    // Plans do not depend on what is bound: otherwise statements are compiled anew for other values.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    // FULL: the log is flushed at each commit. The size limit shrinks the log after a burst (bytes).
    connection.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -8000; PRAGMA journal_size_limit = 67108864;",
    )?;
    Ok(connection)
}

fn migrate(connection: &mut Connection, found: i64) -> rusqlite::Result<()> {
    for (format, step) in (1i64..).zip(MIGRATIONS).filter(|(format, _)| *format > found) {
        let transaction = connection.transaction()?;
        transaction.execute_batch(step)?;
        transaction.pragma_update(None, "user_version", format)?;
        transaction.commit()?;
    }
    Ok(())
}

/// Place of the last event, 0 without one.
pub(super) fn last_seq(connection: &Connection) -> rusqlite::Result<u64> {
    let last: i64 =
        connection.prepare_cached("SELECT coalesce(max(seq), 0) FROM events")?.query_row([], |row| row.get(0))?;
    Ok(last.unsigned_abs())
}

/// The engine's error in our words.
pub(super) fn fault(error: &rusqlite::Error) -> StoreError {
    let reason = error.to_string();
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => StoreError::Full { reason },
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => StoreError::Corrupt { reason },
        _ => StoreError::Unavailable { reason },
    }
}

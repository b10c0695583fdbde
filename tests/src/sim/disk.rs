//! The Brain's store in memory: it outlives the simulated host, takes its time, and fails now and then.
//!
//! A commit is written somewhere between its call and its answer; a crash in between leaves it written or not, as a disk does.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::time::sleep;
use vance_brain::store::{
    Batch, Committed, DEFAULT_PAGE, EventStore, Filter, MAX_PAGE, Row, StoreError, StoreStats, StoredEvent,
};

/// Batches that wait for the writer.
const QUEUE: usize = 4_096;

/// Batches of one simulated transaction.
const GROUP: usize = 64;

/// Events that a slow subscriber may be behind.
const TOLD: usize = 1_024;

/// What is on the disk.
#[derive(Debug, Default)]
pub(super) struct Disk {
    events: Vec<StoredEvent>,
    versions: HashMap<String, u32>,
    rows: BTreeMap<(String, String), Row>,
    counters: BTreeMap<String, u64>,
    commits: u64,
    /// Nobody answers.
    pub(super) away: bool,
    /// One of so many commits fails without a reason; 0: none.
    pub(super) fails_one_in: u32,
    /// The writer falls at its next work.
    pub(super) writer_falls: bool,
}

/// A disk that outlives who writes it.
pub(super) type SharedDisk = Arc<Mutex<Disk>>;

/// Looks at a disk.
pub(super) fn look(disk: &SharedDisk) -> MutexGuard<'_, Disk> {
    disk.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Disk {
    /// All events of a stream.
    pub(super) fn stream(&self, stream: &str) -> Vec<StoredEvent> {
        self.events.iter().filter(|event| event.stream == stream).cloned().collect()
    }

    /// Events beyond the first so many.
    pub(super) fn since(&self, seen: usize) -> impl Iterator<Item = &StoredEvent> {
        self.events.iter().skip(seen)
    }

    /// All events.
    pub(super) fn count(&self) -> usize {
        self.events.len()
    }

    /// All rows of a kind.
    pub(super) fn rows(&self, kind: &str) -> Vec<&Row> {
        self.rows.iter().filter(|((k, _), _)| k == kind).map(|(_, row)| row).collect()
    }

    fn apply(&mut self, batch: Batch) -> Result<(Committed, Vec<StoredEvent>), StoreError> {
        for append in &batch.appends {
            let actual = self.versions.get(&append.stream).copied().unwrap_or(0);
            if actual != append.expected_version {
                let (stream, expected) = (append.stream.clone(), append.expected_version);
                return Err(StoreError::Conflict { stream, expected, actual });
            }
        }
        for row in &batch.insert {
            if self.rows.contains_key(&(row.kind.to_string(), row.key.clone())) {
                return Err(StoreError::Exists { kind: row.kind.to_string(), key: row.key.clone() });
            }
        }
        let first = self.events.len();
        for append in batch.appends {
            let mut version = append.expected_version;
            for event in append.events {
                version += 1;
                self.events.push(StoredEvent {
                    seq: self.events.len() as u64 + 1,
                    stream: append.stream.clone(),
                    version,
                    kind: event.kind.to_owned(),
                    data: event.data,
                    at_ms: batch.at_ms,
                });
            }
            self.versions.insert(append.stream, version);
        }
        for row in batch.rows.into_iter().chain(batch.insert) {
            self.rows.insert((row.kind.to_string(), row.key.clone()), row);
        }
        for (kind, key) in batch.removed {
            self.rows.remove(&(kind.into_owned(), key));
        }
        self.commits += 1;
        let committed = Committed { first_seq: first as u64 + 1, last_seq: self.events.len() as u64 };
        Ok((committed, self.events[first..].to_vec()))
    }

    fn select(&self, kind: &str, filter: &Filter) -> Vec<Row> {
        let fits = |row: &&Row| {
            filter.parent.as_ref().is_none_or(|p| row.parent.as_ref() == Some(p))
                && filter.owner.as_ref().is_none_or(|o| row.owner.as_ref() == Some(o))
                && (filter.states.is_empty() || row.state.as_ref().is_some_and(|s| filter.states.contains(s)))
        };
        let mut rows: Vec<Row> = self.rows(kind).into_iter().filter(fits).cloned().collect();
        if filter.descending {
            rows.reverse();
        }
        if let Some(after) = &filter.after_key {
            rows.retain(|row| if filter.descending { row.key < *after } else { row.key > *after });
        }
        rows.truncate(filter.limit.unwrap_or(DEFAULT_PAGE).min(MAX_PAGE));
        rows
    }
}

enum Job {
    Commit(Box<Batch>, oneshot::Sender<Result<Committed, StoreError>>),
    Count(String, oneshot::Sender<Result<u64, StoreError>>),
}

/// The engine of one life of the Brain.
pub(super) struct MemoryStore {
    disk: SharedDisk,
    queue: mpsc::Sender<Job>,
    told: broadcast::Sender<Arc<StoredEvent>>,
    told_to: Arc<AtomicU64>,
}

impl MemoryStore {
    /// Starts the writer on this host.
    pub(super) fn open(disk: &SharedDisk) -> Self {
        let (queue, jobs) = mpsc::channel(QUEUE);
        let (told, _) = broadcast::channel(TOLD);
        let told_to = Arc::new(AtomicU64::new(look(disk).events.len() as u64));
        tokio::spawn(write(disk.clone(), jobs, told.clone(), told_to.clone()));
        Self { disk: disk.clone(), queue, told, told_to }
    }

    async fn ask<T>(&self, job: impl FnOnce(oneshot::Sender<Result<T, StoreError>>) -> Job) -> Result<T, StoreError> {
        let (answer, answered) = oneshot::channel();
        self.queue.send(job(answer)).await.map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }

    async fn read<T>(&self, read: impl FnOnce(&Disk) -> T) -> Result<T, StoreError> {
        sleep(Duration::from_micros(fastrand::u64(0..2_000))).await;
        let disk = look(&self.disk);
        if disk.away { Err(gone()) } else { Ok(read(&disk)) }
    }
}

fn gone() -> StoreError {
    StoreError::Unavailable { reason: "the simulated disk does not answer".to_owned() }
}

async fn write(
    disk: SharedDisk,
    mut jobs: mpsc::Receiver<Job>,
    told: broadcast::Sender<Arc<StoredEvent>>,
    told_to: Arc<AtomicU64>,
) {
    let mut group = Vec::new();
    while jobs.recv_many(&mut group, GROUP).await > 0 {
        sleep(Duration::from_micros(fastrand::u64(0..6_000))).await;
        if std::mem::take(&mut look(&disk).writer_falls) {
            // Somewhere in its work; nobody is answered, and what waits or comes before the next writer is lost.
            let done = fastrand::usize(..=group.len());
            group.drain(..).take(done).for_each(|job| drop(perform(&disk, job)));
            sleep(Duration::from_millis(fastrand::u64(20..500))).await;
            while let Ok(job) = jobs.try_recv() {
                drop(job);
            }
            tell_missed(&disk, &told, &told_to);
            continue;
        }
        let answers: Vec<Answer> = group.drain(..).map(|job| perform(&disk, job)).collect();
        sleep(Duration::from_micros(fastrand::u64(0..2_000))).await;
        for answer in answers {
            answer.give(&told, &told_to);
        }
    }
}

/// A new writer tells what the one before had written and not told.
fn tell_missed(disk: &SharedDisk, told: &broadcast::Sender<Arc<StoredEvent>>, told_to: &AtomicU64) {
    let from = told_to.load(Ordering::Relaxed);
    let missed: Vec<StoredEvent> = look(disk).events.iter().filter(|event| event.seq > from).cloned().collect();
    for event in missed {
        told_to.store(event.seq, Ordering::Relaxed);
        // Nobody may listen.
        told.send(Arc::new(event)).ok();
    }
}

/// An answer that is not given yet.
enum Answer {
    Commit(oneshot::Sender<Result<Committed, StoreError>>, Result<Committed, StoreError>, Vec<StoredEvent>),
    Count(oneshot::Sender<Result<u64, StoreError>>, Result<u64, StoreError>),
}

impl Answer {
    fn give(self, told: &broadcast::Sender<Arc<StoredEvent>>, told_to: &AtomicU64) {
        // Whoever asked may be gone, and nobody may listen.
        match self {
            Self::Commit(answer, result, events) => {
                answer.send(result).ok();
                for event in events {
                    told_to.store(event.seq, Ordering::Relaxed);
                    told.send(Arc::new(event)).ok();
                }
            }
            Self::Count(answer, result) => {
                answer.send(result).ok();
            }
        }
    }
}

fn perform(disk: &SharedDisk, job: Job) -> Answer {
    let mut disk = look(disk);
    let fails = disk.away || (disk.fails_one_in > 0 && fastrand::u32(0..disk.fails_one_in) == 0);
    match job {
        // One that fails may still have been written: the caller must read.
        Job::Commit(batch, answer) if fails => {
            let written = fastrand::bool().then(|| disk.apply(*batch).ok()).flatten();
            Answer::Commit(answer, Err(gone()), written.map(|(_, events)| events).unwrap_or_default())
        }
        Job::Commit(batch, answer) => match disk.apply(*batch) {
            Ok((committed, events)) => Answer::Commit(answer, Ok(committed), events),
            Err(error) => Answer::Commit(answer, Err(error), Vec::new()),
        },
        Job::Count(_, answer) if fails => Answer::Count(answer, Err(gone())),
        Job::Count(name, answer) => {
            let count = disk.counters.entry(name).or_default();
            *count += 1;
            Answer::Count(answer, Ok(*count))
        }
    }
}

impl EventStore for MemoryStore {
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Committed, StoreError>> {
        Box::pin(self.ask(|answer| Job::Commit(Box::new(batch), answer)))
    }

    fn stream(&self, stream: String) -> BoxFuture<'_, Result<Vec<StoredEvent>, StoreError>> {
        Box::pin(self.read(move |disk| disk.stream(&stream)))
    }

    fn after(&self, seq: u64, limit: usize) -> BoxFuture<'_, Result<Vec<StoredEvent>, StoreError>> {
        Box::pin(self.read(move |disk| {
            disk.events.iter().filter(|event| event.seq > seq).take(limit.min(MAX_PAGE)).cloned().collect()
        }))
    }

    fn row(&self, kind: String, key: String) -> BoxFuture<'_, Result<Option<Row>, StoreError>> {
        Box::pin(self.read(move |disk| disk.rows.get(&(kind, key)).cloned()))
    }

    fn rows(&self, kind: String, filter: Filter) -> BoxFuture<'_, Result<Vec<Row>, StoreError>> {
        Box::pin(self.read(move |disk| disk.select(&kind, &filter)))
    }

    fn next_counter(&self, name: String) -> BoxFuture<'_, Result<u64, StoreError>> {
        Box::pin(self.ask(|answer| Job::Count(name, answer)))
    }

    fn last_seq(&self) -> u64 {
        self.told_to.load(Ordering::Relaxed)
    }

    fn subscribe(&self) -> broadcast::Receiver<Arc<StoredEvent>> {
        self.told.subscribe()
    }

    fn ready(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn is_available(&self) -> bool {
        !look(&self.disk).away
    }

    fn stats(&self) -> StoreStats {
        let commits = look(&self.disk).commits;
        StoreStats { commits, transactions: commits }
    }
}

//! The one writer: drains what waits, writes it as one transaction with a savepoint per batch, flushes once, answers all.
//!
//! A batch that conflicts is undone alone. An error of the engine undoes the whole transaction and is everybody's answer;
//! after anything but a full disk the connection is opened anew, at most so often that a broken disk is not hammered.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot};

use super::sqlite::{self, Shared, Sqlite};
use super::transact::{Done, Waiting, transact};
use super::{Batch, Committed, StoreError, StoredEvent, read};

/// Batches that wait for the writer; more wait in their callers.
const QUEUE_BATCHES: usize = 1024;
/// Batches of one transaction: beyond this the flush is a small part of the cost, and the first one has waited long enough.
const GROUP_BATCHES: usize = 512;
/// So many batches in one of the last groups: many write at the same time, and those who write next are waited for.
const CROWD: usize = 4;
/// For how long: less than the flush that is saved. A batch that comes alone never waits.
const COMPANY_WAIT: Duration = Duration::from_micros(50);

/// Between attempts to open a store that failed: quick at first, for a hiccup; later gentle, for a disk that is gone.
const REOPEN_FIRST: Duration = Duration::from_millis(50);
const REOPEN_MAX: Duration = Duration::from_secs(2);
/// Events read at once when subscribers missed some.
const CATCH_UP_EVENTS: usize = 256;

pub(super) type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

/// One piece of work with its share of the queue's bytes, given back when the work is done.
pub(super) struct Job {
    pub(super) work: Work,
    pub(super) permit: OwnedSemaphorePermit,
}

pub(super) enum Work {
    Commit(Batch, Answer<Committed>),
    Count(String, Answer<u64>),
    #[cfg(test)]
    Run(Box<dyn FnOnce(&Connection) + Send>, Answer<()>),
}

/// Where a store's writer is started, again and again.
#[derive(Clone)]
pub struct WriterSeat(Arc<Sqlite>);

/// A running writer. Dropping it closes the queue: what waits is still written, then the writer ends.
pub struct Writer {
    engine: Arc<Sqlite>,
    queue: mpsc::WeakSender<Job>,
    ended: Option<oneshot::Receiver<WriterEnd>>,
}

/// How a writer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WriterEnd {
    /// Its queue was closed; all that waited was written and answered.
    Closed,
    /// It died.
    Died(String),
}

impl std::fmt::Debug for WriterSeat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WriterSeat").field(&self.0.shared.file).finish()
    }
}

impl WriterSeat {
    pub(super) fn new(engine: Arc<Sqlite>) -> Self {
        Self(engine)
    }

    /// Starts a writer thread; a writer before it is closed, and ends before the new one writes.
    pub fn start(&self) -> std::io::Result<Writer> {
        let (queue, jobs) = mpsc::channel(QUEUE_BATCHES);
        let (end, ended) = oneshot::channel();
        let shared = self.0.shared.clone();
        std::thread::Builder::new().name("vance-store".to_owned()).spawn(move || {
            let run = AssertUnwindSafe(move || Thread::new(shared).run(jobs));
            let how = match catch_unwind(run) {
                Ok(()) => WriterEnd::Closed,
                Err(payload) => WriterEnd::Died(panic_text(&*payload)),
            };
            // Nobody may be left to hear it.
            drop(end.send(how));
        })?;
        let weak = queue.downgrade();
        self.0.seat.send_replace(Some(queue));
        Ok(Writer { engine: self.0.clone(), queue: weak, ended: Some(ended) })
    }

    /// Runs something on the writer's own connection.
    #[cfg(test)]
    pub(crate) async fn on_writer(&self, run: impl FnOnce(&Connection) + Send + 'static) -> Result<(), StoreError> {
        self.0.on_writer(run).await
    }
}

impl Writer {
    /// Closes the queue; what waits is still written. The end comes through [`Writer::ended`].
    pub fn close(&self) {
        let Some(own) = self.queue.upgrade() else { return };
        // A later writer's queue stays.
        self.engine.seat.send_if_modified(|seat| {
            let mine = seat.as_ref().is_some_and(|queue| queue.same_channel(&own));
            if mine {
                *seat = None;
            }
            mine
        });
    }

    /// Resolves with the writer's end. Only the first call gives it.
    pub fn ended(&mut self) -> impl Future<Output = WriterEnd> + Send + use<> {
        let ended = self.ended.take();
        async move {
            let lost = || WriterEnd::Died("its thread is gone".to_owned());
            match ended {
                Some(ended) => ended.await.unwrap_or_else(|_| lost()),
                None => lost(),
            }
        }
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.close();
    }
}

/// The thread's state.
struct Thread {
    shared: Arc<Shared>,
    connection: Option<Connection>,
    /// Why there is no connection, and when to try again.
    broken: Option<Broken>,
}

struct Broken {
    fault: StoreError,
    again: Instant,
    wait: Duration,
}

impl Thread {
    fn new(shared: Arc<Shared>) -> Self {
        Self { shared, connection: None, broken: None }
    }

    fn run(mut self, mut jobs: mpsc::Receiver<Job>) {
        let shared = self.shared.clone();
        // A writer that panicked leaves nothing behind in memory that could be wrong.
        let _place = shared.place.lock().unwrap_or_else(PoisonError::into_inner);
        // Subscribers hear at once what a writer that died had written and not told.
        drop(self.open());
        let mut lately = 1;
        while let Some(first) = self.next(&mut jobs) {
            let mut group = vec![first];
            gather(&mut group, &mut jobs);
            if group.len() < lately && lately >= CROWD {
                // Their answers went out a moment ago: what these lead to is on its way, and fits into the same flush.
                std::thread::sleep(COMPANY_WAIT);
                gather(&mut group, &mut jobs);
            }
            lately = group.len().max(lately - 1);
            self.write(group);
        }
    }

    /// Waits for work. While the store is broken it also tries to open it, so that it comes back without being asked.
    fn next(&mut self, jobs: &mut mpsc::Receiver<Job>) -> Option<Job> {
        while self.connection.is_none() {
            match jobs.try_recv() {
                Ok(job) => return Some(job),
                Err(mpsc::error::TryRecvError::Disconnected) => return None,
                Err(mpsc::error::TryRecvError::Empty) => {
                    std::thread::sleep(REOPEN_FIRST);
                    drop(self.open());
                }
            }
        }
        jobs.blocking_recv()
    }

    fn write(&mut self, group: Vec<Job>) {
        let fault = match self.open() {
            Err(fault) => fault,
            Ok(()) => {
                let Some(connection) = &self.connection else { return };
                match transact(connection, group) {
                    Ok(done) => return self.tell(done),
                    Err((error, group)) => {
                        let fault = sqlite::fault(&error);
                        self.fail(&fault);
                        return refuse(group, &fault);
                    }
                }
            }
        };
        refuse(group.into_iter().map(|job| Waiting::of(job.work)).collect(), &fault);
    }

    /// Makes sure that there is a connection.
    fn open(&mut self) -> Result<(), StoreError> {
        if self.connection.is_some() {
            return Ok(());
        }
        let wait = match &self.broken {
            Some(broken) if Instant::now() < broken.again => return Err(broken.fault.clone()),
            Some(broken) => (broken.wait * 2).min(REOPEN_MAX),
            None => REOPEN_FIRST,
        };
        let opened = sqlite::connect(&self.shared.file).and_then(|connection| {
            catch_up(&connection, &self.shared)?;
            Ok(connection)
        });
        match opened {
            Ok(connection) => {
                if self.broken.take().is_some() {
                    tracing::info!("the store is back");
                }
                self.shared.healthy.store(true, Ordering::Relaxed);
                self.connection = Some(connection);
                Ok(())
            }
            Err(error) => {
                let fault = sqlite::fault(&error);
                self.shared.healthy.store(false, Ordering::Relaxed);
                self.broken = Some(Broken { fault: fault.clone(), again: Instant::now() + wait, wait });
                Err(fault)
            }
        }
    }

    /// After a transaction that failed. A full disk leaves the connection usable; anything else makes it suspect.
    fn fail(&mut self, fault: &StoreError) {
        self.shared.healthy.store(false, Ordering::Relaxed);
        tracing::error!(error = %fault, "the store could not write");
        if !matches!(fault, StoreError::Full { .. }) {
            self.connection = None;
            self.broken = Some(Broken { fault: fault.clone(), again: Instant::now(), wait: REOPEN_FIRST });
        }
    }

    /// After the flush: subscribers in order, then the callers.
    fn tell(&mut self, done: Vec<Done>) {
        self.shared.healthy.store(true, Ordering::Relaxed);
        self.shared.transactions.fetch_add(1, Ordering::Relaxed);
        metrics::counter!("vance_store_transactions_total").increment(1);
        for one in done {
            match one {
                Done::Count(answer, number) => {
                    // A caller that went away needs no answer.
                    drop(answer.send(Ok(number)));
                }
                Done::Commit(answer, result, events) => {
                    if result.is_ok() {
                        self.shared.commits.fetch_add(1, Ordering::Relaxed);
                        metrics::counter!("vance_store_commits_total").increment(1);
                    }
                    publish(&self.shared, events);
                    drop(answer.send(result));
                }
            }
        }
    }
}

/// Takes what waits.
fn gather(group: &mut Vec<Job>, jobs: &mut mpsc::Receiver<Job>) {
    while group.len() < GROUP_BATCHES {
        match jobs.try_recv() {
            Ok(job) => group.push(job),
            Err(_) => break,
        }
    }
}

fn refuse(group: Vec<Waiting>, fault: &StoreError) {
    for waiting in group {
        match waiting {
            Waiting::Commit(answer) => drop(answer.send(Err(fault.clone()))),
            Waiting::Count(answer) => drop(answer.send(Err(fault.clone()))),
            #[cfg(test)]
            Waiting::Run => (),
        }
    }
}

/// Tells subscribers of events that were written without their hearing it: the writer died between flush and telling, or
/// a flush failed and its transaction was there after all when the file was opened again.
fn catch_up(connection: &Connection, shared: &Shared) -> rusqlite::Result<()> {
    loop {
        let missed = read::after(connection, shared.published.load(Ordering::Relaxed), CATCH_UP_EVENTS)?;
        if missed.is_empty() {
            return Ok(());
        }
        publish(shared, missed);
    }
}

fn publish(shared: &Shared, events: Vec<StoredEvent>) {
    for event in events {
        shared.published.store(event.seq, Ordering::Relaxed);
        // Without a subscriber there is nobody to tell.
        drop(shared.events.send(Arc::new(event)));
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without text".to_owned())
}

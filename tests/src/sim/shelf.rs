//! A Foot's journal in memory. What is asked for is written a moment later; a crash of the process loses what was not written
//! yet, and a power cut besides everything since the last flush.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;
use vance_foot::journal::{CallJournal, JournalFault, Kept, Written};
use vance_foot_core::calls::{Row, RowState};
use vance_shared::call::Outcome;
use vance_shared::ids::CallId;
use vance_shared::tool::Replay;
use vance_shared::wire::CallResult;

/// Writes that may wait.
const QUEUE: usize = 8_192;

#[derive(Debug, Clone)]
struct Entry {
    row: Row,
    outcome: Option<Outcome>,
}

/// What is written, in the order of the calls' beginnings.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    written: Vec<Entry>,
    /// As it was at the last flush.
    flushed: Vec<Entry>,
}

/// A shelf that outlives its Foot's process.
pub(super) type SharedShelf = Arc<Mutex<Shelf>>;

impl Shelf {
    /// Calls that the Brain has not acknowledged.
    pub(super) fn open(&self) -> Vec<Row> {
        let rows = self.written.iter().map(|entry| &entry.row);
        rows.filter(|row| row.state != RowState::Forgotten).cloned().collect()
    }

    /// The machine goes down: what was written since the last flush is gone.
    pub(super) fn lose_unflushed(&mut self) {
        self.written = self.flushed.clone();
    }

    fn perform(&mut self, op: Op) {
        match op {
            Op::Begin { call_id, attempt, replay, report } => {
                let state = RowState::Running { attached: false };
                let row = Row { call_id: call_id.clone(), attempt, replay, state };
                self.written.retain(|entry| entry.row.call_id != call_id);
                self.written.push(Entry { row, outcome: None });
                if let Some(report) = report {
                    self.flushed = self.written.clone();
                    // Nobody there: the table restarted.
                    report.try_send(Written { call_id, written: Ok(()) }).ok();
                }
            }
            Op::Store(result) => {
                let entry = self.entry(&result.call_id);
                entry.row.attempt = entry.row.attempt.max(result.attempt);
                entry.row.state = RowState::Finished;
                entry.outcome = Some(result.outcome);
            }
            Op::Forget(call_id) => {
                let entry = self.entry(&call_id);
                entry.row.state = RowState::Forgotten;
                entry.outcome = None;
            }
        }
    }

    fn entry(&mut self, call_id: &CallId) -> &mut Entry {
        let at = self.written.iter().position(|entry| entry.row.call_id == *call_id).unwrap_or_else(|| {
            let state = RowState::Forgotten;
            let row = Row { call_id: call_id.clone(), attempt: 0, replay: Replay::Unsafe, state };
            self.written.push(Entry { row, outcome: None });
            self.written.len() - 1
        });
        &mut self.written[at]
    }
}

enum Op {
    Begin { call_id: CallId, attempt: u32, replay: Replay, report: Option<mpsc::Sender<Written>> },
    Store(CallResult),
    Forget(CallId),
}

#[derive(Default)]
struct Queue {
    ops: Mutex<VecDeque<Op>>,
    more: Notify,
}

/// The journal of one life of a Foot.
pub(super) struct MemoryJournal {
    shelf: SharedShelf,
    queue: Arc<Queue>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryJournal {
    /// Starts the writer on this host.
    pub(super) fn open(shelf: &SharedShelf) -> Self {
        let journal = Self { shelf: shelf.clone(), queue: Arc::default() };
        let (shelf, queue) = (shelf.clone(), Arc::clone(&journal.queue));
        tokio::spawn(async move {
            loop {
                queue.more.notified().await;
                sleep(Duration::from_micros(fastrand::u64(0..6_000))).await;
                write(&shelf, &queue);
            }
        });
        journal
    }

    fn put(&self, op: Op) -> Result<(), JournalFault> {
        let mut ops = lock(&self.queue.ops);
        if ops.len() >= QUEUE {
            return Err(JournalFault::Full);
        }
        ops.push_back(op);
        self.queue.more.notify_one();
        Ok(())
    }
}

fn write(shelf: &SharedShelf, queue: &Queue) {
    let mut shelf = lock(shelf);
    for op in lock(&queue.ops).drain(..) {
        shelf.perform(op);
    }
}

impl CallJournal for MemoryJournal {
    fn begin(
        &self,
        call_id: CallId,
        attempt: u32,
        _tool: String,
        replay: Replay,
        report: Option<mpsc::Sender<Written>>,
    ) -> Result<(), JournalFault> {
        self.put(Op::Begin { call_id, attempt, replay, report })
    }

    fn store(&self, result: CallResult) -> Result<(), JournalFault> {
        self.put(Op::Store(result))
    }

    fn forget(&self, call_id: CallId) -> Result<(), JournalFault> {
        self.put(Op::Forget(call_id))
    }

    fn load(&self, call_id: CallId) -> BoxFuture<'_, Kept> {
        Box::pin(async move {
            sleep(Duration::from_micros(fastrand::u64(0..2_000))).await;
            write(&self.shelf, &self.queue);
            let shelf = lock(&self.shelf);
            match shelf.written.iter().find(|entry| entry.row.call_id == call_id) {
                Some(Entry { outcome: Some(outcome), .. }) => Kept::Here(outcome.clone()),
                Some(Entry { row, .. }) if row.state == RowState::Forgotten => Kept::Forgotten,
                Some(_) | None => Kept::Lost,
            }
        })
    }

    fn rows(&self) -> Result<Vec<Row>, JournalFault> {
        write(&self.shelf, &self.queue);
        Ok(lock(&self.shelf).written.iter().map(|entry| entry.row.clone()).collect())
    }

    fn flush(&self) -> BoxFuture<'_, Result<(), JournalFault>> {
        Box::pin(async move {
            write(&self.shelf, &self.queue);
            Ok(())
        })
    }
}

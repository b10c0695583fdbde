//! The writer's thread: collects, writes, answers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use super::file::Store;
use super::group::Group;
use super::{Kept, Op};

/// How long a write that nobody waits for may be collected: calls that are over by then cost one row.
const COLLECT: Duration = Duration::from_millis(2);
/// The same while all of them are of calls that may run twice: a process that is killed meanwhile costs them another run.
const COLLECT_SAFE: Duration = Duration::from_millis(20);
/// Changes of one transaction: bounds the wait of who comes next.
const MAX_GROUP: usize = 512;
/// Until a failed write is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// Tombstones are pruned after this many changes.
const PRUNE_EVERY: usize = 10_000;

/// Writes until the queue is closed and empty.
pub(super) fn run(store: Store, ops: &Receiver<Op>, waiting: &AtomicUsize) {
    let mut writer = Writer { store, group: Group::default(), failing: false, since_prune: 0 };
    loop {
        let first = if writer.group.is_empty() {
            ops.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            ops.recv_timeout(RETRY)
        };
        let open = match first {
            Ok(op) => {
                waiting.fetch_sub(1, Ordering::Relaxed);
                writer.take(op);
                writer.collect(ops, waiting)
            }
            Err(RecvTimeoutError::Timeout) => true,
            Err(RecvTimeoutError::Disconnected) => false,
        };
        writer.write();
        if !open {
            return;
        }
    }
}

struct Writer {
    store: Store,
    group: Group,
    failing: bool,
    since_prune: usize,
}

impl Writer {
    /// Takes what comes until somebody waits and the queue is dry, the time is over, or the group is full. False: no more will come.
    fn collect(&mut self, ops: &Receiver<Op>, waiting: &AtomicUsize) -> bool {
        let begun = Instant::now();
        while self.group.len() < MAX_GROUP {
            match ops.try_recv() {
                Ok(op) => {
                    waiting.fetch_sub(1, Ordering::Relaxed);
                    self.take(op);
                }
                Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => {
                    let within = if self.group.is_safe() { COLLECT_SAFE } else { COLLECT };
                    let left = within.saturating_sub(begun.elapsed());
                    if self.group.is_empty() || self.group.is_durable() || left.is_zero() {
                        return true;
                    }
                    // Woken by writes that somebody waits for.
                    std::thread::park_timeout(left.min(COLLECT));
                }
            }
        }
        true
    }

    fn take(&mut self, op: Op) {
        match op {
            Op::Begin { call_id, attempt, tool, replay, durable } => {
                self.group.begin(call_id, attempt, tool, replay, durable);
            }
            Op::Store(result) => self.group.store(result),
            Op::Forget(call_id) => self.group.forget(call_id),
            Op::Load(call_id, answer) => {
                self.write();
                let kept = self.group.kept(&call_id);
                let kept = kept.or_else(|| self.read(|store| store.load(&call_id))).unwrap_or(Kept::Lost);
                if answer.send(kept).is_err() {
                    tracing::debug!("nobody waits for a kept result");
                }
            }
            Op::Rows(answer) => {
                self.write();
                // Who asked is the actor's start, which blocks until this comes.
                if let Some(rows) = self.read(Store::rows)
                    && answer.send(rows).is_err()
                {
                    tracing::debug!("nobody waits for the rows");
                }
            }
            Op::Flush(answer) => {
                self.write();
                if answer.send(()).is_err() {
                    tracing::debug!("nobody waits for the flush");
                }
            }
        }
    }

    fn write(&mut self) {
        if self.group.is_empty() {
            return;
        }
        let changes = self.group.len();
        match self.store.commit(self.group.changes(), self.group.is_durable()) {
            Ok(()) => {
                if std::mem::take(&mut self.failing) {
                    tracing::info!("{}: written again", self.store.path());
                }
                self.group.written();
                self.since_prune += changes;
                if self.since_prune >= PRUNE_EVERY {
                    self.since_prune = 0;
                    self.read(Store::prune);
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut self.failing, true) {
                    tracing::warn!(
                        "{}: {error}; calls of unsafe tools are refused until it can be written",
                        self.store.path()
                    );
                }
                self.group.failed(&format!("{}: {error}", self.store.path()));
            }
        }
    }

    fn read<T>(&self, with: impl FnOnce(&Store) -> Result<T, rusqlite::Error>) -> Option<T> {
        match with(&self.store) {
            Ok(value) => Some(value),
            Err(error) => {
                tracing::error!("{}: {error}", self.store.path());
                None
            }
        }
    }
}

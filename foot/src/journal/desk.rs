//! The desk between those who write and the one who does: what waits lies on it, under a lock that is held for a map access. A
//! queue would cost more than most changes are worth, for they are undone before they are due.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::group::{COLLECT, Group};
use super::{JournalFault, Op};

/// Changes that wait for the disk.
const MAX_CHANGES: usize = 8192;
/// New calls are refused beyond this, so that the results and acks of the calls that run always find room.
const MAX_CHANGES_FOR_NEW: usize = 4096;
/// Changes of one transaction: bounds the wait of who comes next.
const MAX_GROUP: usize = 512;
/// Questions that wait: one for each result that a line may hold back, and some more.
const MAX_ASKED: usize = 4096;
/// Until a failed write is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Shared by the journal and its writer.
#[derive(Default)]
pub(super) struct Desk {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    group: Group,
    /// Loads, rows and flushes.
    asked: Vec<Op>,
    closed: bool,
    /// The writer has ended.
    ended: bool,
    /// The writer looks again by itself, at the latest then. `None`: it sleeps.
    looks: Option<Instant>,
    /// The disk said no: not before then.
    retry: Option<Instant>,
}

/// What the writer takes from the desk.
pub(super) struct Work {
    pub(super) group: Group,
    pub(super) asked: Vec<Op>,
    /// Nothing will come any more.
    pub(super) last: bool,
}

impl State {
    fn is_awaited(&self) -> bool {
        self.closed || self.group.is_durable() || !self.asked.is_empty()
    }

    /// When the writer has something to do.
    fn due(&self, now: Instant) -> Option<Instant> {
        if self.is_awaited() {
            return Some(now);
        }
        let due = self.group.due().map(|due| if self.group.len() >= MAX_GROUP { now } else { due });
        due.map(|due| self.retry.map_or(due, |retry| due.max(retry)))
    }
}

impl Desk {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lays something on the desk, and wakes the writer if it would come too late.
    pub(super) fn put(&self, op: Op) -> Result<(), JournalFault> {
        let mut state = self.lock();
        if state.ended {
            return Err(JournalFault::Ended);
        }
        let now = Instant::now();
        let waiting = state.group.len();
        let due = match op {
            Op::Begin { .. } if waiting >= MAX_CHANGES_FOR_NEW => return Err(JournalFault::Full),
            Op::Begin { call_id, attempt, tool, replay, durable } => {
                Some(state.group.begin(now, call_id, attempt, tool, replay, durable))
            }
            Op::Store(result) if waiting >= MAX_CHANGES && !state.group.has(&result.call_id) => {
                return Err(JournalFault::Full);
            }
            Op::Store(result) => Some(state.group.store(now, result)),
            Op::Forget(call_id) if waiting >= MAX_CHANGES && !state.group.has(&call_id) => {
                return Err(JournalFault::Full);
            }
            Op::Forget(call_id) => state.group.forget(now, call_id),
            Op::Load(..) | Op::Rows(_) | Op::Flush(_) if state.asked.len() >= MAX_ASKED => {
                return Err(JournalFault::Full);
            }
            Op::Load(..) | Op::Rows(_) | Op::Flush(_) => {
                state.asked.push(op);
                Some(now)
            }
        };
        let due = if state.group.len() == MAX_GROUP { Some(now) } else { due };
        if let Some(due) = due
            && state.looks.is_none_or(|looks| due < looks)
        {
            state.looks = Some(due);
            drop(state);
            self.wake.notify_one();
        }
        Ok(())
    }

    /// Nothing will come any more.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.wake.notify_one();
    }

    /// Waits for work. `linger`: more is likely to come in a moment, and is not worth a wake-up.
    pub(super) fn next(&self, linger: bool) -> Work {
        let until = linger.then(|| Instant::now() + COLLECT);
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            let due = state.due(now);
            if let Some(due) = due
                && due <= now
            {
                return state.take(now);
            }
            let until = until.filter(|until| *until > now);
            state.looks = [due, until].into_iter().flatten().min();
            state = match state.looks {
                Some(at) => {
                    let (state, _) = self.wake.wait_timeout(state, at - now).unwrap_or_else(PoisonError::into_inner);
                    state
                }
                None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// A write failed: what it held lies here again.
    pub(super) fn give_back(&self, group: Group, why: &str) {
        let mut state = self.lock();
        state.retry = Some(Instant::now() + RETRY);
        group.failed(why, &mut state.group);
    }

    /// Reads what waits.
    pub(super) fn with_group<T>(&self, read: impl FnOnce(&Group) -> T) -> T {
        read(&self.lock().group)
    }

    /// The writer can write.
    pub(super) fn writes(&self) {
        self.lock().retry = None;
    }

    /// The writer has ended, however: whoever waits is told by the end of its channel.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        state.asked.clear();
        drop(state.group.take());
    }
}

impl State {
    fn take(&mut self, now: Instant) -> Work {
        // What is nearly due goes along: the next wake-up would be for it.
        let all = self.closed || !self.asked.is_empty() || self.group.len() >= MAX_GROUP;
        let group = if all { self.group.take() } else { self.group.take_due(now + COLLECT) };
        self.looks = Some(now);
        Work { group, asked: std::mem::take(&mut self.asked), last: self.closed }
    }
}

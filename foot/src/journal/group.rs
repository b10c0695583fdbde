//! What waits to be written, one change a call: a call that begins, ends and is forgotten meanwhile costs one row, and a safe one none.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use vance_foot_core::calls::{MAX_UNACKED, RowState};
use vance_shared::call::Outcome;
use vance_shared::ids::CallId;
use vance_shared::tool::Replay;
use vance_shared::wire::CallResult;

use super::{Kept, Written};

/// How long a change that nobody waits for may be collected: calls that are over by then cost one row.
pub(super) const COLLECT: Duration = Duration::from_millis(2);
/// The same for calls that may run twice: a process that is killed meanwhile costs them another run.
pub(super) const COLLECT_SAFE: Duration = Duration::from_millis(20);
/// Changes kept over failed writes. Beyond it, tombstones go: a lost one costs a late duplicate its answer.
const MAX_KEPT: usize = 8192;
/// Calls without a row that are remembered at least: as many as may wait for a line, so that no queued result finds its call lost.
const MAX_GONE: usize = 2 * MAX_UNACKED;

/// What a row becomes.
#[derive(Debug, PartialEq)]
pub(super) struct Change {
    pub(super) attempt: u32,
    pub(super) tool: String,
    pub(super) replay: Replay,
    pub(super) state: RowState,
    pub(super) outcome: Option<Outcome>,
    /// The call began here: no row of it is known, unless it was delivered before.
    begun: bool,
    /// When it is to be written.
    due: Instant,
}

impl Change {
    /// The only delivery of a safe call, and its result came: once that is acknowledged, nobody asks for the call again.
    fn needs_no_row(&self) -> bool {
        self.begun && self.attempt <= 1 && self.replay == Replay::Safe && self.state == RowState::Finished
    }
}

/// Changes that are not written yet.
#[derive(Default)]
pub(super) struct Group {
    changes: HashMap<CallId, Change>,
    reports: Vec<(CallId, mpsc::Sender<Written>)>,
    /// Calls that came and went without a row: the later ones, and those before them.
    gone: [HashSet<CallId>; 2],
}

impl Group {
    /// Gives the time at which it is to be written.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        call_id: CallId,
        attempt: u32,
        tool: String,
        replay: Replay,
        report: Option<mpsc::Sender<Written>>,
    ) -> Instant {
        let due = match (&report, replay) {
            (Some(_), _) => now,
            (None, Replay::Unsafe) => now + COLLECT,
            (None, Replay::Safe) => now + COLLECT_SAFE,
        };
        if let Some(report) = report {
            self.reports.push((call_id.clone(), report));
        }
        let state = RowState::Running { attached: false };
        self.changes.insert(call_id, Change { attempt, tool, replay, state, outcome: None, begun: true, due });
        due
    }

    /// The same for a result.
    pub(super) fn store(&mut self, now: Instant, result: CallResult) -> Instant {
        let change = self.change(result.call_id, now + COLLECT);
        change.attempt = change.attempt.max(result.attempt);
        change.state = RowState::Finished;
        change.outcome = Some(result.outcome);
        change.due
    }

    /// The same for an acknowledgement; `None`: nothing is to be written.
    pub(super) fn forget(&mut self, now: Instant, call_id: CallId) -> Option<Instant> {
        if self.changes.get(&call_id).is_some_and(Change::needs_no_row) {
            self.changes.remove(&call_id);
            if self.gone[0].len() >= MAX_GONE {
                self.gone.swap(0, 1);
                self.gone[0].clear();
            }
            self.gone[0].insert(call_id);
            return None;
        }
        let change = self.change(call_id, now + COLLECT_SAFE);
        change.state = RowState::Forgotten;
        change.outcome = None;
        Some(change.due)
    }

    /// A change of a call whose beginning is already written; what the row knows better, it keeps.
    fn change(&mut self, call_id: CallId, due: Instant) -> &mut Change {
        self.changes.entry(call_id).or_insert_with(|| Change {
            attempt: 0,
            tool: String::new(),
            replay: Replay::Unsafe,
            state: RowState::Forgotten,
            outcome: None,
            begun: false,
            due,
        })
    }

    /// What waits to be written of a call's result, or was not worth it.
    pub(super) fn kept(&self, call_id: &CallId) -> Option<Kept> {
        let Some(change) = self.changes.get(call_id) else {
            return self.gone.iter().any(|gone| gone.contains(call_id)).then_some(Kept::Forgotten);
        };
        match (&change.outcome, change.state) {
            (Some(outcome), _) => Some(Kept::Here(outcome.clone())),
            (None, RowState::Forgotten) => Some(Kept::Forgotten),
            (None, RowState::Running { .. } | RowState::Finished) => None,
        }
    }

    pub(super) fn changes(&self) -> impl Iterator<Item = (&CallId, &Change)> {
        self.changes.iter()
    }

    pub(super) fn len(&self) -> usize {
        self.changes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub(super) fn has(&self, call_id: &CallId) -> bool {
        self.changes.contains_key(call_id)
    }

    /// True if somebody waits for the disk.
    pub(super) fn is_durable(&self) -> bool {
        !self.reports.is_empty()
    }

    /// When the first change is to be written.
    pub(super) fn due(&self) -> Option<Instant> {
        self.changes.values().map(|change| change.due).min()
    }

    /// Takes everything.
    pub(super) fn take(&mut self) -> Self {
        let changes = std::mem::take(&mut self.changes);
        Self { changes, reports: std::mem::take(&mut self.reports), gone: Default::default() }
    }

    /// Takes what is due by then, and whatever is of calls that may not run twice: safe calls that are young will not need a row.
    pub(super) fn take_due(&mut self, by: Instant) -> Self {
        let due = |change: &Change| change.due <= by || change.replay == Replay::Unsafe;
        let changes = self.changes.extract_if(|_, change| due(change)).collect();
        Self { changes, reports: std::mem::take(&mut self.reports), gone: Default::default() }
    }

    /// All is written: tells those who wait.
    pub(super) fn written(self) {
        self.report(&Ok(()));
    }

    /// Nothing was written. Calls that would have begun do not; the rest goes back to what came meanwhile.
    pub(super) fn failed(mut self, why: &str, meanwhile: &mut Self) {
        for (call_id, _) in &self.reports {
            self.changes.remove(call_id);
        }
        for (call_id, older) in self.changes.drain() {
            let Some(newer) = meanwhile.changes.get_mut(&call_id) else {
                meanwhile.changes.insert(call_id, older);
                continue;
            };
            newer.attempt = newer.attempt.max(older.attempt);
            if !newer.begun {
                (newer.begun, newer.tool, newer.replay) = (older.begun, older.tool, older.replay);
            }
        }
        if meanwhile.changes.len() > MAX_KEPT {
            meanwhile.changes.retain(|_, change| change.state != RowState::Forgotten);
        }
        self.report(&Err(why.to_owned()));
    }

    fn report(self, written: &Result<(), String>) {
        for (call_id, report) in self.reports {
            // The queue holds one report for each call that may run, so it is never full; nobody there means that the table restarted.
            if report.try_send(Written { call_id, written: written.clone() }).is_err() {
                tracing::debug!("nobody waits for a journal write");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn id(n: usize) -> CallId {
        CallId::parse(&format!("call_{n}")).unwrap()
    }

    fn result(n: usize, attempt: u32) -> CallResult {
        let outcome = Outcome::Cancelled { reason: "r".to_owned() };
        CallResult { call_id: id(n), attempt, outcome, traceparent: None }
    }

    #[test]
    fn only_the_first_delivery_of_a_safe_call_that_is_over_leaves_no_row() {
        let now = Instant::now();
        for (n, (replay, attempt, ended, row)) in [
            (Replay::Safe, 1, true, false),
            (Replay::Safe, 1, false, true),
            (Replay::Safe, 2, true, true),
            (Replay::Unsafe, 1, true, true),
        ]
        .into_iter()
        .enumerate()
        {
            let mut group = Group::default();
            group.begin(now, id(n), attempt, "t".to_owned(), replay, None);
            if ended {
                group.store(now, result(n, attempt));
            }
            assert_eq!(group.forget(now, id(n)).is_some(), row, "{n}");
            assert_eq!((group.len(), group.kept(&id(n))), (usize::from(row), Some(Kept::Forgotten)), "{n}");
        }
    }

    #[test]
    fn a_result_whose_beginning_is_written_needs_its_row() {
        let (now, mut group) = (Instant::now(), Group::default());
        group.begin(now, id(1), 1, "t".to_owned(), Replay::Safe, None);
        assert_eq!(group.take_due(now).len(), 0, "not yet");
        assert_eq!(group.take_due(now + COLLECT_SAFE).len(), 1);
        group.store(now, result(1, 1));
        assert!(group.forget(now, id(1)).is_some());
        assert_eq!(group.take().len(), 1);
    }

    #[test]
    fn what_failed_goes_back_beneath_what_came_meanwhile() {
        let (now, mut group) = (Instant::now(), Group::default());
        for n in 1..3 {
            group.begin(now, id(n), 1, "t".to_owned(), Replay::Safe, None);
        }
        let taken = group.take();
        group.store(now, result(1, 1));
        taken.failed("full", &mut group);
        assert_eq!(group.len(), 2);
        assert!(group.forget(now, id(1)).is_none(), "its beginning was never written");
    }

    #[test]
    fn who_left_no_row_is_remembered_for_long_but_not_for_ever() {
        let (now, mut group) = (Instant::now(), Group::default());
        for n in 0..3 * MAX_GONE {
            group.begin(now, id(n), 1, "t".to_owned(), Replay::Safe, None);
            group.store(now, result(n, 1));
            assert_eq!(group.forget(now, id(n)), None);
        }
        assert_eq!(group.kept(&id(2 * MAX_GONE)), Some(Kept::Forgotten));
        assert_eq!(group.kept(&id(0)), None);
    }
}

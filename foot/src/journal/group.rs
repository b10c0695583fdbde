//! What waits to be written, one change a call: a call that begins, ends and is forgotten within one group costs one row.

use std::collections::HashMap;

use tokio::sync::mpsc;
use vance_foot_core::calls::RowState;
use vance_shared::call::Outcome;
use vance_shared::ids::CallId;
use vance_shared::tool::Replay;
use vance_shared::wire::CallResult;

use super::{Kept, Written};

/// Changes kept over failed writes. Beyond it, tombstones go: a lost one costs a late duplicate its answer.
const MAX_KEPT: usize = 8192;

/// What a row becomes.
#[derive(Debug, PartialEq)]
pub(super) struct Change {
    pub(super) attempt: u32,
    pub(super) tool: String,
    pub(super) replay: Replay,
    pub(super) state: RowState,
    pub(super) outcome: Option<Outcome>,
}

/// Changes since the last write.
#[derive(Default)]
pub(super) struct Group {
    changes: HashMap<CallId, Change>,
    reports: Vec<(CallId, mpsc::Sender<Written>)>,
    /// Beginnings and results of calls that may not run twice, or of which that is not known here.
    unsafe_changes: bool,
}

impl Group {
    pub(super) fn begin(
        &mut self,
        call_id: CallId,
        attempt: u32,
        tool: String,
        replay: Replay,
        report: Option<mpsc::Sender<Written>>,
    ) {
        if let Some(report) = report {
            self.reports.push((call_id.clone(), report));
        }
        self.unsafe_changes |= replay == Replay::Unsafe;
        let state = RowState::Running { attached: false };
        self.changes.insert(call_id, Change { attempt, tool, replay, state, outcome: None });
    }

    pub(super) fn store(&mut self, result: CallResult) {
        let change = self.change(result.call_id);
        change.attempt = change.attempt.max(result.attempt);
        change.state = RowState::Finished;
        change.outcome = Some(result.outcome);
        let is_unsafe = change.replay == Replay::Unsafe;
        self.unsafe_changes |= is_unsafe;
    }

    pub(super) fn forget(&mut self, call_id: CallId) {
        let change = self.change(call_id);
        change.state = RowState::Forgotten;
        change.outcome = None;
    }

    /// A change of a call whose beginning is already written; what the row knows better, it keeps.
    fn change(&mut self, call_id: CallId) -> &mut Change {
        self.changes.entry(call_id).or_insert_with(|| Change {
            attempt: 0,
            tool: String::new(),
            replay: Replay::Unsafe,
            state: RowState::Forgotten,
            outcome: None,
        })
    }

    /// What waits to be written of a call's result, if the disk does not take it.
    pub(super) fn kept(&self, call_id: &CallId) -> Option<Kept> {
        let change = self.changes.get(call_id)?;
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

    /// True if somebody waits for the disk.
    pub(super) fn is_durable(&self) -> bool {
        !self.reports.is_empty()
    }

    /// True if all of it is of calls that may run twice, or is over.
    pub(super) fn is_safe(&self) -> bool {
        !self.unsafe_changes
    }

    /// All is written: tells those who wait.
    pub(super) fn written(&mut self) {
        self.changes.clear();
        self.unsafe_changes = false;
        self.report(Ok(()));
    }

    /// Nothing was written. Calls that would have begun do not; the rest is kept for the next attempt.
    pub(super) fn failed(&mut self, why: &str) {
        for (call_id, _) in &self.reports {
            self.changes.remove(call_id);
        }
        if self.changes.len() > MAX_KEPT {
            self.changes.retain(|_, change| change.state != RowState::Forgotten);
        }
        self.report(Err(why.to_owned()));
    }

    fn report(&mut self, written: Result<(), String>) {
        for (call_id, report) in self.reports.drain(..) {
            // The queue holds one report for each call that may run, so it is never full; nobody there means that the table restarted.
            if report.try_send(Written { call_id, written: written.clone() }).is_err() {
                tracing::debug!("nobody waits for a journal write");
            }
        }
    }
}

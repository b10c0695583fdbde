//! What belongs to a retry, and its way back onto the board.

use std::collections::HashSet;

use vance_shared::ids::TaskId;

use super::{Board, Node, Order, Stand};
use crate::task::State;

impl Board {
    /// Tasks that a retry of this one means: itself, what it kept from completing below it, what was skipped because of any of these, and the
    /// failed ancestors of all of them; ancestors first.
    pub fn retry_closure(&self, id: &TaskId) -> Vec<TaskId> {
        // With whether a task's children are part of it: an ancestor's other children stay as they ended.
        let mut seen: HashSet<(TaskId, bool)> = HashSet::new();
        let mut out: Vec<(TaskId, bool)> = Vec::new();
        let mut next = vec![id.clone()];
        let mut at = 0;
        loop {
            for id in next {
                if seen.insert((id.clone(), true)) {
                    let up = self.failed_ancestors(&id).map(|up| (up, false));
                    out.extend(up.filter(|up| seen.insert(up.clone())));
                    out.push((id, true));
                }
            }
            let Some((node, whole)) = out.get(at).and_then(|(id, whole)| Some((self.nodes.get(id)?, *whole))) else {
                break;
            };
            let below: &[TaskId] = if whole { &node.children } else { &[] };
            let below = below.iter().filter(|c| {
                self.is_done(c, |state| matches!(state, State::Failed | State::Cancelled | State::Skipped))
            });
            let after = node.dependents.iter().filter(|d| self.is_done(d, |state| state == State::Skipped));
            next = below.chain(after).cloned().collect();
            at += 1;
        }
        let mut ids: Vec<TaskId> = out.into_iter().map(|(id, _)| id).collect();
        let mut once = HashSet::new();
        ids.retain(|id| once.insert(id.clone()));
        ids.sort_by_key(|id| self.ancestors(id).count());
        ids
    }

    pub(super) fn ancestors(&self, id: &TaskId) -> impl Iterator<Item = &Node> {
        let up = |node: &Node| node.entry.parent.as_ref().and_then(|parent| self.nodes.get(parent));
        std::iter::successors(self.nodes.get(id).and_then(up), move |node| up(node))
    }

    fn failed_ancestors(&self, id: &TaskId) -> impl Iterator<Item = TaskId> {
        let failed =
            |node: &&Node| matches!(node.stand, Stand::Done(State::Failed | State::Cancelled | State::Skipped));
        self.ancestors(id).filter(failed).map(|node| node.entry.task_id.clone())
    }

    fn is_done(&self, id: &TaskId, how: impl Fn(State) -> bool) -> bool {
        self.nodes.get(id).is_some_and(|n| matches!(n.stand, Stand::Done(state) if how(state)))
    }

    /// These tasks are pending again.
    pub fn retried(&mut self, ids: &[TaskId]) -> Vec<Order> {
        let mut out = Vec::new();
        for id in ids {
            let Some(node) = self.nodes.get(id).filter(|n| matches!(n.stand, Stand::Done(_))) else { continue };
            if let Some(live) = self.live.get_mut(&node.entry.tree_id) {
                *live += 1;
            }
            self.set(id, Stand::Waiting);
        }
        for id in ids {
            self.consider(id, &mut out);
        }
        self.fill_slots(&mut out);
        out
    }
}

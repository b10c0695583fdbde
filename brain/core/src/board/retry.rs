//! What belongs to a retry, and its way back onto the board.

use std::collections::HashSet;

use vance_shared::ids::{TaskId, TreeId};

use super::{Board, Entry, Node, Order, Stand};
use crate::task::{Input, State};

impl Board {
    /// Tasks that a retry of this one means: itself, what it kept from completing below it, what was skipped because of any of these, and the
    /// failed ancestors of all of them; ancestors first.
    pub(super) fn retry_closure(&self, id: &TaskId) -> Vec<TaskId> {
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

    /// An order after which the task ends.
    pub(super) fn tell_to_end(&mut self, id: &TaskId, input: Input, out: &mut Vec<Order>) {
        if let Some(node) = self.nodes.get(id) {
            self.ending.entry(node.entry.tree_id.clone()).or_default().insert(id.clone());
            out.push(Order { task_id: id.clone(), input });
        }
    }

    pub(super) fn has_said_so(&mut self, tree_id: &TreeId, id: &TaskId) {
        if let Some(ending) = self.ending.get_mut(tree_id) {
            ending.remove(id);
            if ending.is_empty() {
                self.ending.remove(tree_id);
            }
        }
    }

    /// Whether all that is stored of a tree's ends has had its consequences here: nobody is on the way to an end. Only then is it
    /// plain what a retry takes along. `tree`: its tasks as they are stored.
    pub fn is_settled(&self, tree: &[Entry]) -> bool {
        let is_heard = |entry: &Entry| {
            let node = self.nodes.get(&entry.task_id);
            !entry.state.is_terminal() || node.is_none_or(|node| node.stand.has_ended())
        };
        tree.first().is_none_or(|first| !self.ending.contains_key(&first.tree_id)) && tree.iter().all(is_heard)
    }

    /// A retry is on its way to the store: what it means. Until [`Board::retried`] nothing is concluded from how these tasks ended.
    pub fn begin_retry(&mut self, id: &TaskId) -> Vec<TaskId> {
        let closure = self.retry_closure(id);
        for id in &closure {
            let Some(Node { stand: Stand::Done(state), entry, .. }) = self.nodes.get(id) else { continue };
            let (state, tree_id) = (*state, entry.tree_id.clone());
            *self.live.entry(tree_id).or_default() += 1;
            self.set(id, Stand::Reviving(state));
        }
        closure
    }

    /// The end of what [`Board::begin_retry`] began: of its tasks, those in `lives` are pending again, the others stay as they ended.
    pub fn retried(&mut self, closure: &[TaskId], lives: &HashSet<TaskId>) -> Vec<Order> {
        let mut out = Vec::new();
        let mut stays = Vec::new();
        for id in closure {
            let Some(node) = self.nodes.get(id) else { continue };
            let (stand, tree_id) = (node.stand.clone(), node.entry.tree_id.clone());
            if !lives.contains(id) {
                if let Stand::Reviving(state) = stand {
                    self.set(id, Stand::Done(state));
                    stays.push(tree_id);
                }
                continue;
            }
            // One that was not marked ended in the moment in which it was asked for.
            if matches!(stand, Stand::Done(_)) {
                *self.live.entry(tree_id.clone()).or_default() += 1;
            }
            self.has_said_so(&tree_id, id);
            self.unindex(id);
            self.set(id, Stand::Waiting);
        }
        for id in closure {
            self.consider(id, &mut out);
            let Some(node) = self.nodes.get(id).filter(|node| matches!(node.stand, Stand::Done(_))) else { continue };
            let (parent, after) = (node.entry.parent.clone(), [node.children.clone(), node.dependents.clone()]);
            after.iter().flatten().for_each(|id| self.consider(id, &mut out));
            if let Some(parent) = parent {
                self.maybe_children_ended(&parent, &mut out);
            }
        }
        stays.iter().for_each(|tree_id| self.one_less(tree_id));
        self.fill_slots(&mut out);
        out
    }
}

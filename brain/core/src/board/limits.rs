//! `max_parallel`: how many tasks of a tree, or below a task, have a slot at once.
//!
//! Only who has a slot counts: whoever waits, or is around others, could otherwise keep out what it waits for.

use std::collections::{HashMap, VecDeque};

use vance_shared::ids::{TaskId, TreeId};

/// Whom a limit holds.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Scope {
    /// All tasks of a tree.
    Tree(TreeId),
    /// All tasks below this one, however deep.
    Below(TaskId),
}

#[derive(Debug)]
struct Limit {
    most: usize,
    running: usize,
    /// Those that found no room, in their order.
    held_back: VecDeque<TaskId>,
}

/// All limits of live trees. Trees without any cost nothing.
#[derive(Debug, Default)]
pub(super) struct Limits(HashMap<Scope, Limit>);

impl Limits {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn set(&mut self, scope: Scope, most: u32) {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        self.0.entry(scope).or_insert(Limit { most, running: 0, held_back: VecDeque::new() });
    }

    pub(super) fn forget(&mut self, scope: &Scope) {
        self.0.remove(scope);
    }

    /// True if all of its limits have room. Otherwise it is held back, and who was held back in its place is given.
    pub(super) fn admits(&mut self, id: &TaskId, scopes: &[Scope]) -> Result<(), Vec<TaskId>> {
        let is_full = |limits: &Self, scope: &Scope| limits.0.get(scope).is_some_and(|l| l.running >= l.most);
        let Some(full) = scopes.iter().find(|scope| is_full(self, scope)).cloned() else { return Ok(()) };
        if let Some(limit) = self.0.get_mut(&full) {
            limit.held_back.push_back(id.clone());
        }
        // It may have been let out of another one, whose room is somebody else's now.
        let others: Vec<Scope> = scopes.iter().filter(|s| **s != full && !is_full(self, s)).cloned().collect();
        Err(others.iter().filter_map(|scope| self.0.get_mut(scope)?.held_back.pop_front()).collect())
    }

    /// Whom those with room hold back.
    pub(super) fn next_of(&mut self, scopes: &[Scope]) -> Vec<TaskId> {
        let next = |scope: &Scope| self.0.get_mut(scope).filter(|l| l.running < l.most)?.held_back.pop_front();
        scopes.iter().filter_map(next).collect()
    }

    /// One of these has a slot now.
    pub(super) fn took(&mut self, scopes: &[Scope]) {
        for scope in scopes {
            if let Some(limit) = self.0.get_mut(scope) {
                limit.running += 1;
            }
        }
    }

    /// One of these has given its slot back. Gives whom it held back.
    pub(super) fn gave(&mut self, scopes: &[Scope]) -> Vec<TaskId> {
        let free = |scope: &Scope| {
            let limit = self.0.get_mut(scope)?;
            limit.running = limit.running.saturating_sub(1);
            limit.held_back.pop_front()
        };
        scopes.iter().filter_map(free).collect()
    }
}

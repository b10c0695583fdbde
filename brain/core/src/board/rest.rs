//! What of a tree goes on by itself, and its `max_parallel`.

use vance_shared::ids::{TaskId, TreeId};

use super::{Board, Entry, Scope, Stand};

impl Board {
    /// Trees in which nothing runs any more since the last time somebody asked: all has ended, or waits for something outside.
    pub fn take_at_rest(&mut self) -> Vec<TreeId> {
        self.at_rest.drain().collect()
    }

    /// True if something of the tree runs or is about to.
    pub fn is_busy(&self, tree_id: &TreeId) -> bool {
        self.busy.contains_key(tree_id)
    }

    pub(super) fn count_busy(&mut self, tree_id: TreeId, more: bool) {
        let busy = self.busy.entry(tree_id.clone()).or_default();
        *busy = if more { *busy + 1 } else { busy.saturating_sub(1) };
        if *busy == 0 {
            self.busy.remove(&tree_id);
            self.at_rest.insert(tree_id);
        } else {
            self.at_rest.remove(&tree_id);
        }
    }

    pub(super) fn note_limits(&mut self, entry: &Entry) {
        if let Some(most) = entry.max_parallel {
            self.limits.set(Scope::Below(entry.task_id.clone()), most);
        }
        if let Some(most) = entry.tree_max_parallel {
            self.limits.set(Scope::Tree(entry.tree_id.clone()), most);
        }
    }

    fn scopes(&self, id: &TaskId) -> Vec<Scope> {
        let below = self.ancestors(id).map(|node| Scope::Below(node.entry.task_id.clone()));
        let tree = self.nodes.get(id).map(|node| Scope::Tree(node.entry.tree_id.clone()));
        below.chain(tree).collect()
    }

    pub(super) fn slot_changed(&mut self, id: &TaskId, has_one: bool) {
        let scopes = self.scopes(id);
        if has_one {
            return self.limits.took(&scopes);
        }
        for next in self.limits.gave(&scopes) {
            self.let_out(next);
        }
    }

    /// Back among the ready ones. One that is not ready any more passes its place on.
    fn let_out(&mut self, id: TaskId) {
        let mut next = vec![id];
        while let Some(id) = next.pop() {
            if self.nodes.get(&id).is_some_and(|node| node.stand == Stand::Ready) {
                self.push_ready(&id);
            } else {
                let scopes = self.scopes(&id);
                next.extend(self.limits.next_of(&scopes));
            }
        }
    }

    /// False: it is held back until there is room within its limits.
    pub(super) fn has_room(&mut self, id: &TaskId) -> bool {
        if self.limits.is_empty() {
            return true;
        }
        let scopes = self.scopes(id);
        match self.limits.admits(id, &scopes) {
            Ok(()) => true,
            Err(instead) => {
                instead.into_iter().for_each(|id| self.let_out(id));
                false
            }
        }
    }
}

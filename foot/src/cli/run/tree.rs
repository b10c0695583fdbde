//! What `run` knows of its tree. Pure: snapshots and events in, changes and verdicts out.
//!
//! The Brain's snapshot is the truth; an event is a quick word on the way. A late event never reopens what has ended.

use std::collections::{HashMap, HashSet};

use vance_shared::call::Fault;
use vance_shared::ids::TaskId;
use vance_shared::summary::summary;

use crate::api::{Event, Task, TaskState};
use crate::cli::failure::{EXIT_FAILED, EXIT_OK, EXIT_WAITS};

/// A task moved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    /// The Brain's id.
    pub(super) task_id: TaskId,
    /// The file's id.
    pub(super) id: String,
    /// Where it is now.
    pub(super) state: TaskState,
    /// Why.
    pub(super) reason: Option<String>,
}

/// How the tree stands as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    /// Something runs or is about to.
    Goes,
    /// What has not ended waits for somebody or something outside.
    Waits,
    /// Every task has ended.
    Ended,
}

/// The tree.
#[derive(Debug, Default)]
pub(super) struct Tree {
    tasks: Vec<Task>,
    at: HashMap<TaskId, usize>,
}

impl Tree {
    /// Takes the Brain's view of all tasks; gives what is new in it.
    pub(super) fn snapshot(&mut self, tasks: Vec<Task>) -> Vec<Change> {
        let mut changes = Vec::new();
        for task in tasks {
            let known = self.at.get(&task.task_id).map(|&at| &self.tasks[at]);
            let was = known.map_or((TaskState::Pending, None), |t| (t.state, t.reason()));
            if was != (task.state, task.reason()) {
                changes.push(Change::of(&task));
            }
            match self.at.get(&task.task_id) {
                Some(&at) => self.tasks[at] = task,
                None => {
                    self.at.insert(task.task_id.clone(), self.tasks.len());
                    self.tasks.push(task);
                }
            }
        }
        changes
    }

    /// Takes an event; gives the change that it means, if any.
    pub(super) fn event(&mut self, event: &Event) -> Option<Change> {
        let task = self.tasks.get_mut(*self.at.get(event.task_id.as_ref()?)?)?;
        let state = event.state?;
        if task.state.is_terminal() || (task.state == state && task.reason() == event.reason.as_deref()) {
            return None;
        }
        task.state = state;
        match state {
            TaskState::Skipped => task.skip_reason.clone_from(&event.reason),
            TaskState::Cancelled => task.cancel_reason.clone_from(&event.reason),
            TaskState::Failed => task.error = event.reason.as_deref().map(|why| Fault::new("failed", why)),
            _ => task.blocked_reason.clone_from(&event.reason),
        }
        Some(Change { reason: event.reason.clone(), ..Change::of(task) })
    }

    /// Replaces one task by a fresher view; nothing is announced.
    pub(super) fn refresh(&mut self, task: Task) {
        if let Some(&at) = self.at.get(&task.task_id) {
            self.tasks[at] = task;
        }
    }

    /// All tasks, in the Brain's order.
    pub(super) fn tasks(&self) -> &[Task] {
        &self.tasks
    }

    /// One task.
    pub(super) fn task(&self, id: &TaskId) -> Option<&Task> {
        self.at.get(id).map(|&at| &self.tasks[at])
    }

    /// True if the task is one of this tree.
    pub(super) fn has(&self, id: &TaskId) -> bool {
        self.at.contains_key(id)
    }

    /// Whether anything moves by itself.
    pub(super) fn standing(&self) -> Standing {
        let live: Vec<usize> = (0..self.tasks.len()).filter(|&i| !self.tasks[i].state.is_terminal()).collect();
        if live.is_empty() {
            return if self.tasks.is_empty() { Standing::Goes } else { Standing::Ended };
        }
        let waiting = self.waiting(&live);
        if live.iter().all(|i| waiting.contains(i)) { Standing::Waits } else { Standing::Goes }
    }

    /// The live tasks that wait, or that come only after one that waits, or all of whose live children wait.
    fn waiting(&self, live: &[usize]) -> HashSet<usize> {
        let by_id: HashMap<&str, usize> = self.tasks.iter().enumerate().map(|(i, t)| (t.id.as_str(), i)).collect();
        let find = |id: &str| by_id.get(id).or_else(|| self.at.get(&TaskId::parse(id).ok()?));
        let mut children: HashMap<usize, Vec<usize>> = HashMap::new();
        for &i in live {
            if let Some(&parent) = self.tasks[i].parent.as_deref().and_then(find) {
                children.entry(parent).or_default().push(i);
            }
        }
        let mut waiting: HashSet<usize> = live.iter().copied().filter(|&i| self.tasks[i].state.is_waiting()).collect();
        loop {
            let before = waiting.len();
            for &i in live {
                let task = &self.tasks[i];
                let has = |id: &String| find(id).is_some_and(|at| waiting.contains(at));
                let held = task.state == TaskState::Pending
                    && (task.depends_on.iter().any(has)
                        || task
                            .parent
                            .iter()
                            .any(|p| has(p) && find(p).is_some_and(|&at| self.tasks[at].state == TaskState::Pending)));
                let by_children = children.get(&i).is_some_and(|all| all.iter().all(|child| waiting.contains(child)));
                if held || by_children {
                    waiting.insert(i);
                }
            }
            if waiting.len() == before {
                return waiting;
            }
        }
    }

    /// `3 completed, 1 waiting for client`: each state that occurs, and what is waited for.
    pub(super) fn summary(&self) -> String {
        summary(self.tasks.iter().map(|task| (task.state.word(), task.reason())))
    }

    /// The exit code that this tree means.
    pub(super) fn exit(&self) -> u8 {
        let any = |wanted: &[TaskState]| self.tasks.iter().any(|t| wanted.contains(&t.state));
        if any(&[TaskState::Failed, TaskState::Cancelled]) {
            EXIT_FAILED
        } else if self.tasks.iter().any(|t| !t.state.is_terminal()) {
            EXIT_WAITS
        } else {
            EXIT_OK
        }
    }
}

impl Change {
    fn of(task: &Task) -> Self {
        Self {
            task_id: task.task_id.clone(),
            id: task.id.clone(),
            state: task.state,
            reason: task.reason().map(str::to_owned),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn task(text: &str) -> Task {
        let mut words = text.split(' ');
        let (id, state) = (words.next().unwrap(), words.next().unwrap());
        let mut value = serde_json::json!({
            "task_id": format!("task_{id}"), "id": id, "tree_id": "tree_1", "session_id": "sess_1", "state": state,
        });
        for word in words {
            match word.split_once('=').unwrap() {
                ("after", ids) => value["depends_on"] = ids.split(',').collect(),
                ("in", parent) => value["parent"] = parent.into(),
                ("why", reason) => value["blocked_reason"] = reason.into(),
                _ => panic!("{word}"),
            }
        }
        serde_json::from_value(value).unwrap()
    }

    fn tree(tasks: &[&str]) -> Tree {
        let mut tree = Tree::default();
        tree.snapshot(tasks.iter().map(|t| task(t)).collect());
        tree
    }

    fn event(id: &str, state: &str, reason: Option<&str>) -> Event {
        serde_json::from_value(
            serde_json::json!({"kind": "task", "task_id": format!("task_{id}"), "state": state, "reason": reason}),
        )
        .unwrap()
    }

    #[test]
    fn a_snapshot_announces_only_what_is_new() {
        let mut tree = tree(&["a running", "b pending"]);
        let changes = tree.snapshot(vec![task("a running"), task("b blocked why=x"), task("c failed")]);
        let got: Vec<_> = changes.iter().map(|c| (c.id.as_str(), c.state, c.reason.as_deref())).collect();
        assert_eq!(got, [("b", TaskState::Blocked, Some("x")), ("c", TaskState::Failed, None)]);
        assert_eq!(tree.snapshot(vec![task("b blocked why=y")]).len(), 1, "another reason is news");
    }

    #[test]
    fn an_event_moves_a_task_once_and_never_reopens_an_ended_one() {
        let mut tree = tree(&["a running", "b completed"]);
        let blocked = event("a", "blocked", Some("Waiting for Client for Tool: x"));
        assert_eq!(tree.event(&blocked).unwrap().reason.as_deref(), Some("Waiting for Client for Tool: x"));
        assert_eq!(tree.event(&blocked), None);
        assert_eq!(tree.event(&event("b", "running", None)), None);
        assert_eq!(tree.event(&event("of-another-tree", "running", None)), None);
        assert_eq!(tree.tasks()[0].reason(), Some("Waiting for Client for Tool: x"));
    }

    #[test]
    fn how_a_tree_stands() {
        use Standing::{Ended, Goes, Waits};
        let table: &[(&[&str], Standing)] = &[
            (&[], Goes),
            (&["a completed", "b skipped"], Ended),
            (&["a pending"], Goes),
            (&["a running", "b blocked"], Goes),
            (&["a completed", "b blocked"], Waits),
            (&["a queued", "b blocked"], Waits),
            (&["a blocked", "b pending after=a", "c pending after=b"], Waits),
            (&["c pending after=b", "b pending after=a", "a blocked"], Waits),
            (&["a blocked", "b pending after=task_a"], Waits),
            (&["a blocked", "b pending"], Goes),
            (&["a completed", "b pending after=a"], Goes),
            (&["p running", "a blocked in=p"], Waits),
            (&["p running", "a blocked in=p", "b pending in=p"], Goes),
            (&["p running", "a completed in=p"], Goes),
            (&["a blocked", "p pending after=a", "c pending in=p"], Waits),
            (&["p running", "a blocked in=task_p"], Waits),
            (&["a dreaming"], Goes),
        ];
        for (tasks, want) in table {
            assert_eq!(tree(tasks).standing(), *want, "{tasks:?}");
        }
    }

    #[test]
    fn summary_and_exit_code() {
        for (tasks, summary, exit) in [
            (&["a completed", "b completed", "c skipped"][..], "2 completed, 1 skipped", 0),
            (&["a completed", "b failed"], "1 completed, 1 failed", 1),
            (&["a cancelled"], "1 cancelled", 1),
            (&["a completed", "b blocked", "c pending after=b"], "1 completed, 1 blocked, 1 pending", 3),
            (&["a failed", "b blocked"], "1 failed, 1 blocked", 1),
            (&[], "no tasks", 0),
        ] {
            let tree = tree(tasks);
            assert_eq!((tree.summary().as_str(), tree.exit()), (summary, exit), "{tasks:?}");
        }
    }
}

//! The trees that are submitted.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

/// A task of a tree.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Its id, unique among all trees.
    pub id: String,
    /// Ids of the same tree.
    pub depends_on: Vec<String>,
    /// Tools of its steps: `safe_tool` and `unsafe_tool` of the Feet, `task_note` of the Brain.
    pub steps: Vec<String>,
    /// May another Foot go on?
    pub any_client: bool,
}

impl Wanted {
    fn json(&self) -> Value {
        let steps: Vec<Value> = self
            .steps
            .iter()
            .enumerate()
            .map(|(n, tool)| {
                let argument = if tool == "task_note" { "text" } else { "step" };
                json!({ "call": tool, "with": { argument: format!("{}.{n}", self.id) } })
            })
            .collect();
        json!({ "id": self.id, "depends_on": self.depends_on, "any_client": self.any_client, "steps": steps })
    }
}

/// A tree on its way to the Brain.
#[derive(Debug)]
pub(super) struct Tree {
    /// When it is submitted first.
    pub(super) due: Duration,
    pub(super) text: String,
    /// Task ids by the tree's own ids, once it was taken.
    pub(super) taken: Option<BTreeMap<String, String>>,
}

impl Tree {
    pub(super) fn new(due: Duration, tasks: &[Wanted]) -> Self {
        let tasks: Vec<Value> = tasks.iter().map(Wanted::json).collect();
        Self { due, text: json!({ "tasks": tasks }).to_string(), taken: None }
    }
}

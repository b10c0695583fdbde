//! The trees that are submitted.

use std::collections::{BTreeMap, BTreeSet};
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
    /// Its offline strategy. With `fallback` the Brain's `task_note` takes the place of `safe_tool`.
    pub strategy: &'static str,
    /// An unknown outcome is run again by itself.
    pub runs_unknown_again: bool,
    /// The id of a task around it.
    pub within: Option<String>,
}

impl Wanted {
    fn json(&self) -> Value {
        let steps: Vec<Value> = self
            .steps
            .iter()
            .enumerate()
            .map(|(n, tool)| {
                let argument = if tool == "task_note" || self.strategy == "fallback" { "text" } else { "step" };
                json!({ "call": tool, "with": { argument: format!("{}.{n}", self.id) } })
            })
            .collect();
        json!({
            "id": self.id, "depends_on": self.depends_on, "any_client": self.any_client, "steps": steps,
            "offline_strategy": self.strategy,
            "on_unknown": if self.runs_unknown_again { "retry" } else { "ask" },
        })
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
        let around: BTreeSet<&String> = tasks.iter().filter_map(|task| task.within.as_ref()).collect();
        let within = |around: Option<&String>| -> Vec<Value> {
            tasks.iter().filter(|task| task.within.as_ref() == around).map(Wanted::json).collect()
        };
        let mut all = within(None);
        all.extend(around.into_iter().map(|id| json!({ "id": id, "children": within(Some(id)) })));
        Self { due, text: json!({ "tasks": all }).to_string(), taken: None }
    }

    /// Tasks of all trees, with those around others.
    pub(super) fn count<'a>(trees: impl Iterator<Item = &'a Vec<Wanted>>) -> usize {
        let around =
            |tasks: &Vec<Wanted>| tasks.iter().filter_map(|task| task.within.as_ref()).collect::<BTreeSet<_>>().len();
        trees.map(|tasks| tasks.len() + around(tasks)).sum()
    }
}

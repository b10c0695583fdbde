//! After a restart: live trees as they stood. Reading twice is the same as once; nothing is run here.

use std::collections::BTreeSet;

use serde::Deserialize;
use vance_brain_core::board::Entry;
use vance_brain_core::session::OpenQuestion;
use vance_brain_core::task::{State, Wait};
use vance_shared::ids::{CallId, SessionId, TaskId};
use vance_shared::question::Question;
use vance_shared::summary::summary;

use crate::hub::Brain;
use crate::rows::{TASK, TaskRow};
use crate::store::{Filter, MAX_PAGE, Row, StoreError};

/// The states in which a task still has something before it.
const LIVE: [State; 4] = [State::Pending, State::Running, State::Blocked, State::Queued];

/// All trees that have a live task. With them comes which questions are open: no task runs that would say it.
pub async fn live_trees(brain: Brain) -> Result<Vec<Vec<Entry>>, StoreError> {
    let states = LIVE.iter().map(|s| s.word().to_owned()).collect();
    let live = all_rows(&brain, Filter { states, ..Filter::default() }).await?;
    brain.stored_questions(live.iter().filter_map(asked).collect());
    let trees: BTreeSet<String> = live.into_iter().filter_map(|row| row.parent).collect();
    let mut out = Vec::with_capacity(trees.len());
    for tree in trees {
        out.push(tree_entries(&brain, &tree).await?);
    }
    Ok(out)
}

/// The question that a stored task waits with, and whose it is.
fn asked(row: &Row) -> Option<(String, OpenQuestion)> {
    #[derive(Deserialize)]
    struct Asking {
        session_id: SessionId,
        #[serde(default)]
        autonomous: bool,
        wait: Option<Wait>,
        asked: Option<Question>,
        changed_at: i64,
        view: Calls,
    }
    #[derive(Deserialize)]
    struct Calls {
        calls: Vec<Call>,
    }
    #[derive(Deserialize)]
    struct Call {
        call_id: CallId,
        tool: String,
        machine: Option<String>,
    }
    // Ten thousand tasks wait for something else, and are not read twice.
    if row.state.as_deref() != Some(State::Blocked.word()) || !row.data.get().contains(r#""answer":{"#) {
        return None;
    }
    let task: Asking = row.data.to().ok()?;
    let (Some(Wait::Answer { client_id: asker, call_id, .. }), Some(question)) = (task.wait, task.asked) else {
        return None;
    };
    let call = task.view.calls.into_iter().rev().find(|call| call.call_id == call_id);
    let (tool, machine) = call.map(|call| (call.tool, call.machine)).unwrap_or_default();
    let open = OpenQuestion {
        question,
        session_id: task.session_id,
        autonomous: task.autonomous,
        task_id: TaskId::parse(&row.key).ok(),
        tool,
        asker,
        machine,
        asked_at: task.changed_at,
    };
    Some((row.owner.clone()?, open))
}

/// All tasks of a tree.
pub async fn tree_entries(brain: &Brain, tree_id: &str) -> Result<Vec<Entry>, StoreError> {
    let rows = all_rows(brain, Filter { parent: Some(tree_id.to_owned()), ..Filter::default() }).await?;
    let registry = brain.registry.load();
    Ok(rows
        .into_iter()
        .filter_map(|row| {
            let task_id = TaskId::parse(&row.key).ok()?;
            match row.data.to::<TaskRow>() {
                Ok(task) => Some(task.entry(task_id, &registry)),
                Err(error) => {
                    tracing::error!(%task_id, %error, "a task's row cannot be read; it is left as it is");
                    None
                }
            }
        })
        .collect())
}

/// How a tree stands.
pub struct Standing {
    /// Its session.
    pub session_id: SessionId,
    /// Who submitted it.
    pub owner: String,
    /// In one line.
    pub summary: String,
}

/// How a tree stands; `None`: there is none of this id.
pub async fn standing(brain: &Brain, tree_id: &str) -> Result<Option<Standing>, StoreError> {
    let rows = all_rows(brain, Filter { parent: Some(tree_id.to_owned()), ..Filter::default() }).await?;
    let owner = rows.first().and_then(|row| row.owner.clone()).unwrap_or_default();
    let tasks: Vec<TaskRow> = rows.into_iter().filter_map(|row| row.data.to().ok()).collect();
    let Some(session_id) = tasks.first().map(|task| task.session_id.clone()) else { return Ok(None) };
    let reasons: Vec<Option<String>> = tasks.iter().map(|task| task.wait.as_ref().map(Wait::reason)).collect();
    let states = tasks.iter().map(|task| task.state.word()).zip(reasons.iter().map(Option::as_deref));
    Ok(Some(Standing { session_id, owner, summary: summary(states) }))
}

/// Task rows, page by page.
pub async fn all_rows(brain: &Brain, filter: Filter) -> Result<Vec<Row>, StoreError> {
    let mut out: Vec<Row> = Vec::new();
    loop {
        let after_key = out.last().map(|row| row.key.clone()).or_else(|| filter.after_key.clone());
        let page = brain.store.rows(TASK, Filter { after_key, limit: Some(MAX_PAGE), ..filter.clone() }).await?;
        // A slim page ends before its limit once it is large.
        let full = page.len() == MAX_PAGE || (filter.slim && !page.is_empty());
        out.extend(page);
        if !full {
            return Ok(out);
        }
    }
}

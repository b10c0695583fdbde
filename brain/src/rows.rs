//! Tasks in the store: events, and the row that lists and recovery read.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use vance_brain_core::board;
use vance_brain_core::registry::Registry;
use vance_brain_core::spec::RunIf;
use vance_brain_core::task::{Event, State, Task, Wait};
use vance_shared::ids::{CallId, ClientId, SessionId, TaskId, TreeId};
use vance_shared::json::Raw;

use crate::store::{Append, NewEvent, Row, StoredEvent};

/// Row kind of tasks.
pub const TASK: &str = "task";
/// Row kind of trees.
pub const TREE: &str = "tree";
/// Row kind of sessions.
pub const SESSION: &str = "session";
/// Row kind of clients.
pub const CLIENT: &str = "client";
/// Row kind of answers that were given to an `Idempotency-Key`.
pub const IDEMPOTENCY: &str = "idempotency";
/// Row kind of the tools that an owner's clients reported last.
pub const KNOWN_TOOLS: &str = "known_tools";

/// A task's stream.
pub fn stream(task_id: &TaskId) -> String {
    format!("task:{task_id}")
}

/// A task event as it is stored: with what a reader of the event stream wants to know besides.
#[derive(Debug, Serialize, Deserialize)]
pub struct Recorded {
    /// The event itself.
    pub event: Raw,
    /// The task.
    pub task_id: TaskId,
    /// The file's id.
    pub id: String,
    /// The tree.
    pub tree_id: TreeId,
    /// The session.
    pub session_id: SessionId,
    /// The principal.
    pub owner: String,
    /// State after the event.
    pub state: State,
    /// Why it waits, was skipped, cancelled or failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The append that stores `events`, which `task` has already folded; it was in state `before` them.
pub fn append(before: State, task: &Task, events: &[Event]) -> Append {
    let mut state = before;
    let count = u32::try_from(events.len()).unwrap_or(u32::MAX);
    let events = events
        .iter()
        .map(|event| {
            state = event.enters().unwrap_or(state);
            let recorded = Recorded {
                event: Raw::of(event).unwrap_or_else(|_| Raw::null()),
                task_id: task.head.task_id.clone(),
                id: task.head.spec.id.clone(),
                tree_id: task.head.tree_id.clone(),
                session_id: task.head.session_id.clone(),
                owner: task.head.owner.clone(),
                state,
                reason: event.reason(),
            };
            NewEvent { kind: event.kind(), data: Raw::of(&recorded).unwrap_or_else(|_| Raw::null()) }
        })
        .collect();
    Append { stream: stream(&task.head.task_id), expected_version: task.version.saturating_sub(count), events }
}

/// Why a stream cannot be read as a task.
#[derive(Debug, thiserror::Error)]
pub enum BadStream {
    /// An event that this release does not know.
    #[error("event {version} of {stream} cannot be read: {reason}")]
    Event {
        /// The stream.
        stream: String,
        /// Which event.
        version: u32,
        /// Why.
        reason: String,
    },
    /// No submission.
    #[error("{0} does not begin with a submission")]
    Empty(String),
}

/// Folds a stream.
pub fn fold(task_id: &TaskId, events: &[StoredEvent]) -> Result<Task, BadStream> {
    let mut parsed = Vec::with_capacity(events.len());
    for stored in events {
        let event = stored.data.to::<Recorded>().and_then(|r| r.event.to::<Event>());
        let event = event.map_err(|e| BadStream::Event {
            stream: stored.stream.clone(),
            version: stored.version,
            reason: e.to_string(),
        })?;
        parsed.push((event, stored.at_ms));
    }
    Task::of(parsed).ok_or_else(|| BadStream::Empty(stream(task_id)))
}

/// What recovery and lists need of a task, without folding it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TaskRow {
    /// The API's shape.
    pub view: Raw,
    /// The file's id.
    pub id: String,
    /// The tree.
    pub tree_id: TreeId,
    /// The session.
    pub session_id: SessionId,
    /// The task around it.
    pub parent: Option<TaskId>,
    /// Waits for children.
    pub has_children: bool,
    /// Dependencies.
    pub depends_on: Vec<TaskId>,
    /// Runs after failure too.
    pub run_if: RunIf,
    /// State.
    pub state: State,
    /// What it waits for.
    pub wait: Option<Wait>,
    /// Its open call on a client.
    pub held: Option<(CallId, ClientId)>,
}

impl TaskRow {
    /// Of a task.
    pub fn of(task: &Task) -> Self {
        Self {
            view: Raw::from(view(task)),
            id: task.head.spec.id.clone(),
            tree_id: task.head.tree_id.clone(),
            session_id: task.head.session_id.clone(),
            parent: task.head.parent.clone(),
            has_children: task.head.has_children,
            depends_on: task.head.depends_on.clone(),
            run_if: task.head.spec.run_if,
            state: task.state,
            wait: task.wait.clone(),
            held: task.held(),
        }
    }

    /// As the board takes it.
    pub fn entry(self, task_id: TaskId, registry: &Registry) -> board::Entry {
        let wake_on = match &self.wait {
            Some(Wait::Client { tool, .. }) => registry.client_names(tool),
            _ => Vec::new(),
        };
        board::Entry {
            task_id,
            id: self.id,
            tree_id: self.tree_id,
            session_id: self.session_id,
            parent: self.parent,
            has_children: self.has_children,
            depends_on: self.depends_on,
            run_if: self.run_if,
            state: self.state,
            wait: self.wait,
            wake_on,
            held: self.held,
        }
    }
}

/// The row of a task.
pub fn task_row(task: &Task) -> Row {
    Row {
        kind: TASK.into(),
        key: task.head.task_id.to_string(),
        // Trees are what tasks are read by; the session is in the row's data and in the tree.
        parent: Some(task.head.tree_id.to_string()),
        owner: Some(task.head.owner.clone()),
        state: Some(task.state.word().to_owned()),
        data: Raw::of(&TaskRow::of(task)).unwrap_or_else(|_| Raw::null()),
    }
}

/// A task in the API's shape.
pub fn view(task: &Task) -> Value {
    let skip_reason = task.reason.as_ref().filter(|_| task.state == State::Skipped);
    let cancel_reason = task.reason.as_ref().filter(|_| task.state == State::Cancelled);
    let calls: Vec<Value> = task
        .calls
        .iter()
        .map(|c| {
            let mut call = json!({
                "call_id": c.call_id, "tool": c.tool, "route": c.route, "client_id": c.client_id, "machine": c.machine,
                "attempts": c.attempts, "outcome": c.outcome, "trace_id": c.trace_id,
                "started_at": time(c.started_at), "ended_at": c.ended_at.map(time),
            });
            if let (Some(late), Some(call)) = (&c.late, call.as_object_mut()) {
                call.insert("late_outcome".to_owned(), json!(late));
            }
            call
        })
        .collect();
    json!({
        "task_id": task.head.task_id, "id": task.head.spec.id, "tree_id": task.head.tree_id,
        "session_id": task.head.session_id, "parent": task.head.parent, "goal": task.head.spec.goal,
        "depends_on": task.head.depends_on,
        "state": task.state.word(), "blocked_reason": task.blocked_reason(), "skip_reason": skip_reason,
        "cancel_reason": cancel_reason, "error": task.error, "output": task.output(),
        "created_at": time(task.created_at), "updated_at": time(task.updated_at), "calls": calls,
    })
}

/// Milliseconds since 1970 as RFC 3339 in UTC.
pub fn time(ms: i64) -> String {
    chrono::DateTime::from_timestamp_millis(ms).unwrap_or_default().to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}

//! Tasks in the store: events, and the row that lists and recovery read.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use vance_brain_core::board;
use vance_brain_core::registry::Registry;
use vance_brain_core::spec::RunIf;
use vance_brain_core::task::{Asking, Event, State, Task, Wait};
use vance_shared::call::Fault;
use vance_shared::ids::{CallId, ClientId, QuestionId, SessionId, TaskId, TreeId};
use vance_shared::json::Raw;
use vance_shared::names::ToolName;
use vance_shared::question::{Action, Question};

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
#[derive(Debug, Serialize)]
struct Recording<'a> {
    event: &'a Event,
    task_id: &'a TaskId,
    /// The file's id.
    id: &'a str,
    tree_id: &'a TreeId,
    session_id: &'a SessionId,
    owner: &'a str,
    /// State after the event.
    state: State,
    /// Why it waits, was skipped, cancelled or failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

/// Of what is stored, what a task is folded from.
#[derive(Debug, Deserialize)]
struct Recorded {
    event: Event,
}

/// The append that stores `events`, which `task` has already folded; it was in state `before` them.
pub fn append(before: State, task: &Task, events: &[Event]) -> Append {
    let mut state = before;
    let count = u32::try_from(events.len()).unwrap_or(u32::MAX);
    let events = events
        .iter()
        .map(|event| {
            state = event.enters().unwrap_or(state);
            let recording = Recording {
                event,
                task_id: &task.head.task_id,
                id: &task.head.spec.id,
                tree_id: &task.head.tree_id,
                session_id: &task.head.session_id,
                owner: &task.head.owner,
                state,
                reason: event.reason(),
            };
            NewEvent { kind: event.kind(), data: Raw::of(&recording).unwrap_or_else(|_| Raw::null()) }
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
pub fn fold(task_id: &TaskId, stored: &[StoredEvent]) -> Result<Task, BadStream> {
    Task::of(events(stored)?).ok_or_else(|| BadStream::Empty(stream(task_id)))
}

/// A stream's events, with when they happened.
pub fn events(events: &[StoredEvent]) -> Result<Vec<(Event, i64)>, BadStream> {
    let mut parsed = Vec::with_capacity(events.len());
    for stored in events {
        let recorded = stored.data.to::<Recorded>().map_err(|e| BadStream::Event {
            stream: stored.stream.clone(),
            version: stored.version,
            reason: e.to_string(),
        })?;
        parsed.push((recorded.event, stored.at_ms));
    }
    Ok(parsed)
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
    /// What it waits to be told, else what it was told last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Question>,
    /// Tasks below it that may run at once.
    #[serde(default)]
    pub max_parallel: Option<u32>,
    /// Tasks of its tree that may run at once.
    #[serde(default)]
    pub tree_max_parallel: Option<u32>,
    /// Its last change, in milliseconds since 1970.
    #[serde(default)]
    pub changed_at: i64,
    /// No client is expected.
    #[serde(default)]
    pub autonomous: bool,
}

impl TaskRow {
    /// Of a task.
    pub fn of(task: &Task) -> Self {
        let open = task.question.as_ref().map(|asking| &asking.question);
        let asked = open.or(task.answered.as_ref().map(|answered| &answered.question));
        Self {
            view: view(task),
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
            asked: asked.cloned(),
            max_parallel: task.head.spec.max_parallel,
            tree_max_parallel: task.head.spec.tree_max_parallel,
            changed_at: task.updated_at,
            autonomous: task.head.autonomous,
        }
    }

    /// As the board takes it.
    pub fn entry(self, task_id: TaskId, registry: &Registry) -> board::Entry {
        let wake_on = wake_on(self.wait.as_ref(), registry);
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
            max_parallel: self.max_parallel,
            tree_max_parallel: self.tree_max_parallel,
            autonomous: self.autonomous,
            waits_since: self.changed_at,
        }
    }
}

/// A task as the board takes it.
pub fn entry(task: &Task, registry: &Registry) -> board::Entry {
    board::Entry {
        task_id: task.head.task_id.clone(),
        id: task.head.spec.id.clone(),
        tree_id: task.head.tree_id.clone(),
        session_id: task.head.session_id.clone(),
        parent: task.head.parent.clone(),
        has_children: task.head.has_children,
        depends_on: task.head.depends_on.clone(),
        run_if: task.head.spec.run_if,
        state: task.state,
        wait: task.wait.clone(),
        wake_on: wake_on(task.wait.as_ref(), registry),
        held: task.held(),
        max_parallel: task.head.spec.max_parallel,
        tree_max_parallel: task.head.spec.tree_max_parallel,
        autonomous: task.head.autonomous,
        waits_since: task.updated_at,
    }
}

fn wake_on(wait: Option<&Wait>, registry: &Registry) -> Vec<ToolName> {
    match wait {
        Some(Wait::Client { tool, .. }) => registry.client_names(tool),
        Some(Wait::Suspended { .. } | Wait::Answer { .. } | Wait::Unknown { .. }) | None => Vec::new(),
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
#[derive(Serialize)]
struct View<'a> {
    task_id: &'a TaskId,
    id: &'a str,
    tree_id: &'a TreeId,
    session_id: &'a SessionId,
    parent: Option<&'a TaskId>,
    goal: &'a str,
    depends_on: &'a [TaskId],
    #[serde(skip_serializing_if = "Option::is_none")]
    client: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bound_to: Option<BoundView<'a>>,
    state: &'static str,
    blocked_reason: Option<String>,
    question: Option<QuestionView<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    answered: Option<AnsweredView<'a>>,
    skip_reason: Option<&'a str>,
    cancel_reason: Option<&'a str>,
    error: Option<&'a Fault>,
    output: Value,
    created_at: String,
    updated_at: String,
    calls: Vec<CallView<'a>>,
}

/// The client that alone goes on with a task, in the API's shape.
#[derive(Serialize)]
struct BoundView<'a> {
    client_id: &'a ClientId,
    machine: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    working_dir: Option<&'a str>,
}

/// While it waits for a client.
fn bound(task: &Task) -> Option<BoundView<'_>> {
    let waits = matches!(task.wait, Some(Wait::Client { .. } | Wait::Suspended { .. }));
    let client_id = task.served_by().filter(|_| waits && !task.head.spec.any_client)?;
    Some(BoundView { client_id, machine: task.served_on().unwrap_or_default(), working_dir: task.works_in() })
}

/// A question that a task waits with, in the API's shape.
#[derive(Serialize)]
struct QuestionView<'a> {
    id: &'a QuestionId,
    call_id: &'a CallId,
    message: &'a str,
    schema: &'a Raw,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<&'a str>,
    asked_at: String,
}

/// The last answer to a question of a task, in the API's shape.
#[derive(Serialize)]
struct AnsweredView<'a> {
    question: &'a QuestionId,
    action: Action,
    by: &'a str,
    at: String,
}

/// A call of a task in the API's shape.
#[derive(Serialize)]
struct CallView<'a> {
    call_id: &'a CallId,
    tool: &'a ToolName,
    route: &'static str,
    client_id: Option<&'a ClientId>,
    machine: Option<&'a str>,
    attempts: u32,
    outcome: Option<&'a str>,
    trace_id: &'a str,
    started_at: String,
    ended_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    late_outcome: Option<&'a str>,
}

fn view(task: &Task) -> Raw {
    let reason_of = |state: State| task.reason.as_deref().filter(|_| task.state == state);
    let calls = task.calls.iter().map(|c| CallView {
        call_id: &c.call_id,
        tool: &c.tool,
        route: c.route,
        client_id: c.client_id.as_ref(),
        machine: c.machine.as_deref(),
        attempts: c.attempts,
        outcome: c.outcome.as_deref(),
        trace_id: &c.trace_id,
        started_at: time(c.started_at),
        ended_at: c.ended_at.map(time),
        late_outcome: c.late.as_deref(),
    });
    let view = View {
        task_id: &task.head.task_id,
        id: &task.head.spec.id,
        tree_id: &task.head.tree_id,
        session_id: &task.head.session_id,
        parent: task.head.parent.as_ref(),
        goal: &task.head.spec.goal,
        depends_on: &task.head.depends_on,
        client: task.head.spec.client.as_deref(),
        bound_to: bound(task),
        state: task.state.word(),
        blocked_reason: task.blocked_reason(),
        question: task.question.as_ref().map(|Asking { question, asked_at }| QuestionView {
            id: &question.question_id,
            call_id: &question.call_id,
            message: &question.message,
            schema: &question.schema,
            url: question.url.as_deref(),
            asked_at: time(*asked_at),
        }),
        answered: task.answered.as_ref().map(|answered| AnsweredView {
            question: &answered.question.question_id,
            action: answered.answer.action,
            by: &answered.by,
            at: time(answered.at),
        }),
        skip_reason: reason_of(State::Skipped),
        cancel_reason: reason_of(State::Cancelled),
        error: task.error.as_ref(),
        output: task.output(),
        created_at: time(task.created_at),
        updated_at: time(task.updated_at),
        calls: calls.collect(),
    };
    Raw::of(&view).unwrap_or_else(|_| Raw::null())
}

/// Milliseconds since 1970 as RFC 3339 in UTC.
pub fn time(ms: i64) -> String {
    chrono::DateTime::from_timestamp_millis(ms).unwrap_or_default().to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}

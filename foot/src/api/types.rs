//! Shapes of the API. What a newer Brain adds is ignored here and kept in the raw answer.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use vance_shared::call::Fault;
use vance_shared::ids::{QuestionId, SessionId, TaskId, TreeId};
use vance_shared::json::Raw;
use vance_shared::question::Action;

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskState {
    /// Waits for its dependencies or a slot.
    Pending,
    /// Works.
    Running,
    /// Waits for a client, an answer or a verdict; its reason says which.
    Blocked,
    /// Waits in the session's pending-client queue.
    Queued,
    /// Ended well.
    Completed,
    /// Ended badly.
    Failed,
    /// Was cancelled.
    Cancelled,
    /// Did not need to, or could not, run.
    Skipped,
    /// A state of a newer Brain: counts as live.
    #[serde(other)]
    Other,
}

impl TaskState {
    /// The states in the order in which a summary counts them.
    pub const ALL: [Self; 9] = [
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
        Self::Skipped,
        Self::Running,
        Self::Blocked,
        Self::Queued,
        Self::Pending,
        Self::Other,
    ];

    /// True if nothing follows.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Cancelled | Self::Skipped => true,
            Self::Pending | Self::Running | Self::Blocked | Self::Queued | Self::Other => false,
        }
    }

    /// True if somebody or something else has to come first.
    pub fn is_waiting(self) -> bool {
        matches!(self, Self::Blocked | Self::Queued)
    }

    /// The API's word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Blocked => "blocked",
            Self::Queued => "queued",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Skipped => "skipped",
            Self::Other => "in another state",
        }
    }
}

/// The answer to a submission.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Submitted {
    /// The new tree.
    pub tree_id: TreeId,
    /// The session it runs in.
    pub session_id: SessionId,
    /// Its tasks.
    pub tasks: Vec<SubmittedTask>,
}

/// A task of a new tree.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct SubmittedTask {
    /// The file's id.
    pub id: String,
    /// The Brain's id.
    pub task_id: TaskId,
}

/// The client that alone goes on with a task.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Bound {
    /// Which one.
    pub client_id: String,
    /// Its machine.
    pub machine: String,
    /// In which folder, if its tools work in one.
    #[serde(default)]
    pub working_dir: Option<String>,
}

/// A list of tasks.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Tasks {
    /// In order of their creation.
    pub tasks: Vec<Task>,
    /// Where the next page goes on.
    #[serde(default)]
    pub next: Option<String>,
}

/// A task.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Task {
    /// The Brain's id.
    pub task_id: TaskId,
    /// The file's id.
    pub id: String,
    /// Its tree.
    pub tree_id: TreeId,
    /// Its session.
    pub session_id: SessionId,
    /// Whose child it is, if any.
    #[serde(default)]
    pub parent: Option<String>,
    /// What it is for.
    #[serde(default)]
    pub goal: Option<String>,
    /// Where it stands.
    pub state: TaskState,
    /// Why it waits.
    #[serde(default)]
    pub blocked_reason: Option<String>,
    /// What it waits to be told.
    #[serde(default)]
    pub question: Option<TaskQuestion>,
    /// Why it was skipped.
    #[serde(default)]
    pub skip_reason: Option<String>,
    /// Who or what cancelled it.
    #[serde(default)]
    pub cancel_reason: Option<String>,
    /// Why it failed.
    #[serde(default)]
    pub error: Option<Fault>,
    /// What it gave.
    #[serde(default)]
    pub output: Option<Value>,
    /// In a list: so large is the output, which is left out there.
    #[serde(default)]
    pub output_bytes: Option<u64>,
    /// What it depends on, where the Brain says: ids of the file or of the Brain.
    #[serde(default)]
    pub depends_on: Vec<String>,
    /// While it waits: the client that began it, which alone goes on with it.
    #[serde(default)]
    pub bound_to: Option<Bound>,
    /// The client that it names, by name or id: no other one will do.
    #[serde(default)]
    pub client: Option<String>,
    /// Its calls.
    #[serde(default)]
    pub calls: Vec<Call>,
}

impl Task {
    /// Why it is where it is, in the Brain's words.
    pub fn reason(&self) -> Option<&str> {
        match self.state {
            TaskState::Skipped => self.skip_reason.as_deref(),
            TaskState::Failed => self.error.as_ref().map(|e| e.message.as_str()),
            TaskState::Cancelled => self.cancel_reason.as_deref(),
            TaskState::Blocked | TaskState::Queued | TaskState::Pending | TaskState::Other => {
                self.blocked_reason.as_deref()
            }
            TaskState::Running | TaskState::Completed => None,
        }
        .filter(|text| !text.is_empty())
    }

    /// The named client that it waits for.
    pub fn named_client(&self) -> Option<&str> {
        let waits = self.state.is_waiting() && self.reason().is_some_and(|why| why.starts_with("Waiting for Client"));
        self.client.as_deref().filter(|_| waits)
    }

    /// How the reason begins that only a person ends.
    pub const UNKNOWN: &str = "Outcome unknown";

    /// How the reason begins that an answer ends.
    pub const ASKED: &str = "Waiting for an answer";

    /// True if it waits for a person's word on what became of its call.
    pub fn is_unknown(&self) -> bool {
        self.state == TaskState::Blocked && self.reason().is_some_and(|reason| reason.starts_with(Self::UNKNOWN))
    }

    /// The call that runs now.
    pub fn current_call(&self) -> Option<&Call> {
        self.calls.iter().rev().find(|call| call.outcome.is_none())
    }
}

/// A call.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Call {
    /// Its id.
    pub call_id: String,
    /// The tool.
    pub tool: String,
    /// `server` or `client`.
    #[serde(default)]
    pub route: Option<String>,
    /// The client that has it.
    #[serde(default)]
    pub client_id: Option<String>,
    /// That client's machine.
    #[serde(default)]
    pub machine: Option<String>,
    /// Deliveries.
    #[serde(default)]
    pub attempts: u64,
    /// `done`, `failed`, `cancelled`, `unknown`; nothing while it runs.
    #[serde(default)]
    pub outcome: Option<String>,
    /// Questions of its server that were declined: nobody waited for them.
    #[serde(default)]
    pub declined_questions: u32,
    /// Its trace.
    #[serde(default)]
    pub trace_id: Option<String>,
}

/// What comes over `/api/v1/events`.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Event {
    /// What happened.
    #[serde(default)]
    pub kind: String,
    /// The task, if it concerns one.
    #[serde(default)]
    pub task_id: Option<TaskId>,
    /// Its tree.
    #[serde(default)]
    pub tree_id: Option<TreeId>,
    /// The session, if it concerns one.
    #[serde(default)]
    pub session_id: Option<SessionId>,
    /// The task's state after it.
    #[serde(default)]
    pub state: Option<TaskState>,
    /// Why.
    #[serde(default)]
    pub reason: Option<String>,
    /// How far the task's call is, 0 to 1 (of the kind [`Event::PROGRESS`]).
    #[serde(default)]
    pub fraction: Option<f64>,
    /// The tool's words on it.
    #[serde(default)]
    pub message: Option<String>,
}

impl Event {
    /// The kind of those that say how far a running call is.
    pub const PROGRESS: &str = "progress";
}

/// A list of sessions.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Sessions {
    /// The caller's sessions.
    pub sessions: Vec<Session>,
}

/// A session.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Session {
    /// Its id.
    pub session_id: SessionId,
    /// `interactive` or `autonomous`.
    #[serde(default)]
    pub mode: Option<String>,
    /// Is it the caller's default session?
    #[serde(default)]
    pub default: bool,
    /// The clients attached to it.
    #[serde(default)]
    pub clients: Vec<Client>,
}

/// A client of a session.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Client {
    /// Its id.
    pub client_id: String,
    /// Its name for people.
    #[serde(default)]
    pub name: Option<String>,
    /// Its machine.
    #[serde(default)]
    pub machine: Option<String>,
    /// `online`, `grace`, `offline`.
    #[serde(default)]
    pub presence: Option<String>,
    /// Tools of it that the Brain did not take.
    #[serde(default)]
    pub refused: Vec<RefusedTool>,
}

/// A tool that the Brain did not take.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct RefusedTool {
    /// Its name.
    pub name: String,
    /// Why.
    #[serde(default)]
    pub reason: String,
}

/// A session's active registry.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct SessionTools {
    /// Its tools.
    pub tools: Vec<SessionTool>,
}

/// A tool of a session.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct SessionTool {
    /// Full name.
    pub name: String,
    /// `server`, `client`, `both`, …
    #[serde(default)]
    pub location: String,
    /// Can it run now?
    #[serde(default)]
    pub available: bool,
    /// If not, why.
    #[serde(default)]
    pub unavailable_reason: Option<String>,
    /// Labels.
    #[serde(default)]
    pub labels: Vec<String>,
    /// `safe` or `unsafe`.
    #[serde(default)]
    pub replay: Option<String>,
    /// The clients that report it.
    #[serde(default)]
    pub clients: Vec<String>,
}

/// A call over the API.
#[derive(Debug, Clone, Serialize)]
pub struct CallRequest {
    /// A JSON object.
    pub arguments: Raw,
    /// Another session than the default one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// A duration such as `30s`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// What its server asks waits for an answer.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub ask: bool,
}

/// Open questions of tasks and calls.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Questions {
    /// From the oldest on.
    pub questions: Vec<OpenQuestion>,
}

/// A question that waits for a person.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct OpenQuestion {
    /// What is asked.
    #[serde(flatten)]
    pub question: TaskQuestion,
    /// The task that waits with it; none: a call without a task.
    #[serde(default)]
    pub task_id: Option<TaskId>,
    /// The tool whose server asks.
    #[serde(default)]
    pub tool: String,
}

/// The answer to a call.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct Called {
    /// The call.
    pub call: Call,
    /// What the tool gave.
    #[serde(default)]
    pub result: Option<CallOutput>,
    /// Why it failed, where the Brain says it beside the result.
    #[serde(default)]
    pub error: Option<Fault>,
}

/// A tool's result as tasks see it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct CallOutput {
    /// All text parts, joined.
    pub text: Option<String>,
    /// Structured content, if any.
    pub structured: Option<Value>,
    /// The typed parts.
    pub content: Option<Value>,
}

/// What a tool's server wants to know before its call goes on.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct TaskQuestion {
    /// Its identity.
    pub id: QuestionId,
    /// The server's words.
    pub message: String,
    /// JSON Schema of the answer.
    pub schema: Value,
    /// To be opened by the person, instead of fields.
    #[serde(default)]
    pub url: Option<String>,
}

/// An answer to a question.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TaskAnswer {
    /// What is done with it.
    pub action: Action,
    /// With `accept`: the fields.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<serde_json::Map<String, Value>>,
    /// Which question; without it the one that is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub question: Option<QuestionId>,
}

/// A verdict on an unknown outcome.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Resolve {
    /// `done`, `failed` or `retry`.
    #[serde(rename = "as")]
    pub verdict: Verdict,
    /// What the call gave, for `done`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Raw>,
}

/// How a person decides an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, clap::ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It ran.
    Done,
    /// It did not, and shall not.
    Failed,
    /// Run it again.
    Retry,
}

//! A task's life. State is the fold of its events; `handle` decides which events an input makes and what to do once they
//! are stored.
//!
//! | from | event | to |
//! |---|---|---|
//! | pending | started (dependencies done, a slot is free) | running |
//! | pending | skipped (a dependency failed, was cancelled or skipped) | skipped |
//! | running | waiting (client absent, strategy block; line cut; outcome unknown; a question is open) | blocked |
//! | running | waiting (client absent, strategy queue) | queued |
//! | running | skipped (client absent, strategy skip) | skipped |
//! | blocked, queued | resumed | running |
//! | running | completed, failed | completed, failed |
//! | any live state | cancelled | cancelled |
//! | failed, cancelled, skipped | retried (a person asks) | pending |
//!
//! Terminal states absorb: a late result is recorded and changes nothing.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use vance_shared::call::{Fault, Outcome};
use vance_shared::ids::{CallId, ClientId, QuestionId, SessionId, TaskId, TreeId};
use vance_shared::json::Raw;
use vance_shared::names::ToolName;
use vance_shared::question::{Answer, Question, QuestionEnd};
use vance_shared::tool::Replay;
use vance_shared::trace::TraceContext;

use crate::spec::{EngineSpec, TaskSpec};

mod fold;
mod machine;
mod question;
mod standing;
#[cfg(test)]
mod tests;

pub use question::MAX_QUESTIONS;
pub use standing::{Answered, Asking, CallRecord, Here, Task, shown_result};

/// Safe calls whose process died are run again at most this often in a row: a tool that kills its host each time fails.
pub const MAX_SAFE_RERUNS: u32 = 5;

/// A side that offers a tool and says this often in a row that it cannot run it now: the step fails. With [`busy_wait`] in between
/// that is a minute, like a call's own deadline.
pub const MAX_UNAVAILABLE: u32 = 15;

/// The first pause before another try to reach a side that answered `busy`, or a server pack that starts.
pub const BUSY_WAIT: Duration = Duration::from_millis(500);

/// The longest: a side that has room again is not left waiting for longer.
pub const BUSY_WAIT_MAX: Duration = Duration::from_secs(5);

/// The pause after `times` tries in a row at which nothing ran: it doubles. Whoever waits shortens it by some chance, so that
/// those who were refused together do not come back together.
pub fn busy_wait(times: u32) -> Duration {
    BUSY_WAIT.saturating_mul(1 << times.saturating_sub(1).min(8)).min(BUSY_WAIT_MAX)
}

/// A task's state, in the contract's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // the words are the documentation
pub enum State {
    Pending,
    Running,
    Blocked,
    Queued,
    Completed,
    Failed,
    Cancelled,
    Skipped,
}

impl State {
    /// No way out but a person's retry.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Pending | Self::Running | Self::Blocked | Self::Queued => false,
            Self::Completed | Self::Failed | Self::Cancelled | Self::Skipped => true,
        }
    }

    /// The contract's word.
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
        }
    }
}

/// What was submitted: the first event of a task's stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// Identity.
    pub task_id: TaskId,
    /// The tree.
    pub tree_id: TreeId,
    /// The session.
    pub session_id: SessionId,
    /// The principal that submitted it.
    pub owner: String,
    /// The task around it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<TaskId>,
    /// It waits for children and runs no steps itself.
    #[serde(default)]
    pub has_children: bool,
    /// What must be done first.
    #[serde(default)]
    pub depends_on: Vec<TaskId>,
    /// As written.
    pub spec: TaskSpec,
    /// The engine's sets, resolved at submission.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineSpec>,
    /// No client is expected.
    #[serde(default)]
    pub autonomous: bool,
    /// The client that submitted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted_by: Option<ClientId>,
    /// The span of the submission.
    pub trace: TraceContext,
}

/// Where a call was placed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The server runs it.
    Server,
    /// A client runs it.
    Client {
        /// Who.
        client_id: ClientId,
        /// On which machine.
        machine: String,
        /// In which folder, if the tool works in one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        folder: Option<String>,
    },
}

impl Place {
    /// The client, if it is one.
    pub fn client(&self) -> Option<&ClientId> {
        match self {
            Self::Server => None,
            Self::Client { client_id, .. } => Some(client_id),
        }
    }
}

/// A call that has no outcome yet.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpenCall {
    /// Idempotency key.
    pub call_id: CallId,
    /// Deliveries so far.
    pub attempt: u32,
    /// Which step.
    pub step: usize,
    /// The tool as the task names it.
    pub tool: ToolName,
    /// Its name on the side that runs it.
    pub target_tool: ToolName,
    /// Where.
    pub place: Place,
    /// Evaluated arguments.
    pub arguments: Raw,
    /// May it run twice?
    pub replay: Replay,
    /// Deadline from dispatch.
    pub timeout_ms: u64,
    /// The span of its first delivery.
    pub trace: TraceContext,
}

/// Why a task waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wait {
    /// For any client (or the one that it is bound to) that offers the tool.
    Client {
        /// As the task names it.
        tool: ToolName,
        /// In the session's queue rather than blocked.
        queued: bool,
    },
    /// For the client that runs its call: the line was cut.
    Suspended {
        /// As the task names it.
        tool: ToolName,
        /// Who runs it.
        client_id: ClientId,
        /// The call.
        call_id: CallId,
    },
    /// For a person's word on an unknown outcome.
    Unknown {
        /// As the task names it.
        tool: ToolName,
        /// The call.
        call_id: CallId,
    },
    /// For a person's answer to a question of the call's server.
    Answer {
        /// The call.
        call_id: CallId,
        /// Who runs it; none: the server.
        client_id: Option<ClientId>,
        /// The question in one line of plain characters.
        about: String,
    },
}

impl Wait {
    /// The reason, word for word as the documents have it.
    pub fn reason(&self) -> String {
        match self {
            Self::Answer { about, .. } => format!("Waiting for an answer: {about}"),
            Self::Client { tool, .. } | Self::Suspended { tool, .. } => format!("Waiting for Client for Tool: {tool}"),
            Self::Unknown { tool, call_id } => format!("Outcome unknown for Tool: {tool} (call {call_id})"),
        }
    }

    fn state(&self) -> State {
        if matches!(self, Self::Client { queued: true, .. }) { State::Queued } else { State::Blocked }
    }
}

/// What happened to a task. Stored; the names are part of the store's format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, clippy::large_enum_variant)] // the state table above says what each means; lists of events are short
pub enum Event {
    Submitted(Head),
    Started {},
    CallPlaced(OpenCall),
    CallSentAgain {
        call_id: CallId,
        attempt: u32,
    },
    CallWithdrawn {
        call_id: CallId,
    },
    CallEnded {
        call_id: CallId,
        outcome: Outcome,
    },
    LateResult {
        call_id: CallId,
        outcome: String,
    },
    Waiting {
        wait: Wait,
    },
    QuestionAsked {
        question: Question,
    },
    QuestionAnswered {
        question_id: QuestionId,
        answer: Answer,
        by: String,
    },
    QuestionEnded {
        question_id: QuestionId,
        how: QuestionEnd,
    },
    Resumed {},
    StepFailed {
        error: Fault,
        attempt: u32,
        backoff_ms: u64,
    },
    Resolved {
        call_id: CallId,
        verdict: Verdict,
    },
    Completed {},
    Failed {
        error: Fault,
    },
    Cancelled {
        reason: String,
    },
    Skipped {
        reason: String,
    },
    Retried {
        /// Another machine or folder may go on with it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        any_client: bool,
    },
}

impl Event {
    /// The state that the event leads to, if it leads to another.
    pub fn enters(&self) -> Option<State> {
        match self {
            Self::Submitted(_) | Self::Retried { .. } => Some(State::Pending),
            Self::Started {} | Self::Resumed {} => Some(State::Running),
            Self::Waiting { wait } => Some(wait.state()),
            Self::Completed {} => Some(State::Completed),
            Self::Failed { .. } => Some(State::Failed),
            Self::Cancelled { .. } => Some(State::Cancelled),
            Self::Skipped { .. } => Some(State::Skipped),
            Self::CallPlaced(_)
            | Self::CallSentAgain { .. }
            | Self::CallWithdrawn { .. }
            | Self::CallEnded { .. }
            | Self::LateResult { .. }
            | Self::QuestionAsked { .. }
            | Self::QuestionAnswered { .. }
            | Self::QuestionEnded { .. }
            | Self::StepFailed { .. }
            | Self::Resolved { .. } => None,
        }
    }

    /// Why the task is in that state, in one line.
    pub fn reason(&self) -> Option<String> {
        match self {
            Self::Waiting { wait } => Some(wait.reason()),
            Self::Failed { error } | Self::StepFailed { error, .. } => Some(error.message.clone()),
            Self::Cancelled { reason } | Self::Skipped { reason } => Some(reason.clone()),
            Self::QuestionAnswered { answer, by, .. } => Some(format!("{} by {by}", answer.action.past())),
            Self::Submitted(_)
            | Self::Started {}
            | Self::CallPlaced(_)
            | Self::CallSentAgain { .. }
            | Self::CallWithdrawn { .. }
            | Self::CallEnded { .. }
            | Self::LateResult { .. }
            | Self::QuestionAsked { .. }
            | Self::QuestionEnded { .. }
            | Self::Resumed {}
            | Self::Resolved { .. }
            | Self::Completed {}
            | Self::Retried { .. } => None,
        }
    }

    /// The event's name in the store and in the event stream.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Submitted(_) => "task_submitted",
            Self::Started {} => "task_started",
            Self::CallPlaced(_) => "call_placed",
            Self::CallSentAgain { .. } => "call_sent_again",
            Self::CallWithdrawn { .. } => "call_withdrawn",
            Self::CallEnded { .. } => "call_ended",
            Self::LateResult { .. } => "late_result",
            Self::Waiting { .. } => "task_waiting",
            Self::QuestionAsked { .. } => "question_asked",
            Self::QuestionAnswered { .. } => "question_answered",
            Self::QuestionEnded { .. } => "question_ended",
            Self::Resumed {} => "task_resumed",
            Self::StepFailed { .. } => "step_failed",
            Self::Resolved { .. } => "call_resolved",
            Self::Completed {} => "task_completed",
            Self::Failed { .. } => "task_failed",
            Self::Cancelled { .. } => "task_cancelled",
            Self::Skipped { .. } => "task_skipped",
            Self::Retried { .. } => "task_retried",
        }
    }
}

/// A person's word on an unknown outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It ran; this is its output.
    Done {
        /// The step's structured result.
        output: Value,
    },
    /// It failed: the task fails.
    Failed,
    /// Run it again.
    Retry,
}

/// What comes to a task.
#[derive(Debug, Clone, PartialEq)]
pub enum Input {
    /// Run, or look again at what it waits for.
    Start,
    /// The answer to [`Effect::Route`].
    Routed(Routed),
    /// A verdict on a call. `from`: the client that said so.
    CallEnded {
        /// The call.
        call_id: CallId,
        /// Who says so; `None`: the server.
        from: Option<ClientId>,
        /// The verdict.
        outcome: Outcome,
    },
    /// The line to the client that runs the call was cut.
    CallSuspended(CallId),
    /// The client is back and still runs the call.
    CallAttached(CallId),
    /// The client is back and never journalled the call.
    CallNeverArrived(CallId),
    /// The call was not sent (client gone or busy): nothing ran.
    CallNotSent {
        /// The call.
        call_id: CallId,
        /// Wait a little before routing again.
        busy: bool,
    },
    /// The call's server asks a person. Comes again with each connection of the client while the question is open there.
    Asked(Question),
    /// The question is over for the call's server.
    QuestionEnded {
        /// The call.
        call_id: CallId,
        /// The question.
        question_id: QuestionId,
        /// How.
        how: QuestionEnd,
    },
    /// A person answers; the answer fits the question.
    Answer {
        /// Which question.
        question_id: QuestionId,
        /// The answer.
        answer: Answer,
        /// Who.
        by: String,
    },
    /// All children are terminal.
    ChildrenEnded(ChildrenEnd),
    /// A dependency did not complete.
    DependencyFailed {
        /// Names it.
        reason: String,
    },
    /// A person or a parent stops it.
    Cancel {
        /// Why.
        reason: String,
    },
    /// A person wants it to run again.
    Retry {
        /// Another machine or folder may go on with it.
        any_client: bool,
    },
    /// A person's word.
    Resolve(Verdict),
    /// The task's own time is over.
    TimedOut,
}

/// How a task's children ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChildrenEnd {
    /// Completed or skipped.
    Done,
    /// One failed.
    Failed {
        /// The file's id of one that failed.
        child: String,
    },
    /// One was cancelled, none failed.
    Cancelled {
        /// The file's id of one that was cancelled.
        child: String,
    },
}

/// Where the current step goes.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant)] // lives for one match
pub enum Routed {
    /// Place it.
    Placed(OpenCall),
    /// Wait for a client.
    Wait {
        /// Queue instead of block.
        queued: bool,
    },
    /// The server's side of the tool is about to come up.
    NotYet,
    /// Skip the task.
    Skip,
    /// The step cannot run.
    Fault(Fault),
}

/// What to do once the events are stored.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant)] // lives for one match
pub enum Effect {
    /// Decide where the current step runs; needs no stored state before it.
    Route,
    /// Deliver the call.
    Dispatch(OpenCall),
    /// Ask the session how the call stands on its client.
    Reattach(OpenCall),
    /// Stop the call where it runs: on that client, or on the server. With the reason.
    CancelCall(CallId, Option<ClientId>, String),
    /// Give the call's server its answer: on that client, or here.
    Reply {
        /// Who runs the call; none: the server.
        client_id: Option<ClientId>,
        /// The call.
        call_id: CallId,
        /// The question.
        question_id: QuestionId,
        /// The answer.
        answer: Answer,
    },
    /// The result is stored: tell the client that it may forget it.
    Ack(CallId, ClientId),
    /// Nothing to do until something changes.
    Park,
    /// Look again after this time. The task needs no slot until then.
    LookAgain(Duration),
    /// The children may run now.
    ChildrenMayRun,
    /// Terminal.
    Ended,
}

/// The answer to an input.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Step {
    /// To be stored first, all or nothing.
    pub events: Vec<Event>,
    /// To be done then.
    pub effects: Vec<Effect>,
    /// A person's command that makes no sense now, with the reason.
    pub refused: Option<Fault>,
}

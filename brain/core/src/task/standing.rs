//! A task as its events left it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};
use vance_shared::call::Fault;
use vance_shared::ids::{CallId, ClientId};
use vance_shared::json::Raw;
use vance_shared::names::ToolName;
use vance_shared::question::{Answer, Question};
use vance_shared::tool::ToolResult;

use super::{Head, OpenCall, State, Wait};

/// One call in the task's history, in the contract's shape.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[allow(missing_docs)] // fields are the contract's
pub struct CallRecord {
    pub call_id: CallId,
    pub tool: ToolName,
    pub route: &'static str,
    pub client_id: Option<ClientId>,
    pub machine: Option<String>,
    /// The folder that it worked in, if its tool works in one.
    pub folder: Option<String>,
    pub attempts: u32,
    pub outcome: Option<String>,
    pub trace_id: String,
    pub started_at: i64,
    pub ended_at: Option<i64>,
    pub late: Option<String>,
}

/// A question that waits for a person.
#[derive(Debug, Clone, PartialEq)]
pub struct Asking {
    /// What is asked.
    pub question: Question,
    /// Since when.
    pub asked_at: i64,
}

/// A person's answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Answered {
    /// To what.
    pub question: Question,
    /// What was said.
    pub answer: Answer,
    /// By whom.
    pub by: String,
    /// When.
    pub at: i64,
    /// The call's server has it.
    pub arrived: bool,
}

/// A task, folded from its events.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// As submitted.
    pub head: Arc<Head>,
    /// Where it is.
    pub state: State,
    /// What it waits for.
    pub wait: Option<Wait>,
    /// Why it was skipped or cancelled.
    pub reason: Option<String>,
    /// Why it failed.
    pub error: Option<Fault>,
    /// The next step.
    pub step: usize,
    /// Attempts of the current step that failed.
    pub failed_attempts: u32,
    /// Unknown outcomes of the current step that were simply run again.
    pub safe_reruns: u32,
    /// Calls of the current step in a row of which nothing ran.
    pub not_run: u32,
    /// Results by name.
    pub results: BTreeMap<String, Value>,
    /// The last step's result.
    pub last_result: Option<Value>,
    /// The call without an outcome.
    pub call: Option<OpenCall>,
    /// An unsafe call of the current step that may have run, and on which nobody has decided.
    pub undecided: Option<CallId>,
    /// The question of the open call that nobody has answered.
    pub question: Option<Asking>,
    /// Questions of the open call so far.
    pub asked: u32,
    /// The last answer to a question.
    pub answered: Option<Answered>,
    /// The server's call that this very process runs.
    pub here: Here,
    /// So many of its calls were before a person let it go to another client: they bind it no more.
    pub bound_from: usize,
    /// All calls.
    pub calls: Vec<CallRecord>,
    /// How often it began to run: from its start, after a wait, after a retry.
    pub runs: u32,
    /// Milliseconds that it has been running before `running_since`.
    pub ran_ms: i64,
    /// Since when it runs.
    pub running_since: Option<i64>,
    /// Submission.
    pub created_at: i64,
    /// Last event.
    pub updated_at: i64,
    /// Events so far: the version of the stream.
    pub version: u32,
}

/// Not state: which call was given to the server by this process and not by one before it. Neither stored nor compared.
#[derive(Debug, Clone, Default)]
pub struct Here(pub(crate) Option<CallId>);

impl PartialEq for Here {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Task {
    /// The client that ran its calls so far: it goes on there.
    pub fn served_by(&self) -> Option<&ClientId> {
        self.binding().rev().find_map(|c| c.client_id.as_ref())
    }

    /// The machine of that client.
    pub fn served_on(&self) -> Option<&str> {
        self.binding().rev().find_map(|c| c.machine.as_deref())
    }

    /// The folder in which its calls worked so far.
    pub fn works_in(&self) -> Option<&str> {
        self.binding().rev().find_map(|c| c.folder.as_deref())
    }

    fn binding(&self) -> impl DoubleEndedIterator<Item = &CallRecord> {
        self.calls.iter().skip(self.bound_from)
    }

    /// Its open call on a client.
    pub fn held(&self) -> Option<(CallId, ClientId)> {
        let call = self.call.as_ref()?;
        call.place.client().map(|client| (call.call_id.clone(), client.clone()))
    }

    /// Its open call on the server.
    pub fn held_by_server(&self) -> Option<&CallId> {
        self.call.as_ref().filter(|call| call.place.client().is_none()).map(|call| &call.call_id)
    }

    /// The server's call is run by this very process, though another actor of the task gave it away.
    pub fn runs_here(&mut self, call_id: CallId) {
        self.here = Here(Some(call_id));
    }

    /// The `blocked_reason` of the API.
    pub fn blocked_reason(&self) -> Option<String> {
        self.wait.as_ref().map(Wait::reason)
    }

    /// The step that is next, if there is one.
    pub fn current_step(&self) -> Option<&crate::spec::StepSpec> {
        self.head.spec.steps.get(self.step)
    }

    /// `as:` names of its steps, else the last step's result under `result`.
    pub fn output(&self) -> Value {
        if self.results.is_empty() {
            return self.last_result.as_ref().map_or(Value::Null, |r| json!({ "result": r }));
        }
        Value::Object(self.results.iter().map(|(k, v)| (k.clone(), v.clone())).collect())
    }

    /// Milliseconds of the task's `timeout` that are left.
    pub fn time_left_ms(&self, now: i64) -> Option<i64> {
        let limit = i64::try_from(self.head.spec.timeout?.as_millis()).unwrap_or(i64::MAX);
        let running = self.running_since.map_or(0, |since| now.saturating_sub(since));
        Some(limit.saturating_sub(self.ran_ms.saturating_add(running)))
    }
}

impl State {
    /// A person may want it to run again.
    pub fn can_be_retried(self) -> bool {
        match self {
            Self::Failed | Self::Cancelled | Self::Skipped => true,
            Self::Pending | Self::Running | Self::Blocked | Self::Queued | Self::Completed => false,
        }
    }

    /// Why a retry is refused.
    pub fn not_retryable(self) -> Option<Fault> {
        let text = format!("the task is {}; a failed, cancelled or skipped task can be retried", self.word());
        (!self.can_be_retried()).then(|| Fault::new("not_retryable", text))
    }
}

/// A tool's result as expressions and the API see it.
pub fn shown_result(result: &ToolResult) -> Value {
    json!({
        "text": result.joined_text(),
        "structured": result.structured.as_ref().map(Raw::value),
        "content": result.content.value(),
    })
}

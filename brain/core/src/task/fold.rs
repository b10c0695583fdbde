//! Events to state. No decision is made here: what is stored has happened.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use vance_shared::call::Outcome;
use vance_shared::ids::CallId;
use vance_shared::tool::Replay;

use super::{Answered, Asking, CallRecord, Event, Head, Here, OpenCall, Place, State, Task, Verdict, shown_result};

impl Task {
    /// A task that was just submitted.
    pub fn new(head: Head, at: i64) -> Self {
        Self {
            head: Arc::new(head),
            state: State::Pending,
            wait: None,
            reason: None,
            error: None,
            step: 0,
            failed_attempts: 0,
            bound_from: 0,
            safe_reruns: 0,
            not_run: 0,
            results: BTreeMap::new(),
            last_result: None,
            call: None,
            undecided: None,
            question: None,
            asked: 0,
            answered: None,
            here: Here::default(),
            calls: Vec::new(),
            runs: 0,
            ran_ms: 0,
            running_since: None,
            created_at: at,
            updated_at: at,
            version: 1,
        }
    }

    /// Folds a whole stream. `None` if it does not begin with a submission.
    pub fn of(events: impl IntoIterator<Item = (Event, i64)>) -> Option<Self> {
        let mut events = events.into_iter();
        let (Event::Submitted(head), at) = events.next()? else { return None };
        let mut task = Self::new(head, at);
        for (event, at) in events {
            task.fold(&event, at);
        }
        Some(task)
    }

    /// Folds one event.
    pub fn fold(&mut self, event: &Event, at: i64) {
        self.version += 1;
        self.updated_at = at;
        match event {
            Event::Submitted(_) => {}
            Event::Started {} | Event::Resumed {} => {
                self.wait = None;
                self.runs += 1;
                self.enter(State::Running, at);
            }
            Event::CallPlaced(call) => {
                self.calls.push(record(call, at));
                self.call = Some(call.clone());
                (self.question, self.asked) = (None, 0);
            }
            Event::CallSentAgain { call_id, attempt } => {
                // What asked is gone.
                self.question = None;
                if let Some(call) = self.call.as_mut().filter(|c| c.call_id == *call_id) {
                    call.attempt = *attempt;
                }
                if let Some(record) = self.record(call_id) {
                    record.attempts = *attempt;
                }
            }
            Event::CallWithdrawn { call_id } => {
                self.calls.retain(|c| c.call_id != *call_id);
                self.close(call_id);
                self.not_run += 1;
            }
            Event::CallEnded { call_id, outcome } => {
                self.not_run = 0;
                self.ended(call_id, outcome, at);
            }
            Event::LateResult { call_id, outcome } => {
                if let Some(record) = self.record(call_id) {
                    record.late = Some(outcome.clone());
                }
            }
            Event::Waiting { wait } => {
                self.enter(wait.state(), at);
                self.wait = Some(wait.clone());
                self.not_run = 0;
            }
            Event::QuestionAsked { question } => {
                self.asked += 1;
                self.question = Some(Asking { question: question.clone(), asked_at: at });
            }
            Event::QuestionAnswered { question_id, answer, by } => {
                let asking = self.question.take_if(|asking| asking.question.question_id == *question_id);
                self.answered = asking.map(|asking| Answered {
                    question: asking.question,
                    answer: answer.clone(),
                    by: by.clone(),
                    at,
                    arrived: false,
                });
            }
            Event::QuestionEnded { question_id, .. } => {
                self.question.take_if(|asking| asking.question.question_id == *question_id);
                if let Some(answered) = self.answered.as_mut().filter(|a| a.question.question_id == *question_id) {
                    answered.arrived = true;
                }
            }
            Event::StepFailed { attempt, .. } => self.failed_attempts = *attempt,
            Event::Resolved { call_id, verdict } => self.resolved(call_id, verdict, at),
            Event::Completed {} => self.end(State::Completed, at),
            Event::Failed { error } => {
                self.error = Some(error.clone());
                self.end(State::Failed, at);
            }
            Event::Cancelled { reason } => {
                self.reason = Some(reason.clone());
                self.cancel_open(at);
                self.end(State::Cancelled, at);
            }
            Event::Skipped { reason } => {
                self.reason = Some(reason.clone());
                self.end(State::Skipped, at);
            }
            Event::Retried { any_client } => {
                if *any_client {
                    self.bound_from = self.calls.len();
                }
                self.enter(State::Pending, at);
                (self.error, self.reason, self.wait, self.call) = (None, None, None, None);
                self.question = None;
                (self.failed_attempts, self.safe_reruns, self.ran_ms) = (0, 0, 0);
            }
        }
    }

    fn enter(&mut self, state: State, at: i64) {
        if let Some(since) = self.running_since.take() {
            self.ran_ms = self.ran_ms.saturating_add(at.saturating_sub(since));
        }
        if state == State::Running {
            self.running_since = Some(at);
        }
        self.state = state;
    }

    fn end(&mut self, state: State, at: i64) {
        self.cancel_open(at);
        self.wait = None;
        self.enter(state, at);
    }

    /// A terminal task has no open call; one that was open ends as cancelled in the history.
    fn cancel_open(&mut self, at: i64) {
        self.question = None;
        if let Some(call) = self.call.take()
            && let Some(record) = self.record(&call.call_id)
            && record.outcome.is_none()
        {
            record.outcome = Some("cancelled".to_owned());
            record.ended_at = Some(at);
        }
    }

    fn ended(&mut self, call_id: &CallId, outcome: &Outcome, at: i64) {
        self.question.take_if(|asking| asking.question.call_id == *call_id);
        if let Some(record) = self.record(call_id) {
            record.outcome = Some(outcome.word().to_owned());
            record.ended_at = Some(at);
        }
        let replay = self.call.as_ref().filter(|c| c.call_id == *call_id).map(|c| c.replay);
        let unknown = matches!(outcome, Outcome::Unknown { .. }) && replay == Some(Replay::Unsafe);
        self.undecided = unknown.then(|| call_id.clone());
        match outcome {
            Outcome::Done(result) => {
                self.close(call_id);
                self.step_done(shown_result(result));
            }
            Outcome::Unknown { .. } => self.safe_reruns += 1,
            Outcome::Failed { .. } | Outcome::Cancelled { .. } => self.close(call_id),
        }
    }

    fn resolved(&mut self, call_id: &CallId, verdict: &Verdict, at: i64) {
        if let Some(record) = self.record(call_id) {
            let word = match verdict {
                Verdict::Done { .. } => "done",
                Verdict::Failed => "failed",
                Verdict::Retry => "unknown",
            };
            record.outcome = Some(word.to_owned());
            record.ended_at = Some(at);
        }
        self.close(call_id);
        self.undecided = None;
        if let Verdict::Done { output } = verdict {
            self.step_done(by_hand(output));
        }
    }

    fn step_done(&mut self, result: Value) {
        if let Some(name) = self.current_step().and_then(|s| s.r#as.clone()) {
            self.results.insert(name, result.clone());
        }
        self.last_result = Some(result);
        self.step += 1;
        (self.failed_attempts, self.safe_reruns) = (0, 0);
    }

    fn close(&mut self, call_id: &CallId) {
        self.question.take_if(|asking| asking.question.call_id == *call_id);
        self.call.take_if(|c| c.call_id == *call_id);
    }

    fn record(&mut self, call_id: &CallId) -> Option<&mut CallRecord> {
        self.calls.iter_mut().rev().find(|c| c.call_id == *call_id)
    }
}

/// What a person says that a call gave. `text`, `structured` and `content` are a tool's result as tasks see one; anything else
/// is the structured part of one.
fn by_hand(output: &Value) -> Value {
    const PARTS: [&str; 3] = ["text", "structured", "content"];
    let parts = output.as_object().filter(|o| !o.is_empty() && o.keys().all(|key| PARTS.contains(&key.as_str())));
    let good = |o: &&serde_json::Map<String, Value>| {
        o.get("text").is_none_or(Value::is_string) && o.get("content").is_none_or(Value::is_array)
    };
    if let Some(parts) = parts.filter(good) {
        let part = |key: &str, or: Value| parts.get(key).cloned().unwrap_or(or);
        return json!({
            "text": part("text", json!("")), "structured": part("structured", Value::Null), "content": part("content", json!([])),
        });
    }
    let text = match output {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    };
    json!({"text": text, "structured": output, "content": []})
}

fn record(call: &OpenCall, at: i64) -> CallRecord {
    let (route, client_id, machine, folder) = match &call.place {
        Place::Server => ("server", None, None, None),
        Place::Client { client_id, machine, folder } => {
            ("client", Some(client_id.clone()), Some(machine.clone()), folder.clone())
        }
    };
    CallRecord {
        call_id: call.call_id.clone(),
        tool: call.tool.clone(),
        route,
        client_id,
        machine,
        folder,
        attempts: call.attempt,
        outcome: None,
        trace_id: call.trace.trace_id(),
        started_at: at,
        ended_at: None,
        late: None,
    }
}

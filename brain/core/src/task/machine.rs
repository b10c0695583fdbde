//! Inputs to events and effects.

use std::time::Duration;

use serde_json::Value;
use vance_shared::call::{Fault, Outcome};
use vance_shared::ids::{CallId, ClientId};
use vance_shared::tool::Replay;

use super::{
    BUSY_WAIT, ChildrenEnd, Effect, Event, Here, Input, MAX_SAFE_RERUNS, MAX_UNAVAILABLE, OpenCall, Place, Routed,
    State, Step, Task, Verdict, Wait, busy_wait,
};
use crate::spec::OnUnknown;

/// Longest pause between two attempts of a step.
const MAX_BACKOFF: Duration = Duration::from_secs(600);

/// What a call is told that ends with its task's time.
const TIME_IS_OVER: &str = "the task's timeout is over";

impl Task {
    /// Decides what an input means now, and folds the events that it makes. The caller stores the events, then does the effects.
    pub fn handle(&mut self, input: Input, now: i64) -> Step {
        let mut turn = Turn { task: self, step: Step::default(), now };
        turn.take(input);
        turn.step
    }
}

pub(super) struct Turn<'a> {
    pub(super) task: &'a mut Task,
    step: Step,
    now: i64,
}

impl Turn<'_> {
    pub(super) fn event(&mut self, event: Event) {
        self.task.fold(&event, self.now);
        self.step.events.push(event);
    }

    pub(super) fn effect(&mut self, effect: Effect) {
        self.step.effects.push(effect);
    }

    pub(super) fn refuse(&mut self, code: &str, message: String) {
        self.step.refused = Some(Fault::new(code, message));
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Start => self.start(),
            Input::Routed(routed) => self.routed(routed),
            Input::CallEnded { call_id, from, outcome } => self.call_ended(&call_id, from, outcome),
            Input::CallSuspended(call_id) => self.suspended(&call_id),
            Input::CallAttached(call_id) => self.attached(&call_id),
            Input::CallNeverArrived(call_id) => self.never_arrived(&call_id),
            Input::CallNotSent { call_id, busy } => self.not_sent(&call_id, busy),
            Input::Asked(question) => self.asked(question),
            Input::QuestionEnded { call_id, question_id, how } => self.question_ended(&call_id, question_id, how),
            Input::Answer { question_id, answer, by } => self.answer(question_id, answer, by),
            Input::ChildrenEnded(end) => self.children_ended(end),
            Input::DependencyFailed { reason } => {
                if self.task.state == State::Pending {
                    self.event(Event::Skipped { reason });
                    self.effect(Effect::Ended);
                }
            }
            Input::Cancel { reason } => self.cancel(reason),
            Input::Retry { any_client } => self.retry(any_client),
            Input::Resolve(verdict) => self.resolve(verdict),
            Input::TimedOut => self.timed_out(),
        }
    }

    fn start(&mut self) {
        match self.task.state {
            State::Pending => {
                self.event(Event::Started {});
                self.go_on();
            }
            State::Running => self.go_on(),
            State::Blocked | State::Queued => self.look_again(),
            State::Completed | State::Skipped => self.effect(Effect::Ended),
            State::Failed | State::Cancelled => {
                self.cancel_again();
                self.effect(Effect::Ended);
            }
        }
    }

    /// Its actor fell after the end was stored, maybe before the open call was told to stop. To be told twice changes nothing.
    fn cancel_again(&mut self) {
        let last = self.task.calls.last().filter(|call| call.outcome.as_deref() == Some("cancelled"));
        let Some((call_id, client_id)) = last.map(|call| (call.call_id.clone(), call.client_id.clone())) else {
            return;
        };
        let reason = self.task.reason.clone().unwrap_or_else(|| TIME_IS_OVER.to_owned());
        self.effect(Effect::CancelCall(call_id, client_id, reason));
    }

    /// Runs on from wherever it stands: also after its actor or the whole Brain was restarted.
    fn go_on(&mut self) {
        if self.task.head.has_children {
            self.effect(Effect::ChildrenMayRun);
            return;
        }
        match self.task.call.clone() {
            Some(call) => self.pick_up(call),
            None if self.is_undecided() => self.ask_again(),
            None if self.task.current_step().is_some() => self.effect(Effect::Route),
            None if self.task.head.spec.steps.is_empty() => self.fail(Fault::new(
                "no_steps",
                "the task has a goal but no steps; working toward a goal by a model is not part of this release: give it `steps`",
            )),
            None => self.complete(),
        }
    }

    fn look_again(&mut self) {
        match self.task.wait.clone() {
            Some(Wait::Client { .. }) | None => self.effect(Effect::Route),
            Some(Wait::Suspended { .. }) => match self.task.call.clone() {
                Some(call) => self.effect(Effect::Reattach(call)),
                None => self.effect(Effect::Route),
            },
            Some(Wait::Answer { .. }) => match self.task.call.clone() {
                Some(call) => self.pick_up(call),
                None => self.effect(Effect::Route),
            },
            Some(Wait::Unknown { .. }) => self.effect(Effect::Park),
        }
    }

    /// A person's retry is not a word on a call that may have run.
    fn is_undecided(&self) -> bool {
        self.task.undecided.is_some() && self.task.head.spec.on_unknown != OnUnknown::Retry
    }

    fn ask_again(&mut self) {
        let (Some(call_id), Some(step)) = (self.task.undecided.clone(), self.task.current_step()) else { return };
        let wait = Wait::Unknown { tool: step.call.clone(), call_id };
        self.event(Event::Waiting { wait });
        self.effect(Effect::Park);
    }

    /// A call without an outcome: a client still has it. On the server it runs, or its process is gone.
    fn pick_up(&mut self, call: OpenCall) {
        match call.place {
            Place::Client { .. } => self.effect(Effect::Reattach(call)),
            // Told to look twice; the verdict is on its way.
            Place::Server if self.task.here.0.as_ref() == Some(&call.call_id) => self.park_if_waiting(),
            Place::Server => {
                self.resume();
                let reason = "the process that ran it on the server is gone".to_owned();
                self.verdict(&call, Outcome::Unknown { reason });
            }
        }
    }

    pub(super) fn open(&self, call_id: &CallId) -> Option<OpenCall> {
        self.task.call.as_ref().filter(|c| c.call_id == *call_id).cloned()
    }

    pub(super) fn resume(&mut self) {
        if matches!(self.task.state, State::Blocked | State::Queued) {
            self.event(Event::Resumed {});
        }
    }

    fn routed(&mut self, routed: Routed) {
        if self.task.state.is_terminal() || self.task.state == State::Pending || self.task.call.is_some() {
            return;
        }
        match routed {
            // Decided for an earlier step.
            Routed::Placed(call) if call.step != self.task.step => self.effect(Effect::Route),
            Routed::Placed(call) => {
                self.resume();
                self.task.here = Here((call.place == Place::Server).then(|| call.call_id.clone()));
                self.event(Event::CallPlaced(call.clone()));
                self.effect(Effect::Dispatch(call));
            }
            Routed::Wait { queued } => {
                let Some(tool) = self.task.current_step().map(|s| s.call.clone()) else { return };
                let wait = Wait::Client { tool, queued };
                if self.task.wait.as_ref() != Some(&wait) {
                    self.event(Event::Waiting { wait });
                }
                self.effect(Effect::Park);
            }
            Routed::NotYet => {
                self.resume();
                self.effect(Effect::LookAgain(BUSY_WAIT));
            }
            Routed::Skip => {
                let tool = self.task.current_step().map(|s| s.call.to_string()).unwrap_or_default();
                self.resume();
                self.event(Event::Skipped { reason: format!("no client for tool: {tool}") });
                self.effect(Effect::Ended);
            }
            // Nothing ran, and what is away may be back by then.
            Routed::Fault(error) if error.code == "server_unavailable" => self.attempt_failed(error),
            Routed::Fault(error) => self.fail(error),
        }
    }

    fn call_ended(&mut self, call_id: &CallId, from: Option<ClientId>, outcome: Outcome) {
        let acknowledge = from.clone();
        match self.open(call_id) {
            Some(call)
                if call.place.client() == from.as_ref() && self.is_known_unknown(call_id, &call.place, &outcome) =>
            {
                self.effect(Effect::Park);
            }
            Some(call) if call.place.client() == from.as_ref() => {
                // A call whose outcome was unknown can still get its real one while a person has not decided.
                self.resume();
                self.verdict(&call, outcome);
            }
            // Somebody else's word on an open call counts for nothing and is not acknowledged.
            Some(_) => return,
            None => self.late(call_id, from.as_ref(), &outcome),
        }
        if let Some(client) = acknowledge {
            // Before whatever comes next: the result is stored with these events.
            self.step.effects.insert(0, Effect::Ack(call_id.clone(), client));
        }
    }

    /// A result after the call's end: the first one that says something else is kept in the history.
    fn late(&mut self, call_id: &CallId, from: Option<&ClientId>, outcome: &Outcome) {
        let known = self.task.calls.iter().find(|c| c.call_id == *call_id && c.client_id.as_ref() == from);
        let word = outcome.word();
        if known.is_some_and(|c| c.late.is_none() && c.outcome.as_deref() != Some(word)) {
            self.event(Event::LateResult { call_id: call_id.clone(), outcome: word.to_owned() });
        }
    }

    fn verdict(&mut self, call: &OpenCall, outcome: Outcome) {
        match outcome {
            Outcome::Done(_) => {
                self.event(Event::CallEnded { call_id: call.call_id.clone(), outcome });
                self.go_on();
            }
            Outcome::Failed { ref error, result: None } if self.may_come_again(error, &call.place) => {
                self.event(Event::CallWithdrawn { call_id: call.call_id.clone() });
                self.effect(Effect::LookAgain(busy_wait(self.task.not_run)));
            }
            Outcome::Failed { ref error, .. } => {
                let error = error.clone();
                let may_have_run = error.code == "timeout";
                self.event(Event::CallEnded { call_id: call.call_id.clone(), outcome });
                self.step_failed(call, error, may_have_run);
            }
            Outcome::Cancelled { ref reason } => {
                let error = Fault::new("cancelled", format!("the call was cancelled: {reason}"));
                self.event(Event::CallEnded { call_id: call.call_id.clone(), outcome });
                self.step_failed(call, error, true);
            }
            Outcome::Unknown { .. } => self.unknown(call, outcome),
        }
    }

    /// While a person has not decided: the same unknown outcome once more, or that nothing ran this time, which says nothing of the
    /// time before.
    fn is_known_unknown(&self, id: &CallId, place: &Place, outcome: &Outcome) -> bool {
        let waits = matches!(&self.task.wait, Some(Wait::Unknown { call_id, .. }) if call_id == id);
        waits
            && match outcome {
                Outcome::Unknown { .. } => true,
                Outcome::Failed { error, result: None } => nothing_ran(error, place),
                Outcome::Done(_) | Outcome::Failed { .. } | Outcome::Cancelled { .. } => false,
            }
    }

    fn unknown(&mut self, call: &OpenCall, outcome: Outcome) {
        let call_id = call.call_id.clone();
        let why = match &outcome {
            Outcome::Unknown { reason } => format!("; the last time: {reason}"),
            Outcome::Done(_) | Outcome::Failed { .. } | Outcome::Cancelled { .. } => String::new(),
        };
        self.event(Event::CallEnded { call_id: call_id.clone(), outcome });
        let policy = match call.replay {
            Replay::Safe => OnUnknown::Retry,
            Replay::Unsafe => self.task.head.spec.on_unknown,
        };
        match policy {
            OnUnknown::Retry if self.task.safe_reruns > MAX_SAFE_RERUNS => self.fail(Fault::new(
                "outcome_unknown",
                format!("tool {} ended without an outcome {} times in a row{why}", call.tool, self.task.safe_reruns),
            )),
            OnUnknown::Retry => {
                self.event(Event::Resolved { call_id, verdict: Verdict::Retry });
                self.effect(Effect::Route);
            }
            OnUnknown::Ask => {
                self.event(Event::Waiting { wait: Wait::Unknown { tool: call.tool.clone(), call_id } });
                self.effect(Effect::Park);
            }
            OnUnknown::Fail => {
                let message = format!("the outcome of tool {} (call {call_id}) is unknown{why}", call.tool);
                self.fail(Fault::new("outcome_unknown", message));
            }
        }
    }

    /// Nothing ran, and the tool is expected back: its side is full, its pack starts, or the client that took the call came back
    /// without the tool. Then the call is routed again, and waits if nobody offers the tool any more.
    fn may_come_again(&self, error: &Fault, place: &Place) -> bool {
        error.code == "busy" || (nothing_ran(error, place) && self.task.not_run < MAX_UNAVAILABLE)
    }

    /// `may_have_run`: the call was stopped on its way, so that it may have had its effect. Then `retry` alone does not repeat what
    /// is not safe to repeat.
    fn step_failed(&mut self, call: &OpenCall, error: Fault, may_have_run: bool) {
        let repeatable = call.replay == Replay::Safe || self.task.head.spec.on_unknown == OnUnknown::Retry;
        if may_have_run && !repeatable {
            self.fail(error);
            return;
        }
        self.attempt_failed(error);
    }

    fn attempt_failed(&mut self, error: Fault) {
        let attempt = self.task.failed_attempts + 1;
        let retry = self.task.head.spec.retry;
        if attempt >= retry.max_attempts {
            self.fail(error);
            return;
        }
        let backoff = retry.backoff.saturating_mul(1 << (attempt - 1).min(16)).min(MAX_BACKOFF);
        let backoff_ms = u64::try_from(backoff.as_millis()).unwrap_or(u64::MAX);
        self.event(Event::StepFailed { error, attempt, backoff_ms });
        self.effect(Effect::LookAgain(backoff));
    }

    /// The open call, unless its outcome is unknown: then only a result or a person's word changes anything.
    pub(super) fn under_way(&mut self, call_id: &CallId) -> Option<OpenCall> {
        let call = self.open(call_id)?;
        if matches!(self.task.wait, Some(Wait::Unknown { .. })) {
            self.effect(Effect::Park);
            return None;
        }
        Some(call)
    }

    fn attached(&mut self, call_id: &CallId) {
        let Some(call) = self.under_way(call_id) else { return };
        if self.is_asking() {
            return self.effect(Effect::Park);
        }
        self.resume();
        self.reply_again(&call);
    }

    fn suspended(&mut self, call_id: &CallId) {
        let Some(call) = self.under_way(call_id) else { return };
        if self.is_asking() {
            // It can be answered all the same; the answer waits for the client then.
            return self.effect(Effect::Park);
        }
        let Some(client_id) = call.place.client().cloned() else { return };
        let wait = Wait::Suspended { tool: call.tool, client_id, call_id: call.call_id };
        if self.task.wait.as_ref() != Some(&wait) {
            self.event(Event::Waiting { wait });
        }
        self.effect(Effect::Park);
    }

    /// Sent, but lost on the way: the same call again, under the same id.
    fn never_arrived(&mut self, call_id: &CallId) {
        let Some(call) = self.under_way(call_id).filter(|c| c.place != Place::Server) else { return };
        self.resume();
        self.event(Event::CallSentAgain { call_id: call.call_id.clone(), attempt: call.attempt + 1 });
        if let Some(call) = self.task.call.clone() {
            self.effect(Effect::Dispatch(call));
        }
    }

    fn not_sent(&mut self, call_id: &CallId, busy: bool) {
        let Some(call) = self.under_way(call_id) else { return };
        if self.is_asking() {
            // Said before it arrived after all.
            return self.effect(Effect::Park);
        }
        if call.attempt > 1 {
            // An earlier delivery may have arrived: it stays bound to its client.
            if busy {
                self.resume();
                self.effect(Effect::LookAgain(BUSY_WAIT))
            } else {
                self.suspended(call_id)
            }
            return;
        }
        // Whoever looks again soon runs: a waiting task is let go.
        self.resume();
        self.event(Event::CallWithdrawn { call_id: call_id.clone() });
        self.effect(if busy { Effect::LookAgain(busy_wait(self.task.not_run)) } else { Effect::Route });
    }

    fn children_ended(&mut self, end: ChildrenEnd) {
        if self.task.state != State::Running || !self.task.head.has_children {
            return;
        }
        match end {
            ChildrenEnd::Done => self.complete(),
            ChildrenEnd::Failed { child } => {
                self.fail(Fault::new("child_failed", format!("child task {child} failed")))
            }
            ChildrenEnd::Cancelled { child } => {
                self.event(Event::Cancelled { reason: format!("child task {child} was cancelled") });
                self.effect(Effect::Ended);
            }
        }
    }

    fn complete(&mut self) {
        self.event(Event::Completed {});
        self.effect(Effect::Ended);
    }

    fn fail(&mut self, error: Fault) {
        self.event(Event::Failed { error });
        self.effect(Effect::Ended);
    }

    fn cancel(&mut self, reason: String) {
        if self.task.state.is_terminal() {
            let word = self.task.state.word();
            self.refuse("not_live", format!("the task is already {word}; only a live task can be cancelled"));
            return;
        }
        let open = self.task.call.clone();
        self.event(Event::Cancelled { reason: reason.clone() });
        if let Some(call) = open {
            self.cancel_call(call, reason);
        }
        self.effect(Effect::Ended);
    }

    fn timed_out(&mut self) {
        if self.task.state != State::Running {
            return;
        }
        let open = self.task.call.clone();
        self.event(Event::Failed { error: Fault::new("timeout", "the task ran longer than its `timeout`") });
        if let Some(call) = open {
            self.cancel_call(call, TIME_IS_OVER.to_owned());
        }
        self.effect(Effect::Ended);
    }

    fn cancel_call(&mut self, call: OpenCall, reason: String) {
        self.effect(Effect::CancelCall(call.call_id, call.place.client().cloned(), reason));
    }

    fn retry(&mut self, any_client: bool) {
        match self.task.state.not_retryable() {
            None => self.event(Event::Retried { any_client }),
            Some(fault) => self.step.refused = Some(fault),
        }
    }

    fn resolve(&mut self, verdict: Verdict) {
        let Some(Wait::Unknown { call_id, .. }) = self.task.wait.clone() else {
            self.refuse("not_unknown", "the task does not wait for a word on an unknown outcome".to_owned());
            return;
        };
        let failed = verdict == Verdict::Failed;
        self.event(Event::Resumed {});
        self.event(Event::Resolved { call_id: call_id.clone(), verdict });
        if failed {
            self.fail(Fault::new("resolved_failed", format!("call {call_id} was resolved as failed")));
        } else {
            self.go_on();
        }
    }
}

/// At this delivery; of one before it that says nothing.
fn nothing_ran(error: &Fault, place: &Place) -> bool {
    match error.code.as_str() {
        "busy" | "unavailable" => true,
        "unknown_tool" => place.client().is_some(),
        _ => false,
    }
}

impl Verdict {
    /// From the API's `{"as": …, "output": …}`.
    pub fn parse(word: &str, output: Option<Value>) -> Option<Self> {
        match word {
            "done" => Some(Self::Done { output: output.unwrap_or(Value::Null) }),
            "failed" => Some(Self::Failed),
            "retry" => Some(Self::Retry),
            _ => None,
        }
    }
}

//! What a task shows of itself in its trace: each run is a span, and below it each call.
//!
//! A span is never open while the task waits, which may be for days: it ends with the wait, and the next one links it. So a
//! call whose line is cut is two spans, `suspended` and what came after. Nothing here decides anything.

use vance_brain_core::task::{Event, OpenCall, Place, State, Task, Wait};
use vance_observability::names::{
    CALL_ATTEMPT, CALL_ID, CALL_ROUTE, CLIENT_ID, MACHINE, SESSION_ID, SPAN_CALL, SPAN_TASK_RUN, TASK_ID, TASK_RUN,
    TOOL, TREE_ID,
};
use vance_observability::spans::{Kind, Span, beneath, derived};
use vance_shared::ids::CallId;
use vance_shared::trace::TraceContext;

/// The spans that are open.
#[derive(Debug, Default)]
pub(super) struct Spans {
    run: Option<Span>,
    call: Option<(CallId, Span)>,
    /// A call that is out while the task waits: its end may be the next that is heard of it.
    out: Option<OpenCall>,
}

impl Spans {
    /// Before an input: a task that runs has a run, also if its actor or its process is another one now.
    pub(super) fn resume(&mut self, task: &Task) {
        if self.run.is_none() && task.state == State::Running && !task.head.has_children {
            let span = Span::below(SPAN_TASK_RUN, Kind::Internal, task.head.trace);
            self.run = Some(about(span, task).following(run(task, task.runs)));
        }
        self.out = if self.call.is_none() { task.call.clone() } else { None };
    }

    /// What was just decided.
    pub(super) fn decided(&mut self, task: &Task, events: &[Event]) {
        for event in events {
            match event {
                Event::Started {} | Event::Resumed {} => self.begin(task),
                Event::CallEnded { call_id, outcome } => {
                    if let Some(call) = self.out.take_if(|call| call.call_id == *call_id) {
                        self.go_on(task, &call);
                    }
                    if let Some(span) = self.take(call_id) {
                        span.end_as(outcome);
                    }
                }
                Event::CallWithdrawn { call_id } => self.end_call(call_id, "not_run"),
                Event::CallSentAgain { call_id, .. } => self.end_call(call_id, "never_arrived"),
                Event::Waiting { wait: Wait::Suspended { call_id, .. } } => self.end_call(call_id, "suspended"),
                Event::Waiting { wait: Wait::Answer { call_id, .. } } => self.end_call(call_id, "asks"),
                Event::Failed { .. } | Event::Cancelled { .. } => {
                    if let Some((_, span)) = self.call.take() {
                        span.end("cancelled");
                    }
                }
                Event::Submitted(_)
                | Event::CallPlaced(_)
                | Event::LateResult { .. }
                | Event::Waiting { wait: Wait::Client { .. } | Wait::Unknown { .. } }
                | Event::QuestionAsked { .. }
                | Event::QuestionAnswered { .. }
                | Event::QuestionEnded { .. }
                | Event::StepFailed { .. }
                | Event::Resolved { .. }
                | Event::Completed {}
                | Event::Skipped { .. }
                | Event::Retried { .. } => {}
            }
        }
    }

    fn begin(&mut self, task: &Task) {
        if task.head.has_children {
            return;
        }
        let span = Span::known(SPAN_TASK_RUN, Kind::Internal, task.head.trace, run(task, task.runs));
        let span = about(span, task);
        let former = task.runs.checked_sub(1).filter(|former| *former > 0);
        self.run = Some(match former {
            Some(former) => span.following(run(task, former)),
            None => span,
        });
    }

    /// The span of a call that is about to be placed.
    pub(super) fn of_next_call(&self, task: &Task) -> TraceContext {
        // A task that waits will have resumed when the call is placed.
        beneath(self.run.as_ref().map_or_else(|| run(task, task.runs + 1), Span::context))
    }

    /// A call leaves; gives the span that it travels with.
    pub(super) fn dispatched(&mut self, task: &Task, call: &OpenCall) -> TraceContext {
        let above = self.above(task);
        let kind = kind(call);
        let span = if call.attempt == 1 {
            Span::known(SPAN_CALL, kind, above, call.trace)
        } else {
            Span::below(SPAN_CALL, kind, above).following(call.trace)
        };
        self.open_call(task, call, span)
    }

    /// What is decided is stored and done.
    pub(super) fn settled(&mut self, task: &Task) {
        if task.state != State::Running {
            if let Some(span) = self.run.take() {
                span.end(task.state.word());
            }
            return;
        }
        // It goes on where it runs, after a cut or after our own restart.
        if let (None, Some(call)) = (&self.call, &task.call) {
            self.go_on(task, call);
        }
    }

    fn go_on(&mut self, task: &Task, call: &OpenCall) {
        let span = Span::below(SPAN_CALL, kind(call), self.above(task)).following(call.trace);
        self.open_call(task, call, span);
    }

    fn above(&self, task: &Task) -> TraceContext {
        self.run.as_ref().map_or(task.head.trace, Span::context)
    }

    fn open_call(&mut self, task: &Task, call: &OpenCall, span: Span) -> TraceContext {
        let span = span
            .with(CALL_ID, &call.call_id)
            .with(TOOL, &call.tool)
            .with_number(CALL_ATTEMPT, call.attempt)
            .with(TASK_ID, &task.head.task_id)
            .with(SESSION_ID, &task.head.session_id);
        let span = match &call.place {
            Place::Server => span.with(CALL_ROUTE, "server"),
            Place::Client { client_id, machine, .. } => {
                span.with(CALL_ROUTE, "client").with(CLIENT_ID, client_id).with(MACHINE, machine)
            }
        };
        let context = span.context();
        self.call = Some((call.call_id.clone(), span));
        context
    }

    fn take(&mut self, call_id: &CallId) -> Option<Span> {
        self.call.take_if(|(open, _)| open == call_id).map(|(_, span)| span)
    }

    fn end_call(&mut self, call_id: &CallId, outcome: &str) {
        if let Some(span) = self.take(call_id) {
            span.end(outcome);
        }
    }
}

fn kind(call: &OpenCall) -> Kind {
    match call.place {
        Place::Server => Kind::Internal,
        Place::Client { .. } => Kind::Client,
    }
}

/// A run's span. It follows from the task, so that the next run finds it whatever happened in between.
fn run(task: &Task, number: u32) -> TraceContext {
    derived(task.head.trace, task.head.task_id.as_str(), number)
}

fn about(span: Span, task: &Task) -> Span {
    span.with(TASK_ID, &task.head.task_id)
        .with(TREE_ID, &task.head.tree_id)
        .with(SESSION_ID, &task.head.session_id)
        .with_number(TASK_RUN, task.runs)
}

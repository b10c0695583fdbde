//! The spans of a call without a task: one from each dispatch, or return of its client, to the next cut or its end.

use vance_observability::names::{CALL_ATTEMPT, CALL_ID, CALL_ROUTE, CLIENT_ID, MACHINE, SESSION_ID, SPAN_CALL, TOOL};
use vance_observability::spans::{Kind, Span};
use vance_shared::call::Outcome;
use vance_shared::ids::SessionId;
use vance_shared::trace::TraceContext;

use super::Run;

/// The spans of one call.
pub(super) struct CallSpans<'a> {
    session_id: &'a SessionId,
    first: Option<TraceContext>,
    open: Option<Span>,
}

impl<'a> CallSpans<'a> {
    pub(super) fn new(session_id: &'a SessionId) -> Self {
        Self { session_id, first: None, open: None }
    }

    /// It leaves; gives the span that it travels with.
    pub(super) fn open(&mut self, run: &Run) -> TraceContext {
        let kind = if run.client.is_some() { Kind::Client } else { Kind::Internal };
        let mut span = Span::below(SPAN_CALL, kind, run.trace)
            .with(CALL_ID, &run.call_id)
            .with(TOOL, &run.tool)
            .with(CALL_ROUTE, run.route())
            .with_number(CALL_ATTEMPT, run.attempts)
            .with(SESSION_ID, self.session_id);
        if let Some((client_id, machine)) = &run.client {
            span = span.with(CLIENT_ID, client_id).with(MACHINE, machine);
        }
        if let Some(first) = self.first {
            span = span.following(first);
        }
        let context = span.context();
        self.first.get_or_insert(context);
        self.open = Some(span);
        context
    }

    /// Its client is back.
    pub(super) fn go_on(&mut self, run: &Run) {
        if self.open.is_none() {
            self.open(run);
        }
    }

    pub(super) fn close(&mut self, outcome: &str) {
        if let Some(span) = self.open.take() {
            span.end(outcome);
        }
    }

    pub(super) fn end(mut self, run: &Run, outcome: &Outcome) {
        self.go_on(run);
        if let Some(span) = self.open {
            span.end_as(outcome);
        }
    }
}

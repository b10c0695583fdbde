//! Spans: what happened in a call, from where to where, for a collector of traces.
//!
//! A span here is a value of whoever does the work, not an entry of a thread's stack: a call wanders over actors, threads and
//! processes, and takes along only its [`TraceContext`]. Without a collector a span is nothing but the context of the span above
//! it, handed on as it came, so that others who do send spans still find their parents: no clock is read, no field is
//! formatted, nothing is kept.
//!
//! A span holds names, ids, numbers and outcomes. Never arguments, results, messages or secrets.

use std::fmt::Display;
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::trace::{Link, SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{Key, KeyValue, Value};
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use vance_shared::call::Outcome;
use vance_shared::trace::TraceContext;

use crate::export::Exporter;
pub use crate::export::StartError;
use crate::names::{ERROR_TYPE, OUTCOME};

/// Longest value of a field: a name or an id. Machines and clients choose some of them.
const VALUE_BYTES: usize = 200;

/// How an abandoned span ended: whoever opened it went away before it had an end.
const ABANDONED: &str = "abandoned";

/// Outcomes that a viewer of traces shows in red.
const BAD: [&str; 3] = ["failed", "unknown", ABANDONED];

/// Starts sending spans, for the whole process, if the environment (`OTEL_EXPORTER_OTLP_ENDPOINT`) or `endpoint` names a
/// collector. True: spans are sent from here on.
pub fn start(service: &'static str, endpoint: Option<&str>) -> Result<bool, StartError> {
    Exporter::start(service, endpoint, |name| std::env::var(name).ok())
}

/// Whether spans are sent.
pub fn are_on() -> bool {
    Exporter::current().is_some()
}

/// Sends what is left, for at most this long, and no more from then on. Blocks its thread.
pub fn stop(within: Duration) {
    if let Some(exporter) = Exporter::current() {
        exporter.stop(within);
    }
}

/// The context of a span that is to be opened below another.
pub fn beneath(parent: TraceContext) -> TraceContext {
    if recorded(parent) { parent.child() } else { parent }
}

/// The same, with an id that follows from a name and a number: it can be linked later without having been kept.
pub fn derived(parent: TraceContext, name: &str, number: u32) -> TraceContext {
    if recorded(parent) { parent.derived(name, number) } else { parent }
}

/// Whether anybody wants to know of spans in this trace.
fn recorded(context: TraceContext) -> bool {
    context.parts().2 && are_on()
}

/// What a span stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Work within a program.
    Internal,
    /// A request to another program, and the wait for its answer.
    Client,
    /// A request of another program.
    Server,
}

/// A span that has not ended. Dropping it ends it as abandoned.
#[derive(Debug)]
#[must_use = "a span measures for as long as it is kept"]
pub struct Span {
    context: TraceContext,
    /// Only while somebody wants to know.
    record: Option<Box<Record>>,
}

#[derive(Debug)]
struct Record {
    name: &'static str,
    kind: Kind,
    parent: Option<TraceContext>,
    started: SystemTime,
    /// The system's clock may jump meanwhile; this one does not.
    begun: Instant,
    fields: Vec<KeyValue>,
    links: Vec<Link>,
}

impl Span {
    /// The first span of a trace, below the caller's own if it sent one.
    pub fn root(name: &'static str, kind: Kind, caller: Option<TraceContext>) -> Self {
        match caller {
            Some(caller) => Self::below(name, kind, caller),
            None => {
                let context = TraceContext::root();
                Self { context, record: recorded(context).then(|| Record::new(name, kind, None)) }
            }
        }
    }

    /// A span below another.
    pub fn below(name: &'static str, kind: Kind, parent: TraceContext) -> Self {
        Self::known(name, kind, parent, beneath(parent))
    }

    /// A span below another whose own context was made before, by [`beneath`] or [`derived`].
    pub fn known(name: &'static str, kind: Kind, parent: TraceContext, context: TraceContext) -> Self {
        if recorded(parent) {
            Self { context, record: Some(Record::new(name, kind, Some(parent))) }
        } else {
            Self { context: parent, record: None }
        }
    }

    /// What is sent on to whatever happens below this span.
    pub fn context(&self) -> TraceContext {
        self.context
    }

    /// Whether anybody will see it: for fields that cost something to make.
    pub fn is_recorded(&self) -> bool {
        self.record.is_some()
    }

    /// The same span with a field.
    pub fn with(mut self, field: &'static str, value: impl Display) -> Self {
        self.set(field, value);
        self
    }

    /// The same span with a field that there may be.
    pub fn with_some(mut self, field: &'static str, value: Option<impl Display>) -> Self {
        if let Some(value) = value {
            self.set(field, value);
        }
        self
    }

    /// The same span with a number.
    pub fn with_number(mut self, field: &'static str, value: u32) -> Self {
        self.push(field, || Value::I64(i64::from(value)));
        self
    }

    /// The same span, which goes on with what another one began.
    pub fn following(mut self, former: TraceContext) -> Self {
        if let Some(record) = &mut self.record {
            record.links.push(Link::with_context(foreign(former)));
        }
        self
    }

    /// Gives the span a field.
    pub fn set(&mut self, field: &'static str, value: impl Display) {
        self.push(field, || Value::String(clipped(value.to_string()).into()));
    }

    fn push(&mut self, field: &'static str, value: impl FnOnce() -> Value) {
        if let Some(record) = &mut self.record {
            record.fields.push(KeyValue::new(Key::from_static_str(field), value()));
        }
    }

    /// Ends it.
    pub fn end(mut self, outcome: &str) {
        self.finish(outcome);
    }

    /// Ends it as the call ended that it is about.
    pub fn end_as(mut self, outcome: &Outcome) {
        if let Outcome::Failed { error, .. } = outcome {
            self.fault(&error.code);
        }
        self.finish(outcome.word());
    }

    /// Names the fault. A word of ours; anything else than such a word could be a message.
    pub fn fault(&mut self, code: &str) {
        let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_';
        if !code.is_empty() && code.len() <= 40 && code.bytes().all(word) {
            self.set(ERROR_TYPE, code);
        }
    }

    fn finish(&mut self, outcome: &str) {
        self.set(OUTCOME, outcome);
        if let (Some(record), Some(exporter)) = (self.record.take(), Exporter::current()) {
            exporter.take(record.ended(self.context, BAD.contains(&outcome), exporter));
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if self.record.is_some() {
            self.finish(ABANDONED);
        }
    }
}

impl Record {
    fn new(name: &'static str, kind: Kind, parent: Option<TraceContext>) -> Box<Self> {
        let (fields, links) = (Vec::with_capacity(8), Vec::new());
        Box::new(Self { name, kind, parent, started: SystemTime::now(), begun: Instant::now(), fields, links })
    }

    fn ended(self, context: TraceContext, bad: bool, exporter: &Exporter) -> SpanData {
        let (trace_id, span_id, _) = context.parts();
        let mut links = SpanLinks::default();
        links.links = self.links;
        SpanData {
            span_context: SpanContext::new(
                TraceId::from(trace_id),
                SpanId::from(span_id),
                TraceFlags::SAMPLED,
                false,
                TraceState::NONE,
            ),
            parent_span_id: self.parent.map_or(SpanId::INVALID, |parent| SpanId::from(parent.parts().1)),
            parent_span_is_remote: self.parent.is_some() && self.kind == Kind::Server,
            span_kind: match self.kind {
                Kind::Internal => SpanKind::Internal,
                Kind::Client => SpanKind::Client,
                Kind::Server => SpanKind::Server,
            },
            name: self.name.into(),
            start_time: self.started,
            end_time: self.started + self.begun.elapsed(),
            attributes: self.fields,
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links,
            status: if bad { Status::error("") } else { Status::Unset },
            instrumentation_scope: exporter.scope(),
        }
    }
}

/// The context of a span that may be of another process.
fn foreign(context: TraceContext) -> SpanContext {
    let (trace_id, span_id, sampled) = context.parts();
    let flags = if sampled { TraceFlags::SAMPLED } else { TraceFlags::NOT_SAMPLED };
    SpanContext::new(TraceId::from(trace_id), SpanId::from(span_id), flags, true, TraceState::NONE)
}

fn clipped(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(VALUE_BYTES));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_collector_a_span_hands_on_the_context_above_it_and_formats_nothing() {
        struct Never;
        impl Display for Never {
            fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::panic::panic_any("formatted for nobody")
            }
        }
        let caller = TraceContext::from_parts(7, 8, true);
        let root = Span::root("request", Kind::Server, Some(caller)).with("field", Never);
        let below = Span::below("work", Kind::Internal, root.context()).following(caller).with_number("n", 1);
        let known = Span::known("call", Kind::Client, below.context(), derived(caller, "call", 1));
        assert_eq!([root.context(), below.context(), known.context(), beneath(caller)], [caller; 4]);
        assert!([&root, &below, &known].iter().all(|span| !span.is_recorded()));
        root.end("done");
    }

    #[test]
    fn a_long_value_is_cut_between_two_characters() {
        let text = clipped("ä".repeat(VALUE_BYTES));
        assert_eq!((text.len(), text.chars().all(|c| c == 'ä')), (VALUE_BYTES, true));
        assert_eq!(clipped("short".to_owned()), "short");
    }
}

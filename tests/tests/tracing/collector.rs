//! A collector: takes spans over OTLP/HTTP and keeps them for the test.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::routing::post;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1 as otlp;
use prost::Message as _;
use vance_tests::wait::until;

/// A span as it arrived; ids in hex.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub(crate) name: String,
    pub(crate) service: String,
    pub(crate) trace: String,
    pub(crate) id: String,
    pub(crate) parent: String,
    pub(crate) links: Vec<String>,
    pub(crate) fields: BTreeMap<String, String>,
    pub(crate) failed: bool,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Span {
    /// A field; empty if there is none.
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map(String::as_str).unwrap_or_default()
    }

    pub(crate) fn outcome(&self) -> &str {
        self.field("vance.outcome")
    }

    /// As a `traceparent` names it.
    pub(crate) fn traceparent(&self) -> String {
        format!("00-{}-{}-01", self.trace, self.id)
    }
}

#[derive(Default)]
struct Had {
    bytes: Vec<u8>,
    spans: Vec<Span>,
}

type Kept = Arc<Mutex<Had>>;

/// The collector. Its address is for `OTEL_EXPORTER_OTLP_ENDPOINT`.
pub(crate) struct Collector {
    pub(crate) url: String,
    had: Kept,
}

impl Collector {
    pub(crate) async fn start() -> anyhow::Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let had = Kept::default();
        let app = Router::new().route("/v1/traces", post(take)).with_state(had.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        Ok(Self { url, had })
    }

    /// For a process that sends here, and soon.
    pub(crate) fn env(&self) -> [(&str, &str); 2] {
        [("OTEL_EXPORTER_OTLP_ENDPOINT", &self.url), ("OTEL_BSP_SCHEDULE_DELAY", "50")]
    }

    /// All spans of a trace so far, in the order of their starts.
    pub(crate) fn trace(&self, trace: &str) -> Trace {
        let had = self.had.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut spans: Vec<Span> = had.spans.iter().filter(|span| span.trace == trace).cloned().collect();
        spans.sort_by_key(|span| span.start);
        Trace(spans)
    }

    /// Waits until a trace holds so many spans of these names, and no more than these.
    pub(crate) async fn until(&self, trace: &str, want: &[(&str, usize)]) -> anyhow::Result<Trace> {
        let there = |have: &Trace| want.iter().all(|(name, count)| have.all(name).len() >= *count);
        let all = until("the spans", || async {
            let have = self.trace(trace);
            Ok(there(&have).then_some(have))
        });
        let all = all.await.with_context(|| format!("{want:?}, had:\n{}", self.trace(trace)))?;
        for (name, count) in want {
            assert_eq!(all.all(name).len(), *count, "{name}\n{all}");
        }
        assert_eq!(all.0.len(), want.iter().map(|(_, count)| count).sum::<usize>(), "{all}");
        Ok(all)
    }

    /// Whether a text is in anything that came.
    pub(crate) fn has_seen(&self, text: &str) -> bool {
        let had = self.had.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        had.bytes.windows(text.len()).any(|window| window == text.as_bytes())
    }
}

/// Spans of one trace.
pub(crate) struct Trace(pub(crate) Vec<Span>);

impl Trace {
    pub(crate) fn all(&self, name: &str) -> Vec<&Span> {
        self.0.iter().filter(|span| span.name == name).collect()
    }

    /// The one span of this name with this field.
    pub(crate) fn one(&self, name: &str, field: (&str, &str)) -> anyhow::Result<&Span> {
        let found: Vec<&Span> = self.all(name).into_iter().filter(|span| span.field(field.0) == field.1).collect();
        anyhow::ensure!(found.len() == 1, "{} spans {name} with {field:?} in\n{self}", found.len());
        found.first().copied().context("one")
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|s| {
            writeln!(f, "{} {} {} below '{}' links {:?} {:?}", s.service, s.name, s.id, s.parent, s.links, s.fields)
        })
    }
}

async fn take(State(had): State<Kept>, body: Bytes) -> Bytes {
    let request = ExportTraceServiceRequest::decode(body.clone()).unwrap_or_default();
    let mut had = had.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    had.bytes.extend_from_slice(&body);
    for resource in request.resource_spans {
        let service = fields(&resource.resource.unwrap_or_default().attributes).remove("service.name");
        for span in resource.scope_spans.into_iter().flat_map(|scope| scope.spans) {
            had.spans.push(read(span, service.clone().unwrap_or_default()));
        }
    }
    // An empty answer: all taken.
    Bytes::new()
}

fn read(span: otlp::Span, service: String) -> Span {
    Span {
        name: span.name,
        service,
        trace: hex(&span.trace_id),
        id: hex(&span.span_id),
        parent: hex(&span.parent_span_id),
        links: span.links.iter().map(|link| hex(&link.span_id)).collect(),
        fields: fields(&span.attributes),
        failed: span.status.is_some_and(|status| status.code() == otlp::status::StatusCode::Error),
        start: span.start_time_unix_nano,
        end: span.end_time_unix_nano,
    }
}

fn fields(attributes: &[KeyValue]) -> BTreeMap<String, String> {
    let text = |value: &KeyValue| match value.value.as_ref().and_then(|v| v.value.as_ref()) {
        Some(any_value::Value::StringValue(text)) => text.clone(),
        Some(any_value::Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    attributes.iter().map(|field| (field.key.clone(), text(field))).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

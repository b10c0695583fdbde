//! The way to the collector: a bounded queue and one thread that empties it in batches. Whoever ends a span never waits; what
//! has no room, or cannot be delivered, is counted and gone.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use opentelemetry::{InstrumentationScope, Key, KeyValue};
use opentelemetry_otlp::{Protocol, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::{OTelSdkError, OTelSdkResult};
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, SpanData, SpanExporter, SpanProcessor};

use crate::names::{METRIC_SPANS_LOST, METRIC_SPANS_SENT};

/// Spans that wait for the collector: some seconds of a busy Brain, about 5 MB.
const WAITING_SPANS: usize = 8_192;

/// Where all signals go; `/v1/traces` is added.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// Where spans go, taken as it stands.
const TRACES_ENDPOINT: &str = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
/// `true` turns everything off.
const DISABLED: &str = "OTEL_SDK_DISABLED";
/// What the collector speaks.
const PROTOCOLS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
/// The one that we speak.
const PROTOCOL: &str = "http/protobuf";

/// One per process: spans are ended anywhere, and the collector is the process's.
static EXPORTER: OnceLock<Exporter> = OnceLock::new();

/// Why no spans are sent.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is none. It may hold a password, so it is not repeated.
    #[error("{0} holds no http:// or https:// address, such as http://localhost:4318; no spans are sent")]
    Endpoint(&'static str),
    /// The exporter cannot be built.
    #[error("spans cannot be sent: {0}")]
    Build(String),
    /// It runs.
    #[error("spans are sent already")]
    Twice,
}

/// Where spans go once they have ended.
#[derive(Debug)]
pub(crate) struct Exporter {
    processor: BatchSpanProcessor,
    room: usize,
    scope: InstrumentationScope,
    state: Arc<State>,
}

/// What those who end spans and the thread that sends them tell each other.
#[derive(Debug, Default)]
struct State {
    /// Spans in the processor's queue. Counted here because the SDK tells nobody what it drops.
    waiting: AtomicUsize,
    /// The last batch was not delivered.
    away: AtomicBool,
    /// The program ends.
    stopped: AtomicBool,
}

impl Exporter {
    /// The process's, while it runs.
    pub(crate) fn current() -> Option<&'static Self> {
        EXPORTER.get().filter(|exporter| !exporter.state.stopped.load(Relaxed))
    }

    /// Starts the process's. False: nobody wants spans.
    pub(crate) fn start(
        service: &'static str,
        endpoint: Option<&str>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<bool, StartError> {
        let Some(target) = target(endpoint, variable)? else { return Ok(false) };
        let exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(target)
            .build()
            .map_err(|error| StartError::Build(error.to_string()))?;
        EXPORTER.set(Self::over(exporter, service, WAITING_SPANS)).map_err(|_| StartError::Twice)?;
        Ok(true)
    }

    fn over(inner: impl SpanExporter + 'static, service: &'static str, room: usize) -> Self {
        let state = Arc::<State>::default();
        let counting = Counting { inner, state: state.clone() };
        let config = BatchConfigBuilder::default().with_max_queue_size(room).build();
        let mut processor = BatchSpanProcessor::builder(counting).with_batch_config(config).build();
        processor.set_resource(&resource(service));
        let scope = InstrumentationScope::builder(service).with_version(env!("CARGO_PKG_VERSION")).build();
        Self { processor, room, scope, state }
    }

    pub(crate) fn scope(&self) -> InstrumentationScope {
        self.scope.clone()
    }

    /// Takes an ended span, if there is room.
    pub(crate) fn take(&self, span: SpanData) {
        match self.state.waiting.fetch_update(Relaxed, Relaxed, |n| (n < self.room).then_some(n + 1)) {
            Ok(_) => self.processor.on_end(span),
            Err(_) => metrics::counter!(METRIC_SPANS_LOST, "reason" => "queue_full").increment(1),
        }
    }

    pub(crate) fn stop(&self, within: Duration) {
        self.state.stopped.store(true, Relaxed);
        if let Err(error) = self.processor.shutdown_with_timeout(within) {
            tracing::debug!(%error, "the last spans were not delivered");
        }
    }
}

/// The collector's address, if there is one. The environment is asked first: it belongs to this run.
fn target(file: Option<&str>, variable: impl Fn(&str) -> Option<String>) -> Result<Option<String>, StartError> {
    let set = |name: &str| variable(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
    if set(DISABLED).is_some_and(|text| text.eq_ignore_ascii_case("true")) {
        return Ok(None);
    }
    let (name, target) = if let Some(exact) = set(TRACES_ENDPOINT) {
        (TRACES_ENDPOINT, exact)
    } else if let Some(base) = set(ENDPOINT) {
        (ENDPOINT, traces(&base))
    } else if let Some(base) = file {
        ("otlp in brain.yaml", traces(base))
    } else {
        return Ok(None);
    };
    if !["http://", "https://"].iter().any(|scheme| target.len() > scheme.len() && target.starts_with(scheme)) {
        return Err(StartError::Endpoint(name));
    }
    if let Some(other) = PROTOCOLS.iter().find_map(|name| set(name)).filter(|protocol| protocol != PROTOCOL) {
        let other = vance_shared::show::quoted(&other, 40);
        tracing::warn!("this release sends spans as {PROTOCOL} (a collector's port 4318), not as {other}");
    }
    Ok(Some(target))
}

fn traces(base: &str) -> String {
    const PATH: &str = "/v1/traces";
    let base = base.trim_end_matches('/');
    if base.ends_with(PATH) { base.to_owned() } else { format!("{base}{PATH}") }
}

/// Who sends: the variables of OpenTelemetry, else our own name.
fn resource(service: &'static str) -> Resource {
    let named = Resource::builder();
    let name = named.build().get(&Key::from_static_str("service.name"));
    let builder = Resource::builder();
    let builder = match name {
        Some(name) if !name.as_str().starts_with("unknown_service") => builder,
        Some(_) | None => builder.with_service_name(service),
    };
    let own = [
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("process.pid", i64::from(std::process::id())),
    ];
    builder.with_attributes(own).build()
}

/// Counts what comes out of the queue and what became of it.
#[derive(Debug)]
struct Counting<E> {
    inner: E,
    state: Arc<State>,
}

impl<E: SpanExporter> SpanExporter for Counting<E> {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let spans = batch.len();
        let State { waiting, away, stopped } = &*self.state;
        waiting.fetch_sub(spans, Relaxed);
        let sent = if stopped.load(Relaxed) && away.load(Relaxed) {
            // An end does not wait for a collector that is known to be away.
            Err(OTelSdkError::AlreadyShutdown)
        } else {
            self.inner.export(batch).await
        };
        let count = u64::try_from(spans).unwrap_or(u64::MAX);
        match &sent {
            Ok(()) => {
                metrics::counter!(METRIC_SPANS_SENT).increment(count);
                if away.swap(false, Relaxed) {
                    tracing::info!("spans are delivered again");
                }
            }
            Err(error) => {
                metrics::counter!(METRIC_SPANS_LOST, "reason" => "not_delivered").increment(count);
                // Once: it may stay away for long, and nothing else suffers from it.
                if !away.swap(true, Relaxed) {
                    tracing::warn!(%error, spans, "spans cannot be delivered and are lost until the collector is back");
                }
            }
        }
        sent
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.inner.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.inner.set_resource(resource);
    }
}

#[cfg(test)]
mod tests;

//! What `GET /metrics` shows: the process-wide recorder behind the `metrics` macros.

use std::sync::OnceLock;
use std::time::Duration;

use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

/// Between two tidyings of the recorder: it keeps each histogram sample until then.
const UPKEEP: Duration = Duration::from_secs(5);
/// Bounds of all histograms, in seconds: from a disk flush to a long call.
const SECONDS: [f64; 12] = [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.05, 0.25, 1.0, 10.0, 60.0];

/// Renders what was counted. Cheap to clone.
#[derive(Clone)]
pub struct Metrics(PrometheusHandle);

/// Why there are no metrics.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot install the metrics recorder: {0}")]
pub struct MetricsError(String);

impl Metrics {
    /// Installs the recorder, once per process; later calls give the same one. Counts made before are lost.
    pub fn install() -> Result<Self, MetricsError> {
        static INSTALLED: OnceLock<Result<PrometheusHandle, MetricsError>> = OnceLock::new();
        let installed = INSTALLED.get_or_init(|| {
            let builder = PrometheusBuilder::new().set_buckets(&SECONDS);
            builder.and_then(PrometheusBuilder::install_recorder).map_err(|error| MetricsError(error.to_string()))
        });
        installed.clone().map(Self)
    }

    /// In Prometheus' text format (`text/plain; version=0.0.4`).
    pub fn render(&self) -> String {
        self.0.render()
    }

    /// Tidies for as long as it is polled: spawn it beside the server.
    pub async fn keep(self) {
        let mut tick = tokio::time::interval(UPKEEP);
        loop {
            tick.tick().await;
            self.0.run_upkeep();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_counted_is_shown_by_every_handle() {
        let first = Metrics::install().unwrap();
        metrics::counter!("vance_test_total").increment(2);
        metrics::histogram!("vance_test_seconds").record(0.003);
        let shown = Metrics::install().unwrap().render();
        assert!(shown.contains("vance_test_total 2"), "{shown}");
        assert!(shown.contains("vance_test_seconds_bucket{le=\"0.005\"} 1"), "{shown}");
        assert_eq!(first.render(), shown);
    }
}

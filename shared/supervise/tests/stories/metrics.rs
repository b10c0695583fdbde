use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use metrics::{Counter, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use vance_supervise::{SupervisorRef, SupervisorSpec};

use super::probe::{Do, Log, probe, settle, story};

/// Counters by name and labels.
#[derive(Default)]
struct Counters(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

impl Recorder for Counters {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        let labels: Vec<String> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let name = format!("{}{{{}}}", key.name(), labels.join(","));
        Counter::from_arc(Arc::clone(self.0.lock().unwrap().entry(name).or_default()))
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[tokio::test(start_paused = true)]
async fn panics_and_restarts_are_counted_by_the_first_part_of_the_name() {
    let counters = Counters::default();
    let recording = metrics::set_default_local_recorder(&counters);
    story(async {
        let log = Log::default();
        let (one, first) = probe("session:1", &log);
        let (two, second) = probe("session:2", &log);
        let (_quiet, third) = probe("quiet", &log);
        let _root = SupervisorRef::start(SupervisorSpec::new("root").child(first).child(second).child(third));
        one.send(Do::Panic).await.unwrap_err();
        two.send(Do::Panic).await.unwrap_err();
        settle().await;
        two.tell(Do::Fail).unwrap();
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    })
    .await;
    drop(recording);
    let counters = counters.0.into_inner().unwrap();
    let counts: Vec<(&str, u64)> = counters.iter().map(|(k, v)| (k.as_str(), v.load(Ordering::Relaxed))).collect();
    // What has never failed is there too, as nothing.
    let expected = [
        ("vance_actor_panics_total{actor=quiet}", 0),
        ("vance_actor_panics_total{actor=session}", 2),
        ("vance_actor_restarts_total{actor=quiet}", 0),
        ("vance_actor_restarts_total{actor=session}", 3),
    ];
    assert_eq!(counts, expected);
}

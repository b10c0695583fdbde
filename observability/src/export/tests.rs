#![allow(clippy::unwrap_used)]
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Instant;

use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status};

use super::*;

#[test]
fn the_environment_is_asked_before_the_file_and_the_path_is_added_once() {
    type Row = (&'static [(&'static str, &'static str)], Option<&'static str>, Option<&'static str>);
    let table: &[Row] = &[
        (&[], None, None),
        (&[(ENDPOINT, " ")], None, None),
        (&[], Some("http://c:4318"), Some("http://c:4318/v1/traces")),
        (&[], Some("https://c/otlp/v1/traces"), Some("https://c/otlp/v1/traces")),
        (&[(ENDPOINT, "http://e:1/")], Some("http://c:4318"), Some("http://e:1/v1/traces")),
        (&[(ENDPOINT, "http://e:1"), (TRACES_ENDPOINT, "http://t:2/x")], None, Some("http://t:2/x")),
        (&[(ENDPOINT, "http://e:1"), (DISABLED, "TRUE")], Some("http://c:4318"), None),
        (&[(ENDPOINT, "http://e:1"), (DISABLED, "no")], None, Some("http://e:1/v1/traces")),
    ];
    for (environment, file, want) in table {
        let variable = |name: &str| environment.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        assert_eq!(target(*file, variable).unwrap().as_deref(), *want, "{environment:?} {file:?}");
    }
}

#[test]
fn an_address_that_is_none_is_refused_and_not_repeated() {
    for bad in ["localhost:4318:secret", "http:/secret", "ftp://secret@c"] {
        let error = target(None, |name| (name == ENDPOINT).then(|| bad.to_owned())).unwrap_err().to_string();
        assert!(error.starts_with(ENDPOINT) && !error.contains(bad), "{error}");
    }
}

/// A collector that takes a batch when the test lets it, and says what it had.
#[derive(Debug)]
struct Slow {
    batches: SyncSender<usize>,
    go_on: Mutex<Receiver<bool>>,
}

impl SpanExporter for Slow {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        self.batches.send(batch.len()).ok();
        match self.go_on.lock().unwrap().recv() {
            Ok(true) => Ok(()),
            Ok(false) | Err(_) => Err(OTelSdkError::InternalFailure("away".to_owned())),
        }
    }
}

fn slow(room: usize) -> (Exporter, Receiver<usize>, SyncSender<bool>) {
    let ((batches, had), (say, go_on)) = (sync_channel(100), sync_channel(100));
    (Exporter::over(Slow { batches, go_on: Mutex::new(go_on) }, "test", room), had, say)
}

fn span() -> SpanData {
    SpanData {
        span_context: SpanContext::empty_context(),
        parent_span_id: SpanId::INVALID,
        parent_span_is_remote: false,
        span_kind: SpanKind::Internal,
        name: "span".into(),
        start_time: std::time::SystemTime::now(),
        end_time: std::time::SystemTime::now(),
        attributes: Vec::new(),
        dropped_attributes_count: 0,
        events: Default::default(),
        links: Default::default(),
        status: Status::Unset,
        instrumentation_scope: Default::default(),
    }
}

#[test]
fn a_collector_that_does_not_answer_holds_up_nobody_and_what_has_no_room_is_gone() {
    let (exporter, had, say) = slow(10);
    let begun = Instant::now();
    (0..1_000).for_each(|_| exporter.take(span()));
    // The first batch may have left the queue while it was filled.
    let taken = had.recv().unwrap();
    assert!(taken <= 10, "{taken}");
    assert!(exporter.state.waiting.load(Relaxed) <= 10);
    exporter.stop(Duration::from_millis(200));
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    drop(say);
}

#[test]
fn what_is_left_is_sent_at_the_end() {
    let (exporter, had, say) = slow(10);
    say.send(true).unwrap();
    (0..3).for_each(|_| exporter.take(span()));
    exporter.stop(Duration::from_secs(60));
    assert_eq!(had.iter().collect::<Vec<_>>(), [3]);
    assert_eq!(exporter.state.waiting.load(Relaxed), 0);
}

#[test]
fn a_lost_batch_does_not_stop_the_next_but_an_end_waits_for_nobody_who_is_away() {
    let (exporter, had, say) = slow(2);
    for delivered in [false, true, false] {
        say.send(delivered).unwrap();
        (0..2).for_each(|_| exporter.take(span()));
        assert_eq!(had.recv(), Ok(2));
        while exporter.state.away.load(Relaxed) == delivered {
            std::thread::yield_now();
        }
    }
    exporter.take(span());
    exporter.stop(Duration::from_secs(60));
    assert_eq!(had.iter().count(), 0, "not even tried");
    assert_eq!(exporter.state.waiting.load(Relaxed), 0);
}

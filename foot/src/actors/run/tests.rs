#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Mutex;

use futures_util::future::BoxFuture;
use vance_shared::names::ToolName;
use vance_shared::tool::{Replay, ToolResult, ToolSpec};

use super::super::catalogue::ToolHost;
use super::*;

struct Fake<F>(F);

impl<F: Fn(ToolCall) -> BoxFuture<'static, Outcome> + Send + Sync> ToolHost for Fake<F> {
    fn call(&self, call: ToolCall) -> BoxFuture<'static, Outcome> {
        (self.0)(call)
    }
}

fn job(host: impl Fn(ToolCall) -> BoxFuture<'static, Outcome> + Send + Sync + 'static) -> Job {
    let spec = ToolSpec {
        name: ToolName::parse("t").unwrap(),
        description: String::new(),
        input_schema: Raw::empty_object(),
        output_schema: None,
        labels: vec![],
        annotations: None,
        replay: Replay::Unsafe,
        pack: None,
    };
    Job {
        call_id: CallId::parse("call_1").unwrap(),
        tool: Arc::new(Tool { spec, host: Arc::new(Fake(host)) }),
        arguments: Raw::empty_object(),
        timeout: Duration::from_secs(10),
        cap: Duration::from_secs(60),
        trace: None,
        cancel: CancellationToken::new(),
        person: Person::default(),
        keep: None,
    }
}

fn done() -> Outcome {
    Outcome::Done(ToolResult::text("ok"))
}

fn obeys(call: ToolCall) -> BoxFuture<'static, Outcome> {
    Box::pin(async move {
        call.cancel.cancelled().await;
        Outcome::Cancelled { reason: "stopped".to_owned() }
    })
}

#[tokio::test(start_paused = true)]
async fn a_tool_whose_person_is_asked_has_its_own_time_besides() {
    let slow = |call: ToolCall| -> BoxFuture<'static, Outcome> {
        Box::pin(async move {
            let asked = call.person.asked.begin();
            (call.progress)(None, None);
            sleep_until(Instant::now() + Duration::from_secs(100_000)).await;
            drop(asked);
            sleep_until(Instant::now() + Duration::from_secs(8)).await;
            done()
        })
    };
    assert_eq!(run(job(slow), |_| {}).await, done());
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_takes_too_long_is_cancelled_and_has_failed() {
    let started = Instant::now();
    let outcome = run(job(obeys), |_| {}).await;
    assert!(matches!(&outcome, Outcome::Failed { error, .. } if error.code == "timeout"), "{outcome:?}");
    assert_eq!(started.elapsed(), Duration::from_secs(11));
}

#[tokio::test(start_paused = true)]
async fn progress_extends_the_deadline_up_to_the_cap_and_is_throttled() {
    let talks = |call: ToolCall| -> BoxFuture<'static, Outcome> {
        Box::pin(async move {
            let mut n = 0.0;
            while !call.cancel.is_cancelled() {
                (call.progress)(Some(n), None);
                n += 0.001;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Outcome::Cancelled { reason: String::new() }
        })
    };
    let started = Instant::now();
    let reports = Mutex::new(Vec::new());
    let outcome = run(job(talks), |report| reports.lock().unwrap().push(report)).await;
    assert!(matches!(&outcome, Outcome::Failed { error, .. } if error.code == "timeout"), "{outcome:?}");
    assert!(started.elapsed() >= Duration::from_secs(61) && started.elapsed() < Duration::from_secs(62));
    let reports = reports.into_inner().unwrap();
    assert!((200..=245).contains(&reports.len()), "{}", reports.len());
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_tool_ends_and_one_that_does_not_obey_is_given_up() {
    let obedient = job(obeys);
    obedient.cancel.cancel();
    assert_eq!(run(obedient, |_| {}).await, Outcome::Cancelled { reason: "stopped".to_owned() });
    let deaf = job(|_| Box::pin(std::future::pending()));
    deaf.cancel.cancel();
    assert!(matches!(run(deaf, |_| {}).await, Outcome::Unknown { .. }));
}

#[tokio::test]
async fn a_panic_is_an_unknown_outcome() {
    let outcome = run(job(|_| Box::pin(async { panic!("boom") })), |_| {}).await;
    assert!(matches!(outcome, Outcome::Unknown { .. }));
}

#[tokio::test]
async fn a_result_that_does_not_travel_is_a_failure_that_says_so() {
    let large = |bytes: usize| Box::pin(async move { Outcome::Done(ToolResult::text("x".repeat(bytes))) });
    let outcome = run(job(move |_| large(9 << 20)), |_| {}).await;
    assert!(matches!(&outcome, Outcome::Failed { error, .. } if error.code == "result_too_large"), "{outcome:?}");
    let outcome = run(job(|_| Box::pin(async { done() })), |_| {}).await;
    assert_eq!(outcome, done());
    let failed = |_: ToolCall| -> BoxFuture<'static, Outcome> {
        Box::pin(async { Outcome::of(ToolResult::error("ü".repeat(3 << 20))) })
    };
    let Outcome::Failed { error, result } = run(job(failed), |_| {}).await else { panic!("not failed") };
    assert!(error.message.len() < 5000 && result.is_some());
}

//! A story for each row of a task's and a call's life, and a property over any order of inputs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use serde_json::{Value, json};
use vance_shared::question::Action;
use vance_shared::tool::ToolResult;

use super::*;
use crate::spec::{OnUnknown, Retry, StepSpec};

mod any_order;
mod questions;

fn tool(name: &str) -> ToolName {
    ToolName::parse(name).unwrap()
}

fn call_id(n: u32) -> CallId {
    CallId::parse(&format!("call_{n}")).unwrap()
}

fn foot(name: &str) -> ClientId {
    ClientId::parse(&format!("foot_{name}")).unwrap()
}

fn step(tool_name: &str, name: Option<&str>) -> StepSpec {
    StepSpec { call: tool(tool_name), with: serde_json::Map::new(), r#as: name.map(str::to_owned), timeout: None }
}

fn spec(steps: usize) -> TaskSpec {
    TaskSpec {
        id: "t".into(),
        steps: (0..steps).map(|i| step("read_local_file", Some(&format!("s{i}")))).collect(),
        ..TaskSpec::default()
    }
}

fn task_of(spec: TaskSpec) -> Task {
    let head = Head {
        task_id: TaskId::parse("task_1").unwrap(),
        tree_id: TreeId::parse("tree_1").unwrap(),
        session_id: SessionId::parse("sess_1").unwrap(),
        owner: "me".into(),
        parent: None,
        has_children: false,
        depends_on: Vec::new(),
        spec,
        engine: None,
        autonomous: false,
        submitted_by: None,
        trace: TraceContext::from_parts(1, 1, true),
    };
    Task::new(head, 0)
}

fn open_call(task: &Task, n: u32, place: Place, replay: Replay) -> OpenCall {
    OpenCall {
        call_id: call_id(n),
        attempt: 1,
        step: task.step,
        tool: tool("read_local_file"),
        target_tool: tool("read_local_file"),
        place,
        arguments: Raw::empty_object(),
        replay,
        timeout_ms: 1_000,
        trace: TraceContext::from_parts(1, 2, true),
    }
}

fn on_foot(name: &str) -> Place {
    Place::Client { client_id: foot(name), machine: format!("{name}.local"), folder: None }
}

fn done(text: &str) -> Outcome {
    Outcome::Done(ToolResult::text(text))
}

fn unknown() -> Outcome {
    Outcome::Unknown { reason: "died".into() }
}

/// A task with the events that it stored.
struct Story {
    task: Task,
    stored: Vec<(Event, i64)>,
    now: i64,
}

impl Story {
    fn of(spec: TaskSpec) -> Self {
        let task = task_of(spec);
        let stored = vec![(Event::Submitted((*task.head).clone()), 0)];
        Self { task, stored, now: 0 }
    }

    /// Started, with the call `n` placed on foot `a`.
    fn running(spec: TaskSpec, replay: Replay) -> Self {
        let mut story = Self::of(spec);
        assert_eq!(story.say(Input::Start).effects, [Effect::Route]);
        story.place(1, on_foot("a"), replay);
        story
    }

    fn say(&mut self, input: Input) -> Step {
        self.now += 10;
        let step = self.task.handle(input, self.now);
        self.stored.extend(step.events.iter().map(|e| (e.clone(), self.now)));
        assert_eq!(Task::of(self.stored.clone()).as_ref(), Some(&self.task), "the fold of what is stored is the state");
        step
    }

    fn place(&mut self, n: u32, place: Place, replay: Replay) {
        let call = open_call(&self.task, n, place, replay);
        let step = self.say(Input::Routed(Routed::Placed(call.clone())));
        assert_eq!(step.effects, [Effect::Dispatch(call)]);
    }

    fn ended(&mut self, n: u32, from: &str, outcome: Outcome) -> Step {
        self.say(Input::CallEnded { call_id: call_id(n), from: Some(foot(from)), outcome })
    }

    /// As after a restart of the Brain.
    fn restart(&mut self) {
        self.task = Task::of(self.stored.clone()).unwrap();
    }

    fn reason(&self) -> String {
        self.task.blocked_reason().unwrap_or_default()
    }
}

const WAITING: &str = "Waiting for Client for Tool: read_local_file";

#[test]
fn all_steps_run_and_the_output_has_their_names() {
    let mut story = Story::running(spec(2), Replay::Unsafe);
    assert_eq!(story.task.state, State::Running);
    let step = story.ended(1, "a", done("one"));
    assert_eq!(step.effects, [Effect::Ack(call_id(1), foot("a")), Effect::Route]);
    story.place(2, Place::Server, Replay::Safe);
    let step = story.say(Input::CallEnded { call_id: call_id(2), from: None, outcome: done("two") });
    assert_eq!(step.effects, [Effect::Ended]);
    assert_eq!(story.task.state, State::Completed);
    assert_eq!(story.task.output()["s0"]["text"], "one");
    assert_eq!(story.task.output()["s1"]["text"], "two");
    let routes: Vec<_> = story.task.calls.iter().map(|c| (c.route, c.outcome.as_deref(), c.attempts)).collect();
    assert_eq!(routes, [("client", Some("done"), 1), ("server", Some("done"), 1)]);
    assert_eq!(story.task.served_by(), Some(&foot("a")));
}

#[test]
fn a_dependency_that_did_not_complete_skips_only_a_pending_task() {
    let mut story = Story::of(spec(1));
    let reason = "dependency a failed".to_owned();
    assert_eq!(story.say(Input::DependencyFailed { reason: reason.clone() }).effects, [Effect::Ended]);
    assert_eq!((story.task.state, story.task.reason.clone()), (State::Skipped, Some(reason.clone())));
    let mut story = Story::running(spec(1), Replay::Unsafe);
    assert_eq!(story.say(Input::DependencyFailed { reason }), Step::default());
}

#[test]
fn an_absent_client_blocks_queues_or_skips() {
    for (queued, state) in [(false, State::Blocked), (true, State::Queued)] {
        let mut story = Story::of(spec(1));
        story.say(Input::Start);
        let step = story.say(Input::Routed(Routed::Wait { queued }));
        assert_eq!((step.effects, story.task.state), (vec![Effect::Park], state));
        assert_eq!(story.reason(), WAITING);
        // Looking again without a change writes nothing.
        assert_eq!(story.say(Input::Start).effects, [Effect::Route]);
        assert_eq!(
            story.say(Input::Routed(Routed::Wait { queued })),
            Step { effects: vec![Effect::Park], ..Step::default() }
        );
        story.place(1, on_foot("a"), Replay::Unsafe);
        assert_eq!((story.task.state, story.reason()), (State::Running, String::new()));
    }
    let mut story = Story::of(spec(1));
    story.say(Input::Start);
    assert_eq!(story.say(Input::Routed(Routed::Skip)).effects, [Effect::Ended]);
    assert_eq!(story.task.state, State::Skipped);
    assert!(story.task.reason.unwrap().contains("read_local_file"));
}

#[test]
fn a_blocked_task_resumes_at_the_call_that_waited() {
    let mut story = Story::running(spec(2), Replay::Unsafe);
    story.ended(1, "a", done("one"));
    story.say(Input::Routed(Routed::Wait { queued: false }));
    story.restart();
    assert_eq!(story.say(Input::Start).effects, [Effect::Route]);
    story.place(2, on_foot("a"), Replay::Unsafe);
    story.ended(2, "a", done("two"));
    assert_eq!(story.task.state, State::Completed);
    assert_eq!(story.task.calls.len(), 2, "the finished call did not run again");
}

#[test]
fn a_cut_line_blocks_the_task_and_the_client_that_returns_takes_it_on() {
    let mut story = Story::running(spec(1), Replay::Unsafe);
    assert_eq!(story.say(Input::CallSuspended(call_id(1))).effects, [Effect::Park]);
    assert_eq!((story.task.state, story.reason().as_str()), (State::Blocked, WAITING));
    assert_eq!(story.say(Input::CallSuspended(call_id(1))).events, []);
    // Attached again: it runs.
    assert_eq!(story.say(Input::CallAttached(call_id(1))), Step { events: vec![Event::Resumed {}], ..Step::default() });
    assert_eq!(story.task.state, State::Running);
    // Cut once more; the Brain restarts meanwhile; the result comes with the reconnect.
    story.say(Input::CallSuspended(call_id(1)));
    story.restart();
    let call = story.task.call.clone().unwrap();
    assert_eq!(story.say(Input::Start).effects, [Effect::Reattach(call)]);
    let step = story.ended(1, "a", done("late but here"));
    assert_eq!(step.effects, [Effect::Ack(call_id(1), foot("a")), Effect::Ended]);
    assert_eq!(story.task.state, State::Completed);
}

#[test]
fn a_call_that_never_arrived_is_sent_again_under_its_id() {
    let mut story = Story::running(spec(1), Replay::Unsafe);
    story.say(Input::CallSuspended(call_id(1)));
    let step = story.say(Input::CallNeverArrived(call_id(1)));
    let [Effect::Dispatch(again)] = &step.effects[..] else { panic!("{step:?}") };
    assert_eq!((again.call_id.clone(), again.attempt), (call_id(1), 2));
    assert_eq!((story.task.state, story.task.calls[0].attempts), (State::Running, 2));
    // From here on it is bound to this client, also if the client is gone again.
    assert_eq!(story.say(Input::CallNotSent { call_id: call_id(1), busy: false }).effects, [Effect::Park]);
    assert_eq!(story.reason(), WAITING);
    assert_eq!(
        story.say(Input::CallNotSent { call_id: call_id(1), busy: true }).effects,
        [Effect::LookAgain(BUSY_WAIT)]
    );
    assert_eq!(story.task.state, State::Running, "who looks again soon is not let go");
}

#[test]
fn a_call_that_was_not_sent_is_routed_again() {
    let mut story = Story::running(spec(1), Replay::Unsafe);
    assert_eq!(story.say(Input::CallNotSent { call_id: call_id(1), busy: false }).effects, [Effect::Route]);
    assert_eq!((story.task.call.as_ref(), story.task.calls.len()), (None, 0), "nothing ran");
    story.place(2, on_foot("b"), Replay::Unsafe);
    assert_eq!(
        story.say(Input::CallNotSent { call_id: call_id(2), busy: true }).effects,
        [Effect::LookAgain(2 * BUSY_WAIT)]
    );
    assert_eq!(story.say(Input::Start).effects, [Effect::Route]);
    // Also one that was thought to be cut off: who looks again soon runs, a waiting task may be let go.
    let mut story = Story::running(spec(1), Replay::Unsafe);
    story.say(Input::CallSuspended(call_id(1)));
    story.say(Input::CallNotSent { call_id: call_id(1), busy: true });
    assert_eq!((story.task.state, story.task.wait.clone()), (State::Running, None));
}

#[test]
fn an_unknown_outcome_asks_and_each_answer_counts() {
    let asked = || {
        let mut story = Story::running(spec(2), Replay::Unsafe);
        let step = story.ended(1, "a", unknown());
        assert_eq!(step.effects, [Effect::Ack(call_id(1), foot("a")), Effect::Park]);
        assert_eq!(story.task.state, State::Blocked);
        assert_eq!(story.reason(), "Outcome unknown for Tool: read_local_file (call call_1)");
        story
    };
    let mut story = asked();
    assert_eq!(story.say(Input::Resolve(Verdict::Done { output: json!({"n": 1}) })).effects, [Effect::Route]);
    assert_eq!((story.task.step, story.task.output()["s0"]["structured"]["n"].clone()), (1, json!(1)));
    for (output, text, structured) in [
        (json!({"text": "sent"}), "sent", Value::Null),
        (json!({"text": "sent", "structured": {"n": 1}}), "sent", json!({"n": 1})),
        (json!("sent"), "sent", json!("sent")),
        (json!({"text": 1}), r#"{"text":1}"#, json!({"text": 1})),
        (Value::Null, "", Value::Null),
    ] {
        let mut story = asked();
        story.say(Input::Resolve(Verdict::Done { output }));
        assert_eq!(story.task.output()["s0"], json!({"text": text, "structured": structured, "content": []}));
    }
    let mut story = asked();
    assert_eq!(story.say(Input::Resolve(Verdict::Retry)).effects, [Effect::Route]);
    story.place(2, on_foot("a"), Replay::Unsafe);
    let mut story = asked();
    assert_eq!(story.say(Input::Resolve(Verdict::Failed)).effects, [Effect::Ended]);
    assert_eq!(story.task.error.unwrap().code, "resolved_failed");
    // The real result is better than any answer.
    let mut story = asked();
    assert_eq!(story.ended(1, "a", done("it ran")).effects, [Effect::Ack(call_id(1), foot("a")), Effect::Route]);
    assert_eq!(story.task.output()["s0"]["text"], "it ran");
    assert!(story.say(Input::Resolve(Verdict::Retry)).refused.is_some());
    // Nothing else gets past the question: no news of the line, no restart.
    for news in [
        Input::CallSuspended(call_id(1)),
        Input::CallAttached(call_id(1)),
        Input::CallNeverArrived(call_id(1)),
        Input::CallNotSent { call_id: call_id(1), busy: true },
        Input::Start,
    ] {
        let mut story = asked();
        story.restart();
        assert_eq!(story.say(news.clone()), Step { effects: vec![Effect::Park], ..Step::default() }, "{news:?}");
    }
}

#[test]
fn the_replay_class_and_the_policy_decide_on_unknown_outcomes() {
    for (replay, policy, want) in [
        (Replay::Safe, OnUnknown::Ask, State::Running),
        (Replay::Safe, OnUnknown::Fail, State::Running),
        (Replay::Unsafe, OnUnknown::Ask, State::Blocked),
        (Replay::Unsafe, OnUnknown::Fail, State::Failed),
        (Replay::Unsafe, OnUnknown::Retry, State::Running),
    ] {
        let mut story = Story::running(TaskSpec { on_unknown: policy, retry: many(), ..spec(1) }, replay);
        let step = story.ended(1, "a", unknown());
        assert_eq!(story.task.state, want, "{replay:?} {policy:?}");
        assert_eq!(step.effects.contains(&Effect::Route), want == State::Running);
    }
}

fn many() -> Retry {
    Retry { max_attempts: 3, backoff: Duration::from_secs(1) }
}

#[test]
fn a_safe_tool_that_dies_each_time_fails_in_the_end() {
    let mut story = Story::running(spec(1), Replay::Safe);
    for n in 1..=MAX_SAFE_RERUNS {
        assert_eq!(story.ended(n, "a", unknown()).effects[1], Effect::Route);
        story.place(n + 1, on_foot("a"), Replay::Safe);
    }
    story.ended(MAX_SAFE_RERUNS + 1, "a", unknown());
    let error = story.task.error.unwrap();
    assert_eq!((story.task.state, error.code.as_str()), (State::Failed, "outcome_unknown"));
    let Outcome::Unknown { reason } = unknown() else { panic!("unknown") };
    assert!(error.message.ends_with(&format!("in a row; the last time: {reason}")), "{}", error.message);
}

#[test]
fn a_retry_is_no_word_on_a_call_that_may_have_run() {
    let ends: [fn(&mut Story); 2] = [
        |_| {},
        |story| {
            story.say(Input::Cancel { reason: "enough".into() });
        },
    ];
    for (policy, end) in [(OnUnknown::Fail, ends[0]), (OnUnknown::Ask, ends[1])] {
        let mut story = Story::running(TaskSpec { on_unknown: policy, ..spec(1) }, Replay::Unsafe);
        story.ended(1, "a", unknown());
        end(&mut story);
        assert!(story.task.state.is_terminal());
        assert_eq!(story.say(Input::Retry { any_client: false }).events, [Event::Retried { any_client: false }]);
        story.restart();
        assert_eq!(story.say(Input::Start).effects, [Effect::Park]);
        assert_eq!(story.reason(), "Outcome unknown for Tool: read_local_file (call call_1)");
        assert_eq!(story.say(Input::Resolve(Verdict::Retry)).effects, [Effect::Route]);
        story.place(2, on_foot("a"), Replay::Unsafe);
        story.ended(2, "a", done("now"));
        assert_eq!(story.task.state, State::Completed);
    }
}

#[test]
fn a_failed_step_is_tried_again_with_a_new_id_and_growing_pauses() {
    let mut story = Story::running(TaskSpec { retry: many(), ..spec(1) }, Replay::Unsafe);
    let pauses = [1, 2];
    for (n, pause) in (1..).zip(pauses) {
        let step = story.ended(n, "a", Outcome::failed("tool_failed", "no"));
        assert_eq!(step.effects[1], Effect::LookAgain(Duration::from_secs(pause)));
        assert_eq!(story.say(Input::Start).effects, [Effect::Route]);
        story.place(n + 1, on_foot("a"), Replay::Unsafe);
    }
    assert_eq!(story.ended(3, "a", Outcome::failed("tool_failed", "no")).effects[1], Effect::Ended);
    assert_eq!((story.task.state, story.task.error.clone().unwrap().message.as_str()), (State::Failed, "no"));
    // A person's retry begins its attempts anew, at the same step.
    story.say(Input::Retry { any_client: false });
    assert_eq!((story.task.state, story.task.failed_attempts, story.task.error.clone()), (State::Pending, 0, None));
    assert_eq!(story.say(Input::Start).effects, [Effect::Route]);
}

#[test]
fn a_server_that_is_away_costs_an_attempt_and_not_the_task() {
    let away = || Input::Routed(Routed::Fault(Fault::new("server_unavailable", "server pack 'x' failed")));
    for (max_attempts, paused) in [(1, 0), (3, 2)] {
        let retry = Retry { max_attempts, ..many() };
        let mut story = Story::of(TaskSpec { retry, ..spec(1) });
        assert_eq!(story.say(Input::Start).effects, [Effect::Route]);
        for n in 0..paused {
            assert_eq!(story.say(away()).effects, [Effect::LookAgain(Duration::from_secs(1 << n))]);
            assert_eq!(story.say(Input::Start).effects, [Effect::Route], "nothing ran: also an unsafe one goes again");
        }
        assert_eq!(story.say(away()).effects, [Effect::Ended]);
        assert_eq!(story.task.error.clone().unwrap().code, "server_unavailable");
    }
    let mut story = Story::of(TaskSpec { retry: many(), ..spec(1) });
    story.say(Input::Start);
    let hopeless = Fault::new("unknown_tool", "no");
    assert_eq!(
        story.say(Input::Routed(Routed::Fault(hopeless))).effects,
        [Effect::Ended],
        "that does not become better"
    );
}

#[test]
fn what_was_stopped_on_its_way_is_repeated_only_if_that_is_safe() {
    let stopped = [Outcome::failed("timeout", "too long"), Outcome::Cancelled { reason: "stopped".into() }];
    let failed = Outcome::failed("exit", "1");
    for (replay, policy, stopped_want) in [
        (Replay::Safe, OnUnknown::Ask, State::Running),
        (Replay::Unsafe, OnUnknown::Retry, State::Running),
        (Replay::Unsafe, OnUnknown::Ask, State::Failed),
        (Replay::Unsafe, OnUnknown::Fail, State::Failed),
    ] {
        for (outcome, want) in stopped.iter().map(|o| (o, stopped_want)).chain([(&failed, State::Running)]) {
            let mut story = Story::running(TaskSpec { on_unknown: policy, retry: many(), ..spec(1) }, replay);
            story.ended(1, "a", outcome.clone());
            assert_eq!(story.task.state, want, "{replay:?} {policy:?} {outcome:?}");
        }
    }
}

#[test]
fn a_busy_side_costs_no_attempt() {
    let mut story = Story::running(spec(1), Replay::Unsafe);
    let step = story.ended(1, "a", Outcome::failed("busy", "256 calls run"));
    assert_eq!(step.effects[1], Effect::LookAgain(BUSY_WAIT));
    assert_eq!((story.task.state, story.task.failed_attempts), (State::Running, 0));
    assert_eq!(story.task.calls.len(), 0, "nothing ran");
    // However often: it is asked ever more slowly, up to a bound.
    let mut pauses = Vec::new();
    for n in 2..200 {
        story.place(n, on_foot("a"), Replay::Unsafe);
        let step = story.ended(n, "a", Outcome::failed("busy", "256 calls run"));
        let Effect::LookAgain(pause) = step.effects[1] else { panic!("{step:?}") };
        pauses.push(pause);
    }
    assert_eq!((pauses[0], pauses[198 - 1]), (2 * BUSY_WAIT, BUSY_WAIT_MAX));
    assert!(pauses.is_sorted() && story.task.failed_attempts == 0);
    let minute: Duration = (1..=MAX_UNAVAILABLE).map(busy_wait).sum();
    assert!((50..75).contains(&minute.as_secs()), "{minute:?}");
}

#[test]
fn a_tool_whose_pack_starts_is_asked_for_again_for_a_while() {
    for (code, tries, want) in [
        ("busy", 1_000, State::Running),
        ("unavailable", 1_000, State::Failed),
        ("unavailable", MAX_UNAVAILABLE, State::Running),
        ("unknown_tool", 1_000, State::Failed),
        ("unknown_tool", MAX_UNAVAILABLE, State::Running),
    ] {
        let mut story = Story::running(spec(1), Replay::Unsafe);
        for n in 1..=tries {
            story.ended(n, "a", Outcome::failed(code, "not now"));
            if story.task.state != State::Running {
                break;
            }
            story.say(Input::Start);
            story.place(n + 1, on_foot("a"), Replay::Unsafe);
        }
        assert_eq!(story.task.state, want, "{code}");
        assert!(story.task.calls.len() <= 1, "nothing ran");
    }
    // The wait for a client begins anew each time.
    let mut story = Story::running(spec(1), Replay::Unsafe);
    for n in 1..200 {
        story.ended(n, "a", Outcome::failed("unavailable", "not now"));
        story.say(Input::Start);
        story.say(Input::Routed(Routed::Wait { queued: false }));
        assert_eq!(story.reason(), WAITING);
        story.place(n + 1, on_foot("a"), Replay::Unsafe);
    }
    assert_eq!(story.task.state, State::Running);
}

#[test]
fn a_cancel_reaches_the_running_call_and_late_results_change_nothing() {
    for place in [on_foot("a"), Place::Server] {
        let mut story = Story::of(spec(1));
        story.say(Input::Start);
        story.place(1, place.clone(), Replay::Unsafe);
        let from = place.client().cloned();
        let told = [Effect::CancelCall(call_id(1), from.clone(), "not needed".into()), Effect::Ended];
        assert_eq!(story.say(Input::Cancel { reason: "not needed".into() }).effects, told);
        let again = Step { effects: told.into(), ..Step::default() };
        assert_eq!(story.say(Input::Start), again, "an actor that fell on the way tells it again");
        let late = Input::CallEnded { call_id: call_id(1), from: from.clone(), outcome: done("x") };
        let step = story.say(late.clone());
        assert_eq!(step.events, [Event::LateResult { call_id: call_id(1), outcome: "done".into() }]);
        assert_eq!(step.effects, from.map(|f| Effect::Ack(call_id(1), f)).into_iter().collect::<Vec<_>>());
        assert_eq!(story.say(late).events, [], "only the first one is kept");
        assert_eq!((story.task.state, story.task.output()), (State::Cancelled, Value::Null));
        assert_eq!(story.task.calls[0].outcome.as_deref(), Some("cancelled"));
        assert_eq!(story.task.calls[0].late.as_deref(), Some("done"));
        assert!(story.say(Input::Cancel { reason: String::new() }).refused.is_some());
    }
    for before in [vec![], vec![Input::Start], vec![Input::Start, Input::Routed(Routed::Wait { queued: true })]] {
        let mut story = Story::of(spec(1));
        before.into_iter().for_each(|i| drop(story.say(i)));
        assert_eq!(story.say(Input::Cancel { reason: "x".into() }).effects, [Effect::Ended]);
    }
}

#[test]
fn a_forged_result_counts_for_nothing_and_is_not_acknowledged() {
    let mut story = Story::running(spec(1), Replay::Unsafe);
    assert_eq!(story.ended(1, "mallory", done("forged")), Step::default());
    let of_server = Input::CallEnded { call_id: call_id(1), from: None, outcome: done("forged") };
    assert_eq!(story.say(of_server), Step::default());
    assert_eq!(story.task.state, State::Running);
    let step = story.ended(77, "mallory", done("guessed"));
    assert_eq!((step.events, story.task.state), (vec![], State::Running));
}

#[test]
fn a_timeout_of_the_task_counts_only_running_time() {
    let mut story = Story::running(TaskSpec { timeout: Some(Duration::from_secs(1)), ..spec(1) }, Replay::Unsafe);
    story.say(Input::CallSuspended(call_id(1)));
    story.now += 10_000;
    assert_eq!(story.say(Input::TimedOut), Step::default(), "a blocked task has time");
    assert_eq!(story.task.time_left_ms(story.now), Some(1_000 - 20));
    story.say(Input::CallAttached(call_id(1)));
    let told = Effect::CancelCall(call_id(1), Some(foot("a")), "the task's timeout is over".into());
    assert_eq!(story.say(Input::TimedOut).effects, [told.clone(), Effect::Ended]);
    assert_eq!(story.say(Input::Start).effects, [told, Effect::Ended], "also when its actor fell on the way");
    assert_eq!(story.task.error.unwrap().code, "timeout");
}

#[test]
fn what_waits_has_time_however_long_it_waits() {
    let limited = || TaskSpec { timeout: Some(Duration::from_secs(1)), ..spec(1) };
    let waits = |queued| {
        let mut story = Story::of(limited());
        story.say(Input::Start);
        story.say(Input::Routed(Routed::Wait { queued }));
        story
    };
    let mut suspended = Story::running(limited(), Replay::Unsafe);
    suspended.say(Input::CallSuspended(call_id(1)));
    let mut unknown = Story::running(limited(), Replay::Unsafe);
    unknown.ended(1, "a", self::unknown());
    for (what, mut story, state, reason) in [
        ("pending", Story::of(limited()), State::Pending, ""),
        ("blocked", waits(false), State::Blocked, WAITING),
        ("queued", waits(true), State::Queued, WAITING),
        ("suspended", suspended, State::Blocked, WAITING),
        ("unknown", unknown, State::Blocked, "Outcome unknown for Tool: read_local_file"),
    ] {
        let why = story.task.wait.as_ref().map(Wait::reason).unwrap_or_default();
        assert!(story.task.state == state && why.starts_with(reason), "{what}: {:?} {why}", story.task.state);
        let (before, left) = (story.task.clone(), story.task.time_left_ms(story.now));
        story.now += 100_000_000;
        assert_eq!(story.say(Input::TimedOut), Step::default(), "{what}");
        assert_eq!(story.task, before, "{what}");
        assert!(left > Some(900), "{what}: {left:?}");
        assert_eq!(story.task.time_left_ms(story.now), left, "{what}");
    }
}

#[test]
fn a_server_call_is_unknown_after_a_restart_but_not_when_looked_at_twice() {
    let start = |replay| {
        let mut story = Story::of(spec(1));
        story.say(Input::Start);
        story.place(1, Place::Server, replay);
        assert_eq!(story.say(Input::Start), Step::default(), "its verdict is on its way");
        story.restart();
        story
    };
    let mut story = start(Replay::Unsafe);
    assert_eq!(story.say(Input::Start).effects, [Effect::Park]);
    assert!(story.reason().starts_with("Outcome unknown for Tool: read_local_file"));
    let mut story = start(Replay::Safe);
    assert_eq!(story.say(Input::Start).effects, [Effect::Route]);
}

#[test]
fn a_decision_for_an_earlier_step_is_made_again() {
    let mut story = Story::of(spec(2));
    story.say(Input::Start);
    let stale = open_call(&story.task, 9, on_foot("a"), Replay::Unsafe);
    story.place(1, on_foot("a"), Replay::Unsafe);
    story.ended(1, "a", done("one"));
    let step = story.say(Input::Routed(Routed::Placed(stale)));
    assert_eq!((step.events, step.effects), (vec![], vec![Effect::Route]));
}

#[test]
fn a_parent_ends_as_its_children_ended() {
    for (end, state) in [
        (ChildrenEnd::Done, State::Completed),
        (ChildrenEnd::Failed { child: "c".into() }, State::Failed),
        (ChildrenEnd::Cancelled { child: "c".into() }, State::Cancelled),
    ] {
        let mut story = Story::of(spec(0));
        let mut head = (*story.task.head).clone();
        head.has_children = true;
        story.task.head = Arc::new(head.clone());
        story.stored[0].0 = Event::Submitted(head);
        assert_eq!(story.say(Input::Start).effects, [Effect::ChildrenMayRun]);
        assert_eq!(story.say(Input::Start).effects, [Effect::ChildrenMayRun], "also after a restart");
        assert_eq!(story.say(Input::ChildrenEnded(end)).effects, [Effect::Ended]);
        assert_eq!(story.task.state, state);
    }
    let mut story = Story::of(spec(0));
    story.say(Input::Start);
    assert_eq!(story.task.error.unwrap().code, "no_steps");
}

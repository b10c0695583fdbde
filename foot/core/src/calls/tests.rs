#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
//! Stories of single calls, and a property over any order of events with restarts in between.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use vance_shared::json::Raw;
use vance_shared::tool::ToolResult;

use super::again::SEND_AGAIN;
use super::*;

const NOW: Duration = Duration::from_secs(1000);

fn id(n: usize) -> CallId {
    CallId::parse(&format!("call_{n}")).unwrap()
}

fn frame(n: usize, attempt: u32) -> Call {
    Call {
        call_id: id(n),
        attempt,
        tool: "t".to_owned(),
        arguments: Raw::empty_object(),
        timeout_ms: 1000,
        cap_ms: 1000,
        answer_ms: None,
        traceparent: TraceContext::from_parts(7, 7, true),
    }
}

fn call(n: usize, attempt: u32, replay: Replay) -> Event {
    Event::Call { call: frame(n, attempt), tool: Ok(replay) }
}

fn done() -> Outcome {
    Outcome::Done(ToolResult::text("ok"))
}

fn online(max_live: usize) -> Calls {
    let mut calls = Calls::boot([], max_live);
    assert_eq!(calls.apply(NOW, Event::Connected { inflight: vec![] }), vec![]);
    calls
}

/// Effects in words, for tables.
fn words(effects: &[Effect]) -> Vec<String> {
    effects
        .iter()
        .map(|effect| match effect {
            Effect::Begin { durable: true, .. } => "begin durable".to_owned(),
            Effect::Begin { durable: false, .. } => "begin".to_owned(),
            Effect::Accept(a) => format!("accept {}", a.attempt),
            Effect::Run(_) => "run".to_owned(),
            Effect::Store(r) => format!("store {}", r.outcome.word()),
            Effect::Send(CallResult { outcome: Outcome::Failed { error, .. }, .. }) => format!("send {}", error.code),
            Effect::Send(r) => format!("send {}", r.outcome.word()),
            Effect::Resend { attempt, .. } => format!("resend {attempt}"),
            Effect::CancelRun { .. } => "cancel run".to_owned(),
            Effect::Forget(_) => "forget".to_owned(),
        })
        .collect()
}

#[track_caller]
fn story(calls: &mut Calls, steps: Vec<(Event, &[&str])>) {
    for (event, want) in steps {
        let said = format!("{event:?}");
        assert_eq!(words(&calls.apply(NOW, event)), want, "{said}");
    }
}

fn ended(n: usize) -> Event {
    Event::Ended { call_id: id(n), outcome: done() }
}

fn journalled(n: usize) -> Event {
    Event::Journalled { call_id: id(n), written: Ok(()) }
}

fn cancel(n: usize) -> Event {
    Event::Cancel { call_id: id(n), reason: "no longer needed".to_owned() }
}

fn ack(n: usize) -> Event {
    Event::ResultAck { call_id: id(n) }
}

#[test]
fn an_unsafe_call_is_on_disk_before_it_is_accepted_and_run() {
    story(
        &mut online(8),
        vec![
            (call(1, 1, Replay::Unsafe), &["begin durable"]),
            (call(1, 1, Replay::Unsafe), &[]),
            (journalled(1), &["accept 1", "run"]),
            (journalled(1), &[]),
            (ended(1), &["store done", "send done"]),
            (ended(1), &[]),
            (ack(1), &["forget"]),
            (ack(1), &[]),
            (call(1, 2, Replay::Unsafe), &["send unknown"]),
        ],
    );
}

#[test]
fn a_safe_call_waits_for_no_disk() {
    story(&mut online(8), vec![(call(1, 1, Replay::Safe), &["begin", "accept 1", "run"])]);
}

#[test]
fn a_repeated_call_is_answered_and_never_run_again() {
    story(
        &mut online(8),
        vec![
            (call(1, 1, Replay::Safe), &["begin", "accept 1", "run"]),
            (call(1, 2, Replay::Safe), &["accept 2"]),
            (ended(1), &["store done", "send done"]),
            (call(1, 3, Replay::Safe), &["accept 3", "resend 3"]),
        ],
    );
}

#[test]
fn a_result_is_sent_again_after_each_reconnect_until_it_is_acknowledged() {
    let back = || Event::Connected { inflight: vec![id(1)] };
    story(
        &mut online(8),
        vec![
            (call(1, 1, Replay::Safe), &["begin", "accept 1", "run"]),
            (Event::Disconnected, &[]),
            (ended(1), &["store done"]),
            (back(), &["resend 1"]),
            (Event::Disconnected, &[]),
            (back(), &["resend 1"]),
            (ack(1), &["forget"]),
            (Event::Disconnected, &[]),
            (back(), &[]),
        ],
    );
}

#[test]
fn a_result_that_nobody_acknowledges_is_sent_again_on_the_same_line() {
    let mut calls = online(8);
    story(
        &mut calls,
        vec![
            (call(1, 1, Replay::Safe), &["begin", "accept 1", "run"]),
            (Event::Tick, &[]),
            (ended(1), &["store done", "send done"]),
            (Event::Tick, &[]),
        ],
    );
    let later = NOW + SEND_AGAIN;
    assert_eq!(words(&calls.apply(later, Event::Tick)), ["resend 1"]);
    assert_eq!(words(&calls.apply(later, Event::Tick)), [""; 0]);
    calls.apply(later, Event::Disconnected);
    assert_eq!(words(&calls.apply(later + SEND_AGAIN, Event::Tick)), [""; 0], "nobody is there");
    calls.apply(later, Event::Connected { inflight: vec![id(1)] });
    assert_eq!(words(&calls.apply(later, ack(1))), ["forget"]);
    assert_eq!(words(&calls.apply(later + SEND_AGAIN, Event::Tick)), [""; 0]);
}

#[test]
fn an_interrupted_safe_call_that_nobody_sends_again_is_answered_as_unknown() {
    let state = RowState::Running { attached: false };
    let mut calls = Calls::boot([Row { call_id: id(1), attempt: 1, replay: Replay::Safe, state }], 8);
    assert_eq!(words(&calls.apply(NOW, Event::Connected { inflight: vec![id(1)] })), [""; 0]);
    assert_eq!(words(&calls.apply(NOW, Event::Tick)), [""; 0], "the Brain may still send it again");
    assert_eq!(words(&calls.apply(NOW + SEND_AGAIN, Event::Tick)), ["store unknown", "send unknown"]);
    assert_eq!(words(&calls.apply(NOW + SEND_AGAIN, ack(1))), ["forget"]);
}

#[test]
fn after_the_loss_of_a_journal_nothing_unsafe_runs_a_second_time() {
    for (lost, attempt, replay, want) in [
        (true, 1, Replay::Unsafe, "begin durable"),
        (true, 2, Replay::Unsafe, "send unknown"),
        (true, 2, Replay::Safe, "begin"),
        (false, 2, Replay::Unsafe, "begin durable"),
    ] {
        let mut loading = Calls::boot([], 8).after_a_loss(lost);
        let fault = Err(Fault::new("unavailable", "its pack starts"));
        let said = words(&loading.apply(NOW, Event::Call { call: frame(1, attempt), tool: fault }));
        assert_eq!(said[0], if lost && attempt > 1 { "send unknown" } else { "send unavailable" });
        let mut calls = Calls::boot([], 8).after_a_loss(lost);
        calls.apply(NOW, Event::Connected { inflight: vec![id(1)] });
        let said = words(&calls.apply(NOW, call(1, attempt, replay)));
        assert_eq!(said[0], want, "{lost} {attempt} {replay:?}");
        assert_eq!(calls.live(), usize::from(want != "send unknown"));
    }
}

#[test]
fn what_the_brain_does_not_list_is_forgotten_once_it_has_ended() {
    let mut calls = online(8);
    story(
        &mut calls,
        vec![
            (call(1, 1, Replay::Safe), &["begin", "accept 1", "run"]),
            (call(2, 1, Replay::Safe), &["begin", "accept 1", "run"]),
            (ended(1), &["store done", "send done"]),
            (Event::Disconnected, &[]),
            (Event::Connected { inflight: vec![] }, &["forget"]),
        ],
    );
    assert_eq!(calls.inflight(), Inflight { running: vec![id(2)], ..Inflight::default() });
}

#[test]
fn a_cancel_works_before_while_and_after_the_call_runs() {
    story(
        &mut online(8),
        vec![
            (cancel(1), &[]),
            (call(1, 1, Replay::Unsafe), &["accept 1", "store cancelled", "send cancelled"]),
            (call(1, 2, Replay::Unsafe), &["accept 2", "resend 2"]),
            (call(2, 1, Replay::Unsafe), &["begin durable"]),
            (cancel(2), &[]),
            (journalled(2), &["accept 1", "store cancelled", "send cancelled"]),
            (call(3, 1, Replay::Unsafe), &["begin durable"]),
            (journalled(3), &["accept 1", "run"]),
            (cancel(3), &["cancel run"]),
            (ended(3), &["store done", "send done"]),
            (cancel(3), &[]),
            (ack(3), &["forget"]),
            (cancel(3), &[]),
        ],
    );
}

#[test]
fn an_early_cancel_is_forgotten_after_a_minute() {
    let mut calls = online(8);
    calls.apply(NOW, cancel(1));
    let effects = calls.apply(NOW + EARLY_CANCEL_FOR, call(1, 1, Replay::Safe));
    assert_eq!(words(&effects), ["begin", "accept 1", "run"]);
}

#[test]
fn one_call_too_many_is_answered_busy_and_may_come_again() {
    story(
        &mut online(1),
        vec![
            (call(1, 1, Replay::Safe), &["begin", "accept 1", "run"]),
            (call(2, 1, Replay::Safe), &["send busy"]),
            (ended(1), &["store done", "send done"]),
            (call(2, 2, Replay::Safe), &["begin", "accept 2", "run"]),
        ],
    );
}

#[test]
fn a_call_that_cannot_be_journalled_does_not_run() {
    let full = Event::Journalled { call_id: id(1), written: Err("disk full".to_owned()) };
    let mut calls = online(1);
    story(&mut calls, vec![(call(1, 1, Replay::Unsafe), &["begin durable"]), (full, &["send journal_failed"])]);
    assert_eq!(calls.live(), 0);
}

#[test]
fn a_tool_that_is_not_there_is_answered_and_its_call_may_come_again() {
    let gone = Event::Call { call: frame(1, 1), tool: Err(Fault::new("unknown_tool", "no such tool")) };
    story(
        &mut online(8),
        vec![(gone, &["send unknown_tool"]), (call(1, 2, Replay::Safe), &["begin", "accept 2", "run"])],
    );
}

#[test]
fn after_a_restart_an_unsafe_call_is_unknown_and_a_safe_one_runs_when_it_is_sent_again() {
    let row = |n, replay, state| Row { call_id: id(n), attempt: 1, replay, state };
    let rows = [
        row(1, Replay::Unsafe, RowState::Running { attached: false }),
        row(2, Replay::Safe, RowState::Running { attached: false }),
        row(3, Replay::Unsafe, RowState::Finished),
        row(4, Replay::Unsafe, RowState::Forgotten),
        row(5, Replay::Unsafe, RowState::Running { attached: true }),
    ];
    let mut calls = Calls::boot(rows, 8);
    let inflight = Inflight { running: vec![id(5)], finished: vec![id(3)], interrupted: vec![id(1), id(2)] };
    assert_eq!(calls.inflight(), inflight);
    story(
        &mut calls,
        vec![
            (
                Event::Connected { inflight: vec![id(1), id(2), id(3), id(5)] },
                &["store unknown", "send unknown", "resend 1"],
            ),
            (call(1, 2, Replay::Unsafe), &["accept 2", "resend 2"]),
            (call(2, 2, Replay::Safe), &["begin", "accept 2", "run"]),
            (call(4, 2, Replay::Unsafe), &["send unknown"]),
            (ended(5), &["store done", "send done"]),
        ],
    );
}

/// Two calls of a safe tool, two of an unsafe one.
fn class(n: usize) -> Replay {
    if n < 2 { Replay::Safe } else { Replay::Unsafe }
}

#[derive(Debug, Clone)]
enum Step {
    Deliver(Event),
    /// The journal's answer to the oldest durable write that waits.
    DiskAnswers {
        ok: bool,
    },
    Restart {
        keeps_lazy_writes: bool,
    },
    Online {
        lists_all: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let n = 0..4usize;
    prop_oneof![
        6 => (n.clone(), 1..4u32).prop_map(|(n, attempt)| Step::Deliver(call(n, attempt, class(n)))),
        4 => n.clone().prop_map(|n| Step::Deliver(ended(n))),
        2 => n.clone().prop_map(|n| Step::Deliver(cancel(n))),
        3 => n.clone().prop_map(|n| Step::Deliver(ack(n))),
        1 => n.prop_map(|n| Step::Deliver(Event::Journalled { call_id: id(n), written: Ok(()) })),
        5 => prop::bool::weighted(0.9).prop_map(|ok| Step::DiskAnswers { ok }),
        2 => any::<bool>().prop_map(|keeps_lazy_writes| Step::Restart { keeps_lazy_writes }),
        3 => prop::bool::weighted(0.8).prop_map(|lists_all| Step::Online { lists_all }),
        2 => Just(Step::Deliver(Event::Disconnected)),
    ]
}

/// The shell, as far as the property needs it: a journal that may lose what was not flushed, and a ledger of runs.
#[derive(Default)]
struct World {
    disk: BTreeMap<CallId, (Replay, RowState)>,
    lazy: BTreeMap<CallId, (Replay, RowState)>,
    durable_waits: Vec<CallId>,
    runs: BTreeMap<CallId, u32>,
    running: BTreeSet<CallId>,
    interrupted_times: BTreeMap<CallId, u32>,
    last_sent: Vec<CallId>,
}

impl World {
    fn perform(&mut self, effects: Vec<Effect>, was_online: bool) {
        self.last_sent.clear();
        for effect in effects {
            match effect {
                Effect::Begin { call_id, replay, durable, .. } => {
                    let row = (replay, RowState::Running { attached: false });
                    if durable {
                        self.durable_waits.push(call_id);
                    } else {
                        self.lazy.insert(call_id, row);
                    }
                }
                Effect::Run(call) => {
                    let n: usize = call.call_id.as_str()[5..].parse().unwrap();
                    let on_disk = self.disk.contains_key(&call.call_id);
                    assert!(on_disk || class(n) == Replay::Safe, "an unsafe call ran before it was on disk");
                    *self.runs.entry(call.call_id.clone()).or_default() += 1;
                    assert!(self.running.insert(call.call_id), "two runs of one call at a time");
                }
                Effect::Store(r) => {
                    self.running.remove(&r.call_id);
                    let replay = class(r.call_id.as_str()[5..].parse().unwrap());
                    self.lazy.insert(r.call_id, (replay, RowState::Finished));
                }
                Effect::Forget(call_id) => {
                    let replay = class(call_id.as_str()[5..].parse().unwrap());
                    self.lazy.insert(call_id, (replay, RowState::Forgotten));
                }
                Effect::Send(r) => self.last_sent.push(r.call_id),
                Effect::Resend { call_id, .. } => {
                    let held = self.lazy.get(&call_id).or_else(|| self.disk.get(&call_id)).unwrap();
                    assert_eq!(held.1, RowState::Finished, "only what the journal holds is sent from it");
                    assert!(was_online);
                    self.last_sent.push(call_id);
                }
                Effect::Accept(_) => {}
                Effect::CancelRun { call_id, .. } => assert!(self.running.contains(&call_id)),
            }
        }
    }

    fn rows(&self) -> Vec<Row> {
        let row = |(call_id, (replay, state)): (&CallId, &(Replay, RowState))| Row {
            call_id: call_id.clone(),
            attempt: 1,
            replay: *replay,
            state: *state,
        };
        self.disk.iter().map(row).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(1000), ..ProptestConfig::default() })]
    #[test]
    fn whatever_comes_in_whatever_order_an_unsafe_call_runs_at_most_once(steps in prop::collection::vec(step(), 1..60)) {
        const MAX_LIVE: usize = 2;
        let mut world = World::default();
        let mut calls = Calls::boot([], MAX_LIVE);
        let mut online = false;
        for step in steps {
            match step {
                Step::Deliver(event) => {
                    // A frame only comes over a line, and an acknowledged result was sent.
                    match &event {
                        Event::Call { .. } | Event::Cancel { .. } | Event::ResultAck { .. } if !online => continue,
                        Event::Ended { call_id, .. } if !world.running.contains(call_id) => continue,
                        Event::Journalled { .. } => continue,
                        Event::Disconnected => online = false,
                        _ => {}
                    }
                    let effects = calls.apply(NOW, event);
                    world.perform(effects, online);
                }
                Step::DiskAnswers { ok } => {
                    let Some(call_id) = (!world.durable_waits.is_empty()).then(|| world.durable_waits.remove(0)) else { continue };
                    if ok {
                        world.disk.insert(call_id.clone(), (Replay::Unsafe, RowState::Running { attached: false }));
                    }
                    let written = if ok { Ok(()) } else { Err("full".to_owned()) };
                    let effects = calls.apply(NOW, Event::Journalled { call_id, written });
                    world.perform(effects, online);
                }
                Step::Restart { keeps_lazy_writes } => {
                    let lazy = std::mem::take(&mut world.lazy);
                    if keeps_lazy_writes {
                        world.disk.extend(lazy);
                    }
                    world.durable_waits.clear();
                    for call_id in std::mem::take(&mut world.running) {
                        *world.interrupted_times.entry(call_id).or_default() += 1;
                    }
                    // A safe call whose row was lost may run again, also when it had ended.
                    for call_id in world.runs.keys() {
                        if !world.disk.contains_key(call_id) {
                            *world.interrupted_times.entry(call_id.clone()).or_default() += 1;
                        }
                    }
                    for (call_id, (_, state)) in &world.disk {
                        if matches!(state, RowState::Running { .. }) {
                            *world.interrupted_times.entry(call_id.clone()).or_default() += 1;
                        }
                    }
                    calls = Calls::boot(world.rows(), MAX_LIVE);
                    online = false;
                }
                Step::Online { lists_all } => {
                    online = true;
                    let held = calls.inflight();
                    let mut inflight = [held.running.clone(), held.finished.clone(), held.interrupted].concat();
                    if !lists_all {
                        inflight.truncate(held.running.len());
                    }
                    let listed = inflight.clone();
                    let effects = calls.apply(NOW, Event::Connected { inflight });
                    world.perform(effects, true);
                    for call_id in held.finished {
                        let sent = world.last_sent.contains(&call_id);
                        prop_assert_eq!(sent, listed.contains(&call_id), "each kept result goes out again, unless nobody wants it");
                    }
                }
            }
            prop_assert!(calls.live() <= MAX_LIVE);
            for (call_id, runs) in &world.runs {
                let n: usize = call_id.as_str()[5..].parse().unwrap();
                let allowed = match class(n) {
                    Replay::Unsafe => 1,
                    Replay::Safe => 1 + world.interrupted_times.get(call_id).copied().unwrap_or(0),
                };
                prop_assert!(*runs <= allowed, "{call_id} ran {runs} times");
            }
        }
    }
}

//! The decisions as tables and properties.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use proptest::prelude::{Just, any, prop_assert, prop_assert_eq, prop_oneof, proptest};
use proptest::strategy::Strategy as Gives;

use super::*;

const STRATEGIES: [Strategy; 3] = [Strategy::OneForOne, Strategy::RestForOne, Strategy::OneForAll];
const RESTARTS: [Restart; 3] = [Restart::Permanent, Restart::Transient, Restart::Temporary];

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn failed() -> ExitReason {
    ExitReason::Failed("x".into())
}

/// A decider with these children up since 0, without waits, two restarts allowed.
fn up(strategy: Strategy, children: &[Restart]) -> Decider {
    let intensity = Intensity { max_restarts: 2, within: secs(60) };
    let backoff = Backoff { first: Duration::ZERO, max: Duration::ZERO };
    let mut decider = Decider::new(strategy, intensity, backoff);
    for (index, restart) in children.iter().enumerate() {
        decider.add(format!("c{index}"), *restart, secs(0));
    }
    decider.tick(secs(0));
    decider
}

#[test]
fn who_comes_back() {
    use Restart::{Permanent, Temporary, Transient};
    let panicked = || ExitReason::Panicked("x".into());
    let table = [
        (Permanent, ExitReason::Normal, vec![Action::Start(0)]),
        (Permanent, failed(), vec![Action::Start(0)]),
        (Permanent, panicked(), vec![Action::Start(0)]),
        (Permanent, ExitReason::Shutdown, vec![Action::Remove(0)]),
        (Transient, ExitReason::Normal, vec![Action::Remove(0)]),
        (Transient, failed(), vec![Action::Start(0)]),
        (Transient, panicked(), vec![Action::Start(0)]),
        (Transient, ExitReason::Shutdown, vec![Action::Remove(0)]),
        (Temporary, ExitReason::Normal, vec![Action::Remove(0)]),
        (Temporary, failed(), vec![Action::Fail(0)]),
        (Temporary, panicked(), vec![Action::Fail(0)]),
        (Temporary, ExitReason::Shutdown, vec![Action::Remove(0)]),
    ];
    for (restart, reason, expected) in table {
        let mut decider = up(Strategy::OneForOne, &[restart]);
        let actions = decider.ended(0, reason.clone(), secs(1), 0.0);
        assert_eq!(actions, expected, "{restart:?} after {reason}");
    }
}

#[test]
fn who_is_taken_along() {
    use Restart::Permanent;
    let table: [(Strategy, Key, &[Key]); 9] = [
        (Strategy::OneForOne, 0, &[]),
        (Strategy::OneForOne, 1, &[]),
        (Strategy::OneForOne, 2, &[]),
        (Strategy::RestForOne, 0, &[1, 2]),
        (Strategy::RestForOne, 1, &[2]),
        (Strategy::RestForOne, 2, &[]),
        (Strategy::OneForAll, 0, &[1, 2]),
        (Strategy::OneForAll, 1, &[0, 2]),
        (Strategy::OneForAll, 2, &[0, 1]),
    ];
    for (strategy, fallen, along) in table {
        let mut decider = up(strategy, &[Permanent; 3]);
        let mut actions = decider.ended(fallen, failed(), secs(1), 0.0);
        let stops: Vec<Action> = along.iter().map(|key| Action::Stop(*key)).collect();
        if !along.is_empty() {
            assert_eq!(actions, stops, "{strategy:?}, {fallen} fell: the others are stopped first");
            actions.clear();
        }
        for key in along {
            assert!(actions.is_empty(), "{strategy:?}, {fallen} fell: nobody starts before all are gone");
            actions = decider.ended(*key, ExitReason::Shutdown, secs(1), 0.0);
        }
        let mut group = along.to_vec();
        group.push(fallen);
        group.sort_unstable();
        let starts: Vec<Action> = group.into_iter().map(Action::Start).collect();
        assert_eq!(actions, starts, "{strategy:?}, {fallen} fell: all start in order");
    }
}

#[test]
fn an_expected_end_takes_nobody_along() {
    for strategy in STRATEGIES {
        for restart in [Restart::Transient, Restart::Temporary] {
            let mut decider = up(strategy, &[restart, Restart::Permanent]);
            assert_eq!(decider.ended(0, ExitReason::Normal, secs(1), 0.0), [Action::Remove(0)]);
        }
    }
}

#[test]
fn a_temporary_sibling_is_stopped_with_its_group_and_stays_away() {
    let mut decider = up(Strategy::OneForAll, &[Restart::Permanent, Restart::Temporary]);
    assert_eq!(decider.ended(0, failed(), secs(1), 0.0), [Action::Stop(1)]);
    let actions = decider.ended(1, ExitReason::Shutdown, secs(1), 0.0);
    assert_eq!(actions, [Action::Remove(1), Action::Start(0)]);
}

#[test]
fn a_stop_turns_a_group_restart_into_a_farewell() {
    let mut decider = up(Strategy::OneForAll, &[Restart::Permanent; 3]);
    assert_eq!(decider.ended(0, failed(), secs(1), 0.0), [Action::Stop(1), Action::Stop(2)]);
    assert_eq!(decider.stop(1), [], "it is stopping already");
    assert_eq!(decider.ended(1, ExitReason::Shutdown, secs(1), 0.0), [Action::Remove(1)]);
    let actions = decider.ended(2, ExitReason::Shutdown, secs(1), 0.0);
    assert_eq!(actions, [Action::Start(0), Action::Start(2)]);
}

#[test]
fn a_new_child_joins_a_group_restart_under_way() {
    let mut decider = up(Strategy::OneForAll, &[Restart::Permanent; 2]);
    decider.ended(0, failed(), secs(1), 0.0);
    let key = decider.add("late".into(), Restart::Permanent, secs(1));
    assert_eq!(decider.tick(secs(1)), []);
    let actions = decider.ended(1, ExitReason::Shutdown, secs(1), 0.0);
    assert_eq!(actions, [Action::Start(0), Action::Start(1), Action::Start(key)]);
}

#[test]
fn waits_double_up_to_the_most_and_jitter_takes_up_to_half() {
    let table = [
        // first, max, streak, jitter, wait (ms)
        (0, 30_000, 1, 0.0, 0),
        (0, 30_000, 2, 0.0, 100),
        (0, 30_000, 3, 0.0, 200),
        (0, 30_000, 4, 0.0, 400),
        (0, 30_000, 12, 0.0, 30_000),
        (0, 30_000, u32::MAX, 0.0, 30_000),
        (0, 0, 7, 0.0, 0),
        (1_000, 30_000, 1, 0.0, 1_000),
        (1_000, 30_000, 2, 0.0, 2_000),
        (1_000, 30_000, 6, 0.0, 30_000),
        (10, 30_000, 2, 0.0, 100),
        (5_000, 1_000, 1, 0.0, 1_000),
        (1_000, 30_000, 1, 0.5, 750),
        (1_000, 30_000, 6, 1.0, 15_000),
    ];
    for (first, max, streak, jitter, expected) in table {
        let backoff = Backoff { first: ms(first), max: ms(max) };
        let case = format!("first {first}, max {max}, streak {streak}, jitter {jitter}");
        assert_eq!(wait(backoff, streak, jitter), ms(expected), "{case}");
    }
    let endless = Backoff { first: Duration::MAX, max: Duration::MAX };
    assert_eq!(wait(endless, 5, 0.0), LONGEST);
}

#[test]
fn a_waiting_child_starts_when_it_is_due() {
    let mut decider = up(Strategy::OneForOne, &[Restart::Permanent; 2]);
    decider.backoff = Backoff { first: secs(4), max: secs(30) };
    assert_eq!(decider.ended(0, failed(), secs(10), 0.0), []);
    assert_eq!(decider.next_due(), Some(secs(14)));
    assert_eq!(decider.tick(secs(13)), []);
    assert_eq!(decider.tick(secs(14)), [Action::Start(0)]);
    assert_eq!(decider.next_due(), None);
    assert_eq!(decider.get(0).unwrap().restarts, 1);
}

#[test]
fn too_many_restarts_in_a_row_end_the_supervisor() {
    let mut decider = up(Strategy::OneForOne, &[Restart::Permanent; 2]);
    assert_eq!(decider.ended(0, failed(), secs(1), 0.0), [Action::Start(0)]);
    assert_eq!(decider.ended(0, failed(), secs(2), 0.0), [Action::Start(0)]);
    assert_eq!(decider.ended(0, failed(), secs(3), 0.0), [Action::Remove(0), Action::Stop(1)]);
    let actions = decider.ended(1, ExitReason::Shutdown, secs(4), 0.0);
    let [Action::Remove(1), Action::End(ExitReason::Failed(why))] = actions.as_slice() else {
        panic!("{actions:?}");
    };
    assert_eq!(why, "gave up after 2 restarts without 60s of uptime, at last `c0`: failed: x");
}

#[test]
fn sustained_uptime_sets_the_count_to_zero() {
    let mut decider = up(Strategy::OneForOne, &[Restart::Permanent]);
    let mut now = secs(0);
    for _ in 0..20 {
        now += secs(60);
        assert_eq!(decider.ended(0, failed(), now, 0.0), [Action::Start(0)]);
        now += secs(59);
        assert_eq!(decider.ended(0, failed(), now, 0.0), [Action::Start(0)]);
    }
}

#[test]
fn slow_but_steady_failing_is_not_forgiven_by_the_clock_alone() {
    let mut decider = up(Strategy::OneForOne, &[Restart::Permanent]);
    decider.backoff = Backoff { first: secs(300), max: secs(300) };
    for now in [0, 300] {
        assert_eq!(decider.ended(0, failed(), secs(now), 0.0), []);
        assert_eq!(decider.tick(secs(now + 300)), [Action::Start(0)]);
    }
    let actions = decider.ended(0, failed(), secs(600), 0.0);
    assert!(matches!(actions.last(), Some(Action::End(ExitReason::Failed(_)))), "{actions:?}");
}

#[test]
fn one_for_one_counts_each_child_and_a_group_counts_all() {
    let mut alone = up(Strategy::OneForOne, &[Restart::Permanent; 2]);
    for key in [0, 1, 0, 1] {
        assert_eq!(alone.ended(key, failed(), secs(1), 0.0), [Action::Start(key)]);
    }
    let mut group = up(Strategy::RestForOne, &[Restart::Permanent; 2]);
    assert_eq!(group.ended(1, failed(), secs(1), 0.0), [Action::Start(1)]);
    assert_eq!(group.ended(1, failed(), secs(1), 0.0), [Action::Start(1)]);
    assert_eq!(group.ended(0, failed(), secs(1), 0.0), [Action::Remove(0), Action::Stop(1)]);
    assert!(group.ending().is_some_and(ExitReason::is_fault));
}

#[test]
fn failed_children_are_kept_up_to_a_limit() {
    let mut decider = up(Strategy::OneForOne, &[Restart::Temporary; FAILED_KEPT + 1]);
    for key in 0..FAILED_KEPT as Key {
        assert_eq!(decider.ended(key, failed(), secs(1), 0.0), [Action::Fail(key)]);
    }
    let last = FAILED_KEPT as Key;
    assert_eq!(decider.ended(last, failed(), secs(1), 0.0), [Action::Fail(last), Action::Remove(0)]);
}

#[test]
fn an_empty_supervisor_ends_at_once_and_once() {
    let mut decider = up(Strategy::OneForOne, &[]);
    assert_eq!(decider.shutdown(), [Action::End(ExitReason::Shutdown)]);
    assert_eq!(decider.shutdown(), []);
}

#[derive(Clone, Debug)]
enum Op {
    Add(Restart),
    End(usize, ExitReason),
    Stop(usize),
    Pass(u64),
    Shutdown,
}

fn op() -> impl Gives<Value = Op> {
    let reason = prop_oneof![
        Just(ExitReason::Normal),
        Just(failed()),
        Just(ExitReason::Panicked("y".into())),
        Just(ExitReason::Shutdown),
    ];
    prop_oneof![
        4 => proptest::sample::select(&RESTARTS[..]).prop_map(Op::Add),
        8 => (any::<usize>(), reason).prop_map(|(index, reason)| Op::End(index, reason)),
        2 => any::<usize>().prop_map(Op::Stop),
        4 => (0_u64..90_000).prop_map(Op::Pass),
        1 => Just(Op::Shutdown),
    ]
}

/// What the world knows: who runs, whom it was told to stop, whether all is over.
#[derive(Default)]
struct World {
    running: BTreeSet<Key>,
    asked: BTreeSet<Key>,
    over: u32,
}

impl World {
    fn perform(&mut self, decider: &Decider, actions: &[Action]) {
        for action in actions {
            assert_eq!(self.over, 0, "nothing follows the end");
            match action {
                Action::Start(key) => {
                    assert!(decider.ending().is_none(), "nothing starts while ending");
                    assert!(self.running.insert(*key), "{key} runs already");
                }
                Action::Stop(key) => {
                    assert!(self.running.contains(key), "{key} does not run");
                    assert!(self.asked.insert(*key), "{key} was asked before");
                }
                Action::Fail(key) | Action::Remove(key) => {
                    assert!(!self.running.contains(key), "{key} runs on, unwatched");
                }
                Action::End(_) => {
                    assert!(self.running.is_empty(), "somebody runs on");
                    self.over += 1;
                }
            }
        }
        for (key, child) in &decider.children {
            let (runs, asked) = (self.running.contains(key), self.asked.contains(key));
            let expected = match child.phase {
                Phase::Up { .. } => (true, false),
                Phase::Stopping(_) => (true, true),
                Phase::Waiting { .. } | Phase::Failed => (false, false),
            };
            assert_eq!((runs, asked), expected, "{key} {:?}", child.phase);
            assert!(decider.waiting.iter().any(|(_, k)| k == key) == matches!(child.phase, Phase::Waiting { .. }));
            assert_eq!(decider.stopping.contains(key), matches!(child.phase, Phase::Stopping(_)));
            assert_eq!(decider.failed.contains(key), child.phase == Phase::Failed);
        }
        assert!(self.running.iter().all(|key| decider.children.contains_key(key)), "nobody runs unknown");
        let indexed = decider.waiting.len() + decider.stopping.len() + decider.failed.len();
        assert!(indexed <= decider.children.len(), "no index outlives its child");
    }

    fn end(&mut self, key: Key) {
        self.running.remove(&key);
        self.asked.remove(&key);
    }
}

proptest! {
    #[test]
    fn any_order_of_events_keeps_the_tree_whole(
        strategy in proptest::sample::select(&STRATEGIES[..]),
        max_restarts in 0_u32..6,
        first_ms in 0_u64..2_000,
        jitter in 0.0..1.0_f64,
        ops in proptest::collection::vec(op(), 0..80),
    ) {
        let intensity = Intensity { max_restarts, within: secs(60) };
        let backoff = Backoff { first: ms(first_ms), max: secs(30) };
        let mut decider = Decider::new(strategy, intensity, backoff);
        let mut world = World::default();
        let mut now = Duration::ZERO;
        for op in ops {
            if world.over > 0 {
                break;
            }
            let known: Vec<Key> = decider.children.keys().copied().collect();
            let running: Vec<Key> = world.running.iter().copied().collect();
            let actions = match op {
                Op::Add(restart) => {
                    if decider.ending().is_none() {
                        decider.add("c".into(), restart, now);
                    }
                    Vec::new()
                }
                Op::End(index, reason) if !running.is_empty() => {
                    let key = running[index % running.len()];
                    world.end(key);
                    let before: BTreeSet<Key> = known.iter().copied().filter(|other| *other < key).collect();
                    let actions = decider.ended(key, reason, now, jitter);
                    if strategy == Strategy::RestForOne && decider.ending().is_none() {
                        let spared = |action: &Action| !matches!(action, Action::Stop(other) if before.contains(other));
                        prop_assert!(actions.iter().all(spared), "an earlier sibling is spared");
                    }
                    actions
                }
                Op::Stop(index) if !known.is_empty() => decider.stop(known[index % known.len()]),
                Op::End(..) | Op::Stop(_) => Vec::new(),
                Op::Pass(millis) => {
                    now += ms(millis);
                    Vec::new()
                }
                Op::Shutdown => decider.shutdown(),
            };
            world.perform(&decider, &actions);
            let actions = decider.tick(now);
            world.perform(&decider, &actions);
            if world.over == 0 && !decider.waiting.is_empty() && decider.stopping.is_empty() {
                let due = decider.next_due().unwrap();
                prop_assert!(due > now && due <= now + backoff.max, "whoever waits has a time");
            }
        }
        if world.over == 0 {
            let actions = decider.shutdown();
            world.perform(&decider, &actions);
            while let Some(key) = world.running.first().copied() {
                world.end(key);
                let actions = decider.ended(key, ExitReason::Shutdown, now, jitter);
                world.perform(&decider, &actions);
            }
        }
        prop_assert_eq!(world.over, 1, "it ends exactly once");
    }

    #[test]
    fn no_child_is_restarted_more_often_than_allowed(
        strategy in proptest::sample::select(&STRATEGIES[..]),
        max_restarts in 0_u32..6,
        uptimes in proptest::collection::vec(0_u64..59, 1..40),
    ) {
        let intensity = Intensity { max_restarts, within: secs(60) };
        let backoff = Backoff { first: Duration::ZERO, max: secs(5) };
        let mut decider = Decider::new(strategy, intensity, backoff);
        decider.add("c".into(), Restart::Permanent, Duration::ZERO);
        let mut now = Duration::ZERO;
        let mut starts = decider.tick(now).len();
        for uptime in uptimes {
            now += secs(uptime);
            decider.ended(0, failed(), now, 0.0);
            now = decider.next_due().unwrap_or(now).max(now);
            decider.tick(now);
            starts += usize::from(matches!(decider.get(0).map(|c| c.phase), Some(Phase::Up { .. })));
            if decider.ending().is_some() {
                break;
            }
        }
        prop_assert!(starts <= max_restarts as usize + 1);
    }
}

use std::time::Duration;

use tokio::time::Instant;
use vance_supervise::{
    Backoff, ChildState, ExitReason, Intensity, Refusal, Restart, Strategy, SupervisorRef, SupervisorSpec,
};

use super::probe::{Do, Log, probe, settle, story};

#[tokio::test(start_paused = true)]
async fn a_failed_actor_comes_back_and_a_finished_one_only_if_permanent() {
    story(async {
        let table = [
            (Restart::Permanent, Do::Fail, Some(ChildState::Up), "failed: told to"),
            (Restart::Permanent, Do::Finish, Some(ChildState::Up), "normal"),
            (Restart::Transient, Do::Fail, Some(ChildState::Up), "failed: told to"),
            (Restart::Transient, Do::Finish, None, ""),
            (Restart::Temporary, Do::Fail, Some(ChildState::Failed), "failed: told to"),
            (Restart::Temporary, Do::Finish, None, ""),
        ];
        for (restart, how, state, text) in table {
            let (reference, child) = probe("p", &Log::default());
            let root = SupervisorRef::start(SupervisorSpec::new("root").child(child.restart(restart)));
            reference.tell(how).unwrap();
            settle().await;
            let children = root.children().await;
            assert_eq!(children.first().map(|child| child.state), state, "{restart:?}");
            if let Some(child) = children.first() {
                assert_eq!(child.last_exit.as_deref(), Some(text), "{restart:?}");
            }
            let answer = if state == Some(ChildState::Up) { Ok(1) } else { Err(Refusal::Stopped) };
            assert_eq!(reference.send(Do::Count).await, answer, "{restart:?}");
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_temporary_child_can_be_started_anew() {
    story(async {
        let log = Log::default();
        let (reference, child) = probe("p", &log);
        let root = SupervisorRef::start(SupervisorSpec::new("root").child(child.restart(Restart::Temporary)));
        reference.tell(Do::Fail).unwrap();
        settle().await;
        let (reference, child) = probe("p", &log);
        assert_eq!(root.start_child(child).await, Ok(()));
        assert_eq!(reference.send(Do::Count).await, Ok(1));
        assert_eq!(root.children().await.len(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn each_strategy_restarts_whom_it_says_in_order() {
    story(async {
        let table = [
            (Strategy::OneForOne, vec!["b gone", "b up"]),
            (Strategy::RestForOne, vec!["b gone", "c stopping", "c gone", "b up", "c up"]),
            (
                Strategy::OneForAll,
                vec!["b gone", "a stopping", "a gone", "c stopping", "c gone", "a up", "b up", "c up"],
            ),
        ];
        for (strategy, expected) in table {
            let log = Log::default();
            let (a, child_a) = probe("a", &log);
            let (b, child_b) = probe("b", &log);
            let (c, child_c) = probe("c", &log);
            let spec = SupervisorSpec::new("root").strategy(strategy);
            let _root = SupervisorRef::start(spec.child(child_a).child(child_b).child(child_c));
            settle().await;
            log.take();
            b.send(Do::Panic).await.unwrap_err();
            settle().await;
            assert_eq!(log.take(), expected, "{strategy:?}");
            for reference in [a, b, c] {
                assert_eq!(reference.send(Do::Count).await, Ok(1), "{strategy:?}");
            }
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_waits_its_backoff_and_callers_hear_restarting_meanwhile() {
    story(async {
        let (reference, child) = probe("p", &Log::default());
        let backoff = Backoff { first: Duration::from_secs(8), max: Duration::from_secs(30) };
        let root = SupervisorRef::start(SupervisorSpec::new("root").backoff(backoff).child(child));
        let before = Instant::now();
        reference.send(Do::Panic).await.unwrap_err();
        settle().await;
        assert_eq!(reference.tell(Do::Count), Err(Refusal::Restarting));
        assert_eq!(root.children().await[0].state, ChildState::Restarting);
        while !reference.is_up() {
            settle().await;
        }
        let took = before.elapsed();
        assert!(took > Duration::from_secs(4) && took < Duration::from_millis(8_010), "{took:?}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn too_many_restarts_end_the_tree_and_sustained_uptime_forgives() {
    story(async {
        let log = Log::default();
        let (bad, child) = probe("bad", &log);
        let (good, bystander) = probe("good", &log);
        let within = Duration::from_secs(60);
        let spec = SupervisorSpec::new("root").intensity(Intensity { max_restarts: 2, within });
        let root = SupervisorRef::start(spec.child(child).child(bystander));
        for _ in 0..5 {
            for _ in 0..2 {
                bad.send(Do::Panic).await.unwrap_err();
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
            tokio::time::sleep(within).await;
        }
        assert_eq!(good.send(Do::Count).await, Ok(1), "a one-for-one sibling is left alone");
        log.take();
        for _ in 0..3 {
            bad.send(Do::Panic).await.unwrap_err();
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
        let ExitReason::Failed(why) = root.ended().await else { panic!("it gave up") };
        assert!(why.ends_with("at last `bad`: panicked: told to"), "{why}");
        assert_eq!(bad.tell(Do::Count), Err(Refusal::Stopped));
        assert_eq!(good.tell(Do::Count), Err(Refusal::Stopped));
        assert_eq!(log.take().last().map(String::as_str), Some("good gone"));
    })
    .await;
}

use std::time::Duration;

use tokio::time::Instant;
use vance_supervise::{ActorRef, ChildSpec, ExitReason, Refusal, StartError, SupervisorRef, SupervisorSpec};

use super::probe::{Do, Log, Probe, alone, probe, settle, story};

const SECOND: Duration = Duration::from_secs(1);

#[tokio::test(start_paused = true)]
async fn a_stopped_child_is_gone_and_its_name_is_free_again() {
    story(async {
        let log = Log::default();
        let root = SupervisorRef::start(SupervisorSpec::new("root"));
        let (reference, child) = probe("p", &log);
        assert_eq!(root.start_child(child).await, Ok(()));
        let (_, twin) = probe("p", &log);
        assert_eq!(root.start_child(twin).await, Err(StartError::Duplicate("p".into())));
        settle().await;
        assert!(root.stop_child("p").await);
        assert_eq!(log.take(), ["p up", "p stopping", "p gone"]);
        assert_eq!(reference.send(Do::Count).await, Err(Refusal::Stopped));
        assert_eq!(root.children().await, []);
        assert!(!root.stop_child("p").await, "there is none");
        let again = ChildSpec::actor(reference.clone(), move |exit| Probe::new("p", exit, &log));
        assert_eq!(root.start_child(again).await, Ok(()));
        assert_eq!(reference.send(Do::Count).await, Ok(1));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_child_with_a_stop_message_hears_it_first_and_leaves_by_itself() {
    story(async {
        let log = Log::default();
        let (reference, child) = probe("p", &log);
        let child = child.mailbox(1).on_stop(&reference, || Do::Leave(SECOND * 2));
        let root = SupervisorRef::start(SupervisorSpec::new("root").child(child));
        settle().await;
        assert_eq!(reference.tell(Do::Count), Ok(()), "the mailbox is full now");
        let before = Instant::now();
        assert!(root.stop_child("p").await);
        assert_eq!(before.elapsed(), SECOND * 2);
        assert_eq!(log.take(), ["p up", "p leaving", "p stopping", "p gone"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn who_does_not_leave_is_aborted_after_its_grace() {
    story(async {
        let log = Log::default();
        let root = SupervisorRef::start(SupervisorSpec::new("root"));
        let stubborn = |name: &'static str| {
            let (reference, log) = (ActorRef::new(name), log.clone());
            let factory = move |exit| Probe::new(name, exit, &log).stubborn();
            (reference.clone(), ChildSpec::actor(reference, factory).grace(SECOND * 3))
        };
        let (deaf, child) = stubborn("deaf");
        root.start_child(child.on_stop(&deaf, || Do::Leave(SECOND))).await.unwrap();
        let (_, child) = stubborn("unwilling");
        root.start_child(child).await.unwrap();
        settle().await;
        log.take();
        let before = Instant::now();
        assert!(root.stop_child("deaf").await);
        assert_eq!(before.elapsed(), SECOND * 3);
        assert_eq!(log.take(), ["deaf ignores", "deaf gone"]);
        assert!(root.stop_child("unwilling").await);
        assert_eq!(before.elapsed(), SECOND * 6);
        assert_eq!(log.take(), ["unwilling stopping", "unwilling gone"]);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_actor_in_the_middle_of_a_wait_stops_at_once() {
    story(async {
        let (probe, root) = alone(&Log::default());
        probe.send(Do::Stick(SECOND * 3600)).await.unwrap();
        let before = Instant::now();
        assert!(root.stop_child("probe").await);
        assert_eq!(before.elapsed(), Duration::ZERO);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_stops_all_children_in_parallel() {
    story(async {
        let log = Log::default();
        let mut spec = SupervisorSpec::new("root");
        let mut names = Vec::new();
        for (name, seconds) in [("a", 4), ("b", 2), ("c", 60)] {
            let (reference, child) = probe(name, &log);
            spec = spec.child(child.on_stop(&reference, move || Do::Leave(SECOND * seconds)));
            names.push(reference);
        }
        let root = SupervisorRef::start(spec);
        settle().await;
        let before = Instant::now();
        let (waiter, root_again) = (root.clone(), root.clone());
        let waiter = tokio::spawn(async move { waiter.ended().await });
        tokio::join!(root.shutdown(), root_again.shutdown());
        assert_eq!(before.elapsed(), SECOND * 5, "the slowest had its grace of five seconds");
        assert_eq!(waiter.await.unwrap(), ExitReason::Shutdown);
        assert_eq!(root.ended().await, ExitReason::Shutdown, "also when asked later");
        for name in names {
            assert_eq!(name.tell(Do::Count), Err(Refusal::Stopped));
        }
        let (_, late) = probe("late", &log);
        assert_eq!(root.start_child(late).await, Err(StartError::NotRunning));
        assert_eq!(root.children().await, []);
        assert!(!root.stop_child("a").await);
        root.shutdown().await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_reaches_a_child_that_waits_for_its_restart() {
    story(async {
        let (reference, child) = probe("p", &Log::default());
        let backoff = vance_supervise::Backoff { first: SECOND * 10, max: SECOND * 10 };
        let root = SupervisorRef::start(SupervisorSpec::new("root").backoff(backoff).child(child));
        reference.send(Do::Panic).await.unwrap_err();
        settle().await;
        assert!(root.stop_child("p").await);
        assert_eq!(reference.tell(Do::Count), Err(Refusal::Stopped));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn one_child_too_many_is_refused() {
    story(async {
        let root = SupervisorRef::start(SupervisorSpec::new("root").max_children(2));
        for name in ["a", "b"] {
            assert_eq!(root.start_child(probe(name, &Log::default()).1).await, Ok(()));
        }
        assert_eq!(root.start_child(probe("c", &Log::default()).1).await, Err(StartError::Full(2)));
        assert!(root.stop_child("a").await);
        assert_eq!(root.start_child(probe("c", &Log::default()).1).await, Ok(()));
    })
    .await;
}

use std::time::Duration;

use tokio::time::Instant;
use vance_supervise::{ActorRef, Refusal, SupervisorRef, SupervisorSpec};

use super::probe::{Do, Log, Probe, alone, probe, settle, story};

const STUCK: Duration = Duration::from_secs(3600);

/// A stuck probe with room for three, and three messages in it.
async fn full() -> (ActorRef<Probe>, SupervisorRef) {
    let (probe, child) = probe("probe", &Log::default());
    let root = SupervisorRef::start(SupervisorSpec::new("root").child(child.mailbox(3)));
    probe.send(Do::Stick(STUCK)).await.unwrap();
    for _ in 0..3 {
        assert_eq!(probe.tell(Do::Count), Ok(()));
    }
    (probe, root)
}

#[tokio::test(start_paused = true)]
async fn a_full_mailbox_says_so_to_every_holder_of_the_name() {
    story(async {
        let (probe, _root) = full().await;
        for _ in 0..1_000 {
            assert_eq!(probe.tell(Do::Count), Err(Refusal::Full));
            assert_eq!(probe.clone().tell(Do::Count), Err(Refusal::Full));
        }
        assert_eq!(Refusal::Full.to_string(), "busy");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn waiting_for_room_ends_with_busy() {
    story(async {
        let (probe, _root) = full().await;
        let before = Instant::now();
        assert_eq!(probe.post(Do::Count).await, Err(Refusal::Full));
        assert_eq!(before.elapsed(), Duration::from_secs(10));
        assert_eq!(probe.send(Do::Count).await, Err(Refusal::Full));
        assert_eq!(before.elapsed(), Duration::from_secs(20));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn waiting_for_room_ends_with_room_and_keeps_the_order() {
    story(async {
        let (probe, child) = probe("probe", &Log::default());
        let _root = SupervisorRef::start(SupervisorSpec::new("root").child(child.mailbox(1)));
        probe.send(Do::Stick(Duration::from_secs(5))).await.unwrap();
        let calls: Vec<_> = (0..10).map(|_| tokio::spawn(probe.send(Do::Count))).collect();
        for (index, call) in calls.into_iter().enumerate() {
            assert_eq!(call.await.unwrap(), Ok(index as u32 + 1));
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_for_room_or_an_answer_are_told_when_the_actor_is_stopped() {
    story(async {
        let (probe, root) = full().await;
        let calls: Vec<_> = (0..3).map(|_| tokio::spawn(probe.send(Do::Count))).collect();
        settle().await;
        assert!(root.stop_child("probe").await);
        for call in calls {
            assert!(call.await.unwrap().is_err());
        }
        assert_eq!(probe.tell(Do::Count), Err(Refusal::Stopped));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_name_answers_restarting_before_its_child_is_up() {
    story(async {
        let (probe, child) = probe("probe", &Log::default());
        assert_eq!(probe.tell(Do::Count), Err(Refusal::Restarting));
        assert_eq!(probe.send(Do::Count).await, Err(Refusal::Restarting));
        assert!(!probe.is_up());
        let _root = SupervisorRef::start(SupervisorSpec::new("root").child(child));
        assert!(probe.is_up(), "up as soon as its supervisor has started");
        assert_eq!(probe.send(Do::Count).await, Ok(1));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn dropping_every_reference_stops_nobody() {
    story(async {
        let log = Log::default();
        let (probe, root) = alone(&log);
        settle().await;
        drop(probe);
        drop(root);
        tokio::time::sleep(STUCK).await;
        assert_eq!(log.take(), ["probe up"]);
    })
    .await;
}

use std::time::Duration;

use vance_supervise::{
    ActorRef, Backoff, ChildSpec, ChildState, ExitReason, Intensity, Refusal, Restart, StartError, SupervisorRef,
    SupervisorSpec,
};

use super::probe::{Do, Log, Probe, probe, settle, story};

const WITHIN: Duration = Duration::from_secs(60);

/// A nested supervisor named `pack` of one probe, giving up at the first fault.
fn pack(log: &Log) -> (ActorRef<Probe>, SupervisorRef, ChildSpec) {
    let (reference, child) = probe("probe", log);
    let spec = SupervisorSpec::new("pack").intensity(Intensity { max_restarts: 0, within: WITHIN }).child(child);
    let handle = SupervisorRef::new();
    let nested = ChildSpec::supervisor(spec, handle.clone());
    (reference, handle, nested)
}

#[tokio::test(start_paused = true)]
async fn a_supervisor_that_gives_up_is_a_failed_child_of_its_parent() {
    story(async {
        let log = Log::default();
        let (reference, handle, nested) = pack(&log);
        let (neighbour, bystander) = probe("neighbour", &log);
        let root = SupervisorRef::start(SupervisorSpec::new("root").child(nested).child(bystander));
        neighbour.send(Do::Count).await.unwrap();
        reference.send(Do::Count).await.unwrap();
        let watcher = handle.clone();
        let end = tokio::spawn(async move { watcher.ended().await });
        settle().await;
        reference.send(Do::Panic).await.unwrap_err();
        settle().await;
        assert!(end.await.unwrap().is_fault(), "an end is seen, however soon the next life begins");
        assert_eq!(reference.send(Do::Count).await, Ok(1), "the parent started it again");
        assert_eq!(neighbour.send(Do::Count).await, Ok(2), "its neighbour noticed nothing");
        let children = root.children().await;
        assert_eq!((children[0].state, children[0].restarts), (ChildState::Up, 1));
        let last = children[0].last_exit.clone().unwrap();
        assert!(last.starts_with("failed: gave up") && last.ends_with("panicked: told to"), "{last}");
        assert_eq!(handle.children().await.len(), 1, "the handle survived too");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn names_below_a_supervisor_that_comes_back_later_answer_restarting() {
    story(async {
        let (reference, handle, nested) = pack(&Log::default());
        let backoff = Backoff { first: WITHIN, max: WITHIN };
        let root = SupervisorRef::start(SupervisorSpec::new("root").backoff(backoff).child(nested));
        let (visitor, dynamic) = probe("visitor", &Log::default());
        handle.start_child(dynamic).await.unwrap();
        reference.send(Do::Panic).await.unwrap_err();
        assert!(handle.ended().await.is_fault());
        settle().await;
        assert_eq!(root.children().await[0].state, ChildState::Restarting);
        assert_eq!(reference.tell(Do::Count), Err(Refusal::Restarting));
        assert_eq!(visitor.tell(Do::Count), Err(Refusal::Stopped), "it is not part of the plan");
        let (_, late) = probe("late", &Log::default());
        assert_eq!(handle.start_child(late).await, Err(StartError::NotRunning));
        tokio::time::sleep(WITHIN).await;
        assert_eq!(reference.send(Do::Count).await, Ok(1));
        assert_eq!(handle.children().await.len(), 1);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn names_below_a_supervisor_that_is_still_giving_up_answer_restarting() {
    story(async {
        let log = Log::default();
        let (reference, child) = probe("probe", &log);
        let (slow, leaver) = probe("slow", &log);
        let leaver = leaver.on_stop(&slow, || Do::Leave(Duration::from_secs(2)));
        let none = Intensity { max_restarts: 0, within: WITHIN };
        let spec = |name| SupervisorSpec::new(name).intensity(none);
        let pack = spec("pack").child(child).child(leaver);
        let nested = ChildSpec::supervisor(pack, SupervisorRef::new());
        let root = SupervisorRef::start(spec("root").child(nested));
        reference.send(Do::Panic).await.unwrap_err();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(reference.tell(Do::Count), Err(Refusal::Restarting));
        assert!(root.ended().await.is_fault());
        assert_eq!(reference.tell(Do::Count), Err(Refusal::Stopped));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn names_below_a_supervisor_that_stays_away_answer_stopped() {
    story(async {
        let (reference, _, nested) = pack(&Log::default());
        let root = SupervisorRef::start(SupervisorSpec::new("root").child(nested.restart(Restart::Temporary)));
        reference.send(Do::Panic).await.unwrap_err();
        settle().await;
        assert_eq!(root.children().await[0].state, ChildState::Failed);
        assert_eq!(reference.tell(Do::Count), Err(Refusal::Stopped));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn faults_that_never_end_reach_the_root() {
    story(async {
        let (reference, _, nested) = pack(&Log::default());
        let spec = SupervisorSpec::new("root").intensity(Intensity { max_restarts: 3, within: WITHIN });
        let root = SupervisorRef::start(spec.child(nested));
        let mut falls = 0;
        while reference.tell(Do::Panic) != Err(Refusal::Stopped) {
            falls += u32::from(reference.is_up());
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(falls, 4, "three restarts, and the fall after them");
        let ExitReason::Failed(why) = root.ended().await else { panic!("it gave up") };
        assert!(why.contains("`pack`") && why.contains("`probe`"), "{why}");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_goes_down_the_whole_tree() {
    story(async {
        let log = Log::default();
        let (reference, handle, nested) = pack(&log);
        let root = SupervisorRef::start(SupervisorSpec::new("root").child(nested));
        settle().await;
        log.take();
        assert!(root.stop_child("pack").await);
        assert_eq!(log.take(), ["probe stopping", "probe gone"]);
        assert_eq!(handle.ended().await, ExitReason::Shutdown);
        assert_eq!(reference.tell(Do::Count), Err(Refusal::Stopped));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_nested_supervisor_its_owner_shut_down_is_not_started_again() {
    story(async {
        let (reference, handle, nested) = pack(&Log::default());
        let root = SupervisorRef::start(SupervisorSpec::new("root").child(nested));
        handle.shutdown().await;
        settle().await;
        assert_eq!(root.children().await, []);
        assert_eq!(reference.tell(Do::Count), Err(Refusal::Stopped));
    })
    .await;
}

//! On real threads and a real clock: callers on the pool, actors on their thread.

use std::time::Duration;

use vance_supervise::{ActorRef, ChildSpec, Intensity, Refusal, StartError, SupervisorRef, SupervisorSpec, run};

use super::probe::{Do, Log, Probe, probe};

/// Enough that a message is put in just as its mailbox closes.
const ROUNDS: u32 = 1_000;

#[test]
fn handles_go_to_any_thread() {
    fn anywhere<T: Clone + Send + Sync + 'static>() {}
    anywhere::<ActorRef<Probe>>();
    anywhere::<SupervisorRef>();
    fn movable<T: Send + 'static>() {}
    movable::<ChildSpec>();
    movable::<SupervisorSpec>();
}

#[test]
fn every_call_from_the_pool_is_answered_while_the_actor_keeps_panicking() {
    let (answered, refused) = run(2, async {
        let (reference, child) = probe("p", &Log::default());
        let endless = Intensity { max_restarts: u32::MAX, within: Duration::from_secs(60) };
        let none = vance_supervise::Backoff { first: Duration::ZERO, max: Duration::ZERO };
        let spec = SupervisorSpec::new("root").intensity(endless).backoff(none);
        let root = SupervisorRef::start(spec.child(child.mailbox(8)));
        let callers: Vec<_> = (0..16)
            .map(|caller| {
                let reference = reference.clone();
                tokio::spawn(async move {
                    let (mut answered, mut refused) = (0, 0);
                    for round in 0..ROUNDS {
                        let what = if (caller + round) % 50 == 0 { Do::Panic } else { Do::Count };
                        match reference.send(what).await {
                            Ok(_) => answered += 1,
                            Err(Refusal::Restarting) => {
                                refused += 1;
                                tokio::time::sleep(Duration::from_micros(50)).await;
                            }
                            Err(other) => panic!("{other}"),
                        }
                    }
                    (answered, refused)
                })
            })
            .collect();
        let mut sum = (0, 0);
        for caller in callers {
            let (answered, refused) = caller.await.unwrap();
            sum = (sum.0 + answered, sum.1 + refused);
        }
        root.shutdown().await;
        sum
    })
    .unwrap();
    assert_eq!(answered + refused, 16 * ROUNDS);
    assert!(refused >= 16 * ROUNDS / 50, "each panic refuses at least its own call: {refused}");
    assert!(answered >= 16, "it keeps coming back: {answered}");
}

#[test]
fn a_program_that_ends_under_its_tree_leaves_nobody_waiting() {
    let (reference, root) = run(1, async {
        let (reference, child) = probe("p", &Log::default());
        let root = SupervisorRef::start(SupervisorSpec::new("root").child(child));
        reference.send(Do::Count).await.unwrap();
        (reference, root)
    })
    .unwrap();
    assert_eq!(reference.tell(Do::Count), Err(Refusal::Stopped));
    run(1, async {
        assert!(root.ended().await.is_fault());
        assert_eq!(root.start_child(probe("q", &Log::default()).1).await, Err(StartError::NotRunning));
        root.shutdown().await;
    })
    .unwrap();
}

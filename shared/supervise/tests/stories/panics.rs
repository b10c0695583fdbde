use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use vance_supervise::{
    Actor, ActorRef, ChildSpec, ChildState, Context, Handler, Message, Refusal, SupervisorRef, SupervisorSpec,
};

use super::probe::{Do, Log, alone, settle, story};

#[tokio::test(start_paused = true)]
async fn a_panic_restarts_the_actor_with_fresh_state_and_answers_its_caller() {
    story(async {
        let log = Log::default();
        let (probe, root) = alone(&log);
        assert_eq!(probe.send(Do::Count).await, Ok(1));
        assert_eq!(probe.send(Do::Count).await, Ok(2));
        assert_eq!(probe.send(Do::Panic).await, Err(Refusal::Restarting));
        settle().await;
        assert_eq!(probe.send(Do::Count).await, Ok(1), "the same reference, a fresh state");
        assert_eq!(log.take(), ["probe up", "probe gone", "probe up"], "no hook ran after the panic");
        let children = root.children().await;
        assert_eq!(children[0].state, ChildState::Up);
        assert_eq!(children[0].restarts, 1);
        assert_eq!(children[0].last_exit.as_deref(), Some("panicked: told to"));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_panic_in_a_future_of_the_context_is_the_actors_panic() {
    story(async {
        let (probe, root) = alone(&Log::default());
        for (how, text) in
            [(Do::PanicSpawned, "panicked: told to, spawned"), (Do::PanicWaited, "panicked: told to, waited")]
        {
            probe.send(Do::Count).await.unwrap();
            probe.send(how).await.unwrap();
            settle().await;
            assert_eq!(root.children().await[0].last_exit.as_deref(), Some(text));
            assert_eq!(probe.send(Do::Count).await, Ok(1));
            tokio::time::sleep(std::time::Duration::from_secs(60)).await;
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn messages_waiting_in_a_dead_actors_mailbox_are_answered() {
    story(async {
        let (probe, _root) = alone(&Log::default());
        let calls = [Do::Panic, Do::Count, Do::Count].map(|what| tokio::spawn(probe.send(what)));
        for call in calls {
            assert_eq!(call.await.unwrap(), Err(Refusal::Restarting));
        }
    })
    .await;
}

/// Panics where it is told to, as often as it is told to.
struct Fragile {
    place: Place,
    times: Arc<AtomicU32>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Place {
    Factory,
    Started,
    Drop,
    HandlerThenDrop,
    HandlerThenHooks,
}

impl Fragile {
    fn breaks(&self, places: &[Place]) {
        let left = self.times.load(Ordering::Relaxed);
        if left > 0 && places.contains(&self.place) {
            self.times.store(left - 1, Ordering::Relaxed);
            panic!("fragile");
        }
    }
}

impl Actor for Fragile {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Context<Self>) {
        self.breaks(&[Place::Started]);
    }

    fn stopping(&mut self, _: &mut Context<Self>) -> actix::Running {
        self.breaks(&[Place::HandlerThenHooks]);
        actix::Running::Stop
    }
}

impl Drop for Fragile {
    fn drop(&mut self) {
        self.breaks(&[Place::Drop, Place::HandlerThenDrop]);
    }
}

struct Touch;

impl Message for Touch {
    type Result = ();
}

impl Handler<Touch> for Fragile {
    type Result = ();

    fn handle(&mut self, _: Touch, ctx: &mut Context<Self>) {
        self.breaks(&[Place::HandlerThenDrop, Place::HandlerThenHooks]);
        if self.place == Place::Drop {
            vance_supervise::ActorContext::stop(ctx);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_anywhere_in_an_actors_life_is_survived() {
    story(async {
        for (place, times) in [
            (Place::Factory, 1),
            (Place::Started, 1),
            (Place::Drop, 1),
            (Place::HandlerThenDrop, 2),
            (Place::HandlerThenHooks, 1),
        ] {
            let actor = ActorRef::<Fragile>::new("fragile");
            let left = Arc::new(AtomicU32::new(times));
            let child = ChildSpec::actor(actor.clone(), {
                let left = Arc::clone(&left);
                move |_| {
                    let fragile = Fragile { place, times: Arc::clone(&left) };
                    fragile.breaks(&[Place::Factory]);
                    fragile
                }
            });
            let root = SupervisorRef::start(SupervisorSpec::new("root").child(child));
            settle().await;
            // The first touch breaks those that break by a touch.
            actor.send(Touch).await.ok();
            settle().await;
            assert_eq!(left.load(Ordering::Relaxed), 0, "{place:?}");
            let children = root.children().await;
            assert_eq!(children[0].last_exit.as_deref(), Some("panicked: fragile"), "{place:?}");
            assert_eq!(children[0].restarts, 1, "{place:?}");
            if place != Place::Drop {
                assert_eq!(actor.send(Touch).await, Ok(()), "{place:?}");
            }
            root.shutdown().await;
        }
    })
    .await;
}

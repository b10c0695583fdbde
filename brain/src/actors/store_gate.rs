//! Owns the store's writer: starts it, and fails when it dies, so that its supervisor starts a new one.
//!
//! `Store` handles go past this actor: they put batches into the writer's queue themselves, so a commit costs no mailbox.

use vance_supervise::{Actor, ActorFutureExt, AsyncContext, Context, Exit, Handler, Message, WrapFuture};

use crate::store::{Writer, WriterEnd, WriterSeat};

/// The actor. Make it anew for each start; the seat and all handles stay.
pub struct StoreGate {
    seat: WriterSeat,
    exit: Exit,
    writer: Option<Writer>,
}

/// Ends the gate when all that waits is written.
#[derive(Debug, Clone, Copy, Message)]
#[rtype(result = "()")]
pub struct Close;

impl StoreGate {
    /// A gate that starts a writer on the seat.
    pub fn new(seat: WriterSeat, exit: Exit) -> Self {
        Self { seat, exit, writer: None }
    }
}

impl Actor for StoreGate {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let mut writer = match self.seat.start() {
            Ok(writer) => writer,
            Err(error) => return self.exit.fail(ctx, format!("cannot start the store's writer: {error}")),
        };
        ctx.spawn(writer.ended().into_actor(self).map(|end, gate, ctx| match end {
            WriterEnd::Closed => gate.exit.normal(ctx),
            WriterEnd::Died(text) => gate.exit.fail(ctx, format!("the store's writer died: {text}")),
        }));
        self.writer = Some(writer);
    }
}

impl Handler<Close> for StoreGate {
    type Result = ();

    fn handle(&mut self, Close: Close, ctx: &mut Self::Context) {
        match &self.writer {
            // The writer's end ends the gate.
            Some(writer) => writer.close(),
            None => self.exit.normal(ctx),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]

    use std::time::Duration;

    use vance_shared::json::Raw;
    use vance_supervise::{ActorRef, ChildSpec, SupervisorRef, SupervisorSpec};

    use super::*;
    use crate::store::{Append, Batch, NewEvent, Store, StoreError};

    /// Longer than anything here takes, so that a hang fails.
    const PATIENCE: Duration = Duration::from_secs(30);

    fn note(expected_version: u32) -> Batch {
        let events = vec![NewEvent { kind: "noted", data: Raw::null() }];
        Batch { appends: vec![Append { stream: "a".into(), expected_version, events }], ..Batch::default() }
    }

    fn supervised(seat: &WriterSeat) -> SupervisorRef {
        let (gate, seat) = (ActorRef::new("store_gate"), seat.clone());
        let child = ChildSpec::actor(gate.clone(), move |exit| StoreGate::new(seat.clone(), exit));
        SupervisorRef::start(SupervisorSpec::new("root").child(child.on_stop(&gate, || Close)))
    }

    #[test]
    fn a_writer_that_dies_is_replaced_and_handles_stay_good() {
        vance_supervise::run(1, async {
            let dir = tempfile::tempdir().unwrap();
            let (store, seat) = Store::open(dir.path()).unwrap();
            let root = supervised(&seat);
            let story = async {
                store.ready().await;
                store.commit(note(0)).await.unwrap();
                let mut told = store.subscribe();
                let died = seat.on_writer(|_| panic!("a fault in the engine")).await;
                assert!(matches!(died, Err(StoreError::Unavailable { .. })), "{died:?}");
                while store.commit(note(1)).await.is_err() {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                assert_eq!(told.recv().await.unwrap().version, 2);
                let children = root.children().await;
                assert_eq!((children.len(), children[0].restarts), (1, 1), "{children:?}");
                assert_eq!(
                    children[0].last_exit.as_deref(),
                    Some("failed: the store's writer died: a fault in the engine")
                );
            };
            tokio::time::timeout(PATIENCE, story).await.unwrap();
            root.shutdown().await;
        })
        .unwrap();
    }

    #[test]
    fn a_graceful_stop_writes_what_waits() {
        vance_supervise::run(1, async {
            let dir = tempfile::tempdir().unwrap();
            let (store, seat) = Store::open(dir.path()).unwrap();
            let root = supervised(&seat);
            store.ready().await;
            let (go, gone) = std::sync::mpsc::sync_channel::<()>(1);
            let held = seat.on_writer(move |_| gone.recv().unwrap());
            let (held, committed, (), ()) = tokio::join!(held, store.commit(note(0)), root.shutdown(), async {
                tokio::task::yield_now().await;
                go.send(()).unwrap();
            });
            held.unwrap();
            committed.unwrap();
            assert!(matches!(store.commit(note(1)).await, Err(StoreError::Unavailable { .. })));
            assert_eq!(store.stream("a").await.unwrap().len(), 1);
        })
        .unwrap();
    }
}

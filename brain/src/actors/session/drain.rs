//! The Brain goes away: its clients are told, and come back to the next one.

use vance_shared::wire::{self, ToFoot};
use vance_supervise::{ActorContext as _, Handler, Message};

use super::SessionActor;

/// Message: the Brain goes away.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct DrainAll;

impl Handler<DrainAll> for SessionActor {
    type Result = ();

    fn handle(&mut self, _: DrainAll, ctx: &mut Self::Context) {
        for link in self.links.values() {
            let frame = ToFoot::Drain(wire::Drain { reason: "the Brain goes away; reconnect".to_owned() });
            link.outbox.send_urgent(frame).ok();
            link.outbox.close();
        }
        ctx.stop();
    }
}

//! Pieces of what clients keep: asked for over their connections, answered to whoever waits.

use std::collections::HashMap;

use tokio::sync::oneshot;
use vance_shared::call::Fault;
use vance_shared::ids::{BlobHandle, ClientId};
use vance_shared::wire::{BlobGet, BlobPart, ToFoot};
use vance_supervise::{Context, Handler, Message};

use super::SessionActor;

/// Pieces on their way to one session at a time: of a quarter of a mebibyte each.
const MAX_OPEN: usize = 32;

/// Message: a piece of what a client keeps.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct GetBlob {
    /// Who keeps it.
    pub client_id: ClientId,
    /// Of what.
    pub handle: BlobHandle,
    /// From here.
    pub offset: u64,
    /// So many bytes.
    pub length: usize,
    /// Who waits. Dropped without an answer: the client is gone.
    pub reply: oneshot::Sender<Result<BlobPart, Fault>>,
}

/// Who waits for which piece.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    open: HashMap<u64, (ClientId, oneshot::Sender<Result<BlobPart, Fault>>)>,
    last: u64,
}

impl Waiting {
    /// The piece that came, to whoever waits for it. Only the client that was asked has a say.
    pub(super) fn answer(&mut self, from: &ClientId, part: BlobPart) {
        if self.open.get(&part.request).is_some_and(|(asked, _)| asked == from)
            && let Some((_, reply)) = self.open.remove(&part.request)
        {
            // Who asked may have given up.
            reply.send(Ok(part)).ok();
        }
    }

    /// A client's connection is gone.
    pub(super) fn gone(&mut self, client_id: &ClientId) {
        self.open.retain(|_, (asked, _)| asked != client_id);
    }
}

impl Handler<GetBlob> for SessionActor {
    type Result = ();

    fn handle(&mut self, message: GetBlob, _: &mut Context<Self>) {
        let GetBlob { client_id, handle, offset, length, reply } = message;
        let waiting = &mut self.blobs;
        waiting.open.retain(|_, (_, reply)| !reply.is_closed());
        let busy = || Fault::new("busy", "many pieces are on their way from this session's clients; try again later");
        let refused = match self.links.get(&client_id) {
            None => Some(Fault::new("client_absent", format!("the client {client_id}, which keeps it, is away"))),
            Some(_) if waiting.open.len() >= MAX_OPEN => Some(busy()),
            Some(link) => {
                let request = waiting.last + 1;
                let get = BlobGet { request, handle, offset, length };
                link.outbox.send(ToFoot::BlobGet(get)).err().map(|_| busy())
            }
        };
        match refused {
            // Who asked may have given up.
            Some(fault) => drop(reply.send(Err(fault))),
            None => {
                waiting.last += 1;
                waiting.open.insert(waiting.last, (client_id, reply));
            }
        }
    }
}

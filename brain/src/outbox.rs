//! Frames on their way to one client's socket: two bounded queues and the word that it ends, in one small piece of memory,
//! because ten thousand sockets have one each and most of them are silent.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use vance_shared::limits::OUTBOX_FRAMES;
use vance_shared::wire::ToFoot;

/// Cancels and acknowledgements that wait for a socket: as many as calls can be in flight, several times over.
const URGENT_FRAMES: usize = 4_096;

/// Places that an empty queue keeps; what a storm needed is given back.
const KEPT_PLACES: usize = 64;

/// Why a connection is ended by the Brain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The ordinary end.
    Closing,
    /// A later connection of the same client took over.
    Superseded,
    /// The client's token is not good any more.
    Revoked,
}

/// What the socket does next.
#[derive(Debug)]
pub enum Next {
    /// Write this.
    Frame(Box<ToFoot>),
    /// Close.
    End(End),
}

/// A frame found no room, or its socket is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

#[derive(Debug, Default)]
struct Waiting {
    frames: VecDeque<Box<ToFoot>>,
    urgent: VecDeque<Box<ToFoot>>,
    end: Option<End>,
    /// The socket is gone.
    deaf: bool,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    /// The one that writes to the socket waits here.
    news: Notify,
}

/// Where frames for one connection go.
#[derive(Debug, Clone, Default)]
pub struct Outbox(Arc<Shared>);

impl Outbox {
    /// Held for a push or a pop.
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A call, or what else can wait.
    pub fn send(&self, frame: ToFoot) -> Result<(), Full> {
        let mut waiting = self.waiting();
        if waiting.deaf || waiting.frames.len() >= OUTBOX_FRAMES {
            return Err(Full);
        }
        waiting.frames.push_back(Box::new(frame));
        drop(waiting);
        self.0.news.notify_one();
        Ok(())
    }

    /// Cancels, acknowledgements: they overtake.
    pub fn send_urgent(&self, frame: ToFoot) -> Result<(), Full> {
        let mut waiting = self.waiting();
        if waiting.deaf || waiting.urgent.len() >= URGENT_FRAMES {
            return Err(Full);
        }
        waiting.urgent.push_back(Box::new(frame));
        drop(waiting);
        self.0.news.notify_one();
        Ok(())
    }

    /// Ends the connection, once what is urgent is written.
    pub fn close(&self) {
        self.waiting().end.get_or_insert(End::Closing);
        self.0.news.notify_one();
    }

    /// Ends the connection at once: a later one took over.
    pub fn supersede(&self) {
        self.waiting().end = Some(End::Superseded);
        self.0.news.notify_one();
    }

    /// Ends the connection at once: nothing more is for this client.
    pub fn revoke(&self) {
        self.waiting().end = Some(End::Revoked);
        self.0.news.notify_one();
    }

    /// True once it ends.
    pub fn is_closing(&self) -> bool {
        self.waiting().end.is_some()
    }

    /// What comes next, for the one that writes to the socket. Dropping the future loses nothing.
    pub async fn next(&self) -> Next {
        loop {
            let news = self.0.news.notified();
            if let Some(next) = self.ready() {
                return next;
            }
            news.await;
        }
    }

    fn ready(&self) -> Option<Next> {
        let mut waiting = self.waiting();
        match waiting.end {
            Some(end @ (End::Superseded | End::Revoked)) => Some(Next::End(end)),
            end => pop(&mut waiting.urgent)
                .map(Next::Frame)
                .or(end.map(Next::End))
                .or_else(|| pop(&mut waiting.frames).map(Next::Frame)),
        }
    }

    /// One more frame that is there already, for the same write. None once it ends and nothing is urgent.
    pub fn also(&self) -> Option<Box<ToFoot>> {
        match self.ready() {
            Some(Next::Frame(frame)) => Some(frame),
            Some(Next::End(_)) | None => None,
        }
    }

    /// The socket is gone: nothing is taken any more.
    pub fn deafen(&self) {
        let mut waiting = self.waiting();
        waiting.deaf = true;
        (waiting.frames, waiting.urgent) = (VecDeque::new(), VecDeque::new());
    }
}

fn pop(queue: &mut VecDeque<Box<ToFoot>>) -> Option<Box<ToFoot>> {
    let frame = queue.pop_front()?;
    if queue.is_empty() {
        queue.shrink_to(KEPT_PLACES);
    }
    Some(frame)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]

    use vance_shared::wire::Ping;

    use super::*;

    fn ping(nonce: u64) -> ToFoot {
        ToFoot::Ping(Ping { nonce })
    }

    fn nonce(next: Next) -> u64 {
        let Next::Frame(frame) = next else { panic!("{next:?}") };
        let ToFoot::Ping(Ping { nonce }) = *frame else { panic!("{frame:?}") };
        nonce
    }

    #[tokio::test]
    async fn what_is_urgent_overtakes_and_is_still_written_before_the_end() {
        let outbox = Outbox::default();
        outbox.send(ping(1)).unwrap();
        outbox.send_urgent(ping(2)).unwrap();
        outbox.close();
        assert_eq!(nonce(outbox.next().await), 2);
        assert!(outbox.also().is_none() && outbox.is_closing());
        assert!(matches!(outbox.next().await, Next::End(End::Closing)));
        outbox.send_urgent(ping(3)).unwrap();
        outbox.supersede();
        assert!(matches!(outbox.next().await, Next::End(End::Superseded)), "at once");
    }

    #[tokio::test]
    async fn a_frame_that_comes_while_nobody_looks_is_not_missed() {
        let outbox = Outbox::default();
        let waits = tokio::spawn({
            let outbox = outbox.clone();
            async move { (nonce(outbox.next().await), nonce(outbox.next().await)) }
        });
        tokio::task::yield_now().await;
        outbox.send(ping(1)).unwrap();
        outbox.send(ping(2)).unwrap();
        assert_eq!(waits.await.unwrap(), (1, 2));
    }

    #[test]
    fn it_is_bounded_and_a_gone_socket_takes_nothing() {
        let outbox = Outbox::default();
        assert!((0..OUTBOX_FRAMES as u64).all(|n| outbox.send(ping(n)).is_ok()));
        assert_eq!(outbox.send(ping(0)), Err(Full));
        assert!((0..URGENT_FRAMES as u64).all(|n| outbox.send_urgent(ping(n)).is_ok()));
        assert_eq!(outbox.send_urgent(ping(0)), Err(Full));
        outbox.deafen();
        assert_eq!((outbox.send(ping(0)), outbox.send_urgent(ping(0))), (Err(Full), Err(Full)));
    }
}

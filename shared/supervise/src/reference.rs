//! Stable names: a reference to an actor that stays valid over restarts.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use actix::dev::{Envelope, EnvelopeProxy};
use actix::prelude::{Actor, Addr, AsyncContext, Handler, Message};
use arc_swap::ArcSwap;
use tokio::sync::{mpsc, oneshot};

/// How long a sender waits for room in a full mailbox before the answer is [`Refusal::Full`].
/// An actor that frees no slot in this time is stuck or overrun, and its callers must know.
const ROOM_WAIT: Duration = Duration::from_secs(10);

/// The text of the panic that [`crate::SupervisorRef::strike`] brings about.
pub const STRUCK: &str = "struck on purpose";

/// Why a message was not taken, or not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The mailbox is full.
    #[error("busy")]
    Full,
    /// The actor is not up yet, is being restarted, or died before it answered. When it died with
    /// the message already begun, the work may have been done.
    #[error("restarting")]
    Restarting,
    /// The actor ended and will not come back by itself.
    #[error("stopped")]
    Stopped,
}

/// A stable name for an actor: valid before its start and over its restarts, from any thread.
///
/// Dropping references never stops the actor; its supervisor keeps it.
pub struct ActorRef<A: Actor> {
    shared: Arc<Shared<A>>,
}

struct Shared<A: Actor> {
    name: Arc<str>,
    seat: ArcSwap<Seat<A>>,
}

/// Who sits behind the name now.
enum Seat<A: Actor> {
    Vacant(Refusal),
    Live {
        mailbox: mpsc::Sender<Envelope<A>>,
        /// The context's own address, past the bounded mailbox: for the one stop message only.
        direct: Addr<A>,
    },
}

impl<A: Actor> ActorRef<A> {
    /// A name nobody sits behind yet: it answers [`Refusal::Restarting`] until its child is up.
    ///
    /// Metrics are labelled with the part before the first `:`, so `session:UUID` counts as
    /// `session`.
    pub fn new(name: impl Into<String>) -> Self {
        let shared =
            Shared { name: Arc::from(name.into()), seat: ArcSwap::from_pointee(Seat::Vacant(Refusal::Restarting)) };
        ActorRef { shared: Arc::new(shared) }
    }

    /// The actor's name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Whether an actor sits behind the name now. It may be gone the moment after.
    pub fn is_up(&self) -> bool {
        matches!(**self.shared.seat.load(), Seat::Live { .. })
    }

    /// Gives the actor a message without waiting for anything.
    pub fn tell<M>(&self, message: M) -> Result<(), Refusal>
    where
        A: Handler<M>,
        A::Context: AsyncContext<A>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        match &**self.shared.seat.load() {
            Seat::Vacant(refusal) => Err(*refusal),
            Seat::Live { mailbox, .. } => match mailbox.try_send(Envelope::new(message, None)) {
                Ok(()) => Ok(()),
                Err(mpsc::error::TrySendError::Full(_)) => Err(Refusal::Full),
                Err(mpsc::error::TrySendError::Closed(_)) => Err(Refusal::Restarting),
            },
        }
    }

    /// Waits for room in the mailbox (10 s at most), not for the answer.
    pub fn post<M>(&self, message: M) -> impl Future<Output = Result<(), Refusal>> + Send + use<A, M>
    where
        A: Handler<M>,
        A::Context: AsyncContext<A>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        let shared = Arc::clone(&self.shared);
        async move { shared.deliver(Envelope::new(message, None)).await }
    }

    /// Waits for room in the mailbox (10 s at most), then for the answer.
    ///
    /// When the actor dies meanwhile, or drops the message unanswered, the answer is [`Refusal::Restarting`]. How long the actor may
    /// think is the caller's to limit. Dropping the future before the handler has begun cancels
    /// the message; after that, only the answer is lost.
    pub fn send<M>(&self, message: M) -> impl Future<Output = Result<M::Result, Refusal>> + Send + use<A, M>
    where
        A: Handler<M>,
        A::Context: AsyncContext<A>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        let shared = Arc::clone(&self.shared);
        async move {
            let (answer, answered) = oneshot::channel();
            shared.deliver(Envelope::new(message, Some(answer))).await?;
            answered.await.map_err(|_| shared.why_unanswered())
        }
    }

    pub(crate) fn bind(&self, mailbox: mpsc::Sender<Envelope<A>>, direct: Addr<A>) {
        self.shared.seat.store(Arc::new(Seat::Live { mailbox, direct }));
    }

    pub(crate) fn vacate(&self, refusal: Refusal) {
        self.shared.seat.store(Arc::new(Seat::Vacant(refusal)));
    }

    /// Puts something into the mailbox that panics when its turn comes. `false`: nobody is there, or there is no room.
    pub(crate) fn strike(&self) -> bool {
        match &**self.shared.seat.load() {
            Seat::Vacant(_) => false,
            Seat::Live { mailbox, .. } => mailbox.try_send(Envelope::with_proxy(Box::new(Strike))).is_ok(),
        }
    }

    /// Puts a message before all that wait, whatever the mailbox holds. `false`: nobody is there.
    pub(crate) fn tell_first<M>(&self, message: M) -> bool
    where
        A: Handler<M>,
        A::Context: actix::dev::ToEnvelope<A, M>,
        M: Message + Send + 'static,
        M::Result: Send,
    {
        match &**self.shared.seat.load() {
            Seat::Vacant(_) => false,
            // A fresh clone of an address always has one slot of its own.
            Seat::Live { direct, .. } => direct.clone().try_send(message).is_ok(),
        }
    }
}

/// The message of [`crate::SupervisorRef::strike`].
struct Strike;

impl<A: Actor> EnvelopeProxy<A> for Strike {
    fn handle(&mut self, _: &mut A, _: &mut A::Context) {
        std::panic::panic_any(STRUCK);
    }
}

impl<A: Actor> Shared<A> {
    /// Waits for room. The seat is let go on return, and must be: a message put in just as the
    /// mailbox closes stays there until the last sender is gone, so a caller that kept one while
    /// waiting for the answer would keep its own message from being dropped, and wait for ever.
    async fn deliver(&self, envelope: Envelope<A>) -> Result<(), Refusal> {
        let seat = self.seat.load_full();
        let mailbox = match &*seat {
            Seat::Vacant(refusal) => return Err(*refusal),
            Seat::Live { mailbox, .. } => mailbox,
        };
        let envelope = match mailbox.try_send(envelope) {
            Ok(()) => return Ok(()),
            Err(mpsc::error::TrySendError::Closed(_)) => return Err(Refusal::Restarting),
            Err(mpsc::error::TrySendError::Full(envelope)) => envelope,
        };
        match mailbox.send_timeout(envelope, ROOM_WAIT).await {
            Ok(()) => Ok(()),
            Err(mpsc::error::SendTimeoutError::Timeout(_)) => Err(Refusal::Full),
            Err(mpsc::error::SendTimeoutError::Closed(_)) => Err(Refusal::Restarting),
        }
    }

    /// The answer's sender was dropped: the actor died with the message in its mailbox or in hand.
    fn why_unanswered(&self) -> Refusal {
        match &**self.seat.load() {
            Seat::Vacant(refusal) => *refusal,
            Seat::Live { .. } => Refusal::Restarting,
        }
    }
}

impl<A: Actor> Clone for ActorRef<A> {
    fn clone(&self) -> Self {
        ActorRef { shared: Arc::clone(&self.shared) }
    }
}

impl<A: Actor> fmt::Debug for ActorRef<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ActorRef").field(&self.shared.name).finish()
    }
}

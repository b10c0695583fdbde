//! Runs one actor's context: polls it under `catch_unwind`, stops it with grace, says how it ended.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context as Wake, Poll};
use std::time::Duration;

use actix::dev::{ContextFut, Envelope, EnvelopeProxy, channel};
use actix::prelude::{Actor, ActorContext, ActorFuture, AsyncContext, Context};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::timeout;

use crate::exit::{Exit, ExitReason, panic_text};
use crate::reference::{ActorRef, Refusal};
use crate::spec::ChildSettings;

/// Something a supervisor can start again and again.
pub(crate) trait Launch {
    /// Starts it on this thread. Its reference is bound when this returns.
    fn launch(&self) -> Launched;
    /// Says what its reference answers while nobody is there.
    fn vacate(&self, refusal: Refusal);
    /// Makes it panic at its next message's turn. `false`: there is nobody.
    fn strike(&self) -> bool;
    /// Its failures are logged by somebody else.
    fn says_why(&self) -> bool {
        false
    }
}

/// A running child.
pub(crate) struct Launched {
    /// Asks it to stop.
    pub(crate) stop: oneshot::Sender<()>,
    /// How it ended.
    pub(crate) ended: JoinHandle<ExitReason>,
}

/// An actor's factory with the name its instances sit behind.
pub(crate) struct ActorSeat<A: Actor, F> {
    reference: ActorRef<A>,
    factory: F,
    mailbox: usize,
    grace: Duration,
    on_stop: Option<Rc<dyn Fn() -> bool>>,
    says_why: bool,
}

impl<A, F> ActorSeat<A, F>
where
    A: Actor<Context = Context<A>>,
    F: Fn(Exit) -> A,
{
    pub(crate) fn new(reference: ActorRef<A>, factory: F, settings: ChildSettings) -> Self {
        let ChildSettings { mailbox, grace, on_stop, says_why } = settings;
        let on_stop = on_stop.map(|tell| Rc::from(tell as Box<dyn Fn() -> bool>));
        ActorSeat { reference, factory, mailbox, grace, on_stop, says_why }
    }
}

impl<A, F> Launch for ActorSeat<A, F>
where
    A: Actor<Context = Context<A>>,
    F: Fn(Exit) -> A,
{
    fn says_why(&self) -> bool {
        self.says_why
    }

    fn launch(&self) -> Launched {
        let (stop, stopped) = oneshot::channel();
        let exit = Exit::default();
        let name = self.reference.name().to_owned();
        let ended = match catch_unwind(AssertUnwindSafe(|| (self.factory)(exit.clone()))) {
            Err(payload) => {
                let reason = panicked(&name, panic_text(payload));
                spawn_local(async move { reason })
            }
            Ok(actor) => {
                let (letters, letterbox) = mpsc::channel(self.mailbox);
                let (_, receiver) = channel::channel(self.mailbox);
                let mut context = Context::with_receiver(receiver);
                context.spawn(Pump { letterbox });
                self.reference.bind(letters, context.address());
                // Boxed: a future keeps an argument twice, as it came and as it is used.
                let host = Box::new(Host { name, exit, context: Some(context.into_future(actor)) });
                spawn_local(host.run(stopped, self.grace, self.on_stop.clone()))
            }
        };
        Launched { stop, ended }
    }

    fn vacate(&self, refusal: Refusal) {
        self.reference.vacate(refusal);
    }

    fn strike(&self) -> bool {
        self.reference.strike()
    }
}

/// Reads the bounded mailbox inside the context. It never finishes, which also keeps actix from
/// stopping a context that nobody holds an address of.
struct Pump<A: Actor> {
    letterbox: mpsc::Receiver<Envelope<A>>,
}

impl<A: Actor<Context = Context<A>>> ActorFuture<A> for Pump<A> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, actor: &mut A, context: &mut Context<A>, wake: &mut Wake<'_>) -> Poll<()> {
        // `waiting` also holds while stopping. After a `ctx.wait` the context polls this again.
        while !context.waiting() {
            match self.letterbox.poll_recv(wake) {
                Poll::Ready(Some(mut envelope)) => envelope.handle(actor, context),
                Poll::Ready(None) | Poll::Pending => break,
            }
        }
        Poll::Pending
    }
}

struct Host<A: Actor<Context = Context<A>>> {
    name: String,
    exit: Exit,
    context: Option<ContextFut<A, Context<A>>>,
}

impl<A: Actor<Context = Context<A>>> Host<A> {
    async fn run(
        mut self: Box<Self>,
        stopped: oneshot::Receiver<()>,
        grace: Duration,
        on_stop: Option<Rc<dyn Fn() -> bool>>,
    ) -> ExitReason {
        let ended = tokio::select! {
            biased;
            result = self.finished() => Some((result, ExitReason::Normal)),
            // Asked, or the supervisor itself is gone: nobody runs unwatched.
            _ = stopped => None,
        };
        let (result, unsaid) = match ended {
            Some(ended) => ended,
            None => (self.stop(grace, on_stop).await, ExitReason::Shutdown),
        };
        let dropped = self.discard();
        match result.and(dropped) {
            Ok(()) => self.exit.said().unwrap_or(unsaid),
            Err(text) => panicked(&self.name, text),
        }
    }

    /// Polls the context to its end; the error is the text of a panic.
    async fn finished(&mut self) -> Result<(), String> {
        poll_fn(|wake| {
            let Some(context) = &mut self.context else { return Poll::Ready(Ok(())) };
            match catch_unwind(AssertUnwindSafe(|| Pin::new(context).poll(wake))) {
                Ok(poll) => poll.map(Ok),
                Err(payload) => Poll::Ready(Err(panic_text(payload))),
            }
        })
        .await
    }

    async fn stop(&mut self, grace: Duration, on_stop: Option<Rc<dyn Fn() -> bool>>) -> Result<(), String> {
        let told = match on_stop {
            None => false,
            Some(tell) => catch_unwind(AssertUnwindSafe(|| tell())).map_err(panic_text)?,
        };
        if !told && let Some(context) = &mut self.context {
            context.ctx().stop();
        }
        match timeout(grace, self.finished()).await {
            Ok(result) => result,
            Err(_) => {
                tracing::warn!(actor = self.name, ?grace, "did not stop within its grace, aborted");
                Ok(())
            }
        }
    }

    /// Drops the actor. Its context is terminated first: otherwise actix would run the hooks of an
    /// actor that has just panicked, or that was given up on.
    fn discard(&mut self) -> Result<(), String> {
        let Some(mut context) = self.context.take() else { return Ok(()) };
        catch_unwind(AssertUnwindSafe(move || {
            context.ctx().terminate();
            drop(context);
        }))
        .map_err(panic_text)
    }
}

impl<A: Actor<Context = Context<A>>> Drop for Host<A> {
    /// For a host whose thread ends under it; otherwise `run` has discarded the actor.
    fn drop(&mut self) {
        if let Err(text) = self.discard() {
            panicked(&self.name, text);
        }
    }
}

/// Counts and logs a panic.
fn panicked(name: &str, text: String) -> ExitReason {
    metrics::counter!("vance_actor_panics_total", "actor" => label(name)).increment(1);
    tracing::error!(actor = name, panic = text, "actor panicked");
    ExitReason::Panicked(text)
}

/// The part of a name that metrics may carry: names such as `session:UUID` would be too many.
pub(crate) fn label(name: &str) -> String {
    name.split(':').next().unwrap_or(name).to_owned()
}

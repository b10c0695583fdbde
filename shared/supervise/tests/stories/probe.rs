//! An actor that does what a test tells it to, and a log of what happened to it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use vance_supervise::{
    Actor, ActorContext, ActorRef, AsyncContext, ChildSpec, Context, Exit, Handler, Message, SupervisorRef,
    SupervisorSpec, WrapFuture,
};

/// What happened, in order.
#[derive(Clone, Default)]
pub struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub fn add(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    /// All since the last `take`.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

pub struct Probe {
    name: String,
    exit: Exit,
    log: Log,
    count: u32,
    /// Refuses to stop, and ignores its stop message.
    stubborn: bool,
}

impl Probe {
    pub fn new(name: &str, exit: Exit, log: &Log) -> Probe {
        Probe { name: name.into(), exit, log: log.clone(), count: 0, stubborn: false }
    }

    pub fn stubborn(mut self) -> Probe {
        self.stubborn = true;
        self
    }
}

impl Actor for Probe {
    type Context = Context<Self>;

    fn started(&mut self, _: &mut Context<Self>) {
        self.log.add(format!("{} up", self.name));
    }

    fn stopping(&mut self, _: &mut Context<Self>) -> actix::Running {
        self.log.add(format!("{} stopping", self.name));
        if self.stubborn { actix::Running::Continue } else { actix::Running::Stop }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        self.log.add(format!("{} gone", self.name));
    }
}

/// What a probe is to do.
pub enum Do {
    /// Answer how often it was asked in this life.
    Count,
    /// Panic in the handler.
    Panic,
    /// Panic in a future of the context.
    PanicSpawned,
    /// Panic in a future the context waits for.
    PanicWaited,
    /// End as failed.
    Fail,
    /// End as done.
    Finish,
    /// Take no message for so long.
    Stick(Duration),
    /// The stop message: end by itself after so long.
    Leave(Duration),
}

impl Message for Do {
    type Result = u32;
}

impl Handler<Do> for Probe {
    type Result = u32;

    fn handle(&mut self, what: Do, ctx: &mut Context<Self>) -> u32 {
        match what {
            Do::Count => self.count += 1,
            Do::Panic => panic!("told to"),
            Do::PanicSpawned => {
                ctx.spawn(async { panic!("told to, spawned") }.into_actor(self));
            }
            Do::PanicWaited => ctx.wait(async { panic!("told to, waited") }.into_actor(self)),
            Do::Fail => self.exit.fail(ctx, "told to"),
            Do::Finish => self.exit.normal(ctx),
            Do::Stick(time) => ctx.wait(tokio::time::sleep(time).into_actor(self)),
            Do::Leave(_) if self.stubborn => self.log.add(format!("{} ignores", self.name)),
            Do::Leave(time) => {
                self.log.add(format!("{} leaving", self.name));
                ctx.run_later(time, |_, ctx| ctx.stop());
            }
        }
        self.count
    }
}

/// A probe as a child.
pub fn probe(name: &str, log: &Log) -> (ActorRef<Probe>, ChildSpec) {
    let reference = ActorRef::new(name);
    let (name, log) = (name.to_owned(), log.clone());
    let child = ChildSpec::actor(reference.clone(), move |exit| Probe::new(&name, exit, &log));
    (reference, child)
}

/// A supervisor of one probe named `probe`.
pub fn alone(log: &Log) -> (ActorRef<Probe>, SupervisorRef) {
    let (reference, child) = probe("probe", log);
    (reference, SupervisorRef::start(SupervisorSpec::new("root").child(child)))
}

/// Runs a story where actors can live.
pub async fn story<F: Future>(told: F) -> F::Output {
    tokio::task::LocalSet::new().run_until(told).await
}

/// Lets everything that can happen now happen. Time moves only when all are idle.
pub async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

//! Why an actor or a supervisor ended, and how an actor says so.

use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

use actix::prelude::{Actor, ActorContext, Context};

/// Why an actor or supervisor ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExitReason {
    /// It was done.
    Normal,
    /// Its supervisor, or the owner of its supervisor, asked it to stop.
    Shutdown,
    /// It gave up, for this reason.
    Failed(String),
    /// It panicked with this text.
    Panicked(String),
}

impl ExitReason {
    /// Whether this end is a fault: the only kind a transient child is restarted after.
    pub fn is_fault(&self) -> bool {
        match self {
            ExitReason::Normal | ExitReason::Shutdown => false,
            ExitReason::Failed(_) | ExitReason::Panicked(_) => true,
        }
    }
}

impl fmt::Display for ExitReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ExitReason::Normal => f.write_str("normal"),
            ExitReason::Shutdown => f.write_str("shutdown"),
            ExitReason::Failed(why) => write!(f, "failed: {why}"),
            ExitReason::Panicked(text) => write!(f, "panicked: {text}"),
        }
    }
}

/// Given to an actor's factory; the actor keeps it and uses it to end with a reason.
///
/// An actor that ends by `ctx.stop()` alone has ended normally. The first reason stands.
#[derive(Clone, Debug, Default)]
pub struct Exit {
    reason: Arc<OnceLock<ExitReason>>,
}

impl Exit {
    /// Ends the actor after the current handler, as failed for the reason `why`.
    pub fn fail<A: Actor<Context = Context<A>>>(&self, ctx: &mut Context<A>, why: impl Into<String>) {
        self.end(ctx, ExitReason::Failed(why.into()));
    }

    /// Ends the actor after the current handler, as done.
    pub fn normal<A: Actor<Context = Context<A>>>(&self, ctx: &mut Context<A>) {
        self.end(ctx, ExitReason::Normal);
    }

    fn end<A: Actor<Context = Context<A>>>(&self, ctx: &mut Context<A>, reason: ExitReason) {
        self.reason.get_or_init(|| reason);
        ctx.stop();
    }

    /// What the actor said, if it said anything.
    pub(crate) fn said(&self) -> Option<ExitReason> {
        self.reason.get().cloned()
    }
}

/// The text of a caught panic. `panic!` carries a `&str` or a `String`; anything else has no text.
pub(crate) fn panic_text(payload: Box<dyn Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => match payload.downcast::<&'static str>() {
            Ok(text) => (*text).to_owned(),
            Err(_) => "a panic without text".to_owned(),
        },
    }
}

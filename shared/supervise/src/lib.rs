//! Supervision trees over actix: start, watch, restart.
//!
//! A child is a factory; every restart runs it again, so state is fresh. A panic anywhere in an
//! actor's poll is caught, counted and becomes an exit reason; whoever waited for an answer gets
//! [`Refusal::Restarting`]. Names are stable: an [`ActorRef`] stays valid over restarts.
//!
//! ```text
//!                 SupervisorRef ──commands (bounded)──▶ supervisor task  (tree)
//!                                                        │  asks `decide`: who restarts, when, or give up
//!           ┌───────────────────┬────────────────────────┤
//!           ▼                   ▼                        ▼
//!     host task (host)    host task (host)        nested supervisor task (tree)
//!       actix context       actix context           │  gives up = a failed child here
//!           ▲                   ▲                   ▼
//!        ActorRef            ActorRef              its own children
//! ```
//!
//! Everything of one tree lives on the thread that called [`SupervisorRef::start`]; references
//! may be used from any thread. Only this crate touches `actix::dev`.
//!
//! What is absent on purpose: no logic runs in an actor's hooks after a panic (the context is
//! terminated first), and nobody holds an actix `Addr`, because actix grants each clone of one an
//! extra mailbox slot and its `send` never waits for room. The mailbox here is a bounded channel
//! read by the context, so its capacity is exact.
//!
//! Limits: a [`ResponseFuture`] is a task of its own: it outlives its actor, and its panic refuses
//! its caller without restarting anyone; [`ResponseActFuture`] belongs to the actor. A handler that never returns blocks its thread and cannot be aborted. A panic in an
//! actor's `Drop` is caught, but a second one from a field dropped by that unwinding aborts the
//! process, as everywhere in Rust.

mod decide;
mod exit;
mod host;
mod reference;
mod runtime;
mod spec;
mod supervisor;
mod tree;

pub use actix::prelude::{
    Actor, ActorContext, ActorFutureExt, Addr, AsyncContext, Context, Handler, Message, MessageResult,
    ResponseActFuture, ResponseFuture, WrapFuture,
};

pub use exit::{Exit, ExitReason};
pub use reference::{ActorRef, Refusal, STRUCK};
pub use runtime::{beside, near, run};
pub use spec::{Backoff, ChildSpec, Intensity, Restart, Strategy, SupervisorSpec};
pub use supervisor::{ChildState, ChildStatus, StartError, SupervisorRef};

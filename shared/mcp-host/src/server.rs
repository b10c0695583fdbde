//! The actor of one server, and its supervisor.
//!
//! ```text
//! pack:NAME (supervisor, one_for_one, never gives up)
//!  └─ mcp:NAME (McpServer, permanent)  one life per start: reach → list → serve → end
//! ```
//!
//! Who counts as failed is decided here ([`crate::budget`]), not by the supervisor's intensity: a pack that fails must not take its neighbours' supervisor down,
//! and it is tried again slowly for ever.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, DropGuard};
use vance_shared::launch::{Transport, TrustedLaunch};
use vance_supervise::{
    Actor, ActorFutureExt, ActorRef, AsyncContext, Backoff, ChildSpec, Context, Exit, Handler, Intensity, Message,
    Restart, SupervisorSpec, WrapFuture,
};

use crate::budget::{Cause, Verdict};
use crate::handle::{EventSink, HostEnv, HostEvent, HostState, McpHandle};
use crate::life::{End, live};
use crate::people::People;
use crate::shared::Shared;

/// Waits between restarts.
const BACKOFF: Backoff = Backoff { first: Duration::ZERO, max: Duration::from_secs(30) };
/// The same where a try is one connection: who is back is found soon.
const REMOTE_BACKOFF: Backoff = Backoff { first: Duration::ZERO, max: Duration::from_secs(10) };
/// A stop: closing the session, the farewell, the grace of the tree, and some room.
const STOP_GRACE: Duration = Duration::from_secs(8);

/// A server: its handle for callers, and the supervisor that keeps it. Nothing starts before the supervisor does.
pub fn server(launch: TrustedLaunch, env: HostEnv, events: EventSink) -> (McpHandle, SupervisorSpec) {
    server_with_people(launch, env, events, People::default())
}

/// The same where there are people to ask.
pub fn server_with_people(
    launch: TrustedLaunch,
    env: HostEnv,
    events: EventSink,
    people: People,
) -> (McpHandle, SupervisorSpec) {
    let shared = Arc::new(Shared::new(launch, env, events, people));
    let plan = shared.plan();
    let name = format!("pack:{}", plan.pack);
    let reference: ActorRef<McpServer> = ActorRef::new(format!("mcp:{}", plan.pack));
    let within = plan.restart.within;
    let kept = Kept(Arc::clone(&shared));
    let child = ChildSpec::actor(reference.clone(), move |exit| McpServer::new(Arc::clone(&kept.0), exit))
        .restart(Restart::Permanent)
        .mailbox(8)
        .grace(STOP_GRACE)
        .says_why()
        .on_stop(&reference, || Stop);
    let backoff = match &shared.plan().transport {
        Transport::Stdio { .. } => BACKOFF,
        Transport::Http { .. } | Transport::Rest(_) => REMOTE_BACKOFF,
    };
    let spec =
        SupervisorSpec::new(name).intensity(Intensity { max_restarts: u32::MAX, within }).backoff(backoff).child(child);
    (McpHandle(shared), spec)
}

/// Held by the supervisor: when that goes while no actor is there to say so (between two starts), the server is stopped all the same.
struct Kept(Arc<Shared>);

impl Drop for Kept {
    fn drop(&mut self) {
        stopped(&self.0);
    }
}

fn stopped(shared: &Shared) {
    shared.closing().cancel();
    if shared.state() != HostState::Stopped {
        shared.down(HostState::Stopped);
        shared.tell(HostEvent::Down { reason: "stopped".to_owned() });
    }
}

struct McpServer {
    shared: Arc<Shared>,
    exit: Exit,
    stop: CancellationToken,
    /// However the actor goes, its life hears it.
    _stop_on_drop: DropGuard,
}

/// Ends the life, then the actor.
#[derive(Message)]
#[rtype(result = "()")]
struct Stop;

impl McpServer {
    fn new(shared: Arc<Shared>, exit: Exit) -> Self {
        let stop = CancellationToken::new();
        Self { shared, exit, _stop_on_drop: stop.clone().drop_guard(), stop }
    }

    fn ended(&self, end: End, ctx: &mut Context<Self>) {
        match end {
            End::Stopped => {
                stopped(&self.shared);
                self.exit.normal(ctx);
            }
            End::Lost { why, uptime, cause } => {
                let pack = &self.shared.plan().pack;
                let why = self.shared.mask().owned(why);
                let verdict = {
                    let mut memory = self.shared.memory();
                    let verdict = memory.budget.ended(Instant::now(), uptime, cause, &self.shared.plan().restart);
                    memory.failed = verdict == Verdict::Failed;
                    verdict
                };
                match verdict {
                    Verdict::Restart => {
                        // The owner of the events says it to people.
                        tracing::debug!(pack = %pack, "server down: {why}");
                        self.shared.down(HostState::Restarting { reason: why.clone() });
                        self.shared.tell(HostEvent::Down { reason: why.clone() });
                    }
                    Verdict::Failed => {
                        tracing::debug!(pack = %pack, "server failed: {why}");
                        self.shared.down(HostState::Failed { reason: why.clone() });
                        self.shared.tell(HostEvent::Failed { reason: why.clone() });
                    }
                }
                self.exit.fail(ctx, why);
            }
        }
    }
}

impl Actor for McpServer {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        // A task of its own, so that a call's bytes never wait for an actor's turn.
        let life = vance_supervise::near(live(Arc::clone(&self.shared), self.stop.clone()));
        let ended = life.into_actor(self).map(|end, actor, ctx| match end {
            Ok(end) => actor.ended(end, ctx),
            Err(error) => actor.ended(
                End::Lost {
                    why: format!("a fault of the host: {error}"),
                    uptime: Duration::ZERO,
                    cause: Cause::Broken,
                },
                ctx,
            ),
        });
        ctx.spawn(ended);
    }
}

impl Handler<Stop> for McpServer {
    type Result = ();

    fn handle(&mut self, Stop: Stop, _: &mut Self::Context) {
        self.stop.cancel();
    }
}

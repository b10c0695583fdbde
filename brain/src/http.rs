//! The Brain's HTTP server: one door for the API and for the sockets of Feet.
//!
//! ```text
//!  listener ─▶ connections (TLS; limits of numbers, bytes and times) ─▶ gate: Host, Origin, token ─▶ router ─▶ handlers ─▶ crate::api
//!                                                                                          ├─▶ events (server-sent)
//!                                                                                          └─▶ socket ─▶ crate::link
//! ```
//!
//! What must stay true: no byte of a body is read before the token is known; every answer that is not a success has the
//! same shape, `{"error": {"code", "message"}}`; everything that was started here has ended when [`run`] returns.

mod answer;
mod blobs;
mod body;
mod connections;
mod events;
mod gate;
mod handlers;
mod query;
mod routes;
mod shares;
mod socket;
mod strangers;

#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpSocket};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::guardrails::Guardrails;
use crate::hub::Brain;
use crate::metrics::Metrics;
use crate::tls::Tls;
use crate::tokens::Principals;
use events::frames::Frames;
pub(crate) use events::frames::Shared;
use gate::Gate;
use shares::Shares;

/// Connections that the system keeps until they are accepted: a thousand Feet that come back at once.
const BACKLOG: u32 = 1024;
/// Event streams at once: each holds a place in the store's broadcast and looks at every event.
const MAX_EVENT_STREAMS: usize = 1_024;
/// Of these for one principal: a person's windows and a few dashboards. One that leaks streams takes nobody else's.
const MAX_OWN_EVENT_STREAMS: usize = 64;
/// Sockets whose hello may still be missing: a whole fleet that comes back finds its place within a few seconds.
const MAX_NEW_SOCKETS: usize = 2_048;

/// What the server needs.
pub struct HttpSetup {
    /// The Brain that answers.
    pub brain: Brain,
    /// Whose tokens are known.
    pub principals: Arc<Principals>,
    /// The address that is listened on, with its real port.
    pub listen: SocketAddr,
    /// Hosts that are answered besides it.
    pub allowed_hosts: Vec<String>,
    /// What `/metrics` shows.
    pub metrics: Metrics,
    /// The certificate of the door; without one everything travels in clear.
    pub tls: Option<Arc<Tls>>,
}

/// What every handler may use.
struct App {
    brain: Brain,
    metrics: Metrics,
    /// Cancelled when the server is to end: streams end then.
    shutdown: CancellationToken,
    /// Cancelled when the grace is over: what still runs ends then.
    cut: CancellationToken,
    event_streams: Arc<Shares>,
    /// What event streams tell.
    frames: Frames,
    new_sockets: Arc<Semaphore>,
    /// Sockets run beside their connection's task.
    sockets: TaskTracker,
}

/// Listens. Port 0 gets a free one. An address that a Brain used a moment ago can be used again.
pub async fn bind(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

/// Serves until `shutdown`, then lets what runs finish within a grace.
pub async fn run(setup: HttpSetup, listener: TcpListener, shutdown: CancellationToken) {
    let (mut guardrails, bad) = Guardrails::new(setup.listen, &setup.allowed_hosts);
    if setup.tls.is_some() {
        guardrails = guardrails.encrypted();
    }
    for host in bad {
        let host = vance_shared::show::quoted(&host, 80);
        tracing::warn!(
            "allowed_hosts in brain.yaml: {host} is no host; expected a name or name:port, without https://"
        );
    }
    let app = Arc::new(App {
        brain: setup.brain,
        metrics: setup.metrics,
        shutdown,
        cut: CancellationToken::new(),
        event_streams: Shares::new(MAX_EVENT_STREAMS, MAX_OWN_EVENT_STREAMS),
        frames: Frames::default(),
        new_sockets: Arc::new(Semaphore::new(MAX_NEW_SOCKETS)),
        sockets: TaskTracker::new(),
    });
    let gate = Arc::new(Gate::new(guardrails, setup.principals, app.clone()));
    connections::serve(listener, setup.tls, gate, &app).await;
}

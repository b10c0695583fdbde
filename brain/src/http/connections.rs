//! Connections: accepted, bounded, and ended in order.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use nix::sys::resource::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::App;
use super::gate::Gate;
use super::strangers::{Strangers, Visitor};
use crate::tls::Tls;

/// Connections at once: ten thousand Feet that come back, and room beside them; half of what files the process may open, if that is less. A socket
/// leaves this count when it is upgraded.
const MAX_CONNECTIONS: usize = 10_240;
/// All headers of a request together.
const MAX_HEADER_BYTES: usize = 32 * 1024;
/// Read buffer of a connection: the headers fit.
const MAX_BUFFER_BYTES: usize = 64 * 1024;
/// How long the headers of a request may take, also how long an idle connection is kept.
const HEADER_WAIT: Duration = Duration::from_secs(30);
/// How long a TLS handshake may take: two round trips of a bad line.
const TLS_WAIT: Duration = Duration::from_secs(10);
/// How long requests may go on after the shutdown: as long as the Brain lets server calls finish, and a little.
const GRACE: Duration = Duration::from_secs(12);
/// After the system refused a connection (too many open files): time for others to end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The answer to a connection that is one too many.
const BUSY: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\nContent-Length: 81\r\nRetry-After: 1\r\nConnection: close\r\n\r\n{\"error\":{\"code\":\"busy\",\"message\":\"too many connections; try again in a moment\"}}";

/// The answer to plain HTTP where TLS is spoken.
const NOT_ENCRYPTED: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nContent-Length: 92\r\nConnection: close\r\n\r\n{\"error\":{\"code\":\"not_encrypted\",\"message\":\"this Brain speaks TLS: use https:// or wss://\"}}";

/// Files that this process may open: connections take a share, so that the store, packs and the Brain's own files always find one.
fn open_files() -> usize {
    let soft = getrlimit(Resource::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft);
    usize::try_from(soft).unwrap_or(usize::MAX)
}

/// Accepts until `shutdown`; returns when all connections and sockets have ended.
pub(super) async fn serve(listener: TcpListener, tls: Option<Arc<Tls>>, gate: Arc<Gate>, app: &App) {
    let (shutdown, cut, sockets) = (&app.shutdown, &app.cut, &app.sockets);
    let files = open_files();
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS.min(files / 2)));
    let strangers = Arc::new(Strangers::within(files));
    let connections = TaskTracker::new();
    let mut quiet = false;
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                quiet = false;
                let hangup = Hangup::default();
                match (places.clone().try_acquire_owned(), strangers.enter(peer.ip(), hangup.clone())) {
                    (Ok(place), Some(visitor)) => {
                        let ends = Ends { drain: shutdown.clone(), cut: cut.clone(), hangup };
                        let of = Arrival { gate: gate.clone(), visitor: Arc::new(visitor), place, ends };
                        vance_supervise::near(connections.track_future(arrive(stream, tls.clone(), of)));
                    }
                    // The peer may be gone; a busy Brain does not wait for it. A TLS client sees a broken handshake.
                    (Err(_), _) | (_, None) => drop(stream.try_write(BUSY)),
                }
            }
            Err(error) if is_the_peers(&error) => {}
            Err(error) => {
                if !std::mem::replace(&mut quiet, true) {
                    tracing::warn!(%error, "cannot accept connections; trying again");
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    // New connections are refused from here on.
    drop(listener);
    connections.close();
    sockets.close();
    if timeout(GRACE, all_ended(&connections, sockets)).await.is_err() {
        let left = connections.len() + sockets.len();
        tracing::warn!(left, "connections did not end in time, they are cut");
        cut.cancel();
        all_ended(&connections, sockets).await;
    }
}

async fn all_ended(connections: &TaskTracker, sockets: &TaskTracker) {
    // In this order: a connection may still become a socket.
    connections.wait().await;
    sockets.wait().await;
}

/// What a connection comes with.
struct Arrival {
    gate: Arc<Gate>,
    visitor: Arc<Visitor>,
    place: OwnedSemaphorePermit,
    ends: Ends,
}

/// Ends one connection at once, whatever it does. Each request carries that of its connection.
#[derive(Debug, Clone, Default)]
pub(super) struct Hangup(CancellationToken);

impl Hangup {
    /// Ends it.
    pub(super) fn cancel(&self) {
        self.0.cancel();
    }

    /// True when it is to end.
    #[cfg(test)]
    pub(super) fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// When a connection ends.
struct Ends {
    /// After its request.
    drain: CancellationToken,
    /// At once, with all others.
    cut: CancellationToken,
    /// At once, alone.
    hangup: Hangup,
}

/// A connection that was gone before it was accepted.
fn is_the_peers(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

async fn arrive(stream: TcpStream, tls: Option<Arc<Tls>>, of: Arrival) {
    // Without it an answer may wait 40 ms for the peer's acknowledgement. It fails when the peer is gone.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let Some(tls) = tls else { return connection(stream, of).await };
    let handshake = async {
        let mut first = [0u8];
        // A letter begins a method, never a handshake.
        if stream.peek(&mut first).await.is_ok_and(|n| n == 1) && first[0].is_ascii_alphabetic() {
            tell_plainly(stream).await.ok();
            return None;
        }
        tls.acceptor().accept(stream).await.inspect_err(|error| tracing::debug!(%error, "a TLS handshake failed")).ok()
    };
    let shaken = tokio::select! {
        shaken = timeout(TLS_WAIT, handshake) => shaken,
        () = of.ends.drain.cancelled() => return,
        () = of.ends.hangup.0.cancelled() => return,
    };
    if let Ok(Some(stream)) = shaken {
        connection(stream, of).await;
    }
}

/// Says that this is not the way. What the peer sent is read, or the system would reset the connection before the answer is seen.
async fn tell_plainly(mut stream: TcpStream) -> io::Result<()> {
    stream.write_all(NOT_ENCRYPTED).await?;
    stream.shutdown().await?;
    let mut rest = [0u8; 1024];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

async fn connection<S>(stream: S, of: Arrival)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Arrival { gate, visitor, place, ends } = of;
    let used = Arc::new(AtomicBool::new(false));
    let begun = used.clone();
    let hangup = ends.hangup.clone();
    let service = service_fn(move |mut request: http::Request<hyper::body::Incoming>| {
        begun.store(true, Ordering::Relaxed);
        request.extensions_mut().insert(hangup.clone());
        let (gate, visitor) = (gate.clone(), visitor.clone());
        async move { Ok::<_, Infallible>(gate.handle(request, &visitor).await) }
    });
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_WAIT)
        .max_header_size(MAX_HEADER_BYTES)
        .max_buf_size(MAX_BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service)
        .with_upgrades();
    let mut serving = std::pin::pin!(serving);
    let mut draining = false;
    loop {
        tokio::select! {
            ended = serving.as_mut() => {
                if let Err(error) = ended {
                    tracing::trace!(%error, "a connection ended");
                }
                break;
            }
            () = ends.drain.cancelled(), if !draining => {
                // hyper would wait for the first request of a connection that never had one.
                if !used.load(Ordering::Relaxed) {
                    break;
                }
                draining = true;
                serving.as_mut().graceful_shutdown();
            }
            () = ends.cut.cancelled() => break,
            () = ends.hangup.0.cancelled() => break,
        }
    }
    drop(place);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answers_without_a_request_are_whole() {
        for text in [BUSY, NOT_ENCRYPTED].map(String::from_utf8_lossy) {
            let (head, body) = text.split_once("\r\n\r\n").unwrap_or_default();
            assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{head} {}", body.len());
            assert!(serde_json::from_str::<serde_json::Value>(body).is_ok());
        }
    }
}

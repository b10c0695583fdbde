//! A proxy between a Foot and its Brain that can be cut, go silent without closing, or do so at a certain frame.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

mod frames;
use frames::Frames;

/// What the proxy does with connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// Passes bytes on.
    Open,
    /// Closes what is there, refuses what comes.
    Cut,
    /// Keeps all connections, and takes new ones, but nothing passes any more: half-open.
    Hole,
}

/// Which way a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// From the client to the Brain.
    Up,
    /// From the Brain to the client.
    Down,
}

/// Does something at the next frame that holds a text, once.
#[derive(Debug, Clone)]
pub struct Trap {
    /// Which way the frame goes.
    pub way: Way,
    /// What it holds.
    pub text: String,
    /// True: the frame still passes.
    pub passes: bool,
    /// What the line becomes.
    pub then: Line,
}

/// The proxy. Dropping it cuts everything.
pub struct Proxy {
    /// `http://HOST:PORT`.
    pub url: String,
    shared: Arc<Shared>,
}

struct Shared {
    target: String,
    line: watch::Sender<Line>,
    /// Read by every connection of the proxy, so behind a lock.
    trap: Mutex<Option<Trap>>,
}

impl Shared {
    /// The trap, if this frame springs it.
    fn spring(&self, way: Way, frame: &[u8]) -> Option<Trap> {
        let mut trap = self.trap.lock().ok()?;
        let text = String::from_utf8_lossy(frame);
        trap.take_if(|t| t.way == way && text.contains(&t.text))
    }
}

impl Proxy {
    /// A proxy before `target` (`HOST:PORT`).
    pub async fn before(target: &str) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let (line, watched) = watch::channel(Line::Open);
        let shared = Arc::new(Shared { target: target.to_owned(), line, trap: Mutex::new(None) });
        let of_connections = Arc::downgrade(&shared);
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let Some(shared) = of_connections.upgrade() else { return };
                let now = *watched.borrow();
                if now != Line::Cut {
                    tokio::spawn(pass(socket, shared, watched.clone()));
                }
            }
        });
        Ok(Self { url, shared })
    }

    /// Changes what it does.
    pub fn set(&self, line: Line) {
        self.shared.line.send_replace(line);
    }

    /// What it does now.
    pub fn line(&self) -> Line {
        *self.shared.line.borrow()
    }

    /// Sets a trap for one frame. One that was set before and did not spring is forgotten.
    pub fn trap(&self, trap: Trap) {
        if let Ok(mut set) = self.shared.trap.lock() {
            *set = Some(trap);
        }
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.set(Line::Cut);
    }
}

async fn pass(from: TcpStream, shared: Arc<Shared>, mut watched: watch::Receiver<Line>) {
    let Ok(to) = TcpStream::connect(&shared.target).await else { return };
    from.set_nodelay(true).ok();
    to.set_nodelay(true).ok();
    let (client_out, client_in) = from.into_split();
    let (brain_out, brain_in) = to.into_split();
    tokio::select! {
        () = pump(client_out, brain_in, Way::Up, &shared) => {}
        () = pump(brain_out, client_in, Way::Down, &shared) => {}
        // Either the test cut it, or the proxy is gone.
        _ = watched.wait_for(|line| *line == Line::Cut) => {}
    }
}

/// Passes whole frames, so that a trap springs between two of them.
async fn pump(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, way: Way, shared: &Shared) {
    let mut frames = Frames::default();
    let mut line = shared.line.subscribe();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = match from.read(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(read) => read,
        };
        frames.push(buffer.get(..read).unwrap_or_default());
        while let Some((raw, payload)) = frames.next() {
            // In a hole nothing passes, and nothing is closed until the line is cut or open.
            if line.wait_for(|line| *line != Line::Hole).await.is_err() {
                return;
            }
            let sprung = shared.spring(way, &payload);
            let passes = sprung.as_ref().is_none_or(|trap| trap.passes);
            if passes && to.write_all(&raw).await.is_err() {
                return;
            }
            if let Some(trap) = sprung {
                shared.line.send_replace(trap.then);
            }
        }
    }
    // The end of a stream does not pass a hole either.
    line.wait_for(|line| *line != Line::Hole).await.ok();
}

//! A proxy between a Foot and its Brain that can be cut, or go silent without closing.

use std::sync::Arc;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What the proxy does with connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Line {
    /// Passes bytes on.
    Open,
    /// Closes what is there, refuses what comes.
    Cut,
}

/// The proxy. Dropping it cuts everything.
pub struct Proxy {
    /// `http://HOST:PORT`.
    pub url: String,
    state: Arc<watch::Sender<Line>>,
}

impl Proxy {
    /// A proxy before `target` (`HOST:PORT`).
    pub async fn before(target: &str) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let (state, watched) = watch::channel(Line::Open);
        let target = target.to_owned();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let watched = watched.clone();
                if *watched.borrow() == Line::Open {
                    tokio::spawn(pass(socket, target.clone(), watched));
                }
            }
        });
        Ok(Self { url, state: Arc::new(state) })
    }

    /// Changes what it does.
    pub fn set(&self, line: Line) {
        self.state.send_replace(line);
    }
}

async fn pass(mut from: TcpStream, target: String, mut watched: watch::Receiver<Line>) {
    let Ok(mut to) = TcpStream::connect(target).await else { return };
    from.set_nodelay(true).ok();
    to.set_nodelay(true).ok();
    tokio::select! {
        _ = copy_bidirectional(&mut from, &mut to) => {}
        // Either the test cut it, or the proxy is gone.
        _ = watched.wait_for(|line| *line == Line::Cut) => {}
    }
}

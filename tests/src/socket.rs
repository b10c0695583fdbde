//! A client of the wire, or a Brain, that a test writes frame by frame.

use anyhow::Context as _;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, accept_async, connect_async};

use crate::wait::PATIENCE;

/// One connection.
pub struct Socket(pub WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Socket {
    /// Connects to a Brain's `/ws`.
    pub async fn connect(addr: &str, token: &str) -> anyhow::Result<Self> {
        let mut request = format!("ws://{addr}/ws").into_client_request()?;
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse()?);
        Ok(Self(connect_async(request).await?.0))
    }

    /// Connects and says hello; gives the welcome too.
    pub async fn hello(addr: &str, token: &str, hello: &Value) -> anyhow::Result<(Self, Value)> {
        let mut socket = Self::connect(addr, token).await?;
        socket.send(hello).await?;
        let welcome = socket.next("welcome").await?;
        Ok((socket, welcome))
    }

    /// Waits for the next client of a listener, as a Brain does; gives its hello too.
    pub async fn accept(listener: &TcpListener) -> anyhow::Result<(Self, Value)> {
        let (stream, _) = timeout(PATIENCE, listener.accept()).await.context("nobody came")??;
        let mut socket = Self(accept_async(MaybeTlsStream::Plain(stream)).await?);
        let hello = socket.next("client_connected").await?;
        Ok((socket, hello))
    }

    /// Sends a frame.
    pub async fn send(&mut self, frame: &Value) -> anyhow::Result<()> {
        Ok(self.0.send(Message::text(frame.to_string())).await?)
    }

    /// Any frame. A close, or the end of the connection, is an error that names the code.
    pub async fn any(&mut self) -> anyhow::Result<Value> {
        loop {
            match timeout(PATIENCE, self.0.next()).await.context("nothing came")?.context("the connection ended")?? {
                Message::Text(text) => return Ok(serde_json::from_str(&text)?),
                Message::Close(close) => anyhow::bail!("closed: {}", close.map_or(1005, |c| u16::from(c.code))),
                _ => {}
            }
        }
    }

    /// The next frame of a type; others are passed over.
    pub async fn next(&mut self, kind: &str) -> anyhow::Result<Value> {
        loop {
            let frame = self.any().await.with_context(|| format!("waiting for {kind}"))?;
            if frame["type"] == kind {
                return Ok(frame);
            }
        }
    }
}

//! A client of the wire, and ten thousand of them.

use std::time::Duration;

use anyhow::Context as _;
use futures_util::{Sink, SinkExt as _, Stream, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::own::Own;
use super::programs::{Brain, Home};
use super::system::{cpu, memory_kib};
use super::table::{Goal, Table};

/// Clients of the measure.
const CLIENTS: usize = 10_000;
/// Clients that connect at the same time.
const AT_ONCE: usize = 128;
/// A little more than the wire's own.
const HEARTBEAT: Duration = Duration::from_secs(11);
/// A frame that takes longer fails the run.
const FRAME_WITHIN: Duration = Duration::from_secs(30);

/// One connection.
pub(crate) struct Client(WebSocketStream<TcpStream>);

impl Client {
    /// Connects.
    pub(crate) async fn connect(addr: &str, token: &str) -> anyhow::Result<Self> {
        let mut request = format!("ws://{addr}/ws").into_client_request()?;
        request.headers_mut().insert("authorization", format!("Bearer {token}").parse()?);
        let stream = TcpStream::connect(addr).await?;
        stream.set_nodelay(true)?;
        let config = WebSocketConfig::default().read_buffer_size(4 * 1024).write_buffer_size(0);
        Ok(Self(client_async_with_config(request, stream, Some(config)).await?.0))
    }

    /// Connects and is welcome.
    pub(crate) async fn hello(addr: &str, token: &str, hello: &Value) -> anyhow::Result<Self> {
        let mut client = Self::connect(addr, token).await?;
        client.send(hello).await?;
        while client.next().await?["type"] != "welcome" {}
        Ok(client)
    }

    /// Both ways, each by itself.
    pub(crate) fn split(
        self,
    ) -> (impl Sink<Message, Error = Error> + Unpin, impl Stream<Item = Result<Message, Error>> + Unpin) {
        self.0.split()
    }

    /// Sends a frame.
    pub(crate) async fn send(&mut self, frame: &Value) -> anyhow::Result<()> {
        Ok(self.0.send(Message::text(frame.to_string())).await?)
    }

    /// The next frame.
    pub(crate) async fn next(&mut self) -> anyhow::Result<Value> {
        loop {
            let message = tokio::time::timeout(FRAME_WITHIN, self.0.next()).await.context("no frame came")?;
            match message.context("the connection ended")?? {
                Message::Text(text) => return Ok(serde_json::from_str(&text)?),
                Message::Close(close) => anyhow::bail!("closed: {close:?}"),
                _ => {}
            }
        }
    }
}

/// The process of the clients: connects them all, says so, and keeps them until it is killed.
pub(crate) async fn keep(addr: &str, token: &str) -> anyhow::Result<()> {
    super::system::raise_open_files()?;
    let hello = json!({
        "type": "client_connected", "client_type": "cli", "protocol": [1], "new_session": true,
        "available_tools": [{"name": "bench_echo", "type": "native", "replay": "safe"}],
    });
    let connecting = futures_util::stream::iter(0..CLIENTS).map(|_| Client::hello(addr, token, &hello));
    let mut connecting = connecting.buffer_unordered(AT_ONCE);
    while let Some(client) = connecting.next().await {
        let mut client = client?;
        tokio::task::spawn_local(async move {
            loop {
                let frame = client.next().await?;
                if frame["type"] == "ping" {
                    client.send(&json!({"type": "pong", "nonce": frame["nonce"]})).await?;
                }
            }
            #[allow(unreachable_code)]
            anyhow::Ok(())
        });
    }
    println!("ready");
    std::future::pending().await
}

/// Sessions that do nothing.
pub(crate) fn idle(table: &mut Table) -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home)?;
    let (addr, token) = (brain.addr.as_str(), brain.token.as_str());
    let pid = brain.program.pid()?;
    super::small(async { Client::hello(addr, token, &json!({"type": "client_connected"})).await.map(drop) })?;
    let empty = memory_kib(pid)?;
    let mut clients = Own::start(&["clients", addr, token])?;
    clients.line("ready")?;
    // Over a heartbeat: with it each connection is as large as it gets.
    std::thread::sleep(HEARTBEAT);
    let grown = memory_kib(pid)? - empty;
    table.value("10,000 idle sessions: the Brain's memory", "KiB/session", grown / 10_000.0, Goal::Most(16.0));
    let before = cpu(&[pid])?;
    std::thread::sleep(HEARTBEAT);
    let used = (cpu(&[pid])? - before).as_secs_f64() / HEARTBEAT.as_secs_f64();
    table.value("10,000 idle sessions: processor, for heartbeats", "% of a core", used * 100.0, Goal::None);
    Ok(())
}

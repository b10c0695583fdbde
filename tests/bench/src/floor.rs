//! The floor: the least that our path can cost. HTTP in, one WebSocket hop, a child's pipe, and back, with nothing in between: no
//! token, no routing, no limits, no journal, and no JSON is read. One thread a process, everything that is ready goes out together.

use std::cell::RefCell;
use std::collections::HashMap;
use std::process::Stdio;
use std::rc::Rc;

use anyhow::Context as _;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::{mpsc, oneshot};
use tokio::task::spawn_local;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

/// Messages that wait for the next process.
pub(crate) const QUEUE: usize = 4096;
/// What is written together.
const TOGETHER_BYTES: usize = 64 * 1024;

/// A request on its way: its id and body.
pub(crate) type Sent = (u64, String);

/// Who waits for which answer.
#[derive(Clone, Default)]
pub(crate) struct Waiting(Rc<RefCell<HashMap<u64, oneshot::Sender<String>>>>);

impl Waiting {
    pub(crate) fn answer(&self, id: u64, body: String) {
        if let Some(waiter) = self.0.borrow_mut().remove(&id) {
            // A caller that went away needs no answer.
            waiter.send(body).ok();
        }
    }
}

/// The Brain's half: HTTP on one port, the socket on another.
pub(crate) async fn brain() -> anyhow::Result<()> {
    let (http, ws) = (TcpListener::bind("127.0.0.1:0").await?, TcpListener::bind("127.0.0.1:0").await?);
    println!("socket {}", ws.local_addr()?);
    let (stream, _) = ws.accept().await?;
    stream.set_nodelay(true)?;
    let socket = tokio_tungstenite::accept_async_with_config(stream, Some(config())).await?;
    let (mut sink, mut source) = socket.split();
    let (requests, mut queue) = mpsc::channel::<Sent>(QUEUE);
    let waiting = Waiting::default();
    let answers = waiting.clone();
    spawn_local(async move {
        while let Some((id, body)) = queue.recv().await {
            sink.feed(Message::text(format!("{id} {body}"))).await?;
            while let Ok((id, body)) = queue.try_recv() {
                sink.feed(Message::text(format!("{id} {body}"))).await?;
            }
            sink.flush().await?;
        }
        anyhow::Ok(())
    });
    spawn_local(async move {
        while let Some(Ok(message)) = source.next().await {
            let Message::Text(text) = message else { continue };
            if let Some((id, body)) = text.split_once(' ') {
                answers.answer(id.parse()?, body.to_owned());
            }
        }
        anyhow::Ok(())
    });
    println!("ready {}", http.local_addr()?);
    accept(http, requests, waiting).await
}

/// The Foot's half.
pub(crate) async fn foot(brain: &str) -> anyhow::Result<()> {
    let (mut input, mut output) = child()?;
    let stream = TcpStream::connect(brain).await?;
    stream.set_nodelay(true)?;
    let (socket, _) =
        tokio_tungstenite::client_async_with_config(format!("ws://{brain}/"), stream, Some(config())).await?;
    let (mut sink, mut source) = socket.split();
    let (calls, mut queue) = mpsc::channel::<Message>(QUEUE);
    spawn_local(async move {
        let mut text = String::new();
        while let Some(message) = queue.recv().await {
            call_of(&message, &mut text)?;
            while text.len() < TOGETHER_BYTES
                && let Ok(message) = queue.try_recv()
            {
                call_of(&message, &mut text)?;
            }
            input.write_all(text.as_bytes()).await?;
            text.clear();
        }
        anyhow::Ok(())
    });
    spawn_local(async move {
        let mut line = String::new();
        loop {
            line.clear();
            if output.read_line(&mut line).await? == 0 {
                return anyhow::Ok(());
            }
            let (id, result) = result_of(&line)?;
            sink.feed(Message::text(format!("{id} {result}"))).await?;
            if !output.buffer().contains(&b'\n') {
                sink.flush().await?;
            }
        }
    });
    while let Some(Ok(message)) = source.next().await {
        calls.send(message).await?;
    }
    Ok(())
}

/// HTTP straight to the child.
pub(crate) async fn local() -> anyhow::Result<()> {
    let (mut input, mut output) = child()?;
    let http = TcpListener::bind("127.0.0.1:0").await?;
    let (requests, mut queue) = mpsc::channel::<Sent>(QUEUE);
    let waiting = Waiting::default();
    let answers = waiting.clone();
    spawn_local(async move {
        let mut text = String::new();
        while let Some((id, body)) = queue.recv().await {
            call(id, &body, &mut text);
            while let Ok((id, body)) = queue.try_recv() {
                call(id, &body, &mut text);
            }
            input.write_all(text.as_bytes()).await?;
            text.clear();
        }
        anyhow::Ok(())
    });
    spawn_local(async move {
        let mut line = String::new();
        loop {
            line.clear();
            if output.read_line(&mut line).await? == 0 {
                return anyhow::Ok(());
            }
            let (id, result) = result_of(&line)?;
            answers.answer(id.parse()?, result.to_owned());
        }
    });
    println!("ready {}", http.local_addr()?);
    accept(http, requests, waiting).await
}

fn config() -> WebSocketConfig {
    WebSocketConfig::default().read_buffer_size(TOGETHER_BYTES).write_buffer_size(TOGETHER_BYTES)
}

fn child() -> anyhow::Result<(ChildStdin, BufReader<ChildStdout>)> {
    #[allow(clippy::disallowed_methods)] // it ends with its input
    let mut command = Command::new(std::env::current_exe()?);
    let child = command.arg("echo").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let output = BufReader::with_capacity(TOGETHER_BYTES, child.stdout.context("stdout")?);
    Ok((child.stdin.context("stdin")?, output))
}

fn call(id: u64, params: &str, text: &mut String) {
    for part in [r#"{"jsonrpc":"2.0","id":"#, &id.to_string(), r#","method":"tools/call","params":"#, params, "}\n"] {
        text.push_str(part);
    }
}

fn call_of(message: &Message, text: &mut String) -> anyhow::Result<()> {
    if let Message::Text(frame) = message {
        let (id, params) = frame.split_once(' ').context("a frame is `ID BODY`")?;
        call(id.parse()?, params, text);
    }
    Ok(())
}

/// The id and the result of a line, by their places: the child is our own.
fn result_of(line: &str) -> anyhow::Result<(&str, &str)> {
    let rest = line.trim_end().strip_prefix(r#"{"jsonrpc":"2.0","id":"#).context("a line of our own child")?;
    let (id, rest) = rest.split_once(r#","result":"#).context("a result")?;
    Ok((id, rest.strip_suffix('}').context("an end")?))
}

pub(crate) async fn accept(
    listener: TcpListener,
    requests: mpsc::Sender<Sent>,
    waiting: Waiting,
) -> anyhow::Result<()> {
    let next = Rc::new(std::cell::Cell::new(0));
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        spawn_local(serve(stream, requests.clone(), waiting.clone(), next.clone()));
    }
}

/// HTTP/1.1 as our own load speaks it: headers, then a body of `content-length` bytes.
async fn serve(
    mut stream: TcpStream,
    requests: mpsc::Sender<Sent>,
    waiting: Waiting,
    next: Rc<std::cell::Cell<u64>>,
) -> anyhow::Result<()> {
    let mut buffer = Vec::with_capacity(TOGETHER_BYTES);
    let mut answer = Vec::new();
    loop {
        let (head, length) = loop {
            if let Some(found) = super::load::head(&buffer) {
                break found;
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        };
        while buffer.len() < head + length {
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        }
        let body = buffer.get(head..head + length).context("a body")?;
        let body = String::from_utf8(body.to_vec())?;
        buffer.drain(..head + length);
        let id = next.get();
        next.set(id + 1);
        let (waiter, waited) = oneshot::channel();
        waiting.0.borrow_mut().insert(id, waiter);
        requests.send((id, body)).await?;
        let body = waited.await?;
        answer.clear();
        answer.extend_from_slice(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ");
        answer.extend_from_slice(body.len().to_string().as_bytes());
        answer.extend_from_slice(b"\r\n\r\n");
        answer.extend_from_slice(body.as_bytes());
        stream.write_all(&answer).await?;
    }
}

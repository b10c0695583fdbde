//! A child's pipes as a connection: one task reads lines, one writes them; the SDK and our raw lane share them.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorData, JsonRpcMessage, NumberOrString, ServerJsonRpcMessage, ServerResult,
};
use rmcp::transport::Transport;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use vance_shared::mend;
use vance_shared::names::PackName;
use vance_shared::show::quoted;
use vance_supervise::near;

use crate::lane::{FIRST_ID, Lane, Line};
use crate::line::{self, Addressee, Inbound};
use crate::mask::Mask;

/// One line from a server: what the SDK takes over HTTP too. A longer one fails the call that it answers.
pub const MAX_LINE_BYTES: usize = 16 * 1024 * 1024;
/// A line buffer that grew beyond this is given back after the line.
const KEEP_BUFFER_BYTES: usize = 256 * 1024;
/// Of a longer line begin and end are looked at: ids stand there.
const EDGE_BYTES: usize = 64 * 1024;
/// What goes on without an end of a line is no answer: it ends the server.
const MAX_SKIPPED_BYTES: u64 = 256 * 1024 * 1024;
const READ_BYTES: usize = 64 * 1024;
/// Lines that are ready are written together up to this size.
const WRITE_BYTES: usize = 64 * 1024;
/// Messages that wait for the SDK.
const SDK_MESSAGES: usize = 64;
/// Lines that are no messages are shown this often per connection, then only counted.
const GARBAGE_SHOWN: u32 = 5;

/// What is known of a connection from any side.
pub(crate) struct Pipes {
    pub(crate) pack: PackName,
    pub(crate) lane: Arc<Lane>,
    mask: Arc<Mask>,
    /// Cancelled when the server's output has ended or is unusable.
    pub(crate) ended: CancellationToken,
    /// Cancelled when we end the server's input.
    pub(crate) close_input: CancellationToken,
    /// A server that answered `server/discover` when nobody waited any more: it is of the newer kind, and slow.
    pub(crate) late_discover: AtomicBool,
    why: OnceLock<String>,
    /// Requests of the SDK that wait for an answer. A lock, because the SDK sends from one task and the reader answers in another; never held across an await.
    expected: Mutex<HashSet<u64>>,
}

impl Pipes {
    /// Why the connection ended.
    pub(crate) fn why(&self) -> String {
        self.why.get().cloned().unwrap_or_else(|| "the connection ended".to_owned())
    }

    /// The connection is over. The first reason stands.
    pub(crate) fn end(&self, why: String) {
        let why = self.why.get_or_init(|| why);
        self.lane.close(why);
        self.ended.cancel();
    }

    fn expected(&self) -> std::sync::MutexGuard<'_, HashSet<u64>> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts reading and writing. Gives the connection and the SDK's end of it.
pub(crate) fn open(
    pack: PackName,
    mask: Arc<Mask>,
    output: impl AsyncRead + Send + Unpin + 'static,
    input: impl AsyncWrite + Send + Unpin + 'static,
) -> (Arc<Pipes>, SdkEnd) {
    let (lane, queue, urgent) = Lane::new();
    let pipes = Arc::new(Pipes {
        pack,
        lane,
        mask,
        ended: CancellationToken::new(),
        close_input: CancellationToken::new(),
        late_discover: AtomicBool::new(false),
        why: OnceLock::new(),
        expected: Mutex::default(),
    });
    let (to_sdk, messages) = mpsc::channel(SDK_MESSAGES);
    near(write(input, queue, urgent, Arc::clone(&pipes)));
    near(read(output, to_sdk, Arc::clone(&pipes)));
    let end = SdkEnd { messages, pipes: Arc::clone(&pipes) };
    (pipes, end)
}

async fn write(
    mut input: impl AsyncWrite + Unpin,
    mut queue: mpsc::Receiver<Line>,
    mut urgent: mpsc::Receiver<Line>,
    pipes: Arc<Pipes>,
) {
    let mut text = String::new();
    loop {
        tokio::select! {
            biased;
            () = pipes.close_input.cancelled() => return,
            () = pipes.ended.cancelled() => return,
            Some(line) = urgent.recv() => take(&line, &mut text),
            Some(line) = queue.recv() => take(&line, &mut text),
        }
        while text.len() < WRITE_BYTES {
            match urgent.try_recv().or_else(|_| queue.try_recv()) {
                Ok(line) => take(&line, &mut text),
                Err(_) => break,
            }
        }
        let written = tokio::select! {
            written = input.write_all(text.as_bytes()) => written,
            () = pipes.close_input.cancelled() => return,
            () = pipes.ended.cancelled() => return,
        };
        if let Err(error) = written {
            pipes.end(format!("it closed its input: {error}"));
            return;
        }
        text.clear();
        text.shrink_to(KEEP_BUFFER_BYTES);
    }
}

fn take(line: &Line, text: &mut String) {
    if line.begin() {
        text.push_str(&line.text);
    }
}

async fn read(output: impl AsyncRead + Unpin, to_sdk: mpsc::Sender<ServerJsonRpcMessage>, pipes: Arc<Pipes>) {
    let mut output = BufReader::with_capacity(READ_BYTES, output);
    let mut buffer = Vec::new();
    let mut garbage = 0;
    let why = loop {
        match read_line(&mut output, &mut buffer).await {
            Ok(Read::Line) => deliver(&line::text_of(&buffer), &to_sdk, &pipes, &mut garbage).await,
            Ok(Read::TooLong { bytes, end }) => too_long(&buffer, &end, bytes, &to_sdk, &pipes).await,
            Ok(Read::End) => break "its output ended".to_owned(),
            Err(error) => break error.to_string(),
        }
        buffer.clear();
        buffer.shrink_to(KEEP_BUFFER_BYTES);
    };
    if garbage > GARBAGE_SHOWN {
        tracing::warn!(pack = %pipes.pack, lines = garbage, "lines on its output that were no messages");
    }
    pipes.end(why);
}

/// What was read.
enum Read {
    /// A line, without its end.
    Line,
    /// There are no more; half a line at the end is no message.
    End,
    /// A line of so many bytes: its begin is in the buffer, and this is its end.
    TooLong { bytes: u64, end: Vec<u8> },
}

async fn read_line(output: &mut (impl AsyncBufReadExt + Unpin), line: &mut Vec<u8>) -> std::io::Result<Read> {
    loop {
        let ready = output.fill_buf().await?;
        if ready.is_empty() {
            return Ok(Read::End);
        }
        let end = memchr::memchr(b'\n', ready);
        let part = ready.get(..end.unwrap_or(ready.len())).unwrap_or_default();
        if line.len() + part.len() > MAX_LINE_BYTES {
            return skip_line(output, line).await;
        }
        line.extend_from_slice(part);
        let taken = part.len() + usize::from(end.is_some());
        output.consume(taken);
        if end.is_some() {
            return Ok(Read::Line);
        }
    }
}

/// Reads on to the end of a line that is too long already, and keeps its edges.
async fn skip_line(output: &mut (impl AsyncBufReadExt + Unpin), line: &mut Vec<u8>) -> std::io::Result<Read> {
    let mut bytes = line.len() as u64;
    let mut tail = line.split_off(line.len().saturating_sub(EDGE_BYTES));
    line.truncate(EDGE_BYTES);
    line.shrink_to(EDGE_BYTES);
    loop {
        let ready = output.fill_buf().await?;
        if ready.is_empty() {
            return Ok(Read::End);
        }
        let end = memchr::memchr(b'\n', ready);
        let part = ready.get(..end.unwrap_or(ready.len())).unwrap_or_default();
        bytes += part.len() as u64;
        if bytes > MAX_SKIPPED_BYTES {
            let mib = MAX_SKIPPED_BYTES / (1024 * 1024);
            return Err(std::io::Error::other(format!("it wrote more than {mib} MiB without an end of line")));
        }
        tail.extend_from_slice(part.get(part.len().saturating_sub(EDGE_BYTES)..).unwrap_or_default());
        tail.drain(..tail.len().saturating_sub(EDGE_BYTES));
        let taken = part.len() + usize::from(end.is_some());
        output.consume(taken);
        if end.is_some() {
            return Ok(Read::TooLong { bytes, end: tail });
        }
    }
}

/// A line that is too long: the call that it answers hears so, and nothing else is lost.
async fn too_long(begin: &[u8], end: &[u8], bytes: u64, to_sdk: &mpsc::Sender<ServerJsonRpcMessage>, pipes: &Pipes) {
    let addressee = line::addressee(begin, end);
    tracing::warn!(pack = %pipes.pack, bytes, most = MAX_LINE_BYTES, "a line on its output is too long; skipped");
    let told = match addressee {
        Addressee::Request(id) if id >= FIRST_ID => pipes.lane.too_large(Some(id), bytes),
        Addressee::Request(id) if pipes.expected().remove(&id) => {
            let why = format!("its answer has {bytes} bytes, expected at most {MAX_LINE_BYTES}");
            let id = i64::try_from(id).map(NumberOrString::Number).ok();
            to_sdk.send(JsonRpcMessage::error(ErrorData::internal_error(why, None), id)).await.is_ok()
        }
        Addressee::Unknown => pipes.lane.too_large(None, bytes),
        Addressee::Request(_) | Addressee::Nobody => true,
    };
    if !told {
        tracing::warn!(pack = %pipes.pack, "whom that line answered cannot be seen; the call ends with its time");
    }
}

async fn deliver(text: &str, to_sdk: &mpsc::Sender<ServerJsonRpcMessage>, pipes: &Pipes, garbage: &mut u32) {
    if text.is_empty() {
        return;
    }
    let (put_right, read) = match line::read(text) {
        None => (mend::numbers(text), None),
        read => (None, read),
    };
    let Some(messages) = read.or_else(|| put_right.as_deref().and_then(line::read)) else {
        if not_json(text, pipes) {
            return;
        }
        *garbage = garbage.saturating_add(1);
        if *garbage <= GARBAGE_SHOWN {
            tracing::warn!(pack = %pipes.pack, line = quoted(&pipes.mask.text(text), 200), "a line on its output is no message; skipped");
        }
        return;
    };
    for message in messages {
        let for_sdk = match message {
            Inbound::Reply { id: Some(id), body } if pipes.lane.answer(id, body) => None,
            Inbound::Reply { id, body } => answer_for_sdk(id, body, pipes),
            Inbound::Progress { token, progress } => {
                if !pipes.lane.report(token, progress) {
                    tracing::trace!(pack = %pipes.pack, token, "progress on a request of the SDK");
                }
                None
            }
            Inbound::Other(whole) => other_for_sdk(whole, pipes),
        };
        if let Some(message) = for_sdk
            && to_sdk.send(message).await.is_err()
        {
            tracing::trace!(pack = %pipes.pack, "a message after the end");
        }
    }
}

/// A line that can only be an answer of ours, and is no JSON: its call need not wait for another one.
fn not_json(text: &str, pipes: &Pipes) -> bool {
    let Addressee::Request(id) = line::addressee(text.as_bytes(), text.as_bytes()) else { return false };
    let why = serde_json::from_str::<serde::de::IgnoredAny>(text).err().map(|error| error.to_string());
    pipes.lane.unreadable(id, &why.unwrap_or_default())
}

/// An answer to the SDK, with the id as the SDK wrote it. Late, duplicate and forged ones end here: during the handshake the SDK takes them for its own.
fn answer_for_sdk(id: Option<u64>, body: Result<&RawValue, &RawValue>, pipes: &Pipes) -> Option<ServerJsonRpcMessage> {
    let known = id.filter(|id| pipes.expected().remove(id));
    let Some(id) = known else {
        if body.is_ok_and(|result| result.get().contains("\"supportedVersions\"")) {
            pipes.late_discover.store(true, Ordering::Release);
        }
        tracing::debug!(pack = %pipes.pack, ?id, "an answer that nobody waits for");
        return None;
    };
    let id = NumberOrString::Number(i64::try_from(id).ok()?);
    Some(match body {
        Ok(result) => match serde_json::from_str::<ServerResult>(result.get()) {
            Ok(result) => JsonRpcMessage::response(result, id),
            Err(error) => {
                JsonRpcMessage::error(ErrorData::internal_error(format!("unreadable result: {error}"), None), Some(id))
            }
        },
        Err(error) => {
            let error = serde_json::from_str(error.get())
                .unwrap_or_else(|_| ErrorData::internal_error(quoted(&pipes.mask.text(error.get()), 300), None));
            JsonRpcMessage::error(error, Some(id))
        }
    })
}

fn other_for_sdk(whole: &RawValue, pipes: &Pipes) -> Option<ServerJsonRpcMessage> {
    match serde_json::from_str(whole.get()) {
        Ok(message) => Some(message),
        Err(error) => {
            tracing::debug!(pack = %pipes.pack, %error, "a message that the protocol does not know; skipped");
            None
        }
    }
}

/// The SDK's end of a child's pipes.
pub(crate) struct SdkEnd {
    messages: mpsc::Receiver<ServerJsonRpcMessage>,
    pipes: Arc<Pipes>,
}

impl SdkEnd {
    fn note(&self, message: &ClientJsonRpcMessage) {
        let ClientJsonRpcMessage::Request(request) = message else { return };
        let mut expected = self.pipes.expected();
        if matches!(request.request, ClientRequest::InitializeRequest(_)) {
            // The probe before it was given up.
            expected.clear();
        }
        if let NumberOrString::Number(id) = &request.id
            && let Ok(id) = u64::try_from(*id)
        {
            expected.insert(id);
        }
    }
}

impl Transport<RoleClient> for SdkEnd {
    type Error = std::io::Error;

    fn send(&mut self, item: ClientJsonRpcMessage) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        self.note(&item);
        let lines = self.pipes.lane.lines().clone();
        async move {
            let mut text = serde_json::to_string(&item)?;
            text.push('\n');
            let gone = |_| std::io::Error::new(std::io::ErrorKind::BrokenPipe, "its input is closed");
            lines.send(Line::plain(text)).await.map_err(gone)
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        self.messages.recv().await
    }

    async fn close(&mut self) -> Result<(), Self::Error> {
        self.pipes.close_input.cancel();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::io::AsyncReadExt;

    use super::*;
    use crate::lane::Reply;

    fn pack() -> PackName {
        PackName::parse("p").unwrap()
    }

    #[tokio::test]
    async fn answers_are_found_between_garbage_halves_and_duplicates() {
        let (mut server, output) = tokio::io::duplex(1024);
        let (pipes, _sdk) = open(pack(), Arc::default(), output, tokio::io::sink());
        let flight = pipes.lane.request("m", &[], &[]);
        let lines = format!(
            "hello\n\n{{\"id\":\"{FIRST_ID}\",\"result\":\"\u{e9}\"}}\n{{\"id\":{FIRST_ID},\"result\":2}}\n{{\"id\""
        );
        for byte in lines.as_bytes() {
            server.write_all(&[*byte]).await.unwrap();
        }
        assert!(matches!(flight.end().await, Reply::Result(raw) if raw.get() == "\"é\""));
        drop(server);
        pipes.ended.cancelled().await;
        assert_eq!(pipes.why(), "its output ended");
    }

    #[tokio::test]
    async fn a_line_over_the_limit_fails_its_call_and_nothing_else() {
        let (mut server, output) = tokio::io::duplex(1024 * 1024);
        let (pipes, _sdk) = open(pack(), Arc::default(), output, tokio::io::sink());
        let ask = || pipes.lane.request("m", &[], &[]);
        let (first, second, third, fourth) = (ask(), ask(), ask(), ask());
        let long = "x".repeat(MAX_LINE_BYTES + 1);
        let ids = FIRST_ID..=FIRST_ID + 3;
        let [a, b, c, d] = ids.collect::<Vec<_>>()[..] else { panic!("four") };
        for line in [
            format!(r#"{{"id":{a},"result":"{long}"}}"#),
            format!(r#"{{"result":{{"a":"{long}"}},"id":{b}}}"#),
            // Nobody's: two still wait.
            format!(r#"{{"result":"{long}"}}"#),
            long.clone(),
            format!(r#"{{"id":{c},"result":3}}"#),
            // For the only one that waits.
            format!(r#"{{"result":"{long}"}}"#),
        ] {
            server.write_all(line.as_bytes()).await.unwrap();
            server.write_all(b"\n").await.unwrap();
        }
        let is_large = |reply: Reply, around: u64| match reply {
            Reply::TooLarge { bytes } => assert_eq!(bytes, long.len() as u64 + around),
            other => panic!("{other:?}"),
        };
        is_large(first.end().await, 29);
        is_large(second.end().await, 35);
        assert!(matches!(third.end().await, Reply::Result(raw) if raw.get() == "3"));
        is_large(fourth.end().await, 13);
        assert!(!pipes.ended.is_cancelled() && d > c);
    }

    #[tokio::test]
    async fn a_line_without_an_end_ends_the_connection() {
        let (mut server, output) = tokio::io::duplex(1024 * 1024);
        let (pipes, _sdk) = open(pack(), Arc::default(), output, tokio::io::sink());
        let flight = pipes.lane.request("m", &[], &[]);
        let chunk = vec![b'x'; 1024 * 1024];
        while server.write_all(&chunk).await.is_ok() {}
        let Reply::Lost { why, .. } = flight.end().await else { panic!("lost") };
        assert_eq!(why, "it wrote more than 256 MiB without an end of line");
    }

    #[tokio::test]
    async fn closing_the_input_is_seen_by_the_server() {
        let (input, mut server) = tokio::io::duplex(1024);
        let (_keep, output) = tokio::io::duplex(1024);
        let (pipes, _sdk) = open(pack(), Arc::default(), output, input);
        drop(pipes.lane.request("m", &[], &[]));
        pipes.close_input.cancel();
        let mut text = String::new();
        server.read_to_string(&mut text).await.unwrap();
    }
}

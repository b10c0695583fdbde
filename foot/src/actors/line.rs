//! One line: from the TCP connection to its end, as one task. Reading and writing do not wait for each other.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::sync::{mpsc, watch};
use tokio::time::{Sleep, sleep};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::http::header::AUTHORIZATION;
use tokio_tungstenite::tungstenite::http::{HeaderValue, Uri};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, client_async_tls_with_config};
use tokio_util::sync::CancellationToken;
use vance_blobs::Blobs;
use vance_foot_core::calls::MAX_UNACKED;
use vance_foot_core::link::End;
use vance_shared::call::Outcome;
use vance_shared::limits::{FRAME_BYTES, MESSAGE_BYTES, OUTBOX_FRAMES, SOCKET_BUFFER_BYTES, SOCKET_WRITE_BYTES};
use vance_shared::show::plain;
use vance_shared::wire::{
    Accepted, BlobGet, BlobPart, CLOSE_PROTOCOL, CallResult, ClientConnected, Decoded, ErrorFrame, PROTOCOL, ToBrain,
    ToFoot, Welcome, decode_to_foot, encode, split,
};
use vance_supervise::{ActorRef, Refusal};

use super::announce::{self, Announced};
use super::catalogue::Catalogue;
use super::dial::{ByteStream, Dial};
use super::dispatcher::{Dispatcher, FromJournal, Outbox, Outgoing, TakeInflight, ToDispatcher};
use super::kept;
use super::link::{Link, ToLink};
use super::runs::Runs;
use crate::journal::{self, CallJournal};

/// How long the word that a call is accepted may wait for company.
const ACCEPTED_WITHIN: Duration = Duration::from_millis(2);
/// How long the Brain may take to answer a close.
const CLOSE_WITHIN: Duration = Duration::from_secs(1);
/// Pause before a restarting Dispatcher is asked again.
const ASK_AGAIN: Duration = Duration::from_millis(50);

type Socket = WebSocketStream<MaybeTlsStream<Box<dyn ByteStream>>>;

/// What a line needs.
pub(crate) struct Job {
    pub(crate) generation: u64,
    /// `ws://…/ws`.
    pub(crate) url: String,
    pub(crate) token: Option<String>,
    pub(crate) dial: Dial,
    pub(crate) hello: ClientConnected,
    pub(crate) catalogue: watch::Receiver<Arc<Catalogue>>,
    pub(crate) dispatcher: ActorRef<Dispatcher>,
    pub(crate) link: ActorRef<Link>,
    pub(crate) journal: Arc<dyn CallJournal>,
    pub(crate) runs: Arc<Runs>,
    pub(crate) blobs: Option<Arc<Blobs>>,
    pub(crate) heard: Heard,
    /// This Foot goes: what is at hand is still sent, then the line is closed as lines are.
    pub(crate) leaving: CancellationToken,
    /// What the Brain says before it has taken the hello: its own words on a refusal.
    pub(crate) said: Arc<OnceLock<String>>,
}

/// When the last frame came, in milliseconds of the link's clock. Shared so that a frame costs no message.
#[derive(Clone)]
pub(crate) struct Heard {
    since: tokio::time::Instant,
    at: Arc<AtomicU64>,
}

impl Heard {
    pub(crate) fn new(since: tokio::time::Instant) -> Self {
        Self { since, at: Arc::default() }
    }

    fn now(&self) {
        let ms = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.at.store(ms, Ordering::Relaxed);
    }

    pub(crate) fn at(&self) -> Duration {
        Duration::from_millis(self.at.load(Ordering::Relaxed))
    }
}

/// Runs a line to its end.
pub(crate) async fn run(job: Job) -> End {
    match drive(job).await {
        Ok(end) | Err(end) => end,
    }
}

async fn drive(mut job: Job) -> Result<End, End> {
    let mut socket = connect(&job).await?;
    job.hello.inflight = take_inflight(&job.dispatcher).await?;
    let snapshot = Arc::clone(&job.catalogue.borrow_and_update());
    let (text, announced) = announce::hello(std::mem::take(&mut job.hello), &snapshot);
    socket.send(Message::text(text)).await.map_err(|e| ended(&e))?;
    let welcome = welcome(&mut socket, &job.heard, &job.said).await?;

    let (control, control_rx) = mpsc::channel(OUTBOX_FRAMES);
    let (results, results_rx) = mpsc::channel(2 * MAX_UNACKED);
    let outbox = Outbox { generation: job.generation, control: control.clone(), results };
    let _down = Down { dispatcher: job.dispatcher.clone(), generation: job.generation };
    let inflight = welcome.inflight.clone();
    let told = ToLink::Welcomed { generation: job.generation, welcome: Box::new(welcome), control: control.clone() };
    job.link.post(told).await.map_err(inside)?;
    job.dispatcher.post(ToDispatcher::Up { outbox, inflight }).await.map_err(inside)?;

    let (sink, stream) = socket.split();
    let writer = Writer {
        sink,
        control: control_rx,
        results: results_rx,
        catalogue: job.catalogue,
        announced,
        journal: job.journal,
        waiting: VecDeque::new(),
        accepted: Vec::new(),
        company: None,
        kept: None,
        leaving: job.leaving,
    };
    let (gets, gets_rx) = mpsc::channel(kept::WAITING);
    let kept = kept::serve(gets_rx, job.blobs, control.clone());
    let reader = Reader { stream, control, gets, dispatcher: job.dispatcher, runs: job.runs, heard: job.heard };
    Ok(tokio::select! {
        end = reader.read() => end,
        end = writer.write(snapshot) => end,
        never = kept => match never {},
    })
}

/// Tells the Dispatcher, however the line ends. Should its mailbox be full, the next line's hello tells it.
struct Down {
    dispatcher: ActorRef<Dispatcher>,
    generation: u64,
}

impl Drop for Down {
    fn drop(&mut self) {
        if let Err(refusal) = self.dispatcher.tell(ToDispatcher::Down { generation: self.generation }) {
            tracing::debug!("the end of a line is not told: {refusal}");
        }
    }
}

async fn connect(job: &Job) -> Result<Socket, End> {
    let mut request = job.url.as_str().into_client_request().map_err(|e| ended(&e))?;
    if let Some(token) = &job.token {
        let mut value = HeaderValue::from_str(&format!("Bearer {token}"))
            .map_err(|_| End::Broken("the token holds characters that no token has".to_owned()))?;
        value.set_sensitive(true);
        request.headers_mut().insert(AUTHORIZATION, value);
    }
    let config = WebSocketConfig::default()
        .read_buffer_size(SOCKET_BUFFER_BYTES)
        .write_buffer_size(SOCKET_BUFFER_BYTES)
        .max_write_buffer_size(SOCKET_WRITE_BYTES)
        // A frame above the wire's limit is answered, one above this ends the line.
        .max_message_size(Some(MESSAGE_BYTES))
        .max_frame_size(Some(MESSAGE_BYTES));
    let (host, port) = address(request.uri())?;
    let stream = (job.dial)(host, port).await.map_err(|e| ended(&Error::Io(e)))?;
    match client_async_tls_with_config(request, stream, Some(config), None).await {
        Ok((socket, _)) => Ok(socket),
        Err(Error::Http(response)) => {
            let words = response.body().as_deref().and_then(words);
            words.map(|text| job.said.get_or_init(|| text));
            Err(End::Refused { status: response.status().as_u16() })
        }
        Err(error) => Err(ended(&error)),
    }
}

/// The Brain's words in the answer to a connection that it does not take.
fn words(body: &[u8]) -> Option<String> {
    let body: serde_json::Value = serde_json::from_slice(body).ok()?;
    let text = |key: &str| body["error"][key].as_str().map(plain);
    Some(format!("{} ({})", text("message")?, text("code")?))
}

fn address(uri: &Uri) -> Result<(String, u16), End> {
    let host = uri.host().ok_or_else(|| End::Broken("the Brain's address has no host".to_owned()))?;
    let usual = if uri.scheme_str() == Some("wss") { 443 } else { 80 };
    Ok((host.trim_start_matches('[').trim_end_matches(']').to_owned(), uri.port_u16().unwrap_or(usual)))
}

async fn take_inflight(dispatcher: &ActorRef<Dispatcher>) -> Result<vance_shared::wire::Inflight, End> {
    loop {
        match dispatcher.send(TakeInflight).await {
            Ok(inflight) => return Ok(inflight),
            Err(Refusal::Restarting | Refusal::Full) => tokio::time::sleep(ASK_AGAIN).await,
            Err(refusal @ Refusal::Stopped) => return Err(inside(refusal)),
        }
    }
}

async fn welcome(socket: &mut Socket, heard: &Heard, said: &OnceLock<String>) -> Result<Welcome, End> {
    loop {
        let text = match next(socket.next().await)? {
            Some(text) => text,
            None => continue,
        };
        heard.now();
        match decode_to_foot(&text) {
            Decoded::Frame(ToFoot::Welcome(welcome)) if welcome.protocol == PROTOCOL => return Ok(welcome),
            // A Brain that did not read what we speak: nothing after this would be understood.
            Decoded::Frame(ToFoot::Welcome(welcome)) => {
                let reason = format!("the Brain speaks protocol {}, this Foot {PROTOCOL}", welcome.protocol);
                return Err(End::Closed { code: CLOSE_PROTOCOL, reason });
            }
            Decoded::Frame(ToFoot::Error(error)) => {
                let text = format!("{} ({})", plain(&error.message), plain(&error.code));
                tracing::debug!("the Brain says: {text}");
                said.get_or_init(|| text);
            }
            Decoded::Frame(other) => tracing::debug!("before the welcome came {other:?}"),
            Decoded::Unknown(error) | Decoded::Malformed(error) => {
                tracing::warn!("the Brain's answer is not understood: {}", plain(&error.message));
                socket.send(Message::text(encode(&ToBrain::Error(error)))).await.map_err(|e| ended(&e))?;
            }
        }
    }
}

/// A text frame's text; `None` for what the WebSocket layer has dealt with.
fn next(message: Option<Result<Message, Error>>) -> Result<Option<tokio_tungstenite::tungstenite::Utf8Bytes>, End> {
    match message {
        Some(Ok(Message::Text(text))) => Ok(Some(text)),
        // Not of this wire: reads as a frame that is malformed.
        Some(Ok(Message::Binary(_))) => Ok(Some("binary".into())),
        Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => Ok(None),
        Some(Ok(Message::Close(Some(close)))) => {
            Err(End::Closed { code: close.code.into(), reason: plain(&close.reason) })
        }
        Some(Ok(Message::Close(None))) => Err(End::Closed { code: 1005, reason: String::new() }),
        Some(Err(error)) => Err(ended(&error)),
        None => Err(End::Broken("the connection ended".to_owned())),
    }
}

fn ended(error: &Error) -> End {
    End::Broken(plain(&error.to_string()))
}

fn inside(refusal: Refusal) -> End {
    End::Broken(format!("this client's own table of calls is {refusal}"))
}

fn goodbye() -> CloseFrame {
    CloseFrame { code: CloseCode::Away, reason: "this client stops".into() }
}

struct Reader {
    stream: SplitStream<Socket>,
    control: mpsc::Sender<ToBrain>,
    gets: mpsc::Sender<BlobGet>,
    dispatcher: ActorRef<Dispatcher>,
    runs: Arc<Runs>,
    heard: Heard,
}

impl Reader {
    async fn read(mut self) -> End {
        loop {
            let text = match next(self.stream.next().await) {
                Ok(Some(text)) => text,
                Ok(None) => {
                    self.heard.now();
                    continue;
                }
                Err(end) => return end,
            };
            self.heard.now();
            if text.len() > FRAME_BYTES {
                let message = format!("a frame of {} bytes was ignored, at most {FRAME_BYTES} are read", text.len());
                self.answer(ToBrain::Error(ErrorFrame { code: "frame_too_large".to_owned(), message, id: None }));
                continue;
            }
            let told = match decode_to_foot(&text) {
                Decoded::Frame(frame) => self.frame(frame),
                Decoded::Unknown(error) | Decoded::Malformed(error) => {
                    tracing::debug!("a frame is not understood: {}", error.message);
                    self.answer(ToBrain::Error(error));
                    None
                }
            };
            if let Some(told) = told
                && let Err(refusal) = self.dispatcher.post(told).await
            {
                return inside(refusal);
            }
        }
    }

    fn frame(&self, frame: ToFoot) -> Option<ToDispatcher> {
        match frame {
            ToFoot::Call(call) => Some(ToDispatcher::Call(Box::new(call))),
            ToFoot::Cancel(cancel) => {
                // The run hears it at once, whatever waits in the Dispatcher's mailbox.
                self.runs.cancel(&cancel.call_id, &cancel.reason);
                Some(ToDispatcher::Cancel { call_id: cancel.call_id, reason: cancel.reason })
            }
            ToFoot::ElicitReply(reply) => Some(ToDispatcher::ElicitReply(reply)),
            ToFoot::Elicit(elicit) => Some(ToDispatcher::Shown(elicit)),
            ToFoot::ElicitEnd(end) => Some(ToDispatcher::ShownIsOver(end)),
            ToFoot::ResultAck(ack) => Some(ToDispatcher::ResultAck { call_id: ack.call_id }),
            ToFoot::BlobGet(get) => {
                if let Err(full) = self.gets.try_send(get) {
                    let text = "many pieces are on their way; ask again later".to_owned();
                    self.answer(ToBrain::BlobPart(BlobPart::fault(full.into_inner(), "busy", text)));
                }
                None
            }
            ToFoot::Ping(ping) => {
                self.answer(ToBrain::Pong(ping));
                None
            }
            ToFoot::Pong(_) => None,
            ToFoot::Drain(drain) => {
                tracing::info!("the Brain takes a break: {}", plain(&drain.reason));
                None
            }
            ToFoot::Error(error) => {
                let id = error.id.as_deref().map(plain).unwrap_or_default();
                tracing::warn!(id, "the Brain says: {} ({})", plain(&error.message), plain(&error.code));
                None
            }
            ToFoot::Welcome(_) => {
                tracing::debug!("a second welcome was ignored");
                None
            }
        }
    }

    /// An answer that does not fit is dropped: a flood of bad frames must not cost the line its good ones.
    fn answer(&self, frame: ToBrain) {
        if self.control.try_send(frame).is_err() {
            tracing::debug!("an answer was dropped: the Brain does not read");
        }
    }
}

/// Ends when what waits for company has waited long enough.
async fn over(company: &mut Option<Pin<Box<Sleep>>>) {
    match company {
        Some(wait) => wait.await,
        None => std::future::pending().await,
    }
    *company = None;
}

struct Writer {
    sink: SplitSink<Socket, Message>,
    control: mpsc::Receiver<ToBrain>,
    results: mpsc::Receiver<Outgoing>,
    catalogue: watch::Receiver<Arc<Catalogue>>,
    announced: Announced,
    journal: Arc<dyn CallJournal>,
    /// Frames of a result, or of a change of the tool table.
    waiting: VecDeque<String>,
    /// Told with the next frame, or soon: most calls are over at once, and then it costs no write of its own.
    accepted: Vec<Accepted>,
    /// Wound up for the first of them, and not anew for each: a timer costs as much as the write that it spares.
    company: Option<Pin<Box<Sleep>>>,
    kept: Option<FromJournal>,
    leaving: CancellationToken,
}

impl Writer {
    /// Frames go out in this order: small ones, changes of the tool table, results piece by piece.
    async fn write(mut self, first: Arc<Catalogue>) -> End {
        if first.tools().len() > self.announced.len() {
            self.changes(&first);
        }
        loop {
            let text = match self.at_hand() {
                Some(text) => text,
                None => {
                    if let Err(error) = self.sink.flush().await {
                        return ended(&error);
                    }
                    if let Some(kept) = self.kept.take() {
                        let result = self.load(kept).await;
                        self.waiting.extend(result.map(split).unwrap_or_default());
                        continue;
                    }
                    tokio::select! {
                        biased;
                        Some(frame) = self.control.recv() => match frame {
                            ToBrain::Accepted(accepted) => {
                                self.hold(accepted);
                                continue;
                            }
                            frame => encode(&frame),
                        },
                        () = over(&mut self.company) => {
                            if let Err(error) = self.tell_accepted().await {
                                return ended(&error);
                            }
                            continue;
                        }
                        Ok(()) = self.catalogue.changed() => {
                            let catalogue = Arc::clone(&self.catalogue.borrow_and_update());
                            self.changes(&catalogue);
                            continue;
                        }
                        Some(result) = self.results.recv() => {
                            match result {
                                Outgoing::Ready(result) => self.waiting.extend(split(result)),
                                Outgoing::FromJournal(kept) => self.kept = Some(kept),
                            }
                            continue;
                        }
                        () = self.leaving.cancelled() => return self.close().await,
                        else => return End::Broken("this client stops".to_owned()),
                    }
                }
            };
            let told = match self.tell_accepted().await {
                Ok(()) => self.sink.feed(Message::text(text)).await,
                Err(error) => Err(error),
            };
            if let Err(error) = told {
                return ended(&error);
            }
        }
    }

    /// Says goodbye; the line ends when the Brain has heard it, and its reader with it.
    async fn close(&mut self) -> End {
        let told = match self.tell_accepted().await {
            Ok(()) => self.sink.send(Message::Close(Some(goodbye()))).await,
            Err(error) => Err(error),
        };
        if let Err(error) = told {
            return ended(&error);
        }
        sleep(CLOSE_WITHIN).await;
        End::Broken("this client stops".to_owned())
    }

    /// No more than calls may be in flight.
    fn hold(&mut self, accepted: Accepted) {
        self.company.get_or_insert_with(|| Box::pin(sleep(ACCEPTED_WITHIN)));
        self.accepted.push(accepted);
    }

    async fn tell_accepted(&mut self) -> Result<(), Error> {
        for accepted in std::mem::take(&mut self.accepted) {
            self.sink.feed(Message::text(encode(&ToBrain::Accepted(accepted)))).await?;
        }
        Ok(())
    }

    /// The next frame that needs no waiting. Results at hand are taken without a flush in between; the first one that the
    /// journal holds is left in `kept`.
    fn at_hand(&mut self) -> Option<String> {
        while let Ok(frame) = self.control.try_recv() {
            match frame {
                ToBrain::Accepted(accepted) => self.hold(accepted),
                frame => return Some(encode(&frame)),
            }
        }
        if self.waiting.is_empty() && self.kept.is_none() {
            match self.results.try_recv() {
                Ok(Outgoing::Ready(result)) => self.waiting.extend(split(result)),
                Ok(Outgoing::FromJournal(kept)) => self.kept = Some(kept),
                Err(_) => {}
            }
        }
        self.waiting.pop_front()
    }

    fn changes(&mut self, catalogue: &Catalogue) {
        let frames = announce::delta(&mut self.announced, catalogue);
        self.waiting.extend(frames.into_iter().map(|frame| encode(&ToBrain::ToolsChanged(frame))));
    }

    /// `None`: the Brain has it by now.
    async fn load(&self, kept: FromJournal) -> Option<CallResult> {
        let FromJournal { call_id, attempt, traceparent } = kept;
        let outcome = match self.journal.load(call_id.clone()).await {
            journal::Kept::Here(outcome) => outcome,
            journal::Kept::Forgotten => return None,
            journal::Kept::Lost => {
                Outcome::Unknown { reason: "the call ran, but its result could not be kept".to_owned() }
            }
        };
        Some(CallResult { call_id, attempt, outcome, traceparent })
    }
}

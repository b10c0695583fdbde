//! One client's socket: hello, then frames in and out until the line is gone. Reading and writing are two tasks, so that a
//! client that does not read cannot keep us from hearing it. Decisions are the session's.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Semaphore;
use tokio::time::{Sleep, sleep, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as WsError, Message};
use tokio_util::sync::CancellationToken;
use vance_brain_core::session::ClientInfo;
use vance_brain_core::spec::Mode;
use vance_shared::call::Fault;
use vance_shared::ids::{ClientId, SessionId};
use vance_shared::json::Raw;
use vance_shared::limits::{
    ALSO_SESSIONS, FRAME_BYTES, HEARTBEAT, HEARTBEAT_MISSES, HELLO_FRAME_BYTES, HELLO_WAIT, MESSAGE_BYTES,
    SOCKET_BUFFER_BYTES, SOCKET_WRITE_BYTES,
};
use vance_shared::show;
use vance_shared::wire::{
    self, Assembly, CLOSE_BAD_FRAME, CLOSE_DRAINING, CLOSE_FORBIDDEN, CLOSE_HELLO_TIMEOUT, CLOSE_PROTOCOL,
    CLOSE_SUPERSEDED, CLOSE_UNAUTHORIZED, ClientConnected, Decoded, ErrorFrame, Ping, ToBrain, ToFoot, decode_to_brain,
    encode,
};
use vance_supervise::ActorRef;

use crate::actors::scheduler::HeldOn;
use crate::actors::session::{Attach, SessionActor, ToSession};
use crate::directory::{Directory, Missing};
use crate::hub::{Brain, now_ms};
use crate::outbox::{End, Next, Outbox};
use crate::rows::CLIENT;
use crate::store::{Batch, Row};
use crate::tokens::Principal;
use gulps::Gulps;
use turns::Turns;

mod gulps;
mod turns;

/// Frames that are written together; then heartbeats and ends have their turn.
const TOGETHER_FRAMES: usize = 64;

/// How long an acknowledgement may wait for company: the client only forgets with it, and the next call is often a moment away.
const ACK_WITHIN: Duration = Duration::from_millis(2);

/// How long a write may take: a peer that takes nothing for so long is gone.
const WRITE_WAIT: Duration = Duration::from_secs(30);

/// How long the peer may take to answer a close.
const CLOSE_WAIT: Duration = Duration::from_secs(2);

/// Frames of one connection that wait in its session's mailbox: however much it sends, the session's other clients find room.
const POSTED_FRAMES: usize = 64;

/// Bad frames of one connection until it is closed: a peer that sends nothing else is broken.
const MAX_BAD_FRAMES: u32 = 64;

/// What a name or folder in a hello is cut to.
const MAX_SHOWN: usize = 200;

type Writer<S> = SplitSink<WebSocketStream<Gulps<S>>, Message>;
type Reader<S> = SplitStream<WebSocketStream<Gulps<S>>>;

/// Serves a socket after its upgrade, to its end. `place` is what a socket without a hello occupies: given back when it has
/// been let in.
pub async fn serve_socket<S, P>(brain: Brain, principal: Principal, io: S, place: P)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    // Each part is boxed: what only a hello needs is not kept for the life of a socket.
    let Some((admitted, writer, reader)) = Box::pin(let_in(brain, principal, io)).await else { return };
    drop(place);
    Box::pin(connected(admitted, writer, reader)).await;
}

/// The hello. `None`: the client was refused, and knows why.
async fn let_in<S>(brain: Brain, principal: Principal, io: S) -> Option<(Admitted, Writer<S>, Reader<S>)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let config = WebSocketConfig::default()
        .read_buffer_size(SOCKET_BUFFER_BYTES)
        .write_buffer_size(SOCKET_BUFFER_BYTES)
        .max_write_buffer_size(SOCKET_WRITE_BYTES)
        .max_message_size(Some(MESSAGE_BYTES))
        .max_frame_size(Some(MESSAGE_BYTES));
    let socket = WebSocketStream::from_raw_socket(Gulps::new(io), Role::Server, Some(config)).await;
    let (mut writer, mut reader) = socket.split();
    let admitted = match first_frame(&mut reader).await {
        Ok(hello) => admit(&brain, &principal, hello).await,
        Err(refusal) => Err(refusal),
    };
    match admitted {
        Ok(admitted) => Some((admitted, writer, reader)),
        Err(refusal) => {
            refuse(&mut writer, refusal).await;
            None
        }
    }
}

struct Refusal {
    close: u16,
    fault: Fault,
}

impl Refusal {
    fn new(close: u16, code: &str, message: impl Into<String>) -> Self {
        Self { close, fault: Fault::new(code, message) }
    }
}

async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(writer: &mut Writer<S>, refusal: Refusal) {
    tracing::info!(code = refusal.fault.code, reason = refusal.fault.message, "a client was not let in");
    let error = ToFoot::Error(ErrorFrame::of(refusal.fault.clone(), None));
    let close = close_frame(refusal.close, &refusal.fault.code);
    let farewell = async {
        writer.send(Message::text(encode(&error))).await?;
        writer.send(Message::Close(Some(close))).await
    };
    // The peer may be gone; then there is nobody to tell.
    timeout(CLOSE_WAIT, farewell).await.ok();
}

fn close_frame(code: u16, reason: &str) -> CloseFrame {
    CloseFrame { code: CloseCode::from(code), reason: reason.to_owned().into() }
}

async fn first_frame<S: AsyncRead + AsyncWrite + Unpin>(reader: &mut Reader<S>) -> Result<ClientConnected, Refusal> {
    let what = "expected one text frame of type client_connected first";
    let bad = |message: String| Refusal::new(CLOSE_BAD_FRAME, "bad_hello", message);
    let text = timeout(HELLO_WAIT, async {
        loop {
            match reader.next().await {
                Some(Ok(Message::Text(text))) => return Ok(text),
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Binary(_))) => return Err(bad(format!("a binary frame came; {what}"))),
                Some(Ok(Message::Close(_))) | None => return Err(bad(format!("the connection ended; {what}"))),
                Some(Err(error)) => return Err(bad(format!("{}; {what}", show::plain(&error.to_string())))),
            }
        }
    })
    .await
    .map_err(|_| {
        let message = format!("no client_connected within {} s", HELLO_WAIT.as_secs());
        Refusal::new(CLOSE_HELLO_TIMEOUT, "hello_timeout", message)
    })??;
    if text.len() > HELLO_FRAME_BYTES {
        let message = format!(
            "client_connected has {} bytes, at most {HELLO_FRAME_BYTES} are taken; report further tools with tools_changed",
            text.len()
        );
        return Err(bad(message));
    }
    match decode_to_brain(text.as_str()) {
        Decoded::Frame(ToBrain::ClientConnected(hello)) => Ok(hello),
        Decoded::Frame(_) => Err(bad(what.to_owned())),
        Decoded::Unknown(error) | Decoded::Malformed(error) => Err(bad(format!("{}; {what}", error.message))),
    }
}

struct Admitted {
    client_id: ClientId,
    epoch: u64,
    session: ActorRef<SessionActor>,
    outbox: Outbox,
    /// The client's token is not good any more.
    revoked: CancellationToken,
}

async fn admit(brain: &Brain, principal: &Principal, hello: ClientConnected) -> Result<Admitted, Refusal> {
    if !hello.protocol.is_empty() && !hello.protocol.contains(&wire::PROTOCOL) {
        let message = format!(
            "this Brain speaks protocol {}, the client {:?}: use releases that have one in common",
            wire::PROTOCOL,
            hello.protocol
        );
        return Err(Refusal::new(CLOSE_PROTOCOL, "no_common_protocol", message));
    }
    let of_fault = |fault: Fault| {
        let close = if fault.code == "forbidden" { CLOSE_FORBIDDEN } else { CLOSE_DRAINING };
        Refusal { close, fault }
    };
    let owner: &str = &principal.name;
    let session_id = match (hello.session_id, hello.new_session) {
        (_, true) => SessionId::generate(),
        (Some(id), false) => id,
        (None, false) => Directory::default_id(owner).map_err(of_fault)?,
    };
    let missing = Missing::Create(Mode::Interactive);
    let session = brain.directory.open(brain, owner, &session_id, missing).await.map_err(of_fault)?;
    if hello.also_sessions.len() > ALSO_SESSIONS {
        let message =
            format!("also_sessions has {} sessions, at most {ALSO_SESSIONS} are served", hello.also_sessions.len());
        return Err(Refusal::new(CLOSE_FORBIDDEN, "too_many_sessions", message));
    }
    for also in &hello.also_sessions {
        brain.directory.open(brain, owner, also, Missing::Create(Mode::Interactive)).await.map_err(of_fault)?;
    }
    let client_id = hello.client_id.unwrap_or_else(ClientId::generate);
    let unavailable = |e: &dyn std::fmt::Display| {
        Refusal::new(CLOSE_DRAINING, "unavailable", format!("the Brain cannot take a client now: {e}; reconnect"))
    };
    claim(brain, owner, &client_id).await?;
    // Noted before the epoch is taken and looked at again after it: of two lives, the earlier never comes in behind the later.
    let is_latest = || hello.life.is_none_or(|life| brain.directory.lives(&client_id, life));
    let outlived = || {
        let message = format!("a later process of client {client_id} has said hello already: this one is superseded");
        Refusal::new(CLOSE_SUPERSEDED, "superseded", message)
    };
    if !is_latest() {
        return Err(outlived());
    }
    let epoch = brain.store.next_counter("epoch").await.map_err(|e| unavailable(&e))?;
    if !is_latest() {
        return Err(outlived());
    }
    brain.directory.attach(&client_id, &session_id);
    let held = brain.scheduler.send(HeldOn(client_id.clone())).await.map_err(|e| unavailable(&e))?;
    if !is_latest() {
        return Err(outlived());
    }
    let outbox = Outbox::default();
    let machine = short(hello.machine.as_deref().unwrap_or("unknown"));
    let info = ClientInfo {
        name: hello.name.as_deref().map_or_else(|| machine.clone(), short),
        machine,
        client_type: short(&hello.client_type),
        working_dir: hello.working_dir.as_deref().map(short),
        also: hello.also_sessions.into_iter().filter(|also| *also != session_id).collect(),
    };
    tracing::info!(%client_id, %session_id, epoch, name = info.name, "client connected");
    let attach = Attach {
        client_id: client_id.clone(),
        epoch,
        info,
        tools: hello.available_tools,
        loading: hello.loading.into_iter().collect::<BTreeSet<String>>(),
        inflight: hello.inflight,
        held,
        outbox: outbox.clone(),
    };
    session.actor.send(attach).await.map_err(|e| unavailable(&e))?;
    let revoked = principal.revoked.clone();
    Ok(Admitted { client_id, epoch, session: session.actor.clone(), outbox, revoked })
}

fn short(text: &str) -> String {
    show::plain(&text.chars().take(MAX_SHOWN).collect::<String>())
}

/// A client's identity belongs to the principal that used it first.
async fn claim(brain: &Brain, owner: &str, client_id: &ClientId) -> Result<(), Refusal> {
    let row = Row {
        kind: CLIENT.into(),
        key: client_id.to_string(),
        parent: None,
        owner: Some(owner.to_owned()),
        state: None,
        data: Raw::empty_object(),
    };
    let unavailable = |e: crate::store::StoreError| {
        Refusal::new(CLOSE_DRAINING, "store_unavailable", format!("the store did not answer: {e}; reconnect"))
    };
    let found = brain.store.row(CLIENT, client_id.as_str()).await.map_err(unavailable)?;
    match found {
        Some(row) if row.owner.as_deref() == Some(owner) => Ok(()),
        Some(_) => Err(Refusal::new(CLOSE_FORBIDDEN, "forbidden", "this client id belongs to somebody else")),
        None => {
            let batch = Batch { insert: vec![row], at_ms: now_ms(), ..Batch::default() };
            match brain.store.commit(batch).await {
                // Somebody connected with it at the same moment; the next connection is checked again.
                Ok(_) | Err(crate::store::StoreError::Exists { .. }) => Ok(()),
                Err(error) => Err(unavailable(error)),
            }
        }
    }
}

async fn connected<S>(admitted: Admitted, writer: Writer<S>, mut reader: Reader<S>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Admitted { client_id, epoch, session, outbox, revoked } = admitted;
    let ended = CancellationToken::new();
    let out = vance_supervise::near(write(writer, outbox.clone(), ended.clone()));
    let why = tokio::select! {
        why = read(&mut reader, &session, &client_id, epoch, &outbox) => why,
        () = ended.cancelled() => "the connection was closed by the Brain".to_owned(),
        () = revoked.cancelled() => {
            outbox.revoke();
            // The writer takes it before anything else; a write under way has its own limit.
            ended.cancelled().await;
            "its token was revoked".to_owned()
        }
    };
    ended.cancel();
    tracing::info!(%client_id, epoch, why, "client disconnected");
    // However full the mailbox is: that the client is gone must arrive.
    while let Err(refusal) = session.post(ToSession::Detach { client_id: client_id.clone(), epoch }).await {
        if refusal == vance_supervise::Refusal::Stopped {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    if out.await.is_err() {
        tracing::error!(%client_id, "the task that writes to a socket panicked");
    }
}

async fn write<S>(mut writer: Writer<S>, outbox: Outbox, ended: CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut heartbeat = tokio::time::interval(HEARTBEAT);
    heartbeat.tick().await;
    let mut nonce = 0u64;
    let mut company: Option<Pin<Box<Sleep>>> = None;
    let close = loop {
        let next = tokio::select! {
            biased;
            () = ended.cancelled() => break None,
            // Before frames, which may come without a pause.
            _ = heartbeat.tick() => {
                nonce += 1;
                Next::Frame(Box::new(ToFoot::Ping(Ping { nonce })))
            }
            next = outbox.next() => next,
            () = over(&mut company) => {
                match timeout(WRITE_WAIT, writer.flush()).await {
                    Ok(Ok(())) => continue,
                    Ok(Err(_)) | Err(_) => break None,
                }
            }
        };
        let frame = match next {
            Next::Frame(frame) => frame,
            Next::End(End::Superseded) => break Some(close_frame(CLOSE_SUPERSEDED, "superseded")),
            Next::End(End::Revoked) => break Some(close_frame(CLOSE_UNAUTHORIZED, "the token was revoked")),
            Next::End(End::Closing) => break Some(close_frame(CLOSE_DRAINING, "closing")),
        };
        // What is ready goes out together: a write costs more than a frame.
        let written = async {
            let mut waits = matches!(*frame, ToFoot::ResultAck(_));
            writer.feed(Message::text(encode(&frame))).await?;
            for _ in 1..TOGETHER_FRAMES {
                let Some(frame) = outbox.also() else { break };
                waits &= matches!(*frame, ToFoot::ResultAck(_));
                writer.feed(Message::text(encode(&frame))).await?;
            }
            if !waits {
                writer.flush().await?;
            }
            Ok::<_, WsError>(waits)
        };
        match timeout(WRITE_WAIT, written).await {
            // Not wound up anew for each: a timer costs as much as the write that it spares.
            Ok(Ok(true)) => drop(company.get_or_insert_with(|| Box::pin(sleep(ACK_WITHIN)))),
            Ok(Ok(false)) => {}
            Ok(Err(_)) | Err(_) => break None,
        }
    };
    outbox.deafen();
    ended.cancel();
    if close.is_some() {
        timeout(CLOSE_WAIT, writer.send(Message::Close(close))).await.ok();
    }
    timeout(CLOSE_WAIT, writer.close()).await.ok();
}

/// Ends when what waits for company has waited long enough.
async fn over(company: &mut Option<Pin<Box<Sleep>>>) {
    match company {
        Some(wait) => wait.await,
        None => std::future::pending().await,
    }
    *company = None;
}

/// Reads to the end of the line; gives the reason, for the log.
async fn read<S: AsyncRead + AsyncWrite + Unpin>(
    reader: &mut Reader<S>,
    session: &ActorRef<SessionActor>,
    client_id: &ClientId,
    epoch: u64,
    outbox: &Outbox,
) -> String {
    let mut parts = Assembly::default();
    let mut bad = 0u32;
    let silence = HEARTBEAT * HEARTBEAT_MISSES;
    let places = Arc::new(Semaphore::new(POSTED_FRAMES));
    let mut turns = Turns::default();
    loop {
        let text = match timeout(silence, reader.next()).await {
            Err(_) => return format!("nothing was heard for {} s", silence.as_secs()),
            Ok(None) => return "the client closed the connection".to_owned(),
            Ok(Some(Err(WsError::Capacity(error)))) => {
                say(outbox, "frame_too_large", format!("{error}; at most {FRAME_BYTES} bytes a frame are taken"));
                return "a frame was too large".to_owned();
            }
            Ok(Some(Err(error))) => return show::plain(&error.to_string()),
            Ok(Some(Ok(Message::Text(text)))) => text,
            Ok(Some(Ok(Message::Binary(_)))) => {
                say(outbox, "binary_frame", "binary frames are not taken; send text frames".to_owned());
                bad += 1;
                if bad > MAX_BAD_FRAMES {
                    return format!("more than {MAX_BAD_FRAMES} bad frames");
                }
                continue;
            }
            Ok(Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_)))) => continue,
            Ok(Some(Ok(Message::Close(_)))) => return "the client closed the connection".to_owned(),
        };
        turns.took(text.len()).await;
        let decoded = if text.len() > FRAME_BYTES {
            let message = format!(
                "a frame of {} bytes was not taken; at most {FRAME_BYTES}, larger results travel in parts",
                text.len()
            );
            Decoded::Malformed(ErrorFrame { code: "frame_too_large".to_owned(), message, id: None })
        } else {
            decode_to_brain(text.as_str())
        };
        let frame = match decoded {
            Decoded::Frame(ToBrain::Ping(ping)) => {
                answer(outbox, ToFoot::Pong(ping));
                continue;
            }
            Decoded::Frame(ToBrain::Pong(_)) => continue,
            Decoded::Frame(ToBrain::ResultPart(part)) => match parts.take(part) {
                Ok(None) => continue,
                Ok(Some(result)) => ToBrain::Result(result),
                Err(error) => {
                    say(outbox, "bad_part", error.to_string());
                    continue;
                }
            },
            Decoded::Frame(frame) => frame,
            Decoded::Unknown(error) | Decoded::Malformed(error) => {
                answer(outbox, ToFoot::Error(error));
                bad += 1;
                if bad > MAX_BAD_FRAMES {
                    return format!("more than {MAX_BAD_FRAMES} bad frames");
                }
                continue;
            }
        };
        // Waiting here is what slows a client down that sends faster than its session takes.
        let Ok(place) = places.clone().acquire_owned().await else { return "its session is gone".to_owned() };
        let (client_id, frame) = (client_id.clone(), Box::new(frame));
        let message = ToSession::Frame { client_id, epoch, frame, place };
        if let Err(refusal) = session.post(message).await {
            return format!("its session is {refusal}");
        }
    }
}

fn say(outbox: &Outbox, code: &str, message: String) {
    answer(outbox, ToFoot::Error(ErrorFrame { code: code.to_owned(), message, id: None }));
}

/// A client that does not read its answers is closed by the session; here they are dropped.
fn answer(outbox: &Outbox, frame: ToFoot) {
    outbox.send_urgent(frame).ok();
}

//! Requests that pass the SDK by: over a child's pipes, parameters and results stay raw JSON.
//!
//! A request is a line in a bounded queue; its answer is found by id. The SDK speaks on the same pipes (handshake, roots, pings, subscriptions) with ids from
//! zero; ours begin at [`FIRST_ID`], so neither can take the other's.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};
use vance_shared::json::Raw;

use crate::handle::Progress;

/// Our first id: far above the SDK's, and below 2^31 for servers that keep ids in 32 bits.
pub(crate) const FIRST_ID: u64 = 1_000_000_000;
/// Lines that wait for a server that does not read; then a call is answered `busy`.
pub(crate) const QUEUE_LINES: usize = 1_024;
/// Progress reports that wait for their caller; more say nothing new.
const PROGRESS_REPORTS: usize = 16;

/// How a request ended.
#[derive(Debug)]
pub(crate) enum Reply {
    /// The result.
    Result(Raw),
    /// A JSON-RPC error.
    Error { code: i64, message: String },
    /// The connection ended first. `began`: the request may have reached the server.
    Lost { why: String, began: bool },
    /// The server lets us in no more: nothing ran.
    Refused(String),
    /// The server does not take more.
    Busy,
    /// The answer came, in more bytes than are kept of one.
    TooLarge { bytes: u64 },
}

type Cancel = Box<dyn FnOnce(&str) + Send>;

/// A request under way. Dropping it tells the server that nobody waits any more.
pub(crate) struct InFlight {
    pub(crate) reply: std::pin::Pin<Box<dyn Future<Output = Reply> + Send>>,
    pub(crate) progress: mpsc::Receiver<Box<Progress>>,
    cancel: Option<Cancel>,
    /// Why it has not been sent yet.
    held_by: Option<Arc<Mutex<Option<&'static str>>>>,
}

impl InFlight {
    pub(crate) fn new(
        reply: impl Future<Output = Reply> + Send + 'static,
        progress: mpsc::Receiver<Box<Progress>>,
        cancel: impl FnOnce(&str) + Send + 'static,
    ) -> Self {
        Self { reply: Box::pin(reply), progress, cancel: Some(Box::new(cancel)), held_by: None }
    }

    /// One that is not sent while this says what it waits for. A lock, because whoever sends it says so once.
    pub(crate) fn held_by(mut self, what: Arc<Mutex<Option<&'static str>>>) -> Self {
        self.held_by = Some(what);
        self
    }

    /// What it waits for, if nothing of it has been sent.
    pub(crate) fn unsent(&self) -> Option<&'static str> {
        *self.held_by.as_ref()?.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the end, without a deadline of its own.
    pub(crate) async fn end(mut self) -> Reply {
        let reply = (&mut self.reply).await;
        self.done();
        reply
    }

    /// The answer is there: nothing is to be cancelled.
    pub(crate) fn done(&mut self) {
        self.cancel = None;
    }

    /// Asks the server to stop.
    pub(crate) fn cancel(&mut self, why: &str) {
        if let Some(cancel) = self.cancel.take() {
            cancel(why);
        }
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.cancel("nobody waits for the result any more");
    }
}

/// One line on its way to the server.
#[derive(Debug)]
pub(crate) struct Line {
    pub(crate) text: String,
    state: Option<Arc<LineState>>,
}

impl Line {
    /// A line that nobody asks about.
    pub(crate) fn plain(text: String) -> Self {
        Self { text, state: None }
    }

    /// The writer takes it up. False: it was withdrawn and must not be written.
    pub(crate) fn begin(&self) -> bool {
        self.state.as_ref().is_none_or(|state| state.set(BEGUN))
    }
}

const QUEUED: u8 = 0;
const BEGUN: u8 = 1;
const WITHDRAWN: u8 = 2;

#[derive(Debug, Default)]
struct LineState(AtomicU8);

impl LineState {
    /// Leaves the queue for good; the first to say so decides.
    fn set(&self, to: u8) -> bool {
        self.0.compare_exchange(QUEUED, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }
}

#[derive(Debug)]
pub(crate) struct Lane {
    next_id: AtomicU64,
    lines: mpsc::Sender<Line>,
    /// Overtakes the queue: cancels.
    urgent: mpsc::Sender<Line>,
    /// `_meta` entries that the protocol version wants in every request.
    meta: std::sync::OnceLock<Map<String, Value>>,
    /// A lock, because the reader, every caller and every cancel touch it, each for one map operation and never across an await.
    waiting: Mutex<Waiting>,
}

#[derive(Debug)]
enum Waiting {
    Open(HashMap<u64, Waiter>),
    Closed(String),
}

#[derive(Debug)]
struct Waiter {
    reply: oneshot::Sender<Reply>,
    progress: mpsc::Sender<Box<Progress>>,
    line: Arc<LineState>,
}

impl Lane {
    /// A lane and its two queues: ordinary lines, and those that overtake.
    pub(crate) fn new() -> (Arc<Self>, mpsc::Receiver<Line>, mpsc::Receiver<Line>) {
        let (lines, queue) = mpsc::channel(QUEUE_LINES);
        let (urgent, overtaking) = mpsc::channel(QUEUE_LINES);
        let waiting = Mutex::new(Waiting::Open(HashMap::new()));
        let lane = Self { next_id: AtomicU64::new(FIRST_ID), lines, urgent, meta: std::sync::OnceLock::new(), waiting };
        (Arc::new(lane), queue, overtaking)
    }

    pub(crate) fn lines(&self) -> &mpsc::Sender<Line> {
        &self.lines
    }

    /// What every request carries from now on.
    pub(crate) fn set_meta(&self, meta: Map<String, Value>) {
        if self.meta.set(meta).is_err() {
            tracing::debug!("the protocol's metadata is already set");
        }
    }

    /// Sends a request. `params` are its members, in order, as JSON texts; `_meta` is added.
    pub(crate) fn request(
        self: &Arc<Self>,
        method: &str,
        params: &[(&str, &str)],
        meta: &[(&str, String)],
    ) -> InFlight {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let text = self.line(id, method, params, meta);
        let (reply_to, reply) = oneshot::channel();
        let (progress_to, progress) = mpsc::channel(PROGRESS_REPORTS);
        let state = Arc::new(LineState::default());
        if let Err(refused) =
            self.enqueue(id, Line { text, state: Some(Arc::clone(&state)) }, reply_to, progress_to, &state)
        {
            return InFlight::new(std::future::ready(refused), progress, |_| {});
        }
        let lane = Arc::clone(self);
        let ended = async move {
            reply.await.unwrap_or_else(|_| Reply::Lost { why: "the connection ended".to_owned(), began: true })
        };
        InFlight::new(ended, progress, move |why| lane.withdraw(id, &state, why))
    }

    fn enqueue(
        &self,
        id: u64,
        line: Line,
        reply: oneshot::Sender<Reply>,
        progress: mpsc::Sender<Box<Progress>>,
        state: &Arc<LineState>,
    ) -> Result<(), Reply> {
        let mut waiting = self.waiting();
        let map = match &mut *waiting {
            Waiting::Closed(why) => return Err(Reply::Lost { why: why.clone(), began: false }),
            Waiting::Open(map) => map,
        };
        match self.lines.try_send(line) {
            Ok(()) => {
                map.insert(id, Waiter { reply, progress, line: Arc::clone(state) });
                Ok(())
            }
            Err(mpsc::error::TrySendError::Full(_)) => Err(Reply::Busy),
            Err(mpsc::error::TrySendError::Closed(_)) => {
                Err(Reply::Lost { why: "its input is closed".to_owned(), began: false })
            }
        }
    }

    fn line(&self, id: u64, method: &str, params: &[(&str, &str)], meta: &[(&str, String)]) -> String {
        let size: usize = params.iter().map(|(_, value)| value.len()).sum();
        let mut text = String::with_capacity(size + 512);
        let number = id.to_string();
        text.push_str(r#"{"jsonrpc":"2.0","id":"#);
        text.push_str(&number);
        text.push_str(r#","method":"#);
        push_json(&mut text, method);
        text.push_str(r#","params":{"#);
        for (key, value) in params {
            push_json(&mut text, key);
            text.push(':');
            // Between tokens a line break is blank space, and inside a string it cannot be: JSON has it escaped there.
            if memchr::memchr2(b'\n', b'\r', value.as_bytes()).is_some() {
                text.extend(value.chars().map(|c| if c == '\n' || c == '\r' { ' ' } else { c }));
            } else {
                text.push_str(value);
            }
            text.push(',');
        }
        text.push_str(r#""_meta":{"progressToken":"#);
        text.push_str(&number);
        for (key, value) in self.meta.get().into_iter().flatten() {
            text.push_str(&format!(",{}:{value}", json(key)));
        }
        for (key, value) in meta {
            text.push(',');
            push_json(&mut text, key);
            text.push(':');
            push_json(&mut text, value);
        }
        text.push_str("}}}\n");
        text
    }

    fn withdraw(&self, id: u64, state: &LineState, why: &str) {
        if let Waiting::Open(map) = &mut *self.waiting() {
            map.remove(&id);
        }
        if state.set(WITHDRAWN) {
            return; // it never left the queue
        }
        let line = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":{}}}}}{}"#,
            json(why),
            '\n'
        );
        if self.urgent.try_send(Line::plain(line)).is_err() {
            tracing::warn!(id, "a cancel could not be sent: the server does not read, or is gone");
        }
    }

    /// Hands an answer to whoever waits for it. False: it is none of ours.
    pub(crate) fn answer(&self, id: u64, body: Result<&RawValue, &RawValue>) -> bool {
        if id < FIRST_ID {
            return false;
        }
        let waiter = match &mut *self.waiting() {
            Waiting::Open(map) => map.remove(&id),
            Waiting::Closed(_) => None,
        };
        let reply = match body {
            Ok(result) => Reply::Result(Raw::from(result.to_owned())),
            Err(error) => error_of(error),
        };
        if waiter.is_none_or(|waiter| waiter.reply.send(reply).is_err()) {
            tracing::debug!(id, "an answer nobody waits for: late, duplicate or cancelled");
        }
        true
    }

    /// An answer came that is too large; without an id it is for the one request that waits, if there is but one. False: nobody was told.
    pub(crate) fn too_large(&self, id: Option<u64>, bytes: u64) -> bool {
        let waiter = match &mut *self.waiting() {
            Waiting::Open(map) => {
                let only = || map.keys().next().copied().filter(|_| map.len() == 1);
                id.or_else(only).and_then(|id| map.remove(&id))
            }
            Waiting::Closed(_) => None,
        };
        waiter.is_some_and(|waiter| waiter.reply.send(Reply::TooLarge { bytes }).is_ok())
    }

    /// The answer to a request is not JSON. False: nobody waits for it.
    pub(crate) fn unreadable(&self, id: u64, why: &str) -> bool {
        let waiter = match &mut *self.waiting() {
            Waiting::Open(map) if id >= FIRST_ID => map.remove(&id),
            Waiting::Open(_) | Waiting::Closed(_) => None,
        };
        let reply = Reply::Error { code: -32700, message: format!("the server's answer is no JSON: {why}") };
        waiter.is_some_and(|waiter| waiter.reply.send(reply).is_ok())
    }

    /// Hands a progress report on. False: it is for none of ours.
    pub(crate) fn report(&self, token: u64, progress: Progress) -> bool {
        if token < FIRST_ID {
            return false;
        }
        if let Waiting::Open(map) = &*self.waiting()
            && let Some(waiter) = map.get(&token)
            && waiter.progress.try_send(Box::new(progress)).is_err()
        {
            tracing::trace!(token, "a progress report too many");
        }
        true
    }

    /// The connection is over: everybody hears it, also those who come later.
    pub(crate) fn close(&self, why: &str) {
        let waiting = std::mem::replace(&mut *self.waiting(), Waiting::Closed(why.to_owned()));
        let map = match waiting {
            Waiting::Open(map) => map,
            Waiting::Closed(first) => {
                *self.waiting() = Waiting::Closed(first);
                return;
            }
        };
        for (id, waiter) in map {
            let began = !waiter.line.set(WITHDRAWN);
            if waiter.reply.send(Reply::Lost { why: why.to_owned(), began }).is_err() {
                tracing::trace!(id, "nobody waited");
            }
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn error_of(error: &RawValue) -> Reply {
    #[derive(serde::Deserialize)]
    struct Error {
        #[serde(default)]
        code: i64,
        #[serde(default)]
        message: String,
    }
    match serde_json::from_str::<Error>(error.get()) {
        Ok(Error { code, message }) => Reply::Error { code, message },
        // Not cut: half a secret would not be found any more.
        Err(_) => Reply::Error { code: 0, message: error.get().to_owned() },
    }
}

/// Most of it is names that need no escapes.
fn push_json(text: &mut String, value: &str) {
    if value.bytes().all(|b| b >= b' ' && b != b'"' && b != b'\\') {
        text.push('"');
        text.push_str(value);
        text.push('"');
    } else {
        text.push_str(&json(value));
    }
}

fn json(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn a_request_is_one_line_whatever_its_arguments_look_like() {
        let (lane, mut queue, _) = Lane::new();
        lane.set_meta(serde_json::json!({"v": "2026-07-28"}).as_object().unwrap().clone());
        let flight = lane.request(
            "tools/call",
            &[("name", "\"t\""), ("arguments", "{\n \"a\":\r\n \"x\\ny\"}")],
            &[("k", "v".into())],
        );
        let line = queue.recv().await.unwrap();
        assert_eq!(line.text.matches('\n').count(), 1);
        let value: Value = serde_json::from_str(&line.text).unwrap();
        assert_eq!(value["params"]["arguments"], serde_json::json!({"a": "x\ny"}));
        assert_eq!(
            value["params"]["_meta"],
            serde_json::json!({"progressToken": FIRST_ID, "v": "2026-07-28", "k": "v"})
        );
        lane.answer(FIRST_ID, Ok(RawValue::NULL));
        assert!(matches!(flight.end().await, Reply::Result(raw) if raw.get() == "null"));
    }

    #[tokio::test]
    async fn a_cancel_before_the_write_withdraws_and_after_it_overtakes() {
        let (lane, mut queue, mut urgent) = Lane::new();
        drop(lane.request("m", &[], &[]));
        assert!(!queue.recv().await.unwrap().begin(), "withdrawn");
        assert!(urgent.try_recv().is_err());
        let mut flight = lane.request("m", &[], &[]);
        assert!(queue.recv().await.unwrap().begin());
        flight.cancel("why");
        assert!(urgent.recv().await.unwrap().text.contains(&format!(r#""requestId":{},"reason":"why""#, FIRST_ID + 1)));
        drop(flight);
        assert!(urgent.try_recv().is_err(), "cancelled once");
    }

    #[tokio::test]
    async fn a_lost_connection_says_whether_the_request_began() {
        let (lane, mut queue, _) = Lane::new();
        let (first, second) = (lane.request("m", &[], &[]), lane.request("m", &[], &[]));
        assert!(queue.recv().await.unwrap().begin());
        lane.close("gone");
        lane.close("again");
        assert!(matches!(first.end().await, Reply::Lost { began: true, why } if why == "gone"));
        assert!(matches!(second.end().await, Reply::Lost { began: false, .. }));
        assert!(matches!(lane.request("m", &[], &[]).end().await, Reply::Lost { began: false, why } if why == "gone"));
    }

    #[tokio::test]
    async fn a_full_queue_is_busy_and_foreign_answers_are_nobodys() {
        let (lane, _queue, _urgent) = Lane::new();
        let flights: Vec<InFlight> = (0..QUEUE_LINES).map(|_| lane.request("m", &[], &[])).collect();
        assert!(matches!(lane.request("m", &[], &[]).end().await, Reply::Busy));
        assert!(!lane.answer(3, Ok(RawValue::NULL)), "the SDK's");
        assert!(lane.answer(FIRST_ID + 99_999, Ok(RawValue::NULL)), "forged, and dropped");
        drop(flights);
    }
}

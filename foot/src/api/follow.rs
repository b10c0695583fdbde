//! The Brain's events, for as long as somebody listens: resumed after a cut where the last one ended.

use std::time::Duration;

use futures_util::StreamExt as _;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use vance_shared::json::Raw;

use super::sse::Parser;
use super::{ApiError, Brain, Event};

/// Events that wait for the listener; then the stream itself waits.
const WAITING_EVENTS: usize = 256;
/// A stream that is silent for so long (no event, no comment) is taken for dead. A reconnect costs little and loses nothing.
const SILENCE: Duration = Duration::from_secs(45);
/// First and longest wait between two attempts.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_MAX: Duration = Duration::from_secs(5);

/// What a listener hears.
#[derive(Debug)]
pub enum Notice {
    /// The stream is open (again): what happened before is to be read, what happens from here on will be heard.
    Open,
    /// Something happened; with all that the Brain said of it.
    Event(Event, Raw),
    /// The Brain went away, for this reason. Attempts go on by themselves; said once until the stream is open again.
    Lost(String),
    /// The Brain refuses the stream for good. Nothing follows.
    Refused(ApiError),
}

/// Listens until it is dropped.
#[derive(Debug)]
pub struct Follow {
    notices: mpsc::Receiver<Notice>,
    pump: JoinHandle<()>,
}

impl Follow {
    /// Starts to listen. With `tree` the Brain may leave out what concerns other trees.
    pub fn start(brain: Brain, tree: Option<String>) -> Self {
        let (tell, notices) = mpsc::channel(WAITING_EVENTS);
        Self { notices, pump: tokio::spawn(pump(brain, tree, tell)) }
    }

    /// The next notice; `None` after [`Notice::Refused`]. Safe to drop and call again.
    pub async fn next(&mut self) -> Option<Notice> {
        self.notices.recv().await
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        self.pump.abort();
    }
}

/// Why one stream ended.
enum End {
    Cut(String),
    Refused(ApiError),
    NobodyListens,
}

async fn pump(brain: Brain, tree: Option<String>, tell: mpsc::Sender<Notice>) {
    let mut last_id = None;
    let mut wait = RETRY_FIRST;
    let mut said = false;
    loop {
        let mut opened = false;
        match one_stream(&brain, tree.as_deref(), &mut last_id, &tell, &mut opened).await {
            End::NobodyListens => return,
            End::Refused(error) => {
                // Nobody may be listening any more, which is as good.
                drop(tell.send(Notice::Refused(error)).await);
                return;
            }
            End::Cut(why) => {
                if opened {
                    (wait, said) = (RETRY_FIRST, false);
                }
                if !said && tell.send(Notice::Lost(why)).await.is_err() {
                    return;
                }
                said = true;
            }
        }
        tokio::time::sleep(wait.mul_f64(0.5 + fastrand::f64() * 0.5)).await;
        wait = (wait * 2).min(RETRY_MAX);
    }
}

async fn one_stream(
    brain: &Brain,
    tree: Option<&str>,
    last_id: &mut Option<String>,
    tell: &mpsc::Sender<Notice>,
    opened: &mut bool,
) -> End {
    let response = match brain.events(tree, last_id.as_deref()).await {
        Ok(response) => response,
        // The Brain no longer has what came after that position; a fresh start misses nothing that a new reading does not show.
        Err(ApiError::Refused { status: 410, message, .. }) if last_id.is_some() => {
            *last_id = None;
            return End::Cut(message);
        }
        Err(error) if error.may_pass() => return End::Cut(error.to_string()),
        Err(error) => return End::Refused(error),
    };
    *opened = true;
    if tell.send(Notice::Open).await.is_err() {
        return End::NobodyListens;
    }
    let mut bytes = response.bytes_stream();
    let mut parser = Parser::default();
    loop {
        let piece = match tokio::time::timeout(SILENCE, bytes.next()).await {
            Err(_) => return End::Cut(format!("silent for {} s", SILENCE.as_secs())),
            Ok(None) => return End::Cut("the stream ended".to_owned()),
            Ok(Some(Err(error))) => return End::Cut(super::why(&error)),
            Ok(Some(Ok(piece))) => piece,
        };
        let messages = match parser.push(&piece) {
            Ok(messages) => messages,
            Err(error) => return End::Cut(error.to_string()),
        };
        for message in messages {
            let event =
                Raw::parse(message.data).and_then(|raw| raw.to().map(|event| Notice::Event(event, raw.clone())));
            if message.id.is_some() {
                *last_id = message.id;
            }
            match event {
                Ok(notice) => {
                    if tell.send(notice).await.is_err() {
                        return End::NobodyListens;
                    }
                }
                Err(error) => tracing::warn!("an event of the Brain could not be read: {error}"),
            }
        }
    }
}

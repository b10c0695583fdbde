//! `GET /api/v1/events`: what happens to the caller's tasks, as server-sent events, resumable at any place.
//!
//! Beside them, live and without an id: what [`crate::news`] tells.
//!
//! A stream reads the store up to the present, then listens; who falls behind reads the store again. So memory is one page,
//! and no event is missed or sent twice. How far running calls are is told in between, as events of the kind `progress` without an
//! id: they are not stored, and a reader that was away has missed them.
//!
//! Many streams must not slow the rest of the Brain: an event is made into text once ([`frames`]), what comes together is sent together, and
//! the more streams there are the longer each gathers ([`pace`]). One whose reader takes nothing for [`STALLED`] is cut: it comes back with
//! its last id if there is somebody.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::response::Response;
use futures_util::stream;
use http::HeaderMap;
use http::header::{CACHE_CONTROL, HeaderValue};
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tokio_util::sync::CancellationToken;

use super::App;
use super::answer::{Answer, with_type};
use super::connections::Hangup;
use super::gate::{ApiCaller, header};
use super::query::{Params, bad};
use super::shares::{NoShare, Share};
use crate::api::ApiError;
use crate::news::News;
use crate::progress::CallProgress;
use crate::store::{Store, StoredEvent};
use frames::Filter;

pub(crate) mod frames;

/// Events read from the store at once.
const PAGE: usize = 256;
/// Between two comments on a quiet stream: below the patience of proxies and of our own reader.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// When a reader that was cut off shall come back: milliseconds.
const RETRY_MS: u64 = 1_000;
/// All streams together send this often at most: some percent of one core, however many there are.
const SENDS_PER_SECOND: usize = 4_000;
/// The longest a stream gathers: a person does not notice.
const MAX_PACE: Duration = Duration::from_millis(100);
/// Bytes that are sent at once, and a frame more.
const CHUNK_BYTES: usize = 32 * 1024;
/// A reader that has taken nothing for so long, comments included, is none.
const STALLED: Duration = Duration::from_secs(60);

/// Starts a stream.
pub(super) async fn events(
    State(app): State<Arc<App>>,
    ApiCaller(who): ApiCaller,
    hangup: Option<Extension<Hangup>>,
    params: Params,
    headers: HeaderMap,
) -> Answer {
    let [after, tree, session] = params.take(["after", "tree", "session"])?;
    // A browser that comes back sends both; the header is what it saw last.
    let resumed = header(&headers, "last-event-id")?.map(str::to_owned).or(after);
    let share = app.event_streams.take(&who.name).map_err(|full| match full {
        NoShare::Theirs => {
            let (name, each) = (&who.name, app.event_streams.each());
            let text = format!("{each} event streams of the token '{name}' are open, and that is its share; close one");
            ApiError::new(429, "busy", text)
        }
        NoShare::All => ApiError::new(429, "busy", "too many event streams of others are open; try again later"),
    })?;
    let store = app.brain.store.clone();
    let (live, progress) = (store.subscribe(), app.brain.progress.follow());
    let news = app.brain.directory.news().listen();
    let newest = store.last_seq();
    let (seen, behind) = match resumed {
        None => (newest, false),
        Some(text) => (start(&text, newest)?, true),
    };
    let (taken, watched) = watch::channel(());
    if let Some(Extension(hangup)) = hangup {
        vance_supervise::near(cut_if_stalled(watched, hangup));
    }
    let follow = Follow {
        store,
        live,
        progress,
        news,
        filter: Filter { owner: who.name.to_string(), tree, session },
        seen,
        behind,
        page: VecDeque::new(),
        opened: false,
        looked: None,
        app,
        revoked: who.revoked.clone(),
        taken,
        _share: share,
    };
    Ok(respond(follow))
}

fn start(text: &str, newest: u64) -> Answer<u64> {
    let seq: u64 = text
        .parse()
        .map_err(|_| bad("`Last-Event-ID` and `after` are the id of an event: a whole number".to_owned()))?;
    if seq > newest {
        let text =
            format!("there is no event {seq}, the newest is {newest}: read the tasks anew, then follow without an id");
        return Err(ApiError::new(410, "events_gone", text));
    }
    Ok(seq)
}

fn respond(follow: Follow) -> Response {
    let chunks = stream::unfold(follow, |mut follow| async move {
        let chunk = follow.next().await?;
        Some((Ok::<_, Infallible>(chunk), follow))
    });
    let mut response = with_type(200, "text/event-stream", Body::from_stream(chunks));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// Ends the connection of a stream from which nothing is taken; ends itself with the stream.
async fn cut_if_stalled(mut taken: watch::Receiver<()>, hangup: Hangup) {
    loop {
        match timeout_at(Instant::now() + STALLED, taken.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => return,
            Err(_) => {
                tracing::debug!("an event stream is cut: nobody reads it");
                return hangup.cancel();
            }
        }
    }
}

/// How long a stream gathers before it sends again, when there are so many.
fn pace(streams: usize) -> Duration {
    let pace = Duration::from_micros(1_000_000 * streams as u64 / SENDS_PER_SECOND as u64).min(MAX_PACE);
    // Timers know milliseconds: a few streams need none.
    if pace < Duration::from_millis(1) { Duration::ZERO } else { pace }
}

/// One stream.
struct Follow {
    store: Store,
    live: broadcast::Receiver<Arc<StoredEvent>>,
    progress: broadcast::Receiver<Arc<frames::Shared<CallProgress>>>,
    news: broadcast::Receiver<Arc<frames::Shared<News>>>,
    filter: Filter,
    /// Place of the last event that was looked at.
    seen: u64,
    /// There may be more in the store before what is heard live.
    behind: bool,
    page: VecDeque<StoredEvent>,
    opened: bool,
    /// When it last looked at what happened.
    looked: Option<Instant>,
    app: Arc<App>,
    revoked: CancellationToken,
    /// Told whenever the connection wants more: so there is somebody who reads.
    taken: watch::Sender<()>,
    _share: Share,
}

impl Follow {
    /// What is to be sent next; `None` ends the stream, and the reader comes back with the last id.
    async fn next(&mut self) -> Option<Bytes> {
        self.taken.send_replace(());
        if !std::mem::replace(&mut self.opened, true) {
            // Gives the place at once: a reader that is cut off before the first event misses nothing either.
            let opening = format!(": events follow\nretry: {RETRY_MS}\nid: {}\n\n", self.seen);
            return Some(opening.into());
        }
        let (shutdown, revoked) = (self.app.shutdown.clone(), self.revoked.clone());
        let quiet = sleep(KEEP_ALIVE);
        tokio::select! {
            biased;
            () = shutdown.cancelled() => None,
            () = revoked.cancelled() => None,
            chunk = self.advance() => chunk,
            () = quiet => Some(Bytes::from_static(b":\n\n")),
        }
    }

    /// Dropped at any await it has lost nothing: what was taken from a channel is in the chunk, which is returned without one.
    async fn advance(&mut self) -> Option<Bytes> {
        loop {
            let chunk = self.of_page();
            if chunk.is_some() {
                return chunk;
            }
            if self.behind {
                match self.store.after(self.seen, PAGE).await {
                    Ok(events) if events.is_empty() => self.behind = false,
                    Ok(events) => self.page = events.into(),
                    Err(error) => {
                        tracing::warn!(%error, "an event stream ends: the store cannot be read");
                        return None;
                    }
                }
                continue;
            }
            if let Some(looked) = self.looked {
                sleep_until(looked + pace(self.app.event_streams.taken())).await;
            }
            let mut chunk = Vec::new();
            if !self.first(&mut chunk).await {
                return None;
            }
            self.looked = Some(Instant::now());
            self.rest(&mut chunk);
            if !chunk.is_empty() {
                return Some(chunk.into());
            }
        }
    }

    /// What was read from the store and is for this stream.
    fn of_page(&mut self) -> Option<Bytes> {
        let mut chunk = Vec::new();
        while chunk.len() < CHUNK_BYTES
            && let Some(event) = self.page.pop_front()
        {
            self.look(&event, &mut chunk);
        }
        (!chunk.is_empty()).then(|| chunk.into())
    }

    /// Waits for whatever happens next. False: nothing will happen any more.
    async fn first(&mut self, chunk: &mut Vec<u8>) -> bool {
        tokio::select! {
            biased;
            event = self.live.recv() => match event {
                Ok(event) => self.look(&event, chunk),
                Err(broadcast::error::RecvError::Lagged(_)) => self.behind = true,
                Err(broadcast::error::RecvError::Closed) => return false,
            },
            news = self.news.recv() => match news {
                Ok(news) => self.tell(news.frame(frames::news), chunk),
                // Missed ones are not looked for: the state itself tells what became of them.
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return false,
            },
            far = self.progress.recv() => match far {
                Ok(far) => self.tell(far.frame(frames::far), chunk),
                // What was dropped is outdated.
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return false,
            },
        }
        true
    }

    /// And what happened besides, meanwhile.
    fn rest(&mut self, chunk: &mut Vec<u8>) {
        use broadcast::error::TryRecvError::{Closed, Empty, Lagged};
        while chunk.len() < CHUNK_BYTES && !self.behind {
            match self.live.try_recv() {
                Ok(event) => self.look(&event, chunk),
                Err(Lagged(_)) => self.behind = true,
                Err(Empty | Closed) => break,
            }
        }
        while chunk.len() < CHUNK_BYTES
            && let Ok(news) = self.news.try_recv()
        {
            self.tell(news.frame(frames::news), chunk);
        }
        while chunk.len() < CHUNK_BYTES
            && let Ok(far) = self.progress.try_recv()
        {
            self.tell(far.frame(frames::far), chunk);
        }
    }

    fn look(&mut self, event: &StoredEvent, chunk: &mut Vec<u8>) {
        // Heard live what was read before.
        if event.seq > self.seen {
            self.seen = event.seq;
            self.tell(self.app.frames.of(event).as_deref(), chunk);
        }
    }

    fn tell(&self, frame: Option<&frames::Frame>, chunk: &mut Vec<u8>) {
        if let Some(bytes) = self.filter.of(frame) {
            chunk.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_streams_the_longer_each_gathers_and_a_few_do_not_wait() {
        for (streams, ms) in [(0, 0), (1, 0), (3, 0), (4, 1), (20, 5), (200, 50), (400, 100), (10_000, 100)] {
            assert_eq!(pace(streams), Duration::from_millis(ms), "{streams}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_nobody_reads_is_cut_and_one_that_is_read_is_not() {
        let (taken, watched) = watch::channel(());
        let hangup = Hangup::default();
        let watching = tokio::spawn(cut_if_stalled(watched, hangup.clone()));
        for _ in 0..20 {
            sleep(KEEP_ALIVE).await;
            taken.send_replace(());
        }
        assert!(!hangup.is_cancelled());
        sleep(STALLED + Duration::from_millis(1)).await;
        assert!(hangup.is_cancelled());
        assert!(watching.await.is_ok());
        let (taken, watched) = watch::channel(());
        let hangup = Hangup::default();
        drop(taken);
        cut_if_stalled(watched, hangup.clone()).await;
        assert!(!hangup.is_cancelled(), "a stream that ended took its watch along");
    }
}

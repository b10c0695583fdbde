//! `GET /api/v1/events`: what happens to the caller's tasks, as server-sent events, resumable at any place.
//!
//! Beside them, live and without an id: what [`crate::news`] tells.
//!
//! A stream reads the store up to the present, then listens; who falls behind reads the store again. So memory is one page,
//! and no event is missed or sent twice. How far running calls are is told in between, as events of the kind `progress` without an
//! id: they are not stored, and a reader that was away has missed them.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use http::HeaderMap;
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, broadcast};
use tokio_util::sync::CancellationToken;
use vance_shared::ids::TreeId;

use super::App;
use super::answer::Answer;
use super::gate::{ApiCaller, header};
use super::query::{Params, bad};
use crate::api::ApiError;
use crate::hub::now_ms;
use crate::news::News;
use crate::progress::CallProgress;
use crate::rows::time;
use crate::store::{Store, StoredEvent};

/// Events read from the store at once.
const PAGE: usize = 256;
/// Between two comments on a quiet stream: below the patience of proxies and of our own reader.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// When a reader that was cut off shall come back.
const RETRY: Duration = Duration::from_secs(1);

/// Starts a stream.
pub(super) async fn events(
    State(app): State<Arc<App>>,
    ApiCaller(who): ApiCaller,
    params: Params,
    headers: HeaderMap,
) -> Answer {
    let [after, tree, session] = params.take(["after", "tree", "session"])?;
    // A browser that comes back sends both; the header is what it saw last.
    let resumed = header(&headers, "last-event-id")?.map(str::to_owned).or(after);
    let place = app.event_streams.clone().try_acquire_owned();
    let place = place.map_err(|_| ApiError::new(429, "busy", "too many event streams are open; close one"))?;
    let store = app.brain.store.clone();
    let (live, progress) = (store.subscribe(), app.brain.progress.follow());
    let news = app.brain.directory.news().listen();
    let newest = store.last_seq();
    let (seen, behind) = match resumed {
        None => (newest, false),
        Some(text) => (start(&text, newest)?, true),
    };
    let filter = Filter { owner: who.name.to_string(), tree, session };
    let follow = Follow {
        store,
        live,
        progress,
        news,
        filter,
        seen,
        behind,
        page: VecDeque::new(),
        opened: false,
        shutdown: app.shutdown.clone(),
        revoked: who.revoked.clone(),
        _place: place,
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
    let events = stream::unfold(follow, |mut follow| async move {
        let event = follow.next().await?;
        Some((Ok::<_, Infallible>(event), follow))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

/// What of an event is looked at. The event's own content stays in the store.
#[derive(Deserialize)]
struct Stored {
    owner: String,
    task_id: String,
    id: String,
    tree_id: String,
    session_id: String,
    state: String,
    #[serde(default)]
    reason: Option<String>,
}

/// What of an event is told.
#[derive(Serialize)]
struct Told<'a> {
    seq: u64,
    kind: &'a str,
    at: String,
    task_id: &'a str,
    id: &'a str,
    tree_id: &'a str,
    session_id: &'a str,
    state: &'a str,
    reason: Option<&'a str>,
}

/// What is told of a call that goes on.
#[derive(Serialize)]
struct Far<'a> {
    kind: &'a str,
    at: String,
    task_id: &'a str,
    id: &'a str,
    tree_id: &'a str,
    session_id: &'a str,
    call_id: &'a str,
    fraction: Option<f64>,
    message: Option<&'a str>,
}

/// Kind of the events that are not stored.
const PROGRESS: &str = "progress";

/// Whose events.
struct Filter {
    owner: String,
    tree: Option<String>,
    session: Option<String>,
}

impl Filter {
    /// The event as it is told, if it is for this stream.
    fn tell(&self, event: &StoredEvent) -> Option<Event> {
        // Events of other things than tasks have other shapes.
        let stored = event.data.to::<Stored>().ok()?;
        if !self.wants(&stored.owner, &stored.tree_id, &stored.session_id) {
            return None;
        }
        let told = Told {
            seq: event.seq,
            kind: &event.kind,
            at: time(event.at_ms),
            task_id: &stored.task_id,
            id: &stored.id,
            tree_id: &stored.tree_id,
            session_id: &stored.session_id,
            state: &stored.state,
            reason: stored.reason.as_deref(),
        };
        // JSON has no line breaks outside strings, and escapes those inside.
        let data = serde_json::to_string(&told).ok()?;
        Some(Event::default().id(event.seq.to_string()).event(&event.kind).data(data))
    }

    /// The same for a call that goes on.
    fn tell_progress(&self, CallProgress { whose, fraction, message }: &CallProgress) -> Option<Event> {
        if !self.wants(&whose.owner, whose.tree_id.as_str(), whose.session_id.as_str()) {
            return None;
        }
        let far = Far {
            kind: PROGRESS,
            at: time(now_ms()),
            task_id: whose.task_id.as_str(),
            id: &whose.id,
            tree_id: whose.tree_id.as_str(),
            session_id: whose.session_id.as_str(),
            call_id: whose.call_id.as_str(),
            fraction: *fraction,
            message: message.as_deref(),
        };
        let data = serde_json::to_string(&far).ok()?;
        Some(Event::default().event(PROGRESS).data(data))
    }

    fn wants(&self, owner: &str, tree: &str, session: &str) -> bool {
        let only = |wanted: &Option<String>, is: &str| wanted.as_deref().is_none_or(|wanted| wanted == is);
        owner == self.owner && only(&self.tree, tree) && only(&self.session, session)
    }
}

impl Filter {
    /// News as they are told, if they are for this stream.
    fn tell_news(&self, news: &News) -> Option<Event> {
        #[derive(Serialize)]
        struct Told<'a> {
            at: String,
            #[serde(flatten)]
            news: &'a News,
        }
        let only = |wanted: &Option<String>, is: Option<&str>| wanted.as_deref().is_none_or(|w| Some(w) == is);
        let tree = news.tree_id.as_ref().map(TreeId::as_str);
        if news.owner != self.owner || !only(&self.tree, tree) || !only(&self.session, Some(news.session_id.as_str())) {
            return None;
        }
        let data = serde_json::to_string(&Told { at: time(news.at), news }).ok()?;
        Some(Event::default().event(news.kind).data(data))
    }
}

/// One stream.
struct Follow {
    store: Store,
    live: broadcast::Receiver<Arc<StoredEvent>>,
    progress: broadcast::Receiver<Arc<CallProgress>>,
    news: broadcast::Receiver<Arc<News>>,
    filter: Filter,
    /// Place of the last event that was looked at.
    seen: u64,
    /// There may be more in the store before what is heard live.
    behind: bool,
    page: VecDeque<StoredEvent>,
    opened: bool,
    shutdown: CancellationToken,
    revoked: CancellationToken,
    _place: OwnedSemaphorePermit,
}

impl Follow {
    /// The next event for this stream; `None` ends it, and the reader comes back with the last id.
    async fn next(&mut self) -> Option<Event> {
        if !std::mem::replace(&mut self.opened, true) {
            // Gives the place at once: a reader that is cut off before the first event misses nothing either.
            let opening = Event::default().comment("events follow").retry(RETRY).id(self.seen.to_string());
            return Some(opening);
        }
        let (shutdown, revoked) = (self.shutdown.clone(), self.revoked.clone());
        tokio::select! {
            biased;
            () = shutdown.cancelled() => None,
            () = revoked.cancelled() => None,
            event = self.advance() => event,
        }
    }

    async fn advance(&mut self) -> Option<Event> {
        loop {
            while let Some(event) = self.page.pop_front() {
                if let Some(told) = self.look(&event) {
                    return Some(told);
                }
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
            tokio::select! {
                biased;
                event = self.live.recv() => match event {
                    Ok(event) => {
                        if let Some(told) = self.look(&event) {
                            return Some(told);
                        }
                    }
                    Err(broadcast::error::RecvError::Lagged(_)) => self.behind = true,
                    Err(broadcast::error::RecvError::Closed) => return None,
                },
                news = self.news.recv() => {
                    // Missed ones are not looked for: the state itself tells what became of them.
                    let told = news.ok().and_then(|news| self.filter.tell_news(&news));
                    if told.is_some() {
                        return told;
                    }
                }
                far = self.progress.recv() => match far {
                    Ok(far) => {
                        if let Some(told) = self.filter.tell_progress(&far) {
                            return Some(told);
                        }
                    }
                    // What was dropped is outdated.
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return None,
                },
            }
        }
    }

    fn look(&mut self, event: &StoredEvent) -> Option<Event> {
        // Heard live what was read before.
        if event.seq <= self.seen {
            return None;
        }
        self.seen = event.seq;
        self.filter.tell(event)
    }
}

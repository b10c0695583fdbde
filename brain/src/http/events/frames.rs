//! Events as they travel: made once each, however many streams tell them.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use axum::body::Bytes;
use serde::{Deserialize, Serialize};
use vance_shared::ids::TreeId;

use crate::news::News;
use crate::progress::CallProgress;
use crate::rows::time;
use crate::store::StoredEvent;

/// Frames that are kept for streams that have not told them yet: as many as the store keeps for a slow subscriber, so a few hundred KiB.
const KEPT: usize = 1_024;
/// Kind of the events that say how far a call is.
const PROGRESS: &str = "progress";

/// One event for a stream.
#[derive(Debug)]
pub(super) struct Frame {
    owner: String,
    tree: Option<String>,
    session: String,
    /// Whole lines, with the empty one at the end.
    pub(super) bytes: Bytes,
}

/// Whose events.
pub(super) struct Filter {
    pub(super) owner: String,
    pub(super) tree: Option<String>,
    pub(super) session: Option<String>,
}

impl Filter {
    /// The frame, if it is for this stream.
    pub(super) fn of<'a>(&self, frame: Option<&'a Frame>) -> Option<&'a Bytes> {
        let only = |wanted: &Option<String>, is: Option<&str>| wanted.as_deref().is_none_or(|w| Some(w) == is);
        let frame = frame?;
        let wanted = frame.owner == self.owner
            && only(&self.tree, frame.tree.as_deref())
            && only(&self.session, Some(&frame.session));
        wanted.then_some(&frame.bytes)
    }
}

/// The frames of the newest events. A lock, held while one is looked up or made; streams of one thread share it, so nobody waits.
#[derive(Debug, Default)]
pub(in crate::http) struct Frames(Mutex<VecDeque<(u64, Kept)>>);

/// None: an event that no stream tells.
type Kept = Option<Arc<Frame>>;

impl Frames {
    /// The frame of an event.
    pub(super) fn of(&self, event: &StoredEvent) -> Kept {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = kept.partition_point(|(seq, _)| *seq < event.seq);
        if let Some((seq, frame)) = kept.get(at)
            && *seq == event.seq
        {
            return frame.clone();
        }
        let frame = stored(event).map(Arc::new);
        if at == kept.len() {
            kept.push_back((event.seq, frame.clone()));
            if kept.len() > KEPT {
                kept.pop_front();
            }
        }
        frame
    }
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

fn stored(event: &StoredEvent) -> Option<Frame> {
    // Events of other things than tasks have other shapes.
    let stored = event.data.to::<Stored>().ok()?;
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
    let bytes = lines(Some(event.seq), &event.kind, &told)?;
    Some(Frame { bytes, owner: stored.owner, tree: Some(stored.tree_id), session: stored.session_id })
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

/// How far a call is.
pub(super) fn far(CallProgress { whose, at, fraction, message }: &CallProgress) -> Option<Frame> {
    let far = Far {
        kind: PROGRESS,
        at: time(*at),
        task_id: whose.task_id.as_str(),
        id: &whose.id,
        tree_id: whose.tree_id.as_str(),
        session_id: whose.session_id.as_str(),
        call_id: whose.call_id.as_str(),
        fraction: *fraction,
        message: message.as_deref(),
    };
    Some(Frame {
        bytes: lines(None, PROGRESS, &far)?,
        owner: whose.owner.clone(),
        tree: Some(whose.tree_id.to_string()),
        session: whose.session_id.to_string(),
    })
}

/// News.
pub(super) fn news(news: &News) -> Option<Frame> {
    #[derive(Serialize)]
    struct Told<'a> {
        at: String,
        #[serde(flatten)]
        news: &'a News,
    }
    Some(Frame {
        bytes: lines(None, news.kind, &Told { at: time(news.at), news })?,
        owner: news.owner.clone(),
        tree: news.tree_id.as_ref().map(TreeId::to_string),
        session: news.session_id.to_string(),
    })
}

fn lines(id: Option<u64>, kind: &str, data: &impl Serialize) -> Option<Bytes> {
    // JSON has no line breaks outside strings, and escapes those inside.
    let data = serde_json::to_string(data).ok()?;
    let id = id.map(|id| format!("id: {id}\n")).unwrap_or_default();
    Some(format!("{id}event: {kind}\ndata: {data}\n\n").into())
}

/// Something that is told to many, with the frame that the first of them made.
#[derive(Debug)]
pub(crate) struct Shared<T> {
    what: T,
    frame: OnceLock<Option<Frame>>,
}

impl<T> Shared<T> {
    /// Not told yet.
    pub(crate) fn new(what: T) -> Self {
        Self { what, frame: OnceLock::new() }
    }

    pub(super) fn frame(&self, make: impl FnOnce(&T) -> Option<Frame>) -> Option<&Frame> {
        self.frame.get_or_init(|| make(&self.what)).as_ref()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;
    use vance_shared::json::Raw;

    use super::*;

    fn event(seq: u64, owner: &str) -> StoredEvent {
        let data = json!({
            "task_id": "t", "id": "a", "tree_id": "tree", "session_id": "s", "owner": owner, "state": "ready", "reason": "x\ny",
        });
        let (stream, kind) = ("task:t".to_owned(), "created".to_owned());
        StoredEvent { seq, stream, version: 1, kind, data: Raw::from(data), at_ms: 0 }
    }

    #[test]
    fn a_frame_is_made_once_and_only_the_newest_are_kept() {
        let frames = Frames::default();
        let first = frames.of(&event(1, "a")).unwrap();
        assert!(Arc::ptr_eq(&first, &frames.of(&event(1, "a")).unwrap()), "not made again");
        assert_eq!(first.bytes.iter().filter(|b| **b == b'\n').count(), 4, "{:?}", first.bytes);
        let other = StoredEvent { data: Raw::from(json!({"owner": "a"})), ..event(2, "a") };
        assert!(frames.of(&other).is_none());
        for seq in 3..=2 * KEPT as u64 {
            frames.of(&event(seq, "a"));
        }
        assert_eq!(frames.0.lock().unwrap().len(), KEPT);
        // An old one is made anew and not kept: it would be in the way of newer ones.
        assert!(!Arc::ptr_eq(&first, &frames.of(&event(1, "a")).unwrap()));
        assert_eq!(frames.0.lock().unwrap().len(), KEPT);
    }

    #[test]
    fn a_stream_has_only_what_it_is_for() {
        let frames = Frames::default();
        let frame = frames.of(&event(1, "a"));
        let of = |owner: &str, tree: Option<&str>, session: Option<&str>| {
            let filter =
                Filter { owner: owner.to_owned(), tree: tree.map(str::to_owned), session: session.map(str::to_owned) };
            filter.of(frame.as_deref()).is_some()
        };
        for (owner, tree, session, want) in [
            ("a", None, None, true),
            ("b", None, None, false),
            ("a", Some("tree"), Some("s"), true),
            ("a", Some("other"), None, false),
            ("a", None, Some("other"), false),
        ] {
            assert_eq!(of(owner, tree, session), want, "{owner} {tree:?} {session:?}");
        }
    }
}

//! How far calls of tasks are: told to whoever follows the events at this moment, and never stored. Who comes later has missed it, and
//! misses nothing: the next word comes from the tool, and the end is an event.

use std::sync::Arc;

use tokio::sync::broadcast;
use vance_shared::ids::{CallId, SessionId, TaskId, TreeId};

use crate::http::Shared;
use crate::hub::now_ms;

/// Words that wait for a slow follower. Older ones are dropped for it: only the last one of a call says how far it is.
const WAITING: usize = 256;
/// Longest message that is passed on, in characters: a line for a person.
const MAX_MESSAGE: usize = 500;

/// A call and its task.
#[derive(Debug, Clone, PartialEq)]
pub struct Whose {
    /// The session's owner: nobody else hears it.
    pub owner: String,
    /// The session.
    pub session_id: SessionId,
    /// The tree.
    pub tree_id: TreeId,
    /// The task.
    pub task_id: TaskId,
    /// Its id in the file.
    pub id: String,
    /// The call.
    pub call_id: CallId,
}

/// How far a call is.
#[derive(Debug, Clone, PartialEq)]
pub struct CallProgress {
    /// Which one.
    pub whose: Whose,
    /// When it was said: milliseconds since 1970.
    pub at: i64,
    /// 0 to 1, if the tool says.
    pub fraction: Option<f64>,
    /// For people.
    pub message: Option<String>,
}

/// Where words on progress meet those who follow. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Progresses(broadcast::Sender<Arc<Shared<CallProgress>>>);

impl Default for Progresses {
    fn default() -> Self {
        Self(broadcast::channel(WAITING).0)
    }
}

impl Progresses {
    /// Tells everybody who follows now.
    pub fn tell(&self, whose: Whose, fraction: Option<f64>, message: Option<String>) {
        let message = message.map(|text| text.chars().take(MAX_MESSAGE).collect());
        // Nobody follows: nobody is told.
        self.0.send(Arc::new(Shared::new(CallProgress { whose, at: now_ms(), fraction, message }))).ok();
    }

    /// What is said from here on.
    pub(crate) fn follow(&self) -> broadcast::Receiver<Arc<Shared<CallProgress>>> {
        self.0.subscribe()
    }
}

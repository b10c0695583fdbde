//! The calls that run now, by id: how to stop one without waiting in anybody's mailbox, and what a restarted Dispatcher
//! finds still alive. A lock and not an actor, because a cancel must overtake every queue; it is held for a map access.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use vance_shared::ids::CallId;

#[derive(Default)]
pub(crate) struct Runs {
    running: Mutex<HashMap<CallId, Run>>,
    ended: Notify,
}

struct Run {
    cancel: CancellationToken,
    reason: Option<String>,
}

impl Runs {
    /// Notes a run; the token is its end.
    pub(crate) fn begin(&self, call_id: CallId) -> CancellationToken {
        let cancel = CancellationToken::new();
        self.lock().insert(call_id, Run { cancel: cancel.clone(), reason: None });
        cancel
    }

    /// Stops a run, if there is one. The first reason stands.
    pub(crate) fn cancel(&self, call_id: &CallId, reason: &str) {
        if let Some(run) = self.lock().get_mut(call_id) {
            run.reason.get_or_insert_with(|| reason.to_owned());
            run.cancel.cancel();
        }
    }

    /// Why a run was stopped, if it was.
    pub(crate) fn reason(&self, call_id: &CallId) -> Option<String> {
        self.lock().get(call_id).and_then(|run| run.reason.clone())
    }

    pub(crate) fn end(&self, call_id: &CallId) {
        self.lock().remove(call_id);
        self.ended.notify_waiters();
    }

    pub(crate) fn is_running(&self, call_id: &CallId) -> bool {
        self.lock().contains_key(call_id)
    }

    /// Waits until nothing runs.
    pub(crate) async fn idle(&self) {
        loop {
            let ended = self.ended.notified();
            if self.lock().is_empty() {
                return;
            }
            ended.await;
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<CallId, Run>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

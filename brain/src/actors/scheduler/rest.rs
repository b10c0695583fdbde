//! An autonomous run ends when nothing of it goes on by itself: then it is said how it stands.

use std::collections::BTreeSet;
use std::time::Duration;

use vance_shared::ids::{SessionId, TreeId};
use vance_supervise::{AsyncContext as _, Context};

use super::Scheduler;
use crate::hub::{Brain, now_ms};
use crate::news::News;
use crate::recovery;

/// Until a tree that came to rest is looked at: what ends in the same moment belongs to it.
const SETTLE: Duration = Duration::from_millis(200);

impl Scheduler {
    pub(super) fn look_at_rest(&mut self, ctx: &mut Context<Self>) {
        for tree_id in self.board.take_at_rest() {
            ctx.run_later(SETTLE, move |actor, _| {
                if !actor.board.is_busy(&tree_id) {
                    tokio::spawn(say(actor.brain.clone(), tree_id));
                }
            });
        }
    }

    /// Sessions whose tasks may wait for a client that comes to another session have to be there when it comes.
    pub(super) fn open_sessions(&self, sessions: BTreeSet<SessionId>) {
        let brain = self.brain.clone();
        tokio::spawn(async move {
            for session_id in sessions {
                if let Err(fault) = brain.directory.get(&brain, &session_id).await {
                    tracing::error!(%session_id, reason = fault.message, "a session with live tasks cannot be opened");
                }
            }
        });
    }
}

async fn say(brain: Brain, tree_id: TreeId) {
    let standing = match recovery::standing(&brain, tree_id.as_str()).await {
        Ok(Some(standing)) => standing,
        Ok(None) => return,
        Err(error) => return tracing::warn!(%tree_id, %error, "a run came to rest, and its tasks cannot be read"),
    };
    let recovery::Standing { session_id, owner, summary } = standing;
    tracing::info!(%tree_id, %session_id, summary, "an autonomous run came to rest");
    brain.directory.news().tell(News {
        kind: "tree_rests",
        at: now_ms(),
        owner,
        session_id,
        client_id: None,
        name: None,
        machine: None,
        tree_id: Some(tree_id),
        summary: Some(summary),
    });
}

/// Sessions of the tasks of live trees that expect no client.
pub(super) fn autonomous<'a>(trees: impl Iterator<Item = &'a vance_brain_core::board::Entry>) -> BTreeSet<SessionId> {
    trees.filter(|entry| entry.autonomous && !entry.state.is_terminal()).map(|entry| entry.session_id.clone()).collect()
}

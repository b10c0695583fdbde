//! Sessions that come and go: one that is made with its first tree, and autonomous ones that are let go when nothing is left to do.

use std::collections::BTreeSet;
use std::sync::Arc;

use vance_brain_core::registry::SessionView;
use vance_brain_core::spec::Mode;
use vance_shared::ids::SessionId;
use vance_shared::json::Raw;

use super::{Directory, SessionHandle, SessionRow};
use crate::hub::{Brain, now_ms};
use crate::rows::SESSION;
use crate::store::Row;

/// A session that is not made yet: it is stored with its tree or not at all.
pub struct Planned {
    /// Its id.
    pub session_id: SessionId,
    /// What to store.
    pub row: Row,
    /// What it will see.
    pub view: SessionView,
}

/// What is stored of a session.
pub(super) fn row_of(owner: &str, session_id: &SessionId, row: &SessionRow) -> Row {
    Row {
        kind: SESSION.into(),
        key: session_id.to_string(),
        parent: None,
        owner: Some(owner.to_owned()),
        state: None,
        data: Raw::of(row).unwrap_or_else(|_| Raw::null()),
    }
}

impl Directory {
    /// An autonomous session for a tree that comes.
    pub async fn plan(&self, brain: &Brain, owner: &str) -> Planned {
        let session_id = SessionId::generate();
        let row =
            row_of(owner, &session_id, &SessionRow { mode: Mode::Autonomous, created_at: now_ms(), default: false });
        let known = self.known_of(brain, owner).await;
        let lenders = self.loaded().into_iter().filter(|s| s.owner == owner && s.mode == Mode::Interactive);
        let published: Vec<_> = lenders.map(|lender| lender.published()).collect();
        let own = published.iter().flat_map(|p| p.view.clients.get(..p.own).unwrap_or_default());
        Planned { session_id, row, view: SessionView { clients: own.cloned().collect(), known } }
    }

    /// Autonomous sessions without tasks and without clients of their own.
    pub fn idle(&self, busy: &BTreeSet<SessionId>) -> BTreeSet<SessionId> {
        let is_idle = |s: &Arc<SessionHandle>| {
            s.mode == Mode::Autonomous && s.published().own == 0 && !busy.contains(&s.session_id)
        };
        self.loaded().iter().filter(|session| is_idle(session)).map(|session| session.session_id.clone()).collect()
    }

    /// Forgets sessions; they are in the store, and are loaded again when somebody asks for them.
    pub fn let_go<'a>(&self, sessions: impl Iterator<Item = &'a SessionId>) {
        let gone: Vec<Arc<SessionHandle>> =
            sessions.filter_map(|id| self.sessions.remove(id)).map(|(_, session)| session).collect();
        if gone.is_empty() {
            return;
        }
        let ids: BTreeSet<&SessionId> = gone.iter().map(|session| &session.session_id).collect();
        self.borrowers.retain(|_, borrowers| {
            borrowers.retain(|session| !ids.contains(&session.session_id));
            !borrowers.is_empty()
        });
        tracing::debug!(sessions = gone.len(), "autonomous sessions without tasks are let go");
        let supervisor = self.supervisor.clone();
        tokio::spawn(async move {
            for session in gone {
                supervisor.stop_child(session.actor.name()).await;
            }
        });
    }
}

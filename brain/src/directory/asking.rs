//! Sessions hear that the open questions have changed. They read them themselves: one word that is under way is as good as ten.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use vance_brain_core::spec::Mode;
use vance_shared::ids::SessionId;
use vance_supervise::Refusal;

use super::{Directory, SessionHandle};
use crate::actors::session::LookAtQuestions;

impl SessionHandle {
    /// The session reads what is open from here on. Only its actor says so.
    pub fn looks_at_questions(&self) {
        self.looks.store(false, Ordering::Release);
    }

    fn look(&self) {
        if self.looks.swap(true, Ordering::AcqRel) {
            return;
        }
        match self.actor.tell(LookAtQuestions) {
            Ok(()) => {}
            Err(Refusal::Full) => {
                // Not dropped: it may be the last change for hours.
                let actor = self.actor.clone();
                tokio::spawn(async move { while actor.post(LookAtQuestions).await == Err(Refusal::Full) {} });
            }
            // It has no connections; with each that comes it looks anyway.
            Err(Refusal::Restarting | Refusal::Stopped) => self.looks_at_questions(),
        }
    }
}

impl Directory {
    /// A session that is loaded.
    pub fn loaded_one(&self, session_id: &SessionId) -> Option<Arc<SessionHandle>> {
        self.sessions.get(session_id).map(|session| session.clone())
    }

    /// The questions of a session have changed: its clients are told, and of one in which no client is expected its owner's others.
    pub fn look_at_questions(&self, session: &SessionHandle) {
        session.look();
        if session.mode == Mode::Autonomous {
            for other in self.loaded().iter().filter(|other| other.lends_to(session)) {
                other.look();
            }
        }
    }
}

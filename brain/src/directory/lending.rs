//! One client in many sessions: whoever is attached to one session of its owner also serves the owner's autonomous ones.
//!
//! Nobody expects a client in an autonomous session, so nobody would connect one to it: what is queued there goes on with the
//! client that comes anywhere. Its calls stay with the session that it is attached to; the others only see it in their view.

use std::sync::Arc;

use vance_brain_core::registry::{ClientView, SessionView};
use vance_brain_core::spec::Mode;
use vance_shared::ids::SessionId;

use super::{Directory, Published, SessionHandle};
use crate::actors::scheduler::{Presence, Presences, online};
use crate::hub::Brain;

impl SessionHandle {
    /// Puts another session's clients into the view, in place of those that it lent before. Gives the revision.
    fn borrow_from(&self, lender: &SessionId, clients: &[ClientView]) -> u64 {
        self.change(|old| {
            let mut view = old.view.clients.get(..old.own).unwrap_or_default().to_vec();
            let mut lenders = Vec::new();
            let before = old.view.clients.iter().skip(old.own).zip(&old.lenders);
            let lent = clients.iter().map(|client| (client, lender));
            for (client, from) in before.filter(|(_, from)| *from != lender).chain(lent) {
                view.push(client.clone());
                lenders.push(from.clone());
            }
            (view, old.own, lenders)
        })
    }

    /// A view with the next revision.
    pub(super) fn change(&self, next: impl Fn(&Published) -> (Vec<ClientView>, usize, Vec<SessionId>)) -> u64 {
        let revision = self.revision.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        self.view.rcu(|old| {
            let (clients, own, lenders) = next(old);
            let view = SessionView { clients, known: old.view.known.clone() };
            Arc::new(Published { revision, view, own, lenders })
        });
        revision
    }

    pub(super) fn lends_to(&self, other: &Self) -> bool {
        self.mode == Mode::Interactive && other.mode == Mode::Autonomous && self.owner == other.owner
    }
}

impl Directory {
    /// Shows a session's clients to those that borrow them. False: the scheduler has not heard of all of it.
    pub fn lend(&self, brain: &Brain, lender: &SessionHandle) -> bool {
        if lender.mode == Mode::Autonomous {
            return true;
        }
        let published = lender.published();
        let own = published.view.clients.get(..published.own).unwrap_or_default();
        let borrowers = self.borrowers.get(&lender.owner).map(|b| b.clone()).unwrap_or_default();
        let told: Vec<Presence> = borrowers.iter().map(|session| lend(lender, own, session)).collect();
        // One message: a thousand of them, said again until each has found room, would leave room for nothing else.
        told.is_empty() || brain.scheduler.tell(Presences(told)).is_ok()
    }

    /// A session that was just made or loaded: it borrows what is there.
    pub(super) fn settle(&self, brain: &Brain, session: &Arc<SessionHandle>) {
        if session.mode != Mode::Autonomous {
            return;
        }
        self.borrowers.entry(session.owner.clone()).or_default().push(session.clone());
        for lender in self.loaded().iter().filter(|lender| lender.lends_to(session)) {
            let published = lender.published();
            let own = published.view.clients.get(..published.own).unwrap_or_default();
            if !own.is_empty() && brain.scheduler.tell(lend(lender, own, session)).is_err() {
                // It reads all views when it is back.
                tracing::warn!(session_id = %session.session_id, "the scheduler did not take a view");
            }
        }
    }
}

fn lend(lender: &SessionHandle, clients: &[ClientView], session: &SessionHandle) -> Presence {
    let revision = session.borrow_from(&lender.session_id, clients);
    let online = online(&session.published().view.clients);
    Presence { session_id: session.session_id.clone(), revision, online }
}

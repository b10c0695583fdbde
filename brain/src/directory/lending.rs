//! One client in many sessions: whoever is attached to one session of its owner also serves the owner's autonomous ones, and those
//! that it names.
//!
//! Nobody expects a client in an autonomous session, so nobody would connect one to it: what is queued there goes on with the
//! client that comes anywhere. Its calls stay with the session that it is attached to; the others only see it in their view.

use std::collections::BTreeSet;
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
        let named = || self.published().view.clients.iter().any(|client| client.also.contains(&other.session_id));
        self.mode == Mode::Interactive && self.owner == other.owner && (other.mode == Mode::Autonomous || named())
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
        let mut told = self.lend_to_named(lender, own);
        told.extend(borrowers.iter().map(|session| lend(lender, own, session)));
        // One message: a thousand of them, said again until each has found room, would leave room for nothing else.
        told.is_empty() || brain.scheduler.tell(Presences(told)).is_ok()
    }

    /// To the sessions that its clients name, and to those that they named before.
    fn lend_to_named(&self, lender: &SessionHandle, own: &[ClientView]) -> Vec<Presence> {
        let named: BTreeSet<SessionId> = own.iter().flat_map(|client| client.also.iter().cloned()).collect();
        if named.is_empty() && !self.lends.contains_key(&lender.session_id) {
            return Vec::new();
        }
        let before = match named.is_empty() {
            true => self.lends.remove(&lender.session_id).map(|(_, before)| before),
            false => self.lends.insert(lender.session_id.clone(), named.clone()),
        };
        let all: BTreeSet<SessionId> = named.into_iter().chain(before.unwrap_or_default()).collect();
        let theirs = |id: &SessionId| self.sessions.get(id).map(|session| session.clone());
        let fit = |session: &Arc<SessionHandle>| session.mode == Mode::Interactive && session.owner == lender.owner;
        let sessions = all.iter().filter_map(theirs).filter(fit);
        sessions.map(|session| lend(lender, &naming(own, &session), &session)).collect()
    }

    /// A session that was just made or loaded: it borrows what is there.
    pub(super) fn settle(&self, brain: &Brain, session: &Arc<SessionHandle>) {
        if session.mode != Mode::Autonomous {
            let naming_it = self.lends.iter().filter(|entry| entry.value().contains(&session.session_id));
            let lenders: Vec<SessionId> = naming_it.map(|entry| entry.key().clone()).collect();
            for lender in lenders.iter().filter_map(|id| self.sessions.get(id).map(|lender| lender.clone())) {
                let published = lender.published();
                let own = published.view.clients.get(..published.own).unwrap_or_default();
                tell(brain, lend(&lender, &naming(own, session), session));
            }
            return;
        }
        self.borrowers.entry(session.owner.clone()).or_default().push(session.clone());
        for lender in self.loaded().iter().filter(|lender| lender.lends_to(session)) {
            let published = lender.published();
            let own = published.view.clients.get(..published.own).unwrap_or_default();
            if !own.is_empty() {
                tell(brain, lend(lender, own, session));
            }
        }
    }
}

/// The scheduler reads all views when it is back.
fn tell(brain: &Brain, presence: Presence) {
    let session_id = presence.session_id.clone();
    if brain.scheduler.tell(presence).is_err() {
        tracing::warn!(%session_id, "the scheduler did not take a view");
    }
}

/// Those that name a session.
fn naming(clients: &[ClientView], session: &SessionHandle) -> Vec<ClientView> {
    clients.iter().filter(|client| client.also.contains(&session.session_id)).cloned().collect()
}

fn lend(lender: &SessionHandle, clients: &[ClientView], session: &SessionHandle) -> Presence {
    let revision = session.borrow_from(&lender.session_id, clients);
    let online = online(&session.published().view.clients);
    Presence { session_id: session.session_id.clone(), revision, online }
}

//! Who waits for what: an index from tool and client to waiting tasks, so that waking never scans all of them.
//!
//! A wake-up that is not needed costs one more look; one that is lost costs the task. So whoever may have missed something looks
//! again, but at most once for each view.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use vance_shared::ids::{ClientId, SessionId, TaskId};
use vance_shared::names::ToolName;

use super::{Board, Offer, Order, Stand};
use crate::task::Wait;

/// Who waits longer is before: those of before a restart by time, the others as they came.
pub(super) type ParkOrder = (i64, u64);

/// Since when one waits that began after the last start.
const AS_THEY_CAME: i64 = i64::MAX;

/// A task that waits for a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Which.
    pub task_id: TaskId,
    /// The file's id.
    pub id: String,
    /// For which tool.
    pub tool: ToolName,
}

#[derive(Debug, Default)]
pub(super) struct SessionIndex {
    /// The revision of the view that the board knows.
    revision: u64,
    online: HashMap<ClientId, Offer>,
    /// Waiting tasks by tool, in the order in which they came.
    by_tool: HashMap<ToolName, BTreeMap<ParkOrder, TaskId>>,
    /// Waiting tasks that know more than the board: they decided on a view that the board has not been told yet.
    ahead: BTreeSet<TaskId>,
}

/// A client may be in another session than the tasks that wait for it: it went there with their calls.
#[derive(Debug, Default)]
pub(super) struct ClientIndex {
    /// Sessions in which it is online.
    online_in: BTreeSet<SessionId>,
    waiting: BTreeSet<TaskId>,
}

impl ClientIndex {
    pub(super) fn is_in(&self, session_id: &SessionId) -> bool {
        self.online_in.contains(session_id)
    }
}

impl SessionIndex {
    pub(super) fn clients(self) -> Vec<ClientId> {
        self.online.into_keys().collect()
    }

    fn has(&self, wait: &Wait, wake_on: &[ToolName]) -> bool {
        match wait {
            Wait::Client { .. } => self.online.values().any(|offer| wake_on.iter().any(|t| offer.contains(t))),
            Wait::Suspended { client_id, .. } => self.online.contains_key(client_id),
            // It waits for a person, whoever is there.
            Wait::Answer { .. } | Wait::Unknown { .. } => false,
        }
    }
}

impl Board {
    /// A task waits. `seen`: the revision of the session's view that it decided on; a newer one wakes it at once.
    pub fn parked(&mut self, id: &TaskId, wait: Wait, wake_on: &[ToolName], seen: u64) -> Vec<Order> {
        let mut out = Vec::new();
        let Some(node) = self.nodes.get(id) else { return out };
        match node.stand {
            // Ready: it is told to look again anyway.
            Stand::Done(_) | Stand::Reviving(_) | Stand::Ready => return out,
            Stand::Waiting | Stand::Running | Stand::Resting | Stand::Around | Stand::Parked(_) => {}
        }
        let (woken_at, server_seen) = (node.woken_at.clone(), node.server_seen);
        let own = node.entry.session_id.clone();
        let place = self.whereabouts(&wait, &own);
        let session = self.sessions.entry(place.clone()).or_default();
        let there = session.has(&wait, wake_on);
        // Of another session's view the task has seen nothing.
        let unseen = place != own || session.revision > seen;
        let newer = there && unseen && woken_at != Some((place.clone(), session.revision));
        let behind = match wait {
            Wait::Client { .. } => seen > session.revision,
            // The board thinks that the client is there, the task knows better.
            Wait::Suspended { .. } => there,
            Wait::Answer { .. } | Wait::Unknown { .. } => false,
        };
        if behind {
            session.ahead.insert(id.clone());
        }
        let server_changed = matches!(wait, Wait::Client { .. }) && self.server_changes > server_seen;
        self.park(id, wait, wake_on, seen);
        if newer || server_changed {
            self.wake(id, &place);
        }
        self.fill_slots(&mut out);
        out
    }

    /// The session whose view decides: its own, unless the client that it waits for is in another.
    fn whereabouts(&self, wait: &Wait, own: &SessionId) -> SessionId {
        let Wait::Suspended { client_id, .. } = wait else { return own.clone() };
        match self.clients.get(client_id) {
            Some(client) if !client.is_in(own) => client.online_in.first().unwrap_or(own).clone(),
            Some(_) | None => own.clone(),
        }
    }

    fn park(&mut self, id: &TaskId, wait: Wait, wake_on: &[ToolName], seen: u64) {
        self.park_in(id, wait, wake_on, seen, AS_THEY_CAME);
    }

    pub(super) fn park_in(&mut self, id: &TaskId, wait: Wait, wake_on: &[ToolName], seen: u64, since: i64) {
        self.unindex(id);
        self.parks += 1;
        let order = (since, self.parks);
        let Some(node) = self.nodes.get_mut(id) else { return };
        (node.park_order, node.seen) = (order, seen);
        node.entry.wake_on = wake_on.to_vec();
        let session = self.sessions.entry(node.entry.session_id.clone()).or_default();
        match &wait {
            Wait::Client { .. } => {
                for tool in wake_on {
                    session.by_tool.entry(tool.clone()).or_default().insert(order, id.clone());
                }
            }
            // One that waits for an answer asks how its call stands when the client is back, too.
            Wait::Suspended { client_id, .. } | Wait::Answer { client_id: Some(client_id), .. } => {
                self.clients.entry(client_id.clone()).or_default().waiting.insert(id.clone());
            }
            Wait::Answer { client_id: None, .. } | Wait::Unknown { .. } => {}
        }
        self.set(id, Stand::Parked(wait));
    }

    pub(super) fn unindex(&mut self, id: &TaskId) {
        let Some(node) = self.nodes.get(id) else { return };
        let Stand::Parked(wait) = &node.stand else { return };
        let Some(session) = self.sessions.get_mut(&node.entry.session_id) else { return };
        match wait {
            Wait::Client { .. } => {
                for tool in &node.entry.wake_on {
                    if let Some(waiting) = session.by_tool.get_mut(tool) {
                        waiting.remove(&node.park_order);
                        if waiting.is_empty() {
                            session.by_tool.remove(tool);
                        }
                    }
                }
            }
            Wait::Suspended { client_id, .. } | Wait::Answer { client_id: Some(client_id), .. } => {
                if let Some(client) = self.clients.get_mut(client_id) {
                    client.waiting.remove(id);
                    if client.waiting.is_empty() && client.online_in.is_empty() {
                        self.clients.remove(client_id);
                    }
                }
            }
            Wait::Answer { client_id: None, .. } | Wait::Unknown { .. } => {}
        }
    }

    /// `by`: the session whose view wakes it.
    fn wake(&mut self, id: &TaskId, by: &SessionId) {
        let Some(node) = self.nodes.get_mut(id).filter(|n| matches!(n.stand, Stand::Parked(_))) else { return };
        if let Some(session) = self.sessions.get_mut(by) {
            node.woken_at = Some((by.clone(), session.revision));
            session.ahead.remove(id);
        }
        self.unindex(id);
        self.make_ready(id);
    }

    /// The clients of a session that are online, with what they offer.
    pub fn presence(&mut self, session_id: &SessionId, revision: u64, online: HashMap<ClientId, Offer>) -> Vec<Order> {
        let session = self.sessions.entry(session_id.clone()).or_default();
        if revision <= session.revision {
            return Vec::new();
        }
        let mut woken: BTreeMap<ParkOrder, TaskId> = BTreeMap::new();
        for (client_id, offer) in &online {
            let before = session.online.get(client_id);
            let is_new = |tool: &ToolName| offer.contains(tool) && before.is_none_or(|b| !b.contains(tool));
            for (_, waiting) in session.by_tool.iter().filter(|(tool, _)| is_new(tool)) {
                woken.extend(waiting.iter().map(|(order, id)| (*order, id.clone())));
            }
            if before.is_none() {
                let client = self.clients.entry(client_id.clone()).or_default();
                client.online_in.insert(session_id.clone());
                for id in &client.waiting {
                    let order = self.nodes.get(id).map_or(ParkOrder::default(), |n| n.park_order);
                    woken.insert(order, id.clone());
                }
            }
        }
        let gone: Vec<ClientId> = session.online.keys().filter(|id| !online.contains_key(*id)).cloned().collect();
        (session.revision, session.online) = (revision, online);
        // What came between the board's last view and this one may have been missed: a client that left and came back.
        let ahead = std::mem::take(&mut session.ahead);
        for id in ahead {
            let Some(node) = self.nodes.get(&id) else { continue };
            let Stand::Parked(wait) = &node.stand else { continue };
            if matches!(wait, Wait::Client { .. }) && node.seen > revision {
                session.ahead.insert(id);
            } else if session.has(wait, &node.entry.wake_on)
                && (node.seen < revision || matches!(wait, Wait::Suspended { .. }))
            {
                woken.insert(node.park_order, id);
            }
        }
        self.left(session_id, gone);
        for id in woken.values() {
            self.wake(id, session_id);
        }
        let mut out = Vec::new();
        self.fill_slots(&mut out);
        out
    }

    /// Clients are in a session no more.
    pub(super) fn left(&mut self, session_id: &SessionId, gone: Vec<ClientId>) {
        for client_id in gone {
            if let Some(client) = self.clients.get_mut(&client_id) {
                client.online_in.remove(session_id);
                if client.waiting.is_empty() && client.online_in.is_empty() {
                    self.clients.remove(&client_id);
                }
            }
        }
    }

    /// The server's tools changed: whoever waits for a client with a tool that this may concern looks again.
    pub fn server_tools_changed(&mut self, concerns: &dyn Fn(&ToolName) -> bool) -> Vec<Order> {
        self.server_changes += 1;
        let all = self.sessions.values().flat_map(|s| s.by_tool.values()).flatten();
        let may_go = |id: &TaskId| match self.nodes.get(id).map(|node| &node.stand) {
            Some(Stand::Parked(Wait::Client { tool, .. })) => concerns(tool),
            Some(_) | None => false,
        };
        let waiting: BTreeMap<ParkOrder, TaskId> =
            all.filter(|(_, id)| may_go(id)).map(|(order, id)| (*order, id.clone())).collect();
        for id in waiting.values() {
            let Some(own) = self.nodes.get(id).map(|n| n.entry.session_id.clone()) else { continue };
            self.wake(id, &own);
        }
        let mut out = Vec::new();
        self.fill_slots(&mut out);
        out
    }

    /// The session's pending-client queue, first in first out.
    pub fn queue(&self, session_id: &SessionId) -> Vec<Waiting> {
        let Some(session) = self.sessions.get(session_id) else { return Vec::new() };
        let queued = |id: &TaskId| {
            let node = self.nodes.get(id)?;
            let Stand::Parked(Wait::Client { tool, queued: true }) = &node.stand else { return None };
            Some(Waiting { task_id: id.clone(), id: node.entry.id.clone(), tool: tool.clone() })
        };
        let all: BTreeMap<ParkOrder, &TaskId> =
            session.by_tool.values().flatten().map(|(order, id)| (*order, id)).collect();
        all.into_values().filter_map(queued).collect()
    }

    /// A task runs again after waiting (its call was picked up without a slot being asked for).
    pub fn resumed(&mut self, id: &TaskId) {
        if self.nodes.get(id).is_some_and(|n| matches!(n.stand, Stand::Parked(_) | Stand::Resting)) {
            self.unindex(id);
            self.set(id, Stand::Running);
        }
    }
}

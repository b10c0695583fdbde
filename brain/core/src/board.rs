//! Which task may run now: dependencies, slots, and an index from what is missing to who waits for it.
//!
//! The board decides, task actors run. A waiting task holds no slot. Waking is driven by the index (session and tool, or
//! client), never by a scan over all tasks.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use vance_shared::ids::{CallId, ClientId, SessionId, TaskId, TreeId};
use vance_shared::names::ToolName;

use crate::spec::RunIf;
use crate::task::{ChildrenEnd, Input, State, Wait};

mod idle;
mod limits;
mod rest;
mod retry;
mod slots;
#[cfg(test)]
mod tests;
mod waiting;

use limits::{Limits, Scope};
use slots::Ready;
use waiting::{ClientIndex, ParkOrder, SessionIndex};

pub use waiting::Waiting;

/// A task as the board takes it, new or from the store.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Identity.
    pub task_id: TaskId,
    /// The file's id.
    pub id: String,
    /// The tree.
    pub tree_id: TreeId,
    /// The session.
    pub session_id: SessionId,
    /// The task around it.
    pub parent: Option<TaskId>,
    /// It waits for children.
    pub has_children: bool,
    /// What must be done first.
    pub depends_on: Vec<TaskId>,
    /// Runs after failure too.
    pub run_if: RunIf,
    /// Where it stands.
    pub state: State,
    /// What it waits for.
    pub wait: Option<Wait>,
    /// Names under which a client may offer the tool that it waits for.
    pub wake_on: Vec<ToolName>,
    /// Its open call on a client.
    pub held: Option<(CallId, ClientId)>,
    /// Tasks below it that may have a slot at once.
    pub max_parallel: Option<u32>,
    /// Tasks of its tree that may have a slot at once.
    pub tree_max_parallel: Option<u32>,
    /// No client is expected: how its tree stands is said when nothing runs any more.
    pub autonomous: bool,
    /// Of one that waits: since when, in milliseconds since 1970. So queues keep their order over a restart.
    pub waits_since: i64,
}

/// What the board wants done, in this order.
#[derive(Debug, Clone, PartialEq)]
pub struct Order {
    /// To whom.
    pub task_id: TaskId,
    /// What.
    pub input: Input,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Stand {
    /// Dependencies or the parent's start are missing.
    Waiting,
    /// In the ready queue.
    Ready,
    /// Has a slot.
    Running,
    /// Looks again by itself after a pause; holds no slot meanwhile.
    Resting,
    /// Runs through its children; holds no slot.
    Around,
    /// Waits for something outside.
    Parked(Wait),
    Done(State),
    /// It ended so, and a retry of it is being stored: until that is through, nothing is concluded from its end.
    Reviving(State),
}

impl Stand {
    fn has_ended(&self) -> bool {
        matches!(self, Self::Done(_) | Self::Reviving(_))
    }

    /// It will go on by itself.
    fn is_busy(&self) -> bool {
        matches!(self, Self::Ready | Self::Running | Self::Resting)
    }
}

#[derive(Debug)]
struct Node {
    entry: Entry,
    stand: Stand,
    children: Vec<TaskId>,
    dependents: Vec<TaskId>,
    /// Place in the queue of those that wait for the same tool.
    park_order: ParkOrder,
    /// The revision of the view on which it decided to wait.
    seen: u64,
    /// The view that woke it last, a session's at a revision: one view wakes a task once.
    woken_at: Option<(SessionId, u64)>,
    /// `server_changes` when it was last told to start.
    server_seen: u64,
}

/// Tools that a client offers, by name.
pub type Offer = Arc<HashSet<ToolName>>;

/// All live trees.
#[derive(Debug)]
pub struct Board {
    nodes: HashMap<TaskId, Node>,
    live: HashMap<TreeId, usize>,
    members: HashMap<TreeId, Vec<TaskId>>,
    sessions: HashMap<SessionId, SessionIndex>,
    clients: HashMap<ClientId, ClientIndex>,
    held: HashMap<CallId, (TaskId, ClientId)>,
    held_by_client: HashMap<ClientId, BTreeSet<CallId>>,
    ready: Ready,
    limits: Limits,
    /// Of autonomous trees: tasks that run or are about to.
    busy: HashMap<TreeId, usize>,
    /// Those in which nothing runs any more, until somebody asks.
    at_rest: HashSet<TreeId>,
    slots: usize,
    parks: u64,
    /// How often the server's tools changed.
    server_changes: u64,
    /// Tasks that were told to end and have not said that they did.
    ending: HashMap<TreeId, HashSet<TaskId>>,
}

impl Board {
    /// A board that runs at most `slots` tasks at once.
    pub fn new(slots: usize) -> Self {
        Self {
            nodes: HashMap::new(),
            live: HashMap::new(),
            members: HashMap::new(),
            sessions: HashMap::new(),
            clients: HashMap::new(),
            held: HashMap::new(),
            held_by_client: HashMap::new(),
            ready: Ready::default(),
            limits: Limits::default(),
            busy: HashMap::new(),
            at_rest: HashSet::new(),
            slots,
            parks: 0,
            server_changes: 0,
            ending: HashMap::new(),
        }
    }

    /// Takes a whole tree, new or from the store. A tree that is already there is left alone.
    pub fn add(&mut self, entries: Vec<Entry>) -> Vec<Order> {
        let Some(tree_id) = entries.first().map(|e| e.tree_id.clone()) else { return Vec::new() };
        if self.members.contains_key(&tree_id) {
            return Vec::new();
        }
        let ids: Vec<TaskId> = entries.iter().map(|e| e.task_id.clone()).collect();
        let live = entries.iter().filter(|e| !e.state.is_terminal()).count();
        self.members.insert(tree_id.clone(), ids.clone());
        self.live.insert(tree_id, live);
        for entry in entries {
            self.note_limits(&entry);
            let stand = if entry.state.is_terminal() { Stand::Done(entry.state) } else { Stand::Waiting };
            let node = Node {
                entry,
                stand,
                children: Vec::new(),
                dependents: Vec::new(),
                park_order: ParkOrder::default(),
                seen: 0,
                woken_at: None,
                server_seen: 0,
            };
            self.nodes.insert(node.entry.task_id.clone(), node);
        }
        for id in &ids {
            self.link(id);
        }
        for id in &ids {
            self.restore(id);
        }
        let mut out = Vec::new();
        for id in &ids {
            self.consider(id, &mut out);
        }
        for id in &ids {
            self.maybe_children_ended(id, &mut out);
            let Some(node) = self.nodes.get(id) else { continue };
            if let Stand::Done(State::Failed | State::Cancelled) = node.stand {
                self.stop_children(&node.children.clone(), id, &mut out);
            }
        }
        self.fill_slots(&mut out);
        out
    }

    fn link(&mut self, id: &TaskId) {
        let Some(node) = self.nodes.get(id) else { return };
        let (parent, depends_on) = (node.entry.parent.clone(), node.entry.depends_on.clone());
        if let Some(parent) = parent.and_then(|p| self.nodes.get_mut(&p)) {
            parent.children.push(id.clone());
        }
        for dependency in depends_on {
            if let Some(dependency) = self.nodes.get_mut(&dependency) {
                dependency.dependents.push(id.clone());
            }
        }
    }

    /// Puts a task that was under way when the Brain stopped back to where it stood.
    fn restore(&mut self, id: &TaskId) {
        let Some(node) = self.nodes.get(id) else { return };
        let entry = node.entry.clone();
        if let Some((call_id, client_id)) = entry.held {
            self.call_placed(id, call_id, client_id);
        }
        match (entry.state, entry.wait) {
            (State::Running, _) if entry.has_children => self.set(id, Stand::Around),
            (State::Running, _) | (State::Blocked | State::Queued, None) => self.make_ready(id),
            // What asked was a process of the Brain: it looks whether that is still there.
            (State::Blocked, Some(Wait::Answer { client_id: None, .. })) => self.make_ready(id),
            (State::Blocked | State::Queued, Some(wait)) => {
                self.park_in(id, wait, &entry.wake_on, 0, entry.waits_since);
            }
            (State::Pending | State::Completed | State::Failed | State::Cancelled | State::Skipped, _) => {}
        }
    }

    fn set(&mut self, id: &TaskId, stand: Stand) {
        let Some(node) = self.nodes.get_mut(id) else { return };
        let before = std::mem::replace(&mut node.stand, stand);
        let (was, is) = (before == Stand::Running, node.stand == Stand::Running);
        let (was_busy, is_busy) = (before.is_busy(), node.stand.is_busy());
        match (was, is) {
            (true, false) => self.ready.ended(&node.entry.session_id),
            (false, true) => self.ready.began(&node.entry.session_id),
            (true, true) | (false, false) => {}
        }
        if node.entry.autonomous && was_busy != is_busy {
            let tree_id = node.entry.tree_id.clone();
            self.count_busy(tree_id, is_busy);
        }
        if was != is && !self.limits.is_empty() {
            self.slot_changed(id, is);
        }
    }

    fn make_ready(&mut self, id: &TaskId) {
        self.set(id, Stand::Ready);
        self.push_ready(id);
    }

    fn push_ready(&mut self, id: &TaskId) {
        if let Some(node) = self.nodes.get(id) {
            self.ready.push(&node.entry.session_id, id.clone());
        }
    }

    /// Starts or skips a pending task if its time has come.
    fn consider(&mut self, id: &TaskId, out: &mut Vec<Order>) {
        let Some(node) = self.nodes.get(id).filter(|n| n.stand == Stand::Waiting) else { return };
        if let Some(parent) = node.entry.parent.as_ref().and_then(|p| self.nodes.get(p)) {
            match &parent.stand {
                // Completed: a person retries a child that was skipped.
                Stand::Around | Stand::Done(State::Completed) => {}
                Stand::Done(state) => {
                    let name = &parent.entry.id;
                    let input = match state {
                        State::Cancelled => Input::Cancel { reason: format!("parent task {name} was cancelled") },
                        _ => Input::DependencyFailed { reason: format!("parent task {name} {}", past(*state)) },
                    };
                    return self.tell_to_end(id, input, out);
                }
                Stand::Waiting
                | Stand::Ready
                | Stand::Running
                | Stand::Resting
                | Stand::Parked(_)
                | Stand::Reviving(_) => return,
            }
        }
        let mut open = false;
        for dependency in &node.entry.depends_on {
            match self.nodes.get(dependency).map(|d| (&d.stand, &d.entry.id)) {
                Some((Stand::Done(State::Completed), _)) | None => {}
                Some((Stand::Done(state), name)) if node.entry.run_if == RunIf::Success => {
                    let reason = format!("dependency {name} {}", past(*state));
                    return self.tell_to_end(id, Input::DependencyFailed { reason }, out);
                }
                Some((Stand::Done(_), _)) => {}
                Some(_) => open = true,
            }
        }
        if !open {
            self.make_ready(id);
        }
    }

    fn fill_slots(&mut self, out: &mut Vec<Order>) {
        while self.ready.running() < self.slots {
            let Some(id) = self.ready.pop() else { return };
            if self.nodes.get(&id).is_some_and(|n| n.stand == Stand::Ready) && self.has_room(&id) {
                self.set(&id, Stand::Running);
                let server_changes = self.server_changes;
                if let Some(node) = self.nodes.get_mut(&id) {
                    node.server_seen = server_changes;
                }
                out.push(Order { task_id: id, input: Input::Start });
            }
        }
    }

    /// A task with children runs: its children may.
    pub fn children_may_run(&mut self, id: &TaskId) -> Vec<Order> {
        let mut out = Vec::new();
        if self.nodes.get(id).is_some_and(|n| !n.stand.has_ended()) {
            self.set(id, Stand::Around);
            for child in self.nodes.get(id).map(|n| n.children.clone()).unwrap_or_default() {
                self.consider(&child, &mut out);
            }
            self.maybe_children_ended(id, &mut out);
        }
        self.fill_slots(&mut out);
        out
    }

    /// A task ended.
    pub fn ended(&mut self, id: &TaskId, state: State) -> Vec<Order> {
        let mut out = Vec::new();
        let Some(node) = self.nodes.get(id).filter(|n| !n.stand.has_ended()) else { return out };
        let (tree_id, parent) = (node.entry.tree_id.clone(), node.entry.parent.clone());
        let (children, dependents) = (node.children.clone(), node.dependents.clone());
        self.unindex(id);
        self.set(id, Stand::Done(state));
        self.has_said_so(&tree_id, id);
        for next in children.iter().chain(&dependents) {
            self.consider(next, &mut out);
        }
        if state == State::Cancelled || state == State::Failed {
            self.stop_children(&children, id, &mut out);
        }
        if let Some(parent) = parent {
            self.maybe_children_ended(&parent, &mut out);
        }
        self.one_less(&tree_id);
        self.fill_slots(&mut out);
        out
    }

    /// A tree without live tasks is forgotten.
    fn one_less(&mut self, tree_id: &TreeId) {
        let live = self.live.get_mut(tree_id).map_or(0, |live| {
            *live = live.saturating_sub(1);
            *live
        });
        if live == 0 {
            self.forget(tree_id);
        }
    }

    /// Children that are under way end with their parent.
    fn stop_children(&mut self, children: &[TaskId], parent: &TaskId, out: &mut Vec<Order>) {
        let name = self.nodes.get(parent).map(|n| n.entry.id.clone()).unwrap_or_default();
        for child in children {
            let live = self.nodes.get(child).is_some_and(|n| n.stand != Stand::Waiting && !n.stand.has_ended());
            if live {
                let input = Input::Cancel { reason: format!("parent task {name} ended") };
                self.tell_to_end(child, input, out);
            }
        }
    }

    fn maybe_children_ended(&mut self, parent: &TaskId, out: &mut Vec<Order>) {
        let Some(node) = self.nodes.get(parent).filter(|n| n.stand == Stand::Around) else { return };
        let mut end = ChildrenEnd::Done;
        for child in node.children.iter().filter_map(|c| self.nodes.get(c)) {
            match child.stand {
                Stand::Done(State::Failed) => end = ChildrenEnd::Failed { child: child.entry.id.clone() },
                Stand::Done(State::Cancelled) if end == ChildrenEnd::Done => {
                    end = ChildrenEnd::Cancelled { child: child.entry.id.clone() };
                }
                Stand::Done(_) => {}
                Stand::Waiting
                | Stand::Ready
                | Stand::Running
                | Stand::Resting
                | Stand::Around
                | Stand::Parked(_)
                | Stand::Reviving(_) => return,
            }
        }
        self.tell_to_end(parent, Input::ChildrenEnded(end), out);
    }

    fn forget(&mut self, tree_id: &TreeId) {
        self.live.remove(tree_id);
        self.busy.remove(tree_id);
        self.ending.remove(tree_id);
        self.limits.forget(&Scope::Tree(tree_id.clone()));
        for id in self.members.remove(tree_id).unwrap_or_default() {
            if self.nodes.remove(&id).is_some_and(|node| node.entry.max_parallel.is_some()) {
                self.limits.forget(&Scope::Below(id));
            }
        }
    }

    /// The task has an open call on a client.
    pub fn call_placed(&mut self, id: &TaskId, call_id: CallId, client_id: ClientId) {
        self.held_by_client.entry(client_id.clone()).or_default().insert(call_id.clone());
        self.held.insert(call_id, (id.clone(), client_id));
    }

    /// The call has an outcome.
    pub fn call_closed(&mut self, call_id: &CallId) {
        let Some((_, client_id)) = self.held.remove(call_id) else { return };
        if let Some(calls) = self.held_by_client.get_mut(&client_id) {
            calls.remove(call_id);
            if calls.is_empty() {
                self.held_by_client.remove(&client_id);
            }
        }
    }

    /// Calls that tasks hold open on a client.
    pub fn held_on(&self, client_id: &ClientId) -> BTreeSet<CallId> {
        self.held_by_client.get(client_id).cloned().unwrap_or_default()
    }

    /// Tasks of a session that hold a call open on a client, and any that hold one on a client which is there, with the call.
    pub fn holders_in(&self, session_id: &SessionId) -> Vec<(TaskId, CallId)> {
        let mine = |task: &TaskId| self.nodes.get(task).is_some_and(|n| n.entry.session_id == *session_id);
        let here = |client: &ClientId| self.clients.get(client).is_some_and(|c| c.is_in(session_id));
        self.held
            .iter()
            .filter(|(_, (task, client))| mine(task) || here(client))
            .map(|(call, (task, _))| (task.clone(), call.clone()))
            .collect()
    }

    /// The task that holds a call open on that client.
    pub fn holder(&self, call_id: &CallId, client_id: &ClientId) -> Option<TaskId> {
        self.held.get(call_id).filter(|(_, c)| c == client_id).map(|(task, _)| task.clone())
    }

    /// What the board knows of a task of a live tree.
    pub fn entry(&self, id: &TaskId) -> Option<&Entry> {
        self.nodes.get(id).map(|node| &node.entry)
    }

    /// True if the board has the task: its tree is live.
    pub fn has(&self, id: &TaskId) -> bool {
        self.nodes.contains_key(id)
    }

    /// Tasks that run now, and those that wait for something outside.
    pub fn counts(&self) -> (usize, usize) {
        let parked = self.nodes.values().filter(|n| matches!(n.stand, Stand::Parked(_))).count();
        (self.ready.running(), parked)
    }

    /// Live trees.
    pub fn trees(&self) -> usize {
        self.members.len()
    }
}

fn past(state: State) -> &'static str {
    match state {
        State::Failed => "failed",
        State::Cancelled => "was cancelled",
        State::Skipped => "was skipped",
        State::Pending | State::Running | State::Blocked | State::Queued | State::Completed => state.word(),
    }
}

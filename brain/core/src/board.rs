//! Which task may run now: dependencies, slots, and an index from what is missing to who waits for it.
//!
//! The board decides, task actors run. A waiting task holds no slot. Waking is driven by the index (session and tool, or
//! client), never by a scan over all tasks.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use vance_shared::ids::{CallId, ClientId, SessionId, TaskId, TreeId};
use vance_shared::names::ToolName;

use crate::spec::RunIf;
use crate::task::{ChildrenEnd, Input, State, Wait};

#[cfg(test)]
mod tests;

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
    /// Runs through its children; holds no slot.
    Around,
    /// Waits for something outside.
    Parked(Wait),
    Done(State),
}

#[derive(Debug)]
struct Node {
    entry: Entry,
    stand: Stand,
    children: Vec<TaskId>,
    dependents: Vec<TaskId>,
    /// Place in the queue of those that wait for the same tool.
    park_order: u64,
}

/// Tools that a client offers, by name.
pub type Offer = Arc<HashSet<ToolName>>;

#[derive(Debug, Default)]
struct SessionIndex {
    /// The revision of the view that the board knows.
    revision: u64,
    online: HashMap<ClientId, Offer>,
    /// Waiting tasks by tool, in the order in which they came.
    by_tool: HashMap<ToolName, BTreeMap<u64, TaskId>>,
    by_client: HashMap<ClientId, BTreeSet<TaskId>>,
}

/// All live trees.
#[derive(Debug)]
pub struct Board {
    nodes: HashMap<TaskId, Node>,
    live: HashMap<TreeId, usize>,
    members: HashMap<TreeId, Vec<TaskId>>,
    sessions: HashMap<SessionId, SessionIndex>,
    held: HashMap<CallId, (TaskId, ClientId)>,
    held_by_client: HashMap<ClientId, BTreeSet<CallId>>,
    ready: VecDeque<TaskId>,
    running: usize,
    slots: usize,
    parks: u64,
}

impl Board {
    /// A board that runs at most `slots` tasks at once.
    pub fn new(slots: usize) -> Self {
        Self {
            nodes: HashMap::new(),
            live: HashMap::new(),
            members: HashMap::new(),
            sessions: HashMap::new(),
            held: HashMap::new(),
            held_by_client: HashMap::new(),
            ready: VecDeque::new(),
            running: 0,
            slots,
            parks: 0,
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
            let stand = if entry.state.is_terminal() { Stand::Done(entry.state) } else { Stand::Waiting };
            let node = Node { entry, stand, children: Vec::new(), dependents: Vec::new(), park_order: 0 };
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
            (State::Blocked | State::Queued, Some(wait)) => self.park(id, wait, &entry.wake_on),
            (State::Pending | State::Completed | State::Failed | State::Cancelled | State::Skipped, _) => {}
        }
    }

    fn set(&mut self, id: &TaskId, stand: Stand) {
        if let Some(node) = self.nodes.get_mut(id) {
            if node.stand == Stand::Running {
                self.running -= 1;
            }
            if stand == Stand::Running {
                self.running += 1;
            }
            node.stand = stand;
        }
    }

    fn make_ready(&mut self, id: &TaskId) {
        self.set(id, Stand::Ready);
        self.ready.push_back(id.clone());
    }

    /// Starts or skips a pending task if its time has come.
    fn consider(&mut self, id: &TaskId, out: &mut Vec<Order>) {
        let Some(node) = self.nodes.get(id).filter(|n| n.stand == Stand::Waiting) else { return };
        if let Some(parent) = node.entry.parent.as_ref().and_then(|p| self.nodes.get(p)) {
            match &parent.stand {
                Stand::Around => {}
                Stand::Done(state) => {
                    let name = &parent.entry.id;
                    let input = match state {
                        State::Cancelled => Input::Cancel { reason: format!("parent task {name} was cancelled") },
                        _ => Input::DependencyFailed { reason: format!("parent task {name} {}", past(*state)) },
                    };
                    out.push(Order { task_id: id.clone(), input });
                    return;
                }
                Stand::Waiting | Stand::Ready | Stand::Running | Stand::Parked(_) => return,
            }
        }
        let mut open = false;
        for dependency in &node.entry.depends_on {
            match self.nodes.get(dependency).map(|d| (&d.stand, &d.entry.id)) {
                Some((Stand::Done(State::Completed), _)) | None => {}
                Some((Stand::Done(state), name)) if node.entry.run_if == RunIf::Success => {
                    let reason = format!("dependency {name} {}", past(*state));
                    out.push(Order { task_id: id.clone(), input: Input::DependencyFailed { reason } });
                    return;
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
        while self.running < self.slots {
            let Some(id) = self.ready.pop_front() else { return };
            if self.nodes.get(&id).is_some_and(|n| n.stand == Stand::Ready) {
                self.set(&id, Stand::Running);
                out.push(Order { task_id: id, input: Input::Start });
            }
        }
    }

    /// A task with children runs: its children may.
    pub fn children_may_run(&mut self, id: &TaskId) -> Vec<Order> {
        let mut out = Vec::new();
        if self.nodes.get(id).is_some_and(|n| !matches!(n.stand, Stand::Done(_))) {
            self.set(id, Stand::Around);
            for child in self.nodes.get(id).map(|n| n.children.clone()).unwrap_or_default() {
                self.consider(&child, &mut out);
            }
            self.maybe_children_ended(id, &mut out);
        }
        self.fill_slots(&mut out);
        out
    }

    /// A task waits. `seen`: the revision of the session's view that it decided on; a newer one wakes it at once.
    pub fn parked(&mut self, id: &TaskId, wait: Wait, wake_on: &[ToolName], seen: u64) -> Vec<Order> {
        let mut out = Vec::new();
        let Some(node) = self.nodes.get(id).filter(|n| !matches!(n.stand, Stand::Done(_))) else { return out };
        let session = self.sessions.entry(node.entry.session_id.clone()).or_default();
        let wake_now = match &wait {
            Wait::Client { .. } => {
                session.revision > seen
                    && session.online.values().any(|offer| wake_on.iter().any(|t| offer.contains(t)))
            }
            Wait::Suspended { client_id, .. } => session.online.contains_key(client_id),
            Wait::Unknown { .. } => false,
        };
        self.park(id, wait, wake_on);
        if wake_now {
            self.wake(id);
        }
        self.fill_slots(&mut out);
        out
    }

    fn park(&mut self, id: &TaskId, wait: Wait, wake_on: &[ToolName]) {
        self.unindex(id);
        self.parks += 1;
        let order = self.parks;
        let Some(node) = self.nodes.get_mut(id) else { return };
        node.park_order = order;
        node.entry.wake_on = wake_on.to_vec();
        let session = self.sessions.entry(node.entry.session_id.clone()).or_default();
        match &wait {
            Wait::Client { .. } => {
                for tool in wake_on {
                    session.by_tool.entry(tool.clone()).or_default().insert(order, id.clone());
                }
            }
            Wait::Suspended { client_id, .. } => {
                session.by_client.entry(client_id.clone()).or_default().insert(id.clone());
            }
            Wait::Unknown { .. } => {}
        }
        self.set(id, Stand::Parked(wait));
    }

    fn unindex(&mut self, id: &TaskId) {
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
            Wait::Suspended { client_id, .. } => {
                if let Some(waiting) = session.by_client.get_mut(client_id) {
                    waiting.remove(id);
                    if waiting.is_empty() {
                        session.by_client.remove(client_id);
                    }
                }
            }
            Wait::Unknown { .. } => {}
        }
    }

    fn wake(&mut self, id: &TaskId) {
        if self.nodes.get(id).is_some_and(|n| matches!(n.stand, Stand::Parked(_))) {
            self.unindex(id);
            self.make_ready(id);
        }
    }

    /// The clients of a session that are online, with what they offer.
    pub fn presence(&mut self, session_id: &SessionId, revision: u64, online: HashMap<ClientId, Offer>) -> Vec<Order> {
        let session = self.sessions.entry(session_id.clone()).or_default();
        if revision <= session.revision {
            return Vec::new();
        }
        session.revision = revision;
        let mut woken: BTreeMap<u64, TaskId> = BTreeMap::new();
        for (client_id, offer) in &online {
            let before = session.online.get(client_id);
            let is_new = |tool: &ToolName| offer.contains(tool) && before.is_none_or(|b| !b.contains(tool));
            for (_, waiting) in session.by_tool.iter().filter(|(tool, _)| is_new(tool)) {
                woken.extend(waiting.iter().map(|(order, id)| (*order, id.clone())));
            }
            if before.is_none() {
                for id in session.by_client.get(client_id).into_iter().flatten() {
                    let order = self.nodes.get(id).map_or(0, |n| n.park_order);
                    woken.insert(order, id.clone());
                }
            }
        }
        session.online = online;
        for id in woken.values() {
            self.wake(id);
        }
        let mut out = Vec::new();
        self.fill_slots(&mut out);
        out
    }

    /// The server's tools changed: whoever waits for a client looks again.
    pub fn server_tools_changed(&mut self) -> Vec<Order> {
        let waiting: BTreeMap<u64, TaskId> =
            self.sessions.values().flat_map(|s| s.by_tool.values()).flatten().map(|(o, id)| (*o, id.clone())).collect();
        for id in waiting.values() {
            self.wake(id);
        }
        let mut out = Vec::new();
        self.fill_slots(&mut out);
        out
    }

    /// A task runs again after waiting (its call was picked up without a slot being asked for).
    pub fn resumed(&mut self, id: &TaskId) {
        if self.nodes.get(id).is_some_and(|n| matches!(n.stand, Stand::Parked(_))) {
            self.unindex(id);
            self.set(id, Stand::Running);
        }
    }

    /// A task ended.
    pub fn ended(&mut self, id: &TaskId, state: State) -> Vec<Order> {
        let mut out = Vec::new();
        let Some(node) = self.nodes.get(id).filter(|n| !matches!(n.stand, Stand::Done(_))) else { return out };
        let (tree_id, parent) = (node.entry.tree_id.clone(), node.entry.parent.clone());
        let (children, dependents) = (node.children.clone(), node.dependents.clone());
        self.unindex(id);
        self.set(id, Stand::Done(state));
        for next in children.iter().chain(&dependents) {
            self.consider(next, &mut out);
        }
        if state == State::Cancelled || state == State::Failed {
            self.stop_children(&children, id, &mut out);
        }
        if let Some(parent) = parent {
            self.maybe_children_ended(&parent, &mut out);
        }
        let live = self.live.get_mut(&tree_id).map_or(0, |live| {
            *live = live.saturating_sub(1);
            *live
        });
        if live == 0 {
            self.forget(&tree_id);
        }
        self.fill_slots(&mut out);
        out
    }

    /// Children that are under way end with their parent.
    fn stop_children(&mut self, children: &[TaskId], parent: &TaskId, out: &mut Vec<Order>) {
        let name = self.nodes.get(parent).map(|n| n.entry.id.clone()).unwrap_or_default();
        for child in children {
            let live = self.nodes.get(child).is_some_and(|n| !matches!(n.stand, Stand::Done(_) | Stand::Waiting));
            if live {
                let input = Input::Cancel { reason: format!("parent task {name} ended") };
                out.push(Order { task_id: child.clone(), input });
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
                Stand::Waiting | Stand::Ready | Stand::Running | Stand::Around | Stand::Parked(_) => return,
            }
        }
        out.push(Order { task_id: parent.clone(), input: Input::ChildrenEnded(end) });
    }

    fn forget(&mut self, tree_id: &TreeId) {
        self.live.remove(tree_id);
        for id in self.members.remove(tree_id).unwrap_or_default() {
            self.nodes.remove(&id);
        }
    }

    /// Tasks that a retry of this one means: itself, its failed ancestors first, and what was skipped because of it.
    pub fn retry_closure(&self, id: &TaskId) -> Vec<TaskId> {
        let mut out: Vec<TaskId> = Vec::new();
        let mut up = self.nodes.get(id).and_then(|n| n.entry.parent.clone());
        while let Some(parent) = up {
            let Some(node) = self.nodes.get(&parent) else { break };
            if matches!(node.stand, Stand::Done(State::Failed | State::Cancelled | State::Skipped)) {
                out.insert(0, parent.clone());
            }
            up = node.entry.parent.clone();
        }
        let mut next = VecDeque::from([id.clone()]);
        while let Some(id) = next.pop_front() {
            if out.contains(&id) && out.last() != Some(&id) {
                continue;
            }
            out.push(id.clone());
            let Some(node) = self.nodes.get(&id) else { continue };
            for after in node.dependents.iter().chain(&node.children) {
                let stand = self.nodes.get(after).map(|n| &n.stand);
                if matches!(stand, Some(Stand::Done(State::Skipped | State::Cancelled))) && !out.contains(after) {
                    next.push_back(after.clone());
                }
            }
        }
        out.dedup();
        out
    }

    /// These tasks are pending again.
    pub fn retried(&mut self, ids: &[TaskId]) -> Vec<Order> {
        let mut out = Vec::new();
        for id in ids {
            let Some(node) = self.nodes.get(id).filter(|n| matches!(n.stand, Stand::Done(_))) else { continue };
            if let Some(live) = self.live.get_mut(&node.entry.tree_id) {
                *live += 1;
            }
            self.set(id, Stand::Waiting);
        }
        for id in ids {
            self.consider(id, &mut out);
        }
        self.fill_slots(&mut out);
        out
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

    /// The task that holds a call open on that client.
    pub fn holder(&self, call_id: &CallId, client_id: &ClientId) -> Option<TaskId> {
        self.held.get(call_id).filter(|(_, c)| c == client_id).map(|(task, _)| task.clone())
    }

    /// True if the board has the task: its tree is live.
    pub fn has(&self, id: &TaskId) -> bool {
        self.nodes.contains_key(id)
    }

    /// Tasks that run now, and those that wait for something outside.
    pub fn counts(&self) -> (usize, usize) {
        let parked = self.nodes.values().filter(|n| matches!(n.stand, Stand::Parked(_))).count();
        (self.running, parked)
    }

    /// Live tasks whose actor should be there: after a restart of the board these are told to go on.
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

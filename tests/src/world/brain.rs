//! The Brain: the events of its tasks (they survive), and tasks, board and session (they do not).

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde_json::json;
use vance_brain_core::board::{Board, Entry, Order};
use vance_brain_core::registry::{Registry, SessionView};
use vance_brain_core::route::{self, Decision, Wish};
use vance_brain_core::session::{self, ClientInfo, News, Session, take_tools};
use vance_brain_core::spec::TaskSpec;
use vance_brain_core::task::{Effect, Event, Head, Input, OpenCall, Place, Routed, State, Task, Verdict, Wait};
use vance_shared::call::Outcome;
use vance_shared::ids::{CallId, ClientId, SessionId, TaskId, TreeId};
use vance_shared::json::Raw;
use vance_shared::tool::{Replay, ToolResult, ToolSpec};
use vance_shared::trace::TraceContext;
use vance_shared::wire::{self, ToBrain, ToFoot};

use super::{Happening, SILENCE_MS, World};

/// Slots of the board.
const SLOTS: usize = 8;

/// Deadline of a call: longer than any tool takes.
const TIMEOUT_MS: u64 = 20_000;

/// The Brain.
pub struct BrainSide {
    /// Tasks, as the actors have them.
    pub tasks: BTreeMap<TaskId, Task>,
    /// The store.
    events: BTreeMap<TaskId, Vec<(Event, i64)>>,
    board: Board,
    session: Session,
    registry: Registry,
    revision: u64,
    epoch: u64,
    life: u32,
    /// Which line is whose, by the epoch that it got.
    connections: HashMap<ClientId, (u64, u64)>,
    /// Results that were applied, by task and step.
    pub applied: HashMap<(TaskId, usize), u32>,
    /// Unknown outcomes that the world's person answered with "run it again", by step name.
    pub retried: HashMap<String, usize>,
    calls: u64,
}

impl BrainSide {
    pub(super) fn new() -> Self {
        let server_tool = ToolSpec {
            name: name("server_tool"),
            description: String::new(),
            input_schema: Raw::empty_object(),
            output_schema: None,
            labels: Vec::new(),
            annotations: None,
            replay: Replay::Unsafe,
            pack: None,
        };
        let mut registry = Registry::default();
        registry.server_tools.insert(server_tool.name.clone(), Arc::new(server_tool));
        Self {
            tasks: BTreeMap::new(),
            events: BTreeMap::new(),
            board: Board::new(SLOTS),
            session: Session::new(30_000, 256),
            registry,
            revision: 0,
            epoch: 0,
            life: 0,
            connections: HashMap::new(),
            applied: HashMap::new(),
            retried: HashMap::new(),
            calls: 0,
        }
    }

    fn entries(&self) -> Vec<Entry> {
        self.tasks
            .values()
            .map(|task| {
                let wake_on = match &task.wait {
                    Some(Wait::Client { tool, .. }) => vec![tool.clone()],
                    _ => Vec::new(),
                };
                Entry {
                    task_id: task.head.task_id.clone(),
                    id: task.head.spec.id.clone(),
                    tree_id: task.head.tree_id.clone(),
                    session_id: task.head.session_id.clone(),
                    parent: task.head.parent.clone(),
                    has_children: task.head.has_children,
                    depends_on: task.head.depends_on.clone(),
                    run_if: task.head.spec.run_if,
                    state: task.state,
                    wait: task.wait.clone(),
                    wake_on,
                    held: task.held(),
                    max_parallel: task.head.spec.max_parallel,
                    tree_max_parallel: task.head.spec.tree_max_parallel,
                    autonomous: false,
                    waits_since: task.updated_at,
                }
            })
            .collect()
    }
}

fn name(text: &str) -> vance_shared::names::ToolName {
    match vance_shared::names::ToolName::parse(text) {
        Ok(name) => name,
        Err(error) => unreachable!("{error}"),
    }
}

fn session_id() -> SessionId {
    SessionId::parse("sess_world").unwrap_or_else(|_| SessionId::generate())
}

impl World {
    /// Submits one tree.
    pub fn submit(&mut self, specs: Vec<TaskSpec>) {
        let tree_id = TreeId::generate();
        let id = |spec: &str| TaskId::parse(&format!("task_{spec}")).unwrap_or_else(|_| TaskId::generate());
        for spec in specs {
            let head = Head {
                task_id: id(&spec.id),
                tree_id: tree_id.clone(),
                session_id: session_id(),
                owner: "local".to_owned(),
                parent: None,
                has_children: false,
                depends_on: spec.depends_on.iter().map(|d| id(d)).collect(),
                engine: None,
                autonomous: false,
                submitted_by: None,
                trace: TraceContext::from_parts(1, 1, true),
                spec,
            };
            let submitted = vec![(Event::Submitted(head.clone()), self.now)];
            self.brain.events.insert(head.task_id.clone(), submitted);
            self.brain.tasks.insert(head.task_id.clone(), Task::new(head, self.now));
        }
        let entries = self.brain.entries();
        let orders = self.brain.board.add(entries);
        self.follow(orders);
    }

    /// `kill -9`, and a new process: only what is stored is left.
    pub(super) fn kill_brain(&mut self) {
        self.note("kill brain");
        let open: Vec<u64> = self.lines.iter().filter(|(_, l)| l.open).map(|(id, _)| *id).collect();
        for line in open {
            self.close_line(line);
        }
        let brain = &mut self.brain;
        brain.life += 1;
        brain.board = Board::new(SLOTS);
        brain.session = Session::new(30_000, 256);
        brain.connections.clear();
        brain.revision = 0;
        let stored = brain.events.iter().filter_map(|(id, events)| Some((id.clone(), Task::of(events.clone())?)));
        brain.tasks = stored.collect();
        let entries = brain.entries();
        let orders = brain.board.add(entries);
        self.follow(orders);
    }

    fn follow(&mut self, orders: Vec<Order>) {
        for Order { task_id, input } in orders {
            self.give(&task_id, input);
        }
    }

    /// What the task's actor does with one input.
    fn give(&mut self, task_id: &TaskId, input: Input) {
        let mut inputs = vec![input];
        let mut effects = Vec::new();
        let mut seen = 0;
        let Some(before) = self.brain.tasks.get(task_id).map(|t| (t.step, t.held())) else { return };
        while let Some(input) = inputs.pop() {
            let now = self.now;
            let Some(task) = self.brain.tasks.get_mut(task_id) else { return };
            let step = task.handle(input, now);
            let store = self.brain.events.entry(task_id.clone()).or_default();
            store.extend(step.events.into_iter().map(|event| (event, now)));
            for effect in step.effects {
                match effect {
                    Effect::Route => {
                        seen = self.brain.revision;
                        inputs.push(Input::Routed(self.route(task_id)));
                    }
                    other => effects.push(other),
                }
            }
        }
        let Some(task) = self.brain.tasks.get(task_id) else { return };
        let (state, wait, after) = (task.state, task.wait.clone(), (task.step, task.held()));
        for step in before.0..after.0 {
            *self.brain.applied.entry((task_id.clone(), step)).or_default() += 1;
        }
        if before.1 != after.1 {
            if let Some((call_id, _)) = &before.1 {
                self.brain.board.call_closed(call_id);
            }
            if let Some((call_id, client_id)) = after.1 {
                self.brain.board.call_placed(task_id, call_id, client_id);
            }
        }
        let parks = effects.contains(&Effect::Park);
        for effect in effects {
            self.task_effect(task_id, effect);
        }
        let orders = match state {
            State::Blocked | State::Queued if parks => {
                let Some(wait) = wait else { return };
                let wake_on = match &wait {
                    Wait::Client { tool, .. } => vec![tool.clone()],
                    Wait::Suspended { .. } | Wait::Answer { .. } | Wait::Unknown { .. } => Vec::new(),
                };
                if matches!(wait, Wait::Unknown { .. }) {
                    self.note(format!("{task_id}: {}", wait.reason()));
                }
                self.brain.board.parked(task_id, wait, &wake_on, seen)
            }
            state if state.is_terminal() => {
                self.note(format!("{task_id} is {}", state.word()));
                self.brain.board.ended(task_id, state)
            }
            State::Running => {
                self.brain.board.resumed(task_id);
                Vec::new()
            }
            _ => Vec::new(),
        };
        self.follow(orders);
    }

    fn view(&self) -> SessionView {
        SessionView { clients: self.brain.session.view(), known: Arc::default() }
    }

    fn route(&mut self, task_id: &TaskId) -> Routed {
        self.brain.calls += 1;
        let call_id = CallId::parse(&format!("call_{}", self.brain.calls)).unwrap_or_else(|_| CallId::generate());
        let view = self.view();
        let Some(task) = self.brain.tasks.get(task_id) else { return Routed::Skip };
        let Some(step) = task.current_step() else { return Routed::Skip };
        let wish = Wish { served_by: task.served_by(), any_client: task.head.spec.any_client, ..Wish::default() };
        let (tool, place) = match route::decide(&self.brain.registry, &view, &wish, &step.call) {
            Decision::Server { tool } => (tool, Place::Server),
            Decision::Client { client_id, tool } => {
                (tool, Place::Client { client_id, machine: "m".to_owned(), folder: None })
            }
            Decision::Block => return Routed::Wait { queued: false },
            Decision::Queue => return Routed::Wait { queued: true },
            Decision::Skip => return Routed::Skip,
            Decision::Fail(fault) if fault.code == "unknown_tool" => return Routed::Wait { queued: false },
            Decision::Fail(fault) => return Routed::Fault(fault),
        };
        let replay = if step.call.as_str() == "safe_tool" { Replay::Safe } else { Replay::Unsafe };
        Routed::Placed(OpenCall {
            call_id,
            attempt: 1,
            step: task.step,
            tool: step.call.clone(),
            target_tool: tool,
            place,
            arguments: Raw::from(json!({ "step": format!("{}.{}", task.head.spec.id, task.step) })),
            replay,
            timeout_ms: TIMEOUT_MS,
            trace: task.head.trace,
        })
    }

    fn task_effect(&mut self, task_id: &TaskId, effect: Effect) {
        let life = self.brain.life;
        match effect {
            Effect::Dispatch(call) => match call.place {
                Place::Server => {
                    self.ledger.push(call.arguments.value()["step"].as_str().unwrap_or("?").to_owned());
                    let ms = self.soon(400);
                    self.after(ms, Happening::ServerDone { life, task_id: task_id.clone(), call_id: call.call_id });
                }
                Place::Client { ref client_id, .. } => {
                    let client_id = client_id.clone();
                    self.session(session::Input::Dispatch { client_id, call: frame(&call), replay: call.replay });
                }
            },
            Effect::Reattach(call) => {
                if let Some(client_id) = call.place.client().cloned() {
                    self.session(session::Input::Reattach { client_id, call: frame(&call), replay: call.replay });
                }
            }
            Effect::CancelCall(call_id, client_id, reason) => {
                if let Some(client_id) = client_id {
                    self.session(session::Input::Cancel { client_id, call_id, reason });
                }
            }
            Effect::Reply { client_id: None, .. } => {}
            Effect::Reply { client_id: Some(client_id), call_id, question_id, answer } => {
                let reply = wire::ElicitReply::of(call_id, question_id, answer);
                self.session(session::Input::Reply { client_id, reply });
            }
            Effect::Ack(call_id, client_id) => self.session(session::Input::Ack { client_id, call_id }),
            Effect::LookAgain(after) => {
                let ms = u64::try_from(after.as_millis()).unwrap_or(1_000);
                self.after(ms, Happening::LookAgain { life, task_id: task_id.clone() });
            }
            Effect::ChildrenMayRun => {
                let orders = self.brain.board.children_may_run(task_id);
                self.follow(orders);
            }
            Effect::Park | Effect::Ended | Effect::Route => {}
        }
    }

    fn session(&mut self, input: session::Input) {
        let effects = self.brain.session.handle(input, self.now);
        for effect in effects {
            self.session_effect(effect);
        }
    }

    fn session_effect(&mut self, effect: session::Effect) {
        match effect {
            session::Effect::Send { client_id, frame } => {
                if let Some((_, line)) = self.brain.connections.get(&client_id).copied() {
                    self.send_to_foot(line, frame);
                }
            }
            session::Effect::Welcome { client_id, inflight } => {
                let Some((epoch, line)) = self.brain.connections.get(&client_id).copied() else { return };
                let welcome = wire::Welcome {
                    session_id: session_id(),
                    client_id,
                    epoch,
                    protocol: wire::PROTOCOL,
                    heartbeat_ms: 10_000,
                    limits: wire::Limits::default(),
                    refused: Vec::new(),
                    inflight,
                };
                self.send_to_foot(line, ToFoot::Welcome(welcome));
            }
            session::Effect::Deliver { client_id, call_id, news } => self.news(client_id, call_id, news),
            session::Effect::Unclaimed { client_id, call_id, outcome } => {
                self.news(client_id, call_id, News::Ended(outcome));
            }
            session::Effect::Supersede { .. } => {}
            session::Effect::ViewChanged => {
                self.brain.revision += 1;
                let online = self
                    .brain
                    .session
                    .view()
                    .iter()
                    .filter(|c| c.online)
                    .map(|c| (c.client_id.clone(), Arc::new(c.tools.keys().cloned().collect::<HashSet<_>>())))
                    .collect();
                let orders = self.brain.board.presence(&session_id(), self.brain.revision, online);
                self.follow(orders);
            }
        }
    }

    fn news(&mut self, client_id: ClientId, call_id: CallId, news: News) {
        let holder = self.brain.board.holder(&call_id, &client_id).or_else(|| {
            let made = |t: &&Task| t.calls.iter().any(|c| c.call_id == call_id);
            self.brain.tasks.values().find(made).map(|t| t.head.task_id.clone())
        });
        let Some(task_id) = holder else {
            self.session(session::Input::Ack { client_id, call_id });
            return;
        };
        if let Some(input) = news.to_task(client_id, call_id) {
            self.give(&task_id, input);
        }
    }

    pub(super) fn at_brain(&mut self, line: u64, frame: ToBrain) {
        if !self.is_alive(line) {
            return;
        }
        let Some(held) = self.lines.get_mut(&line) else { return };
        held.heard_at = self.now;
        let epoch = held.epoch;
        if let ToBrain::ClientConnected(hello) = frame {
            let Some(client_id) = hello.client_id else { return };
            self.brain.epoch += 1;
            let epoch = self.brain.epoch;
            if let Some(held) = self.lines.get_mut(&line) {
                held.epoch = Some(epoch);
            }
            let held: BTreeSet<CallId> = self.brain.board.held_on(&client_id);
            self.brain.connections.insert(client_id.clone(), (epoch, line));
            let (tools, _) = take_tools(&self.brain.registry, &Arc::default(), &[], hello.available_tools);
            let (info, loading, inflight) = (ClientInfo::default(), BTreeSet::new(), hello.inflight);
            self.session(session::Input::Attach { client_id, epoch, info, tools, loading, inflight, held });
            return;
        }
        let Some(epoch) = epoch else { return };
        let Some(client_id) = self.client_of(line) else { return };
        match frame {
            ToBrain::Accepted(a) => self.session(session::Input::Accepted { client_id, epoch, call_id: a.call_id }),
            ToBrain::Result(r) => {
                let (call_id, outcome) = (r.call_id, r.outcome);
                self.session(session::Input::Result { client_id, epoch, call_id, outcome });
            }
            ToBrain::Ping(ping) => self.send_to_foot(line, ToFoot::Pong(ping)),
            _ => {}
        }
    }

    fn client_of(&self, line: u64) -> Option<ClientId> {
        self.brain.connections.iter().find(|(_, (_, l))| *l == line).map(|(client, _)| client.clone())
    }

    pub(super) fn line_lost(&mut self, line: u64) {
        let Some(epoch) = self.lines.get(&line).and_then(|l| l.epoch) else { return };
        if let Some(client_id) = self.client_of(line) {
            self.brain.connections.remove(&client_id);
            self.session(session::Input::Detach { client_id, epoch });
        }
    }

    pub(super) fn brain_tick(&mut self) {
        self.session(session::Input::Tick);
        let silent: Vec<u64> = self
            .brain
            .connections
            .values()
            .map(|(_, line)| *line)
            .filter(|line| self.lines.get(line).is_some_and(|l| self.now - l.heard_at > SILENCE_MS))
            .collect();
        for line in silent {
            self.note(format!("line {line} is silent"));
            self.close_line(line);
            self.line_lost(line);
        }
        self.decide_unknown();
    }

    /// The person of this world: whatever is unknown is run again.
    fn decide_unknown(&mut self) {
        let unknown: Vec<TaskId> = self
            .brain
            .tasks
            .values()
            .filter(|t| matches!(t.wait, Some(Wait::Unknown { .. })))
            .map(|t| t.head.task_id.clone())
            .collect();
        for task_id in unknown {
            let Some(task) = self.brain.tasks.get(&task_id) else { continue };
            let step = format!("{}.{}", task.head.spec.id, task.step);
            *self.brain.retried.entry(step).or_default() += 1;
            self.give(&task_id, Input::Resolve(Verdict::Retry));
        }
    }

    pub(super) fn server_done(&mut self, life: u32, task_id: TaskId, call_id: CallId) {
        if self.brain.life == life {
            let outcome = Outcome::Done(ToolResult::text("done by the server"));
            self.give(&task_id, Input::CallEnded { call_id, from: None, outcome });
        }
    }

    pub(super) fn look_again(&mut self, life: u32, task_id: TaskId) {
        if self.brain.life == life {
            self.give(&task_id, Input::Start);
        }
    }
}

fn frame(call: &OpenCall) -> Arc<wire::Call> {
    Arc::new(wire::Call {
        call_id: call.call_id.clone(),
        attempt: call.attempt,
        tool: call.target_tool.to_string(),
        arguments: call.arguments.clone(),
        timeout_ms: call.timeout_ms,
        cap_ms: call.timeout_ms,
        answer_ms: None,
        traceparent: call.trace,
    })
}

//! A Foot: link, table of calls, journal. Tools take a while and write the ledger when they begin.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use vance_foot_core::calls::{Calls, Effect, Event, Row, RowState};
use vance_foot_core::link::{self, Action, End, Link};
use vance_shared::call::{Fault, Outcome};
use vance_shared::ids::{CallId, ClientId};
use vance_shared::limits::{HEARTBEAT_MISSES, INFLIGHT_CALLS};
use vance_shared::tool::{Replay, ToolResult};
use vance_shared::wire::{Call, CallResult, ClientConnected, Ping, ToBrain, ToFoot, WireTool};

use super::net::Line;
use super::{Happening, World, monotonic};

/// The two tools of every Foot.
pub(super) const TOOLS: [(&str, Replay); 2] = [("safe_tool", Replay::Safe), ("unsafe_tool", Replay::Unsafe)];

#[derive(Debug)]
struct JournalRow {
    row: Row,
    outcome: Option<CallResult>,
}

/// One Foot.
pub struct FootSide {
    client_id: ClientId,
    calls: Calls,
    link: Link,
    journal: HashMap<CallId, JournalRow>,
    /// Rows that a crash of the machine could lose; a crash of the process keeps them.
    lazy: BTreeSet<CallId>,
    running: BTreeSet<CallId>,
    /// Which life of its process this is.
    pub life: u32,
    /// Its machine has a network.
    pub reachable: bool,
    heard: i64,
    line: Option<u64>,
}

impl FootSide {
    pub(super) fn new(index: usize) -> Self {
        let client_id = ClientId::parse(&format!("foot_{index}")).unwrap_or_else(|_| ClientId::generate());
        Self {
            client_id,
            calls: Calls::boot([], INFLIGHT_CALLS),
            link: Link::new(),
            journal: HashMap::new(),
            lazy: BTreeSet::new(),
            running: BTreeSet::new(),
            life: 0,
            reachable: true,
            heard: 0,
            line: None,
        }
    }
}

impl World {
    pub(super) fn start_foot(&mut self, foot: usize) {
        let jitter = self.rng.u32(..);
        let now = monotonic(self.now);
        let side = &mut self.feet[foot];
        let rows: Vec<Row> = side.journal.values().map(|r| r.row.clone()).collect();
        side.calls = Calls::boot(rows, INFLIGHT_CALLS);
        side.link = Link::new();
        let actions = side.link.apply(now, link::Event::Start, jitter);
        self.link_actions(foot, actions);
    }

    /// `kill -9`, and at once a new process on the same home. One time in three the machine went down with it.
    pub(super) fn kill_foot(&mut self, foot: usize) {
        let power = self.rng.u32(0..3) == 0;
        self.note(format!("kill foot {foot}{}", if power { " and its machine" } else { "" }));
        if let Some(line) = self.line_of(foot) {
            self.close_line(line);
        }
        let side = &mut self.feet[foot];
        side.life += 1;
        side.running.clear();
        if power {
            for call_id in std::mem::take(&mut side.lazy) {
                match side.journal.get_mut(&call_id) {
                    // An unsafe call's beginning is on the disk; what came after it may be lost.
                    Some(row) if row.row.replay == Replay::Unsafe => {
                        row.row.state = RowState::Running { attached: false };
                        row.outcome = None;
                    }
                    Some(_) => drop(side.journal.remove(&call_id)),
                    None => {}
                }
            }
        }
        for row in side.journal.values_mut() {
            if row.row.state == (RowState::Running { attached: true }) {
                row.row.state = RowState::Running { attached: false };
            }
        }
        self.start_foot(foot);
    }

    fn link_actions(&mut self, foot: usize, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Connect => self.connect(foot),
                Action::Ping => self.up(foot, ToBrain::Ping(Ping { nonce: 1 })),
                Action::Drop { .. } => {
                    if let Some(line) = self.feet[foot].line.take() {
                        self.close_line(line);
                        self.apply_calls(foot, Event::Disconnected);
                    }
                }
                Action::SayLost { .. } | Action::Stop(_) => {}
            }
        }
    }

    fn connect(&mut self, foot: usize) {
        self.next += 1;
        let line = self.next;
        let life = self.feet[foot].life;
        self.lines.insert(line, Line::new(foot, life, self.now));
        self.feet[foot].line = Some(line);
        self.feet[foot].heard = self.now;
        if !self.feet[foot].reachable {
            self.close_line(line);
            return;
        }
        let side = &self.feet[foot];
        let tools = TOOLS
            .iter()
            .map(|(name, replay)| WireTool {
                name: (*name).to_owned(),
                kind: "native".to_owned(),
                mcp_server: None,
                description: String::new(),
                input_schema: None,
                output_schema: None,
                labels: Vec::new(),
                annotations: None,
                replay: *replay,
            })
            .collect();
        let hello = ClientConnected {
            client_type: "test".to_owned(),
            available_tools: tools,
            client_id: Some(side.client_id.clone()),
            inflight: side.calls.inflight(),
            ..ClientConnected::default()
        };
        self.send_to_brain(line, ToBrain::ClientConnected(hello));
    }

    fn up(&mut self, foot: usize, frame: ToBrain) {
        if let Some(line) = self.feet[foot].line {
            self.send_to_brain(line, frame);
        }
    }

    pub(super) fn line_ended(&mut self, foot: usize, line: u64) {
        if self.feet[foot].line != Some(line) {
            return;
        }
        self.feet[foot].line = None;
        self.apply_calls(foot, Event::Disconnected);
        let jitter = self.rng.u32(..);
        let end = link::Event::Ended(End::Broken("cut".to_owned()));
        let actions = self.feet[foot].link.apply(monotonic(self.now), end, jitter);
        self.link_actions(foot, actions);
    }

    pub(super) fn tick_foot(&mut self, foot: usize) {
        let jitter = self.rng.u32(..);
        let now = monotonic(self.now);
        let tick = link::Event::Tick { wall: now, heard: monotonic(self.feet[foot].heard) };
        let actions = self.feet[foot].link.apply(now, tick, jitter);
        self.link_actions(foot, actions);
    }

    pub(super) fn at_foot(&mut self, line: u64, frame: ToFoot) {
        if !self.is_alive(line) {
            return;
        }
        let Some(foot) = self.lines.get(&line).map(|l| l.foot).filter(|f| self.feet[*f].line == Some(line)) else {
            return;
        };
        self.feet[foot].heard = self.now;
        match frame {
            ToFoot::Welcome(welcome) => {
                let heartbeat = Duration::from_millis(welcome.heartbeat_ms);
                let event = link::Event::Welcomed { heartbeat, misses: HEARTBEAT_MISSES };
                let actions = self.feet[foot].link.apply(monotonic(self.now), event, 0);
                self.link_actions(foot, actions);
                self.apply_calls(foot, Event::Connected { inflight: welcome.inflight });
            }
            ToFoot::Call(call) => {
                let tool = TOOLS.iter().find(|(name, _)| *name == call.tool).map(|(_, replay)| *replay);
                let tool = tool.ok_or_else(|| Fault::new("unknown_tool", "no such tool"));
                self.apply_calls(foot, Event::Call { call, tool });
            }
            ToFoot::ResultAck(ack) => self.apply_calls(foot, Event::ResultAck { call_id: ack.call_id }),
            ToFoot::Cancel(cancel) => {
                self.apply_calls(foot, Event::Cancel { call_id: cancel.call_id, reason: cancel.reason });
            }
            ToFoot::Ping(ping) => self.up(foot, ToBrain::Pong(ping)),
            ToFoot::ElicitReply(_)
            | ToFoot::Elicit(_)
            | ToFoot::ElicitEnd(_)
            | ToFoot::BlobGet(_)
            | ToFoot::Pong(_)
            | ToFoot::Drain(_)
            | ToFoot::Error(_) => {}
        }
    }

    fn apply_calls(&mut self, foot: usize, event: Event) {
        let effects = self.feet[foot].calls.apply(monotonic(self.now), event);
        for effect in effects {
            self.calls_effect(foot, effect);
        }
    }

    fn calls_effect(&mut self, foot: usize, effect: Effect) {
        let life = self.feet[foot].life;
        match effect {
            Effect::Begin { call_id, attempt, replay, durable, .. } => {
                let row =
                    Row { call_id: call_id.clone(), attempt, replay, state: RowState::Running { attached: true } };
                if durable {
                    let ms = self.soon(8);
                    self.after(ms, Happening::Written { foot, life, call_id: call_id.clone() });
                } else {
                    self.feet[foot].lazy.insert(call_id.clone());
                }
                self.feet[foot].journal.insert(call_id, JournalRow { row, outcome: None });
            }
            Effect::Accept(accepted) => self.up(foot, ToBrain::Accepted(accepted)),
            Effect::Run(call) => self.run_tool(foot, &call),
            Effect::Store(result) => {
                let side = &mut self.feet[foot];
                let call_id = result.call_id.clone();
                side.lazy.insert(call_id.clone());
                let attempt = result.attempt;
                let row = Row { call_id: call_id.clone(), attempt, replay: Replay::Unsafe, state: RowState::Finished };
                let kept = side.journal.entry(call_id).or_insert(JournalRow { row, outcome: None });
                kept.row.state = RowState::Finished;
                kept.outcome = Some(result);
            }
            Effect::Send(result) => self.up(foot, ToBrain::Result(result)),
            Effect::Resend { call_id, .. } => {
                if let Some(result) = self.feet[foot].journal.get(&call_id).and_then(|r| r.outcome.clone()) {
                    self.up(foot, ToBrain::Result(result));
                }
            }
            Effect::CancelRun { call_id, reason } => {
                if self.feet[foot].running.remove(&call_id) {
                    self.apply_calls(foot, Event::Ended { call_id, outcome: Outcome::Cancelled { reason } });
                }
            }
            Effect::Forget(call_id) => {
                let side = &mut self.feet[foot];
                side.lazy.insert(call_id.clone());
                if let Some(row) = side.journal.get_mut(&call_id) {
                    row.row.state = RowState::Forgotten;
                    row.outcome = None;
                }
            }
        }
    }

    fn run_tool(&mut self, foot: usize, call: &Call) {
        let name = call.arguments.value()["step"].as_str().unwrap_or("?").to_owned();
        self.note(format!("foot {foot} runs {name} ({})", call.call_id));
        self.ledger.push(name);
        self.feet[foot].running.insert(call.call_id.clone());
        let (ms, life) = (self.soon(3_000), self.feet[foot].life);
        self.after(ms, Happening::ToolDone { foot, life, call_id: call.call_id.clone() });
    }

    pub(super) fn tool_done(&mut self, foot: usize, life: u32, call_id: CallId) {
        let side = &mut self.feet[foot];
        if side.life == life && side.running.remove(&call_id) {
            let outcome = Outcome::Done(ToolResult::text(format!("done by foot {foot}")));
            self.apply_calls(foot, Event::Ended { call_id, outcome });
        }
    }

    pub(super) fn written(&mut self, foot: usize, life: u32, call_id: CallId) {
        if self.feet[foot].life == life {
            self.apply_calls(foot, Event::Journalled { call_id, written: Ok(()) });
        }
    }
}

//! Both cores on a virtual clock: the Brain's board, tasks and session, and some Feet's tables of calls and links, joined by a
//! network that delays, cuts and swallows, with kills of either side. No socket, no thread, no real time: a seed is a run.
//!
//! The world does what the actors do around the cores, in the plainest way. What ran is noted in a ledger that only the
//! (imaginary) tools write.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};
use std::time::Duration;

use fastrand::Rng;
use vance_brain_core::task::Task;
use vance_shared::ids::TaskId;
use vance_shared::wire::{ToBrain, ToFoot};

mod brain;
mod foot;
mod net;

pub use brain::BrainSide;
pub use foot::FootSide;

/// How long a silent line is taken for a live one, on the Brain's side.
const SILENCE_MS: i64 = 30_000;

/// Something that will happen.
#[derive(Debug)]
pub enum Happening {
    /// A frame arrives at the Brain.
    AtBrain {
        /// On which connection.
        line: u64,
        /// The frame.
        frame: ToBrain,
    },
    /// A frame arrives at a Foot.
    AtFoot {
        /// On which connection.
        line: u64,
        /// The frame.
        frame: ToFoot,
    },
    /// A Foot learns that its line is gone.
    LineEnded {
        /// Which Foot.
        foot: usize,
        /// Which connection.
        line: u64,
    },
    /// The Brain learns that a line is gone.
    LineLost {
        /// Which connection.
        line: u64,
    },
    /// A Foot's clock ticks.
    Tick {
        /// Which Foot.
        foot: usize,
    },
    /// A tool on a Foot is done.
    ToolDone {
        /// Which Foot.
        foot: usize,
        /// In which life of its process.
        life: u32,
        /// The call.
        call_id: vance_shared::ids::CallId,
    },
    /// A durable write of a Foot's journal is done.
    Written {
        /// Which Foot.
        foot: usize,
        /// In which life of its process.
        life: u32,
        /// The call.
        call_id: vance_shared::ids::CallId,
    },
    /// A server tool is done.
    ServerDone {
        /// In which life of the Brain.
        life: u32,
        /// Whose call.
        task_id: TaskId,
        /// The call.
        call_id: vance_shared::ids::CallId,
    },
    /// A task looks again.
    LookAgain {
        /// In which life of the Brain.
        life: u32,
        /// Which task.
        task_id: TaskId,
    },
    /// The Brain looks at its lines and deadlines.
    BrainTick,
    /// Something goes wrong.
    Trouble,
}

/// What may go wrong, and until when.
#[derive(Debug, Clone, Copy)]
pub struct Troubles {
    /// Until then, in milliseconds.
    pub until_ms: i64,
    /// Mean time between two, in milliseconds.
    pub every_ms: u64,
}

/// The world.
pub struct World {
    /// Now, in milliseconds.
    pub now: i64,
    rng: Rng,
    queue: BinaryHeap<Reverse<(i64, u64, Slot)>>,
    slots: HashMap<u64, Happening>,
    next: u64,
    /// The Brain.
    pub brain: BrainSide,
    /// The Feet.
    pub feet: Vec<FootSide>,
    lines: BTreeMap<u64, net::Line>,
    /// What tools did: step names, in order.
    pub ledger: Vec<String>,
    troubles: Troubles,
    trace: Vec<String>,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Slot(u64);

impl World {
    /// A world with some Feet that offer `safe_tool` and `unsafe_tool`.
    pub fn new(seed: u64, feet: usize, troubles: Troubles) -> Self {
        let mut world = Self {
            now: 0,
            rng: Rng::with_seed(seed),
            queue: BinaryHeap::new(),
            slots: HashMap::new(),
            next: 0,
            brain: BrainSide::new(),
            feet: (0..feet).map(FootSide::new).collect(),
            lines: BTreeMap::new(),
            ledger: Vec::new(),
            troubles,
            trace: Vec::new(),
        };
        for foot in 0..feet {
            world.start_foot(foot);
            world.after(500, Happening::Tick { foot });
        }
        world.after(1_000, Happening::BrainTick);
        world.after(troubles.every_ms, Happening::Trouble);
        world
    }

    fn after(&mut self, ms: u64, happening: Happening) {
        self.next += 1;
        let at = self.now + i64::try_from(ms).unwrap_or(i64::MAX / 2);
        self.slots.insert(self.next, happening);
        self.queue.push(Reverse((at, self.next, Slot(self.next))));
    }

    fn soon(&mut self, most_ms: u64) -> u64 {
        self.rng.u64(1..=most_ms)
    }

    fn note(&mut self, text: impl Into<String>) {
        let line = format!("{:>7} {}", self.now, text.into());
        self.trace.push(line);
    }

    /// What happened, for the message of a failing test.
    pub fn story(&self) -> String {
        let from = self.trace.len().saturating_sub(150);
        let live = self.brain.tasks.values().filter(|t| !t.state.is_terminal());
        let live: Vec<String> = live
            .map(|t| {
                format!("{} {} step {} wait {:?} call {:?}", t.head.spec.id, t.state.word(), t.step, t.wait, t.call)
            })
            .collect();
        format!("{}\nstill live:\n{}", self.trace[from..].join("\n"), live.join("\n"))
    }

    /// Runs until all tasks are terminal, or until the time is over. True if all are.
    pub fn run(&mut self, until_ms: i64) -> bool {
        while let Some(Reverse((at, _, _))) = self.queue.peek() {
            if *at > until_ms {
                self.now = until_ms;
                return false;
            }
            let Some(Reverse((at, key, _))) = self.queue.pop() else { return false };
            self.now = at;
            if let Some(happening) = self.slots.remove(&key) {
                self.happen(happening);
            }
            if self.now > self.troubles.until_ms && self.brain.tasks.values().all(|t| t.state.is_terminal()) {
                return true;
            }
        }
        false
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::AtBrain { line, frame } => self.at_brain(line, frame),
            Happening::AtFoot { line, frame } => self.at_foot(line, frame),
            Happening::LineEnded { foot, line } => self.line_ended(foot, line),
            Happening::LineLost { line } => self.line_lost(line),
            Happening::Tick { foot } => {
                self.tick_foot(foot);
                self.after(500, Happening::Tick { foot });
            }
            Happening::ToolDone { foot, life, call_id } => self.tool_done(foot, life, call_id),
            Happening::Written { foot, life, call_id } => self.written(foot, life, call_id),
            Happening::ServerDone { life, task_id, call_id } => self.server_done(life, task_id, call_id),
            Happening::LookAgain { life, task_id } => self.look_again(life, task_id),
            Happening::BrainTick => {
                self.brain_tick();
                self.after(1_000, Happening::BrainTick);
            }
            Happening::Trouble => self.trouble(),
        }
    }

    fn trouble(&mut self) {
        if self.now >= self.troubles.until_ms {
            self.note("calm from here on");
            self.heal();
            return;
        }
        let foot = self.rng.usize(0..self.feet.len());
        match self.rng.u32(0..10) {
            0..=3 => self.cut(foot),
            4 => self.swallow(foot),
            5 | 6 => self.kill_foot(foot),
            7 => self.kill_brain(),
            8 => self.away(foot),
            _ => self.heal(),
        }
        let next = self.rng.u64(1..=self.troubles.every_ms * 2);
        self.after(next, Happening::Trouble);
    }

    /// A task by its id in the tree.
    pub fn task(&self, id: &str) -> Option<&Task> {
        self.brain.tasks.values().find(|t| t.head.spec.id == id)
    }
}

fn monotonic(now: i64) -> Duration {
    Duration::from_millis(u64::try_from(now).unwrap_or(0))
}

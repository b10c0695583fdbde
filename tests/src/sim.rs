//! The real actors of Brain and Feet, with real WebSocket frames, on a simulated network: each on a machine of its own with
//! virtual time, which may be cut off, slowed down, killed and started again by a seed. The disk of the Brain and the journals of
//! the Feet outlive their processes as disks do.
//!
//! ```text
//! this thread: the controller, which steps the machines and makes trouble
//!   machine "brain"    serve::tree on a store in memory; sockets; the person who submits and decides, and callers of tools
//!   machine "foot-N"   the Foot's tree on a journal in memory; tools that write the ledger
//! ```
//!
//! What is not simulated: HTTP, MCP servers, native tools, files (but for those of large results, which are as they are). They are
//! tested with real processes.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use vance_brain::rows;
use vance_brain_core::task::{Event, State, Task};
use vance_foot_core::calls::Row;
use vance_shared::ids::TaskId;

mod brain;
pub mod clock;
mod direct;
mod disk;
mod foot;
mod large;
mod line;
mod person;
mod shelf;
mod tree;
mod trouble;

pub use direct::Direct;
pub use foot::{Heard, Ledger};
pub use large::Kept;
pub use person::{Person, Said};
pub use tree::Wanted;
pub use trouble::Planned;

use disk::SharedDisk;
use line::Lines;
use shelf::SharedShelf;
use tree::Tree;
use trouble::Troubles;

/// The Brain's name in the network.
const BRAIN: &str = "brain";

/// Where it listens.
const PORT: u16 = 9990;

/// Who owns everything here.
const OWNER: &str = "local";

/// Between two looks at whether all is over.
const LOOK: Duration = Duration::from_millis(500);

/// Lines of the story that a failure shows.
const SHOWN: usize = 300;

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What happened, for the message of a failing seed.
#[derive(Debug, Clone, Default)]
pub struct Story(Arc<Mutex<Vec<String>>>);

impl Story {
    fn note(&self, text: impl AsRef<str>) {
        let at = turmoil::sim_elapsed().unwrap_or_default();
        lock(&self.0).push(format!("{:>9.3} {}", at.as_secs_f64(), text.as_ref()));
    }

    fn note_at(&self, at: Duration, text: impl AsRef<str>) {
        lock(&self.0).push(format!("{:>9.3} {}", at.as_secs_f64(), text.as_ref()));
    }

    /// All of it.
    pub fn lines(&self) -> Vec<String> {
        lock(&self.0).clone()
    }
}

/// A writer of log lines into the story.
struct Log(Story);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.note(String::from_utf8_lossy(bytes).trim_end());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Whose actor is to fall (a Foot's, or the Brain's), and which.
type Strike = (Option<usize>, String);

/// What outlives the machines.
#[derive(Debug, Clone)]
struct Shared {
    story: Story,
    ledger: Ledger,
    disk: SharedDisk,
    shelves: Arc<Vec<SharedShelf>>,
    lines: Arc<Mutex<Lines>>,
    person: Arc<Mutex<Person>>,
    addresses: Arc<Mutex<Vec<IpAddr>>>,
    /// Actors that are to fall: of a Foot, or of the Brain.
    strikes: Arc<Mutex<Vec<Strike>>>,
    /// Starts of each Foot's process.
    lives: Arc<Mutex<Vec<u32>>>,
    /// One run of a tool of so many asks a person.
    asks: u32,
    /// One run of a tool of so many gives a large result.
    one_large_in: u32,
    /// Where each Foot keeps what is too large to travel.
    blobs: Arc<tempfile::TempDir>,
    large: Arc<Mutex<large::Shelf>>,
    /// Which Feet say that they are attached.
    online: Arc<Mutex<Vec<bool>>>,
}

impl Shared {
    fn new(scenario: &Scenario) -> std::io::Result<Self> {
        let feet = scenario.feet;
        Ok(Self {
            asks: scenario.asks,
            one_large_in: scenario.large,
            blobs: Arc::new(tempfile::tempdir()?),
            large: Arc::default(),
            story: Story::default(),
            ledger: Ledger::default(),
            disk: SharedDisk::default(),
            shelves: Arc::new((0..feet).map(|_| SharedShelf::default()).collect()),
            lines: Arc::default(),
            person: Arc::default(),
            addresses: Arc::default(),
            strikes: Arc::default(),
            lives: Arc::new(Mutex::new(vec![0; feet])),
            online: Arc::new(Mutex::new(vec![false; feet])),
        })
    }

    fn begin_brain(&self) {
        self.story.note("the brain starts");
    }

    fn begin_foot(&self, index: usize) -> u32 {
        let mut lives = lock(&self.lives);
        lives[index] += 1;
        lock(&self.online)[index] = false;
        self.story.note(format!("foot {index} starts"));
        lives[index]
    }

    fn foot_at(&self, address: IpAddr) -> usize {
        lock(&self.addresses).iter().position(|a| *a == address).unwrap_or_default()
    }

    fn take_strike(&self, of: Option<usize>) -> Option<String> {
        let mut strikes = lock(&self.strikes);
        let at = strikes.iter().position(|(whose, _)| *whose == of)?;
        Some(strikes.remove(at).1)
    }
}

/// One run.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Decides everything.
    pub seed: u64,
    /// Machines with a Foot.
    pub feet: usize,
    /// One run of a tool of so many asks a person; 0: none.
    pub asks: u32,
    /// One run of a tool of so many gives a result that is too large for a frame or a message; 0: few, and none
    /// that is too large for a message.
    pub large: u32,
    /// The trees, and when each is submitted.
    pub trees: Vec<(Duration, Vec<Wanted>)>,
    /// One step of the machines, and the finest delay of the network.
    pub step: Duration,
    /// Until when there is trouble.
    pub trouble: Duration,
    /// Mean time between two troubles.
    pub every: Duration,
    /// When all must be over.
    pub limit: Duration,
    /// In place of random troubles.
    pub plan: Vec<(Duration, Planned)>,
}

impl Scenario {
    fn tasks(&self) -> impl Iterator<Item = &Wanted> {
        self.trees.iter().flat_map(|(_, tasks)| tasks)
    }
}

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    /// All tasks are terminal.
    pub all: bool,
    /// When, in simulated time.
    pub at: Duration,
    /// The tasks as the disk has them.
    pub tasks: Vec<Task>,
    /// How often a result counted, by task and step.
    counted: HashMap<(TaskId, usize), usize>,
    /// How the Feet are.
    pub feet: String,
    /// What ran.
    pub ledger: Ledger,
    /// What the person did.
    pub person: Person,
    /// What is wrong with results that were stored.
    pub broken: Vec<String>,
    /// Lines that were cut in the middle of parts or pieces.
    pub cut_in_parts: usize,
    /// What was too large to travel, by its handle.
    pub kept: BTreeMap<String, Kept>,
    /// What happened.
    pub story: Vec<String>,
}

impl Ended {
    /// For each task that completed: how often a result counted for each of its steps.
    pub fn applied(&self) -> Vec<(String, Vec<usize>)> {
        let completed = self.tasks.iter().filter(|t| t.state == State::Completed);
        completed
            .map(|task| {
                let id = task.head.spec.id.clone();
                let counts = (0..task.head.spec.steps.len())
                    .map(|step| self.counted.get(&(task.head.task_id.clone(), step)).copied().unwrap_or(0));
                (id, counts.collect())
            })
            .collect()
    }

    /// The end of the story, and what is still live.
    pub fn shown(&self) -> String {
        let from = self.story.len().saturating_sub(SHOWN);
        let live = self.tasks.iter().filter(|t| !t.state.is_terminal());
        let live: Vec<String> = live
            .map(|t| {
                let (id, state) = (&t.head.spec.id, t.state.word());
                format!("{id} ({}) {state} step {} wait {:?} call {:?}", t.head.task_id, t.step, t.wait, t.call)
            })
            .collect();
        let (story, live) = (self.story[from..].join("\n"), live.join("\n"));
        format!("{story}\nat {:?}: {}\nstill live:\n{live}", self.at, self.feet)
    }
}

/// Runs a scenario on this thread, which must run nothing else. `log`: what the programs log goes into the story, by this filter.
pub fn run(scenario: &Scenario, log: Option<&str>) -> Result<Ended, String> {
    clock::begin(scenario.seed);
    let shared = Shared::new(scenario).map_err(|error| format!("no folder for large results: {error}"))?;
    let Some(filter) = log else { return simulate(scenario, shared) };
    let story = shared.story.clone();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .without_time()
        .with_writer(move || Log(story.clone()))
        .finish();
    tracing::subscriber::with_default(log, || simulate(scenario, shared))
}

fn simulate(scenario: &Scenario, shared: Shared) -> Result<Ended, String> {
    lock(&shared.person).trees = scenario.trees.iter().map(|(due, tasks)| Tree::new(*due, tasks)).collect();
    let mut sim = turmoil::Builder::new()
        .rng_seed(scenario.seed)
        .tick_duration(scenario.step)
        .min_message_latency(Duration::from_millis(1))
        .max_message_latency(Duration::from_millis(60))
        .simulation_duration(scenario.limit * 2)
        .tcp_capacity(4_096)
        .build();
    let of_brain = shared.clone();
    sim.host(BRAIN, move || brain::run(of_brain.clone()));
    for index in 0..scenario.feet {
        let of_foot = shared.clone();
        sim.host(foot_name(index), move || foot::run(index, of_foot.clone()));
        let address = sim.lookup(foot_name(index));
        lock(&shared.addresses).push(address);
    }
    let mut troubles = Troubles::new(scenario, &shared);
    let mut look_at = LOOK;
    let mut all = false;
    let wanted = Tree::count(scenario.trees.iter().map(|(_, tasks)| tasks));
    while !all && sim.elapsed() < scenario.limit {
        troubles.step(&mut sim);
        sim.step().map_err(|error| format!("a machine failed: {error}\n{}", shared.story.lines().join("\n")))?;
        if sim.elapsed() >= look_at {
            look_at += LOOK;
            all = troubles.are_over(sim.elapsed()) && is_done(&shared, wanted);
        }
    }
    let Folded { tasks, counted, broken } = tasks(&shared)?;
    let kept = lock(&shared.large).all();
    let person = std::mem::take(&mut *lock(&shared.person));
    let open: Vec<Vec<Row>> = shared.shelves.iter().map(|shelf| lock(shelf).open()).collect();
    let feet = format!("online {:?}, calls that are not acknowledged {open:?}", *lock(&shared.online));
    Ok(Ended {
        all,
        at: sim.elapsed(),
        tasks,
        counted,
        feet,
        ledger: shared.ledger.clone(),
        person,
        broken,
        cut_in_parts: lock(&shared.lines).cut_in_parts(),
        kept,
        story: shared.story.lines(),
    })
}

fn foot_name(index: usize) -> String {
    format!("foot-{index}")
}

/// All tasks are terminal, all Feet are attached, no result waits for its acknowledgement, and what is kept is read.
fn is_done(shared: &Shared, wanted: usize) -> bool {
    large::find(shared);
    if shared.shelves.iter().any(|shelf| !lock(shelf).open().is_empty())
        || !lock(&shared.online).iter().all(|online| *online)
        || !lock(&shared.large).is_read()
    {
        return false;
    }
    let disk = disk::look(&shared.disk);
    let rows = disk.rows(rows::TASK);
    let over = |state: &str| ["completed", "failed", "cancelled", "skipped"].contains(&state);
    rows.len() == wanted && rows.iter().all(|row| row.state.as_deref().is_some_and(over))
}

/// The tasks as their events left them.
#[derive(Default)]
struct Folded {
    tasks: Vec<Task>,
    /// How often a result counted, by task and step: a step that moves on has had one.
    counted: HashMap<(TaskId, usize), usize>,
    broken: Vec<String>,
}

fn tasks(shared: &Shared) -> Result<Folded, String> {
    let disk = disk::look(&shared.disk);
    let mut folded = Folded::default();
    for row in disk.rows(rows::TASK) {
        let id = TaskId::parse(&row.key).map_err(|e| e.to_string())?;
        let events = rows::events(&disk.stream(&rows::stream(&id))).map_err(|e| e.to_string())?;
        let mut events = events.into_iter();
        let Some((Event::Submitted(head), at)) = events.next() else { return Err(format!("{id} has no beginning")) };
        let mut task = Task::new(head, at);
        for (event, at) in events {
            let step = task.step;
            task.fold(&event, at);
            if task.step > step {
                *folded.counted.entry((id.clone(), step)).or_default() += 1;
                let on_foot = task.head.spec.steps.get(step).is_some_and(|step| step.call.as_str() != "task_note");
                let of_foot = |result: &&serde_json::Value| on_foot && result["structured"]["noted"] != true;
                if let Some(result) = task.last_result.as_ref().filter(of_foot) {
                    folded.broken.extend(large::look(&mut lock(&shared.large), result).err());
                }
            }
        }
        folded.tasks.push(task);
    }
    Ok(folded)
}

//! What goes wrong, and when it is over again.

use std::collections::BTreeSet;
use std::time::Duration;

use turmoil::Sim;

use super::brain::STORE;
use super::foot::STOP;
use super::line::End;
use super::{BRAIN, Scenario, Shared, clock, disk, foot_name, lock};

/// Parts of a Foot that may fall, and actors of the Brain.
const FOOT_PARTS: [&str; 3] = ["dispatcher", "link", STOP];
const BRAIN_PARTS: [&str; 6] = ["session", "task", "task", "scheduler", "registry", STORE];

/// What may go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Cut,
    CutUnknownToBrain,
    CutUnknownToFoot,
    Silence,
    Late,
    Link,
    KillFoot,
    KillBrain,
    Jump,
    Disk,
    StrikeFoot,
    StrikeBrain,
    Cancel,
    Slow,
}

const KINDS: [Kind; 14] = [
    Kind::Cut,
    Kind::CutUnknownToBrain,
    Kind::CutUnknownToFoot,
    Kind::Silence,
    Kind::Late,
    Kind::Link,
    Kind::KillFoot,
    Kind::KillBrain,
    Kind::Jump,
    Kind::Disk,
    Kind::StrikeFoot,
    Kind::StrikeBrain,
    Kind::Cancel,
    Kind::Slow,
];

/// Runs that differ in what they are made of find more than runs that all have a bit of everything.
fn weights() -> Vec<(Kind, u32)> {
    let of = |kind| (kind, if fastrand::u32(0..3) == 0 { 0 } else { fastrand::u32(1..6) });
    let weights: Vec<(Kind, u32)> = KINDS.into_iter().map(of).collect();
    if weights.iter().all(|(_, weight)| *weight == 0) { vec![(Kind::Cut, 1)] } else { weights }
}

/// A trouble at its time.
#[derive(Debug, Clone, Copy)]
pub enum Planned {
    /// An actor falls: of a Foot, or of the Brain.
    Strike(Option<usize>, &'static str),
    /// The Brain's store does not answer for this long.
    StoreAway(Duration),
    /// A Foot hears nothing and is not heard for this long, without a word of it; then its wall clock has jumped by as much.
    Gone(usize, Duration),
}

/// Something that ends a trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mend {
    Link(usize),
    Foot(usize),
    Brain,
    Disk,
    Network,
    /// A Foot's clock has gone on without it.
    Clock(usize, Duration),
}

/// Makes trouble by the seed, until it is time for calm.
pub(super) struct Troubles {
    shared: Shared,
    feet: usize,
    until: Duration,
    every: Duration,
    next: Duration,
    mends: Vec<(Duration, Mend)>,
    start: Duration,
    /// What happens in place of random troubles.
    plan: Vec<(Duration, Planned)>,
    is_random: bool,
    tasks: Vec<String>,
    /// Tasks that are within no other.
    alone: BTreeSet<String>,
    /// How often each kind happens in this run: some kinds never, some all the time.
    weights: Vec<(Kind, u32)>,
    calm: bool,
}

impl Troubles {
    pub(super) fn new(scenario: &Scenario, shared: &Shared) -> Self {
        Self {
            shared: shared.clone(),
            feet: scenario.feet,
            until: scenario.trouble,
            every: scenario.every,
            next: between(Duration::ZERO, scenario.every),
            mends: Vec::new(),
            start: clock::start(scenario.seed),
            plan: scenario.plan.clone(),
            is_random: scenario.plan.is_empty(),
            tasks: scenario.tasks().map(|task| task.id.clone()).collect(),
            alone: scenario.tasks().filter(|task| task.within.is_none()).map(|task| task.id.clone()).collect(),
            weights: weights(),
            calm: false,
        }
    }

    /// Nothing goes wrong any more, and all is mended.
    pub(super) fn are_over(&self, now: Duration) -> bool {
        now > self.until && self.mends.is_empty()
    }

    /// Before each step of the machines.
    pub(super) fn step(&mut self, sim: &mut Sim<'_>) {
        let now = sim.elapsed();
        clock::set(self.start + now);
        while let Some(at) = self.mends.iter().position(|(due, _)| *due <= now) {
            let (_, mend) = self.mends.remove(at);
            self.mend(sim, mend);
        }
        // A program that gave up is started again by whoever started it.
        if !sim.is_host_running(BRAIN) && !self.mends.iter().any(|(_, m)| *m == Mend::Brain) {
            self.later(now, 500, 2_000, Mend::Brain);
        }
        for foot in 0..self.feet {
            if !sim.is_host_running(foot_name(foot)) && !self.mends.iter().any(|(_, m)| *m == Mend::Foot(foot)) {
                self.later(now, 500, 2_000, Mend::Foot(foot));
            }
        }
        while let Some(at) = self.plan.iter().position(|(due, _)| *due <= now) {
            let (_, planned) = self.plan.remove(at);
            self.perform(sim, now, planned);
        }
        if now >= self.until {
            self.calm_down(now);
        } else if now >= self.next && self.is_random {
            self.next = now + between(Duration::ZERO, self.every * 2);
            self.trouble(sim, now);
        }
    }

    /// All that is broken is mended soon.
    fn calm_down(&mut self, now: Duration) {
        if !std::mem::replace(&mut self.calm, true) {
            self.note(now, "calm from here on");
            lock(&self.shared.person).is_calm = true;
            let soon = now + Duration::from_secs(2);
            self.mends.iter_mut().for_each(|(due, _)| *due = soon.min(*due));
        }
    }

    fn note(&self, now: Duration, text: impl AsRef<str>) {
        self.shared.story.note_at(now, format!("-- {}", text.as_ref()));
    }

    fn later(&mut self, now: Duration, from_ms: u64, to_ms: u64, mend: Mend) {
        let after = between(Duration::from_millis(from_ms), Duration::from_millis(to_ms));
        self.mends.push((now + after, mend));
    }

    fn is_broken(&self, mend: Mend) -> bool {
        self.mends.iter().any(|(_, m)| *m == mend)
    }

    fn perform(&mut self, sim: &Sim<'_>, now: Duration, planned: Planned) {
        match planned {
            Planned::Strike(whose, part) => self.strike(now, whose, &[part]),
            Planned::StoreAway(time) => {
                disk::look(&self.shared.disk).away = true;
                self.note(now, format!("the brain's disk is away for {time:?}"));
                self.mends.push((now + time, Mend::Disk));
            }
            Planned::Gone(foot, time) => {
                self.cut(now, foot, false, false);
                sim.partition(foot_name(foot), BRAIN);
                self.note(now, format!("foot {foot} is away for {time:?}"));
                self.mends.push((now + time, Mend::Clock(foot, time)));
                self.mends.push((now + time, Mend::Link(foot)));
            }
        }
    }

    fn trouble(&mut self, sim: &mut Sim<'_>, now: Duration) {
        // Mostly where something is going on.
        let busy = self.shared.ledger.last_foot().filter(|_| fastrand::u32(0..4) > 0);
        let foot = busy.unwrap_or_else(|| fastrand::usize(..self.feet));
        let mut at = fastrand::u32(0..self.weights.iter().map(|(_, weight)| weight).sum());
        let chosen = self.weights.iter().find(|(_, weight)| {
            let found = at < *weight;
            at = at.saturating_sub(*weight);
            found
        });
        match chosen.map_or(Kind::Cut, |(kind, _)| *kind) {
            Kind::Cut => self.cut(now, foot, true, true),
            Kind::CutUnknownToBrain => self.cut(now, foot, true, false),
            Kind::CutUnknownToFoot => self.cut(now, foot, false, true),
            Kind::Silence => self.cut(now, foot, false, false),
            Kind::Late => self.late(now, foot),
            Kind::Link => self.break_link(sim, now, foot),
            Kind::KillFoot => self.kill_foot(sim, now, foot),
            Kind::KillBrain => self.kill_brain(sim, now),
            Kind::Jump => self.jump(now),
            Kind::Disk => self.disk(now),
            Kind::StrikeFoot => self.strike(now, Some(foot), &FOOT_PARTS),
            Kind::StrikeBrain => self.strike(now, None, &BRAIN_PARTS),
            Kind::Cancel => self.cancel(now),
            Kind::Slow => self.slow(sim, now),
        }
    }

    /// An end that does not hear of the cut hears nothing at all.
    fn cut(&mut self, now: Duration, foot: usize, foot_hears: bool, brain_hears: bool) {
        self.note(now, format!("line of foot {foot} is cut; foot hears: {foot_hears}, brain hears: {brain_hears}"));
        let lines = lock(&self.shared.lines);
        for (end, hears) in [(End::Foot, foot_hears), (End::Brain, brain_hears)] {
            for control in lines.of(foot, end) {
                if hears { control.cut() } else { control.swallow() }
            }
        }
    }

    /// What the Foot sent arrives long after it has come back on another line.
    fn late(&mut self, now: Duration, foot: usize) {
        let by = between(Duration::from_millis(200), Duration::from_secs(25));
        self.note(now, format!("what foot {foot} sent on this line arrives {by:?} late, and it takes another line"));
        let lines = lock(&self.shared.lines);
        lines.of(foot, End::Brain).iter().for_each(|control| control.delay(by));
        lines.of(foot, End::Foot).iter().for_each(super::line::Control::cut);
    }

    fn break_link(&mut self, sim: &Sim<'_>, now: Duration, foot: usize) {
        if self.is_broken(Mend::Link(foot)) {
            return;
        }
        let name = foot_name(foot);
        let what = match fastrand::u32(0..4) {
            0 => {
                sim.partition_oneway(name.as_str(), BRAIN);
                "loses what it sends"
            }
            1 => {
                sim.partition_oneway(BRAIN, name.as_str());
                "loses what it is sent"
            }
            2 => {
                sim.hold(name.as_str(), BRAIN);
                "is held up"
            }
            _ => {
                sim.partition(name.as_str(), BRAIN);
                "is cut off"
            }
        };
        self.note(now, format!("foot {foot} {what}"));
        let most = if fastrand::bool() { 3_000 } else { 50_000 };
        self.later(now, 100, most, Mend::Link(foot));
    }

    fn kill_foot(&mut self, sim: &mut Sim<'_>, now: Duration, foot: usize) {
        if self.is_broken(Mend::Foot(foot)) {
            return;
        }
        // A machine that loses its power says no goodbye, and its disk forgets what was not flushed.
        let power = fastrand::u32(0..3) == 0;
        self.note(now, format!("foot {foot} is killed{}", if power { ", and its machine" } else { "" }));
        if power && !self.is_broken(Mend::Link(foot)) {
            sim.partition(foot_name(foot), BRAIN);
            self.mends.push((now + Duration::from_millis(10), Mend::Link(foot)));
        }
        sim.crash(foot_name(foot));
        if power {
            lock(&self.shared.shelves[foot]).lose_unflushed();
        }
        self.later(now, 50, 6_000, Mend::Foot(foot));
    }

    fn kill_brain(&mut self, sim: &mut Sim<'_>, now: Duration) {
        if self.is_broken(Mend::Brain) {
            return;
        }
        let power = fastrand::u32(0..3) == 0;
        self.note(now, format!("the brain is killed{}", if power { ", and its machine" } else { "" }));
        for foot in 0..self.feet {
            if power && !self.is_broken(Mend::Link(foot)) {
                sim.partition(foot_name(foot), BRAIN);
                self.mends.push((now + Duration::from_millis(10), Mend::Link(foot)));
            }
        }
        sim.crash(BRAIN);
        self.later(now, 50, 8_000, Mend::Brain);
    }

    fn jump(&mut self, now: Duration) {
        let by = if fastrand::bool() { fastrand::i64(3_000..900_000) } else { -fastrand::i64(1..20_000) };
        // A machine that slept, or all of them, set by the same hand.
        let machines = 0..=self.feet;
        let one = (fastrand::u32(0..3) > 0).then(|| fastrand::usize(machines.clone()));
        machines.filter(|number| one.is_none_or(|one| one == *number)).for_each(|number| clock::jump(number, by));
        self.note(now, format!("the wall clock of {} jumps by {by} ms", one.map_or("all".to_owned(), machine)));
    }

    fn disk(&mut self, now: Duration) {
        if self.is_broken(Mend::Disk) {
            return;
        }
        let mut disk = disk::look(&self.shared.disk);
        disk.away = fastrand::bool();
        disk.fails_one_in = 4;
        let what = if disk.away { "is away" } else { "fails now and then" };
        drop(disk);
        self.note(now, format!("the brain's disk {what}"));
        self.later(now, 100, 12_000, Mend::Disk);
    }

    fn strike(&mut self, now: Duration, whose: Option<usize>, parts: &[&str]) {
        let part = parts[fastrand::usize(..parts.len())];
        self.note(now, format!("a panic for {part} of {}", whose.map_or("the brain".to_owned(), foot_name)));
        lock(&self.shared.strikes).push((whose, part.to_owned()));
    }

    fn cancel(&mut self, now: Duration) {
        let id = self.tasks[fastrand::usize(..self.tasks.len())].clone();
        // A person may think better of it.
        let again = fastrand::u32(0..3) == 0 && self.alone.contains(&id);
        if again {
            lock(&self.shared.person).to_retry.insert(id.clone());
        }
        self.note(now, format!("{id} is to be cancelled"));
        lock(&self.shared.person).to_cancel.insert(id);
    }

    fn slow(&mut self, sim: &Sim<'_>, now: Duration) {
        if !self.is_broken(Mend::Network) {
            self.note(now, "the network is slow");
            sim.set_max_message_latency(Duration::from_secs(3));
            self.later(now, 1_000, 15_000, Mend::Network);
        }
    }

    fn mend(&mut self, sim: &mut Sim<'_>, mend: Mend) {
        let now = sim.elapsed();
        match mend {
            Mend::Link(foot) => {
                let name = foot_name(foot);
                sim.release(name.as_str(), BRAIN);
                self.note(now, format!("foot {foot} is reachable"));
            }
            Mend::Foot(foot) => sim.bounce(foot_name(foot)),
            Mend::Brain => sim.bounce(BRAIN),
            Mend::Disk => {
                let mut disk = disk::look(&self.shared.disk);
                disk.away = false;
                disk.fails_one_in = 0;
                drop(disk);
                self.note(now, "the brain's disk is good");
            }
            Mend::Clock(foot, by) => clock::jump(foot + 1, i64::try_from(by.as_millis()).unwrap_or(i64::MAX)),
            Mend::Network => sim.set_max_message_latency(Duration::from_millis(60)),
        }
    }
}

fn between(from: Duration, to: Duration) -> Duration {
    let (from, to) = (from.as_millis(), to.as_millis());
    Duration::from_millis(fastrand::u64(u64::try_from(from).unwrap_or(0)..=u64::try_from(to.max(from)).unwrap_or(0)))
}

/// By its number: the Brain first.
fn machine(number: usize) -> String {
    number.checked_sub(1).map_or(BRAIN.to_owned(), foot_name)
}

//! Kills at random moments while a tree of tasks runs on the Brain and two Feet. `STORM_SEED=17` blows another storm; a failure
//! and the end of each name theirs.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::time::Duration;

use anyhow::Context as _;
use fastrand::Rng;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use vance_tests::api::{Api, Tree};
use vance_tests::home::Home;
use vance_tests::process::{Brain, Process, foot, processes_with, zombies_of};
use vance_tests::proxy::{Line, Proxy};
use vance_tests::summary;
use vance_tests::toy::Toy;
use vance_tests::wait::until;

const TASKS: usize = 50;

/// Longer than any storm here takes to calm down.
const CALM: Duration = Duration::from_secs(120);

struct Step {
    unsafe_: bool,
}

/// A random tree, and its steps by name.
fn tree(rng: &mut Rng, tasks: usize) -> (String, HashMap<String, Step>) {
    let (mut yaml, mut steps) = ("tasks:\n".to_owned(), HashMap::new());
    for t in 0..tasks {
        writeln!(yaml, "- id: t{t}").ok();
        if t > 3 && rng.u8(..3) == 0 {
            writeln!(yaml, "  depends_on: [t{}, t{}]", rng.usize(..t / 2), rng.usize(t / 2..t)).ok();
        }
        match rng.u8(..3) {
            0 => yaml.push_str("  client: one\n"),
            1 => yaml.push_str("  client: two\n"),
            _ => {}
        }
        yaml.push_str("  steps:\n");
        for s in 0..rng.usize(1..4) {
            let name = format!("t{t}s{s}.");
            let unsafe_ = rng.u8(..3) > 0;
            let pack = if rng.u8(..3) > 0 { "toy" } else { "srv" };
            let tool = if unsafe_ { "effect" } else { "look" };
            let ms = if rng.bool() { rng.u32(..20) } else { rng.u32(50..400) };
            writeln!(yaml, "  - {{call: {pack}__{tool}, with: {{name: \"{name}\", ms: {ms}}}}}").ok();
            steps.insert(name, Step { unsafe_ });
        }
    }
    (yaml, steps)
}

/// Everything of one storm.
struct Storm {
    home: Home,
    other: Home,
    brain: Brain,
    lines: [Proxy; 2],
    feet: [Process; 2],
    toy: Toy,
    rng: Rng,
    /// Runs that a person asked for, by step.
    asked: HashMap<String, usize>,
    /// Steps that a person called done, whether they ran or not.
    settled: HashSet<String>,
    kills: Kills,
}

/// How often each side was killed.
#[derive(Debug, Clone, Copy, Default)]
struct Kills {
    brain: usize,
    feet: usize,
}

impl Kills {
    fn all(self) -> usize {
        self.brain + self.feet
    }
}

impl Storm {
    async fn new(seed: u64) -> anyhow::Result<Self> {
        let home = Home::new()?;
        let toy = Toy::new(&home)?;
        toy.for_brain(&home, "srv", &[])?;
        let brain = Brain::start(&home).await?;
        let other = Home::beside(&home)?;
        toy.for_foot(&home)?;
        toy.for_foot(&other)?;
        let lines = [Proxy::before(brain.addr()).await?, Proxy::before(brain.addr()).await?];
        let one = foot(&home, &lines[0].url, &["--name", "one"]).await?;
        let two = foot(&other, &lines[1].url, &["--name", "two"]).await?;
        let rng = Rng::with_seed(seed);
        let feet = [one, two];
        let (asked, settled) = Default::default();
        Ok(Self { home, other, brain, lines, feet, toy, rng, asked, settled, kills: Kills::default() })
    }

    async fn kill_brain(&mut self) -> anyhow::Result<()> {
        self.kills.brain += 1;
        self.brain.kill9_and_restart(&self.home).await
    }

    async fn kill_foot(&mut self, which: usize) -> anyhow::Result<()> {
        let (home, name) = if which == 0 { (&self.home, "one") } else { (&self.other, "two") };
        let (Some(foot), Some(line)) = (self.feet.get_mut(which), self.lines.get(which)) else { return Ok(()) };
        foot.kill9().await?;
        self.kills.feet += 1;
        let args = ["--daemon", "--brain", &line.url, "--name", name];
        *foot = Process::start("vancetope", home, &args)?;
        Ok(())
    }

    async fn cut(&mut self) {
        let Some(line) = self.lines.get(self.rng.usize(..2)) else { return };
        line.set(Line::Cut);
        sleep(Duration::from_millis(self.rng.u64(..200))).await;
        line.set(Line::Open);
    }

    /// A person's word on what nobody can know.
    async fn resolve(&mut self, api: &Api, tree: &Tree) -> anyhow::Result<()> {
        for task in tasks(api, tree, "blocked").await? {
            let reason = task["blocked_reason"].as_str().unwrap_or_default().to_owned();
            if !reason.starts_with("Outcome unknown") {
                continue;
            }
            let id = task["id"].as_str().unwrap_or_default().to_owned();
            let done = task["calls"].as_array().into_iter().flatten().filter(|c| c["outcome"] == "done").count();
            let retry = self.rng.bool();
            let word = if retry { json!({"as": "retry"}) } else { json!({"as": "done", "output": {}}) };
            let (status, body) = tree.post(&id, "resolve", &word).await?;
            // Somebody may have had an answer in the meantime: the real result came.
            anyhow::ensure!(status == 200 || status == 409, "{status} {body}");
            let step = format!("{id}s{done}.");
            match (status, retry) {
                (200, true) => *self.asked.entry(step).or_default() += 1,
                (200, false) => {
                    self.settled.insert(step);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The ledger holds what must have run, and nothing that must not.
    fn judge(&self, steps: &HashMap<String, Step>) -> anyhow::Result<()> {
        let begun = self.toy.begun()?;
        for (name, step) in steps {
            let times = begun.get(name).copied().unwrap_or(0);
            let asked = self.asked.get(name).copied().unwrap_or(0);
            let least = usize::from(!self.settled.contains(name));
            let most = if step.unsafe_ { 1 + asked } else { usize::MAX };
            anyhow::ensure!((least..=most).contains(&times), "{name} began {times} times, a person asked for {asked}");
        }
        let foreign: Vec<&String> = begun.keys().filter(|name| !steps.contains_key(*name)).collect();
        anyhow::ensure!(foreign.is_empty(), "nobody wanted {foreign:?}");
        Ok(())
    }

    /// Nobody that was started here is left, and nobody who ended was forgotten by its parent.
    async fn nobody_is_left(mut self) -> anyhow::Result<()> {
        let marks = [self.home.root().display().to_string(), self.other.root().display().to_string()];
        let ours = || -> anyhow::Result<Vec<i32>> {
            let mut ours = Vec::new();
            for mark in &marks {
                ours.extend(processes_with(mark)?);
            }
            Ok(ours)
        };
        let least = 1 + self.feet.len();
        anyhow::ensure!(ours()?.len() > least, "the programs and their servers are found: {:?}", ours()?);
        until("no zombies", || async { Ok(zombies_of(&ours()?)?.is_empty().then_some(())) }).await?;
        for foot in &mut self.feet {
            foot.kill9().await?;
        }
        self.brain.process.kill9().await?;
        until("no orphans", || async { Ok(ours()?.is_empty().then_some(())) }).await
    }
}

async fn tasks(api: &Api, tree: &Tree, state: &str) -> anyhow::Result<Vec<Value>> {
    let tree_id = tree.body["tree_id"].as_str().unwrap_or_default();
    let (status, body) = api.get(&format!("/api/v1/tasks?tree={tree_id}&state={state}&limit=500")).await?;
    anyhow::ensure!(status == 200, "{status} {body}");
    Ok(body["tasks"].as_array().cloned().unwrap_or_default())
}

/// Whom a storm kills, and whether it cuts lines in between.
struct Weather {
    kills: usize,
    brain: bool,
    feet: bool,
    lines: bool,
}

async fn storm(seed: u64, weather: Weather) -> anyhow::Result<Kills> {
    let kills = blow(seed, weather).await.with_context(|| format!("STORM_SEED={seed}"))?;
    println!("STORM_SEED={seed}: {kills:?}");
    summary::count("kills of Brains and Feet under load", kills.all());
    Ok(kills)
}

async fn blow(seed: u64, weather: Weather) -> anyhow::Result<Kills> {
    let mut storm = Storm::new(seed).await?;
    let (yaml, steps) = tree(&mut storm.rng, TASKS);
    let api = Api::new(&storm.home, &storm.brain.url)?;
    let tree = api.submit(&yaml).await?;
    let Weather { kills, brain, feet, lines } = weather;
    while storm.kills.all() < kills {
        sleep(Duration::from_millis(storm.rng.u64(20..500))).await;
        if lines && storm.rng.u8(..3) == 0 {
            storm.cut().await;
        } else if brain && (!feet || storm.rng.bool()) {
            storm.kill_brain().await?;
        } else {
            let which = storm.rng.usize(..2);
            storm.kill_foot(which).await?;
        }
        storm.resolve(&api, &tree).await?;
    }
    let deadline = Instant::now() + CALM;
    while tasks(&api, &tree, "completed").await?.len() < TASKS {
        storm.resolve(&api, &tree).await?;
        let failed = tasks(&api, &tree, "failed").await?;
        if Instant::now() > deadline || !failed.is_empty() {
            for state in ["pending", "running", "blocked", "queued", "failed", "cancelled", "skipped"] {
                for task in tasks(&api, &tree, state).await? {
                    eprintln!("{state}: {task}");
                }
            }
            anyhow::bail!("not all tasks ended\n{}\n{}", storm.brain.process.log(), storm.feet[0].log());
        }
        sleep(Duration::from_millis(50)).await;
    }
    storm.judge(&steps)?;
    let kills = storm.kills;
    storm.nobody_is_left().await?;
    Ok(kills)
}

/// The seed that somebody asked for.
fn wanted_seed() -> anyhow::Result<Option<u64>> {
    std::env::var("STORM_SEED").ok().map(|seed| seed.parse().context("STORM_SEED is a number")).transpose()
}

#[tokio::test]
async fn the_brain_is_killed_twenty_times_while_fifty_tasks_run() -> anyhow::Result<()> {
    let kills = storm(1, Weather { kills: 20, brain: true, feet: false, lines: false }).await?;
    assert_eq!((kills.brain, kills.feet), (20, 0));
    Ok(())
}

#[tokio::test]
async fn the_feet_are_killed_twenty_times_while_fifty_tasks_run() -> anyhow::Result<()> {
    let kills = storm(2, Weather { kills: 20, brain: false, feet: true, lines: false }).await?;
    assert_eq!((kills.brain, kills.feet), (0, 20));
    Ok(())
}

#[tokio::test]
async fn twenty_kills_of_random_sides_and_cuts_between_them_while_fifty_tasks_run() -> anyhow::Result<()> {
    let seed = wanted_seed()?.unwrap_or(3);
    let kills = storm(seed, Weather { kills: 20, brain: true, feet: true, lines: true }).await?;
    assert_eq!(kills.all(), 20);
    Ok(())
}

#[tokio::test]
#[ignore = "nightly: minutes of kills, other seeds each time"]
async fn two_hundred_kills_of_random_sides_in_ten_storms() -> anyhow::Result<()> {
    let wanted = wanted_seed()?;
    let mut all = 0;
    for _ in 0..10 {
        let seed = wanted.unwrap_or_else(|| fastrand::u64(..));
        all += storm(seed, Weather { kills: 20, brain: true, feet: true, lines: true }).await?.all();
    }
    assert_eq!(all, 200);
    Ok(())
}

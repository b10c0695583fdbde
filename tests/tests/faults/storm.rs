//! Kills at random moments while a tree of tasks runs on the Brain and two Feet.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::Duration;

use fastrand::Rng;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use vance_tests::api::{Api, Tree};
use vance_tests::home::Home;
use vance_tests::process::{Brain, Process, foot, processes_with, zombies_of};
use vance_tests::proxy::{Line, Proxy};
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
        Ok(Self { home, other, brain, lines, feet: [one, two], toy, rng, asked: HashMap::new() })
    }

    async fn kill_foot(&mut self, which: usize) -> anyhow::Result<()> {
        let (home, name) = if which == 0 { (&self.home, "one") } else { (&self.other, "two") };
        let (Some(foot), Some(line)) = (self.feet.get_mut(which), self.lines.get(which)) else { return Ok(()) };
        foot.kill9().await?;
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
            if retry && status == 200 {
                *self.asked.entry(format!("{id}s{done}.")).or_default() += 1;
            }
        }
        Ok(())
    }
}

async fn tasks(api: &Api, tree: &Tree, state: &str) -> anyhow::Result<Vec<Value>> {
    let tree_id = tree.body["tree_id"].as_str().unwrap_or_default();
    let (status, body) = api.get(&format!("/api/v1/tasks?tree={tree_id}&state={state}&limit=500")).await?;
    anyhow::ensure!(status == 200, "{status} {body}");
    Ok(body["tasks"].as_array().cloned().unwrap_or_default())
}

/// What a storm does besides letting the tasks run.
struct Weather {
    blows: usize,
    brain: bool,
    feet: bool,
    lines: bool,
}

async fn storm(seed: u64, weather: Weather) -> anyhow::Result<()> {
    let mut storm = Storm::new(seed).await?;
    let (yaml, steps) = tree(&mut storm.rng, TASKS);
    let api = Api::new(&storm.home, &storm.brain.url)?;
    let tree = api.submit(&yaml).await?;
    let Weather { blows, brain, feet, lines } = weather;
    for _ in 0..blows {
        sleep(Duration::from_millis(storm.rng.u64(20..500))).await;
        let may = [brain, feet, lines];
        let whom = std::iter::repeat_with(|| storm.rng.usize(..3)).find(|n| may.get(*n) == Some(&true));
        match whom {
            Some(0) => storm.brain.kill9_and_restart(&storm.home).await?,
            Some(1) => {
                let which = storm.rng.usize(..2);
                storm.kill_foot(which).await?;
            }
            _ => storm.cut().await,
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
            anyhow::bail!("seed {seed}: not all tasks ended\n{}\n{}", storm.brain.process.log(), storm.feet[0].log());
        }
        sleep(Duration::from_millis(50)).await;
    }
    let begun = storm.toy.begun()?;
    for (name, step) in &steps {
        let times = begun.get(name).copied().unwrap_or(0);
        let asked = storm.asked.get(name).copied().unwrap_or(0);
        anyhow::ensure!(!step.unsafe_ || times <= 1 + asked, "seed {seed}: {name} began {times} times, asked {asked}");
    }
    let mut owners = vec![storm.brain.process.pid()?];
    for foot in &storm.feet {
        owners.push(foot.pid()?);
    }
    until("no zombies", || async { Ok(zombies_of(&owners)?.is_empty().then_some(())) }).await?;
    let file = storm.toy.file().display().to_string();
    for foot in &mut storm.feet {
        foot.kill9().await?;
    }
    storm.brain.process.kill9().await?;
    until("no orphans", || async { Ok(processes_with(&file)?.is_empty().then_some(())) }).await?;
    Ok(())
}

#[tokio::test]
async fn the_brain_is_killed_twenty_times_while_fifty_tasks_run() -> anyhow::Result<()> {
    storm(1, Weather { blows: 20, brain: true, feet: false, lines: false }).await
}

#[tokio::test]
async fn the_feet_are_killed_twenty_times_while_fifty_tasks_run() -> anyhow::Result<()> {
    storm(2, Weather { blows: 20, brain: false, feet: true, lines: false }).await
}

#[tokio::test]
async fn all_are_killed_and_the_lines_cut_while_fifty_tasks_run() -> anyhow::Result<()> {
    storm(3, Weather { blows: 20, brain: true, feet: true, lines: true }).await
}

#[tokio::test]
#[ignore = "nightly: minutes of kills, another seed each time"]
async fn kills_with_new_seeds() -> anyhow::Result<()> {
    for _ in 0..10 {
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        storm(seed, Weather { blows: 30, brain: true, feet: true, lines: true }).await?;
    }
    Ok(())
}

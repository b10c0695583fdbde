//! Tasks: durable commits alone and in groups, a thousand that wait for one client, and ten thousand that wait for nobody.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::client::Client;
use super::load::{Run, Target, alone, together};
use super::programs::{Brain, Home};
use super::system::{cpu, flush_micros, median, memory_kib};
use super::table::{Goal, Table};

/// Tasks of one tree.
const TREE: usize = 100;
/// Until nothing of the measure before is under way.
const REST: Duration = Duration::from_millis(500);
/// How long a Brain is watched that should do nothing.
const LOOK: Duration = Duration::from_secs(3);

struct Ours {
    home: Home,
    brain: Brain,
}

impl Ours {
    fn start() -> anyhow::Result<Self> {
        let home = Home::new()?;
        Ok(Self { brain: Brain::start(&home)?, home })
    }

    fn target(&self, path: &str, body: &str, holds: &'static str) -> Target {
        Target::post(&self.brain.addr, path, &self.brain.token, "json", body, holds)
    }

    fn commits(&self) -> anyhow::Result<f64> {
        let shown = self.brain.get("/metrics")?;
        let line = shown.lines().find_map(|l| l.strip_prefix("vance_store_commits_total "));
        Ok(line.context("no count of commits")?.trim().parse()?)
    }

    /// The client whose tools the tasks want comes once: without it a task that wants one fails.
    fn introduce(&self) -> anyhow::Result<()> {
        super::small(async { Client::hello(&self.brain.addr, &self.brain.token, &bench()).await.map(drop) })
    }

    /// Submits tasks that need a client, until so many wait for it.
    fn block(&self, tasks: usize) -> anyhow::Result<()> {
        let mut yaml = "tasks:\n".to_owned();
        for id in 0..TREE {
            writeln!(
                yaml,
                "- id: t{id}\n  client: bench\n  steps: [{{call: bench_echo, with: {{text: x}}, as: out}}]"
            )?;
        }
        for _ in 0..tasks / TREE {
            self.brain.post("/api/v1/tasks", &yaml)?;
        }
        self.brain.until(&format!("{tasks} tasks wait"), || {
            let body: Value = serde_json::from_str(&self.brain.get("/api/v1/tasks?state=blocked&limit=10000")?)?;
            Ok(body["tasks"].as_array().map_or(0, Vec::len) >= tasks)
        })
    }
}

/// Durable commits.
pub(crate) fn commits(table: &mut Table) -> anyhow::Result<()> {
    let ours = Ours::start()?;
    let tree = r#"{"tasks": [{"id": "a", "steps": [{"call": "now"}]}]}"#;
    let submit = ours.target("/api/v1/tasks", tree, "task_id");
    let call = ours.target("/api/v1/tools/now/call", "{}", "\"done\"");
    let run = |target: &Target, at: usize| -> anyhow::Result<Run> {
        match at {
            // Rests in between: what a submission begins is over before the next one.
            0 => alone(target, 300, Duration::from_millis(3)),
            1 => alone(target, 1_500, Duration::ZERO),
            _ => together(target, at, Duration::from_millis(2_000)),
        }
    };
    run(&submit, 16)?;
    std::thread::sleep(REST);
    let flush = flush_micros(&ours.home.path(), 300)?;
    let (plain, posted) = (run(&call, 0)?.micros(0.5), run(&submit, 0)?.micros(0.5));
    table.value("disk flush of 4 KiB, p50", "µs", flush, Goal::None);
    table.ratio("POST of a tree with one step, p50 (base: a disk flush)", "µs", flush, posted, Goal::None);
    table.ratio("its commit: less a call of `now` (base: a disk flush)", "µs", flush, posted - plain, Goal::Most(1.4));
    let mut rates = Vec::new();
    for at in [1, 64] {
        let before = ours.commits()?;
        let run = run(&submit, at)?;
        let commits = ours.commits()? - before;
        let took = run.calls() / run.rate();
        rates.push((commits / took, run.rate(), run.micros(0.5)));
        std::thread::sleep(REST);
    }
    if let [one, many] = rates.as_slice() {
        table.ratio("durable commits, 64 trees in flight (base: 1)", "commits/s", one.0, many.0, Goal::Least(4.0));
        table.ratio("trees taken, 64 in flight (base: 1)", "trees/s", one.1, many.1, Goal::None);
        table.value("POST of a tree, 64 in flight, p50", "ms", many.2 / 1e3, Goal::None);
    }
    Ok(())
}

/// A thousand tasks that wait for one client, when it is back.
pub(crate) fn reconnect(table: &mut Table, client_rate: Option<f64>) -> anyhow::Result<()> {
    let (mut firsts, mut dones) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let ours = Ours::start()?;
        ours.introduce()?;
        ours.block(1_000)?;
        let (first, done) = super::small(drain(&ours.brain, 1_000))?;
        firsts.push(first.as_secs_f64() * 1e3);
        dones.push(done.as_secs_f64());
    }
    let done = median(dones);
    table.value("1,000 blocked tasks after a reconnect: first call", "ms", median(firsts), Goal::Most(20.0));
    let what = "1,000 blocked tasks, until all are stored (base: client calls at 64)";
    match client_rate {
        Some(rate) => table.ratio(what, "tasks/s", rate, 1_000.0 / done, Goal::Least(0.3)),
        None => table.value(what, "tasks/s", 1_000.0 / done, Goal::None),
    }
    table.value("1,000 blocked tasks: all stored and acknowledged after", "ms", done * 1e3, Goal::None);
    Ok(())
}

/// Connects and answers every call at once; gives the time from the hello to the first call, and to the last acknowledgement.
async fn drain(brain: &Brain, tasks: usize) -> anyhow::Result<(Duration, Duration)> {
    let mut client = Client::connect(&brain.addr, &brain.token).await?;
    let begun = Instant::now();
    client.send(&bench()).await?;
    let mut first = None;
    let mut acked = 0;
    while acked < tasks {
        let frame = client.next().await?;
        match frame["type"].as_str() {
            Some("call") => {
                first.get_or_insert_with(|| begun.elapsed());
                let outcome = json!({"done": {"content": [{"type": "text", "text": "x"}]}});
                let (call_id, attempt) = (&frame["call_id"], &frame["attempt"]);
                client
                    .send(&json!({"type": "result", "call_id": call_id, "attempt": attempt, "outcome": outcome}))
                    .await?;
            }
            Some("result_ack") => acked += 1,
            Some("ping") => client.send(&json!({"type": "pong", "nonce": frame["nonce"]})).await?,
            _ => {}
        }
    }
    Ok((first.context("no call came")?, begun.elapsed()))
}

/// Ten thousand tasks that wait.
pub(crate) fn waiting(table: &mut Table) -> anyhow::Result<()> {
    let ours = Ours::start()?;
    ours.introduce()?;
    // A first tree, so that what is made once is not counted.
    ours.block(TREE)?;
    let pid = ours.brain.program.pid()?;
    let empty = memory_kib(pid)?;
    ours.block(10_000)?;
    std::thread::sleep(Duration::from_secs(1));
    let before = cpu(&[pid])?;
    std::thread::sleep(LOOK);
    let used = (cpu(&[pid])? - before).as_secs_f64() / LOOK.as_secs_f64();
    table.value("10,000 blocked tasks: processor while they wait", "% of a core", used * 100.0, Goal::Most(0.5));
    table.value("10,000 blocked tasks: memory", "KiB/task", (memory_kib(pid)? - empty) / 10_000.0, Goal::None);
    Ok(())
}

fn bench() -> Value {
    json!({
        "type": "client_connected", "client_type": "cli", "protocol": [1], "client_id": "foot_bench", "name": "bench",
        "available_tools": [{"name": "bench_echo", "type": "native", "replay": "safe"}],
    })
}

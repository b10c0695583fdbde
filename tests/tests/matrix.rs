//! One task in each state, and each fault that can come over all of them: every state comes through, and everything is done in the end.
//! How each stands is looked at before the fault and after it.
#![allow(missing_docs)]

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;
use nix::sys::signal::Signal;
use rusqlite::Connection;
use serde_json::json;
use tokio::time::{Duration, sleep};
use vance_tests::api::{Api, Tree};
use vance_tests::home::Home;
use vance_tests::process::{Brain, Process, foot, processes_with};
use vance_tests::proxy::{Line, Proxy};
use vance_tests::toy::Toy;
use vance_tests::wait::until;

/// A program that runs until it may end, and says when it began.
struct Waits {
    program: PathBuf,
    ledger: PathBuf,
    go: PathBuf,
}

impl Waits {
    fn new(home: &Home) -> anyhow::Result<Self> {
        use std::os::unix::fs::PermissionsExt as _;
        let (ledger, go) = (home.root().join("ledger"), home.root().join("go"));
        std::fs::write(&ledger, "")?;
        let script = format!(
            "#!/bin/sh\necho \"$1\" >> '{}'\nuntil [ -e '{}' ]; do sleep 0.05; done\n",
            ledger.display(),
            go.display()
        );
        let program = home.root().join("waits");
        std::fs::write(&program, script)?;
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
        Ok(Self { program, ledger, go })
    }

    /// Lets the Foot of a home run it.
    fn allow(&self, home: &Home) -> anyhow::Result<()> {
        home.write("permissions.yaml", &format!("allow:\n- exec: [\"{}\"]\n", self.program.display())).map(drop)
    }

    fn step(&self, name: &str) -> String {
        format!("steps: [{{call: shell_execute, with: {{argv: [\"{}\", {name}]}}}}]", self.program.display())
    }

    fn begun(&self, name: &str) -> anyhow::Result<usize> {
        Ok(std::fs::read_to_string(&self.ledger)?.lines().filter(|line| *line == name).count())
    }
}

/// State and reason of each task.
type Standing = BTreeMap<&'static str, (String, String)>;

const LIVE: [&str; 6] = ["running", "suspended", "unknown", "blocked", "queued", "pending"];
const ENDED: [&str; 4] = ["completed", "failed", "cancelled", "skipped"];
const WAITING: &str = "Waiting for Client for Tool: shell_execute";

async fn standing(tree: &Tree) -> anyhow::Result<Standing> {
    let mut all = Standing::new();
    for id in LIVE.into_iter().chain(ENDED) {
        let task = tree.task(id).await?;
        let text = |key: &str| task[key].as_str().unwrap_or_default().to_owned();
        // Of what has ended not even a time changes.
        let ended = ENDED.contains(&id);
        all.insert(id, (text("state"), if ended { text("updated_at") } else { text("blocked_reason") }));
    }
    Ok(all)
}

/// Where the Feet are: of `running`, of `suspended`, of `unknown`, and of what waits for one that has not come yet.
const A: usize = 0;
const B: usize = 1;
const C: usize = 2;
const LATER: usize = 3;
const NAMES: [&str; 4] = ["a", "b", "c", "later"];

/// One task in each state.
struct States {
    home: Home,
    brain: Brain,
    api: Api,
    waits: Waits,
    homes: Vec<Home>,
    lines: Vec<Proxy>,
    feet: BTreeMap<usize, Process>,
    tree: Tree,
    before: Standing,
}

impl States {
    async fn new() -> anyhow::Result<Self> {
        let home = Home::new()?;
        let waits = Waits::new(&home)?;
        let brain = Brain::start(&home).await?;
        let api = Api::new(&home, &brain.url)?;
        let (mut lines, mut homes, mut feet) = (Vec::new(), Vec::new(), BTreeMap::new());
        for (n, name) in NAMES.into_iter().enumerate() {
            let (place, line) = (Home::beside(&home)?, Proxy::before(brain.addr()).await?);
            waits.allow(&place)?;
            if n != LATER {
                feet.insert(n, foot(&place, &line.url, &["--name", name]).await?);
            }
            homes.push(place);
            lines.push(line);
        }
        let step = |name: &str| waits.step(name);
        let tree = api
            .submit(&format!(
                "tasks:
- {{id: running, client: a, {}}}
- {{id: suspended, client: b, {}}}
- {{id: unknown, client: c, {}}}
- {{id: blocked, client: later, {}}}
- {{id: queued, client: later, offline_strategy: queue, {}}}
- {{id: pending, depends_on: [running], steps: [{{call: now}}]}}
- {{id: completed, steps: [{{call: now}}]}}
- {{id: failed, steps: [{{call: nobody_has_this}}]}}
- {{id: cancelled, client: later, steps: [{{call: git_status}}]}}
- {{id: skipped, depends_on: [failed], steps: [{{call: now}}]}}
",
                step("running"),
                step("suspended"),
                step("unknown"),
                step("blocked"),
                step("queued"),
            ))
            .await?;
        for name in ["running", "suspended", "unknown"] {
            until(&format!("{name} runs"), || async { Ok((waits.begun(name)? == 1).then_some(())) }).await?;
        }
        lines.get(B).context("its line")?.set(Line::Cut);
        let before = Standing::new();
        let mut states = Self { home, brain, api, waits, homes, lines, feet, tree, before };
        states.restart_foot(C).await?;
        states.tree.until("cancelled", "blocked").await?;
        assert_eq!(states.tree.post("cancelled", "cancel", &json!({})).await?.0, 200);
        states.before = until("all stand", || async {
            let now = standing(&states.tree).await?;
            let is = |id: &str, state: &str, reason: &str| {
                now.get(id).is_some_and(|(s, r)| s == state && r.starts_with(reason))
            };
            let all = is("running", "running", "")
                && is("suspended", "blocked", WAITING)
                && is("unknown", "blocked", "Outcome unknown for Tool: shell_execute")
                && is("blocked", "blocked", WAITING)
                && is("queued", "queued", WAITING)
                && is("pending", "pending", "")
                && ENDED.iter().all(|id| is(id, id, ""));
            Ok(all.then_some(now))
        })
        .await?;
        Ok(states)
    }

    fn line(&self, n: usize) -> anyhow::Result<&Proxy> {
        self.lines.get(n).context("its line")
    }

    /// Kills a Foot, and starts it again.
    async fn restart_foot(&mut self, n: usize) -> anyhow::Result<()> {
        if let Some(mut process) = self.feet.remove(&n) {
            process.kill9().await?;
        }
        self.start_foot(n).await
    }

    async fn start_foot(&mut self, n: usize) -> anyhow::Result<()> {
        let (place, name) = (self.homes.get(n).context("its home")?, NAMES.get(n).context("its name")?);
        let process = foot(place, &self.line(n)?.url, &["--name", name]).await?;
        self.feet.insert(n, process);
        Ok(())
    }

    /// Waits until the Brain takes a client for there, or not.
    async fn until_online(&self, n: usize, online: bool) -> anyhow::Result<()> {
        let name = NAMES.get(n).context("its name")?;
        until(&format!("{name} online: {online}"), || async {
            let Ok((_, body)) = self.api.get("/api/v1/sessions/default.local").await else { return Ok(None) };
            let clients = body["clients"].as_array().cloned().unwrap_or_default();
            let now = clients.iter().any(|client| client["name"] == **name && client["presence"] == "online");
            Ok((now == online).then_some(()))
        })
        .await
    }

    async fn until_as_before(&self, fault: &str) -> anyhow::Result<()> {
        let last = std::sync::Mutex::new(Standing::new());
        let stand = until(&format!("everything stands as before: {fault}"), || async {
            let Ok(now) = standing(&self.tree).await else { return Ok(None) };
            let as_before = now == self.before;
            if let Ok(mut last) = last.lock() {
                *last = now;
            }
            Ok(as_before.then_some(()))
        })
        .await;
        stand.with_context(|| format!("before: {:#?}\nlast: {:#?}", self.before, last.lock().ok()))
    }

    /// Everybody comes, and everything is done; each ran once.
    async fn all_is_done(mut self) -> anyhow::Result<()> {
        std::fs::write(&self.waits.go, "")?;
        self.line(B)?.set(Line::Open);
        self.start_foot(LATER).await?;
        let (status, body) = self.tree.post("unknown", "resolve", &json!({"as": "done", "output": "seen"})).await?;
        assert_eq!(status, 200, "{body}");
        for id in LIVE {
            self.tree.until(id, "completed").await?;
        }
        for name in ["running", "suspended", "unknown", "blocked", "queued"] {
            assert_eq!(self.waits.begun(name)?, 1, "{name} ran once");
        }
        self.what_has_ended_is_what_it_was().await
    }

    async fn what_has_ended_is_what_it_was(&self) -> anyhow::Result<()> {
        let after = standing(&self.tree).await?;
        for id in ENDED {
            assert_eq!(after.get(id), self.before.get(id), "{id}");
        }
        Ok(())
    }
}

#[tokio::test]
async fn every_state_comes_through_every_fault_and_all_is_done_in_the_end() -> anyhow::Result<()> {
    let mut states = States::new().await?;

    states.brain.kill9_and_restart(&states.home).await?;
    states.until_as_before("the Brain was killed").await?;

    states.home.write("brain/tools.yaml", "- {name: nobody_has_this_either, location: client}\n")?;
    states.brain.process.signal(Signal::SIGHUP)?;
    until("the file is read", || async {
        let (_, body) = states.api.get("/api/v1/sessions/default.local/tools").await?;
        Ok(body.to_string().contains("nobody_has_this_either").then_some(()))
    })
    .await?;
    states.until_as_before("the files were read again").await?;

    // The line of a call that runs, and of one whose outcome nobody knows: that one is not asked about less.
    states.line(A)?.set(Line::Cut);
    states.line(C)?.set(Line::Cut);
    states.tree.until("running", "blocked").await?;
    states.until_online(C, false).await?;
    let (asked, now) = (states.before.get("unknown"), standing(&states.tree).await?);
    assert_eq!(now.get("unknown"), asked);
    states.line(A)?.set(Line::Open);
    states.line(C)?.set(Line::Open);
    states.until_online(C, true).await?;
    states.until_as_before("the lines were cut").await?;

    states.restart_foot(C).await?;
    states.until_as_before("a Foot was killed").await?;

    assert_eq!(states.brain.process.stop().await?, 0);
    let addr = states.brain.addr().to_owned();
    states.brain = Brain::start_on(&states.home, &addr).await?;
    states.until_as_before("the Brain was stopped and started").await?;

    states.all_is_done().await
}

#[tokio::test]
async fn every_state_comes_through_a_store_that_is_away_for_ten_seconds() -> anyhow::Result<()> {
    let mut states = States::new().await?;
    states.until_online(A, true).await?;
    // Somebody else holds the file: nothing can be written.
    let holder = Connection::open(states.home.path().join("brain/data/brain.db"))?;
    holder.busy_timeout(Duration::from_secs(5))?;
    holder.execute_batch("BEGIN IMMEDIATE")?;
    let away = sleep(Duration::from_secs(10));
    let during = async {
        // What happens meanwhile cannot be stored: the line of a running call is cut, and a Foot is killed with its journal's
        // verdict on an outcome that nobody knows.
        states.line(A)?.set(Line::Cut);
        states.until_online(A, false).await?;
        states.line(A)?.set(Line::Open);
        if let Some(mut process) = states.feet.remove(&C) {
            process.kill9().await?;
        }
        anyhow::Ok(())
    };
    let ((), during) = tokio::join!(away, during);
    during?;
    let now = standing(&states.tree).await?;
    for id in ["suspended", "unknown", "blocked", "queued", "pending", "completed", "failed", "cancelled", "skipped"] {
        assert_eq!(now.get(id), states.before.get(id), "{id} while the store is away");
    }
    holder.execute_batch("ROLLBACK")?;
    states.start_foot(C).await?;
    states.until_as_before("the store was away").await?;
    states.all_is_done().await
}

#[tokio::test]
async fn a_cancel_ends_every_state_that_is_live_and_no_other() -> anyhow::Result<()> {
    let mut states = States::new().await?;
    let tree = &states.tree;
    let program = |name: &str| processes_with(&format!("{} {name}", states.waits.program.display()));
    assert!(!program("running")?.is_empty() && !program("suspended")?.is_empty());
    for id in ENDED {
        let (status, body) = tree.post(id, "cancel", &json!({})).await?;
        assert_eq!((status, body["error"]["code"].as_str()), (409, Some("not_live")), "{id}: {body}");
    }
    // What waits for another first: it would be skipped.
    for id in LIVE.into_iter().rev() {
        let (state, reason) = states.before.get(id).context("it stood")?;
        let now = tree.task(id).await?;
        let (is, why) = (&now["state"], now["blocked_reason"].as_str().unwrap_or_default());
        assert_eq!((is.as_str(), why), (Some(state.as_str()), reason.as_str()), "{id}");
        let (status, body) = tree.post(id, "cancel", &json!({"reason": "not needed"})).await?;
        assert_eq!((status, body["state"].as_str()), (200, Some("cancelled")), "{id}: {body}");
    }
    // It reaches what runs; over the line that is cut as soon as that is back.
    until("it has ended", || async { Ok(program("running")?.is_empty().then_some(())) }).await?;
    assert!(!program("suspended")?.is_empty(), "nobody can reach it");
    states.line(B)?.set(Line::Open);
    until("it has ended", || async { Ok(program("suspended")?.is_empty().then_some(())) }).await?;
    // Neither a restart nor the client for which two waited brings anything back.
    states.brain.kill9_and_restart(&states.home).await?;
    std::fs::write(&states.waits.go, "")?;
    states.start_foot(LATER).await?;
    let after =
        states.api.submit(&format!("tasks: [{{id: after, client: later, {}}}]", states.waits.step("after"))).await?;
    after.until("after", "completed").await?;
    for id in LIVE {
        assert_eq!(states.tree.task(id).await?["state"], "cancelled", "{id}");
    }
    for (name, times) in [("running", 1), ("suspended", 1), ("unknown", 1), ("blocked", 0), ("queued", 0)] {
        assert_eq!(states.waits.begun(name)?, times, "{name}");
    }
    states.what_has_ended_is_what_it_was().await
}

#[tokio::test]
async fn a_foot_that_is_killed_with_suspended_calls_runs_the_safe_one_again_and_asks_about_the_other()
-> anyhow::Result<()> {
    let home = Home::new()?;
    let toy = Toy::new(&home)?;
    toy.for_foot(&home)?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let proxy = Proxy::before(brain.addr()).await?;
    let mut process = foot(&home, &proxy.url, &[]).await?;
    api.until_available("default.local", "toy__hang").await?;
    let tree = api
        .submit("tasks:\n- {id: safe, steps: [{call: toy__hang_looking, with: {name: safe}, as: r}]}\n- {id: unsafe, steps: [{call: toy__hang, with: {name: unsafe}}]}\n")
        .await?;
    until("both run", || async { Ok((toy.begun()?.len() == 2).then_some(())) }).await?;
    proxy.set(Line::Cut);
    for (id, tool) in [("safe", "toy__hang_looking"), ("unsafe", "toy__hang")] {
        let reason = tree.until(id, "blocked").await?["blocked_reason"].clone();
        assert_eq!(reason, format!("Waiting for Client for Tool: {tool}"));
    }
    process.kill9().await?;
    for id in ["safe", "unsafe"] {
        assert_eq!(tree.task(id).await?["state"], "blocked", "nobody has said yet what became of {id}");
    }
    proxy.set(Line::Open);
    let _back = foot(&home, &proxy.url, &[]).await?;
    assert_eq!(tree.until("safe", "completed").await?["output"]["r"]["text"], "did safe");
    until("it is asked", || async {
        let task = tree.task("unsafe").await?;
        let reason = task["blocked_reason"].as_str().unwrap_or_default();
        Ok(reason.starts_with("Outcome unknown for Tool: toy__hang").then_some(()))
    })
    .await?;
    assert_eq!((toy.begun_of("safe")?, toy.begun_of("unsafe")?), (2, 1));
    Ok(())
}

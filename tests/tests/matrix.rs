//! One task in each state, and each fault that can come over all of them: every state comes through, and everything is done in the end.
#![allow(missing_docs)]

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;
use nix::sys::signal::Signal;
use serde_json::json;
use vance_tests::api::{Api, Tree};
use vance_tests::home::Home;
use vance_tests::process::{Brain, foot};
use vance_tests::proxy::{Line, Proxy};
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

const IDS: [&str; 10] =
    ["running", "suspended", "unknown", "blocked", "queued", "pending", "completed", "failed", "cancelled", "skipped"];

async fn standing(tree: &Tree) -> anyhow::Result<Standing> {
    let mut all = Standing::new();
    for id in IDS {
        let task = tree.task(id).await?;
        let text = |key: &str| task[key].as_str().unwrap_or_default().to_owned();
        // Of what has ended not even a time changes.
        let ended = ["completed", "failed", "cancelled", "skipped"].contains(&id);
        all.insert(id, (text("state"), if ended { text("updated_at") } else { text("blocked_reason") }));
    }
    Ok(all)
}

async fn until_as_before(tree: &Tree, before: &Standing, fault: &str) -> anyhow::Result<()> {
    until(&format!("everything stands as before: {fault}"), || async {
        let Ok(now) = standing(tree).await else { return Ok(None) };
        Ok((now == *before).then_some(()))
    })
    .await
}

#[tokio::test]
async fn every_state_comes_through_every_fault_and_all_is_done_in_the_end() -> anyhow::Result<()> {
    let home = Home::new()?;
    let waits = Waits::new(&home)?;
    let mut brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let mut lines = Vec::new();
    let mut homes = Vec::new();
    for _ in 0..4 {
        let place = Home::beside(&home)?;
        waits.allow(&place)?;
        homes.push(place);
        lines.push(Proxy::before(brain.addr()).await?);
    }
    let attach = async |n: usize, name: &str| foot(&homes[n], &lines[n].url, &["--name", name]).await;
    let (_a, _b, mut c) = (attach(0, "a").await?, attach(1, "b").await?, attach(2, "c").await?);
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
            waits.step("running"),
            waits.step("suspended"),
            waits.step("unknown"),
            waits.step("blocked"),
            waits.step("queued"),
        ))
        .await?;
    for name in ["running", "suspended", "unknown"] {
        until(&format!("{name} runs"), || async { Ok((waits.begun(name)? == 1).then_some(())) }).await?;
    }
    lines[1].set(Line::Cut);
    c.kill9().await?;
    let mut c = attach(2, "c").await?;
    tree.until("cancelled", "blocked").await?;
    assert_eq!(tree.post("cancelled", "cancel", &json!({})).await?.0, 200);
    until("all stand", || async {
        let now = standing(&tree).await?;
        let is =
            |id: &str, state: &str, reason: &str| now.get(id).is_some_and(|(s, r)| s == state && r.starts_with(reason));
        let waiting = "Waiting for Client for Tool: shell_execute";
        let all = is("running", "running", "")
            && is("suspended", "blocked", waiting)
            && is("unknown", "blocked", "Outcome unknown for Tool: shell_execute")
            && is("blocked", "blocked", waiting)
            && is("queued", "queued", waiting)
            && is("pending", "pending", "")
            && ["completed", "failed", "cancelled", "skipped"].iter().all(|id| is(id, id, ""));
        Ok(all.then_some(()))
    })
    .await?;
    let before = standing(&tree).await?;

    brain.kill9_and_restart(&home).await?;
    until_as_before(&tree, &before, "the Brain was killed").await?;

    home.write("brain/tools.yaml", "- {name: nobody_has_this_either, location: client}\n")?;
    brain.process.signal(Signal::SIGHUP)?;
    until("the file is read", || async {
        let (_, body) = api.get("/api/v1/sessions/default.local/tools").await?;
        Ok(body.to_string().contains("nobody_has_this_either").then_some(()))
    })
    .await?;
    until_as_before(&tree, &before, "the files were read again").await?;

    lines[0].set(Line::Cut);
    tree.until("running", "blocked").await?;
    lines[0].set(Line::Open);
    until_as_before(&tree, &before, "the line was cut").await?;

    c.kill9().await?;
    let _c = attach(2, "c").await?;
    until_as_before(&tree, &before, "a Foot was killed").await?;

    assert_eq!(brain.process.stop().await?, 0);
    let addr = brain.addr().to_owned();
    brain = Brain::start_on(&home, &addr).await?;
    until_as_before(&tree, &before, "the Brain was stopped and started").await?;

    std::fs::write(&waits.go, "")?;
    lines[1].set(Line::Open);
    let _later = attach(3, "later").await?;
    let (status, body) = tree.post("unknown", "resolve", &json!({"as": "done", "output": "seen"})).await?;
    assert_eq!(status, 200, "{body}");
    for id in ["running", "suspended", "unknown", "blocked", "queued", "pending"] {
        tree.until(id, "completed").await?;
    }
    for name in ["running", "suspended", "unknown", "blocked", "queued"] {
        assert_eq!(waits.begun(name)?, 1, "{name} ran once");
    }
    let after = standing(&tree).await?;
    for id in ["completed", "failed", "cancelled", "skipped"] {
        assert_eq!(after.get(id), before.get(id), "{id} is what it was");
    }
    drop(brain);
    after.get("running").context("running").map(drop)
}

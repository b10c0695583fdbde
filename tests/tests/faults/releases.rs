//! Files of the previous release are read, files of a later one are left alone. `tests/data/format-1` is a home as the first
//! format's programs left it: a Foot that finished a call while it could not say so, and a Brain with tasks in every kind of wait.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use rusqlite::Connection;
use serde_json::{Value, json};
use tokio::time::{Duration, sleep};
use vance_tests::api::{Api, Tree};
use vance_tests::home::Home;
use vance_tests::process::{Brain, Process, foot, run};
use vance_tests::proxy::{Line, Proxy};
use vance_tests::toy::Toy;
use vance_tests::wait::until;

/// What a home consists of after its programs have ended.
const FILES: [&str; 4] =
    ["brain/local.token", "brain/data/brain.db", "state/client-0/client_id", "state/client-0/journal.db"];

/// Where an engine's format number is in its file: `PRAGMA user_version`, big-endian.
const FORMAT: std::ops::Range<usize> = 60..64;

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/format-1")
}

/// A home with the files of the previous release.
fn old_home() -> anyhow::Result<Home> {
    let home = Home::new()?;
    for file in FILES {
        let to = home.path().join(file);
        std::fs::create_dir_all(to.parent().context("a folder")?)?;
        std::fs::copy(golden().join(file), &to).context(file)?;
    }
    Ok(home)
}

async fn tasks(api: &Api) -> anyhow::Result<Vec<Value>> {
    let (status, body) = api.get("/api/v1/tasks?limit=500").await?;
    anyhow::ensure!(status == 200, "{status} {body}");
    Ok(body["tasks"].as_array().cloned().unwrap_or_default())
}

async fn task(api: &Api, id: &str) -> anyhow::Result<Value> {
    tasks(api).await?.into_iter().find(|task| task["id"] == id).with_context(|| format!("no task {id}"))
}

async fn until_state(api: &Api, id: &str, state: &str) -> anyhow::Result<Value> {
    until(&format!("{id} {state}"), || async {
        let task = task(api, id).await?;
        Ok((task["state"] == state).then_some(task))
    })
    .await
}

#[tokio::test]
async fn a_store_and_a_journal_of_the_first_format_open_and_their_tasks_go_on() -> anyhow::Result<()> {
    let home = old_home()?;
    let toy = Toy::new(&home)?;
    toy.for_foot(&home)?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let waiting = "Waiting for Client for Tool: toy__effect";
    let states = [
        ("done", "completed", ""),
        ("unsure", "blocked", "Outcome unknown for Tool: toy__effect"),
        ("kept", "blocked", waiting),
        ("later", "pending", ""),
        ("waits", "blocked", waiting),
        ("queues", "queued", ""),
    ];
    assert_eq!(tasks(&api).await?.len(), states.len());
    for (id, state, reason) in states {
        let task = task(&api, id).await?;
        assert_eq!(task["state"], state, "{task}");
        assert!(task["blocked_reason"].as_str().unwrap_or_default().starts_with(reason), "{task}");
    }
    assert_eq!(task(&api, "done").await?["output"]["r"]["text"], "did done.");
    let _foot = foot(&home, &brain.url, &[]).await?;
    // What the Foot finished back then counts; what waited runs now.
    assert_eq!(until_state(&api, "kept", "completed").await?["output"]["r"]["text"], "did kept.");
    for id in ["later", "waits", "queues"] {
        until_state(&api, id, "completed").await?;
    }
    for (name, times) in [("done.", 0), ("unsure.", 0), ("kept.", 0), ("later.", 1), ("waits.", 1), ("queues.", 1)] {
        assert_eq!(toy.begun_of(name)?, times, "{name}");
    }
    let unsure = task(&api, "unsure").await?;
    assert_eq!(unsure["state"], "blocked", "{unsure}");
    let path =
        format!("/api/v1/tasks/{}/resolve", unsure["task_id"].as_str().or(unsure["id"].as_str()).unwrap_or_default());
    let (status, body) = api.post(&path, &json!({"as": "done", "output": {"text": "it was"}})).await?;
    assert_eq!(status, 200, "{body}");
    assert_eq!(until_state(&api, "unsure", "completed").await?["output"]["r"]["text"], "it was");
    Ok(())
}

#[tokio::test]
async fn files_of_a_later_format_are_refused_by_name_and_not_touched() -> anyhow::Result<()> {
    let home = old_home()?;
    let later = |file: &str| -> anyhow::Result<Vec<u8>> {
        let path = home.path().join(file);
        let mut bytes = std::fs::read(&path)?;
        bytes.get_mut(FORMAT).context("a header")?.copy_from_slice(&99_u32.to_be_bytes());
        std::fs::write(&path, &bytes)?;
        Ok(bytes)
    };
    let [_, store, _, journal] = FILES;
    let bytes = later(store)?;
    let ended = run("vance-brain", &home, &["serve", "--listen", "127.0.0.1:0"]).await?;
    assert_ne!(ended.code, 0, "{}", ended.stderr);
    for word in ["brain/data/brain.db", "format 99", "newer release"] {
        assert!(ended.stderr.contains(word), "{word}: {}", ended.stderr);
    }
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
    assert!(std::fs::read(home.path().join(store))? == bytes, "the store was touched");
    let bytes = later(journal)?;
    let ended = run("vancetope", &home, &["--daemon", "--brain", "http://127.0.0.1:1"]).await?;
    assert_ne!(ended.code, 0, "{}", ended.stderr);
    for word in ["journal.db", "version 99"] {
        assert!(ended.stderr.contains(word), "{word}: {}", ended.stderr);
    }
    assert!(std::fs::read(home.path().join(journal))? == bytes, "the journal was touched");
    Ok(())
}

/// Writes the files, where `GOLDEN` says: once for each format, by the release that knows no later one.
#[tokio::test]
#[ignore = "writes the files that the others read"]
async fn the_files_of_a_format_are_made() -> anyhow::Result<()> {
    let Some(to) = std::env::var_os("GOLDEN").map(PathBuf::from) else { return Ok(()) };
    let home = Home::new()?;
    let toy = Toy::new(&home)?;
    toy.for_foot(&home)?;
    let mut brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let proxy = Proxy::before(brain.addr()).await?;
    let mut first = foot(&home, &proxy.url, &[]).await?;
    api.until_available("default.local", "toy__effect").await?;
    let step = |id: &str, more: &str| format!("steps: [{{call: toy__effect, with: {{name: {id}.{more}}}, as: r}}]");
    let submit = async |id: &str, more: &str, rest: &str| -> anyhow::Result<Tree> {
        api.submit(&format!("tasks:\n- {{id: {id}, {rest}{}}}\n", step(id, more))).await
    };
    submit("done", "", "").await?.until("done", "completed").await?;
    let unsure = submit("unsure", ", ms: 600000", "").await?;
    until("it runs", || async { Ok((toy.begun_of("unsure.")? == 1).then_some(())) }).await?;
    first.kill9().await?;
    let mut second: Process = foot(&home, &proxy.url, &[]).await?;
    until("unknown", || async {
        let reason = unsure.task("unsure").await?["blocked_reason"].to_string();
        Ok(reason.contains("Outcome unknown").then_some(()))
    })
    .await?;
    let kept = api
        .submit(&format!(
            "tasks:\n- {{id: kept, {}}}\n- {{id: later, depends_on: [kept], {}}}\n",
            step("kept", ", ms: 1500"),
            step("later", "")
        ))
        .await?;
    until("it runs", || async { Ok((toy.begun_of("kept.")? == 1).then_some(())) }).await?;
    proxy.set(Line::Cut);
    kept.until("kept", "blocked").await?;
    until("it ended", || async { Ok(std::fs::read_to_string(toy.file())?.contains("end kept.").then_some(())) })
        .await?;
    sleep(Duration::from_millis(500)).await;
    assert_eq!(second.stop().await?, 0);
    submit("waits", "", "").await?.until("waits", "blocked").await?;
    submit("queues", "", "offline_strategy: queue, ").await?.until("queues", "queued").await?;
    assert_eq!(brain.process.stop().await?, 0);
    for file in FILES {
        let from = home.path().join(file);
        if file.ends_with(".db") {
            Connection::open(&from)?.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))?;
        }
        let to = to.join(file);
        std::fs::create_dir_all(to.parent().context("a folder")?)?;
        std::fs::copy(&from, &to)?;
    }
    Ok(())
}

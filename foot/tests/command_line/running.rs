//! `vancetope run`, following a tree. The Foot itself is left out (`--no-tools`).

use std::path::PathBuf;

use serde_json::json;

use crate::fake_brain::FakeBrain;
use crate::harness::{Ended, Running, environment, start, until};

struct Case {
    home: tempfile::TempDir,
    file: PathBuf,
}

fn case(name: &str, text: &str) -> Case {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join(name);
    std::fs::write(&file, text).unwrap();
    Case { home, file }
}

impl Case {
    fn run(&self, brain: &FakeBrain, flags: &str) -> Running {
        let line = format!("--brain {} run {} --no-tools {flags}", brain.url(), self.file.display());
        start(&line, environment(self.home.path()))
    }
}

fn plan() -> Case {
    case("plan.yaml", "tasks:\n- id: a\n  goal: g\n- id: b\n  goal: g\n")
}

/// Waits until the run follows: the stream is open and the tree was read.
async fn follows(brain: &FakeBrain) {
    until(|| !brain.seen("GET /api/v1/tasks?tree=tree_1").is_empty()).await.expect("the tree is read");
}

fn position(ended: &Ended, line: &str) -> usize {
    ended.out.lines().position(|l| l == line).unwrap_or_else(|| panic!("{line:?} in {ended:?}"))
}

#[tokio::test]
async fn a_tree_that_completes_exits_with_0_and_each_change_is_a_line() {
    let (brain, case) = (FakeBrain::start(), plan());
    brain.has_tasks(&["a running", "b pending after=a"]);
    let running = case.run(&brain, "");
    follows(&brain).await;
    brain.moves("a", "blocked", json!({"blocked_reason": "Waiting for Client for Tool: read_local_file"}));
    running.says("a: blocked: Waiting for Client for Tool: read_local_file").await;
    brain.moves("a", "running", json!({"blocked_reason": null}));
    brain.moves("a", "completed", json!({"output": {"result": {"text": "core\ntheses", "content": []}}}));
    brain.moves("b", "skipped", json!({"skip_reason": "no client for Tool: x"}));
    let ended = running.ends().await;
    assert_eq!((ended.exit, ended.err.as_str()), (0, ""), "{ended:?}");
    let places = [
        "a: running",
        "a: blocked: Waiting for Client for Tool: read_local_file",
        "a: completed",
        "  core theses",
        "b: skipped: no client for Tool: x",
        "1 completed, 1 skipped",
    ]
    .map(|line| position(&ended, line));
    assert!(places.is_sorted(), "{ended:?}");
    let submitted = &brain.seen("POST /api/v1/tasks")[0];
    assert_eq!(submitted.line, "POST /api/v1/tasks");
    assert_eq!(submitted.header("content-type"), Some("application/yaml"));
    assert!(submitted.header("idempotency-key").is_some_and(|key| key.len() > 20), "{submitted:?}");
    assert_eq!(submitted.body, std::fs::read_to_string(&case.file).unwrap());
}

#[tokio::test]
async fn a_failure_exits_with_1_and_json_is_the_final_tree() {
    let (brain, case) = (FakeBrain::start(), case("plan.json", r#"{"tasks": [{"id": "a", "goal": "g"}]}"#));
    brain.has_tasks(&["a running"]);
    let running = case.run(&brain, "--json");
    follows(&brain).await;
    brain.moves("a", "failed", json!({"error": {"code": "tool_failed", "message": "disk full"}}));
    let ended = running.ends().await;
    assert_eq!(ended.exit, 1);
    assert!(ended.err.contains("a: failed: disk full"), "{ended:?}");
    let tree = ended.json();
    assert_eq!((&tree["tree_id"], &tree["summary"]), (&json!("tree_1"), &json!("1 failed")));
    assert_eq!((&tree["tasks"][0]["state"], &tree["tasks"][0]["a_newer_field"]), (&json!("failed"), &json!(1)));
    assert_eq!(brain.seen("POST /api/v1/tasks")[0].header("content-type"), Some("application/json"));
}

#[tokio::test]
async fn without_waiting_a_tree_that_only_waits_exits_with_3() {
    let (brain, case) = (FakeBrain::start(), plan());
    brain.has_tasks(&["a running", "b pending after=a"]);
    let running = case.run(&brain, "--no-wait");
    follows(&brain).await;
    brain.moves("a", "blocked", json!({"blocked_reason": "Waiting for Client for Tool: x"}));
    let ended = running.ends().await;
    assert_eq!(ended.exit, 3, "{ended:?}");
    assert!(ended.out.ends_with("1 waiting for client, 1 pending\n"), "{ended:?}");
}

#[tokio::test]
async fn a_cut_stream_is_resumed_where_it_ended() {
    let (brain, case) = (FakeBrain::start(), plan());
    brain.has_tasks(&["a running", "b pending"]);
    let running = case.run(&brain, "");
    follows(&brain).await;
    brain.moves("b", "running", json!({}));
    running.says("b: running").await;
    brain.cut();
    brain.moves("b", "completed", json!({}));
    running.says("b: completed").await;
    until(|| brain.seen("GET /api/v1/events").len() > 1).await.expect("the stream is opened again");
    let again = brain.seen("GET /api/v1/events").pop().unwrap();
    assert_eq!(again.header("last-event-id"), Some("1"));
    brain.moves("a", "completed", json!({}));
    let ended = running.ends().await;
    assert_eq!(ended.exit, 0, "{ended:?}");
    assert_eq!(ended.out.matches("b: completed").count(), 1, "{ended:?}");
}

#[tokio::test]
async fn a_brain_that_goes_away_is_said_once_and_awaited() {
    let (mut brain, case) = (FakeBrain::start(), plan());
    brain.has_tasks(&["a running", "b completed"]);
    let running = case.run(&brain, "");
    follows(&brain).await;
    running.says("b: completed").await;
    brain = brain.dies().await;
    running.says("the Brain is away").await;
    // Several attempts fail in this time.
    tokio::time::sleep(std::time::Duration::from_millis(2500)).await;
    brain.come_back();
    running.says("the Brain is back").await;
    brain.moves("a", "completed", json!({}));
    let ended = running.ends().await;
    assert_eq!(ended.exit, 0, "{ended:?}");
    assert_eq!(ended.err.matches("the Brain is away").count(), 1, "{ended:?}");
}

#[tokio::test]
async fn ctrl_c_cancels_what_lives_and_the_run_ends_with_1() {
    let (brain, case) = (FakeBrain::start(), plan());
    brain.has_tasks(&["a running", "b completed", "c blocked"]);
    let running = case.run(&brain, "");
    running.says("b: completed").await;
    running.presses_ctrl_c().await;
    let ended = running.ends().await;
    assert_eq!(ended.exit, 1, "{ended:?}");
    assert!(ended.out.ends_with("1 completed, 2 cancelled\n"), "{ended:?}");
    assert!(brain.seen("POST /api/v1/tasks/task_b/cancel").is_empty(), "an ended task is left alone");
}

#[tokio::test]
async fn ctrl_c_twice_leaves_at_once() {
    let (brain, case) = (FakeBrain::start(), plan());
    brain.has_tasks(&["a running"]);
    brain.answers("POST /api/v1/tasks/task_a/cancel", 409, json!({"error": {"code": "busy", "message": "later"}}));
    let running = case.run(&brain, "");
    running.says("a: running").await;
    running.presses_ctrl_c().await;
    running.says("cancelling 1 task(s)").await;
    running.presses_ctrl_c().await;
    let ended = running.ends().await;
    assert!(ended.exit == 1 && ended.err.contains("left; "), "{ended:?}");
}

#[tokio::test]
async fn the_brains_problems_are_printed_with_the_files_name_and_exit_2() {
    let (brain, case) = (FakeBrain::start(), plan());
    let problems = json!([{"file": "tree", "line": 2, "message": "unknown key `gaol`, did you mean `goal`?"}, {"line": 4, "message": "no \u{1b}"}]);
    let body = json!({"error": {"code": "bad_tree", "message": "2 problems", "problems": problems}});
    brain.answers("POST /api/v1/tasks", 400, body.clone());
    let ended = case.run(&brain, "").ends().await;
    let file = case.file.display();
    let want = format!("{file}:2: unknown key `gaol`, did you mean `goal`?\n{file}:4: no \\x1b\n");
    assert_eq!((ended.exit, ended.out.as_str(), ended.err), (2, "", want));
    brain.answers("POST /api/v1/tasks", 400, body);
    let json = case.run(&brain, "--json").ends().await;
    assert_eq!((json.exit, &json.json()["error"]["problems"][0]["line"]), (2, &json!(2)));
}

#[tokio::test]
async fn a_broken_or_missing_file_needs_no_brain_to_be_refused() {
    let brain = FakeBrain::start().dies().await;
    let broken = case("plan.yaml", "tasks:\n- id: [a\n");
    let ended = broken.run(&brain, "").ends().await;
    assert!(ended.exit == 2 && ended.err.contains("plan.yaml:"), "{ended:?}");
    std::fs::remove_file(&broken.file).unwrap();
    assert_eq!(broken.run(&brain, "").ends().await.exit, 2);
    let away = plan().run(&brain, "").ends().await;
    assert!(away.exit == 1 && away.err.contains("vance-brain serve"), "{away:?}");
}

#[tokio::test]
async fn a_submission_whose_answer_was_lost_is_repeated_under_the_same_key() {
    let (brain, case) = (FakeBrain::start(), plan());
    brain.has_tasks(&["a completed"]);
    brain.answers("POST /api/v1/tasks", 503, json!({"error": {"code": "draining", "message": "again later"}}));
    let ended = case.run(&brain, "--session sess_7").ends().await;
    assert_eq!(ended.exit, 0, "{ended:?}");
    assert!(ended.err.contains("you have no session sess_7 yet; it is made now"), "{ended:?}");
    let seen = brain.seen("POST /api/v1/tasks");
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].header("idempotency-key"), seen[1].header("idempotency-key"));
    assert_eq!(seen[0].line, "POST /api/v1/tasks?session=sess_7");
}

#[tokio::test]
async fn two_different_sessions_are_wrong_usage() {
    let (brain, case) = (FakeBrain::start(), case("plan.yaml", "session: sess_1\ntasks: []\n"));
    for flags in ["--session sess_2", "--new-session"] {
        let ended = case.run(&brain, flags).ends().await;
        assert!(ended.exit == 2 && brain.seen("POST").is_empty(), "{ended:?}");
    }
}

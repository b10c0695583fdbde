//! Task trees over the API: children, dependencies, retries, strategies, engines, mistakes.
#![allow(missing_docs)]

use serde_json::json;
use vance_tests::api::Api;
use vance_tests::home::Home;
use vance_tests::process::{Brain, foot};

async fn brain() -> anyhow::Result<(Home, Brain, Api)> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    Ok((home, brain, api))
}

#[tokio::test]
async fn a_parent_is_done_when_its_children_are_and_a_failed_tree_can_be_retried() -> anyhow::Result<()> {
    let (home, brain, api) = brain().await?;
    let _foot = foot(&home, &brain.url, &[]).await?;
    let tree = api
        .submit(
            r#"
tasks:
- id: all
  children:
  - id: one
    steps: [{call: now}]
  - id: two
    steps: [{call: read_local_file, with: {path: later.txt}, as: f}]
  - id: three
    depends_on: [two]
    steps: [{call: now}]
- id: after
  depends_on: [all]
  steps: [{call: now}]
- id: anyway
  depends_on: [all]
  run_if: always
  steps: [{call: now}]
"#,
        )
        .await?;
    let two = tree.until("two", "failed").await?;
    assert_eq!(two["error"]["code"], "not_found", "{two}");
    tree.until("one", "completed").await?;
    assert_eq!(tree.until("three", "skipped").await?["skip_reason"], "dependency two failed");
    assert_eq!(tree.until("all", "failed").await?["error"]["code"], "child_failed");
    assert_eq!(tree.until("after", "skipped").await?["skip_reason"], "dependency all failed");
    tree.until("anyway", "completed").await?;

    home.write_project("later.txt", "now it is there")?;
    let (status, body) = tree.post("two", "retry", &json!({})).await?;
    assert_eq!(status, 200, "{body}");
    let two = tree.until("two", "completed").await?;
    assert_eq!(two["output"]["f"]["text"], "now it is there");
    assert_eq!(two["calls"].as_array().map(Vec::len), Some(2), "{two}");
    for id in ["three", "all", "after"] {
        tree.until(id, "completed").await?;
    }
    let (status, body) = tree.post("two", "retry", &json!({})).await?;
    assert_eq!((status, body["error"]["code"].as_str()), (409, Some("not_retryable")), "{body}");
    let (status, body) = tree.post("two", "cancel", &json!({})).await?;
    assert_eq!((status, body["error"]["code"].as_str()), (409, Some("not_live")), "{body}");
    Ok(())
}

#[tokio::test]
async fn cancelling_a_parent_cancels_what_waits_below_it() -> anyhow::Result<()> {
    let (_home, _brain, api) = brain().await?;
    let tree = api
        .submit("tasks:\n- id: all\n  children:\n  - id: waits\n    steps: [{call: git_status}]\n  - id: next\n    depends_on: [waits]\n    steps: [{call: now}]\n")
        .await?;
    tree.until("waits", "blocked").await?;
    let (status, _) = tree.post("all", "cancel", &json!({"reason": "not needed"})).await?;
    assert_eq!(status, 200);
    tree.until("waits", "cancelled").await?;
    tree.until("next", "cancelled").await?;
    Ok(())
}

#[tokio::test]
async fn strategies_and_targets_decide_without_a_client() -> anyhow::Result<()> {
    let (_home, _brain, api) = brain().await?;
    let tree = api
        .submit(
            r#"
tasks:
- {id: block, steps: [{call: read_local_file, with: {path: x}}]}
- {id: queue, offline_strategy: queue, steps: [{call: read_local_file, with: {path: x}}]}
- {id: skip, offline_strategy: skip, steps: [{call: read_local_file, with: {path: x}}]}
- {id: goes_on, depends_on: [skip], run_if: always, steps: [{call: now}]}
- {id: contradicts, execution_target: server, steps: [{call: read_local_file, with: {path: x}}]}
- {id: unknown, steps: [{call: read_locl_file}]}
- {id: goal_only, goal: "think", tools: [web_search]}
- {id: engine_outside, steps: [{call: now}, {call: http_fetch, with: {url: "http://127.0.0.1:1"}}]}
"#,
        )
        .await?;
    let waiting = "Waiting for Client for Tool: read_local_file";
    assert_eq!(tree.until("block", "blocked").await?["blocked_reason"], waiting);
    assert_eq!(tree.until("queue", "queued").await?["blocked_reason"], waiting);
    let skipped = tree.until("skip", "skipped").await?;
    assert!(skipped["skip_reason"].as_str().unwrap_or_default().contains("read_local_file"), "{skipped}");
    tree.until("goes_on", "completed").await?;
    let failed = tree.until("contradicts", "failed").await?;
    let message = failed["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains("execution_target is server") && message.contains("location client"), "{message}");
    let unknown = tree.until("unknown", "failed").await?;
    let message = unknown["error"]["message"].as_str().unwrap_or_default();
    assert!(message.starts_with("unknown tool: read_locl_file") && message.contains("read_local_file"), "{message}");
    assert_eq!(tree.until("goal_only", "failed").await?["error"]["code"], "no_steps");
    assert_eq!(tree.until("engine_outside", "failed").await?["error"]["code"], "address_refused");

    let engine = api
        .submit("engine: {id: narrow, tools: {server: [now]}}\ntasks:\n- {id: in, steps: [{call: now}]}\n- {id: out, steps: [{call: task_note, with: {text: x}}]}\n")
        .await?;
    engine.until("in", "completed").await?;
    assert_eq!(engine.until("out", "failed").await?["error"]["code"], "unknown_tool");
    let (status, body) = api.submit_raw("engine: nowhere\ntasks:\n- {id: a, steps: [{call: now}]}\n", &[]).await?;
    assert_eq!((status, body["error"]["code"].as_str()), (400, Some("unknown_engine")), "{body}");
    Ok(())
}

#[tokio::test]
async fn an_autonomous_tree_gets_a_session_of_its_own_and_queues() -> anyhow::Result<()> {
    let (home, brain, api) = brain().await?;
    home.write_project("a.txt", "A")?;
    let tree = api
        .submit("mode: autonomous\ntasks:\n- {id: now, steps: [{call: now}]}\n- {id: file, steps: [{call: read_local_file, with: {path: a.txt}, as: f}]}\n")
        .await?;
    tree.until("now", "completed").await?;
    tree.until("file", "queued").await?;
    let session = tree.body["session_id"].as_str().unwrap_or_default().to_owned();
    assert_ne!(session, "default.local");
    let _foot = foot(&home, &brain.url, &["--session", &session]).await?;
    assert_eq!(tree.until("file", "completed").await?["output"]["f"]["text"], "A");
    Ok(())
}

#[tokio::test]
async fn every_mistake_of_a_tree_is_reported_at_once_with_its_line() -> anyhow::Result<()> {
    let (_home, _brain, api) = brain().await?;
    let yaml = "tasks:\n- id: a\n  depends_on: [b]\n  steps: [{call: now}]\n- id: b\n  depends_on: [a]\n  stepz: []\n- id: c\n  steps:\n  - call: now\n    with: {x: \"{{ tasks.nobody.y }}\"}\n";
    let (status, body) = api.submit_raw(yaml, &[]).await?;
    assert_eq!((status, body["error"]["code"].as_str()), (400, Some("invalid_tree")), "{body}");
    let problems = body["error"]["problems"].as_array().cloned().unwrap_or_default();
    assert!(problems.len() >= 3, "{body}");
    assert!(
        problems.iter().any(|p| p["line"] == 7 && p["message"].as_str().is_some_and(|m| m.contains("steps"))),
        "{body}"
    );
    let (_, list) = api.get("/api/v1/tasks").await?;
    assert_eq!(list["tasks"], json!([]));
    Ok(())
}

#[tokio::test]
async fn a_failing_step_is_retried_with_new_call_ids_and_a_task_has_a_timeout() -> anyhow::Result<()> {
    let (home, brain, api) = brain().await?;
    home.write("permissions.yaml", "allow:\n- exec: [sleep]\n")?;
    let _foot = foot(&home, &brain.url, &[]).await?;
    let tree = api
        .submit(
            r#"
tasks:
- id: retried
  retry: {max_attempts: 3, backoff: 10ms}
  steps: [{call: read_local_file, with: {path: missing.txt}}]
- id: slow
  timeout: 1s
  steps: [{call: shell_execute, with: {argv: [sleep, "600"]}}]
"#,
        )
        .await?;
    let failed = tree.until("retried", "failed").await?;
    let ids: std::collections::BTreeSet<&str> =
        failed["calls"].as_array().into_iter().flatten().filter_map(|c| c["call_id"].as_str()).collect();
    assert_eq!(ids.len(), 3, "{failed}");
    assert_eq!(tree.until("slow", "failed").await?["error"]["code"], "timeout");
    Ok(())
}

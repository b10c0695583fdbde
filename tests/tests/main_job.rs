//! The main job with real processes: server and client tools, a task that blocks and goes on, cuts, kills.
#![allow(missing_docs)]

use std::collections::BTreeSet;

use anyhow::Context as _;
use serde_json::{Value, json};
use vance_tests::api::Api;
use vance_tests::home::Home;
use vance_tests::ledger::Ledger;
use vance_tests::process::{Brain, foot, run};
use vance_tests::proxy::{Line, Proxy};
use vance_tests::wait::until;

const SESSION: &str = "default.local";

#[tokio::test]
async fn a_tree_runs_on_server_and_client_and_waits_for_a_second_foot() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    home.write_project("list.txt", "milk")?;
    let _first = foot(&home, &brain.url, &["--name", "first"]).await?;
    let tree = api
        .submit(
            r#"
tasks:
- id: server
  steps: [{call: now, as: t}]
- id: client
  client: first
  steps: [{call: read_local_file, with: {path: list.txt}, as: list}]
- id: needs
  depends_on: [server, client]
  steps: [{call: task_note, with: {text: "{{ tasks.client.list.text }}!"}, as: note}]
- id: second
  client: second
  steps: [{call: read_local_file, with: {path: recipe.txt}, as: recipe}]
"#,
        )
        .await?;
    let needs = tree.until("needs", "completed").await?;
    assert_eq!(needs["output"]["note"]["structured"]["text"], "milk!", "{needs}");
    let client = tree.until("client", "completed").await?;
    assert_eq!(client["calls"][0]["route"], "client", "{client}");
    assert_eq!(client["calls"][0]["outcome"], "done");
    assert_eq!(client["calls"][0]["trace_id"].as_str().map(str::len), Some(32));
    let second = tree.until("second", "blocked").await?;
    assert_eq!(second["blocked_reason"], "Waiting for Client for Tool: read_local_file");

    let other = Home::beside(&home)?;
    other.write_project("recipe.txt", "boil water")?;
    let _second = foot(&other, &brain.url, &["--name", "second"]).await?;
    let second = tree.until("second", "completed").await?;
    assert_eq!(second["output"]["recipe"]["text"], "boil water", "{second}");
    Ok(())
}

#[tokio::test]
async fn a_cut_line_blocks_the_task_and_the_result_arrives_after_it() -> anyhow::Result<()> {
    let home = Home::new()?;
    let ledger = Ledger::new(&home)?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let proxy = Proxy::before(brain.addr()).await?;
    let _foot = foot(&home, &proxy.url, &[]).await?;
    let program = ledger.program().display();
    let tree = api
        .submit(&format!(
            "tasks:\n- id: slow\n  steps: [{{call: shell_execute, with: {{argv: [\"{program}\", slow, \"3\"]}}, as: out}}]\n- id: other\n  steps: [{{call: now}}]\n"
        ))
        .await?;
    until("the tool runs", || async { Ok((ledger.begun("slow")? == 1).then_some(())) }).await?;
    proxy.set(Line::Cut);
    let blocked = tree.until("slow", "blocked").await?;
    assert_eq!(blocked["blocked_reason"], "Waiting for Client for Tool: shell_execute");
    tree.until("other", "completed").await?;
    until("the tool ended while the line was cut", || async { Ok((ledger.ended("slow")? == 1).then_some(())) }).await?;
    proxy.set(Line::Open);
    let done = tree.until("slow", "completed").await?;
    assert!(done["output"]["out"]["text"].as_str().unwrap_or_default().contains("wrote slow"), "{done}");
    assert_eq!(ledger.begun("slow")?, 1);
    assert_eq!(done["calls"].as_array().map(Vec::len), Some(1), "{done}");
    Ok(())
}

#[tokio::test]
async fn the_brain_dies_in_the_middle_of_a_call_and_the_task_completes_after_it() -> anyhow::Result<()> {
    let home = Home::new()?;
    let ledger = Ledger::new(&home)?;
    let mut brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let _foot = foot(&home, &brain.url, &[]).await?;
    let program = ledger.program().display();
    let tree = api
        .submit(&format!(
            "tasks:\n- id: a\n  steps:\n  - {{call: shell_execute, with: {{argv: [\"{program}\", one, \"2\"]}}}}\n  - {{call: shell_execute, with: {{argv: [\"{program}\", two]}}}}\n- id: b\n  depends_on: [a]\n  steps: [{{call: now}}]\n- id: absent\n  client: nobody\n  steps: [{{call: git_status}}]\n"
        ))
        .await?;
    until("the tool runs", || async { Ok((ledger.begun("one")? == 1).then_some(())) }).await?;
    brain.kill9_and_restart(&home).await?;
    tree.until("b", "completed").await?;
    let absent = tree.until("absent", "blocked").await?;
    assert_eq!(absent["blocked_reason"], "Waiting for Client for Tool: git_status");
    assert_eq!((ledger.begun("one")?, ledger.begun("two")?), (1, 1));
    Ok(())
}

#[tokio::test]
async fn an_unsafe_call_whose_foot_was_killed_is_unknown_until_a_person_decides() -> anyhow::Result<()> {
    let home = Home::new()?;
    let ledger = Ledger::new(&home)?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let mut first = foot(&home, &brain.url, &[]).await?;
    let program = ledger.program().display();
    let tree = api
        .submit(&format!(
            "tasks:\n- id: a\n  steps:\n  - {{call: shell_execute, with: {{argv: [\"{program}\", once, \"600\"]}}, as: out}}\n- id: b\n  depends_on: [a]\n  steps: [{{call: task_note, with: {{text: \"{{{{ tasks.a.out.structured.by }}}}\"}}, as: n}}]\n"
        ))
        .await?;
    until("the tool runs", || async { Ok((ledger.begun("once")? == 1).then_some(())) }).await?;
    first.kill9().await?;
    let blocked = tree.until("a", "blocked").await?;
    assert_eq!(blocked["blocked_reason"], "Waiting for Client for Tool: shell_execute");
    let _second = foot(&home, &brain.url, &[]).await?;
    let blocked = until("outcome unknown", || async {
        let task = tree.task("a").await?;
        let reason = task["blocked_reason"].as_str().unwrap_or_default().to_owned();
        Ok(reason.starts_with("Outcome unknown for Tool: shell_execute (call call_").then_some(task))
    })
    .await?;
    assert_eq!(ledger.begun("once")?, 1, "{blocked}");
    let (status, body) = tree.post("a", "resolve", &json!({"as": "nonsense"})).await?;
    assert_eq!(status, 400, "{body}");
    let (status, body) = tree.post("a", "resolve", &json!({"as": "done", "output": {"by": "hand"}})).await?;
    assert_eq!(status, 200, "{body}");
    let b = tree.until("b", "completed").await?;
    assert_eq!(b["output"]["n"]["structured"]["text"], "hand", "{b}");
    assert_eq!(ledger.begun("once")?, 1);
    Ok(())
}

#[tokio::test]
async fn a_safe_call_whose_foot_was_killed_runs_again_by_itself() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    // A search that is slow enough to be killed in: a pipe without a writer.
    home.write_project("a.txt", "x")?;
    let mut first = foot(&home, &brain.url, &[]).await?;
    first.kill9().await?;
    let tree = api.submit("tasks:\n- id: a\n  steps: [{call: read_local_file, with: {path: a.txt}, as: f}]\n").await?;
    let _again = foot(&home, &brain.url, &[]).await?;
    let done = tree.until("a", "completed").await?;
    assert_eq!(done["output"]["f"]["text"], "x");
    Ok(())
}

#[tokio::test]
async fn cancel_reaches_the_tool_on_the_client() -> anyhow::Result<()> {
    let home = Home::new()?;
    let ledger = Ledger::new(&home)?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let _foot = foot(&home, &brain.url, &[]).await?;
    let program = ledger.program().display().to_string();
    let tree = api
        .submit(&format!(
            "tasks:\n- id: a\n  steps: [{{call: shell_execute, with: {{argv: [\"{program}\", stop, \"600\"]}}}}]\n- id: b\n  depends_on: [a]\n  steps: [{{call: now}}]\n"
        ))
        .await?;
    until("the tool runs", || async { Ok((ledger.begun("stop")? == 1).then_some(())) }).await?;
    let (status, body) = tree.post("a", "cancel", &json!({})).await?;
    assert_eq!((status, body["state"].as_str()), (200, Some("cancelled")), "{body}");
    let skipped = tree.until("b", "skipped").await?;
    assert_eq!(skipped["skip_reason"], "dependency a was cancelled");
    until("its process is gone", || async {
        Ok(vance_tests::process::processes_with(&format!("{program} stop"))?.is_empty().then_some(()))
    })
    .await?;
    assert_eq!(ledger.ended("stop")?, 0);
    Ok(())
}

#[tokio::test]
async fn one_call_over_the_api_is_routed_and_an_absent_client_is_said_or_becomes_a_task() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let (status, body) = api.call("now", &json!({"arguments": {}})).await?;
    assert_eq!((status, body["call"]["outcome"].as_str()), (200, Some("done")), "{body}");
    let (status, body) = api.call("read_local_file", &json!({"arguments": {"path": "a.txt"}})).await?;
    assert_eq!((status, body["error"]["code"].as_str()), (409, Some("client_absent")), "{body}");
    let (status, body) = api.call("read_locl_file", &json!({"arguments": {}})).await?;
    assert_eq!((status, body["error"]["code"].as_str()), (404, Some("unknown_tool")), "{body}");
    assert!(body["error"]["message"].as_str().unwrap_or_default().contains("read_local_file"), "{body}");
    let durable = json!({"arguments": {"path": "a{{x}}.txt"}, "durable": true});
    let (status, body) = api.call("read_local_file", &durable).await?;
    assert_eq!(status, 202, "{body}");
    let task_id = body["tasks"][0]["task_id"].as_str().context("task_id")?.to_owned();
    home.write_project("a{{x}}.txt", "literal")?;
    let _foot = foot(&home, &brain.url, &[]).await?;
    let done = until("the durable call", || async {
        let (_, task) = api.get(&format!("/api/v1/tasks/{task_id}")).await?;
        Ok((task["state"] == "completed").then_some(task))
    })
    .await?;
    assert_eq!(done["output"]["result"]["text"], "literal", "{done}");
    api.until_available(SESSION, "read_local_file").await?;
    let (status, body) = api.call("read_local_file", &json!({"arguments": {"path": "missing.txt"}})).await?;
    assert_eq!((status, body["call"]["outcome"].as_str()), (200, Some("failed")), "{body}");
    Ok(())
}

#[tokio::test]
async fn a_submission_is_idempotent_by_its_key() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let yaml = "tasks:\n- id: a\n  steps: [{call: now}]\n";
    let (first, one) = api.submit_raw(yaml, &[("idempotency-key", "k1")]).await?;
    let (second, two) = api.submit_raw(yaml, &[("idempotency-key", "k1")]).await?;
    assert_eq!(first, 201);
    assert!(second < 300, "{second} {two}");
    assert_eq!(one, two);
    let (other, body) =
        api.submit_raw("tasks:\n- id: b\n  steps: [{call: now}]\n", &[("idempotency-key", "k1")]).await?;
    assert_eq!((other, body["error"]["code"].as_str()), (422, Some("idempotency_mismatch")), "{body}");
    Ok(())
}

#[tokio::test]
async fn of_equal_submissions_at_once_one_tree_and_one_session_stay() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let sessions = async || anyhow::Ok(api.get("/api/v1/sessions").await?.1["sessions"].as_array().map_or(0, Vec::len));
    let before = sessions().await?;
    let yaml = "mode: autonomous\ntasks:\n- id: a\n  steps: [{call: now}]\n";
    let all = futures_util::future::join_all((0..8).map(|_| api.submit_raw(yaml, &[("idempotency-key", "k1")]))).await;
    let bodies: BTreeSet<String> =
        all.into_iter().map(|given| given.map(|(_, body)| body.to_string())).collect::<Result<_, _>>()?;
    assert_eq!(bodies.len(), 1, "{bodies:?}");
    assert_eq!(sessions().await?, before + 1);
    Ok(())
}

#[tokio::test]
async fn a_durable_call_with_a_key_is_one_task_however_often_it_is_sent() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let call = async |body: Value, key: &str| {
        api.post_with("/api/v1/tools/now/call", &body, &[("idempotency-key", key)]).await
    };
    let (first, one) = call(json!({"durable": true}), "k1").await?;
    let (second, two) = call(json!({"durable": true}), "k1").await?;
    assert_eq!((first, second, &one), (202, 202, &two));
    let (_, other) = call(json!({"durable": true}), "k2").await?;
    assert_ne!(one["tree_id"], other["tree_id"]);
    let (status, body) = call(json!({}), "k3").await?;
    assert_eq!((status, body["error"]["code"].as_str()), (400, Some("bad_idempotency_key")), "{body}");
    let (status, _) = call(json!({"durable": true, "arguments": {"x": 1}}), "k1").await?;
    assert_eq!(status, 422, "the key of another call");
    Ok(())
}

#[tokio::test]
async fn a_second_brain_on_the_same_data_is_refused_and_sigterm_ends_the_first_well() -> anyhow::Result<()> {
    let home = Home::new()?;
    let mut brain = Brain::start(&home).await?;
    let second = run("vance-brain", &home, &["serve", "--listen", "127.0.0.1:0"]).await?;
    assert_ne!(second.code, 0);
    assert!(second.stderr.contains("another brain"), "{}", second.stderr);
    assert_eq!(brain.process.stop().await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_foot_without_a_brain_says_so_once_and_connects_when_it_comes() -> anyhow::Result<()> {
    let home = Home::new()?;
    let mut brain = Brain::start(&home).await?;
    let (addr, url) = (brain.addr().to_owned(), brain.url.clone());
    brain.process.kill9().await?;
    let mut waiting = vance_tests::process::Process::start("vancetope", &home, &["--daemon", "--brain", &url])?;
    until("the warning", || async { Ok(waiting.log().contains(&addr).then_some(())) }).await?;
    let brain = Brain::start_on(&home, &addr).await?;
    waiting.line("foot ready").await?;
    let warnings = waiting.log().lines().filter(|l| l.contains("WARN") && l.contains(&addr)).count();
    assert_eq!(warnings, 1, "{}", waiting.log());
    drop(brain);
    assert_eq!(waiting.stop().await?, 0);
    Ok(())
}

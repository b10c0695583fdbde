//! Submissions and calls through the whole Brain.

use serde_json::{Value, json};

use super::{World, in_world};

const NOW: &str = "tasks:\n- id: a\n  steps:\n  - call: now\n    as: t\n";
const LAPTOP: &str = "tasks:\n- id: b\n  steps:\n  - call: read_local_file\n    with: {path: x}\n";

async fn submit(world: &World, text: &str) -> Value {
    let reply = world.ask("POST", "/api/v1/tasks").body(text).send().await;
    assert_eq!(reply.status, 201, "{}", reply.message());
    reply.json()
}

async fn task(world: &World, id: &str) -> Value {
    world.ask("GET", &format!("/api/v1/tasks/{id}")).send().await.json()
}

/// Waits until a task is in a state; generously, but not for ever.
async fn until(world: &World, id: &str, state: &str) -> Value {
    for _ in 0..600 {
        let task = task(world, id).await;
        if task["state"] == state {
            return task;
        }
        tokio::time::sleep(std::time::Duration::from_millis(25)).await;
    }
    panic!("{id} is not {state}: {}", task(world, id).await);
}

#[test]
fn a_submitted_tree_runs_and_the_same_key_gives_the_same_answer() {
    in_world(async |world| {
        let first = world.ask("POST", "/api/v1/tasks").header("Idempotency-Key", "k1").body(NOW).send().await;
        assert!(first.status == 201 && !first.head.contains("idempotent-replayed"), "{}", first.message());
        let again = world.ask("POST", "/api/v1/tasks").header("Idempotency-Key", "k1").body(NOW).send().await;
        assert_eq!((again.status, &again.body), (201, &first.body));
        assert!(again.head.contains("idempotent-replayed: true"), "{}", again.head);
        let other = world.ask("POST", "/api/v1/tasks").header("Idempotency-Key", "k1").body(LAPTOP).send().await;
        assert_eq!(other.said(), "422 idempotency_mismatch");
        let id = first.json()["tasks"][0]["task_id"].as_str().unwrap().to_owned();
        let done = until(world, &id, "completed").await;
        assert!(done["output"]["t"].is_object() && done["calls"][0]["outcome"] == "done", "{done}");
        let list = world.ask("GET", "/api/v1/tasks?state=completed").send().await.json();
        assert_eq!(list["tasks"].as_array().map(Vec::len), Some(1), "{list}");
        let hidden = world.anyone("GET", &format!("/api/v1/tasks/{id}")).token(&world.other).send().await;
        assert_eq!(hidden.said(), "404 task_not_found");
    });
}

#[test]
fn a_tree_with_mistakes_is_refused_with_all_lines() {
    in_world(async |world| {
        let text = "tasks:\n- id: a\n  gaol: x\n- id: a\n  depends_on: [z]\n";
        let reply = world.ask("POST", "/api/v1/tasks").body(text).send().await;
        assert_eq!(reply.status, 400, "{}", reply.json());
        assert!(reply.json()["error"]["problems"].as_array().unwrap().len() > 1, "{}", reply.json());
        assert!(reply.message().starts_with("request body:"), "{}", reply.message());
    });
}

#[test]
fn a_session_in_the_query_counts_when_the_tree_names_none() {
    in_world(async |world| {
        let reply = world.ask("POST", "/api/v1/tasks?session=s_query").body(NOW).send().await;
        assert_eq!(reply.json()["session_id"], "s_query");
        let named = format!("session: s_tree\n{NOW}");
        let reply = world.ask("POST", "/api/v1/tasks?session=s_query").body(named).send().await;
        assert_eq!(reply.json()["session_id"], "s_tree");
        let sessions = world.ask("GET", "/api/v1/sessions").send().await.json();
        assert_eq!(sessions["sessions"].as_array().map(Vec::len), Some(2), "{sessions}");
        let foreign = world.anyone("GET", "/api/v1/sessions/s_query").token(&world.other).send().await;
        assert_eq!(foreign.said(), "403 forbidden");
        let tools = world.ask("GET", "/api/v1/sessions/s_query/tools").send().await.json();
        assert!(tools["tools"].as_array().unwrap().iter().any(|t| t["name"] == "now"), "{tools}");
    });
}

#[test]
fn a_blocked_task_is_cancelled_and_tried_again_over_the_api() {
    in_world(async |world| {
        let tree = submit(world, LAPTOP).await;
        let id = tree["tasks"][0]["task_id"].as_str().unwrap().to_owned();
        let blocked = until(world, &id, "blocked").await;
        assert_eq!(blocked["blocked_reason"], "Waiting for Client for Tool: read_local_file");
        let verdict = world.ask("POST", &format!("/api/v1/tasks/{id}/resolve")).body(r#"{"as": "done"}"#).send().await;
        assert_eq!(verdict.status, 409, "{}", verdict.json());
        let reason = r#"{"reason": "not today"}"#;
        let reply = world.ask("POST", &format!("/api/v1/tasks/{id}/cancel")).body(reason).send().await;
        assert_eq!((reply.status, &reply.json()["state"]), (200, &json!("cancelled")), "{}", reply.json());
        assert_eq!(reply.json()["cancel_reason"], "not today");
        let retried = world.ask("POST", &format!("/api/v1/tasks/{id}/retry")).body("").send().await;
        assert_eq!(retried.status, 200, "{}", retried.json());
        until(world, &id, "blocked").await;
    });
}

#[test]
fn a_call_is_routed_or_says_why_not() {
    in_world(async |world| {
        let called = world.ask("POST", "/api/v1/tools/now/call").body("{}").send().await;
        assert_eq!((called.status, &called.json()["call"]["outcome"]), (200, &json!("done")), "{}", called.json());
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let traced = world.ask("POST", "/api/v1/tools/now/call").header("traceparent", trace).send().await;
        assert_eq!(traced.json()["call"]["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
        let unknown = world.ask("POST", "/api/v1/tools/nwo/call").body("{}").send().await;
        assert_eq!(unknown.said(), "404 unknown_tool");
        let absent = world.ask("POST", "/api/v1/tools/read_local_file/call").body(r#"{"arguments": {"path": "x"}}"#);
        assert_eq!(absent.send().await.said(), "409 client_absent");
        let body = r#"{"arguments": {"path": "x"}, "durable": true}"#;
        let durable = world.ask("POST", "/api/v1/tools/read_local_file/call").body(body).send().await;
        assert_eq!(durable.status, 202, "{}", durable.json());
        let id = durable.json()["tasks"][0]["task_id"].as_str().unwrap().to_owned();
        until(world, &id, "blocked").await;
    });
}

//! Commands that ask once.

use serde_json::json;

use crate::fake_brain::{FakeBrain, TOKEN};
use crate::harness::{environment, start, vancetope};
use vance_foot::cli::Environment;

#[tokio::test]
async fn tasks_are_listed_filtered_and_shown() {
    let brain = FakeBrain::start();
    brain.has_tasks(&["a running", "b pending"]);
    brain.moves("b", "blocked", json!({"blocked_reason": "Waiting for Client for Tool: read_local_file"}));
    let all = vancetope(&brain, "tasks").await;
    assert_eq!(all.exit, 0, "{all:?}");
    assert!(all.out.lines().count() == 3 && all.out.contains("task_a"), "{}", all.out);
    assert!(all.out.contains("Waiting for Client for Tool: read_local_file"), "{}", all.out);
    let blocked = vancetope(&brain, "tasks list --state blocked --session sess_1 --json").await;
    assert_eq!((blocked.exit, blocked.json()["tasks"].as_array().unwrap().len()), (0, 1));
    assert_eq!(blocked.json()["tasks"][0]["a_newer_field"], 1, "all that the Brain said");
    assert!(brain.seen("GET /api/v1/tasks?state=blocked&session=sess_1").len() == 1);
    brain.moves("a", "completed", json!({
        "output": {"paper": {"text": "hi"}},
        "calls": [{"call_id": "call_9", "tool": "git_status", "route": "client", "client_id": "foot_1", "machine": "m1", "attempts": 2, "outcome": "done"}],
    }));
    let shown = vancetope(&brain, "tasks show task_a").await;
    for word in ["state:   completed", "call_9", "client m1", "\"paper\": {\n    \"text\": \"hi\""] {
        assert!(shown.out.contains(word), "{word}: {}", shown.out);
    }
}

#[tokio::test]
async fn what_only_a_person_can_end_says_what_to_type() {
    let brain = FakeBrain::start();
    brain.has_tasks(&["a running", "b blocked"]);
    brain.moves("a", "blocked", json!({"blocked_reason": "Outcome unknown: the client lost its journal"}));
    let asked = vancetope(&brain, "tasks show task_a").await;
    assert!(asked.err.contains("`vancetope tasks resolve task_a --as done|failed|retry`"), "{asked:?}");
    let waits = vancetope(&brain, "tasks show task_b").await;
    assert!(waits.exit == 0 && !waits.err.contains("resolve"), "{waits:?}");
}

#[tokio::test]
async fn a_task_that_waits_for_a_named_client_says_which_and_who_is_there() {
    let brain = FakeBrain::start();
    brain.has_tasks(&["a running", "b running"]);
    let reason = json!({"blocked_reason": "Waiting for Client for Tool: t", "client": "latop"});
    brain.moves("a", "blocked", reason.clone());
    let none = vancetope(&brain, "tasks show task_a").await;
    assert!(none.out.contains("Tool: t (only on client 'latop'; connected: none)"), "{none:?}");
    let clients = json!([{"client_id": "foot_1", "name": "vm", "presence": "online"}]);
    let session = json!({"session_id": "sess_1", "clients": clients});
    brain.answers("GET /api/v1/sessions/sess_1", 200, session.clone());
    let shown = vancetope(&brain, "tasks show task_a").await;
    assert!(shown.out.contains("(only on client 'latop'; connected: vm)"), "{shown:?}");
    brain.moves("b", "blocked", json!({"blocked_reason": "Waiting for Client for Tool: t"}));
    let any = vancetope(&brain, "tasks show task_b").await;
    assert!(any.exit == 0 && !any.out.contains("only on"), "{any:?}");
    brain.moves("b", "completed", json!({}));
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("plan.yaml");
    std::fs::write(&file, "tasks: []\n").unwrap();
    let run = vancetope(&brain, &format!("run {} --no-tools --no-wait", file.display())).await;
    assert_eq!((run.exit, run.err.matches("a: only on client 'latop'; connected: ").count()), (3, 1), "{run:?}");
}

#[tokio::test]
async fn without_a_token_none_was_sent_and_with_a_wrong_one_it_is_the_token() {
    let brain = FakeBrain::start();
    let home = tempfile::tempdir().unwrap();
    for (token, said) in [(None, "none was sent"), (Some("wrong"), "does not accept the token")] {
        let environment = Environment { token: token.map(str::to_owned), ..environment(home.path()) };
        let ended = start(&format!("--brain {} tasks", brain.url()), environment).ends().await;
        assert!(ended.exit == 1 && ended.err.contains(said) && ended.err.contains("VANCE_TOKEN"), "{ended:?}");
    }
}

#[tokio::test]
async fn a_list_of_several_pages_is_one_list() {
    let brain = FakeBrain::start();
    let ids: Vec<String> = (0..8).map(|n| format!("t{n} completed")).collect();
    brain.has_tasks(&ids.iter().map(String::as_str).collect::<Vec<_>>());
    let json = vancetope(&brain, "tasks --json").await.json();
    let got: Vec<&str> = json["tasks"].as_array().unwrap().iter().map(|t| t["id"].as_str().unwrap()).collect();
    assert_eq!(got, ["t0", "t1", "t2", "t3", "t4", "t5", "t6", "t7"]);
    assert_eq!(vancetope(&brain, "tasks").await.out.lines().count(), 9);
}

#[tokio::test]
async fn an_unknown_task_is_an_error_in_the_form_that_was_asked_for() {
    let brain = FakeBrain::start();
    let text = vancetope(&brain, "tasks show task_x").await;
    assert_eq!((text.exit, text.out.as_str(), text.err.as_str()), (1, "", "vancetope: no task has this id\n"));
    let json = vancetope(&brain, "tasks show task_x --json").await;
    assert_eq!(json.exit, 1);
    assert_eq!(json.json(), json!({"error": {"code": "unknown_task", "message": "no task has this id"}}));
}

#[tokio::test]
async fn cancel_retry_and_resolve_say_what_the_task_is_now() {
    let brain = FakeBrain::start();
    brain.has_tasks(&["a running"]);
    for (line, state) in [
        ("tasks cancel task_a", "cancelled"),
        ("tasks retry task_a", "pending"),
        ("tasks resolve task_a --as done --output {\"n\":1}", "completed"),
    ] {
        let ended = vancetope(&brain, line).await;
        assert_eq!((ended.exit, ended.out), (0, format!("task_a  a: {state}\n")), "{line}");
    }
    let resolved = brain.seen("POST /api/v1/tasks/task_a/resolve");
    assert_eq!(resolved[0].body, r#"{"as":"done","output":{"n":1}}"#);
    assert_eq!(vancetope(&brain, "tasks resolve task_a --as done --output {").await.exit, 2);
}

#[tokio::test]
async fn a_watched_task_is_followed_to_its_end() {
    let brain = FakeBrain::start();
    brain.has_tasks(&["a running"]);
    let home = tempfile::tempdir().unwrap();
    let running = start(&format!("--brain {} tasks show task_a --watch", brain.url()), environment(home.path()));
    running.says("state:   running").await;
    brain.moves("a", "blocked", json!({"blocked_reason": "Waiting for Client for Tool: x"}));
    running.says("a: blocked: Waiting for Client for Tool: x").await;
    brain.moves("a", "failed", json!({"error": {"code": "tool_failed", "message": "no"}}));
    let ended = running.ends().await;
    assert!(ended.exit == 1 && ended.out.ends_with("a: failed: no\n"), "{ended:?}");
}

#[tokio::test]
async fn a_watched_list_goes_on_until_ctrl_c() {
    let brain = FakeBrain::start();
    brain.has_tasks(&["a running"]);
    let home = tempfile::tempdir().unwrap();
    let running = start(&format!("--brain {} tasks --watch --json", brain.url()), environment(home.path()));
    running.says("\"tasks\"").await;
    brain.moves("a", "completed", json!({}));
    running.says("\"seq\"").await;
    running.presses_ctrl_c().await;
    let ended = running.ends().await;
    assert!(
        ended.exit == 0 && ended.out.lines().all(|l| serde_json::from_str::<serde_json::Value>(l).is_ok()),
        "{ended:?}"
    );
}

#[tokio::test]
async fn sessions_and_their_tools_are_shown_and_foreign_text_is_made_safe() {
    let brain = FakeBrain::start();
    let list = vancetope(&brain, "sessions").await;
    assert!(list.out.contains("sess_1 (default)") && list.out.contains("laptop (online)"), "{list:?}");
    let show = vancetope(&brain, "sessions show sess_1").await;
    assert!(show.out.contains("lap\\x1b[2Jtop") && show.out.contains("grace"), "{show:?}");
    let tools = vancetope(&brain, "sessions tools sess_1").await;
    assert!(tools.out.contains("no: no client is connected"), "{tools:?}");
    let json = vancetope(&brain, "sessions tools sess_1 --json").await;
    assert_eq!(json.json()["tools"][1]["available"], false);
}

#[tokio::test]
async fn a_call_via_the_brain_prints_the_tools_text_and_fails_with_its_failure() {
    let brain = FakeBrain::start();
    let done = vancetope(&brain, "tools call web_search {\"q\":1} --via-brain --timeout 2s --session sess_1").await;
    assert_eq!((done.exit, done.out.as_str()), (0, "got {\"q\":1}\n"), "{done:?}");
    let body: serde_json::Value =
        serde_json::from_str(&brain.seen("POST /api/v1/tools/web_search/call")[0].body).unwrap();
    assert_eq!(body, json!({"arguments": {"q": 1}, "session": "sess_1", "timeout": "2000ms"}));
    let broken = vancetope(&brain, "tools call broken --via-brain").await;
    assert_eq!((broken.exit, broken.err.as_str()), (1, "vancetope: broken: failed: it broke\n"));
    let json = vancetope(&brain, "tools call broken --via-brain --json").await;
    assert_eq!((json.exit, &json.json()["call"]["outcome"]), (1, &json!("failed")));
    let absent = vancetope(&brain, "tools call absent --via-brain --json").await;
    assert_eq!((absent.exit, &absent.json()["error"]["code"]), (1, &json!("client_absent")));
}

#[tokio::test]
async fn a_brain_that_is_not_there_is_named_with_what_to_do() {
    let brain = FakeBrain::start().dies().await;
    for line in ["tasks", "sessions", "tools call x --via-brain", "tasks --watch"] {
        let ended = vancetope(&brain, line).await;
        assert_eq!(ended.exit, 1, "{line}");
        assert!(ended.err.contains(&brain.url()) && ended.err.contains("vance-brain serve"), "{line}: {}", ended.err);
    }
    let json = vancetope(&brain, "tasks --json").await;
    assert_eq!((json.exit, &json.json()["error"]["code"]), (1, &json!("brain_unreachable")));
}

#[tokio::test]
async fn the_homes_token_is_found_by_itself_and_a_wrong_one_says_what_to_set() {
    let brain = FakeBrain::start();
    let home = tempfile::tempdir().unwrap();
    let without_variable = Environment { token: None, ..environment(home.path()) };
    let line = format!("--brain {} tasks", brain.url());
    let refused = start(&line, without_variable.clone()).ends().await;
    assert!(refused.exit == 1 && refused.err.contains("VANCE_TOKEN"), "{refused:?}");
    std::fs::create_dir(home.path().join("brain")).unwrap();
    std::fs::write(home.path().join("brain/local.token"), format!("{TOKEN}\n")).unwrap();
    assert_eq!(start(&line, without_variable).ends().await.exit, 0);
}

#[tokio::test]
async fn wrong_usage_exits_with_2_and_says_what_works() {
    let brain = FakeBrain::start();
    let bare = vancetope(&brain, "").await;
    assert_eq!((bare.exit, bare.out.as_str()), (2, ""));
    for word in ["vancetope --no-ui", "vancetope run FILE", "vancetope --help"] {
        assert!(bare.err.contains(word), "{}", bare.err);
    }
    let daemon = vancetope(&brain, "--daemon tasks").await;
    assert_eq!(daemon.exit, 2, "{daemon:?}");
    let json = vancetope(&brain, "tasks shout --json").await;
    assert_eq!((json.exit, &json.json()["error"]["code"]), (2, &json!("usage")));
    let help = vancetope(&brain, "--help").await;
    assert!(help.exit == 0 && help.out.contains("Examples:"), "{help:?}");
    assert_eq!(vancetope(&brain, "--version").await.exit, 0);
}

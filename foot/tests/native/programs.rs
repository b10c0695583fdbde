//! Programs: how they end, and that nothing of them stays.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use vance_shared::call::Outcome;

use crate::support::{GENEROUS, Person, World, eventually, failure, is_alive, taken};

/// A tree of three: the shell, a child, and a grandchild that has left the process group. Their pids are in `pids`.
const TREE: &str = "echo $$ >> pids; sleep 1000 & echo $! >> pids; setsid sh -c 'echo $$ >> pids; trap \"\" TERM; sleep 1000 & wait; wait' & wait";

fn pids(world: &World) -> Vec<i32> {
    let text = std::fs::read_to_string(world.project.join("pids")).unwrap_or_default();
    text.lines().filter_map(|l| l.parse().ok()).collect()
}

#[tokio::test]
async fn a_program_gives_its_output_and_its_exit_code() {
    let world = World::open();
    let (text, shape) = world.done("shell_execute", json!({"argv": ["sh", "-c", "echo out; echo err >&2"]})).await;
    assert_eq!(
        (text.as_str(), &shape["stdout"], &shape["stderr"], &shape["exit_code"]),
        ("out\n", &json!("out\n"), &json!("err\n"), &json!(0))
    );
    let (message, result) = failure(
        world.call("shell_execute", json!({"argv": ["sh", "-c", "echo out; echo why >&2; exit 3"]})).await,
        "exit_code",
    );
    assert_eq!(message, "exit code 3: why");
    let result = result.unwrap();
    assert!(result.is_error);
    let shape = result.structured.unwrap().value();
    assert_eq!((&shape["exit_code"], &shape["stdout"]), (&json!(3), &json!("out\n")));
    let (message, _) =
        failure(world.call("shell_execute", json!({"argv": ["sh", "-c", "kill -9 $$"]})).await, "signal");
    assert!(message.contains("signal 9"), "{message}");
    let message = world.fails("shell_execute", json!({"argv": ["no-such-program-here"]}), "not_found").await;
    assert!(message.contains("no-such-program-here"), "{message}");
}

#[tokio::test]
async fn where_and_with_what_a_program_runs() {
    let world = World::open();
    std::fs::create_dir(world.project.join("sub")).unwrap();
    let (text, _) = world.done("shell_execute", json!({"argv": ["pwd"]})).await;
    assert_eq!(text.trim(), world.project.to_str().unwrap());
    let (text, _) = world.done("shell_execute", json!({"argv": ["pwd"], "cwd": "sub"})).await;
    assert!(text.trim().ends_with("/project/sub"), "{text}");
    world.fails("shell_execute", json!({"argv": ["pwd"], "cwd": "nowhere"}), "not_found").await;
    let (text, _) = world.done("shell_execute", json!({"argv": ["env"], "env": {"GREETING": "hi ${env:HOME}"}})).await;
    assert!(text.lines().any(|l| l == "GREETING=hi ${env:HOME}"), "nothing is expanded: {text}");
    let foreign: Vec<&str> = text.lines().filter(|l| l.starts_with("CARGO") || l.starts_with("NEXTEST")).collect();
    assert!(foreign.is_empty(), "the environment is an allow-list: {foreign:?}");
}

#[tokio::test]
async fn a_deadline_ends_the_whole_tree_and_keeps_the_output() {
    let world = World::open();
    let started = Instant::now();
    let arguments = json!({"argv": ["sh", "-c", format!("echo before; {TREE}")], "timeout_ms": 1500});
    let (message, result) = failure(world.call("shell_execute", arguments).await, "timeout");
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    assert!(message.contains("within 1500 ms"), "{message}");
    assert_eq!(result.unwrap().structured.unwrap().value()["stdout"], json!("before\n"));
    let pids = pids(&world);
    assert_eq!(pids.len(), 3, "{pids:?}");
    assert!(pids.iter().all(|p| !is_alive(*p)), "{pids:?}");
}

#[tokio::test]
async fn a_cancel_ends_the_whole_tree() {
    let world = World::open();
    let cancel = CancellationToken::new();
    let call = world.call_with("shell_execute", json!({"argv": ["sh", "-c", TREE]}), GENEROUS, cancel.clone());
    let canceller = async {
        eventually("the tree runs", || pids(&world).len() == 3).await;
        cancel.cancel();
    };
    let (outcome, ()) = tokio::join!(call, canceller);
    assert_eq!(outcome.word(), "cancelled");
    assert!(pids(&world).iter().all(|p| !is_alive(*p)));
}

#[tokio::test]
async fn what_a_program_leaves_behind_ends_with_it() {
    let world = World::open();
    let (text, _) =
        world.done("shell_execute", json!({"argv": ["sh", "-c", "sleep 1000 & echo $! > pids; echo done"]})).await;
    assert_eq!(text, "done\n");
    assert!(pids(&world).iter().all(|p| !is_alive(*p)));
}

#[tokio::test]
async fn a_flood_of_output_is_bounded_and_does_not_block() {
    let world = World::open();
    let arguments = json!({"argv": ["sh", "-c", "echo first; head -c 50000000 /dev/zero | tr '\\0' x; echo last"], "max_output_bytes": 10000});
    let (_, shape) = world.done("shell_execute", arguments).await;
    let stdout = shape["stdout"].as_str().unwrap();
    assert!(
        stdout.len() < 11_000 && stdout.starts_with("first\n") && stdout.ends_with("last\n"),
        "{} bytes",
        stdout.len()
    );
    assert!(stdout.contains("bytes left out") && shape["truncated"] == json!(true));
}

#[tokio::test]
async fn a_command_with_metacharacters_asks_and_argv_does_not_need_to() {
    let rules = "allow: [{exec: [echo]}, {exec: [sh, -c]}]";
    let world = World::new(rules);
    assert_eq!(world.done("shell_execute", json!({"command": "echo 'a b'"})).await.0, "a b\n");
    let message = world.fails("shell_execute", json!({"command": "echo a; touch b"}), "permission_denied").await;
    assert!(message.contains("metacharacters"), "{message}");
    assert!(!world.project.join("b").exists());
    assert_eq!(world.done("shell_execute", json!({"argv": ["sh", "-c", "echo a; echo b"]})).await.0, "a\nb\n");
    let world = World::with(rules, Some(Person::who_says(Some(true))));
    assert_eq!(world.done("shell_execute", json!({"command": "echo a; echo b"})).await.0, "a\nb\n");
    let world = World::new("");
    let message = world.fails("shell_execute", json!({"argv": ["git", "status"]}), "permission_denied").await;
    assert!(message.contains("- {exec: [git, status]}"), "{message}");
}

async fn start(world: &World, script: &str) -> String {
    let (_, shape) = world.done("process_start", json!({"argv": ["sh", "-c", script], "name": "test"})).await;
    assert_eq!(shape["running"], json!(true));
    shape["process_id"].as_str().unwrap().to_owned()
}

async fn output(world: &World, id: &str, after: u64) -> (String, Value) {
    world.done("process_output", json!({"process_id": id, "after": after, "wait_ms": 30_000})).await
}

#[tokio::test]
async fn a_background_process_is_read_and_stopped() {
    let world = World::open();
    let id = start(&world, "echo ready; echo $$ > pids; while read x; do :; done < /dev/zero").await;
    let (text, shape) = output(&world, &id, 0).await;
    assert_eq!((text.as_str(), &shape["running"], &shape["next_after"]), ("ready\n", &json!(true), &json!(6)));
    eventually("its pid is written", || pids(&world).len() == 1).await;
    let (_, stopped) = world.done("process_stop", json!({"process_id": id, "grace_ms": 100})).await;
    assert_eq!((&stopped["running"], stopped["signal"].is_null()), (&json!(false), false));
    assert!(!is_alive(pids(&world)[0]));
    let (_, status) = world.done("process_status", json!({})).await;
    assert_eq!(status["processes"].as_array().unwrap().len(), 1);
    world.fails("process_output", json!({"process_id": "proc_none"}), "not_found").await;
}

#[tokio::test]
async fn an_ended_process_keeps_its_output_and_exit_code() {
    let world = World::open();
    let id = start(&world, "sleep 0.1; echo late; exit 7").await;
    let (text, shape) = output(&world, &id, 0).await;
    assert_eq!(text, "late\n");
    let next = shape["next_after"].as_u64().unwrap();
    let (text, shape) = output(&world, &id, next).await;
    assert_eq!((text.as_str(), &shape["running"], &shape["exit_code"]), ("", &json!(false), &json!(7)));
}

#[tokio::test]
async fn at_most_32_processes_run_and_all_end_with_the_foot() {
    let world = World::open();
    for _ in 0..32 {
        start(&world, "echo $$ >> pids; exec sleep 1000").await;
    }
    let message = world.fails("process_start", json!({"argv": ["sleep", "1"]}), "busy").await;
    assert!(message.contains("process_stop"), "{message}");
    eventually("all are up", || pids(&world).len() == 32).await;
    world.tools.shutdown().await;
    assert!(pids(&world).iter().all(|p| !is_alive(*p)));
    world.fails("process_start", json!({"argv": ["sleep", "1"]}), "shutting_down").await;
}

#[tokio::test]
async fn an_ended_process_makes_room_for_the_next() {
    let world = World::open();
    let first = start(&world, "exit 0").await;
    output(&world, &first, 0).await;
    for _ in 0..32 {
        let id = start(&world, "exit 0").await;
        output(&world, &id, 0).await;
    }
    world.fails("process_status", json!({"process_id": first}), "not_found").await;
    let (_, status) = taken_status(&world).await;
    assert_eq!(status["processes"].as_array().unwrap().len(), 32);
}

async fn taken_status(world: &World) -> (String, Value) {
    taken(world.call("process_status", json!({})).await)
}

#[tokio::test]
async fn a_call_that_is_cancelled_before_it_starts_starts_nothing() {
    let world = World::open();
    let cancel = CancellationToken::new();
    cancel.cancel();
    let outcome = world.call_with("shell_execute", json!({"argv": ["touch", "x"]}), GENEROUS, cancel).await;
    assert!(matches!(outcome, Outcome::Cancelled { .. }));
    assert!(!world.project.join("x").exists());
}

//! Cancels, retries, resolves and results at the wrong moment, and identities that are claimed twice.

use serde_json::{Value, json};
use vance_tests::api::{Api, Tree};
use vance_tests::home::Home;
use vance_tests::process::{Brain, Process, foot};
use vance_tests::proxy::{Line, Proxy};
use vance_tests::socket::Socket;
use vance_tests::toy::Toy;
use vance_tests::wait::until;

fn hello(client_id: &str) -> Value {
    json!({"type": "client_connected", "client_id": client_id,
           "available_tools": [{"name": "shell_execute"}, {"name": "git_status"}]})
}

fn result(call: &Value, text: &str) -> Value {
    json!({"type": "result", "call_id": call["call_id"], "attempt": call["attempt"],
           "outcome": {"done": {"content": [{"type": "text", "text": text}]}}})
}

async fn state(tree: &Tree, id: &str) -> anyhow::Result<String> {
    Ok(tree.task(id).await?["state"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn results_after_cancel_after_completion_and_guessed_ones_change_nothing() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let (mut client, _) = Socket::hello(brain.addr(), api.token(), &hello("foot_a")).await?;
    let tree = api
        .submit("tasks:\n- {id: a, steps: [{call: git_status, as: s}]}\n- {id: b, depends_on: [a], steps: [{call: shell_execute, as: s}]}\n")
        .await?;
    let first = client.next("call").await?;
    // Guessed and foreign ids, wrong attempts, verdicts of all kinds: answered or ignored, never applied.
    client.send(&result(&json!({"call_id": "call_01a22cdacf21755f81248fb17dd7cd83", "attempt": 1}), "guess")).await?;
    client.send(&json!({"type": "accepted", "call_id": "call_guess", "attempt": 9})).await?;
    client.send(&json!({"type": "progress", "call_id": "call_guess", "fraction": 7e300, "message": "x"})).await?;
    client.send(&result(&first, "one")).await?;
    client.send(&result(&first, "two")).await?;
    let second = client.next("call").await?;
    assert_eq!(tree.until("a", "completed").await?["output"]["s"]["text"], "one");
    let (status, _) = tree.post("b", "cancel", &json!({})).await?;
    assert_eq!(status, 200);
    let cancel = client.next("cancel").await?;
    assert_eq!(cancel["call_id"], second["call_id"]);
    client.send(&result(&second, "late")).await?;
    client.next("result_ack").await?;
    client.send(&result(&first, "very late")).await?;
    client.next("result_ack").await?;
    assert_eq!(tree.task("a").await?["output"]["s"]["text"], "one");
    let b = tree.task("b").await?;
    assert_eq!((b["state"].as_str(), &b["output"]), (Some("cancelled"), &Value::Null), "{b}");
    until("the late result in the history", || async {
        let b = tree.task("b").await?;
        Ok((b["calls"][0]["late_outcome"] == "done").then_some(()))
    })
    .await?;
    let (status, body) = tree.post("b", "cancel", &json!({})).await?;
    assert_eq!((status, body["error"]["code"].as_str()), (409, Some("not_live")), "{body}");
    Ok(())
}

#[tokio::test]
async fn an_older_connection_has_no_say() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let proxy = Proxy::before(brain.addr()).await?;
    let through = proxy.url.trim_start_matches("http://").to_owned();
    let (mut old, _) = Socket::hello(&through, api.token(), &hello("foot_a")).await?;
    let tree = api.submit("tasks:\n- {id: a, steps: [{call: git_status, as: s}]}\n").await?;
    let call = old.next("call").await?;
    // The old line's result is under way in a hole when the client comes back over another line.
    proxy.set(Line::Hole);
    old.send(&result(&call, "old")).await?;
    let mut again = hello("foot_a");
    again["inflight"] = json!({"running": [call["call_id"]]});
    let (mut new, _) = Socket::hello(brain.addr(), api.token(), &again).await?;
    proxy.set(Line::Open);
    assert!(old.next("never").await.is_err());
    new.send(&result(&call, "new")).await?;
    assert_eq!(tree.until("a", "completed").await?["output"]["s"]["text"], "new");
    Ok(())
}

#[tokio::test]
async fn cancels_reach_tasks_that_are_blocked_suspended_unknown_or_around_others() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let yaml = r"
tasks:
- {id: blocked, client: nobody, steps: [{call: git_status}]}
- {id: suspended, steps: [{call: shell_execute, as: s}]}
- {id: pending, depends_on: [blocked], steps: [{call: now}]}
- {id: always, depends_on: [blocked], run_if: always, steps: [{call: now}]}
- id: parent
  children:
  - {id: child, steps: [{call: git_status}]}
  - {id: grand, children: [{id: leaf, client: nobody, steps: [{call: git_status}]}]}
  - {id: later, depends_on: [child], steps: [{call: now}]}
";
    let (mut client, _) = Socket::hello(brain.addr(), api.token(), &hello("foot_a")).await?;
    let tree = api.submit(yaml).await?;
    let (one, two) = (client.next("call").await?, client.next("call").await?);
    let of = |tool: &str| if one["tool"] == tool { one.clone() } else { two.clone() };
    let (shell, git) = (of("shell_execute"), of("git_status"));
    tree.until("leaf", "blocked").await?;
    let (status, body) = tree.post("parent", "cancel", &json!({})).await?;
    assert_eq!((status, body["state"].as_str()), (200, Some("cancelled")), "{body}");
    assert_eq!(client.next("cancel").await?["call_id"], git["call_id"]);
    for id in ["child", "grand", "leaf", "later"] {
        tree.until(id, "cancelled").await?;
    }
    drop(client);
    tree.until("suspended", "blocked").await?;
    for id in ["suspended", "blocked"] {
        let (status, body) = tree.post(id, "cancel", &json!({})).await?;
        assert_eq!((status, body["state"].as_str()), (200, Some("cancelled")), "{body}");
    }
    tree.until("pending", "skipped").await?;
    tree.until("always", "completed").await?;
    // The client comes back with the cancelled call still running: it is told again.
    let mut back = hello("foot_a");
    back["inflight"] = json!({"running": [shell["call_id"]]});
    let (mut client, welcome) = Socket::hello(brain.addr(), api.token(), &back).await?;
    assert_eq!(welcome["inflight"], json!([]), "{welcome}");
    assert_eq!(client.next("cancel").await?["call_id"], shell["call_id"]);
    client.send(&result(&shell, "too late")).await?;
    client.next("result_ack").await?;
    assert_eq!(state(&tree, "suspended").await?, "cancelled");
    Ok(())
}

#[tokio::test]
async fn commands_that_come_together_or_at_the_wrong_time_are_refused_with_a_reason() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let (mut client, _) = Socket::hello(brain.addr(), api.token(), &hello("foot_a")).await?;
    let tree = api
        .submit("tasks:\n- {id: a, steps: [{call: shell_execute, as: s}]}\n- {id: b, depends_on: [a], steps: [{call: now}]}\n- {id: c, depends_on: [b], steps: [{call: now}]}\n")
        .await?;
    let call = client.next("call").await?;
    let (status, body) = tree.post("a", "resolve", &json!({"as": "done"})).await?;
    assert_eq!((status, body["error"]["code"].as_str()), (409, Some("not_unknown")), "{body}");
    let (status, body) = tree.post("a", "retry", &json!({})).await?;
    assert_eq!((status, body["error"]["code"].as_str()), (409, Some("not_retryable")), "{body}");
    let unknown =
        json!({"type": "result", "call_id": call["call_id"], "attempt": 1, "outcome": {"unknown": {"reason": "died"}}});
    client.send(&unknown).await?;
    tree.until("a", "blocked").await?;
    // Ten people decide at once: one of them is heard.
    let votes: Vec<_> = (0..10)
        .map(|n| {
            let output = json!({"as": "done", "output": n});
            let tree = &tree;
            async move { tree.post("a", "resolve", &output).await }
        })
        .collect();
    let answers = futures_util::future::try_join_all(votes).await?;
    let heard = answers.iter().filter(|(status, _)| *status == 200).count();
    assert_eq!(heard, 1, "{answers:?}");
    tree.until("c", "completed").await?;

    // A failed tree is retried from its root: what was skipped because of it runs too.
    let tree = api
        .submit("tasks:\n- {id: a, steps: [{call: shell_execute, as: s}]}\n- {id: b, depends_on: [a], steps: [{call: now}]}\n- {id: c, depends_on: [b], steps: [{call: now}]}\n- {id: d, depends_on: [c], run_if: always, steps: [{call: now}]}\n")
        .await?;
    let call = client.next("call").await?;
    let failed = json!({"type": "result", "call_id": call["call_id"], "attempt": 1, "outcome": {"failed": {"error": {"code": "x", "message": "no"}}}});
    client.send(&failed).await?;
    tree.until("a", "failed").await?;
    tree.until("c", "skipped").await?;
    tree.until("d", "completed").await?;
    let nothing = json!({});
    let retries: Vec<_> = (0..5).map(|_| tree.post("a", "retry", &nothing)).collect();
    let answers: Vec<u16> = futures_util::future::try_join_all(retries).await?.into_iter().map(|(s, _)| s).collect();
    assert_eq!(answers.iter().filter(|s| **s == 200).count(), 1, "{answers:?}");
    let again = client.next("call").await?;
    assert_ne!(again["call_id"], call["call_id"]);
    client.send(&result(&again, "ok")).await?;
    tree.until("c", "completed").await?;
    assert_eq!(state(&tree, "d").await?, "completed");
    // The old call's result once more.
    client.send(&result(&call, "old")).await?;
    client.next("result_ack").await?;
    assert_eq!(tree.task("a").await?["output"]["s"]["text"], "ok");
    Ok(())
}

#[tokio::test]
async fn a_second_foot_of_a_home_has_a_slot_of_its_own_and_a_copied_identity_takes_over_once() -> anyhow::Result<()> {
    let home = Home::new()?;
    let toy = Toy::new(&home)?;
    toy.for_foot(&home)?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let first = foot(&home, &brain.url, &["--name", "first"]).await?;
    let second = foot(&home, &brain.url, &["--name", "second"]).await?;
    let tree = api
        .submit("tasks:\n- {id: a, client: first, steps: [{call: toy__effect, with: {name: a, ms: 300}}]}\n- {id: b, client: second, steps: [{call: toy__effect, with: {name: b, ms: 300}}]}\n")
        .await?;
    let (a, b) = (tree.until("a", "completed").await?, tree.until("b", "completed").await?);
    assert_ne!(a["calls"][0]["client_id"], b["calls"][0]["client_id"]);
    drop(second);
    // Another machine with a copy of the home.
    let copy = Home::beside(&home)?;
    let identity = std::fs::read_to_string(home.path().join("state/client-0/client_id"))?;
    copy.write("state/client-0/client_id", &identity)?;
    let mut thief = Process::start("vancetope", &copy, &["--daemon", "--brain", &brain.url, "--name", "first"])?;
    thief.line("foot ready").await?;
    until("the older one stops trying", || async { Ok(first.log().contains("took over").then_some(())) }).await?;
    assert!(!thief.log().contains("took over"), "{}", thief.log());
    Ok(())
}

#[tokio::test]
async fn a_client_that_goes_to_another_session_still_delivers_and_no_hello_touches_the_calls_of_others()
-> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let (mut a, _) = Socket::hello(brain.addr(), api.token(), &hello("foot_a")).await?;
    let tree = api
        .submit("tasks:\n- {id: a, client: foot_a, steps: [{call: git_status, as: s}]}\n- {id: b, client: foot_a, steps: [{call: shell_execute, as: s}]}\n")
        .await?;
    let (one, two) = (a.next("call").await?, a.next("call").await?);
    // Somebody else's journal claims them.
    let mut forged = hello("foot_b");
    forged["inflight"] = json!({"finished": [one["call_id"]], "interrupted": [two["call_id"]]});
    let (mut b, welcome) = Socket::hello(brain.addr(), api.token(), &forged).await?;
    assert_eq!(welcome["inflight"], json!([]), "{welcome}");
    b.send(&result(&one, "forged")).await?;
    assert_eq!(b.next("error").await?["code"], "not_yours");
    // Its line is cut: both of its tasks say so.
    drop(a);
    tree.until("a", "blocked").await?;
    tree.until("b", "blocked").await?;
    let mut moved = hello("foot_a");
    moved["session_id"] = json!("sess_elsewhere");
    moved["inflight"] = json!({"running": [one["call_id"]], "finished": [two["call_id"]]});
    let (mut a, welcome) = Socket::hello(brain.addr(), api.token(), &moved).await?;
    assert_eq!(welcome["inflight"].as_array().map(Vec::len), Some(2), "{welcome}");
    a.send(&result(&one, "from elsewhere")).await?;
    a.send(&result(&two, "too")).await?;
    assert_eq!(tree.until("a", "completed").await?["output"]["s"]["text"], "from elsewhere");
    assert_eq!(tree.until("b", "completed").await?["output"]["s"]["text"], "too");
    Ok(())
}

#[tokio::test]
async fn a_hello_of_an_earlier_life_is_refused_and_one_without_a_life_is_as_ever() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let of_life = |life: u64, session: &str| {
        let mut hello = hello("foot_a");
        (hello["life"], hello["session_id"]) = (json!(life), json!(session));
        hello
    };
    let (mut now, _) = Socket::hello(brain.addr(), api.token(), &of_life(7, "sess_one")).await?;
    // What a killed process had sent arrives after its successor's; also to another session.
    for session in ["sess_one", "sess_two"] {
        let mut late = Socket::connect(brain.addr(), api.token()).await?;
        late.send(&of_life(6, session)).await?;
        let error = late.next("error").await?;
        assert_eq!(error["code"], "superseded", "{error}");
        assert_eq!(late.any().await.unwrap_err().to_string(), "closed: 4409");
    }
    now.send(&json!({"type": "ping", "nonce": 1})).await?;
    assert_eq!(now.next("pong").await?["nonce"], 1);
    // The same life again is a reconnect, and a client that counts no lives takes over by its later connection.
    let (mut again, _) = Socket::hello(brain.addr(), api.token(), &of_life(7, "sess_one")).await?;
    assert!(now.next("nothing").await.is_err(), "the older connection is closed");
    let mut simple = hello("foot_a");
    simple["session_id"] = json!("sess_one");
    let (_simple, _) = Socket::hello(brain.addr(), api.token(), &simple).await?;
    assert!(again.next("nothing").await.is_err(), "the older connection is closed");
    Ok(())
}

#[tokio::test]
async fn a_task_whose_client_went_to_another_session_goes_on_there() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let (mut a, _) = Socket::hello(brain.addr(), api.token(), &hello("foot_a")).await?;
    let tree = api
        .submit("tasks:\n- {id: lost, steps: [{call: git_status, as: s}]}\n- {id: runs, steps: [{call: shell_execute, as: s}]}\n- {id: stopped, steps: [{call: shell_execute, as: s}]}\n")
        .await?;
    let mut calls = Vec::new();
    for _ in 0..3 {
        calls.push(a.next("call").await?);
    }
    let id = |tool: &str, n: usize| {
        let of_tool: Vec<&Value> = calls.iter().filter(|call| call["tool"] == tool).collect();
        of_tool[n]["call_id"].clone()
    };
    // One never arrived, two run; then the client comes back to another session, and stays there.
    let running = [id("shell_execute", 0), id("shell_execute", 1)];
    drop(a);
    for task in ["lost", "runs", "stopped"] {
        tree.until(task, "blocked").await?;
    }
    let mut moved = hello("foot_a");
    (moved["session_id"], moved["inflight"]) = (json!("sess_elsewhere"), json!({"running": running}));
    let (mut a, _) = Socket::hello(brain.addr(), api.token(), &moved).await?;
    let again = a.next("call").await?;
    assert_eq!((&again["call_id"], &again["attempt"]), (&id("git_status", 0), &json!(2)));
    a.send(&result(&again, "arrived")).await?;
    assert_eq!(tree.until("lost", "completed").await?["output"]["s"]["text"], "arrived");
    for task in ["runs", "stopped"] {
        tree.until(task, "running").await?;
    }
    let stopped = tree.task("stopped").await?["calls"][0]["call_id"].clone();
    assert_eq!(tree.post("stopped", "cancel", &json!({})).await?.0, 200);
    assert_eq!(a.next("cancel").await?["call_id"], stopped);
    let runs = running.iter().find(|id| **id != stopped).cloned().unwrap_or_default();
    a.send(&result(&json!({"call_id": runs, "attempt": 1}), "ran")).await?;
    assert_eq!(tree.until("runs", "completed").await?["output"]["s"]["text"], "ran");
    Ok(())
}

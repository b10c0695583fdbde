//! Much of everything: results, tools, tasks, calls, frames; clients that never read; nonsense on every route.

use std::fmt::Write as _;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Message;
use vance_tests::api::Api;
use vance_tests::home::Home;
use vance_tests::process::{Brain, foot};
use vance_tests::socket::Socket;
use vance_tests::toy::Toy;
use vance_tests::wait::until;

fn hello(client_id: &str, tools: &[&str]) -> Value {
    let tools: Vec<Value> = tools.iter().map(|name| json!({"name": name})).collect();
    json!({"type": "client_connected", "client_id": client_id, "available_tools": tools})
}

fn result(call: &Value) -> Value {
    json!({"type": "result", "call_id": call["call_id"], "attempt": call["attempt"],
           "outcome": {"done": {"content": [{"type": "text", "text": "ok"}]}}})
}

/// Answers every call until the connection ends.
async fn obey(mut socket: Socket) -> anyhow::Result<()> {
    loop {
        let frame = socket.any().await?;
        if frame["type"] == "call" {
            socket.send(&result(&frame)).await?;
        }
    }
}

async fn states(api: &Api, tree: &Value, state: &str) -> anyhow::Result<usize> {
    let tree = tree["tree_id"].as_str().unwrap_or_default();
    let (mut count, mut cursor) = (0, String::new());
    loop {
        let (status, body) = api.get(&format!("/api/v1/tasks?tree={tree}&state={state}&limit=1000{cursor}")).await?;
        anyhow::ensure!(status == 200, "{status} {body}");
        count += body["tasks"].as_array().map_or(0, Vec::len);
        match body["next"].as_str() {
            Some(next) => cursor = format!("&after={next}"),
            None => return Ok(count),
        }
    }
}

#[tokio::test]
async fn results_up_to_the_limit_arrive_whole_and_larger_ones_as_a_handle() -> anyhow::Result<()> {
    let home = Home::new()?;
    let toy = Toy::new(&home)?;
    toy.for_foot(&home)?;
    toy.for_brain(&home, "srv", &[])?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let _foot = foot(&home, &brain.url, &[]).await?;
    let mib = 1024 * 1024;
    // What is around the text counts too.
    let largest = 8 * mib - 128 * 1024;
    let tree = api
        .submit(&format!(
            r"
tasks:
- {{id: fits, steps: [{{call: toy__big, with: {{name: fits, bytes: {0}}}, as: r}}]}}
- {{id: too_big, steps: [{{call: toy__big, with: {{name: too_big, bytes: {1}}}}}]}}
- {{id: server, steps: [{{call: srv__big, with: {{name: server, bytes: {0}}}, as: r}}]}}
- {{id: server_too_big, steps: [{{call: srv__big, with: {{name: server_too_big, bytes: {1}}}}}]}}
- {{id: beside, steps: [{{call: toy__effect, with: {{name: beside}}}}]}}
",
            largest,
            9 * mib
        ))
        .await?;
    tree.until("beside", "completed").await?;
    for id in ["fits", "server"] {
        let fits = tree.until(id, "completed").await?;
        assert_eq!(fits["output"]["r"]["text"].as_str().map(str::len), Some(largest), "{id}");
    }
    for id in ["too_big", "server_too_big"] {
        tree.until(id, "completed").await?;
        assert_eq!(toy.begun_of(id)?, 1, "a result that is too large is not a reason to run again");
    }
    let again = api.submit("tasks:\n- {id: a, steps: [{call: toy__effect, with: {name: again}}]}\n").await?;
    again.until("a", "completed").await?;
    Ok(())
}

#[tokio::test]
async fn five_thousand_tools_are_taken_changed_and_called() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let tool = |n: usize| json!({"name": format!("big__tool_{n}"), "description": "d".repeat(60), "input_schema": {"type": "object"}});
    let (mut client, _) = Socket::hello(brain.addr(), api.token(), &hello("foot_a", &["first"])).await?;
    for chunk in (0..5_000).collect::<Vec<_>>().chunks(1_000) {
        let added: Vec<Value> = chunk.iter().map(|n| tool(*n)).collect();
        client.send(&json!({"type": "tools_changed", "added": added})).await?;
    }
    api.until_available("default.local", "big__tool_4999").await?;
    let begin = Instant::now();
    for round in 0..200 {
        let change = if round % 2 == 0 {
            json!({"type": "tools_changed", "removed": ["big__tool_7"]})
        } else {
            json!({"type": "tools_changed", "added": [tool(7)]})
        };
        client.send(&change).await?;
    }
    let tree = api
        .submit("tasks:\n- {id: a, steps: [{call: big__tool_7}]}\n- {id: b, steps: [{call: big__tool_4999}]}\n")
        .await?;
    for _ in 0..2 {
        let call = client.next("call").await?;
        client.send(&result(&call)).await?;
    }
    tree.until("a", "completed").await?;
    tree.until("b", "completed").await?;
    println!("200 changes of 5,000 tools and two calls: {:?}", begin.elapsed());
    Ok(())
}

#[tokio::test]
async fn three_hundred_calls_at_once_to_one_client_are_all_done_in_the_end() -> anyhow::Result<()> {
    let home = Home::new()?;
    home.write("brain/brain.yaml", "defaults: {max_parallel_tasks: 400}\n")?;
    let toy = Toy::new(&home)?;
    toy.for_foot(&home)?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let _foot = foot(&home, &brain.url, &[]).await?;
    api.until_available("default.local", "toy__effect").await?;
    let mut yaml = "tasks:\n".to_owned();
    for n in 0..300 {
        writeln!(yaml, "- {{id: t{n}, steps: [{{call: toy__effect, with: {{name: n{n}., ms: 1500}}}}]}}")?;
    }
    let tree = api.submit(&yaml).await?;
    // Beside them: over the API, where a full client is an answer.
    let direct = (0..20).map(|n| {
        let api = &api;
        async move { api.call("toy__look", &json!({"arguments": {"name": format!("d{n}.")}})).await }
    });
    for (status, body) in futures_util::future::try_join_all(direct).await? {
        assert!(status == 200 || status == 429 || status == 503, "{status} {body}");
    }
    until("all done", || async { Ok((states(&api, &tree.body, "completed").await? == 300).then_some(())) }).await?;
    let begun = toy.begun()?;
    assert!((0..300).all(|n| begun.get(&format!("n{n}.")) == Some(&1)), "{begun:?}");
    Ok(())
}

/// A tree of chains of ten whose last task needs a client, and tasks that wait for one at once; the Brain is killed while all
/// wait, and one client's connect sets them all going.
async fn many_tasks(chains: usize, waiting: usize) -> anyhow::Result<()> {
    let home = Home::new()?;
    let mut brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let mut yaml = "tasks:\n".to_owned();
    for n in 0..chains * 10 {
        let depends = if n % 10 == 0 { String::new() } else { format!(", depends_on: [t{}]", n - 1) };
        let tool = if n % 10 == 9 { "git_status" } else { "task_note, with: {text: x}" };
        writeln!(yaml, "- {{id: t{n}{depends}, steps: [{{call: {tool}}}]}}")?;
    }
    let begin = Instant::now();
    let tree = api.submit(&yaml).await?;
    println!("{} tasks taken in {:?}", chains * 10, begin.elapsed());
    let mut yaml = "tasks:\n".to_owned();
    for n in 0..waiting {
        writeln!(yaml, "- {{id: w{n}, steps: [{{call: read_local_file}}]}}")?;
    }
    let tree_of_waiting = api.submit(&yaml).await?;
    all_in(&api, &tree.body, "blocked", chains).await?;
    all_in(&api, &tree_of_waiting.body, "blocked", waiting).await?;
    println!("all that wait wait after {:?}", begin.elapsed());
    assert_eq!(states(&api, &tree.body, "completed").await?, chains * 9);
    brain.kill9_and_restart(&home).await?;
    let begin = Instant::now();
    let tools = hello("foot_a", &["git_status", "read_local_file"]);
    let (socket, _) = Socket::hello(brain.addr(), api.token(), &tools).await?;
    let client = tokio::spawn(obey(socket));
    all_in(&api, &tree.body, "completed", chains * 10).await?;
    all_in(&api, &tree_of_waiting.body, "completed", waiting).await?;
    println!("{} tasks requeued and completed in {:?}", chains + waiting, begin.elapsed());
    client.abort();
    Ok(())
}

async fn all_in(api: &Api, tree: &Value, state: &str, count: usize) -> anyhow::Result<()> {
    until(&format!("{count} {state}"), || async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        Ok((states(api, tree, state).await? == count).then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_thousand_tasks_and_five_hundred_blocked_ones_are_requeued_by_one_connect() -> anyhow::Result<()> {
    many_tasks(100, 500).await
}

#[tokio::test]
#[ignore = "nightly: half a minute of work"]
async fn five_thousand_tasks_and_two_thousand_blocked_ones() -> anyhow::Result<()> {
    many_tasks(500, 2_000).await
}

/// Ten tasks each of many sessions wait; their clients come all at once, while the Brain was killed meanwhile.
async fn many_sessions(sessions: usize) -> anyhow::Result<()> {
    let home = Home::new()?;
    let mut brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let hello = |n: usize| {
        let mut hello = hello(&format!("foot_{n}"), &["mine"]);
        hello["session_id"] = json!(format!("sess_{n}"));
        hello
    };
    // Once, so that the tool is known.
    drop(Socket::hello(brain.addr(), api.token(), &hello(0)).await?);
    let tasks: Vec<Value> = (0..10).map(|n| json!({"id": format!("t{n}"), "steps": [{"call": "mine"}]})).collect();
    let mut trees = Vec::with_capacity(sessions);
    for n in 0..sessions {
        let tree = json!({"session": format!("sess_{n}"), "tasks": tasks});
        trees.push(api.submit(&tree.to_string()).await?);
    }
    for tree in &trees {
        all_in(&api, &tree.body, "blocked", 10).await?;
    }
    brain.kill9_and_restart(&home).await?;
    let begin = Instant::now();
    let mut clients = Vec::with_capacity(sessions);
    for n in 0..sessions {
        let (socket, _) = Socket::hello(brain.addr(), api.token(), &hello(n)).await?;
        clients.push(tokio::spawn(obey(socket)));
    }
    for tree in &trees {
        all_in(&api, &tree.body, "completed", 10).await?;
    }
    println!("{} tasks of {sessions} sessions completed in {:?}", sessions * 10, begin.elapsed());
    clients.iter().for_each(tokio::task::JoinHandle::abort);
    Ok(())
}

#[tokio::test]
async fn blocked_tasks_of_many_sessions_go_on_when_their_clients_come() -> anyhow::Result<()> {
    many_sessions(30).await
}

#[tokio::test]
#[ignore = "nightly: minutes of work"]
async fn ten_thousand_blocked_tasks_of_a_thousand_sessions_go_on_when_their_clients_come() -> anyhow::Result<()> {
    many_sessions(1_000).await
}

#[tokio::test]
async fn a_session_with_thousands_of_tasks_does_not_hold_up_anothers_only_one() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let many: Vec<Value> = (0..2_000).map(|n| json!({"id": format!("t{n}"), "steps": [{"call": "now"}]})).collect();
    let many = api.submit(&json!({"session": "sess_many", "tasks": many}).to_string()).await?;
    let one = api.submit("session: sess_one\ntasks: [{id: a, steps: [{call: now}]}]").await?;
    one.until("a", "completed").await?;
    let done = states(&api, &many.body, "completed").await?;
    assert!(done < 2_000, "its turn came before all of the others: {done}");
    all_in(&api, &many.body, "completed", 2_000).await
}

#[tokio::test]
async fn a_client_that_never_reads_and_one_that_floods_cost_the_others_nothing() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let (deaf, _) = Socket::hello(brain.addr(), api.token(), &hello("foot_deaf", &["deaf"])).await?;
    let (mut loud, _) = Socket::hello(brain.addr(), api.token(), &hello("foot_loud", &["loud"])).await?;
    let (good, _) = Socket::hello(brain.addr(), api.token(), &hello("foot_good", &["good"])).await?;
    let good = tokio::spawn(obey(good));
    let mut yaml = "tasks:\n".to_owned();
    for n in 0..10 {
        writeln!(yaml, "- {{id: d{n}, steps: [{{call: deaf, with: {{x: \"{}\"}}}}]}}", "x".repeat(400_000))?;
    }
    let deaf_tree = api.submit(&yaml).await?;
    let flood = tokio::spawn(async move {
        let frames = [
            json!({"type": "ping", "nonce": 1}).to_string(),
            json!({"type": "accepted", "call_id": "call_x", "attempt": 1}).to_string(),
            json!({"type": "result", "call_id": "call_y", "attempt": 1, "outcome": {"done": {"content": []}}})
                .to_string(),
            json!({"type": "tools_changed", "removed": ["nothing"]}).to_string(),
        ];
        for n in 0..20_000usize {
            let Some(frame) = frames.get(n % frames.len()) else { continue };
            // It reads nothing either: the Brain may close it at any time.
            if loud.0.send(Message::text(frame.clone())).await.is_err() {
                return n;
            }
        }
        20_000
    });
    let begin = Instant::now();
    let tree = api.submit("tasks:\n- {id: a, steps: [{call: good}]}\n- {id: b, steps: [{call: now}]}\n").await?;
    tree.until("a", "completed").await?;
    tree.until("b", "completed").await?;
    assert!(begin.elapsed() < Duration::from_secs(10), "{:?}", begin.elapsed());
    println!("beside a flood: {:?}", begin.elapsed());
    let (status, body) = deaf_tree.post("d0", "cancel", &json!({})).await?;
    assert_eq!(status, 200, "{body}");
    println!("frames of the flood that went out: {}", flood.await?);
    // Its end is noticed, whatever it sent.
    drop(deaf);
    until("only one client is left", || async {
        let (_, body) = api.get("/api/v1/sessions/default.local").await?;
        let online = body["clients"].as_array().into_iter().flatten().filter(|c| c["presence"] == "online");
        Ok((online.count() == 1).then_some(()))
    })
    .await?;
    good.abort();
    Ok(())
}

#[tokio::test]
async fn a_client_that_floods_and_goes_away_is_gone() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    for round in 0..5 {
        let (mut loud, _) = Socket::hello(brain.addr(), api.token(), &hello("foot_loud", &["loud"])).await?;
        let tree = api.submit("tasks:\n- {id: a, steps: [{call: loud}]}\n").await?;
        let call = loud.next("call").await?;
        let progress =
            json!({"type": "progress", "call_id": call["call_id"], "fraction": 0.5, "message": "x"}).to_string();
        let change = json!({"type": "tools_changed", "removed": ["nothing"]}).to_string();
        for n in 0..5_000 {
            // The Brain may have had enough of it.
            let frame = if n % 2 == 0 { &progress } else { &change };
            if loud.0.send(Message::text(frame.clone())).await.is_err() {
                break;
            }
        }
        drop(loud);
        // Its end comes through, behind everything that it said.
        let task = tree.until("a", "blocked").await?;
        assert_eq!(task["blocked_reason"], "Waiting for Client for Tool: loud", "round {round}");
        tree.post("a", "cancel", &json!({})).await?;
        tree.until("a", "cancelled").await?;
    }
    Ok(())
}

#[tokio::test]
async fn nonsense_on_every_route_is_refused_and_the_brain_lives() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let deep = "[".repeat(100_000);
    let deep_json = format!(
        r#"{{"tasks": [{{"id": "a", "steps": [{{"call": "now", "with": {{"x": {}{}}}}}]}}]}}"#,
        "[".repeat(5_000),
        "]".repeat(5_000)
    );
    let anchors = format!(
        "a: &a [x]\n{}tasks: *z\n",
        (0..30).fold(String::new(), |s, n| s + &format!("b{n}: &b{n} [*a, *a, *a, *a, *a, *a, *a, *a]\n"))
    );
    let huge = format!("tasks:\n- id: a\n  goal: \"{}\"\n", "y".repeat(20 * 1024 * 1024));
    let many = format!("tasks:\n{}", "- {id: a, bad: 1}\n".repeat(50_000));
    let bodies = [
        "",
        "{",
        "null",
        "[]",
        "\u{0}\u{1}",
        "tasks: {}",
        "tasks:\n- 1",
        "tasks: [{id: ../../etc}]",
        "!!python/object:os.system x",
        &deep,
        &deep_json,
        &anchors,
        &huge,
        &many,
    ];
    for body in bodies {
        let begin = Instant::now();
        let sent = api.submit_raw(body, &[]).await;
        let shown: String = body.chars().take(30).collect();
        match sent {
            Ok((status, answer)) => {
                assert!((400..500).contains(&status), "{shown}: {status}");
                assert!(answer["error"]["code"].is_string(), "{shown}: {answer}");
                assert!(answer.to_string().len() < 400_000, "{shown}: {} bytes", answer.to_string().len());
            }
            // A body that is too large may be cut off before it was sent.
            Err(error) => assert!(body.len() > 1024 * 1024, "{shown}: {error:#}"),
        }
        assert!(begin.elapsed() < Duration::from_secs(10), "{shown}: {:?}", begin.elapsed());
    }
    let long = "x".repeat(10_000);
    let paths = [
        "/",
        "/api",
        "/api/v1/tasks/x",
        "/api/v1/tasks/task_01a22cdacf21755f81248fb17dd7cd83",
        "/api/v1/tasks?state=nonsense",
        "/api/v1/tasks?limit=-1",
        "/api/v1/tasks?limit=99999999999999999999",
        "/api/v1/sessions/..%2f..%2fetc",
        "/api/v1/sessions/%00",
        "/api/v1/sessions/%ff/tools",
        "/api/v1/tasks?cursor=%ff",
        "/api/v1/tools",
        &format!("/api/v1/tasks/{long}"),
        "/ws",
    ];
    for path in paths {
        let (status, body) = api.get(path).await?;
        let shown: String = path.chars().take(60).collect();
        assert!(
            (400..500).contains(&status) || (status == 200 && path.starts_with("/api/v1/tools")),
            "{shown}: {status} {body}"
        );
    }
    for path in [
        "/api/v1/tasks/x/cancel",
        "/api/v1/tasks/x/retry",
        "/api/v1/tasks/x/resolve",
        "/api/v1/tools/now/call",
        "/api/v1/tools/a%20b/call",
        "/api/v1/sessions",
        "/healthz",
        "/api/v1/events",
    ] {
        for body in [
            json!(null),
            json!([]),
            json!("x"),
            json!({"arguments": [1]}),
            json!({"as": 7, "arguments": "x", "timeout": -1}),
            json!({"arguments": {}, "timeout": "999999999999h"}),
        ] {
            let (status, answer) = api.post(path, &body).await?;
            assert!(status < 500, "{path} {body}: {status} {answer}");
        }
    }
    // Frames that are deep, long or of the wrong kind.
    let (mut client, _) = Socket::hello(brain.addr(), api.token(), &hello("foot_a", &["good"])).await?;
    for text in [
        deep.clone(),
        "{}".to_owned(),
        "null".to_owned(),
        json!({"type": "result", "call_id": "x".repeat(100_000), "outcome": {"done": {"content": 1}}}).to_string(),
        json!({"type": "result_part", "call_id": "call_x", "seq": 4_000_000_000u64, "data": "x", "last": true})
            .to_string(),
        json!({"type": ["ping"]}).to_string(),
    ] {
        client.0.send(Message::text(text)).await?;
    }
    client.send(&json!({"type": "ping", "nonce": 3})).await?;
    assert_eq!(client.next("pong").await?["nonce"], 3);
    let call = api.submit("tasks:\n- {id: a, steps: [{call: good}]}\n").await?;
    let frame = client.next("call").await?;
    client.send(&result(&frame)).await?;
    call.until("a", "completed").await?;
    client.0.close(None).await.ok();
    while let Some(Ok(_)) = client.0.next().await {}
    let (status, body) = api.get("/readyz").await?;
    assert_eq!(status, 200, "{body}");
    Ok(())
}

//! Several clients and several sessions: who is there, who gets what, and what a person sees of it.
#![allow(missing_docs)]

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use vance_tests::api::Api;
use vance_tests::home::Home;
use vance_tests::process::{Brain, foot};
use vance_tests::socket::Socket;
use vance_tests::wait::{PATIENCE, until};

const SESSION: &str = "default.local";

async fn session(api: &Api, id: &str) -> anyhow::Result<Value> {
    let (status, body) = api.get(&format!("/api/v1/sessions/{id}")).await?;
    anyhow::ensure!(status == 200, "{status} {body}");
    Ok(body)
}

/// A stream of events.
struct Events(TcpStream, String);

impl Events {
    async fn open(brain: &Brain, api: &Api) -> anyhow::Result<Self> {
        let mut socket = TcpStream::connect(brain.addr()).await?;
        let (host, token) = (brain.addr(), api.token());
        let request = format!("GET /api/v1/events HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n\r\n");
        socket.write_all(request.as_bytes()).await?;
        let mut events = Self(socket, String::new());
        events.until("events follow").await?;
        Ok(events)
    }

    /// Reads on until the text came; gives the event that has it.
    async fn until(&mut self, text: &str) -> anyhow::Result<String> {
        let mut buffer = Vec::with_capacity(16 * 1024);
        loop {
            if let Some((end, _)) = self.1.match_indices("\n\n").find(|(at, _)| self.1[..*at].contains(text)) {
                let rest = self.1.split_off(end);
                let event = std::mem::replace(&mut self.1, rest);
                return Ok(event.rsplit("\n\n").next().unwrap_or_default().to_owned());
            }
            buffer.clear();
            let read = timeout(PATIENCE, self.0.read_buf(&mut buffer)).await;
            anyhow::ensure!(read.with_context(|| format!("no '{text}' in {}", self.1))?? > 0, "the stream ended");
            self.1.push_str(&String::from_utf8_lossy(&buffer));
        }
    }
}

#[tokio::test]
async fn what_an_autonomous_run_queues_is_done_by_the_client_that_comes_anywhere() -> anyhow::Result<()> {
    let home = Home::new()?;
    home.write_project("a.txt", "A")?;
    home.write("brain/brain.yaml", "defaults: {grace: 1s}\n")?;
    let mut brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let mut events = Events::open(&brain, &api).await?;
    let step =
        |id: &str, tool: &str| format!("- {{id: {id}, steps: [{{call: {tool}, with: {{path: a.txt}}, as: f}}]}}\n");
    let tree = api
        .submit(&format!(
            "mode: autonomous\ntasks:\n- {{id: now, steps: [{{call: now}}]}}\n{}{}",
            step("second", "read_local_file"),
            "- {id: third, depends_on: [now], steps: [{call: list_local_files}]}\n",
        ))
        .await?;
    let rests = events.until("event: tree_rests").await?;
    assert!(rests.contains("\"summary\":\"1 completed, 2 waiting for client\""), "{rests}");
    let id = tree.body["session_id"].as_str().context("session_id")?.to_owned();
    let queue = session(&api, &id).await?["queue"].clone();
    let names: Vec<&str> = queue.as_array().context("queue")?.iter().filter_map(|w| w["id"].as_str()).collect();
    assert_eq!(names, ["second", "third"], "{queue}");
    assert_eq!(queue[0]["tool"], "read_local_file");
    let tree_id = tree.body["tree_id"].as_str().context("tree_id")?;
    let (_, list) = api.get(&format!("/api/v1/tasks?tree={tree_id}")).await?;
    assert_eq!(list["summary"], "1 completed, 2 waiting for client");

    // Also after a restart, in the same order.
    brain.kill9_and_restart(&home).await?;
    let mut events = Events::open(&brain, &api).await?;
    assert_eq!(session(&api, &id).await?["queue"], queue);
    let mut laptop = foot(&home, &brain.url, &["--name", "laptop"]).await?;
    let came = events.until("event: client_online").await?;
    assert!(came.contains("\"name\":\"laptop\"") && came.contains(&format!("\"session_id\":\"{SESSION}\"")), "{came}");
    let done = tree.until("second", "completed").await?;
    assert_eq!(done["output"]["f"]["text"], "A");
    assert!(done["calls"][0]["machine"].as_str().is_some_and(|machine| !machine.is_empty()), "{done}");
    tree.until("third", "completed").await?;
    let rests = events.until("event: tree_rests").await?;
    assert!(rests.contains("\"summary\":\"3 completed\""), "{rests}");
    let there = session(&api, &id).await?;
    assert_eq!(there["clients"][0]["session_id"], SESSION, "{there}");
    assert_eq!(there["queue"], json!([]));
    // One call through it from that session, by hand.
    let (status, body) = api.call("read_local_file", &json!({"arguments": {"path": "a.txt"}, "session": id})).await?;
    assert_eq!((status, body["call"]["client_id"].is_string()), (200, true), "{body}");
    assert_eq!(laptop.stop().await?, 0);
    events.until("event: client_away").await?;
    events.until("event: client_gone").await?;
    until("it left both", || async { Ok((session(&api, &id).await?["clients"] == json!([])).then_some(())) }).await
}

#[tokio::test]
async fn a_call_of_an_autonomous_session_outlives_the_brain_and_a_cut_like_any_other() -> anyhow::Result<()> {
    let home = Home::new()?;
    let ledger = vance_tests::ledger::Ledger::new(&home)?;
    let mut brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let proxy = vance_tests::proxy::Proxy::before(brain.addr()).await?;
    let _foot = foot(&home, &proxy.url, &[]).await?;
    let program = ledger.program().display();
    let call = |name: &str, seconds: u32| {
        format!("{{call: shell_execute, with: {{argv: [\"{program}\", {name}, \"{seconds}\"]}}}}")
    };
    let tree = api
        .submit(&format!(
            "mode: autonomous\ntasks:\n- {{id: a, steps: [{}, {}]}}\n- {{id: stopped, depends_on: [a], steps: [{}]}}\n",
            call("one", 3),
            call("two", 3),
            call("three", 600)
        ))
        .await?;
    until("it runs", || async { Ok((ledger.begun("one")? == 1).then_some(())) }).await?;
    brain.kill9_and_restart(&home).await?;
    until("it goes on", || async { Ok((ledger.begun("two")? == 1).then_some(())) }).await?;
    proxy.set(vance_tests::proxy::Line::Cut);
    tree.until("a", "blocked").await?;
    proxy.set(vance_tests::proxy::Line::Open);
    tree.until("a", "completed").await?;
    until("the last one runs", || async { Ok((ledger.begun("three")? == 1).then_some(())) }).await?;
    let (status, body) = tree.post("stopped", "cancel", &json!({})).await?;
    assert_eq!((status, body["state"].as_str()), (200, Some("cancelled")), "{body}");
    until("the program is gone", || async {
        Ok(vance_tests::process::processes_with(&format!("{program} three"))?.is_empty().then_some(()))
    })
    .await?;
    for name in ["one", "two", "three"] {
        assert_eq!(ledger.begun(name)?, 1, "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn refused_names_are_told_to_the_client_and_shown_and_change_with_the_registry() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let tool = |name: &str| json!({"name": name, "type": "native"});
    let hello = json!({"type": "client_connected", "client_type": "cli", "client_id": "foot_mine", "available_tools": [tool("now"), tool("mine")]});
    let (mut socket, welcome) = Socket::hello(brain.addr(), api.token(), &hello).await?;
    assert_eq!(welcome["refused"][0]["name"], "now", "{welcome}");
    let refused = session(&api, SESSION).await?["clients"][0]["refused"].clone();
    assert_eq!(refused, welcome["refused"]);
    assert!(refused[0]["reason"].as_str().is_some_and(|r| r.contains("tool of the server")), "{refused}");

    // `now` may be on both sides from here on, `mine` on the server only.
    home.write("brain/tools.yaml", "- {name: now, location: prefer_client}\n- {name: mine, location: server}\n")?;
    let told = socket.next("error").await?;
    assert_eq!((told["code"].as_str(), told["id"].as_str()), (Some("tool_refused"), Some("mine")), "{told}");
    until("the list has changed", || async {
        Ok((session(&api, SESSION).await?["clients"][0]["refused"][0]["name"] == "mine").then_some(()))
    })
    .await?;
    let tree = api.submit("tasks: [{id: a, steps: [{call: now, as: t}]}]").await?;
    let call = socket.next("call").await?;
    assert_eq!(call["tool"], "now");
    let outcome = json!({"done": {"content": [{"type": "text", "text": "late"}]}});
    let result = json!({"type": "result", "call_id": call["call_id"], "attempt": call["attempt"], "outcome": outcome});
    socket.send(&json!({"type": "accepted", "call_id": call["call_id"]})).await?;
    socket.send(&result).await?;
    assert_eq!(tree.until("a", "completed").await?["output"]["t"]["text"], "late");
    Ok(())
}

#[tokio::test]
async fn one_foot_serves_the_sessions_that_it_names_and_no_others() -> anyhow::Result<()> {
    let home = Home::new()?;
    home.write_project("a.txt", "A")?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let tree = |session: &str| {
        format!(
            "session: {session}\ntasks:\n- {{id: a, steps: [{{call: read_local_file, with: {{path: a.txt}}, as: f}}]}}\n"
        )
    };
    let before = api.submit(&tree("sess_before")).await?;
    before.until("a", "blocked").await?;
    let args = ["--name", "laptop", "--also-session", "sess_before", "--also-session", "sess_later"];
    let mut laptop = foot(&home, &brain.url, &args).await?;
    assert_eq!(before.until("a", "completed").await?["output"]["f"]["text"], "A");
    let later = api.submit(&tree("sess_later")).await?;
    later.until("a", "completed").await?;
    let other = api.submit(&tree("sess_other")).await?;
    other.until("a", "blocked").await?;
    let there = session(&api, "sess_later").await?;
    assert_eq!((&there["clients"][0]["name"], &there["clients"][0]["session_id"]), (&json!("laptop"), &json!(SESSION)));
    assert_eq!(session(&api, "sess_other").await?["clients"], json!([]));
    assert_eq!(laptop.stop().await?, 0);
    until("it left", || async { Ok((session(&api, "sess_later").await?["clients"] == json!([])).then_some(())) }).await
}

#[tokio::test]
async fn what_worked_in_a_folder_goes_on_there_until_a_person_lets_another_one_go_on() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let mut first = foot(&home, &brain.url, &[]).await?;
    let steps = "steps: [{call: list_local_files}, {call: read_local_file, with: {path: late.txt}, as: f}]";
    let tree = api.submit(&format!("tasks:\n- {{id: stays, {steps}}}\n- {{id: goes, {steps}}}\n")).await?;
    for id in ["stays", "goes"] {
        tree.until(id, "failed").await?;
    }
    assert_eq!(first.stop().await?, 0);

    // The same Foot, started in another folder.
    let (project, aside, elsewhere) = (home.project(), home.root().join("aside"), home.root().join("elsewhere"));
    std::fs::rename(&project, &aside)?;
    std::fs::create_dir(&elsewhere)?;
    std::fs::write(elsewhere.join("late.txt"), "elsewhere")?;
    std::os::unix::fs::symlink(&elsewhere, &project)?;
    let mut second = foot(&home, &brain.url, &[]).await?;
    for id in ["stays", "goes"] {
        let (status, body) = tree.post(id, "retry", &json!({})).await?;
        assert_eq!(status, 200, "{body}");
        let waits = tree.until(id, "blocked").await?;
        assert_eq!(waits["blocked_reason"], "Waiting for Client for Tool: read_local_file");
        assert_eq!(waits["bound_to"]["working_dir"], project.display().to_string(), "{waits}");
    }
    tree.post("goes", "cancel", &json!({})).await?;
    tree.until("goes", "cancelled").await?;
    tree.post("goes", "retry", &json!({"any_client": true})).await?;
    assert_eq!(tree.until("goes", "completed").await?["output"]["f"]["text"], "elsewhere");
    assert_eq!(second.stop().await?, 0);

    std::fs::remove_file(&project)?;
    std::fs::rename(&aside, &project)?;
    home.write_project("late.txt", "where it began")?;
    let _back = foot(&home, &brain.url, &[]).await?;
    assert_eq!(tree.until("stays", "completed").await?["output"]["f"]["text"], "where it began");
    Ok(())
}

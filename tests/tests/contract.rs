//! What people and programs rely on, word for word: shapes, texts, exit codes, checked against the real programs.
#![allow(missing_docs)]

use std::collections::BTreeSet;

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use vance_tests::api::Api;
use vance_tests::home::Home;
use vance_tests::process::{Brain, Process, foot, run};
use vance_tests::wait::{PATIENCE, until};

const SESSION: &str = "default.local";

fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().into_iter().flatten().map(|(key, _)| key.as_str()).collect()
}

fn has(value: &Value, wanted: &[&str]) {
    let missing: Vec<&&str> = wanted.iter().filter(|key| !keys(value).contains(**key)).collect();
    assert!(missing.is_empty(), "{missing:?} are missing in {value}");
}

fn texts(value: &Value, wanted: &[&str]) {
    let text = value.to_string();
    let missing: Vec<&&str> = wanted.iter().filter(|part| !text.contains(**part)).collect();
    assert!(missing.is_empty(), "{missing:?} are missing in {text}");
}

#[tokio::test]
async fn tasks_calls_sessions_and_tools_have_the_fields_that_programs_read() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    home.write_project("a.txt", "hello")?;
    let _foot = foot(&home, &brain.url, &["--name", "laptop"]).await?;
    api.until_available(SESSION, "read_local_file").await?;
    let tree = api.submit("tasks:\n- id: a\n  steps: [{call: read_local_file, with: {path: a.txt}, as: paper}]\n- id: b\n  steps: [{call: now}]\n").await?;
    assert_eq!(keys(&tree.body), BTreeSet::from(["tree_id", "session_id", "tasks"]));
    assert_eq!(keys(&tree.body["tasks"][0]), BTreeSet::from(["id", "task_id"]));
    let task = tree.until("a", "completed").await?;
    let fields = "task_id id tree_id session_id parent goal state blocked_reason skip_reason error output created_at updated_at calls";
    has(&task, &fields.split(' ').collect::<Vec<_>>());
    let fields = "call_id tool route client_id machine attempts outcome trace_id started_at ended_at";
    assert_eq!(keys(&task["calls"][0]), fields.split(' ').collect());
    assert_eq!((&task["calls"][0]["route"], &task["calls"][0]["outcome"]), (&json!("client"), &json!("done")));
    assert_eq!(keys(&task["output"]["paper"]), BTreeSet::from(["text", "structured", "content"]));
    let last = tree.until("b", "completed").await?;
    assert_eq!(keys(&last["output"]), BTreeSet::from(["result"]));
    let (_, tools) = api.get(&format!("/api/v1/sessions/{SESSION}/tools")).await?;
    let fields = "name location available unavailable_reason labels replay clients input_schema output_schema";
    for tool in tools["tools"].as_array().context("tools")? {
        has(tool, &fields.split(' ').collect::<Vec<_>>());
        assert!(tool["input_schema"].is_object() && tool["output_schema"].is_object(), "{tool}");
    }
    let natives = "read_local_file write_local_file edit_local_file list_local_files search_local_files shell_execute process_start \
                   process_status process_output process_stop git_status pdf_extract_text web_search http_fetch task_note now";
    let listed: BTreeSet<&str> =
        tools["tools"].as_array().into_iter().flatten().filter_map(|t| t["name"].as_str()).collect();
    assert_eq!(listed, natives.split_whitespace().collect());
    let (status, called) = api.call("now", &json!({"arguments": {}})).await?;
    assert_eq!(status, 200);
    has(&called, &["call", "result"]);
    // A result that fails is still an answer, with the same fields.
    let (status, called) = api.call("now", &json!({"arguments": {"nothing": 1}})).await?;
    assert_eq!((status, &called["call"]["outcome"]), (200, &json!("failed")), "{called}");
    Ok(())
}

#[tokio::test]
async fn every_described_route_is_there_and_what_is_unknown_says_so() -> anyhow::Result<()> {
    let home = Home::new()?;
    let mut brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let (_, page) = api.get("/api/v1/openapi.json").await?;
    for (path, methods) in page["paths"].as_object().context("paths")? {
        let concrete = path.replace("{id}", "nothing").replace("{name}", "nothing");
        for method in keys(methods).into_iter().filter(|m| ["get", "post"].contains(m)) {
            if path == "/api/v1/events" {
                continue; // never ends; it has its own test
            }
            let (status, body) = match method {
                "get" => api.get(&concrete).await?,
                _ => api.post(&concrete, &json!({})).await?,
            };
            assert!(status != 405 && body["error"]["code"] != "not_found", "{method} {path}: {status} {body}");
            let described = keys(&methods[method]["responses"]);
            assert!(
                described.contains(status.to_string().as_str()),
                "{method} {path} answered {status}, described: {described:?}"
            );
        }
    }
    for (path, code) in [
        ("/api/v1/tasks/task_nothing", "task_not_found"),
        ("/api/v1/sessions/nothing", "session_not_found"),
        ("/api/v1/nothing", "not_found"),
    ] {
        let (status, body) = api.get(path).await?;
        assert_eq!((status, &body["error"]["code"]), (404, &json!(code)), "{body}");
    }
    for verb in ["cancel", "retry"] {
        let (status, _) = api.post(&format!("/api/v1/tasks/task_nothing/{verb}"), &json!({})).await?;
        assert_eq!(status, 404);
    }
    // What never happened is counted too.
    let (_, metrics) = api.get("/metrics").await?;
    texts(
        &metrics,
        &[
            "vance_actor_restarts_total{actor=\\\"scheduler\\\"} 0",
            "vance_actor_panics_total{actor=\\\"scheduler\\\"} 0",
        ],
    );
    assert_eq!(brain.process.stop().await?, 0);
    Ok(())
}

#[tokio::test]
async fn another_owners_default_session_is_forbidden_before_its_owner_comes() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let (status, body) = api.submit_raw("session: default.bob\ntasks:\n- id: a\n  steps: [{call: now}]\n", &[]).await?;
    assert_eq!((status, &body["error"]["code"]), (403, &json!("forbidden")), "{body}");
    let mut refused =
        Process::start("vancetope", &home, &["--daemon", "--brain", &brain.url, "--session", "default.bob"])?;
    until("the Foot says so", || async { Ok(refused.log().contains("belongs to somebody else").then_some(())) })
        .await?;
    refused.kill9().await?;
    let (_, sessions) = api.get("/api/v1/sessions").await?;
    assert_eq!(sessions["sessions"], json!([]));
    Ok(())
}

#[tokio::test]
async fn mistakes_in_the_brains_files_are_told_all_at_once_with_their_lines() -> anyhow::Result<()> {
    let home = Home::new()?;
    home.write("brain/brain.yaml", "listn: x\ndefaults: {grace: soon}\nstore: mongodb://u:secret@h/d\n")?;
    home.write("brain/tools.yaml", "tools:\n- name: a\n  location: moon\n- name: a b\n  location: server\n")?;
    home.write("brain/packs/bad.json", "{\"name\": \"bad\",\n\"type\": \"mcp_server\",\n\"parameters\": {\"transport\": \"stdio\",\n\"command\": \"npx -y x\"}}")?;
    home.write("brain/engines/e.yaml", "engine:\n  id: e\n  tools:\n    serve: [now]\n")?;
    let lines = [
        "brain.yaml:1: ",
        "brain.yaml:2: ",
        "brain.yaml:3: ",
        "tools.yaml:3: ",
        "tools.yaml:4: ",
        "bad.json:4: ",
        "e.yaml:4: ",
    ];
    let check = run("vance-brain", &home, &["check"]).await?;
    let told = json!(check.stdout);
    assert_eq!(check.code, 2, "{told}");
    texts(&told, &lines);
    assert!(!check.stdout.contains("secret"), "{told}");
    let check = run("vance-brain", &home, &["check", "--json"]).await?;
    let told: Value = serde_json::from_str(&check.stdout)?;
    assert_eq!(
        (check.code, &told["ok"], told["problems"].as_array().map(Vec::len)),
        (2, &json!(false), Some(7)),
        "{told}"
    );
    has(&told["problems"][0], &["file", "line", "message"]);
    // Every flag has its variable.
    let mut check = Process::start_with("vance-brain", &home, &["check"], &[("VANCE_BRAIN_JSON", "1")])?;
    check.line("{\"ok\":false").await?;
    let serve = run("vance-brain", &home, &["serve", "--listen", "127.0.0.1:0"]).await?;
    assert_eq!(serve.code, 2, "{}", serve.stderr);
    texts(&json!(serve.stderr), &lines);
    // What the settings do not depend on: the Brain serves, without the bad pack and engine, and says so.
    home.write("brain/brain.yaml", "store: 'sqlite:'\n")?;
    home.write("brain/tools.yaml", "- {name: alias, location: server, mcp_server: toy, tool: add}\n")?;
    vance_tests::toy::Toy::new(&home)?.for_brain(&home, "toy", &[])?;
    let brain = Brain::start(&home).await?;
    texts(&json!(brain.process.log()), &["bad.json:4: ", "e.yaml:4: "]);
    Api::new(&home, &brain.url)?.until_any_of_pack(&brain, "toy").await
}

trait UntilPack {
    async fn until_any_of_pack(&self, brain: &Brain, pack: &str) -> anyhow::Result<()>;
}

impl UntilPack for Api {
    async fn until_any_of_pack(&self, brain: &Brain, pack: &str) -> anyhow::Result<()> {
        self.submit("tasks:\n- id: a\n  steps: [{call: now}]\n").await?;
        let found = until("the good pack", || async {
            let (_, body) = self.get(&format!("/api/v1/sessions/{SESSION}/tools")).await?;
            let tools = body["tools"].as_array().cloned().unwrap_or_default();
            let prefix = format!("{pack}__");
            Ok(tools
                .iter()
                .any(|t| t["available"] == true && t["name"].as_str().is_some_and(|n| n.starts_with(&prefix)))
                .then_some(()))
        });
        found.await.with_context(|| brain.process.log())
    }
}

#[tokio::test]
async fn the_command_lines_exit_codes_say_how_a_tree_ended() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    home.write_project("good.yaml", "tasks:\n- id: a\n  steps: [{call: list_local_files}]\n- id: s\n  client: other\n  offline_strategy: skip\n  steps: [{call: list_local_files}]\n")?;
    home.write_project(
        "bad.yaml",
        "tasks:\n- id: a\n  stps: []\n- id: b\n  steps: [{cal: now}]\n- id: b\n  goal: x\n  goal: y\n",
    )?;
    home.write_project("fails.yaml", "tasks:\n- id: a\n  steps: [{call: read_local_file, with: {path: nowhere}}]\n- id: u\n  steps: [{call: web_serch}]\n")?;
    home.write_project("waits.yaml", "tasks:\n- id: a\n  client: other\n  steps: [{call: list_local_files}]\n")?;
    let vancetope = |args: Vec<&'static str>| {
        let (home, url) = (&home, brain.url.clone());
        async move {
            let mut all = args;
            all.extend(["--brain", url.as_str()]);
            run("vancetope", home, &all).await
        }
    };
    let good = vancetope(vec!["run", "good.yaml"]).await?;
    assert_eq!(good.code, 0, "{}{}", good.stdout, good.stderr);
    assert!(good.stdout.contains("1 completed, 1 skipped"), "{}", good.stdout);
    let bad = vancetope(vec!["run", "bad.yaml"]).await?;
    assert_eq!(bad.code, 2);
    texts(&json!(bad.stderr), &["bad.yaml:3: ", "bad.yaml:5: ", "bad.yaml:6: ", "bad.yaml:8: "]);
    let bad = vancetope(vec!["run", "bad.yaml", "--json"]).await?;
    let told: Value = serde_json::from_str(&bad.stdout)?;
    has(&told["error"], &["code", "message", "problems"]);
    let fails = vancetope(vec!["run", "fails.yaml"]).await?;
    assert_eq!(fails.code, 1);
    texts(&json!(fails.stdout), &["unknown tool: web_serch", "web_search", "2 failed"]);
    let started = tokio::time::Instant::now();
    let waits = vancetope(vec!["run", "waits.yaml", "--no-wait"]).await?;
    assert_eq!(waits.code, 3, "{}{}", waits.stdout, waits.stderr);
    assert!(waits.stdout.contains("Waiting for Client for Tool: list_local_files"), "{}", waits.stdout);
    assert!(started.elapsed().as_secs() < 9, "it looks again when its Foot is ready, not at the next round");
    for (args, code, part) in [
        (vec!["run", "nowhere.yaml", "--json"], 2, "\"code\":\"file\""),
        (vec!["tasks", "show", "task_x", "--json"], 1, "\"code\":\"task_not_found\""),
        (
            vec!["tasks", "--state", "blocked", "--json"],
            0,
            "\"blocked_reason\":\"Waiting for Client for Tool: list_local_files\"",
        ),
        (vec!["sessions", "--json"], 0, "\"session_id\":\"default.local\""),
        (vec!["sessions", "tools", SESSION, "--json"], 0, "\"unavailable_reason\""),
        (vec!["tools", "call", "nothing", "--via-brain", "--json"], 1, "unknown tool: nothing"),
        (vec!["tools", "list", "--json"], 0, "{\"tools\":[{\"name\":"),
        (vec!["tasks", "--nothing", "--json"], 2, "{\"error\":{\"code\":\"usage\""),
    ] {
        let ended = vancetope(args.clone()).await?;
        assert!(
            ended.code == code && ended.stdout.contains(part),
            "{args:?}: {} {} {}",
            ended.code,
            ended.stdout,
            ended.stderr
        );
    }
    Ok(())
}

/// A search provider: SearXNG's JSON below `/search`, Brave's below `/res/v1/web/search`. Gives its address, and what it was asked.
async fn provider() -> anyhow::Result<(String, tokio::sync::mpsc::Receiver<String>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    let (asked_in, asked) = tokio::sync::mpsc::channel(16);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.windows(4).any(|w| w == b"\r\n\r\n") {
                match socket.read_buf(&mut request).await {
                    Ok(1..) => {}
                    Ok(0) | Err(_) => break,
                }
            }
            let request = String::from_utf8_lossy(&request).into_owned();
            let body = match request.starts_with("GET /res/v1/web/search?") {
                true => json!({"web": {"results": [{"title": "B", "url": "https://b.example/", "description": "<b>two</b>"}]}}),
                false => json!({"results": [{"title": "S", "url": "https://s.example/", "content": "one"}]}),
            }
            .to_string();
            let head = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
                body.len()
            );
            if socket.write_all(format!("{head}{body}").as_bytes()).await.is_err()
                || asked_in.send(request).await.is_err()
            {
                return;
            }
        }
    });
    Ok((url, asked))
}

#[tokio::test]
async fn web_search_speaks_both_providers_through_a_running_brain() -> anyhow::Result<()> {
    let (url, mut asked) = provider().await?;
    for (yaml, path, title, snippet) in [
        (
            format!("web_search: {{kind: searxng, base_url: '{url}'}}\n"),
            "GET /search?q=rust+actors&format=json",
            "S",
            "one",
        ),
        (
            format!("web_search: {{kind: brave, base_url: '{url}', api_key: '${{env:SEARCH_KEY}}'}}\n"),
            "GET /res/v1/web/search?q=rust+actors",
            "B",
            "two",
        ),
    ] {
        let home = Home::new()?;
        home.write("brain/brain.yaml", &yaml)?;
        let mut process = Process::start_with(
            "vance-brain",
            &home,
            &["serve", "--listen", "127.0.0.1:0"],
            &[("SEARCH_KEY", "key-of-mine")],
        )?;
        let brain = process.line("brain ready ").await?;
        let api = Api::new(&home, &brain)?;
        let (_, body) = api.call("web_search", &json!({"arguments": {"query": "rust actors"}})).await?;
        let found = &body["result"]["structured"]["results"][0];
        assert_eq!((&found["title"], &found["snippet"]), (&json!(title), &json!(snippet)), "{body}");
        let request = timeout(PATIENCE, asked.recv()).await?.context("asked")?;
        assert!(request.replace("%20", "+").starts_with(path), "{request}");
        assert_eq!(request.contains("key-of-mine"), title == "B", "{request}");
        assert!(!process.log().contains("key-of-mine"));
    }
    Ok(())
}

/// Ids of the events that come until one of a kind.
async fn events(brain: &Brain, api: &Api, last: Option<&str>, kind: &str) -> anyhow::Result<Vec<String>> {
    let mut socket = TcpStream::connect(brain.addr()).await?;
    let last = last.map(|id| format!("last-event-id: {id}\r\n")).unwrap_or_default();
    let request = format!(
        "GET /api/v1/events HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n{last}\r\n",
        brain.addr(),
        api.token()
    );
    socket.write_all(request.as_bytes()).await?;
    let mut heard = Vec::new();
    while !String::from_utf8_lossy(&heard).contains(&format!("event: {kind}\n")) {
        anyhow::ensure!(timeout(PATIENCE, socket.read_buf(&mut heard)).await?? > 0, "the stream ended");
    }
    let text = String::from_utf8_lossy(&heard).into_owned();
    let with_data = text.split("\n\n").filter(|event| event.contains("event: "));
    Ok(with_data.filter_map(|event| event.lines().find_map(|l| l.strip_prefix("id: "))).map(str::to_owned).collect())
}

#[tokio::test]
async fn events_go_on_where_the_last_listener_stopped() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let tree = api.submit("tasks:\n- id: a\n  steps: [{call: now}]\n").await?;
    tree.until("a", "completed").await?;
    let all = events(&brain, &api, Some("0"), "task_completed").await?;
    assert!(all.len() >= 4, "{all:?}");
    let rest = events(&brain, &api, all.get(1).map(String::as_str), "task_completed").await?;
    assert_eq!(rest, all.get(2..).unwrap_or_default());
    Ok(())
}

#[tokio::test]
async fn without_a_client_each_location_and_strategy_has_its_answer() -> anyhow::Result<()> {
    let home = Home::new()?;
    home.write(
        "brain/tools.yaml",
        "- {name: on_client, location: client, mcp_server: obsidian-mcp}\n\
         - {name: skips, location: client, offline_strategy: skip}\n\
         - {name: queues, location: client, offline_strategy: queue}\n\
         - {name: falls, location: client, offline_strategy: fallback, fallback_tool: now}\n\
         - {name: nowhere, location: server, mcp_server: jira-mcp}\n",
    )?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    for (tool, more, state, reason) in [
        ("on_client", "", "blocked", "Waiting for Client for Tool: on_client"),
        ("read_local_file", "", "blocked", "Waiting for Client for Tool: read_local_file"),
        ("skips", "", "skipped", "skips"),
        ("queues", "", "queued", "Waiting for Client for Tool: queues"),
        ("on_client", "offline_strategy: queue", "queued", "Waiting for Client for Tool: on_client"),
        ("falls", "", "completed", ""),
        ("nowhere", "", "failed", "jira-mcp.json"),
        ("web_serch", "", "failed", "unknown tool: web_serch"),
        ("now", "execution_target: any", "completed", ""),
        ("now", "execution_target: client", "failed", "execution_target is client, but tool now has location server"),
        (
            "on_client",
            "execution_target: server",
            "failed",
            "execution_target is server, but tool on_client has location client",
        ),
    ] {
        let more = if more.is_empty() { "goal: x" } else { more };
        let tree = api.submit(&format!("tasks:\n- id: a\n  {more}\n  steps: [{{call: {tool}}}]\n")).await?;
        let task = tree.until("a", state).await.with_context(|| format!("{tool} {more}"))?;
        let said = [&task["blocked_reason"], &task["skip_reason"], &task["error"]["message"]];
        let said = said.iter().filter_map(|v| v.as_str()).collect::<Vec<_>>().join("");
        assert!(said.contains(reason) && said.is_empty() == reason.is_empty(), "{tool} {more}: {said}");
    }
    Ok(())
}

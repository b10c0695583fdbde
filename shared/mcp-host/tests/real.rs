//! The real servers from npm and PyPI, both protocol eras, both transports.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/host.rs"]
mod host;

use std::path::Path;
use std::time::Duration;

use host::{Host, code_of, installed, json_of, message, run, stdio, text_of};
use serde_json::json;
use vance_mcp_host::guard::{self, Spawn};
use vance_mcp_host::{Elicited, People};
use vance_shared::launch::{LaunchPlan, Transport};
use vance_shared::tool::Replay;

const EVERYTHING: &str = "npm/node_modules/@modelcontextprotocol/server-everything/dist/index.js";
const FILESYSTEM: &str = "npm/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js";

fn start(transport: Transport) -> Host {
    Host::start(host::plan(transport), tempfile::tempdir().unwrap())
}

async fn shut(host: Host) {
    host.supervisor.shutdown().await;
}

#[test]
fn server_everything_over_stdio() {
    run(async {
        let host = start(stdio(&["node", &installed(EVERYTHING), "stdio"]));
        host.up().await;
        assert!(host.handle.tools().len() >= 13, "{:?}", host.tool_names());
        assert_eq!(host.handle.protocol().as_deref(), Some("2025-11-25"));
        assert_eq!(text_of(&host.call("echo", message("hello")).await), "Echo: hello");
        let sum = text_of(&host.call("get-sum", json!({"a": 2, "b": 3})).await);
        assert!(sum.contains('5'), "{sum}");
        let sum = text_of(&host.call("get-sum", json!({"a": "2", "b": "30"})).await);
        assert!(sum.contains("32"), "texts are put right where the schema wants numbers: {sum}");
        let resources = text_of(&host.call("list_resources", json!({})).await);
        let uri = resources.lines().next().unwrap().split(": ").next().unwrap().to_owned();
        assert_eq!(host.call("read_resource", json!({"uri": uri})).await.word(), "done", "{resources}");
        assert_eq!(code_of(&host.call("read_resource", json!({})).await), "invalid_argument");
        assert!(text_of(&host.call("list_prompts", json!({})).await).contains("simple-prompt"));
        let prompt = text_of(&host.call("get_prompt", json!({"name": "simple-prompt"})).await);
        assert!(prompt.starts_with("user: "), "{prompt}");
        let reads =
            host.handle.tools().iter().find(|tool| tool.name.as_str() == "fake__read_resource").cloned().unwrap();
        assert!(reads.labels.contains(&"read-only".to_owned()) && reads.replay == Replay::Safe);
        let bad = host.call("echo", json!({})).await;
        assert_eq!(bad.word(), "failed", "{bad:?}");
        shut(host).await;
    });
}

#[test]
fn server_everything_asks_a_person_and_its_model_is_nobody() {
    run(async {
        let asked = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let ear = std::sync::Arc::clone(&asked);
        let elicit: vance_mcp_host::Elicit = std::sync::Arc::new(move |question| {
            ear.lock().unwrap().push(question.message.clone());
            let name = serde_json::Map::from_iter([("name".to_owned(), json!("Ada"))]);
            Box::pin(std::future::ready(Elicited::Accepted(name)))
        });
        let people = People { elicit: Some(elicit), ..People::default() };
        let plan = host::plan(stdio(&["node", &installed(EVERYTHING), "stdio"]));
        let host = Host::start_with(plan, tempfile::tempdir().unwrap(), people);
        host.up().await;
        host.until("the tool that asks", |host| host.tool_names().iter().any(|name| name.contains("elicitation")))
            .await;
        let answer = text_of(&host.call("trigger-elicitation-request", json!({})).await);
        assert!(answer.contains("Ada"), "{answer}");
        assert_eq!(asked.lock().unwrap().len(), 1);
        assert!(!host.tool_names().iter().any(|name| name.contains("sampling")), "it knows that nobody samples");
        shut(host).await;
    });
}

#[test]
fn server_everything_reports_progress_and_hears_a_cancel() {
    run(async {
        let host = start(stdio(&["node", &installed(EVERYTHING), "stdio"]));
        host.up().await;
        let heard = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let ear = std::sync::Arc::clone(&heard);
        let mut request = host.request("trigger-long-running-operation", json!({"duration": 3, "steps": 6}));
        request.timeout = Duration::from_secs(2);
        request.progress = Some(std::sync::Arc::new(move |_| {
            ear.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }));
        let outcome = host.handle.call(request).await;
        assert_eq!(outcome.word(), "done", "progress kept it alive: {outcome:?}");
        assert!(heard.load(std::sync::atomic::Ordering::Relaxed) >= 5);
        let request = host.request("trigger-long-running-operation", json!({"duration": 600, "steps": 1}));
        let cancel = request.cancel.clone();
        let (outcome, ()) = tokio::join!(host.handle.call(request), async move {
            tokio::time::sleep(Duration::from_millis(300)).await;
            cancel.cancel();
        });
        assert_eq!(outcome.word(), "cancelled");
        shut(host).await;
    });
}

#[test]
fn server_everything_over_streamable_http() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut env = vance_mcp_host::env::ambient();
        env.insert("PORT".into(), port.to_string().into());
        let mut server = guard::spawn(Spawn {
            argv: vec!["node".into(), installed(EVERYTHING), "streamableHttp".into()],
            cwd: dir.path().to_owned(),
            env,
            stdin: false,
            guard_program: env!("CARGO_BIN_EXE_mcp-host-probe").into(),
            sandbox: None,
        })
        .await
        .unwrap();
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let host = start(Transport::http(format!("http://127.0.0.1:{port}/mcp")));
        host.up().await;
        assert!(host.handle.tools().len() >= 13, "{:?}", host.tool_names());
        assert_eq!(text_of(&host.call("echo", message("over http")).await), "Echo: over http");
        let heard = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let ear = std::sync::Arc::clone(&heard);
        let mut request = host.request("trigger-long-running-operation", json!({"duration": 2, "steps": 4}));
        request.progress = Some(std::sync::Arc::new(move |_| {
            ear.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }));
        assert_eq!(host.handle.call(request).await.word(), "done");
        assert!(heard.load(std::sync::atomic::Ordering::Relaxed) >= 3);
        shut(host).await;
        server.kill(Duration::ZERO).await.unwrap();
    });
}

#[test]
fn server_filesystem_is_confined_to_the_projects_root() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().join("the project");
        std::fs::create_dir(&project).unwrap();
        std::fs::write(project.join("a.txt"), "inside").unwrap();
        let host = Host::start(host::plan(stdio(&["node", &installed(FILESYSTEM)])), dir);
        host.up().await;
        let file = |path: &Path| json!({"path": path.to_str().unwrap()});
        // It asks for the roots after the handshake; until it has them it refuses.
        let mut outcome = host.call("read_text_file", file(&project.join("a.txt"))).await;
        for _ in 0..100 {
            if outcome.word() == "done" {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
            outcome = host.call("read_text_file", file(&project.join("a.txt"))).await;
        }
        assert_eq!(text_of(&outcome), "inside");
        assert_eq!(host.call("read_text_file", file(Path::new("/etc/passwd"))).await.word(), "failed");
        shut(host).await;
    });
}

/// The plan's transport with the program of the virtual environment.
fn python(server: &str, args: &[&str]) -> LaunchPlan {
    let program = installed(&format!("venv/bin/{server}"));
    host::plan(stdio(&[&[program.as_str()][..], args].concat()))
}

#[test]
fn mcp_server_time_speaks_the_newer_protocol() {
    run(async {
        let host = Host::start(python("mcp-server-time", &["--local-timezone", "UTC"]), tempfile::tempdir().unwrap());
        host.up().await;
        assert_eq!(host.handle.protocol().as_deref(), Some("2026-07-28"));
        assert_eq!(host.tool_names(), ["fake__get_current_time", "fake__convert_time"]);
        let time = json_of(&host.call("get_current_time", json!({"timezone": "Europe/Berlin"})).await);
        assert_eq!(time["timezone"], "Europe/Berlin");
        shut(host).await;
    });
}

#[test]
fn mcp_server_git_reads_a_repository() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let repository = dir.path().join("the project");
        std::fs::create_dir(&repository).unwrap();
        let git = Spawn {
            argv: ["git", "init", "-q", "-b", "trunk", "."].map(str::to_owned).to_vec(),
            cwd: repository.clone(),
            env: vance_mcp_host::env::ambient(),
            stdin: false,
            guard_program: env!("CARGO_BIN_EXE_mcp-host-probe").into(),
            sandbox: None,
        };
        guard::spawn(git).await.unwrap().wait().await.unwrap();
        let host = Host::start(python("mcp-server-git", &["--repository", repository.to_str().unwrap()]), dir);
        host.up().await;
        assert_eq!(host.handle.protocol().as_deref(), Some("2026-07-28"));
        assert_eq!(host.handle.tools().len(), 12, "{:?}", host.tool_names());
        let status = text_of(&host.call("git_status", json!({"repo_path": repository})).await);
        assert!(status.contains("trunk"), "{status}");
        shut(host).await;
    });
}

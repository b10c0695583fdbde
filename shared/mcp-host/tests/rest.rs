//! Packs of HTTP APIs against a server that redirects, limits, fails, floods and never ends.
#![allow(missing_docs, clippy::unwrap_used, clippy::disallowed_methods)]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use vance_mcp_host::{CallRequest, HostEvent, HostState};
use vance_shared::call::Outcome;
use vance_shared::ids::CallId;
use vance_shared::json::Raw;
use vance_shared::launch::{LaunchPlan, Origin};
use vance_shared::names::ToolName;
use vance_shared::pack::{PackBody, parse_pack};
use vance_shared::trace::TraceContext;

#[path = "support/host.rs"]
mod host;
use host::{Host, run};

struct Api {
    child: Child,
    port: u16,
    ledger: PathBuf,
}

impl Api {
    fn start(dir: &Path) -> Self {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/fake_rest.py");
        let ledger = dir.join("requests");
        let mut child = Command::new("python3").arg(script).arg(&ledger).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self { child, port: line.trim().parse().unwrap(), ledger }
    }

    fn requests(&self, path: &str) -> Vec<String> {
        let all = std::fs::read_to_string(&self.ledger).unwrap_or_default();
        all.lines().filter(|line| line.contains(path)).map(str::to_owned).collect()
    }

    fn stop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Api {
    fn drop(&mut self) {
        self.stop();
    }
}

fn pack(parameters: &Value) -> LaunchPlan {
    let text = json!({"name": "p", "type": "rest_api", "parameters": parameters}).to_string();
    let parsed = parse_pack("p.json", &text, Origin::Global);
    assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
    match parsed.pack.unwrap().body {
        PackBody::Launch(plan) => plan,
        PackBody::Nothing => panic!("nothing to launch"),
    }
}

fn start(api: &Api, more: Value, dir: tempfile::TempDir) -> Host {
    let mut parameters = json!({
        "specUrl": format!("http://127.0.0.1:{}/moved.json", api.port), "timeoutSeconds": 2,
        "auth": {"schemes": {"oauth": {"clientId": "c", "clientSecret": "s"}}},
    });
    parameters.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Host::start(pack(&parameters), dir)
}

async fn call_with(host: &Host, tool: &str, arguments: Value, cancel: CancellationToken) -> Outcome {
    let request = CallRequest {
        call_id: CallId::generate(),
        tool: ToolName::parse(&format!("p__{tool}")).unwrap(),
        arguments: Raw::from(arguments),
        timeout: Duration::from_secs(60),
        cap: Duration::from_secs(60),
        trace: TraceContext::root(),
        cancel,
        progress: None,
        person: vance_mcp_host::Person::default(),
    };
    host.handle.call(request).await
}

async fn call(host: &Host, tool: &str, arguments: Value) -> Outcome {
    call_with(host, tool, arguments, CancellationToken::new()).await
}

fn body(outcome: &Outcome) -> Value {
    match outcome {
        Outcome::Done(result) | Outcome::Failed { result: Some(result), .. } => {
            result.structured.as_ref().unwrap().value()["body"].clone()
        }
        other => panic!("{other:?}"),
    }
}

fn code(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Failed { error, .. } => &error.code,
        Outcome::Done(_) => "done",
        Outcome::Cancelled { .. } => "cancelled",
        Outcome::Unknown { .. } => "unknown",
    }
}

#[test]
fn an_api_that_misbehaves_is_answered_for_within_limits() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let api = Api::start(dir.path());
        let host = start(&api, json!({"maxResponseBytes": 1 << 20}), dir);
        host.up().await;
        assert_eq!(api.requests("/moved.json").len(), 1);
        for (tool, want, requests) in [
            ("plain", "done", 1),
            ("redirect", "done", 1),
            ("away", "redirect_refused", 1),
            ("round", "redirect_refused", 6),
            ("limited", "done", 2),
            ("patience", "rate_limited", 1),
            ("unready", "done", 2),
            // It may have acted, and cannot be asked again.
            ("once", "http_status", 1),
            ("broken", "unknown", 1),
            ("keyed", "done", 2),
            ("nothing", "done", 1),
            ("bomb", "response_too_large", 1),
            ("slow", "timeout", 3),
            ("endless", "timeout", 3),
            ("page", "done", 1),
            ("big", "response_too_large", 1),
            // It was done, whatever it said.
            ("flood", "done", 1),
            // Three times with one key, and not as something that a new call with a new key could repeat.
            ("silent", "unknown", 3),
            ("image", "done", 1),
        ] {
            let outcome = call(&host, tool, json!({})).await;
            assert_eq!(code(&outcome), want, "{tool}: {outcome:?}");
            let made = api.requests(&format!("/api/{tool} ")).len();
            assert_eq!(made, requests, "{tool}");
        }
        let missing = call(&host, "missing", json!({"name": "x y"})).await;
        assert_eq!((code(&missing), &body(&missing)), ("http_status", &json!({"error": "no such thing"})));
        assert_eq!(api.requests("/api/missing/x%20y").len(), 1);
        let wrong = call(&host, "missing", json!({"nam": "x"})).await;
        assert_eq!(code(&wrong), "invalid_argument");
        let keys = api.requests("/api/keyed");
        assert!(keys[0].contains("call_") && keys[0] == keys[1], "one call, one key: {keys:?}");
        assert!(!api.requests("/api/once")[0].contains("call_"), "nobody says that it takes a key");
        host.end().await;
    });
}

#[test]
fn a_large_answer_is_cut_to_what_a_model_reads_and_stays_json() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let api = Api::start(dir.path());
        let host = start(&api, json!({"timeoutSeconds": 60}), dir);
        host.up().await;
        let outcome = call(&host, "big", json!({})).await;
        let Outcome::Done(result) = &outcome else { panic!("{outcome:?}") };
        assert!(result.bytes() < 200 * 1024, "{}", result.bytes());
        assert!(body(&outcome).as_array().is_some_and(|items| items.len() > 5));
        host.end().await;
    });
}

#[test]
fn a_cancel_breaks_the_request_off() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let api = Api::start(dir.path());
        let host = start(&api, json!({"timeoutSeconds": 60}), dir);
        host.up().await;
        let cancel = CancellationToken::new();
        let (outcome, ()) = tokio::join!(call_with(&host, "endless", json!({}), cancel.clone()), async {
            host.until("the request", |_| api.requests("/api/endless").len() == 1).await;
            cancel.cancel();
        });
        assert_eq!(code(&outcome), "cancelled");
        host.until("the server to notice", |_| !api.requests("broken off").is_empty()).await;
        host.end().await;
    });
}

#[test]
fn a_token_is_asked_for_once_and_again_when_it_is_refused() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let api = Api::start(dir.path());
        let host = start(&api, json!({}), dir);
        host.up().await;
        // The first token is refused by the server, the second is good; three calls at once share both.
        let three = futures_util::future::join_all((0..3).map(|_| call(&host, "secure", json!({})))).await;
        for outcome in &three {
            assert_eq!(code(outcome), "done", "{outcome:?}");
        }
        assert!((2..=3).contains(&api.requests("/token").len()), "{:?}", api.requests("/token"));
        host.end().await;
    });
}

#[test]
fn without_its_network_a_pack_uses_the_copy_of_the_last_time_and_says_so() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let mut api = Api::start(dir.path());
        let spec = format!("http://127.0.0.1:{}/spec.json", api.port);
        let host = start(&api, json!({"specUrl": spec}), dir);
        host.up().await;
        api.stop();
        let Host { supervisor, dir, .. } = host;
        supervisor.shutdown().await;
        let host = start(&api, json!({"specUrl": spec}), dir);
        host.up().await;
        let said = host.events().into_iter().any(|event| match event {
            HostEvent::Up { warnings, .. } => warnings.iter().any(|w| w.contains("the copy of the last time is used")),
            _ => false,
        });
        assert!(said, "{:?}", host.events());
        assert_eq!(code(&call(&host, "plain", json!({})).await), "connect");
        host.end().await;
    });
}

#[test]
fn what_is_no_document_does_not_take_the_place_of_the_copy_of_the_last_time() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let api = Api::start(dir.path());
        let mut host = start(&api, json!({}), dir);
        host.up().await;
        for what in ["page", "empty", "page"] {
            let mut stream = std::net::TcpStream::connect(("127.0.0.1", api.port)).unwrap();
            std::io::Write::write_all(&mut stream, format!("GET /from-now-on/{what} HTTP/1.0\r\n\r\n").as_bytes())
                .unwrap();
            host.until("the change", |_| !api.requests(&format!("/from-now-on/{what} ")).is_empty()).await;
            let Host { supervisor, dir, .. } = host;
            supervisor.shutdown().await;
            host = start(&api, json!({}), dir);
            host.up().await;
            let said = host.events().into_iter().any(|event| match event {
                HostEvent::Up { warnings, .. } => {
                    warnings.iter().any(|w| w.contains("the copy of the last time is used"))
                }
                _ => false,
            });
            assert!(said, "{what}: {:?}", host.events());
            assert_eq!(code(&call(&host, "plain", json!({})).await), "done", "{what}");
        }
        host.end().await;
    });
}

#[test]
fn a_document_with_another_hash_than_the_pack_says_is_refused() {
    run(async {
        let dir = tempfile::tempdir().unwrap();
        let api = Api::start(dir.path());
        let host = start(&api, json!({"specSha256": "0".repeat(64)}), dir);
        host.until("a failure", |host| matches!(host.handle.state(), HostState::Failed { .. })).await;
        let HostState::Failed { reason } = host.handle.state() else { unreachable!() };
        assert!(reason.contains("specSha256"), "{reason}");
        host.end().await;
    });
}

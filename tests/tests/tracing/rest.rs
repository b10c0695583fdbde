//! What the collector has of a call of an HTTP API: where it went and how often, and nothing of what was said.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::{Value, json};
use vance_tests::api::Api;
use vance_tests::home::Home;
use vance_tests::process::Process;

use super::collector::Collector;

/// What a pack sends although it stands in no file: by name of the variable.
const SECRETS: [(&str, &str); 3] =
    [("T_CLIENT", "s3cr3t-client"), ("T_HEADER", "s3cr3t-header"), ("T_QUERY", "s3cr3t-query")];
/// The token that the server gives, what the call says, and what the server says.
const SAID: [&str; 4] = ["t0k3n-of-the-server", "kumquat-account", "kumquat-amount", "kumquat-answer"];

#[derive(Default)]
struct Served {
    calls: AtomicUsize,
    /// Keys and credentials of the calls.
    heads: Mutex<Vec<(String, String)>>,
}

/// Refuses every other call for the moment.
async fn pay(State(served): State<Arc<Served>>, headers: HeaderMap) -> (StatusCode, axum::Json<Value>) {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_owned();
    let head = (text("idempotency-key"), text("authorization"));
    served.heads.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(head);
    match served.calls.fetch_add(1, Ordering::SeqCst) % 2 {
        0 => (StatusCode::SERVICE_UNAVAILABLE, axum::Json(json!({}))),
        _ => (StatusCode::OK, axum::Json(json!({"said": SAID[3]}))),
    }
}

async fn server(served: &Arc<Served>) -> anyhow::Result<String> {
    let token =
        post(|| async { axum::Json(json!({"access_token": SAID[0], "token_type": "bearer", "expires_in": 3600})) });
    let app = Router::new().route("/token", token).route("/v1/pay/{account}", post(pay)).with_state(Arc::clone(served));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, app).await });
    Ok(url)
}

fn pack(name: &str, url: &str) -> String {
    let document = json!({
        "openapi": "3.1.0", "info": {"title": "t", "version": "1"},
        "paths": {"/pay/{account}": {"post": {
            "operationId": "pay",
            "parameters": [{"name": "account", "in": "path", "required": true, "schema": {"type": "string"}}],
            "requestBody": {"content": {"application/json": {"schema": {"type": "object"}}}},
        }}},
    });
    json!({"name": name, "type": "rest_api", "parameters": {
        "specInline": document, "baseUrl": format!("{url}/v1?key=${{env:T_QUERY}}"), "idempotencyKey": ["POST *"],
        "headers": {"X-Two": "${env:T_HEADER}"},
        "auth": {"type": "oauth2", "clientId": "me", "clientSecret": "${env:T_CLIENT}", "tokenUrl": format!("{url}/token")},
    }})
    .to_string()
}

#[tokio::test]
async fn a_call_of_an_api_is_in_the_trace_of_its_task_with_where_it_went_and_no_secret() -> anyhow::Result<()> {
    let (home, collector) = (Home::new()?, Collector::start().await?);
    let served = Arc::<Served>::default();
    let url = server(&served).await?;
    home.write("foot-tools/mine.json", &pack("mine", &url))?;
    home.write("brain/packs/its.json", &pack("its", &url))?;
    let env: Vec<(&str, &str)> = collector.env().into_iter().chain(SECRETS).collect();
    let mut brain = Process::start_with("vance-brain", &home, &["serve", "--listen", "127.0.0.1:0"], &env)?;
    let brain_url = brain.line("brain ready ").await?;
    let api = Api::new(&home, &brain_url)?;
    let mut foot = Process::start_with("vancetope", &home, &["--daemon", "--brain", &brain_url], &env)?;
    foot.line("foot ready").await?;
    for (pack, service) in [("its", "vance-brain"), ("mine", "vancetope")] {
        let with = json!({"account": SAID[1], "body": {"amount": SAID[2]}});
        let tree =
            api.submit(&format!("tasks: [{{id: a, steps: [{{call: {pack}__pay, with: {with}, as: r}}]}}]\n")).await?;
        let task = tree.until("a", "completed").await?;
        assert_eq!(task["output"]["r"]["structured"]["body"]["said"], SAID[3], "{task}");
        let record = &task["calls"][0];
        let (trace, call_id) =
            (record["trace_id"].as_str().context("trace")?, record["call_id"].as_str().context("call")?);
        let want = [("http.request", 1), ("task.run", 1), ("call", 1), ("tool.run", 1), ("rest.call", 1)];
        let trace = collector.until(trace, &want).await?;
        let run = trace.one("task.run", ("vance.task.id", task["task_id"].as_str().context("task")?))?;
        let [call, tool, rest] =
            ["call", "tool.run", "rest.call"].map(|name| trace.one(name, ("vance.call.id", call_id)));
        let (call, tool, rest) = (call?, tool?, rest?);
        assert_eq!([&call.parent, &tool.parent, &rest.parent], [&run.id, &call.id, &tool.id], "{trace}");
        assert_eq!((rest.service.as_str(), rest.outcome(), rest.failed), (service, "done", false), "{trace}");
        for (field, want) in [
            ("vance.pack", pack),
            ("vance.http.method", "POST"),
            ("vance.http.path", "/pay/{account}"),
            ("vance.http.host", "127.0.0.1"),
            ("vance.http.status", "200"),
            ("vance.call.attempt", "2"),
        ] {
            assert_eq!(rest.field(field), want, "{field}\n{trace}");
        }
        let heads = std::mem::take(&mut *served.heads.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        let key = (call_id.to_owned(), format!("Bearer {}", SAID[0]));
        assert_eq!(heads, [key.clone(), key], "one call, one key");
    }
    // All that is still on its way is sent at the end.
    foot.stop().await?;
    brain.stop().await?;
    assert!(collector.has_seen("/pay/{account}"));
    for word in SECRETS.iter().map(|(_, secret)| *secret).chain(SAID) {
        assert!(!collector.has_seen(word), "{word}");
    }
    Ok(())
}

//! The wire as a foreign client sees it: the document's own frame, bad frames, limits, take-over.
#![allow(missing_docs)]

use std::collections::BTreeSet;

use anyhow::Context as _;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};
use vance_tests::api::Api;
use vance_tests::home::Home;
use vance_tests::process::Brain;
use vance_tests::wait::PATIENCE;

struct Client(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Client {
    async fn connect(brain: &Brain, token: Option<&str>) -> anyhow::Result<Self> {
        let mut request = format!("ws://{}/ws", brain.addr()).into_client_request()?;
        if let Some(token) = token {
            request.headers_mut().insert("authorization", format!("Bearer {token}").parse()?);
        }
        Ok(Self(connect_async(request).await?.0))
    }

    async fn send(&mut self, frame: &Value) -> anyhow::Result<()> {
        Ok(self.0.send(Message::text(frame.to_string())).await?)
    }

    /// The next frame of a type; others are passed over.
    async fn next(&mut self, kind: &str) -> anyhow::Result<Value> {
        loop {
            let message = timeout(PATIENCE, self.0.next()).await.with_context(|| format!("no {kind}"))?;
            match message.with_context(|| format!("closed before {kind}"))?? {
                Message::Text(text) => {
                    let frame: Value = serde_json::from_str(&text)?;
                    if frame["type"] == kind {
                        return Ok(frame);
                    }
                }
                Message::Close(close) => anyhow::bail!("closed before {kind}: {close:?}"),
                _ => {}
            }
        }
    }

    async fn close_code(&mut self) -> anyhow::Result<u16> {
        loop {
            let message = timeout(PATIENCE, self.0.next()).await?.context("ended without a close frame")??;
            if let Message::Close(close) = message {
                return Ok(close.context("no code")?.code.into());
            }
        }
    }
}

fn document_hello() -> Value {
    json!({
        "type": "client_connected", "session_id": "sess_123", "client_type": "desktop",
        "available_tools": [
            {"name": "obsidian_read_note", "type": "mcp", "mcp_server": "obsidian-mcp-tools"},
            {"name": "shell_execute", "type": "native"},
            {"name": "read_local_file", "type": "native"},
            {"name": "git_status", "type": "native"}
        ]
    })
}

#[tokio::test]
async fn the_documents_own_frame_is_served() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let mut client = Client::connect(&brain, Some(api.token())).await?;
    client.send(&document_hello()).await?;
    let welcome = client.next("welcome").await?;
    assert_eq!(welcome["session_id"], "sess_123", "{welcome}");
    let tree = api
        .submit("session: sess_123\ntasks:\n- id: a\n  steps: [{call: obsidian_read_note, with: {n: 1}, as: note}]\n")
        .await?;
    let call = client.next("call").await?;
    assert_eq!((call["tool"].as_str(), &call["arguments"]), (Some("obsidian_read_note"), &json!({"n": 1})));
    assert!(call["traceparent"].as_str().is_some_and(|t| t.starts_with("00-")), "{call}");
    client.send(&json!({"type": "accepted", "call_id": call["call_id"], "attempt": 1})).await?;
    let result = json!({
        "type": "result", "call_id": call["call_id"], "attempt": 1, "future_field": 1,
        "outcome": {"done": {"content": [{"type": "text", "text": "a note"}]}}
    });
    client.send(&result).await?;
    let ack = client.next("result_ack").await?;
    assert_eq!(ack["call_id"], call["call_id"]);
    let done = tree.until("a", "completed").await?;
    assert_eq!(done["output"]["note"]["text"], "a note");
    // The same result once more changes nothing and is acknowledged again.
    client.send(&result).await?;
    client.next("result_ack").await?;
    Ok(())
}

#[tokio::test]
async fn bad_frames_are_answered_and_the_connection_survives() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let mut client = Client::connect(&brain, Some(api.token())).await?;
    client.send(&document_hello()).await?;
    client.next("welcome").await?;
    client.0.send(Message::text("{not json \u{1b}[2J")).await?;
    let error = client.next("error").await?;
    assert_eq!(error["code"], "malformed_frame");
    assert!(!error["message"].as_str().unwrap_or_default().contains('\u{1b}'), "{error}");
    client.send(&json!({"type": "telepathy"})).await?;
    assert_eq!(client.next("error").await?["code"], "unknown_type");
    client.send(&json!({"type": "result", "call_id": 7})).await?;
    assert_eq!(client.next("error").await?["code"], "malformed_frame");
    client.send(&document_hello()).await?;
    assert_eq!(client.next("error").await?["code"], "already_connected");
    client.send(&json!({"type": "ping", "nonce": 1, "pad": "x".repeat(1_200_000)})).await?;
    assert_eq!(client.next("error").await?["code"], "frame_too_large");
    client.0.send(Message::binary(vec![1, 2, 3])).await?;
    assert_eq!(client.next("error").await?["code"], "binary_frame");
    client.send(&json!({"type": "ping", "nonce": 42})).await?;
    assert_eq!(client.next("pong").await?["nonce"], 42);
    Ok(())
}

#[tokio::test]
async fn a_client_that_does_not_begin_with_its_hello_is_refused() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    assert!(Client::connect(&brain, None).await.is_err());
    assert!(Client::connect(&brain, Some("vbt_wrong")).await.is_err());
    let mut client = Client::connect(&brain, Some(api.token())).await?;
    client.send(&json!({"type": "ping"})).await?;
    assert_eq!(client.close_code().await?, 4400);
    let mut client = Client::connect(&brain, Some(api.token())).await?;
    client.send(&json!({"type": "client_connected", "protocol": [99]})).await?;
    assert_eq!(client.close_code().await?, 4406);
    let mut client = Client::connect(&brain, Some(api.token())).await?;
    client.send(&json!({"type": "client_connected", "pad": "x".repeat(70_000)})).await?;
    assert_eq!(client.close_code().await?, 4400);
    Ok(())
}

#[tokio::test]
async fn a_later_connection_of_the_same_client_takes_over_and_forged_results_do_not_count() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let hello = |id: &str| {
        let mut hello = document_hello();
        hello["client_id"] = json!(id);
        hello
    };
    let mut first = Client::connect(&brain, Some(api.token())).await?;
    first.send(&hello("foot_a")).await?;
    let epoch = first.next("welcome").await?["epoch"].as_u64().context("epoch")?;
    let tree = api.submit("session: sess_123\ntasks:\n- id: a\n  steps: [{call: git_status, as: s}]\n").await?;
    let call = first.next("call").await?;
    let mut second = Client::connect(&brain, Some(api.token())).await?;
    let mut resumed = hello("foot_a");
    resumed["inflight"] = json!({"running": [call["call_id"]]});
    second.send(&resumed).await?;
    let welcome = second.next("welcome").await?;
    assert!(welcome["epoch"].as_u64().context("epoch")? > epoch);
    assert_eq!(welcome["inflight"], json!([call["call_id"]]));
    assert_eq!(first.close_code().await?, 4409);
    // Another client of the session claims the result.
    let mut forger = Client::connect(&brain, Some(api.token())).await?;
    forger.send(&hello("foot_b")).await?;
    forger.next("welcome").await?;
    let result = |text: &str| {
        json!({"type": "result", "call_id": call["call_id"], "attempt": 1,
               "outcome": {"done": {"content": [{"type": "text", "text": text}]}}})
    };
    forger.send(&result("forged")).await?;
    assert_eq!(forger.next("error").await?["code"], "not_yours");
    second.send(&result("true")).await?;
    let done = tree.until("a", "completed").await?;
    assert_eq!(done["output"]["s"]["text"], "true", "{done}");
    Ok(())
}

#[tokio::test]
async fn a_call_that_never_arrived_is_sent_again_under_the_same_id() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let mut hello = document_hello();
    hello["client_id"] = json!("foot_a");
    let mut client = Client::connect(&brain, Some(api.token())).await?;
    client.send(&hello).await?;
    client.next("welcome").await?;
    let tree = api.submit("session: sess_123\ntasks:\n- id: a\n  steps: [{call: shell_execute, as: s}]\n").await?;
    let call = client.next("call").await?;
    drop(client);
    tree.until("a", "blocked").await?;
    let mut client = Client::connect(&brain, Some(api.token())).await?;
    client.send(&hello).await?;
    let again = client.next("call").await?;
    assert_eq!((&again["call_id"], &again["attempt"]), (&call["call_id"], &json!(2)));
    // The client's process died while it ran: unknown, and never sent again blindly.
    drop(client);
    tree.until("a", "blocked").await?;
    hello["inflight"] = json!({"interrupted": [call["call_id"]]});
    let mut client = Client::connect(&brain, Some(api.token())).await?;
    client.send(&hello).await?;
    client.next("welcome").await?;
    let reason =
        format!("Outcome unknown for Tool: shell_execute (call {})", call["call_id"].as_str().unwrap_or_default());
    vance_tests::wait::until("unknown", || async {
        Ok((tree.task("a").await?["blocked_reason"] == reason.as_str()).then_some(()))
    })
    .await?;
    let (status, _) = tree.post("a", "resolve", &json!({"as": "retry"})).await?;
    assert_eq!(status, 200);
    let fresh = client.next("call").await?;
    assert_ne!(fresh["call_id"], call["call_id"]);
    Ok(())
}

#[tokio::test]
async fn a_clients_tool_never_replaces_a_server_tool() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let mut client = Client::connect(&brain, Some(api.token())).await?;
    client
        .send(&json!({"type": "client_connected", "available_tools": [{"name": "web_search"}, {"name": "bad name"}, {"name": "fine"}]}))
        .await?;
    let welcome = client.next("welcome").await?;
    let refused: BTreeSet<&str> =
        welcome["refused"].as_array().into_iter().flatten().filter_map(|r| r["name"].as_str()).collect();
    assert_eq!(refused, BTreeSet::from(["web_search", "bad name"]), "{welcome}");
    Ok(())
}

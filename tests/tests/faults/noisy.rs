//! One noisy client among a hundred, in this process and without a network: counted in frames, not in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;
use vance_brain::api::direct::{DirectRequest, call};
use vance_brain::hub::Brain;
use vance_brain::tokens::{Principal, Scope};
use vance_brain_core::spec::ExecutionTarget;
use vance_shared::json::Raw;
use vance_shared::trace::TraceContext;
use vance_tests::wait::until;

use super::panics::{Inside, OWNER, here};

/// Clients that answer at once; with the noisy one and one that never reads they are a hundred.
const CALM: usize = 98;

/// Calls to the noisy one, which answers none: more than a client may have.
const LOUD_CALLS: usize = 300;

/// Bytes under way to the Brain: many thousand small frames, so that their reader could do nothing else for long.
const UNDER_WAY: usize = 8 * 1024 * 1024;

/// A call takes some twenty turns of the main thread, and in each the noisy one has a few dozen frames.
const MOST_FRAMES_A_CALL: usize = 3_000;

type Line = WebSocketStream<DuplexStream>;

async fn attach(brain: &Brain, name: &str, under_way: usize) -> anyhow::Result<Line> {
    let (near, far) = tokio::io::duplex(under_way);
    let principal = Principal::new(OWNER, &Scope::ALL);
    vance_supervise::near(vance_brain::link::serve_socket(brain.clone(), principal, far, ()));
    let mut line = WebSocketStream::from_raw_socket(near, Role::Client, None).await;
    let hello =
        json!({"type": "client_connected", "client_id": format!("foot_{name}"), "available_tools": [{"name": name}]});
    line.send(Message::text(hello.to_string())).await?;
    while frame(&mut line).await?["type"] != "welcome" {}
    Ok(line)
}

async fn frame(line: &mut Line) -> anyhow::Result<Value> {
    loop {
        match line.next().await {
            Some(Ok(Message::Text(text))) => return Ok(serde_json::from_str(&text)?),
            Some(Ok(_)) => {}
            Some(Err(_)) | None => anyhow::bail!("the line has ended"),
        }
    }
}

/// Answers every call at once.
async fn obey(mut line: Line) -> anyhow::Result<()> {
    loop {
        let frame = frame(&mut line).await?;
        if frame["type"] == "call" {
            let outcome = json!({"done": {"content": [{"type": "text", "text": "ok"}]}});
            let (id, attempt) = (&frame["call_id"], &frame["attempt"]);
            let result = json!({"type": "result", "call_id": id, "attempt": attempt, "outcome": outcome});
            line.send(Message::text(result.to_string())).await?;
        }
    }
}

/// What the caller is told.
async fn told(brain: &Brain, tool: &str) -> String {
    let request = DirectRequest {
        owner: OWNER.to_owned(),
        tool: tool.to_owned(),
        arguments: Raw::from(json!({"x": "y".repeat(if tool == "deaf" { 100_000 } else { 1 })})),
        session: None,
        client: None,
        target: ExecutionTarget::Auto,
        timeout: Some(Duration::from_secs(600)),
        durable: false,
        asks: false,
        idempotency_key: None,
        trace: TraceContext::root(),
    };
    match call(brain, request).await {
        Ok(answer) => {
            let body: Value = serde_json::from_str(&answer.body).unwrap_or_default();
            body["call"]["outcome"].as_str().unwrap_or("?").to_owned()
        }
        Err(error) => error.fault.code,
    }
}

/// A client that says something all the time: results that nobody asked for, progress of its own call, changes that are none.
struct Flood {
    /// Frames that the line has taken.
    sent: Arc<AtomicUsize>,
    has_ended: Arc<AtomicBool>,
}

impl Flood {
    fn start(line: Line, call_id: Value) -> Self {
        let frames = [
            json!({"type": "progress", "call_id": call_id, "fraction": 0.5, "message": "x"}),
            json!({"type": "result", "call_id": "call_y", "attempt": 1, "outcome": {"done": {"content": []}}}),
            json!({"type": "ping", "nonce": 1}),
            json!({"type": "tools_changed", "removed": ["nothing"]}),
        ]
        .map(|frame| frame.to_string());
        let flood = Self { sent: Arc::default(), has_ended: Arc::default() };
        let (sent, has_ended) = (flood.sent.clone(), flood.has_ended.clone());
        let (mut sink, mut stream) = line.split();
        vance_supervise::near(async move { while let Some(Ok(_)) = stream.next().await {} });
        vance_supervise::near(async move {
            for frame in frames.iter().cycle() {
                if sink.send(Message::text(frame.clone())).await.is_err() {
                    break;
                }
                sent.fetch_add(1, Ordering::Relaxed);
            }
            has_ended.store(true, Ordering::Relaxed);
        });
        flood
    }

    fn sent(&self) -> usize {
        self.sent.load(Ordering::Relaxed)
    }
}

#[test]
fn of_a_hundred_clients_the_noisy_one_is_told_busy_and_the_others_get_every_answer_within_a_few_of_its_frames()
-> anyhow::Result<()> {
    here(async {
        let dir = tempfile::tempdir()?;
        let inside = Inside::start(dir.path()).await?;
        let brain = &inside.brain;
        let names: Vec<String> = (0..CALM).map(|n| format!("calm{n}")).collect();
        let calm = try_join_all(names.iter().map(|name| attach(brain, name, 64 * 1024))).await?;
        let mut living: Vec<_> = calm.into_iter().map(|line| vance_supervise::near(obey(line))).collect();
        let _deaf = attach(brain, "deaf", 1024).await?;
        let mut loud = attach(brain, "loud", UNDER_WAY).await?;

        // More calls than it may have, of which it answers none: the rest are told so at once.
        let busy = Arc::new(AtomicUsize::new(0));
        for n in 0..LOUD_CALLS + 20 {
            let (brain, busy) = (brain.clone(), busy.clone());
            living.push(vance_supervise::near(async move {
                let is_loud = n < LOUD_CALLS;
                if told(&brain, if is_loud { "loud" } else { "deaf" }).await == "busy" && is_loud {
                    busy.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            }));
        }
        let call_id = loop {
            let frame = frame(&mut loud).await?;
            if frame["type"] == "call" {
                break frame["call_id"].clone();
            }
        };
        let flood = Flood::start(loud, call_id);
        until("it is told busy", || async { Ok((busy.load(Ordering::Relaxed) > 0).then_some(())) }).await?;
        until("it floods", || async { Ok((flood.sent() > 1_000).then_some(())) }).await?;

        for _ in 0..3 {
            let answers = join_all(names.iter().map(|name| told(brain, name))).await;
            assert!(answers.iter().all(|answer| answer == "done"), "{answers:?}");
        }
        let before = flood.sent();
        for name in &names {
            assert_eq!(told(brain, name).await, "done", "{name}");
        }
        let meanwhile = flood.sent() - before;
        println!("{} frames of the flood for each call of a calm client", meanwhile / CALM);
        assert!(!flood.has_ended.load(Ordering::Relaxed) && meanwhile > 0, "it is noisy to the end");
        assert!(meanwhile <= CALM * MOST_FRAMES_A_CALL, "{meanwhile} frames were before {CALM} calls");
        living.iter().for_each(tokio::task::JoinHandle::abort);
        inside.root.shutdown().await;
        Ok(())
    })
}

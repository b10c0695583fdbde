//! Many clients at once: a hundred of which ten come and go, a hundred of which one floods and one never reads, and a thousand
//! that come together to ten thousand tasks.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::rc::Rc;
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use super::client::Client;
use super::load::{Target, spread};
use super::own::Own;
use super::programs::{Brain, Home};
use super::system::memory_kib;
use super::table::{Goal, Table};

/// Clients that stay.
const CALM: usize = 90;
/// Clients that come and go.
const FLAPPING: usize = 10;
/// How long one of those stays.
const STAYS: Duration = Duration::from_millis(150);
/// How long each half of the measure takes.
const LASTING: Duration = Duration::from_secs(6);
/// Between two calls to one client: a hundred people, not a flood.
const PAUSE: Duration = Duration::from_millis(25);
/// A larger result among small ones.
const LARGE_BYTES: usize = 8 * 1024;
/// Trees for each of those that come and go, and tasks of each.
const TREES: usize = 3;
const TREE: usize = 50;
/// Calls to the noisy client and to the one that never reads, all the time: the noisy one answers none, and has more than it may.
const UNANSWERED: usize = 300;
/// Bytes of the arguments of each call to the one that never reads.
const UNREAD_BYTES: usize = 64 * 1024;
/// Sessions that wait, and tasks of each.
const SESSIONS: usize = 1_000;
const TASKS: usize = 10;
/// Clients that connect at the same time.
const AT_ONCE: usize = 64;
/// All ten thousand are done within this, or the run has failed.
const DONE_WITHIN: Duration = Duration::from_secs(90);

fn hello(kind: &str, n: usize) -> Value {
    json!({
        "type": "client_connected", "client_type": "cli", "protocol": [1],
        "session_id": format!("{kind}_{n}"), "client_id": format!("foot_{kind}_{n}"),
        "available_tools": [{"name": "bench_echo", "type": "native", "replay": "safe"}],
    })
}

/// What a client says to a frame.
fn answer(frame: &Value) -> Option<Value> {
    match frame["type"].as_str() {
        Some("call") => {
            let large = frame["arguments"]["large"] == true;
            let text = if large { "x".repeat(LARGE_BYTES) } else { "x".to_owned() };
            let outcome = json!({"done": {"content": [{"type": "text", "text": text}]}});
            let (call_id, attempt) = (&frame["call_id"], &frame["attempt"]);
            Some(json!({"type": "result", "call_id": call_id, "attempt": attempt, "outcome": outcome}))
        }
        Some("ping") => Some(json!({"type": "pong", "nonce": frame["nonce"]})),
        _ => None,
    }
}

/// Answers until the connection ends.
async fn serve(mut client: Client) -> anyhow::Result<()> {
    loop {
        if let Some(said) = answer(&client.next().await?) {
            client.send(&said).await?;
        }
    }
}

/// Says something all the time, and comes again when it is let go: results that nobody asked for, progress of its own calls,
/// changes that are none. What it is sent it takes, and does nothing with it.
async fn flood(addr: &str, token: &str) -> anyhow::Result<()> {
    loop {
        let (mut sink, mut stream) = Client::hello(addr, token, &hello("noisy", 0)).await?.split();
        let call_id = Rc::new(RefCell::new("call_none".to_owned()));
        let heard = Rc::clone(&call_id);
        let takes = tokio::task::spawn_local(async move {
            while let Some(Ok(message)) = stream.next().await {
                let frame: Value = serde_json::from_str(message.to_text().unwrap_or_default()).unwrap_or_default();
                if let Some(id) = frame["call_id"].as_str() {
                    id.clone_into(&mut heard.borrow_mut());
                }
            }
        });
        loop {
            let id = call_id.borrow().clone();
            let frames = [
                json!({"type": "progress", "call_id": id, "fraction": 0.5, "message": "x"}),
                json!({"type": "result", "call_id": "call_y", "attempt": 1, "outcome": {"done": {"content": []}}}),
                json!({"type": "ping", "nonce": 1}),
                json!({"type": "tools_changed", "removed": ["nothing"]}),
            ];
            for frame in frames.iter().cycle().take(100) {
                if sink.send(Message::text(frame.to_string())).await.is_err() {
                    takes.abort();
                    break;
                }
            }
            if takes.is_finished() {
                break;
            }
        }
    }
}

/// The process of the noisy client, or of the one that never reads.
async fn annoy(addr: &str, token: &str, kind: &str) -> anyhow::Result<()> {
    if kind == "noisy" {
        let (addr, token) = (addr.to_owned(), token.to_owned());
        tokio::task::spawn_local(async move { flood(&addr, &token).await });
        println!("ready");
        return std::future::pending().await;
    }
    // Kept open and never read; the Brain may let it go.
    let _deaf = Client::hello(addr, token, &hello(kind, 0)).await?;
    println!("ready");
    std::future::pending().await
}

/// The process of the calm clients, of those that come and go with calls under way, or of one that is a nuisance.
pub(crate) async fn keep(addr: &str, token: &str, kind: &str) -> anyhow::Result<()> {
    if kind == "noisy" || kind == "deaf" {
        return annoy(addr, token, kind).await;
    }
    let count = if kind == "calm" { CALM } else { FLAPPING };
    for n in 0..count {
        let mut client = Client::hello(addr, token, &hello(kind, n)).await?;
        let (addr, token, hello) = (addr.to_owned(), token.to_owned(), hello(kind, n));
        let stays = kind == "calm";
        tokio::task::spawn_local(async move {
            loop {
                if stays {
                    return serve(client).await;
                }
                // Cut in the middle of whatever it does.
                tokio::time::timeout(STAYS, serve(client)).await.ok();
                client = Client::hello(&addr, &token, &hello).await?;
            }
        });
    }
    println!("ready");
    std::future::pending().await
}

/// A call to one of the calm clients; each ninth is one of the server instead.
fn call(addr: &str, token: &str, n: usize) -> Target {
    let path = if n % 9 == 8 { "/api/v1/tools/now/call" } else { "/api/v1/tools/bench_echo/call" };
    let arguments = if n % 9 == 8 { json!({}) } else { json!({"large": n.is_multiple_of(3)}) };
    let body = json!({"session": format!("calm_{n}"), "arguments": arguments}).to_string();
    Target::post(addr, path, token, "json", &body, "\"done\"")
}

/// Calls to calm clients, while one client floods and another never reads, and while none does.
pub(crate) fn noisy(table: &mut Table) -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home)?;
    let (addr, token) = (brain.addr.as_str(), brain.token.as_str());
    let mut calm = Own::start(&["crowd", addr, token, "calm"])?;
    calm.line("ready")?;
    let targets: Vec<Target> = (0..CALM).map(|n| call(addr, token, n)).collect();
    spread(&targets, LASTING / 3, PAUSE)?;
    let without = spread(&targets, LASTING, PAUSE)?;
    let mut others = Vec::new();
    for kind in ["noisy", "deaf"] {
        let mut other = Own::start(&["crowd", addr, token, kind])?;
        other.line("ready")?;
        others.push(other);
    }
    // Tasks for both: the noisy one has more calls than it may, the other more bytes than it takes.
    for (kind, bytes) in [("noisy", 1), ("deaf", UNREAD_BYTES)] {
        let step = json!([{"call": "bench_echo", "with": {"x": "x".repeat(bytes)}}]);
        let tasks: Vec<Value> = (0..UNANSWERED).map(|n| json!({"id": format!("t{n}"), "steps": step})).collect();
        // A submission is 4 MiB at most.
        for some in tasks.chunks((2 * 1024 * 1024 / bytes).clamp(1, UNANSWERED)) {
            brain.post(&format!("/api/v1/tasks?session={kind}_0"), &json!({"tasks": some}).to_string())?;
        }
    }
    let with = spread(&targets, LASTING, PAUSE)?;
    let what = "100 clients, one floods and one never reads: the others' calls, p99 (base: they are quiet)";
    table.ratio(what, "µs", without.micros(0.99), with.micros(0.99), Goal::Most(2.0));
    table.ratio("the same, p50", "µs", without.micros(0.5), with.micros(0.5), Goal::None);
    Ok(())
}

/// Calls to calm clients, while others come and go and while they do not.
pub(crate) fn flapping(table: &mut Table) -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home)?;
    let (addr, token) = (brain.addr.as_str(), brain.token.as_str());
    let mut calm = Own::start(&["crowd", addr, token, "calm"])?;
    calm.line("ready")?;
    let targets: Vec<Target> = (0..CALM).map(|n| call(addr, token, n)).collect();
    spread(&targets, LASTING / 3, PAUSE)?;
    let without = spread(&targets, LASTING, PAUSE)?;
    let mut others = Own::start(&["crowd", addr, token, "flap"])?;
    others.line("ready")?;
    // Tasks for those who come and go, so that each comes back to something.
    let mut tree = "tasks:\n".to_owned();
    for id in 0..TREE {
        writeln!(tree, "- id: t{id}\n  steps: [{{call: bench_echo}}, {{call: bench_echo, with: {{large: true}}}}]")?;
    }
    for n in (0..FLAPPING).cycle().take(TREES * FLAPPING) {
        brain.post(&format!("/api/v1/tasks?session=flap_{n}"), &tree)?;
    }
    let with = spread(&targets, LASTING, PAUSE)?;
    let what = "100 clients, 10 of them come and go: the others' calls, p99 (base: nobody does)";
    table.ratio(what, "µs", without.micros(0.99), with.micros(0.99), Goal::Most(2.0));
    table.ratio("the same, p50", "µs", without.micros(0.5), with.micros(0.5), Goal::None);
    brain.until("their tasks are done", || Ok(completed(&brain)? == TREES * TREE * FLAPPING))
}

/// How many tasks are completed: a list ends once it is large.
fn completed(brain: &Brain) -> anyhow::Result<usize> {
    let (mut count, mut after) = (0, String::new());
    loop {
        let list: Value =
            serde_json::from_str(&brain.get(&format!("/api/v1/tasks?state=completed&limit=10000{after}"))?)?;
        count += list["tasks"].as_array().map_or(0, Vec::len);
        match list["next"].as_str() {
            Some(next) => after = format!("&after={next}"),
            None => return Ok(count),
        }
    }
}

/// Ten thousand blocked tasks of a thousand sessions, when their clients come.
pub(crate) fn morning(table: &mut Table) -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home)?;
    let (addr, token) = (brain.addr.as_str(), brain.token.as_str());
    super::small(async { Client::hello(addr, token, &hello("first", 0)).await.map(drop) })?;
    let mut tasks = "tasks:\n".to_owned();
    for id in 0..TASKS {
        writeln!(tasks, "- id: t{id}\n  steps: [{{call: bench_echo}}]")?;
    }
    for n in 0..SESSIONS {
        brain.post(&format!("/api/v1/tasks?session=wait_{n}"), &tasks)?;
    }
    let all = SESSIONS * TASKS;
    brain.until("all of them wait", || {
        let body: Value = serde_json::from_str(&brain.get("/api/v1/tasks?state=blocked&limit=10000")?)?;
        Ok(body["tasks"].as_array().map_or(0, Vec::len) >= all)
    })?;
    let pid = brain.program.pid()?;
    let memory = memory_kib(pid)? / 1_024.0;
    table.value("10,000 blocked tasks of 1,000 sessions: the Brain's memory", "MiB", memory, Goal::Most(200.0));
    let took = super::small(come(addr, token, all))?;
    table.value("the same, until all are done after their clients came", "s", took.as_secs_f64(), Goal::Most(5.0));
    let memory = memory_kib(pid)? / 1_024.0;
    table.value("the same, memory after it", "MiB", memory, Goal::Most(200.0));
    Ok(())
}

/// A thousand clients come; gives the time until the last result is stored.
async fn come(addr: &str, token: &str, all: usize) -> anyhow::Result<Duration> {
    let (begun, acked) = (Instant::now(), Rc::new(Cell::new(0)));
    let connecting = futures_util::stream::iter(0..SESSIONS).map(|n| {
        let hello = hello("wait", n);
        async move { Client::hello(addr, token, &hello).await }
    });
    let mut connecting = connecting.buffer_unordered(AT_ONCE);
    while let Some(client) = connecting.next().await {
        let (mut client, acked) = (client?, Rc::clone(&acked));
        tokio::task::spawn_local(async move {
            loop {
                let frame = client.next().await?;
                if frame["type"] == "result_ack" {
                    acked.set(acked.get() + 1);
                }
                if let Some(said) = answer(&frame) {
                    client.send(&said).await?;
                }
            }
            #[allow(unreachable_code)]
            anyhow::Ok(())
        });
    }
    while acked.get() < all {
        anyhow::ensure!(begun.elapsed() < DONE_WITHIN, "{} of {all} are done", acked.get());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    Ok(begun.elapsed())
}

//! Event streams: nothing missed, nothing twice, however often they are cut.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::time::timeout;
use vance_shared::ids::{CallId, SessionId, TaskId, TreeId};
use vance_shared::json::Raw;

use super::client::Request;
use super::{World, in_world};
use crate::progress::Whose;
use crate::store::{Append, Batch, NewEvent};

/// Reads a stream's blocks.
pub(super) struct Reader {
    stream: TcpStream,
    text: String,
}

#[derive(Debug, PartialEq)]
pub(super) struct Block {
    id: u64,
    event: Option<String>,
    data: Value,
}

impl Reader {
    /// Opens a stream; gives the place where it begins.
    pub(super) async fn open(request: Request) -> (Self, u64) {
        let mut reader = Self { stream: request.open().await, text: String::new() };
        let head = reader.take("\r\n\r\n").await.unwrap().to_ascii_lowercase();
        assert!(head.starts_with("http/1.1 200") && head.contains("content-type: text/event-stream"), "{head}");
        let opening = reader.block().await.unwrap();
        assert!(opening.event.is_none(), "{opening:?}");
        (reader, opening.id)
    }

    async fn take(&mut self, end: &str) -> Option<String> {
        loop {
            if let Some(at) = self.text.find(end) {
                let rest = self.text.split_off(at + end.len());
                return Some(std::mem::replace(&mut self.text, rest));
            }
            let mut bytes = [0u8; 16 * 1024];
            let n = timeout(Duration::from_secs(20), self.stream.read(&mut bytes)).await.expect("an event").ok()?;
            if n == 0 {
                return None;
            }
            // Frames of a chunked body: a size line before, a line break after each.
            self.text.push_str(std::str::from_utf8(&bytes[..n]).unwrap());
        }
    }

    pub(super) async fn block(&mut self) -> Option<Block> {
        let text = self.take("\n\n").await?;
        let field = |name: &str| text.lines().find_map(|l| l.strip_prefix(&format!("{name}: "))).map(str::to_owned);
        let data = field("data").map_or(Value::Null, |d| serde_json::from_str(&d).unwrap());
        Some(Block { id: field("id").unwrap().parse().unwrap(), event: field("event"), data })
    }

    /// Ids of so many events.
    async fn ids(&mut self, n: usize) -> Vec<u64> {
        let mut ids = Vec::new();
        while ids.len() < n {
            ids.push(self.block().await.unwrap().id);
        }
        ids
    }
}

/// Stores events as a task would.
async fn store(world: &World, task: &str, owner: &str, tree: &str, from: u32, n: u32) {
    let data = json!({
        "event": {"big": "x"}, "task_id": task, "id": "a", "tree_id": tree, "session_id": "s1", "owner": owner,
        "state": "blocked", "reason": "line one\nline two",
    });
    let events = (0..n).map(|_| NewEvent { kind: "blocked", data: Raw::from(data.clone()) }).collect();
    let appends = vec![Append { stream: format!("task:{task}"), expected_version: from, events }];
    world.brain.store.commit(Batch { appends, at_ms: 1_000, ..Batch::default() }).await.unwrap();
}

#[test]
fn a_stream_tells_the_callers_events_from_now_on() {
    in_world(async |world| {
        store(world, "task_1", "local", "t1", 0, 3).await;
        let (mut reader, begins) = Reader::open(world.ask("GET", "/api/v1/events")).await;
        assert_eq!(begins, 3);
        store(world, "task_2", "other", "t2", 0, 2).await;
        store(world, "task_1", "local", "t1", 3, 1).await;
        let block = reader.block().await.unwrap();
        let want = json!({
            "seq": 6, "kind": "blocked", "at": "1970-01-01T00:00:01.000Z", "task_id": "task_1", "id": "a",
            "tree_id": "t1", "session_id": "s1", "state": "blocked", "reason": "line one\nline two",
        });
        assert_eq!(block, Block { id: 6, event: Some("blocked".to_owned()), data: want });
    });
}

#[test]
fn how_far_a_call_is_is_told_to_its_owner_without_an_id() {
    in_world(async |world| {
        let (mut reader, _) = Reader::open(world.ask("GET", "/api/v1/events?tree=t1")).await;
        let whose = |owner: &str, tree: &str| Whose {
            owner: owner.to_owned(),
            session_id: SessionId::parse("s1").unwrap(),
            tree_id: TreeId::parse(tree).unwrap(),
            task_id: TaskId::parse("task_1").unwrap(),
            id: "a".to_owned(),
            call_id: CallId::parse("call_1").unwrap(),
        };
        for (owner, tree) in [("other", "t1"), ("local", "t2"), ("local", "t1")] {
            world.brain.progress.tell(whose(owner, tree), Some(0.5), Some(format!("half\n{}", "x".repeat(1000))));
        }
        let text = reader.take("\n\n").await.unwrap();
        assert!(text.contains("event: progress\n") && !text.contains("id: "), "{text}");
        let data = text.lines().find_map(|line| line.strip_prefix("data: ")).unwrap();
        let mut data: Value = serde_json::from_str(data).unwrap();
        assert_eq!(data["message"].as_str().map(str::len), Some(500));
        data.as_object_mut().unwrap().retain(|key, _| key != "at" && key != "message");
        let want = json!({
            "kind": "progress", "task_id": "task_1", "id": "a", "tree_id": "t1", "session_id": "s1", "call_id": "call_1", "fraction": 0.5,
        });
        assert_eq!(data, want);
        // What is stored comes all the same, each once.
        store(world, "task_1", "local", "t1", 0, 2).await;
        assert_eq!(reader.ids(2).await, [1, 2]);
    });
}

#[test]
fn a_stream_goes_on_after_any_event_and_shows_only_what_is_asked_for() {
    in_world(async |world| {
        store(world, "task_1", "local", "t1", 0, 3).await;
        store(world, "task_2", "local", "t2", 0, 3).await;
        for (request, want) in [
            (world.ask("GET", "/api/v1/events").header("Last-Event-ID", "4"), vec![5, 6]),
            (world.ask("GET", "/api/v1/events?after=2"), vec![3, 4, 5, 6]),
            (world.ask("GET", "/api/v1/events?after=0").header("Last-Event-ID", "5"), vec![6]),
            (world.ask("GET", "/api/v1/events?after=0&tree=t2"), vec![4, 5, 6]),
            (world.ask("GET", "/api/v1/events?after=0&session=s1&tree=t1"), vec![1, 2, 3]),
        ] {
            let (mut reader, _) = Reader::open(request).await;
            assert_eq!(reader.ids(want.len()).await, want);
        }
        let gone = world.ask("GET", "/api/v1/events").header("Last-Event-ID", "7").send().await;
        assert_eq!(gone.said(), "410 events_gone");
        let bad = world.ask("GET", "/api/v1/events").header("Last-Event-ID", "-1").send().await;
        assert_eq!(bad.said(), "400 bad_query");
    });
}

#[test]
fn a_reader_that_falls_behind_misses_nothing() {
    in_world(async |world| {
        let (mut reader, begins) = Reader::open(world.ask("GET", "/api/v1/events")).await;
        // Far more than the store keeps for a subscriber, and than the sockets hold: the reader is told by pages.
        for round in 0..20 {
            store(world, "task_1", "local", "t1", round * 1000, 1000).await;
        }
        let ids = reader.ids(20_000).await;
        assert_eq!(ids, (begins + 1..=begins + 20_000).collect::<Vec<_>>());
        store(world, "task_1", "local", "t1", 20_000, 1).await;
        assert_eq!(reader.ids(1).await, [begins + 20_001]);
    });
}

#[test]
fn the_shutdown_ends_streams_and_silent_connections_at_once() {
    vance_supervise::run(2, async {
        let world = World::start().await;
        let (mut reader, _) = Reader::open(world.ask("GET", "/api/v1/events")).await;
        let mut silent = TcpStream::connect(world.addr).await.unwrap();
        let idle = world.ask("GET", "/healthz").open().await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        timeout(Duration::from_secs(5), world.end()).await.expect("an end within the grace");
        while reader.block().await.is_some() {}
        assert_eq!(silent.read(&mut [0u8; 1]).await.unwrap_or(0), 0);
        drop(idle);
    })
    .unwrap();
}

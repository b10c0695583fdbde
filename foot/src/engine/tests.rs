#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
//! The real actors and a real WebSocket against a Brain that does what the story needs.

#[allow(dead_code)] // the stories of packs use the rest
mod brain;

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;

use futures_util::future::BoxFuture;
use tempfile::TempDir;
use tokio::sync::Notify;
use vance_shared::limits::{FRAME_BYTES, INFLIGHT_CALLS};
use vance_shared::names::ToolName;
use vance_shared::tool::{Replay, ToolResult};
use vance_shared::wire::{Assembly, CallResult, ToBrain, ToFoot};

use self::brain::{Brain, Line, call, id};
use super::*;
use crate::actors::catalogue::{ToolCall, ToolHost};
use crate::native::UseOfTool;

/// Tools that write down each run, outside of the system under test.
#[derive(Default)]
struct Bench {
    ledger: Mutex<Vec<String>>,
    go: Notify,
}

impl Bench {
    fn runs(&self, call: &str) -> usize {
        self.ledger.lock().unwrap().iter().filter(|c| *c == call).count()
    }
}

struct Tools(Arc<Bench>);

impl ToolHost for Tools {
    fn call(&self, call: ToolCall) -> BoxFuture<'static, Outcome> {
        let bench = Arc::clone(&self.0);
        bench.ledger.lock().unwrap().push(call.call_id.to_string());
        assert!(call.tool.as_str() != "panics", "asked to");
        Box::pin(async move {
            match call.tool.as_str() {
                "wait" => tokio::select! {
                    () = bench.go.notified() => Outcome::Done(ToolResult::text("waited")),
                    () = call.cancel.cancelled() => Outcome::Cancelled { reason: "stopped".to_owned() },
                },
                "kept" => Outcome::Done(ToolResult::text("x".repeat(300 * 1024))),
                "big" => Outcome::Done(ToolResult::text("ü\"".repeat(1 << 20))),
                _ => Outcome::Done(ToolResult::text(call.arguments.get())),
            }
        })
    }
}

fn tool(bench: &Arc<Bench>, name: &str, replay: Replay) -> Arc<Tool> {
    let spec = ToolSpec {
        name: ToolName::parse(name).unwrap(),
        description: format!("the tool {name}"),
        input_schema: Raw::from(serde_json::json!({"type": "object"})),
        output_schema: None,
        labels: vec![],
        annotations: None,
        replay,
        pack: None,
    };
    Arc::new(Tool { spec, host: Arc::new(Tools(Arc::clone(bench))) })
}

struct Anything;
impl Permit for Anything {
    fn refusal(&self, _: UseOfTool) -> BoxFuture<'static, Option<Outcome>> {
        Box::pin(async { None })
    }
}

fn config(home: &Path, brain: Option<&str>) -> FootConfig {
    FootConfig {
        home: home.to_owned(),
        project_dir: home.join("project"),
        packs_dir: None,
        brain_url: brain.map(|url| Url::parse(url).unwrap()),
        token: Arc::new(|| Some("secret".to_owned()).into()),
        session: None,
        also_sessions: Vec::new(),
        new_session: false,
        name: Some("laptop".to_owned()),
        client_type: "cli".to_owned(),
        no_local: false,
        no_tools: false,
        load: Load::All,
        guard_program: "/nowhere".into(),
        rules: Rules::none("permissions.yaml"),
        asker: None,
        nobody: Nobody::NO_TERMINAL,
    }
}

fn start_with(config: FootConfig, bench: &Arc<Bench>) -> Foot {
    let paths = Paths::new(&config.home, &config.project_dir, None);
    let slot = Slot::take(&paths.state, Use::Client).unwrap();
    let own = vec![
        tool(bench, "echo", Replay::Safe),
        tool(bench, "act", Replay::Unsafe),
        tool(bench, "wait", Replay::Unsafe),
        tool(bench, "kept", Replay::Safe),
        tool(bench, "big", Replay::Safe),
        tool(bench, "panics", Replay::Safe),
    ];
    assemble(config, &paths, slot, own, Arc::new(Anything), None).unwrap()
}

/// A Brain, a Foot's home, tools with a ledger.
struct World {
    brain: Brain,
    home: TempDir,
    bench: Arc<Bench>,
}

impl World {
    async fn new() -> Self {
        World { brain: Brain::listen().await, home: tempfile::tempdir().unwrap(), bench: Arc::default() }
    }

    fn foot(&self) -> Foot {
        start_with(config(self.home.path(), Some(&self.brain.url)), &self.bench)
    }
}

/// Runs a story on an actor thread. A story that hangs fails.
fn story(tell: impl AsyncFnOnce(World)) {
    vance_supervise::run(2, async {
        let world = World::new().await;
        tokio::time::timeout(Duration::from_secs(30), tell(world)).await.expect("the story hangs");
    })
    .unwrap();
}

async fn result_of(line: &mut Line, call_id: &CallId) -> CallResult {
    loop {
        if let ToBrain::Result(result) = line.next().await
            && result.call_id == *call_id
        {
            return result;
        }
    }
}

#[test]
fn the_hello_has_the_documents_shape_and_the_token() {
    story(async |world| {
        let foot = world.foot();
        let mut line = world.brain.accept().await;
        assert_eq!(line.request.path, "/ws");
        assert_eq!(line.request.authorization.as_deref(), Some("Bearer secret"));
        assert!(!line.request.has_origin, "a native client sends no Origin");
        let hello = line.hello().await;
        assert_eq!((hello.client_type.as_str(), hello.name.as_deref()), ("cli", Some("laptop")));
        assert_eq!(hello.client_id.as_ref(), Some(foot.client_id()));
        assert_eq!(hello.protocol, [1]);
        assert!(hello.machine.is_some_and(|m| !m.is_empty()) && hello.working_dir.unwrap().ends_with("/project"));
        let tools: HashMap<&str, Replay> = hello.available_tools.iter().map(|t| (t.name.as_str(), t.replay)).collect();
        assert_eq!(tools.len(), 6);
        assert_eq!((tools["echo"], tools["act"]), (Replay::Safe, Replay::Unsafe));
        assert_eq!(foot.connection().borrow().clone(), Connection::Connecting);
        line.welcome(vec![]).await;
        let Connection::Online { session_id, client_id } = foot.connected().await else { panic!("not online") };
        assert_eq!((session_id.as_str(), &client_id), ("sess_1", foot.client_id()));
        foot.shutdown().await;
    });
}

#[test]
fn an_unsafe_call_is_on_disk_when_it_is_accepted() {
    story(async |world| {
        let foot = world.foot();
        let mut line = world.brain.attach().await;
        line.send(ToFoot::Call(call(1, "act"))).await;
        let ToBrain::Accepted(accepted) = line.next().await else { panic!("not accepted") };
        assert_eq!(accepted.call_id, id(1));
        let journal = rusqlite::Connection::open(world.home.path().join("state/client-0/journal.db")).unwrap();
        let rows: i64 =
            journal.query_row("SELECT count(*) FROM calls WHERE call_id = 'call_1'", [], |r| r.get(0)).unwrap();
        assert_eq!(rows, 1);
        assert_eq!(result_of(&mut line, &id(1)).await.outcome.word(), "done");
        foot.shutdown().await;
    });
}

#[test]
fn a_result_comes_again_after_each_cut_until_it_is_acknowledged_and_the_call_runs_once() {
    story(async |world| {
        let foot = world.foot();
        let mut line = world.brain.attach().await;
        line.send(ToFoot::Call(call(1, "act"))).await;
        let first = result_of(&mut line, &id(1)).await;
        for attempt in 2..4 {
            line.cut();
            line = world.brain.accept().await;
            let hello = line.hello().await;
            assert_eq!((hello.inflight.finished, hello.epoch), (vec![id(1)], Some(1)));
            line.welcome(vec![id(1)]).await;
            assert_eq!(result_of(&mut line, &id(1)).await.outcome, first.outcome);
            line.send(ToFoot::Call(vance_shared::wire::Call { attempt, ..call(1, "act") })).await;
            let ToBrain::Accepted(again) = line.next().await else { panic!("not accepted") };
            assert_eq!(again.attempt, attempt);
            assert_eq!(result_of(&mut line, &id(1)).await.attempt, attempt);
        }
        line.send(ToFoot::ResultAck(vance_shared::wire::ResultAck { call_id: id(1) })).await;
        line.send(ToFoot::Call(call(1, "act"))).await;
        assert_eq!(result_of(&mut line, &id(1)).await.outcome.word(), "unknown", "acknowledged, so never again");
        line.cut();
        let hello = world.brain.accept().await.hello().await;
        assert_eq!(hello.inflight, vance_shared::wire::Inflight::default());
        assert_eq!(world.bench.runs("call_1"), 1);
        foot.shutdown().await;
    });
}

#[test]
fn a_cut_does_not_stop_a_running_call_and_its_result_comes_over_the_next_line() {
    story(async |world| {
        let foot = world.foot();
        let mut line = world.brain.attach().await;
        line.send(ToFoot::Call(call(1, "wait"))).await;
        line.until(|frame| matches!(frame, ToBrain::Accepted(_))).await;
        line.cut();
        let mut line = world.brain.accept().await;
        assert_eq!(line.hello().await.inflight.running, [id(1)]);
        world.bench.go.notify_one();
        line.welcome(vec![id(1)]).await;
        assert_eq!(result_of(&mut line, &id(1)).await.outcome.word(), "done");
        assert_eq!(world.bench.runs("call_1"), 1);
        foot.shutdown().await;
    });
}

#[test]
fn a_cancel_reaches_a_running_call_and_one_that_comes_first_is_remembered() {
    story(async |world| {
        let foot = world.foot();
        let mut line = world.brain.attach().await;
        let cancel = |n| {
            let reason = "the task was cancelled".to_owned();
            ToFoot::Cancel(vance_shared::wire::Cancel { call_id: id(n), reason, traceparent: None })
        };
        // More calls than may run, and the cancel behind them all.
        for n in 0..INFLIGHT_CALLS {
            line.send(ToFoot::Call(call(n, "wait"))).await;
        }
        line.send(ToFoot::Call(call(5000, "act"))).await;
        line.send(cancel(0)).await;
        let mut seen = Vec::new();
        while seen.len() < 2 {
            if let ToBrain::Result(result) = line.next().await {
                seen.push((result.call_id, result.outcome));
            }
        }
        seen.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(seen[0], (id(0), Outcome::Cancelled { reason: "the task was cancelled".to_owned() }));
        assert!(matches!(&seen[1], (_, Outcome::Failed { error, .. }) if error.code == "busy"), "{:?}", seen[1]);
        line.send(cancel(9000)).await;
        line.send(ToFoot::Call(call(9000, "act"))).await;
        assert_eq!(result_of(&mut line, &id(9000)).await.outcome.word(), "cancelled");
        assert_eq!((world.bench.runs("call_5000"), world.bench.runs("call_9000")), (0, 0));
        for n in 1..INFLIGHT_CALLS {
            line.send(cancel(n)).await;
        }
        let mut cancelled = std::collections::BTreeSet::new();
        while cancelled.len() < INFLIGHT_CALLS - 1 {
            if let ToBrain::Result(result) = line.next().await {
                assert_eq!(result.outcome.word(), "cancelled");
                cancelled.insert(result.call_id);
            }
        }
        foot.shutdown().await;
    });
}

#[test]
fn a_superseded_foot_stops_and_says_what_to_do() {
    story(async |world| {
        let foot = world.foot();
        let mut line = world.brain.attach().await;
        foot.connected().await;
        line.close(4409).await;
        let mut connection = foot.connection();
        let refused = connection.wait_for(|c| matches!(c, Connection::Refused { .. })).await.unwrap().clone();
        let Connection::Refused { why, is_final: true } = refused else { panic!("not refused for good") };
        assert!(why.contains("VANCE_HOME"), "{why}");
        let again = tokio::time::timeout(Duration::from_millis(1500), world.brain.accept()).await;
        assert!(again.is_err(), "it came back");
        foot.shutdown().await;
    });
}

#[test]
fn frames_that_are_not_understood_are_answered_and_survived() {
    story(async |world| {
        let foot = world.foot();
        let mut line = world.brain.attach().await;
        for (text, code) in [
            ("nonsense".to_owned(), "malformed_frame"),
            ("{\"type\":\"call\",\"call_id\":\"\"}".to_owned(), "malformed_frame"),
            ("{\"type\":\"from_a_later_release\",\"x\":1}".to_owned(), "unknown_type"),
            (format!("{{\"type\":\"drain\",\"reason\":\"{}\"}}", "x".repeat(FRAME_BYTES)), "frame_too_large"),
        ] {
            line.send_text(text).await;
            let ToBrain::Error(error) = line.next().await else { panic!("no error for {code}") };
            assert_eq!(error.code, code);
        }
        line.send(ToFoot::Call(call(1, "echo"))).await;
        assert_eq!(result_of(&mut line, &id(1)).await.outcome.word(), "done");
        line.send(ToFoot::Call(call(2, "nobody"))).await;
        let outcome = result_of(&mut line, &id(2)).await.outcome;
        assert!(matches!(&outcome, Outcome::Failed { error, .. } if error.code == "unknown_tool"), "{outcome:?}");
        line.send(ToFoot::Call(call(3, "panics"))).await;
        assert_eq!(result_of(&mut line, &id(3)).await.outcome.word(), "unknown");
        foot.shutdown().await;
    });
}

#[test]
fn a_large_result_comes_in_parts_and_small_frames_pass_it() {
    story(async |world| {
        let foot = world.foot();
        let mut line = world.brain.attach().await;
        line.send(ToFoot::Call(call(1, "big"))).await;
        let mut assembly = Assembly::default();
        let mut parts = 0;
        let result = loop {
            match line.next().await {
                ToBrain::ResultPart(part) => {
                    parts += 1;
                    if parts == 2 {
                        line.send(ToFoot::Ping(vance_shared::wire::Ping { nonce: 7 })).await;
                    }
                    if let Some(result) = assembly.take(part).unwrap() {
                        break result;
                    }
                }
                ToBrain::Accepted(_) | ToBrain::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        };
        assert!(parts > 10);
        assert_eq!(result.outcome, Outcome::Done(ToolResult::text("ü\"".repeat(1 << 20))));
        foot.shutdown().await;
    });
}

#[test]
fn after_a_restart_of_the_process_an_unsafe_call_that_ran_is_unknown_and_a_kept_result_is_delivered() {
    story(async |world| {
        let foot = world.foot();
        let identity = foot.client_id().clone();
        let mut line = world.brain.attach().await;
        line.send(ToFoot::Call(call(1, "wait"))).await;
        line.send(ToFoot::Call(call(2, "act"))).await;
        result_of(&mut line, &id(2)).await;
        // As if the process died: nothing is waited for.
        foot.root.shutdown().await;
        drop(foot);
        let foot = world.foot();
        assert_eq!(*foot.client_id(), identity);
        let mut line = world.brain.accept().await;
        let hello = line.hello().await;
        assert_eq!((hello.inflight.interrupted, hello.inflight.finished), (vec![id(1)], vec![id(2)]));
        line.welcome(vec![id(1), id(2)]).await;
        let mut words = HashMap::new();
        while words.len() < 2 {
            if let ToBrain::Result(result) = line.next().await {
                words.insert(result.call_id.to_string(), result.outcome.word());
            }
        }
        assert_eq!((words["call_1"], words["call_2"]), ("unknown", "done"));
        line.send(ToFoot::Call(vance_shared::wire::Call { attempt: 2, ..call(1, "wait") })).await;
        assert_eq!(result_of(&mut line, &id(1)).await.outcome.word(), "unknown");
        assert_eq!((world.bench.runs("call_1"), world.bench.runs("call_2")), (1, 1));
        foot.root.shutdown().await;
    });
}

/// Cuts at random moments, and a Brain that reconciles as it should. Judged by the tools' own ledger.
#[test]
fn whenever_the_line_is_cut_each_call_ends_once_and_no_unsafe_one_runs_twice() {
    // Side by side: after the first cut the link takes its time, so that a Brain in trouble is not hammered.
    story(async |_| {
        let worlds = (0..16).map(|seed| async move {
            let world = World::new().await;
            cuts_at_random(&world, fastrand::Rng::with_seed(seed)).await;
        });
        futures_util::future::join_all(worlds).await;
    });
}

async fn cuts_at_random(world: &World, mut random: fastrand::Rng) {
    const CALLS: usize = 30;
    const MAX_CUTS: usize = 3;
    let foot = world.foot();
    let mut line = world.brain.attach().await;
    let mut open: std::collections::BTreeMap<CallId, vance_shared::wire::Call> =
        (0..CALLS).map(|n| (id(n), call(n, ["act", "echo", "kept"][if n % 10 == 9 { 2 } else { n % 2 }]))).collect();
    let mut assembly = Assembly::default();
    let mut cuts = 0;
    let mut acks = Vec::new();
    for call in open.values() {
        line.send(ToFoot::Call(call.clone())).await;
    }
    while !open.is_empty() {
        if cuts < MAX_CUTS && random.u8(..) < 24 {
            cuts += 1;
            line.cut();
            line = world.brain.accept().await;
            let hello = line.hello().await;
            assembly = Assembly::default();
            line.welcome(open.keys().cloned().collect()).await;
            let has = [hello.inflight.running, hello.inflight.finished].concat();
            for (call_id, call) in open.iter_mut().filter(|(call_id, _)| !has.contains(call_id)) {
                call.attempt += 1;
                assert!(!acks.contains(call_id));
                line.send(ToFoot::Call(call.clone())).await;
            }
        }
        let result = match line.next().await {
            ToBrain::Result(result) => result,
            ToBrain::ResultPart(part) => match assembly.take(part).unwrap() {
                Some(result) => result,
                None => continue,
            },
            ToBrain::Accepted(_) => continue,
            other => panic!("{other:?}"),
        };
        assert_eq!(result.outcome.word(), "done");
        // Some acks are lost with the line.
        if random.u8(..) < 224 {
            open.remove(&result.call_id);
            line.send(ToFoot::ResultAck(vance_shared::wire::ResultAck { call_id: result.call_id.clone() })).await;
            acks.push(result.call_id);
        } else if cuts < MAX_CUTS {
            cuts += 1;
            line.cut();
            line = world.brain.accept().await;
            line.hello().await;
            assembly = Assembly::default();
            line.welcome(open.keys().cloned().collect()).await;
            for call in open.values() {
                line.send(ToFoot::Call(call.clone())).await;
            }
        } else {
            open.remove(&result.call_id);
            line.send(ToFoot::ResultAck(vance_shared::wire::ResultAck { call_id: result.call_id })).await;
        }
    }
    for n in 0..CALLS {
        assert_eq!(world.bench.runs(&format!("call_{n}")), 1, "call_{n}");
    }
    foot.root.shutdown().await;
}

#[test]
fn a_table_of_calls_that_falls_comes_back_with_its_running_calls() {
    story(async |world| {
        let foot = world.foot();
        let mut line = world.brain.attach().await;
        line.send(ToFoot::Call(call(1, "wait"))).await;
        line.until(|frame| matches!(frame, ToBrain::Accepted(_))).await;
        foot.dispatcher.tell(ToDispatcher::Panic).unwrap();
        let mut line = world.brain.accept().await;
        assert_eq!(line.hello().await.inflight.running, [id(1)]);
        line.welcome(vec![id(1)]).await;
        world.bench.go.notify_one();
        assert_eq!(result_of(&mut line, &id(1)).await.outcome.word(), "done");
        assert_eq!(world.bench.runs("call_1"), 1);
        foot.shutdown().await;
    });
}

#[test]
fn a_stopping_foot_says_so_finishes_its_calls_and_delivers_their_results() {
    story(async |world| {
        let foot = world.foot();
        let mut line = world.brain.attach().await;
        foot.connected().await;
        line.send(ToFoot::Call(call(1, "wait"))).await;
        line.until(|frame| matches!(frame, ToBrain::Accepted(_))).await;
        let stopping = tokio::task::spawn_local(foot.shutdown());
        line.until(|frame| matches!(frame, ToBrain::Drain(_))).await;
        line.send(ToFoot::Call(call(2, "act"))).await;
        world.bench.go.notify_one();
        assert_eq!(result_of(&mut line, &id(1)).await.outcome.word(), "done");
        line.send(ToFoot::ResultAck(vance_shared::wire::ResultAck { call_id: id(1) })).await;
        assert_eq!(line.closed().await, 1001);
        stopping.await.unwrap();
        assert_eq!(world.bench.runs("call_2"), 0);
    });
}

#[test]
fn a_brain_that_comes_later_is_found_and_a_token_that_comes_later_is_used() {
    story(async |world| {
        let home = world.home.path();
        // A port where nobody listens yet.
        let late = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = late.local_addr().unwrap();
        drop(late);
        let token = Arc::new(Mutex::new(None::<String>));
        let source = Arc::clone(&token);
        let config = FootConfig {
            token: Arc::new(move || source.lock().unwrap().clone().into()),
            ..config(home, Some(&format!("http://{address}")))
        };
        let foot = start_with(config, &world.bench);
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(*foot.connection().borrow(), Connection::Connecting);
        let brain = Brain::listen_at(address).await;
        brain.refuse_one(401).await;
        assert!(matches!(foot.connected().await, Connection::Refused { .. }));
        *token.lock().unwrap() = Some("late".to_owned());
        let mut line = brain.accept().await;
        assert_eq!(line.request.authorization.as_deref(), Some("Bearer late"));
        line.hello().await;
        line.welcome(vec![]).await;
        foot.connection().wait_for(|c| matches!(c, Connection::Online { .. })).await.unwrap();
        foot.shutdown().await;
    });
}

#[test]
fn a_new_session_is_made_once_and_gone_back_to() {
    story(async |world| {
        let config = FootConfig { new_session: true, ..config(world.home.path(), Some(&world.brain.url)) };
        let foot = start_with(config, &world.bench);
        let mut line = world.brain.accept().await;
        let hello = line.hello().await;
        assert!(hello.new_session && hello.session_id.is_none());
        line.welcome(vec![]).await;
        foot.connected().await;
        line.cut();
        let hello = world.brain.accept().await.hello().await;
        assert_eq!((hello.new_session, hello.session_id.unwrap().as_str()), (false, "sess_1"));
        foot.shutdown().await;
    });
}

#[test]
fn without_a_brain_tools_run_and_packs_of_the_project_are_named() {
    story(async |world| {
        let packs = world.home.path().join("project/.vancetope/foot-tools");
        std::fs::create_dir_all(&packs).unwrap();
        let pack = r#"{"name":"chrome","type":"mcp_server","parameters":{"transport":"stdio","command":["true"]}}"#;
        std::fs::write(packs.join("chrome.json"), pack).unwrap();
        let foot = start_with(config(world.home.path(), None), &world.bench);
        let summary = foot.first_load().await;
        assert_eq!(summary.to_string(), "loaded 0 pack(s) → 0 tool(s); 1 skipped, 0 failed");
        assert_eq!(summary.skipped[0].pack, "chrome");
        assert_eq!(foot.connected().await, Connection::Local);
        assert_eq!(foot.tools().len(), 6);
        let call = |tool: &str| LocalCall {
            call_id: id(1),
            tool: tool.to_owned(),
            arguments: Raw::empty_object(),
            timeout: None,
            cancel: CancellationToken::new(),
            progress: None,
        };
        assert_eq!(foot.call_local(call("echo")).await, Outcome::Done(ToolResult::text("{}")));
        assert_eq!(foot.call_local(call("nobody")).await.word(), "failed");
        foot.shutdown().await;
    });
}

#[test]
fn an_address_becomes_a_sockets() {
    for (brain, want) in [
        ("http://127.0.0.1:9990", Some("ws://127.0.0.1:9990/ws")),
        ("http://[::1]:9990/", Some("ws://[::1]:9990/ws")),
        ("https://brain.example.org/vance/", Some("wss://brain.example.org/vance/ws")),
        ("ftp://brain.example.org", None),
        ("http://user@brain.example.org", None),
        ("http://brain.example.org/?x=1", None),
    ] {
        assert_eq!(socket_url(&Url::parse(brain).unwrap()).ok().as_deref(), want, "{brain}");
    }
}

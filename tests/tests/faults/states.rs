//! One task in each state while actors of the Brain fall, in this process and on a real store. The clients are sockets without a
//! network, which keep what they run over their connections, as a Foot does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::io::DuplexStream;
use tokio::sync::watch;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;
use vance_brain::api::commands::{Verb, command};
use vance_brain::api::queries::{TaskFilter, tasks};
use vance_brain::hub::Brain;
use vance_brain::tokens::{Principal, Scope};
use vance_tests::wait::until;

use super::panics::{Inside, OWNER, here};

/// What a client knows for longer than a connection lasts: its journal.
#[derive(Default)]
struct Journal {
    /// What a call was asked to do, once for each call.
    begun: Vec<String>,
    /// Calls that run, with their attempts.
    running: BTreeMap<String, Value>,
    /// Results that nobody has acknowledged.
    ended: BTreeMap<String, Value>,
}

/// A client with the tools `holds`, which runs until it may end, and `dies`, of which nobody knows what became.
#[derive(Clone)]
struct Client {
    name: &'static str,
    journal: Arc<Mutex<Journal>>,
    may_end: watch::Receiver<bool>,
}

impl Client {
    fn new(name: &'static str, may_end: &watch::Receiver<bool>) -> Self {
        Self { name, journal: Arc::default(), may_end: may_end.clone() }
    }

    fn journal(&self) -> MutexGuard<'_, Journal> {
        self.journal.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hello(&self) -> Value {
        let journal = self.journal();
        let ids = |calls: &BTreeMap<String, Value>| calls.keys().cloned().collect::<Vec<_>>();
        json!({"type": "client_connected", "client_id": format!("foot_{}", self.name), "name": self.name,
               "available_tools": [{"name": "holds"}, {"name": "dies"}],
               "inflight": {"running": ids(&journal.running), "finished": ids(&journal.ended)}})
    }

    /// Connects again and again, for as long as it is not dropped.
    async fn live(mut self, brain: Brain) {
        loop {
            let (near, far) = tokio::io::duplex(64 * 1024);
            let principal = Principal::new(OWNER, &Scope::ALL);
            vance_supervise::near(vance_brain::link::serve_socket(brain.clone(), principal, far, ()));
            let mut socket = WebSocketStream::from_raw_socket(near, Role::Client, None).await;
            // Whatever breaks: it comes again.
            self.talk(&mut socket).await.ok();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn talk(&mut self, socket: &mut WebSocketStream<DuplexStream>) -> anyhow::Result<()> {
        socket.send(Message::text(self.hello().to_string())).await?;
        let mut is_welcome = false;
        loop {
            let may_end = *self.may_end.borrow_and_update();
            if is_welcome {
                for frame in self.results(may_end) {
                    socket.send(Message::text(frame.to_string())).await?;
                }
            }
            let frame = tokio::select! {
                _ = self.may_end.changed(), if !may_end => continue,
                message = socket.next() => match message {
                    Some(Ok(Message::Text(text))) => serde_json::from_str::<Value>(&text)?,
                    Some(Ok(_)) => continue,
                    Some(Err(_)) | None => return Ok(()),
                },
            };
            let id = frame["call_id"].as_str().unwrap_or_default().to_owned();
            let answer = match frame["type"].as_str() {
                Some("welcome") => {
                    is_welcome = true;
                    continue;
                }
                Some("call") => {
                    self.begin(&id, &frame);
                    json!({"type": "accepted", "call_id": id, "attempt": frame["attempt"]})
                }
                Some("result_ack") => {
                    self.journal().ended.remove(&id);
                    continue;
                }
                Some("ping") => json!({"type": "pong", "nonce": frame["nonce"]}),
                _ => continue,
            };
            socket.send(Message::text(answer.to_string())).await?;
        }
    }

    /// A call runs once, however often it comes.
    fn begin(&self, id: &str, call: &Value) {
        let mut journal = self.journal();
        if journal.running.contains_key(id) || journal.ended.contains_key(id) {
            return;
        }
        journal.begun.push(call["arguments"]["name"].as_str().unwrap_or_default().to_owned());
        if call["tool"] == "dies" {
            let unknown = json!({"unknown": {"reason": "it died"}});
            let result = json!({"type": "result", "call_id": id, "attempt": call["attempt"], "outcome": unknown});
            journal.ended.insert(id.to_owned(), result);
        } else {
            journal.running.insert(id.to_owned(), call["attempt"].clone());
        }
    }

    fn results(&self, may_end: bool) -> Vec<Value> {
        let mut journal = self.journal();
        let running = if may_end { std::mem::take(&mut journal.running) } else { BTreeMap::new() };
        for (id, attempt) in running {
            let done = json!({"done": {"content": [{"type": "text", "text": "held"}]}});
            let result = json!({"type": "result", "call_id": id, "attempt": attempt, "outcome": done});
            journal.ended.insert(id, result);
        }
        journal.ended.values().cloned().collect()
    }
}

const LIVE: [&str; 6] = ["running", "suspended", "unknown", "blocked", "queued", "pending"];
const ENDED: [&str; 4] = ["completed", "failed", "cancelled", "skipped"];

/// State and reason of each task; of what has ended not even a time changes.
async fn standing(brain: &Brain) -> Option<BTreeMap<String, (String, String)>> {
    let body = tasks(brain, OWNER, TaskFilter::default()).await.ok()?.value();
    let text = |task: &Value, key: &str| task[key].as_str().unwrap_or_default().to_owned();
    let of = |task: &Value| {
        let state = text(task, "state");
        let more = if ENDED.contains(&state.as_str()) { "updated_at" } else { "blocked_reason" };
        (text(task, "id"), (state, text(task, more)))
    };
    Some(body["tasks"].as_array()?.iter().map(of).collect())
}

async fn say(inside: &Inside, id: &str, verb: impl Fn() -> Verb) -> anyhow::Result<()> {
    let body =
        tasks(&inside.brain, OWNER, TaskFilter::default()).await.map_err(|e| anyhow::anyhow!(e.fault.message))?;
    let body = body.value();
    let task = body["tasks"].as_array().into_iter().flatten().find(|task| task["id"] == id).cloned();
    let task_id = task.unwrap_or_default()["task_id"].as_str().unwrap_or_default().to_owned();
    command(&inside.brain, OWNER, &task_id, verb()).await.map(drop).map_err(|e| anyhow::anyhow!(e.fault.message))
}

#[test]
fn every_state_comes_through_a_panic_of_each_kind_of_the_brains_actors() -> anyhow::Result<()> {
    here(async {
        let dir = tempfile::tempdir()?;
        let inside = Inside::start(dir.path()).await?;
        let brain = &inside.brain;
        let (let_end, may_end) = watch::channel(false);
        let [near, gone, later] = ["near", "gone", "later"].map(|name| Client::new(name, &may_end));
        let mut living = vec![vance_supervise::near(near.clone().live(brain.clone()))];
        let line_of_gone = vance_supervise::near(gone.clone().live(brain.clone()));
        until("the tools are known", || async {
            let sessions = brain.directory.loaded();
            let clients = sessions.iter().map(|session| session.published().view.clients.len()).sum::<usize>();
            Ok((clients == 2).then_some(()))
        })
        .await?;
        let holds = |id: &str| json!([{"call": "holds", "with": {"name": id}}]);
        let tree = json!({"tasks": [
            {"id": "running", "client": "near", "steps": holds("running")},
            {"id": "suspended", "client": "gone", "steps": holds("suspended")},
            {"id": "unknown", "client": "near", "steps": [{"call": "dies", "with": {"name": "unknown"}}]},
            {"id": "blocked", "client": "later", "steps": holds("blocked")},
            {"id": "queued", "client": "later", "offline_strategy": "queue", "steps": holds("queued")},
            {"id": "pending", "depends_on": ["running"], "steps": [{"call": "now"}]},
            {"id": "completed", "steps": [{"call": "now"}]},
            {"id": "failed", "steps": [{"call": "nobody_has_this"}]},
            {"id": "cancelled", "client": "later", "steps": holds("cancelled")},
            {"id": "skipped", "depends_on": ["failed"], "steps": [{"call": "now"}]},
        ]});
        inside.submit_tree("all", &tree).await?;
        until("it runs", || async { Ok((gone.journal().begun == ["suspended"]).then_some(())) }).await?;
        line_of_gone.abort();
        inside.until_state("cancelled", "blocked").await?;
        say(&inside, "cancelled", || Verb::Cancel { reason: None }).await?;
        let waiting = "Waiting for Client for Tool: holds";
        let before = until("all stand", || async {
            let Some(now) = standing(brain).await else { return Ok(None) };
            let is =
                |id: &str, state: &str, why: &str| now.get(id).is_some_and(|(s, r)| s == state && r.starts_with(why));
            let all = is("running", "running", "")
                && is("suspended", "blocked", waiting)
                && is("unknown", "blocked", "Outcome unknown for Tool: dies")
                && is("blocked", "blocked", waiting)
                && is("queued", "queued", waiting)
                && is("pending", "pending", "")
                && ENDED.iter().all(|id| is(id, id, ""));
            Ok(all.then_some(now))
        })
        .await?;

        for kind in ["store_gate", "registry", "session", "task", "scheduler"] {
            inside.strike(kind).await?;
            until(&format!("all stand as before a panic of {kind}: {before:#?}"), || async {
                Ok((standing(brain).await.as_ref() == Some(&before)).then_some(()))
            })
            .await?;
        }

        let_end.send_replace(true);
        for client in [&gone, &later] {
            living.push(vance_supervise::near(client.clone().live(brain.clone())));
        }
        say(&inside, "unknown", || Verb::Resolve { r#as: "done".to_owned(), output: None }).await?;
        for id in LIVE {
            inside.until_state(id, "completed").await?;
        }
        let after = standing(brain).await.unwrap_or_default();
        for id in ENDED {
            assert_eq!(after.get(id), before.get(id), "{id} is what it was");
        }
        let begun = [&near, &gone, &later].map(|client| client.journal().begun.clone());
        let sorted = |names: &[String]| names.iter().cloned().collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>();
        assert!(begun.iter().all(|names| sorted(names).len() == names.len()), "each ran once: {begun:?}");
        assert_eq!(
            begun.map(|names| sorted(&names)),
            [vec!["running", "unknown"], vec!["suspended"], vec!["blocked", "queued"]]
        );
        living.iter().for_each(tokio::task::JoinHandle::abort);
        inside.root.shutdown().await;
        Ok(())
    })
}

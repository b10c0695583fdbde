//! A Foot on its simulated machine: the real actors, with tools that note each run in the ledger and take their time.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::sleep;
use vance_foot::engine::{self, ByteStream, Connection, FootConfig, Parts, Tool, ToolCall, ToolHost};
use vance_foot_core::permissions::Rules;
use vance_mcp_host::{Elicited, Person, Question};
use vance_shared::call::Outcome;
use vance_shared::gate::Nobody;
use vance_shared::ids::ClientId;
use vance_shared::json::Raw;
use vance_shared::names::{PackName, ToolName};
use vance_shared::tool::{Replay, ToolResult, ToolSpec};

use super::line::{End, Line};
use super::shelf::MemoryJournal;
use super::{BRAIN, PORT, Shared, clock, large, lock};

/// How often the machine looks whether it is to make a part of the Foot fall.
const LOOK: Duration = Duration::from_millis(50);

/// Not an actor: the whole Foot is asked to stop.
pub(super) const STOP: &str = "stop";

/// Which steps ran, in order: only the tools write it. Beside it the answers that they got to their questions.
#[derive(Debug, Clone, Default)]
pub struct Ledger(Arc<Mutex<Vec<(String, usize)>>>, Arc<Mutex<Vec<Heard>>>);

/// What a tool got for its question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heard {
    /// The step that asked.
    pub step: String,
    /// The number that was answered; none: declined, or not answered.
    pub number: Option<u64>,
}

impl Ledger {
    fn note(&self, step: String, foot: usize) {
        lock(&self.0).push((step, foot));
    }

    fn hear(&self, heard: Heard) {
        lock(&self.1).push(heard);
    }

    /// All answers.
    pub fn heard(&self) -> Vec<Heard> {
        lock(&self.1).clone()
    }

    /// How often a step ran.
    pub fn runs(&self, step: &str) -> usize {
        lock(&self.0).iter().filter(|(ran, _)| ran == step).count()
    }

    /// Runs of all steps.
    pub fn all(&self) -> usize {
        lock(&self.0).len()
    }

    /// The Foot that ran the last one.
    pub(super) fn last_foot(&self) -> Option<usize> {
        lock(&self.0).last().map(|(_, foot)| *foot)
    }
}

struct Tools {
    foot: usize,
    /// One run of so many asks; 0: none.
    asks: u32,
    /// One run of so many gives a large result; 0: none.
    large: u32,
    ledger: Ledger,
    note: Arc<dyn Fn(String) + Send + Sync>,
    shared: Shared,
}

impl ToolHost for Tools {
    fn call(&self, call: ToolCall) -> BoxFuture<'static, Outcome> {
        let (foot, ledger, note) = (self.foot, self.ledger.clone(), Arc::clone(&self.note));
        let one_in = move |many: u32| many > 0 && fastrand::u32(0..many) == 0;
        let asks = one_in(self.asks);
        let (large, shared) = (self.large, self.shared.clone());
        Box::pin(async move {
            let said = call.arguments.value();
            let step = said["step"].as_str().or_else(|| said["text"].as_str()).unwrap_or("?").to_owned();
            note(format!("runs {step} ({})", call.call_id));
            ledger.note(step.clone(), foot);
            // Most are quick; some outlast every cut, and say so.
            let ms = if fastrand::u32(0..12) == 0 { fastrand::u64(10_000..40_000) } else { fastrand::u64(1..2_500) };
            let mut left = Duration::from_millis(ms);
            while !left.is_zero() {
                let slice = left.min(Duration::from_secs(4));
                tokio::select! {
                    biased;
                    () = call.cancel.cancelled() => {
                        return Outcome::Cancelled { reason: "the tool was told to stop".to_owned() };
                    }
                    () = sleep(slice) => left -= slice,
                }
                (call.progress)(None, Some(format!("{} ms left", left.as_millis())));
            }
            if asks {
                let number = tokio::select! {
                    biased;
                    () = call.cancel.cancelled() => {
                        return Outcome::Cancelled { reason: "the tool was told to stop while it asked".to_owned() };
                    }
                    number = ask(&call.person, &step) => number,
                };
                note(format!("{step} heard {number:?}"));
                ledger.hear(Heard { step: step.clone(), number });
            }
            let bytes = large::size(large);
            if bytes > 0 {
                note(format!("{step} gives {bytes} bytes"));
                large::cut_within(&shared, foot, bytes);
            }
            Outcome::Done(ToolResult {
                structured: Some(Raw::from(serde_json::json!({ "step": step, "bytes": bytes }))),
                ..ToolResult::text(large::text(&step, bytes))
            })
        })
    }
}

/// A whole number that somebody says.
async fn ask(person: &Person, step: &str) -> Option<u64> {
    let elicit = person.elicit.as_ref()?;
    let _asked = person.asked.begin();
    let question = Question {
        pack: PackName::parse("simulated").ok()?,
        message: format!("a number for {step}"),
        schema: serde_json::json!({"type": "object", "properties": {"number": {"type": "integer"}}, "required": ["number"]}),
        url: None,
    };
    match elicit(question).await {
        Elicited::Accepted(fields) => fields.get("number").and_then(serde_json::Value::as_u64),
        Elicited::Declined | Elicited::Cancelled | Elicited::Unanswered => None,
    }
}

fn tool(tools: &Arc<Tools>, name: &str, replay: Replay) -> Option<Arc<Tool>> {
    let spec = ToolSpec {
        name: ToolName::parse(name).ok()?,
        description: String::new(),
        input_schema: Raw::empty_object(),
        output_schema: None,
        labels: Vec::new(),
        annotations: None,
        replay,
        pack: None,
    };
    Some(Arc::new(Tool { spec, host: tools.clone() }))
}

fn config() -> FootConfig {
    FootConfig {
        home: "/nowhere".into(),
        project_dir: "/nowhere/project".into(),
        packs_dir: None,
        brain_url: format!("http://{BRAIN}:{PORT}").parse().ok(),
        token: Arc::new(|| Some("secret".to_owned()).into()),
        session: None,
        also_sessions: Vec::new(),
        new_session: false,
        name: None,
        client_type: "simulated".to_owned(),
        no_local: true,
        no_tools: true,
        load: engine::Load::Nothing,
        guard_program: "/nowhere".into(),
        rules: Rules::none("permissions.yaml"),
        asker: None,
        nobody: Nobody::NO_TERMINAL,
    }
}

/// The machine's program: a Foot, until the machine falls. Nobody else has its identity, so it is never refused.
pub(super) async fn run(index: usize, shared: Shared) -> turmoil::Result {
    let life = shared.begin_foot(index);
    clock::here(index + 1);
    let note = {
        let story = shared.story.clone();
        Arc::new(move |text: String| story.note(format!("foot {index} (life {life}) {text}")))
    };
    let tools = Arc::new(Tools {
        foot: index,
        asks: shared.asks,
        large: shared.one_large_in,
        ledger: shared.ledger.clone(),
        note,
        shared: shared.clone(),
    });
    let lines = Arc::clone(&shared.lines);
    let parts = Parts {
        client_id: ClientId::parse(&format!("foot_{index}"))?,
        life: u64::from(life),
        journal: Arc::new(MemoryJournal::open(&shared.shelves[index])),
        dial: Arc::new(move |host, port| {
            let lines = Arc::clone(&lines);
            Box::pin(async move {
                let stream = turmoil::net::TcpStream::connect((host, port)).await?;
                let control = lock(&lines).open(index, End::Foot);
                Ok(Box::new(Line::new(stream, control)) as Box<dyn ByteStream>)
            })
        }),
        tools: [tool(&tools, "safe_tool", Replay::Safe), tool(&tools, "unsafe_tool", Replay::Unsafe)]
            .into_iter()
            .flatten()
            .collect(),
        blobs: Some(shared.blobs.path().join(index.to_string())),
    };
    let foot = engine::start_with(FootConfig { name: Some(format!("laptop-{index}")), ..config() }, parts)?;
    let mut connection = foot.connection();
    loop {
        tokio::select! {
            biased;
            Ok(()) = connection.changed() => {
                let now = connection.borrow_and_update().clone();
                lock(&shared.online)[index] = matches!(now, Connection::Online { .. });
                let text = match now {
                    Connection::Online { .. } => "is attached".to_owned(),
                    Connection::Refused { why, .. } => format!("is refused: {why}"),
                    Connection::Connecting | Connection::Local => "looks for the brain".to_owned(),
                };
                shared.story.note(format!("foot {index} {text}"));
            }
            reason = foot.ended() => {
                shared.story.note(format!("foot {index} gave up: {reason}"));
                return Ok(());
            }
            () = sleep(LOOK) => {
                let struck = shared.take_strike(Some(index));
                if struck.as_deref() == Some(STOP) {
                    shared.story.note(format!("foot {index} stops as asked"));
                    foot.shutdown().await;
                    return Ok(());
                }
                if let Some(part) = struck {
                    let fell = foot.strike(&part).await;
                    shared.story.note(format!("foot {index}: {part} struck: {fell}"));
                }
            }
        }
    }
}

//! The Brain's own tools: `web_search`, `http_fetch`, `task_note`, `now`.
//!
//! All of them only read or record, so all may run twice. None reaches further than its configuration says.

mod address;
mod fetch;
mod now;
mod search;

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use vance_brain_core::config::BrainConfig;
use vance_shared::call::Outcome;
use vance_shared::ids::TaskId;
use vance_shared::json::Raw;
use vance_shared::names::ToolName;
use vance_shared::schema::check_arguments;
use vance_shared::tool::{Replay, ToolResult, ToolSpec};

pub use search::{ApiKey, SearchProvider};

/// Their names.
pub const NAMES: [&str; 4] = ["http_fetch", "now", "task_note", "web_search"];

/// The longest note: it is kept with its task.
const MAX_NOTE_CHARS: usize = 16 * 1024;

/// What the built-in tools may do.
#[derive(Debug, Clone, Default)]
pub struct BuiltinConfig {
    /// Who searches; `None`: the tool is there and says how to configure it.
    pub web_search: Option<SearchProvider>,
    /// Whether `http_fetch` may reach loopback, private, link-local and metadata addresses.
    pub http_fetch_allow_private: bool,
}

impl BuiltinConfig {
    /// What the configuration says. The lookups give the value of an environment variable and of a secret; they are asked at each call.
    pub fn of(
        config: &BrainConfig,
        lookup: impl Fn(&str) -> Option<String> + Send + Sync + 'static,
        vault: impl Fn(&str) -> Result<String, String> + Send + Sync + 'static,
    ) -> Self {
        let web_search = config.web_search.as_ref().map(|search| {
            let api_key = search.api_key.clone().map(|key| {
                ApiKey::new(move || {
                    let found = key.resolve(&lookup, &vault);
                    found.map_err(|error| format!("brain.yaml: web_search.api_key: {error}"))
                })
            });
            SearchProvider { kind: search.kind, base_url: search.base_url.clone(), api_key }
        });
        Self { web_search, http_fetch_allow_private: config.http_fetch.allow_private }
    }
}

/// One call of a built-in tool.
#[derive(Debug, Clone)]
pub struct BuiltinCall {
    /// The tool's name.
    pub tool: String,
    /// Its arguments.
    pub arguments: Raw,
    /// How long it may take.
    pub timeout: Duration,
    /// Ends it early.
    pub cancel: CancellationToken,
    /// The task that calls.
    pub context: Option<TaskId>,
}

/// Where the time comes from.
type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// The built-in tools: cheap to clone.
#[derive(Clone)]
pub struct Builtins(Arc<Inner>);

struct Inner {
    specs: Vec<ToolSpec>,
    search: search::Search,
    fetch: fetch::Fetch,
    clock: Clock,
}

impl Builtins {
    /// The tools as configured. TLS needs an installed crypto provider by the first call of `web_search` or `http_fetch`.
    pub fn new(config: BuiltinConfig) -> Self {
        Self::with_clock(config, Arc::new(SystemTime::now))
    }

    /// The same, with a clock of one's own.
    pub fn with_clock(config: BuiltinConfig, clock: Clock) -> Self {
        let specs = specs();
        let fetch = fetch::Fetch::new(config.http_fetch_allow_private);
        Self(Arc::new(Inner { specs, search: search::Search::new(config.web_search), fetch, clock }))
    }

    /// What there is.
    pub fn specs(&self) -> Vec<ToolSpec> {
        self.0.specs.clone()
    }

    /// Runs one.
    pub async fn call(&self, call: BuiltinCall) -> Outcome {
        let Some(spec) = self.0.specs.iter().find(|spec| spec.name.as_str() == call.tool) else {
            let name = vance_shared::show::quoted(&call.tool, 80);
            return Outcome::failed("unknown_tool", format!("{name} is no built-in tool"));
        };
        let arguments = call.arguments.value();
        if let Err(error) = check_arguments(&spec.input_schema, &arguments) {
            return Outcome::Failed { error, result: None };
        }
        let timeout = call.timeout;
        tokio::select! {
            biased;
            () = call.cancel.cancelled() => Outcome::Cancelled { reason: "cancelled by the caller".to_owned() },
            outcome = tokio::time::timeout(timeout, self.run(spec.name.as_str(), arguments)) => outcome.unwrap_or_else(|_| {
                Outcome::failed("timeout", format!("{} gave no answer within {} ms", spec.name, timeout.as_millis()))
            }),
        }
    }

    async fn run(&self, tool: &str, arguments: Value) -> Outcome {
        match tool {
            "web_search" => match arguments_of(arguments) {
                Ok(wanted) => self.0.search.run(wanted).await,
                Err(outcome) => outcome,
            },
            "http_fetch" => match arguments_of(arguments) {
                Ok(wanted) => self.0.fetch.run(wanted).await,
                Err(outcome) => outcome,
            },
            "now" => match arguments_of(arguments) {
                Ok(wanted) => now::run(wanted, (self.0.clock)()),
                Err(outcome) => outcome,
            },
            "task_note" => match arguments_of::<Note>(arguments) {
                Ok(note) => Outcome::Done(ToolResult::structured(json!({"noted": true, "text": note.text}))),
                Err(outcome) => outcome,
            },
            other => Outcome::failed("unknown_tool", format!("{other} is no built-in tool")),
        }
    }
}

impl fmt::Debug for Builtins {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builtins").field("tools", &self.0.specs.len()).finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct Note {
    text: String,
}

/// After the schema said yes this only fails where schema and type disagree.
fn arguments_of<T: for<'de> Deserialize<'de>>(arguments: Value) -> Result<T, Outcome> {
    serde_json::from_value(arguments)
        .map_err(|error| Outcome::failed("invalid_argument", vance_shared::show::plain(&error.to_string())))
}

fn specs() -> Vec<ToolSpec> {
    [
        spec("web_search", "Searches the web and gives titles, addresses and snippets.", &["read-only", "web"], search::schemas()),
        spec(
            "http_fetch",
            "Fetches a web page or file by its address (GET). Text comes as text, anything else as base64.",
            &["read-only", "web"],
            fetch::schemas(),
        ),
        spec(
            "task_note",
            "Keeps a note with the task.",
            &["read-only"],
            (
                json!({
                    "type": "object",
                    "properties": {"text": {"type": "string", "minLength": 1, "maxLength": MAX_NOTE_CHARS, "description": "The note."}},
                    "required": ["text"],
                    "additionalProperties": false
                }),
                json!({
                    "type": "object",
                    "properties": {"noted": {"type": "boolean"}, "text": {"type": "string"}},
                    "required": ["noted", "text"]
                }),
            ),
        ),
        spec("now", "Tells date and time.", &["read-only"], now::schemas()),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// `None` only for a name that is none, which a test rules out.
fn spec(name: &str, description: &str, labels: &[&str], (input, output): (Value, Value)) -> Option<ToolSpec> {
    let labels = std::iter::once("built_in").chain(labels.iter().copied()).map(str::to_owned).collect();
    Some(ToolSpec {
        name: ToolName::parse(name).ok()?,
        description: description.to_owned(),
        input_schema: Raw::from(input),
        output_schema: Some(Raw::from(output)),
        labels,
        annotations: None,
        replay: Replay::Safe,
        pack: None,
    })
}

/// A body, at most `limit` bytes of it, and whether there was more.
async fn body(mut response: reqwest::Response, limit: usize) -> Result<(Vec<u8>, bool), reqwest::Error> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        let room = limit - bytes.len();
        if chunk.len() > room {
            bytes.extend_from_slice(&chunk[..room]);
            return Ok((bytes, true));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok((bytes, false))
}

/// An error with its causes: reqwest's own text leaves out the one that helps. Safe to show, without the address's query.
fn causes(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    vance_shared::show::plain(&text)
}

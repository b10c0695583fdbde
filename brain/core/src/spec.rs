//! What people write about tools and tasks, after parsing: wrong combinations cannot be written down here.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use vance_shared::names::ToolName;

/// One side of the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The Brain.
    Server,
    /// A connected client.
    Client,
}

/// Where a tool can run. `prefer_server` and `prefer_client` are `Both` with their preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Location {
    /// Only on the server.
    Server,
    /// Only on a client.
    Client,
    /// On both sides.
    Both {
        /// The default side.
        prefer: Side,
    },
}

impl Location {
    /// The word of the registry and the API: `server`, `client`, `prefer_server`, `prefer_client`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Client => "client",
            Self::Both { prefer: Side::Server } => "prefer_server",
            Self::Both { prefer: Side::Client } => "prefer_client",
        }
    }
}

/// What happens when a client tool has no client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OfflineStrategy {
    /// The task waits, blocked.
    Block,
    /// The task is skipped.
    Skip,
    /// The tool's alternative runs.
    Fallback,
    /// The task goes into the session's pending-client queue.
    Queue,
}

/// Where a task wants its calls to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecutionTarget {
    /// By the tool's location.
    #[default]
    Auto,
    /// Must run on the server.
    Server,
    /// Must run on a client.
    Client,
    /// Whatever is there.
    Any,
}

/// What an unknown outcome means for the task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnUnknown {
    /// Block until a person decides.
    #[default]
    Ask,
    /// Fail.
    Fail,
    /// Run again, also if it may have run.
    Retry,
}

/// When a task runs although a dependency did not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunIf {
    /// Only after success.
    #[default]
    Success,
    /// In any case.
    Always,
}

/// Whether a client is expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// A person works along.
    #[default]
    Interactive,
    /// No client expected: client tools queue.
    Autonomous,
}

/// Attempts of a failing task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retry {
    /// All attempts together, at least 1.
    pub max_attempts: u32,
    /// Before the second attempt; doubles each time.
    pub backoff: Duration,
}

impl Default for Retry {
    /// A failed step fails the task.
    fn default() -> Self {
        Self { max_attempts: 1, backoff: Duration::from_secs(1) }
    }
}

/// One step: one call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepSpec {
    /// The tool.
    pub call: ToolName,
    /// Arguments; strings may hold `{{ … }}`.
    #[serde(default)]
    pub with: serde_json::Map<String, Value>,
    /// Name of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub r#as: Option<String>,
    /// Deadline of the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
}

/// One task of a tree. Nesting is flattened: `parent` names the file's id of the task around it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TaskSpec {
    /// The file's id, unique in the tree.
    pub id: String,
    /// The task around this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// For people, and for the model of a task without steps.
    #[serde(default)]
    pub goal: String,
    /// Tools that the task may use, names or `@labels`; `None`: those of its steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Where calls run.
    #[serde(default)]
    pub execution_target: ExecutionTarget,
    /// The task's own strategy; `None`: engine, tool, default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offline_strategy: Option<OfflineStrategy>,
    /// Ids that must be done first.
    #[serde(default)]
    pub depends_on: Vec<String>,
    /// A client's name or id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Another machine may go on.
    #[serde(default)]
    pub any_client: bool,
    /// Policy for unknown outcomes.
    #[serde(default)]
    pub on_unknown: OnUnknown,
    /// Run after failure too?
    #[serde(default)]
    pub run_if: RunIf,
    /// Attempts.
    #[serde(default)]
    pub retry: Retry,
    /// Deadline of the whole task while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Duration>,
    /// Tasks below it that may run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_parallel: Option<u32>,
    /// Tasks of its tree that may run at once; the same for all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree_max_parallel: Option<u32>,
    /// Fixed steps. Empty: a parent that waits for its children, or a goal for a model.
    #[serde(default)]
    pub steps: Vec<StepSpec>,
}

/// A submitted tree, valid as a whole: ids unique, references known, no cycle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TreeSpec {
    /// Session by id; `None`: the caller's default session (autonomous: a new one).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Is a client expected?
    #[serde(default)]
    pub mode: Mode,
    /// The engine's tool sets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<EngineRef>,
    /// All tasks, parents before their children.
    pub tasks: Vec<TaskSpec>,
}

/// An engine by id (from `engines/`) or written out.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EngineRef {
    /// `engine: eng_literature_review`.
    Id(String),
    /// The block of the routing document §8.
    Inline(EngineSpec),
}

/// Tool sets of a think process. A tool outside the sets is unknown to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EngineSpec {
    /// Name.
    pub id: String,
    /// Server tools; `None`: no `tools` block, everything is allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<Vec<String>>,
    /// Client tools.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<Vec<String>>,
    /// Fall back to the server's alternative while no client is there.
    #[serde(default)]
    pub auto_fallback: bool,
    /// The engine's strategy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offline_strategy: Option<OfflineStrategy>,
}

/// What stands behind a registry entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Backing {
    /// A tool of an MCP server: the pack's name, and its own tool's name if it differs from the entry's.
    McpServer {
        /// The pack.
        pack: String,
        /// Sub-tool.
        tool: Option<String>,
    },
    /// In the client itself.
    Native,
    /// In the Brain itself.
    BuiltIn,
}

/// One entry of `tools.yaml`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RegistryEntry {
    /// The tool's name as tasks use it.
    pub name: ToolName,
    /// Where it can run.
    pub location: Location,
    /// What it stands for; `None`: whoever offers a tool of this name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backing: Option<Backing>,
    /// Overrides the tool's own description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Added labels.
    #[serde(default)]
    pub labels: Vec<String>,
    /// The entry's strategy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offline_strategy: Option<OfflineStrategy>,
    /// Alternative for `fallback`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback_tool: Option<ToolName>,
}

/// `tools.yaml`, by name.
pub type RegistryFile = BTreeMap<ToolName, RegistryEntry>;

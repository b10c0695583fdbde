//! What a pack wants to start, as one value: reach, prompt and spawn all come from it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

pub use crate::gate::{NeedsConsent, TrustedLaunch};
use crate::names::PackName;
use crate::tool::Replay;

/// Who wrote the pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The user's own home, on the Foot.
    Global,
    /// The Brain's own home.
    Server,
    /// The working directory: content of whatever was cloned.
    Project,
}

/// How to reach the MCP server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transport {
    /// A child process that speaks on stdin and stdout.
    Stdio {
        /// Program and arguments, never a shell line.
        argv: Vec<String>,
        /// Working directory; `None` is a private empty one.
        cwd: Option<String>,
        /// Added to the allow-listed environment; values may hold `${env:NAME}`.
        env: BTreeMap<String, String>,
    },
    /// Streamable HTTP.
    Http {
        /// The endpoint; behind its `?` it may hold `${env:NAME}` (a key that the server wants in the query).
        url: String,
        /// Constant headers (credentials included); values may hold `${env:NAME}`.
        headers: BTreeMap<String, String>,
    },
}

/// Restarts within a window before the server counts as failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartBudget {
    /// At most this many…
    pub max_restarts: u32,
    /// …within this time.
    pub within: Duration,
}

impl Default for RestartBudget {
    /// A crash-loop is told from a bad day: five restarts a minute.
    fn default() -> Self {
        Self { max_restarts: 5, within: Duration::from_secs(60) }
    }
}

/// Everything that starting one MCP server takes, made once from the pack's bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct LaunchPlan {
    /// The pack.
    pub pack: PackName,
    /// Who wrote it.
    pub origin: Origin,
    /// What is started or reached.
    pub transport: Transport,
    /// Until the server has answered its handshake and listed its tools.
    pub init_timeout: Duration,
    /// One call's default deadline.
    pub call_timeout: Duration,
    /// The pack's labels.
    pub labels: Vec<String>,
    /// Sub-tools that are not offered.
    pub disabled_sub_tools: Vec<String>,
    /// Arguments that are added where the tool's schema declares the key and the caller did not give it.
    pub default_args: Map<String, Value>,
    /// Replay class by sub-tool: the pack's own word.
    pub replay: BTreeMap<String, Replay>,
    /// How often it may crash.
    pub restart: RestartBudget,
    /// The file that says all this.
    pub source: Source,
}

/// What the gate has to know of the pack file besides the plan. The default is that of a plan without a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    /// The file, as its reader named it.
    pub file: String,
    /// The whole pack as canonical JSON (sorted keys), unknown fields included, `enabled` left out: what a digest is made of.
    pub canonical: String,
    /// The last part of the url's query is a credential of `auth`, not a part of the address.
    pub credential_in_query: bool,
}

//! The wire between Brain and Foot: one WebSocket, text frames, one JSON object per frame, `{"type": …}` in snake_case.
//! Unknown fields are ignored, unknown types are answered with `error`. Every variant has a golden frame under `wire/golden/`.

use serde::{Deserialize, Serialize};

use crate::call::{Fault, Outcome};
use crate::ids::{CallId, ClientId, SessionId};
use crate::json::Raw;
use crate::question::Question;
use crate::tool::{Annotations, Replay, ToolSpec};
use crate::trace::TraceContext;

mod blob;
mod codec;
mod elicit;
mod parts;
pub use blob::{BlobGet, BlobPart};
pub use codec::{Decoded, decode_to_brain, decode_to_foot, encode};
pub use elicit::{Elicit, ElicitEnd, ElicitReply};
pub use parts::{Assembly, PartError, split, too_large_to_send};

/// The version that both ends of this release speak.
pub const PROTOCOL: u32 = 1;

/// Close code: a later connection of the same client took over; do not reconnect.
pub const CLOSE_SUPERSEDED: u16 = 4409;
/// Close code: the token is not (or no longer) good.
pub const CLOSE_UNAUTHORIZED: u16 = 4401;
/// Close code: the session belongs to somebody else.
pub const CLOSE_FORBIDDEN: u16 = 4403;
/// Close code: no common protocol version.
pub const CLOSE_PROTOCOL: u16 = 4406;
/// Close code: no hello in time.
pub const CLOSE_HELLO_TIMEOUT: u16 = 4408;
/// Close code: the peer broke the wire's rules beyond repair.
pub const CLOSE_BAD_FRAME: u16 = 4400;
/// Close code: the Brain is going away; reconnect.
pub const CLOSE_DRAINING: u16 = 4503;

/// Frames from a Foot.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[allow(missing_docs, clippy::large_enum_variant)] // each variant is its struct's name; the hello is sent once per connection
pub enum ToBrain {
    ClientConnected(ClientConnected),
    ToolsChanged(ToolsChanged),
    Accepted(Accepted),
    Progress(Progress),
    Result(CallResult),
    ResultPart(ResultPart),
    Elicit(Question),
    ElicitEnd(ElicitEnd),
    ElicitReply(ElicitReply),
    BlobPart(BlobPart),
    Ping(Ping),
    Pong(Ping),
    Drain(Drain),
    Error(ErrorFrame),
}

/// Frames from the Brain.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[allow(missing_docs)] // each variant is its struct's name
pub enum ToFoot {
    Welcome(Welcome),
    Call(Call),
    ResultAck(ResultAck),
    Cancel(Cancel),
    ElicitReply(ElicitReply),
    Elicit(Box<Elicit>),
    ElicitEnd(ElicitEnd),
    BlobGet(BlobGet),
    Ping(Ping),
    Pong(Ping),
    Drain(Drain),
    Error(ErrorFrame),
}

/// First frame of a Foot: the routing document's shape plus what this release adds. A client that sends only the
/// document's fields is served.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientConnected {
    /// Session to attach to; without one the caller's default session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<SessionId>,
    /// Further sessions that it serves: those of the same owner, made if they are not there; at most
    /// [`ALSO_SESSIONS`](crate::limits::ALSO_SESSIONS).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also_sessions: Vec<SessionId>,
    /// Make a new session instead.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub new_session: bool,
    /// `desktop`, `cli`, `daemon`, …: for people.
    pub client_type: String,
    /// All tools of the client, as of now.
    pub available_tools: Vec<WireTool>,
    /// Versions that the client speaks; empty means version 1.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub protocol: Vec<u32>,
    /// Stable identity; without one the client is a stranger on each connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_id: Option<ClientId>,
    /// A name for people (`--name`), default the machine's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The last epoch that the Brain gave this client.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// Which life of this identity it is: rises with each start of its process. A hello of an earlier life than one that came
    /// already is that of a process that is gone, and is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub life: Option<u64>,
    /// Machine name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
    /// Working directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// Packs that are still starting: a name that starts with `<pack>__` counts as absent, not unknown.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub loading: Vec<String>,
    /// The client's calls as its journal knows them.
    pub inflight: Inflight,
}

/// Calls by what a journal says of them.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Inflight {
    /// Accepted and running now.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub running: Vec<CallId>,
    /// Ended; the result will be sent (again) until it is acknowledged.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finished: Vec<CallId>,
    /// Accepted, but the process that ran it is dead and no result was kept.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interrupted: Vec<CallId>,
}

/// A tool as a client reports it. Name and shapes are checked tool by tool: a bad one is refused with a reason, the others stay.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct WireTool {
    /// Full name.
    pub name: String,
    /// `mcp`, `native` or `rest`.
    #[serde(rename = "type", default = "native")]
    pub kind: String,
    /// The MCP server (pack) behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp_server: Option<String>,
    /// For people and models.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// JSON Schema of the arguments; absent means any object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Raw>,
    /// JSON Schema of the structured result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Raw>,
    /// Labels.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub labels: Vec<String>,
    /// The server's hints.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub annotations: Option<Annotations>,
    /// Replay class as the client decided it; absent means unsafe.
    #[serde(default)]
    pub replay: Replay,
}

fn native() -> String {
    "native".to_owned()
}

impl From<&ToolSpec> for WireTool {
    fn from(tool: &ToolSpec) -> Self {
        let kind = if tool.pack.is_some() { "mcp" } else { "native" };
        Self {
            name: tool.name.as_str().to_owned(),
            kind: kind.to_owned(),
            mcp_server: tool.pack.clone(),
            description: tool.description.clone(),
            input_schema: Some(tool.input_schema.clone()),
            output_schema: tool.output_schema.clone(),
            labels: tool.labels.clone(),
            annotations: tool.annotations.clone(),
            replay: tool.replay,
        }
    }
}

/// What changed in a client's tools since its hello.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ToolsChanged {
    /// New tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<WireTool>,
    /// Names that went away.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
    /// Tools whose definition changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed: Vec<WireTool>,
    /// Packs that are still starting (the whole list, replaces the last one).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loading: Option<Vec<String>>,
}

/// The Brain's answer to a hello.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// The session that the client is attached to.
    pub session_id: SessionId,
    /// The client's identity (made by the Brain if the client had none).
    pub client_id: ClientId,
    /// Fencing number of this connection: results count only with it.
    pub epoch: u64,
    /// The version that is spoken from here on.
    pub protocol: u32,
    /// Time between pings.
    pub heartbeat_ms: u64,
    /// What the Brain accepts.
    pub limits: Limits,
    /// Tools that were not taken, each with its reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refused>,
    /// Calls that the Brain holds open on this client. What the client finished and the Brain does not list may be forgotten.
    #[serde(default)]
    pub inflight: Vec<CallId>,
}

/// Limits of the other end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// One frame, in bytes.
    pub frame_bytes: usize,
    /// One result over all its parts, in bytes.
    pub message_bytes: usize,
    /// Calls in flight to one client.
    pub inflight_calls: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            frame_bytes: crate::limits::FRAME_BYTES,
            message_bytes: crate::limits::MESSAGE_BYTES,
            inflight_calls: crate::limits::INFLIGHT_CALLS,
        }
    }
}

/// A tool that was not taken.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Refused {
    /// The name as it was reported.
    pub name: String,
    /// Why.
    pub reason: String,
}

/// Run a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Idempotency key: run at most once.
    pub call_id: CallId,
    /// Counts deliveries of this call, from 1.
    pub attempt: u32,
    /// The tool.
    pub tool: String,
    /// A JSON object.
    pub arguments: Raw,
    /// Time until the deadline, in milliseconds (relative: clocks differ between machines).
    pub timeout_ms: u64,
    /// Progress extends the deadline up to this, in milliseconds from now.
    pub cap_ms: u64,
    /// A question of the call's server may wait for its answer this long, in milliseconds; meanwhile the deadline stands still. Absent:
    /// [`ANSWER_WITHIN`](crate::limits::ANSWER_WITHIN).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer_ms: Option<u64>,
    /// Where the call belongs in its trace.
    pub traceparent: TraceContext,
}

/// The call is in the client's journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Accepted {
    /// The call.
    pub call_id: CallId,
    /// The delivery that was accepted.
    pub attempt: u32,
    /// The call's trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<TraceContext>,
}

/// A running call says how far it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// The call.
    pub call_id: CallId,
    /// 0 to 1, if the tool says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fraction: Option<f64>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The call's trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<TraceContext>,
}

/// A call ended. Sent again after each reconnect until `result_ack`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CallResult {
    /// The call.
    pub call_id: CallId,
    /// The delivery that ran.
    pub attempt: u32,
    /// The verdict.
    pub outcome: Outcome,
    /// The call's trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<TraceContext>,
}

/// A piece of a `result` frame that is too large for one frame: the pieces' texts, joined by `seq`, are that frame.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultPart {
    /// The call.
    pub call_id: CallId,
    /// From 0.
    pub seq: u32,
    /// No more parts follow.
    pub last: bool,
    /// A piece of the frame's text.
    pub data: String,
    /// The call's trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<TraceContext>,
}

/// The result is stored: the client may forget it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResultAck {
    /// The call.
    pub call_id: CallId,
}

/// Stop a call. Overtakes everything that waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cancel {
    /// The call.
    pub call_id: CallId,
    /// For people.
    pub reason: String,
    /// The call's trace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<TraceContext>,
}

/// Heartbeat; the answer carries the same number.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Ping {
    /// Anything; comes back in `pong`.
    pub nonce: u64,
}

/// No new calls; running ones finish.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Drain {
    /// For people.
    pub reason: String,
}

/// Something was wrong with a frame or a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorFrame {
    /// Stable, snake_case.
    pub code: String,
    /// What is wrong and what to do.
    pub message: String,
    /// The call or other id that it concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
}

impl ErrorFrame {
    /// From a fault.
    pub fn of(fault: Fault, id: Option<String>) -> Self {
        Self { code: fault.code, message: fault.message, id }
    }
}

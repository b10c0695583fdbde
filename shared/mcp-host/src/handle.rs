//! What others hold of a server: its handle, its state, and the words for a call.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use vance_observability::names::{CALL_ID, PACK, SPAN_MCP_CALL, SPAN_REST_CALL, TOOL};
use vance_observability::spans::{Kind, Span};
use vance_shared::call::Outcome;
use vance_shared::ids::CallId;
use vance_shared::json::Raw;
use vance_shared::names::ToolName;
use vance_shared::tool::ToolSpec;
use vance_shared::trace::TraceContext;

use crate::call::{self, Answer, Deadline, Ended, ProgressSink};
use crate::conn::{Ask, Call};
use crate::env::Words;
use crate::flights::Flight;
use crate::lane::InFlight;
use crate::mask::Mask;
use crate::people::{Person, SAMPLING_IS_OFF};
use crate::rest::ReadFile;
use crate::sandbox::Sandbox;
use crate::shared::{Back, Live, Mcp, Shared};
use crate::tools::Work;
use crate::vault::Vault;

/// Rounds in which a server may ask for the roots before it has to answer.
const INPUT_ROUNDS: u32 = 4;

/// Where a host runs and who it is.
#[derive(Debug, Clone)]
pub struct HostEnv {
    /// Below it every pack has its private working directory (`work/<pack>`).
    pub state_dir: PathBuf,
    /// Below it are the logins (`oauth/`): one place for all processes of a home, so that a login in one serves the others.
    pub logins_dir: PathBuf,
    /// The folder of the pack files, of those that did not come with the project: what they name lies there.
    pub packs_dir: PathBuf,
    /// Reads files that requests to HTTP APIs name; none where that is not done.
    pub read_file: Option<ReadFile>,
    /// Where secrets are, and logins instead of files.
    pub vault: Option<Arc<dyn Vault>>,
    /// The project that servers are told of; none on a Brain.
    pub project_dir: Option<PathBuf>,
    /// A program that can be a guard; see [`crate::guard::Spawn`].
    pub guard_program: PathBuf,
    /// The client's name in the handshake.
    pub client_name: String,
    /// What child processes may reach beside their own folders and the project; none is everything.
    pub sandbox: Option<Sandbox>,
}

impl HostEnv {
    /// What references stand for here.
    pub(crate) fn words<'a>(&'a self, variables: &'a BTreeMap<OsString, OsString>) -> Words<'a> {
        Words::new(variables, self.vault.as_deref())
    }
}

/// Receives what happens to a server. Called from its tasks: quick, and never blocking.
pub type EventSink = Arc<dyn Fn(HostEvent) + Send + Sync>;

/// What happens to a server.
#[derive(Debug, Clone, PartialEq)]
pub enum HostEvent {
    /// It runs, and these are its tools.
    Up {
        /// What it offers.
        tools: Vec<ToolSpec>,
        /// What is not offered, and why.
        warnings: Vec<String>,
    },
    /// It offers something else now.
    ToolsChanged {
        /// All it offers.
        tools: Vec<ToolSpec>,
    },
    /// It does not run, and will be started again (or was stopped).
    Down {
        /// Why.
        reason: String,
    },
    /// It does not run, and is tried only now and then.
    Failed {
        /// Why.
        reason: String,
    },
}

/// How a server is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HostState {
    /// For the first time.
    Starting,
    /// Calls are taken.
    Up,
    /// After an end.
    Restarting {
        /// Why it ended.
        reason: String,
    },
    /// It ended too often, or cannot be started; it is tried now and then.
    Failed {
        /// Why.
        reason: String,
    },
    /// On request; it does not come back.
    Stopped,
}

impl std::fmt::Display for HostState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Starting => f.write_str("starting"),
            Self::Up => f.write_str("up"),
            Self::Restarting { reason } => write!(f, "restarting: {reason}"),
            Self::Failed { reason } => write!(f, "failed: {reason}"),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

/// How far a call is.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// 0 to 1, if the server knows the total.
    pub fraction: Option<f64>,
    /// The server's words.
    pub message: Option<String>,
}

/// One call of one tool.
pub struct CallRequest {
    /// Its id: the idempotency key.
    pub call_id: CallId,
    /// The tool's full name.
    pub tool: ToolName,
    /// A JSON object (`null` counts as an empty one).
    pub arguments: Raw,
    /// Without a sign of life for this long it has failed…
    pub timeout: Duration,
    /// …and after this long in any case. Less than `timeout` counts as `timeout`.
    pub cap: Duration,
    /// The span around it; the one of the request itself travels to the server as `traceparent`.
    pub trace: TraceContext,
    /// Cancels it, before the start and during it.
    pub cancel: CancellationToken,
    /// Hears its progress.
    pub progress: Option<ProgressSink>,
    /// Who is asked what the server wants to know in the middle of it.
    pub person: Person,
}

/// A server, for those who call it. Valid over its restarts.
#[derive(Clone)]
pub struct McpHandle(pub(crate) Arc<Shared>);

impl McpHandle {
    /// How the server is.
    pub fn state(&self) -> HostState {
        self.0.state()
    }

    /// What the server offers now; nothing while it is not up.
    pub fn tools(&self) -> Arc<[ToolSpec]> {
        self.0.live().map_or_else(|| Arc::new([]) as Arc<[ToolSpec]>, |live| Arc::clone(&live.table.load().specs))
    }

    /// The protocol version that was agreed on; none while the server is not up.
    pub fn protocol(&self) -> Option<String> {
        self.0.live().and_then(|live| match &live.back {
            Back::Mcp(mcp) => mcp.protocol.clone(),
            Back::Rest(_) => None,
        })
    }

    /// Calls a tool and waits for its end. Dropping the future cancels the call.
    pub async fn call(&self, mut request: CallRequest) -> Outcome {
        if request.cancel.is_cancelled() {
            return Outcome::Cancelled { reason: "cancelled before it began".to_owned() };
        }
        let Some(live) = self.0.live() else {
            let (pack, state) = (&self.0.plan().pack, self.state());
            return Outcome::failed(
                "unavailable",
                format!("the server of pack '{pack}' is not up ({state}); nothing ran"),
            );
        };
        let mask = self.0.mask();
        request.progress = request.progress.map(|sink| masked(sink, Arc::clone(&mask)));
        call::bounded(self.call_live(&live, request, &mask).await)
    }

    async fn call_live(&self, live: &Live, request: CallRequest, mask: &Mask) -> Outcome {
        let Some(route) = live.table.load().routes.get(&request.tool).cloned() else {
            let pack = &self.0.plan().pack;
            return Outcome::failed(
                "unknown_tool",
                format!("pack '{pack}' has no tool '{}' (any more); nothing ran", request.tool),
            );
        };
        let arguments = match crate::tools::with_defaults(&request.arguments, &route.defaults) {
            Ok(arguments) => crate::tools::put_right(arguments, route.coercion.as_deref()),
            Err(why) => return Outcome::failed("invalid_arguments", format!("{}: {why}", request.tool)),
        };
        let name = match &live.back {
            Back::Mcp(_) => SPAN_MCP_CALL,
            Back::Rest(_) => SPAN_REST_CALL,
        };
        let mut span = Span::below(name, Kind::Client, request.trace)
            .with(CALL_ID, &request.call_id)
            .with(TOOL, &request.tool)
            .with(PACK, &self.0.plan().pack);
        let mcp = match &live.back {
            Back::Mcp(mcp) => mcp,
            Back::Rest(pack) => {
                let outcome = mask.outcome(pack.call(&request, &route.subtool, &arguments, &mut span).await);
                span.end_as(&outcome);
                return outcome;
            }
        };
        let boarded = self.0.flights().begin(&request);
        if let Work::Read(reading) = route.work {
            let outcome =
                reading.run(self, mcp, &request, &boarded.flight, &arguments, &span.context().to_string()).await;
            let outcome = mask.outcome(outcome);
            span.end_as(&outcome);
            return outcome;
        }
        let round = Call {
            subtool: route.subtool,
            arguments,
            traceparent: span.context().to_string(),
            call_id: request.call_id.to_string(),
            input: None,
        };
        let outcome = mask.outcome(self.rounds(mcp, &request, &boarded.flight, round).await);
        span.end_as(&outcome);
        outcome
    }

    async fn rounds(&self, mcp: &Mcp, request: &CallRequest, asks: &Flight, mut round: Call) -> Outcome {
        let mut deadline = Deadline::new(Instant::now(), request.timeout, request.cap);
        for _ in 0..INPUT_ROUNDS {
            let flight = mcp.conn.call(&round);
            match self.wait(flight, request, &mut deadline).await {
                Ended::Reply(reply) => match call::judge(reply) {
                    Answer::Finished(outcome) => return outcome,
                    Answer::Input(input) => match self.answer(input, request, asks, &mut deadline).await {
                        Ok(input) => round.input = Some(input),
                        Err(outcome) => return outcome,
                    },
                },
                Ended::Cancelled => return cancelled(),
                Ended::Deadline => return too_long(request, &deadline),
            }
        }
        too_many_rounds()
    }

    /// A request that is no call, over all rounds in which the server asks something first.
    pub(crate) async fn ask(
        &self,
        mcp: &Mcp,
        request: &CallRequest,
        asks: &Flight,
        deadline: &mut Deadline,
        mut ask: Ask,
    ) -> Result<Raw, Outcome> {
        for _ in 0..INPUT_ROUNDS {
            let flight = mcp.conn.ask(&ask);
            let raw = match self.wait(flight, request, deadline).await {
                Ended::Reply(reply) => call::settle(reply)?,
                Ended::Cancelled => return Err(cancelled()),
                Ended::Deadline => return Err(too_long(request, deadline)),
            };
            let Some(input) = call::input_of(&raw) else { return Ok(raw) };
            ask.input = Some(self.answer(input, request, asks, deadline).await?);
        }
        Err(too_many_rounds())
    }

    async fn wait(&self, flight: InFlight, request: &CallRequest, deadline: &mut Deadline) -> Ended {
        let (progress, asked) = (request.progress.as_ref(), &request.person.asked);
        call::wait(flight, deadline, &request.cancel, progress, asked, self.0.flights().asking()).await
    }

    /// What a server asks in the middle of a call: the roots are known, a person is asked, a model is not.
    async fn answer(
        &self,
        input: call::InputRequired,
        request: &CallRequest,
        asks: &Flight,
        deadline: &mut Deadline,
    ) -> Result<crate::conn::Input, Outcome> {
        let mut responses = serde_json::Map::new();
        for (key, asked) in &input.input_requests {
            let answer = match asked.method.as_str() {
                "roots/list" => crate::client::roots_json(self.0.env().project_dir.as_deref()),
                "elicitation/create" => {
                    let mut params = asked.params.clone();
                    self.0.mask().value(&mut params);
                    let answer = tokio::select! {
                        answer = asks.ask(self.0.people(), &self.0.plan().pack, &params) => answer,
                        () = request.cancel.cancelled() => return Err(cancelled()),
                    };
                    // A person's time is not the server's.
                    deadline.asked(&request.person.asked);
                    answer
                }
                "sampling/createMessage" => return Err(Outcome::failed("input_required", SAMPLING_IS_OFF)),
                other => {
                    let method = vance_shared::show::quoted(other, 60);
                    let why = format!("the server asks for {method}, which cannot be answered here");
                    return Err(Outcome::failed("input_required", why));
                }
            };
            responses.insert(key.clone(), answer);
        }
        Ok(crate::conn::Input { responses, state: input.request_state })
    }
}

/// Hears progress as it may be shown.
fn masked(sink: ProgressSink, mask: Arc<Mask>) -> ProgressSink {
    Arc::new(move |mut progress| {
        progress.message = progress.message.map(|message| mask.owned(message));
        sink(progress);
    })
}

fn cancelled() -> Outcome {
    Outcome::Cancelled { reason: "cancelled; the server was asked to stop".to_owned() }
}

fn too_long(request: &CallRequest, deadline: &Deadline) -> Outcome {
    let limit = if deadline.is_last() && request.cap > request.timeout {
        format!("{} s, the most that progress can add up to,", in_seconds(request.cap))
    } else {
        format!("{} s without progress", in_seconds(request.timeout))
    };
    Outcome::failed("timeout", format!("no result within {limit}; the server was asked to stop, but may have run it"))
}

/// To a tenth: what is left of a second on the way to the server is nobody's matter.
fn in_seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 10.0).round() / 10.0
}

fn too_many_rounds() -> Outcome {
    Outcome::failed("mcp_error", format!("the server asked for input {INPUT_ROUNDS} times without a result"))
}

impl std::fmt::Debug for McpHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpHandle").field("pack", &self.0.plan().pack).field("state", &self.state()).finish()
    }
}

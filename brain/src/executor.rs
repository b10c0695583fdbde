//! Runs server tools: built-in ones and those of server packs. A call is a task on the I/O runtime with its own cancel.

use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use vance_mcp_host::{CallRequest, HostState, McpHandle, ProgressSink};
use vance_observability::names::{CALL_ID, SPAN_TOOL_RUN, TASK_ID, TOOL};
use vance_observability::spans::{Kind, Span};
use vance_shared::call::Outcome;
use vance_shared::ids::{CallId, TaskId};
use vance_shared::json::Raw;
use vance_shared::limits::PROGRESS_CAP;
use vance_shared::names::ToolName;
use vance_shared::trace::TraceContext;

use crate::builtin::{BuiltinCall, Builtins};

/// While a pack starts, how often a waiting call looks again.
const START_POLL: Duration = Duration::from_millis(50);

/// Calls that may run on the server at once; one more is answered `busy`.
const MAX_RUNNING: usize = 1_024;

/// One call for the server.
#[derive(Clone)]
pub struct ServerCall {
    /// Idempotency key.
    pub call_id: CallId,
    /// The tool's name on the server.
    pub tool: ToolName,
    /// The pack behind it; `None`: built in.
    pub pack: Option<String>,
    /// A JSON object.
    pub arguments: Raw,
    /// Deadline.
    pub timeout: Duration,
    /// The span of the call.
    pub trace: TraceContext,
    /// The task that calls.
    pub task_id: Option<TaskId>,
    /// Hears how far it is.
    pub progress: Option<ProgressSink>,
}

/// Cheap to clone. The maps are shared because calls run on the I/O runtime and cancels come from actors.
#[derive(Clone)]
pub struct Executor {
    builtins: Builtins,
    packs: Arc<DashMap<String, McpHandle>>,
    running: Arc<DashMap<CallId, CancellationToken>>,
}

impl Executor {
    /// An executor without packs.
    pub fn new(builtins: Builtins) -> Self {
        Self { builtins, packs: Arc::default(), running: Arc::default() }
    }

    /// The built-in tools.
    pub fn builtins(&self) -> &Builtins {
        &self.builtins
    }

    /// Adds a pack.
    pub fn add_pack(&self, name: &str, handle: McpHandle) {
        self.packs.insert(name.to_owned(), handle);
    }

    /// A pack's handle.
    pub fn pack(&self, name: &str) -> Option<McpHandle> {
        self.packs.get(name).map(|h| h.clone())
    }

    /// Calls under way.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Asks a call to stop, in the tool too.
    pub fn cancel(&self, call_id: &CallId) {
        if let Some(token) = self.running.get(call_id) {
            token.cancel();
        }
    }

    /// Asks all calls to stop: the Brain is going away.
    pub fn cancel_all(&self) {
        for token in self.running.iter() {
            token.cancel();
        }
    }

    /// Runs a call to its end.
    pub async fn run(&self, mut call: ServerCall) -> Outcome {
        if self.running.len() >= MAX_RUNNING {
            return Outcome::failed("busy", format!("{MAX_RUNNING} calls run on the server; try again later"));
        }
        let cancel = CancellationToken::new();
        let call_id = call.call_id.clone();
        self.running.insert(call_id.clone(), cancel.clone());
        // Also when this future is dropped: the entry goes and the tool is told to stop.
        let _entry = Entry { running: self.running.clone(), call_id, cancel: cancel.clone() };
        let span = Span::below(SPAN_TOOL_RUN, Kind::Internal, call.trace)
            .with(CALL_ID, &call.call_id)
            .with(TOOL, &call.tool)
            .with_some(TASK_ID, call.task_id.as_ref());
        call.trace = span.context();
        let outcome = self.in_place(call, cancel).await;
        span.end_as(&outcome);
        outcome
    }

    /// Built in, or in its pack.
    async fn in_place(&self, call: ServerCall, cancel: CancellationToken) -> Outcome {
        match &call.pack {
            None => {
                let ServerCall { tool, arguments, timeout, task_id, .. } = call;
                let tool = tool.as_str().to_owned();
                self.builtins.call(BuiltinCall { tool, arguments, timeout, cancel, context: task_id }).await
            }
            Some(pack) => match self.pack(pack) {
                Some(handle) => in_pack(handle, call, cancel).await,
                None => Outcome::failed("unavailable", format!("there is no server pack '{pack}'")),
            },
        }
    }
}

struct Entry {
    running: Arc<DashMap<CallId, CancellationToken>>,
    call_id: CallId,
    cancel: CancellationToken,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.cancel.cancel();
        self.running.remove(&self.call_id);
    }
}

/// Waits for a pack that starts, within the call's deadline; nothing has run until it is up.
async fn in_pack(handle: McpHandle, call: ServerCall, cancel: CancellationToken) -> Outcome {
    let deadline = Instant::now() + call.timeout;
    while matches!(handle.state(), HostState::Starting | HostState::Restarting { .. }) && Instant::now() < deadline {
        tokio::select! {
            () = cancel.cancelled() => return Outcome::Cancelled { reason: "cancelled before it began".to_owned() },
            () = tokio::time::sleep(START_POLL) => {}
        }
    }
    let timeout = deadline.saturating_duration_since(Instant::now()).max(START_POLL);
    let ServerCall { call_id, tool, arguments, trace, progress, .. } = call;
    let cap = timeout.saturating_mul(PROGRESS_CAP);
    handle.call(CallRequest { call_id, tool, arguments, timeout, cap, trace, cancel, progress }).await
}

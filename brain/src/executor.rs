//! Runs server tools: built-in ones and those of server packs. A call is a task on the I/O runtime with its own cancel.

use std::sync::Arc;
use std::time::Duration;

use dashmap::DashMap;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use vance_mcp_host::{CallRequest, HostState, McpHandle, Person, ProgressSink};
use vance_observability::names::{CALL_ID, SPAN_TOOL_RUN, TASK_ID, TOOL};
use vance_observability::spans::{Kind, Span};
use vance_shared::call::Outcome;
use vance_shared::ids::{CallId, TaskId};
use vance_shared::json::Raw;
use vance_shared::limits::PROGRESS_CAP;
use vance_shared::names::ToolName;
use vance_shared::trace::TraceContext;

use crate::builtin::{BuiltinCall, Builtins};
use crate::questions::Questions;
use turns::Turns;

mod turns;

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
    /// Whose call it is: principals take turns at a pack.
    pub owner: String,
    /// The span of the call.
    pub trace: TraceContext,
    /// The task that calls.
    pub task_id: Option<TaskId>,
    /// Hears how far it is.
    pub progress: Option<ProgressSink>,
    /// Who is asked what its server wants to know.
    pub person: Person,
}

/// A server pack's place.
struct Seat {
    /// Which start of which server it is: what an earlier one says late is not about this one.
    start: u64,
    handle: McpHandle,
    /// Its calls that run.
    calls: TaskTracker,
    /// Who may call it next.
    turns: Turns,
}

/// Cheap to clone. The maps are shared because calls run on the I/O runtime and cancels come from actors.
#[derive(Clone)]
pub struct Executor {
    builtins: Builtins,
    /// `None`: it will come, and calls wait for it.
    packs: Arc<DashMap<String, Option<Seat>>>,
    running: Arc<DashMap<CallId, CancellationToken>>,
    questions: Questions,
}

impl Executor {
    /// An executor without packs.
    pub fn new(builtins: Builtins) -> Self {
        Self { builtins, packs: Arc::default(), running: Arc::default(), questions: Questions::default() }
    }

    /// The built-in tools.
    pub fn builtins(&self) -> &Builtins {
        &self.builtins
    }

    /// A pack will come: calls wait for it. Gives the calls of the one that was there until now.
    pub fn expect_pack(&self, name: &str) -> Option<TaskTracker> {
        self.packs.insert(name.to_owned(), None).flatten().map(closed)
    }

    /// A pack is there: the server of its `start`.
    pub fn seat_pack(&self, name: &str, start: u64, handle: McpHandle) {
        self.packs
            .insert(name.to_owned(), Some(Seat { start, handle, calls: TaskTracker::new(), turns: Turns::default() }));
    }

    /// A pack is there no more. Gives its calls.
    pub fn remove_pack(&self, name: &str) -> Option<TaskTracker> {
        self.packs.remove(name).and_then(|(_, seat)| seat).map(closed)
    }

    /// A pack's handle.
    pub fn pack(&self, name: &str) -> Option<McpHandle> {
        self.packs.get(name).and_then(|seat| seat.as_ref().map(|seat| seat.handle.clone()))
    }

    /// True if that start of the pack's server is the one that is there.
    pub fn is_current(&self, name: &str, start: u64) -> bool {
        self.packs.get(name).is_some_and(|seat| seat.as_ref().is_some_and(|seat| seat.start == start))
    }

    /// What server packs ask.
    pub fn questions(&self) -> &Questions {
        &self.questions
    }

    /// True while that call runs here.
    pub fn runs(&self, call_id: &CallId) -> bool {
        self.running.contains_key(call_id)
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
            Some(pack) => {
                let pack = pack.clone();
                self.in_pack(&pack, call, cancel).await
            }
        }
    }

    /// Waits for a pack that starts or is replaced, within the call's deadline; nothing has run until it is up.
    async fn in_pack(&self, pack: &str, call: ServerCall, cancel: CancellationToken) -> Outcome {
        let deadline = Instant::now() + call.timeout;
        let (handle, running, turns) = loop {
            let over = Instant::now() >= deadline;
            match self.place(pack) {
                None => return Outcome::failed("unavailable", format!("there is no server pack '{pack}'")),
                Some(Some((handle, running, turns))) if over || !starts(&handle) => break (handle, running, turns),
                Some(None) if over => {
                    let text = format!("server pack '{pack}' is being replaced and was not there in time; try again");
                    return Outcome::failed("unavailable", text);
                }
                Some(_) => {}
            }
            tokio::select! {
                () = cancel.cancelled() => return Outcome::Cancelled { reason: "cancelled before it began".to_owned() },
                () = tokio::time::sleep(START_POLL) => {}
            }
        };
        let turn = tokio::select! {
            turn = turns.take(&call.owner) => turn,
            () = cancel.cancelled() => return Outcome::Cancelled { reason: "cancelled before it began".to_owned() },
            () = tokio::time::sleep_until(deadline) => None,
        };
        let Some(turn) = turn else {
            let text = format!(
                "server pack '{pack}' was busy with other calls until the time of this one was over; nothing ran"
            );
            return Outcome::failed("busy", text);
        };
        let timeout = deadline.saturating_duration_since(Instant::now()).max(START_POLL);
        let ServerCall { call_id, tool, arguments, trace, progress, person, .. } = call;
        let cap = timeout.saturating_mul(PROGRESS_CAP);
        let request = CallRequest { call_id, tool, arguments, timeout, cap, trace, cancel, progress, person };
        let outcome = handle.call(request).await;
        drop((running, turn));
        outcome
    }

    /// Where a pack's calls go, and the mark that one of them runs; `Some(None)`: it will come.
    fn place(&self, pack: &str) -> Option<Option<(McpHandle, TaskTrackerToken, Turns)>> {
        // Marked while the place is held: whoever takes it away sees the mark.
        self.packs
            .get(pack)
            .map(|seat| seat.as_ref().map(|seat| (seat.handle.clone(), seat.calls.token(), seat.turns.clone())))
    }
}

fn starts(handle: &McpHandle) -> bool {
    matches!(handle.state(), HostState::Starting | HostState::Restarting { .. })
}

fn closed(seat: Seat) -> TaskTracker {
    seat.calls.close();
    seat.calls
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

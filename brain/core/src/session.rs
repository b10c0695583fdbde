//! A session's clients and the calls that are out to them.
//!
//! A call's life here: `sent → accepted → (result)`, `suspended` while the line is cut, `cancelled` from a cancel until its
//! result came (or was waited for long enough). An entry lives until its result, so a call is found again however often the line is cut. A result counts only
//! from the connection (client and epoch) that holds the call.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use vance_shared::call::Outcome;
use vance_shared::ids::{CallId, ClientId, SessionId};
use vance_shared::limits::{GRACE, INFLIGHT_CALLS};
use vance_shared::names::ToolName;
use vance_shared::question::Question;
use vance_shared::tool::{Replay, ToolSpec};
use vance_shared::wire::{self, ErrorFrame, Inflight, ToFoot};

use crate::registry::ClientView;
use crate::task;

mod hello;
mod machine;
mod showing;
#[cfg(test)]
mod tests;

pub use hello::{take_tool, take_tools};
pub use showing::{Due, MAX_SHOWN, OpenQuestion, Showing};

/// After a call's deadline, until the Brain itself sends the cancel: the client's own deadline comes first.
pub const DEADLINE_SLACK_MS: i64 = 5_000;

/// After that cancel, until the client's silence counts as an answer.
pub const SILENCE_MS: i64 = 10_000;

/// Who connects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ClientInfo {
    /// For people.
    pub name: String,
    /// Machine name.
    pub machine: String,
    /// `desktop`, `cli`, …
    pub client_type: String,
    /// Working directory.
    pub working_dir: Option<String>,
    /// Further sessions that it serves.
    pub also: Arc<[SessionId]>,
}

/// A client's tools by name.
pub type Tools = Arc<HashMap<ToolName, Arc<ToolSpec>>>;

/// What comes to a session.
#[derive(Debug, Clone)]
#[allow(clippy::large_enum_variant)] // lives for one match
pub enum Input {
    /// A client said hello and has its epoch.
    Attach {
        /// Who.
        client_id: ClientId,
        /// Fencing number of the connection.
        epoch: u64,
        /// About it.
        info: ClientInfo,
        /// Tools that were taken.
        tools: Tools,
        /// Packs that still start.
        loading: BTreeSet<String>,
        /// What its journal says.
        inflight: Inflight,
        /// Calls that tasks hold open on this client.
        held: BTreeSet<CallId>,
    },
    /// A connection ended.
    Detach {
        /// Who.
        client_id: ClientId,
        /// Which connection.
        epoch: u64,
    },
    /// The client takes no new calls.
    Draining {
        /// Who.
        client_id: ClientId,
        /// Which connection.
        epoch: u64,
    },
    /// The client's tools as they are now.
    Tools {
        /// Who.
        client_id: ClientId,
        /// Which connection.
        epoch: u64,
        /// All tools.
        tools: Tools,
        /// Packs that still start.
        loading: BTreeSet<String>,
    },
    /// The call is in the client's journal.
    Accepted {
        /// Who.
        client_id: ClientId,
        /// Which connection.
        epoch: u64,
        /// The call.
        call_id: CallId,
    },
    /// The call goes on.
    Progress {
        /// Who.
        client_id: ClientId,
        /// Which connection.
        epoch: u64,
        /// How far.
        progress: wire::Progress,
    },
    /// The call's server asks a person.
    Asked {
        /// Who.
        client_id: ClientId,
        /// Which connection.
        epoch: u64,
        /// What.
        question: Question,
    },
    /// The question is over for the call's server.
    QuestionEnded {
        /// Who.
        client_id: ClientId,
        /// Which connection.
        epoch: u64,
        /// Which, and how.
        end: wire::ElicitEnd,
    },
    /// Send the answer to a question.
    Reply {
        /// To whom.
        client_id: ClientId,
        /// The answer.
        reply: wire::ElicitReply,
    },
    /// The call ended.
    Result {
        /// Who.
        client_id: ClientId,
        /// Which connection.
        epoch: u64,
        /// The call.
        call_id: CallId,
        /// The verdict.
        outcome: Outcome,
    },
    /// Send a call.
    Dispatch {
        /// To whom.
        client_id: ClientId,
        /// What.
        call: Arc<wire::Call>,
        /// May it run twice?
        replay: Replay,
    },
    /// The outbox had no room for the call that was to be sent.
    OutboxFull(CallId),
    /// How does this call stand?
    Reattach {
        /// On whom.
        client_id: ClientId,
        /// What was sent.
        call: Arc<wire::Call>,
        /// May it run twice?
        replay: Replay,
    },
    /// Stop a call.
    Cancel {
        /// On whom.
        client_id: ClientId,
        /// The call.
        call_id: CallId,
        /// Why.
        reason: String,
    },
    /// The result is stored.
    Ack {
        /// Whose.
        client_id: ClientId,
        /// The call.
        call_id: CallId,
    },
    /// Time has passed.
    Tick,
}

/// News of a call, for whoever waits.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    /// Not sent: the client is gone, or has no room.
    NotSent {
        /// No room.
        busy: bool,
    },
    /// The line was cut.
    Suspended,
    /// The line is back, the client runs it (or will send its result).
    Attached,
    /// The line is back, the client never journalled it.
    NeverArrived,
    /// It goes on.
    Progress(wire::Progress),
    /// Its server asks a person.
    Asked(Question),
    /// The question is over for its server.
    QuestionEnded(wire::ElicitEnd),
    /// It ended.
    Ended(Outcome),
}

impl News {
    /// What the news means to the task that holds the call; progress means nothing to it.
    pub fn to_task(self, client_id: ClientId, call_id: CallId) -> Option<task::Input> {
        Some(match self {
            Self::NotSent { busy } => task::Input::CallNotSent { call_id, busy },
            Self::Suspended => task::Input::CallSuspended(call_id),
            Self::Attached => task::Input::CallAttached(call_id),
            Self::NeverArrived => task::Input::CallNeverArrived(call_id),
            Self::Progress(_) => return None,
            Self::Asked(question) => task::Input::Asked(question),
            Self::QuestionEnded(wire::ElicitEnd { call_id, question_id, how, .. }) => {
                task::Input::QuestionEnded { call_id, question_id, how }
            }
            Self::Ended(outcome) => task::Input::CallEnded { call_id, from: Some(client_id), outcome },
        })
    }
}

/// What to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// A frame for a connection.
    Send {
        /// To whom.
        client_id: ClientId,
        /// What.
        frame: ToFoot,
    },
    /// The connection is let in: its `welcome` carries these calls.
    Welcome {
        /// Who.
        client_id: ClientId,
        /// Calls that the Brain holds open on it.
        inflight: Vec<CallId>,
    },
    /// News for whoever waits for the call.
    Deliver {
        /// Whose call.
        client_id: ClientId,
        /// The call.
        call_id: CallId,
        /// The news.
        news: News,
    },
    /// A result that nobody here waits for: its task may.
    Unclaimed {
        /// Whose.
        client_id: ClientId,
        /// The call.
        call_id: CallId,
        /// The verdict.
        outcome: Outcome,
    },
    /// Close a connection that was taken over.
    Supersede {
        /// Who.
        client_id: ClientId,
        /// The older connection.
        epoch: u64,
    },
    /// Clients or tools changed.
    ViewChanged,
}

#[derive(Debug)]
struct Client {
    epoch: u64,
    info: ClientInfo,
    tools: Tools,
    loading: BTreeSet<String>,
    journal: Journal,
    presence: Presence,
    draining: bool,
    last_active_ms: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Online,
    Grace { until_ms: i64 },
}

/// What the client's journal said when it connected.
#[derive(Debug, Default)]
struct Journal {
    has: BTreeSet<CallId>,
    interrupted: BTreeSet<CallId>,
}

#[derive(Debug)]
struct Entry {
    client_id: ClientId,
    call: Arc<wire::Call>,
    replay: Replay,
    phase: Phase,
    /// The client has said that it has the call: a journal that does not know it later is not the one that took it.
    taken: bool,
    /// Of a cancelled call: when it was cancelled.
    deadline_ms: i64,
    cap_ms: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Phase {
    Sent,
    Accepted,
    /// Its server waits for a person: the deadline is that of the question.
    Asking,
    Suspended,
    /// The Brain's own deadline passed and the cancel went out.
    Overdue,
    Cancelled(String),
}

/// The machine. `now` is in milliseconds of any clock that does not go back.
#[derive(Debug)]
pub struct Session {
    /// Boxed: a map of one makes room for eleven.
    clients: BTreeMap<ClientId, Box<Client>>,
    calls: HashMap<CallId, Entry>,
    grace_ms: i64,
    max_inflight: usize,
    /// No deadline is before this. Looked up anew with each tick, so a look at all calls is not made for each of them.
    due_ms: Option<i64>,
}

impl Default for Session {
    fn default() -> Self {
        Self::new(i64::try_from(GRACE.as_millis()).unwrap_or(30_000), INFLIGHT_CALLS)
    }
}

impl Session {
    /// A session without clients.
    pub fn new(grace_ms: i64, max_inflight: usize) -> Self {
        Self { clients: BTreeMap::new(), calls: HashMap::new(), grace_ms, max_inflight, due_ms: None }
    }

    /// Its clients, online or in grace.
    pub fn view(&self) -> Vec<ClientView> {
        self.clients
            .iter()
            .map(|(client_id, c)| ClientView {
                client_id: client_id.clone(),
                name: c.info.name.clone(),
                machine: c.info.machine.clone(),
                working_dir: c.info.working_dir.clone(),
                also: c.info.also.clone(),
                online: c.presence == Presence::Online && !c.draining,
                last_active_ms: c.last_active_ms,
                tools: c.tools.clone(),
                loading: Arc::new(c.loading.clone()),
            })
            .collect()
    }

    /// A client's tools, if it is known here.
    pub fn tools_of(&self, client_id: &ClientId) -> Option<(Tools, BTreeSet<String>)> {
        self.clients.get(client_id).map(|c| (c.tools.clone(), c.loading.clone()))
    }

    /// About a client, if it is known here.
    pub fn info_of(&self, client_id: &ClientId) -> Option<&ClientInfo> {
        self.clients.get(client_id).map(|c| &c.info)
    }

    /// True if this connection is the client's current one.
    pub fn holds(&self, client_id: &ClientId, epoch: u64) -> bool {
        self.clients.get(client_id).is_some_and(|c| c.epoch == epoch && c.presence == Presence::Online)
    }

    /// Calls that are out, whatever their phase.
    pub fn open_calls(&self) -> usize {
        self.calls.len()
    }

    /// A time by which `Tick` has to come, and not later than it has something to do.
    pub fn next_tick_ms(&self) -> Option<i64> {
        self.due_ms
    }

    fn is_due(&mut self, at_ms: i64) {
        self.due_ms = Some(self.due_ms.map_or(at_ms, |due| due.min(at_ms)));
    }

    /// When `Tick` has something to do.
    fn first_due_ms(&self) -> Option<i64> {
        let graces = self.clients.values().filter_map(|c| match c.presence {
            Presence::Grace { until_ms } => Some(until_ms),
            Presence::Online => None,
        });
        let deadlines = self.calls.values().filter_map(|e| match e.phase {
            Phase::Sent | Phase::Accepted | Phase::Asking => Some(e.deadline_ms + DEADLINE_SLACK_MS),
            Phase::Overdue => Some(e.deadline_ms + DEADLINE_SLACK_MS + SILENCE_MS),
            Phase::Cancelled(_) => Some(e.deadline_ms + SILENCE_MS),
            Phase::Suspended => None,
        });
        graces.chain(deadlines).min()
    }
}

fn error(code: &str, message: String, id: &CallId) -> ToFoot {
    ToFoot::Error(ErrorFrame { code: code.to_owned(), message, id: Some(id.to_string()) })
}

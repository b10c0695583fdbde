//! What reaches the scheduler.

use std::collections::{BTreeSet, HashMap};

use vance_brain_core::board::{Entry, Offer, Waiting};
use vance_brain_core::session::News;
use vance_brain_core::task::{Input, State, Wait};
use vance_shared::call::Outcome;
use vance_shared::ids::{CallId, ClientId, SessionId, TaskId};
use vance_shared::names::ToolName;
use vance_supervise::Message;

use crate::actors::task::Reply;

/// Message: new tasks, already stored.
#[derive(Message)]
#[rtype(result = "()")]
pub struct AddTree(pub Vec<Entry>);

/// Message: a person's command; the answer goes to `reply`.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Command {
    /// Which task.
    pub task_id: TaskId,
    /// `Cancel`, `Retry`, `Resolve` or `Answer`.
    pub input: Input,
    /// For a retry: its tree's tasks, in case the tree is not live any more.
    pub tree: Vec<Entry>,
    /// Who waits.
    pub reply: Reply,
}

/// Message: a task says how it stands.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct FromTask {
    /// Which task.
    pub task_id: TaskId,
    /// Which of its actors says so.
    pub seat: u64,
    /// How many inputs of the scheduler it has handled.
    pub handled: u64,
    /// What it says.
    pub report: Report,
}

/// How a task stands.
#[derive(Debug, Clone)]
pub enum Report {
    /// It waits; nothing will happen without an input.
    Parked {
        /// For what.
        wait: Wait,
        /// Names under which a client may offer the tool.
        wake_on: Vec<ToolName>,
        /// Revision of the session's view on which that was decided.
        seen: u64,
    },
    /// It runs.
    Running,
    /// It looks again after a pause, and needs no slot until then.
    Resting,
    /// Its pause is over.
    Rested,
    /// It is terminal.
    Ended {
        /// How.
        state: State,
    },
    /// It is pending again.
    Pending,
    /// Its children may run.
    ChildrenMayRun,
    /// Its open call on a client changed.
    Held {
        /// Has an outcome.
        closed: Option<CallId>,
        /// Is open now.
        opened: Option<(CallId, ClientId)>,
    },
}

/// Message: the server's part of a call ended.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ServerEnded {
    /// Whose call.
    pub task_id: TaskId,
    /// The call.
    pub call_id: CallId,
    /// The verdict.
    pub outcome: Outcome,
}

/// Message: a server pack asks, or does not wait any more.
#[derive(Message)]
#[rtype(result = "()")]
pub struct OfQuestion {
    /// Whose call.
    pub task_id: TaskId,
    /// `Asked` or `QuestionEnded`.
    pub input: Input,
}

/// Message: news of a call on a client.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct CallNews {
    /// Which client.
    pub client_id: ClientId,
    /// The call.
    pub call_id: CallId,
    /// The news.
    pub news: News,
}

/// Message: a result that nobody in the session waits for.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Unclaimed {
    /// Whose.
    pub client_id: ClientId,
    /// The call.
    pub call_id: CallId,
    /// The verdict.
    pub outcome: Outcome,
}

/// Message: who is online in a session, with what.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Presence {
    /// The session.
    pub session_id: SessionId,
    /// Revision of its view.
    pub revision: u64,
    /// Clients and their tools.
    pub online: HashMap<ClientId, Offer>,
}

/// Message: the same of several sessions. One message, however many sessions a client is seen in: it is taken as a whole or not at all.
#[derive(Message)]
#[rtype(result = "()")]
pub struct Presences(pub Vec<Presence>);

/// Message: a session's actor began anew; calls that it had out are suspended.
#[derive(Message)]
#[rtype(result = "()")]
pub struct SessionRestarted(pub SessionId);

/// Message: the server's tools changed: those of this pack, or whatever.
#[derive(Message)]
#[rtype(result = "()")]
pub struct ServerToolsChanged(pub Option<String>);

/// Message: which calls do tasks hold open on a client?
#[derive(Message)]
#[rtype(result = "BTreeSet<CallId>")]
pub struct HeldOn(pub ClientId);

/// Message: who waits in a session's pending-client queue, first in first out?
#[derive(Message)]
#[rtype(result = "Vec<Waiting>")]
pub struct Queue(pub SessionId);

/// Message: running and waiting tasks, live trees.
#[derive(Message)]
#[rtype(result = "Counts")]
pub struct Count;

/// The answer to [`Count`].
#[derive(Debug, Clone, Copy, Default, actix::MessageResponse)]
pub struct Counts {
    /// Tasks with a slot.
    pub running: usize,
    /// Tasks that wait for something outside.
    pub waiting: usize,
    /// Live trees.
    pub trees: usize,
    /// Task actors.
    pub actors: usize,
}

/// A task's actor is up.
#[derive(Message)]
#[rtype(result = "()")]
pub(super) struct TaskUp {
    pub(super) task_id: TaskId,
    pub(super) name: String,
}

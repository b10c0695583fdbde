//! What happens to calls, what is to be done about it, and what a journal holds of them.

use vance_shared::call::{Fault, Outcome};
use vance_shared::ids::CallId;
use vance_shared::tool::Replay;
use vance_shared::trace::TraceContext;
use vance_shared::wire::{Accepted, Call, CallResult};

/// What happened.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The Brain sent a call. `tool` is what the Foot knows of the tool now: its replay class, or why it cannot run.
    Call {
        /// The frame.
        call: Call,
        /// The tool's class, or the fault to answer.
        tool: Result<Replay, Fault>,
    },
    /// A durable write of a call's row ended; the error is the journal's text.
    Journalled {
        /// The call.
        call_id: CallId,
        /// Whether the row is on disk.
        written: Result<(), String>,
    },
    /// The tool gave its outcome.
    Ended {
        /// The call.
        call_id: CallId,
        /// How it ended.
        outcome: Outcome,
    },
    /// The Brain wants a call stopped.
    Cancel {
        /// The call.
        call_id: CallId,
        /// For people.
        reason: String,
    },
    /// The Brain has stored a result.
    ResultAck {
        /// The call.
        call_id: CallId,
    },
    /// The Brain answered the hello and lists what it holds open here.
    Connected {
        /// Open calls as the Brain sees them.
        inflight: Vec<CallId>,
    },
    /// The line is gone. Running calls go on.
    Disconnected,
    /// Time has passed.
    Tick,
}

/// What to do, in this order.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Write the call's row. `durable`: it must be on disk before [`Event::Journalled`] says so; otherwise write it some time soon.
    Begin {
        /// The call.
        call_id: CallId,
        /// The delivery.
        attempt: u32,
        /// The tool.
        tool: String,
        /// Its class, for after a restart.
        replay: Replay,
        /// Flush to disk and report back.
        durable: bool,
    },
    /// Tell the Brain that the call is journalled.
    Accept(Accepted),
    /// Run the tool, now and only now.
    Run(Box<Call>),
    /// Keep the outcome until the ack.
    Store(CallResult),
    /// Send a result that is at hand.
    Send(CallResult),
    /// Send a result that only the journal holds.
    Resend {
        /// The call.
        call_id: CallId,
        /// The delivery that it answers.
        attempt: u32,
        /// The call's trace.
        traceparent: Option<TraceContext>,
    },
    /// Tell the running tool to stop.
    CancelRun {
        /// The call.
        call_id: CallId,
        /// For people.
        reason: String,
    },
    /// Drop the outcome, keep the tombstone.
    Forget(CallId),
}

/// A journal row, as read at start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The call.
    pub call_id: CallId,
    /// The delivery that was accepted.
    pub attempt: u32,
    /// The tool's class when the call began.
    pub replay: Replay,
    /// Where the call stood.
    pub state: RowState,
}

/// Where a journalled call stood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowState {
    /// Begun; `attached` if its run is still alive (the table restarted, the process did not).
    Running {
        /// The run is still alive.
        attached: bool,
    },
    /// Ended, its result is kept.
    Finished,
    /// Acknowledged.
    Forgotten,
}

//! What to do about each call that the Brain sends: run it at most once, keep its result until the Brain has it.
//!
//! | state | `call` again | `cancel` | tool ended | `result_ack` | welcome does not list it | process restarts |
//! |---|---|---|---|---|---|---|
//! | (unknown) | journal or run it | remembered a minute | - | - | - | - |
//! | journalling | wait | answer cancelled once written | - | - | stays | unknown or interrupted |
//! | running | `accepted` again | cancel the run | finished, send | - | stays | interrupted |
//! | finished | `accepted`, result again | - | - | forgotten | forgotten | finished |
//! | interrupted | safe: run again; unsafe: unknown | - | finished, send | forgotten | forgotten | interrupted |
//! | forgotten | outcome unknown, never run | - | - | - | - | forgotten |
//!
//! A result that is not acknowledged for a minute, though the line stands, is sent again; an interrupted safe call that is not sent
//! again in that time is answered as unknown.
//!
//! After the loss of a journal, a second delivery of an unknown call of an unsafe tool is answered with an unknown outcome.
//!
//! A call of an unsafe tool runs only after its journal row is on disk, and once a row exists it never runs again, whatever
//! comes in whatever order. A safe tool's row is written without waiting, and not at all if its result is acknowledged before
//! that; its call runs again only if the process died while it ran or a moment later. Forgotten calls leave a tombstone, so a late
//! duplicate finds it; that of a safe call without a row is in memory only.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use vance_shared::call::{Fault, Outcome};
use vance_shared::ids::CallId;
use vance_shared::limits::INFLIGHT_CALLS;
use vance_shared::tool::Replay;
use vance_shared::trace::TraceContext;
use vance_shared::wire::{Accepted, Call, CallResult, Inflight};

mod again;
mod event;
mod tombstones;
pub use event::{Effect, Event, Row, RowState};
pub use tombstones::{MAX_TOMBSTONES, Tombstones};

/// Results that wait for their ack. A Brain that keeps calling and never acknowledges is answered `busy` from here on.
pub const MAX_UNACKED: usize = 4 * INFLIGHT_CALLS;

/// Cancels that came before their call and are remembered: one for each call that may be in flight.
const MAX_EARLY_CANCELS: usize = INFLIGHT_CALLS;

/// How long an early cancel is remembered: longer than a reconnect takes, shorter than a person's second thought.
const EARLY_CANCEL_FOR: Duration = Duration::from_secs(60);

#[derive(Debug)]
enum Entry {
    Journalling {
        call: Box<Call>,
        cancelled: Option<String>,
    },
    Running {
        attempt: u32,
        traceparent: Option<TraceContext>,
    },
    /// `sent`: when its result was offered last.
    Finished {
        attempt: u32,
        traceparent: Option<TraceContext>,
        sent: Duration,
    },
    Interrupted {
        attempt: u32,
        replay: Replay,
    },
}

/// The table of calls.
#[derive(Debug)]
pub struct Calls {
    entries: HashMap<CallId, Entry>,
    tombstones: Tombstones,
    early_cancels: VecDeque<(CallId, String, Duration)>,
    live: usize,
    max_live: usize,
    online: bool,
    online_since: Duration,
    /// A journal before this one was lost: what is sent again may have run then.
    lost: bool,
}

impl Calls {
    /// The table as a journal left it; at most `max_live` calls run at a time.
    pub fn boot(rows: impl IntoIterator<Item = Row>, max_live: usize) -> Self {
        let mut calls = Self {
            entries: HashMap::new(),
            tombstones: Tombstones::default(),
            early_cancels: VecDeque::new(),
            live: 0,
            max_live,
            online: false,
            online_since: Duration::ZERO,
            lost: false,
        };
        for Row { call_id, attempt, replay, state } in rows {
            let entry = match state {
                RowState::Running { attached: true } => {
                    calls.live += 1;
                    Entry::Running { attempt, traceparent: None }
                }
                RowState::Running { attached: false } => Entry::Interrupted { attempt, replay },
                RowState::Finished => Entry::Finished { attempt, traceparent: None, sent: Duration::ZERO },
                RowState::Forgotten => {
                    calls.tombstones.insert(&call_id);
                    continue;
                }
            };
            calls.entries.insert(call_id, entry);
        }
        calls
    }

    /// The same table, but a journal before this one was lost. A delivery again of a call that is not known here then says
    /// nothing of whether the first one ran, so an unsafe one is not run.
    #[must_use]
    pub fn after_a_loss(mut self, lost: bool) -> Self {
        self.lost = lost;
        self
    }

    /// Calls that run or are about to.
    pub fn live(&self) -> usize {
        self.live
    }

    /// What the hello says of them.
    pub fn inflight(&self) -> Inflight {
        let mut inflight = Inflight::default();
        for (call_id, entry) in &self.entries {
            let list = match entry {
                Entry::Journalling { .. } | Entry::Running { .. } => &mut inflight.running,
                Entry::Finished { .. } => &mut inflight.finished,
                Entry::Interrupted { .. } => &mut inflight.interrupted,
            };
            list.push(call_id.clone());
        }
        for list in [&mut inflight.running, &mut inflight.finished, &mut inflight.interrupted] {
            list.sort_unstable();
        }
        inflight
    }

    /// Takes an event at the monotonic time `now`.
    pub fn apply(&mut self, now: Duration, event: Event) -> Vec<Effect> {
        match event {
            Event::Call { call, tool } => self.call(now, call, tool),
            Event::Journalled { call_id, written } => self.journalled(now, &call_id, written),
            Event::Ended { call_id, outcome } => self.ended(now, &call_id, outcome),
            Event::Cancel { call_id, reason } => self.cancel(now, call_id, reason),
            Event::ResultAck { call_id } => match self.entries.get(&call_id) {
                Some(Entry::Finished { .. } | Entry::Interrupted { .. }) => vec![self.forget(call_id)],
                Some(Entry::Journalling { .. } | Entry::Running { .. }) | None => Vec::new(),
            },
            Event::Connected { inflight } => self.connected(now, inflight),
            Event::Disconnected => {
                self.online = false;
                Vec::new()
            }
            Event::Tick => self.send_again(now),
        }
    }

    fn call(&mut self, now: Duration, call: Call, tool: Result<Replay, Fault>) -> Vec<Effect> {
        let (attempt, traceparent) = (call.attempt, Some(call.traceparent));
        match self.entries.get_mut(&call.call_id) {
            None => self.new_call(now, call, tool),
            Some(Entry::Journalling { call: first, .. }) => {
                first.attempt = attempt;
                Vec::new()
            }
            Some(Entry::Running { attempt: held, traceparent: trace }) => {
                (*held, *trace) = (attempt, traceparent);
                vec![accepted(call.call_id, attempt, traceparent)]
            }
            Some(Entry::Finished { attempt: held, traceparent: trace, sent }) => {
                (*held, *trace, *sent) = (attempt, traceparent, now);
                vec![
                    accepted(call.call_id.clone(), attempt, traceparent),
                    Effect::Resend { call_id: call.call_id, attempt, traceparent },
                ]
            }
            Some(Entry::Interrupted { replay, .. }) => match (*replay, tool) {
                (Replay::Safe, Err(fault)) => vec![Effect::Send(failed(&call, fault))],
                (Replay::Safe, Ok(Replay::Safe)) if self.has_room() => {
                    self.entries.remove(&call.call_id);
                    self.start_lazily(call)
                }
                (Replay::Safe, Ok(Replay::Safe)) => vec![Effect::Send(busy(&call))],
                (Replay::Safe, Ok(Replay::Unsafe)) | (Replay::Unsafe, _) => {
                    let mut effects = vec![accepted(call.call_id.clone(), attempt, traceparent)];
                    effects.extend(self.finish(now, call.call_id, attempt, traceparent, interrupted()));
                    effects
                }
            },
        }
    }

    fn new_call(&mut self, now: Duration, call: Call, tool: Result<Replay, Fault>) -> Vec<Effect> {
        let (attempt, traceparent) = (call.attempt, Some(call.traceparent));
        if self.tombstones.contains(&call.call_id) {
            let reason =
                "this call ran here before and its result was acknowledged; the result is no longer kept".to_owned();
            let outcome = Outcome::Unknown { reason };
            return vec![Effect::Send(CallResult { call_id: call.call_id, attempt, outcome, traceparent })];
        }
        if let Some(reason) = self.take_early_cancel(now, &call.call_id) {
            let mut effects = vec![accepted(call.call_id.clone(), attempt, traceparent)];
            effects.extend(self.finish(now, call.call_id, attempt, traceparent, Outcome::Cancelled { reason }));
            return effects;
        }
        // Also while the tool cannot run: that nothing ran now says nothing of the first delivery.
        if self.lost && attempt > 1 && tool != Ok(Replay::Safe) {
            let reason = "this client lost its journal; the call may have run before that".to_owned();
            let outcome = Outcome::Unknown { reason };
            return vec![Effect::Send(CallResult { call_id: call.call_id, attempt, outcome, traceparent })];
        }
        let replay = match tool {
            Ok(replay) => replay,
            Err(fault) => return vec![Effect::Send(failed(&call, fault))],
        };
        if !self.has_room() {
            return vec![Effect::Send(busy(&call))];
        }
        match replay {
            Replay::Safe => self.start_lazily(call),
            Replay::Unsafe => {
                self.live += 1;
                let effect = begin(&call, replay, true);
                let entry = Entry::Journalling { call: Box::new(call.clone()), cancelled: None };
                self.entries.insert(call.call_id, entry);
                vec![effect]
            }
        }
    }

    fn start_lazily(&mut self, call: Call) -> Vec<Effect> {
        self.live += 1;
        let (attempt, traceparent) = (call.attempt, Some(call.traceparent));
        self.entries.insert(call.call_id.clone(), Entry::Running { attempt, traceparent });
        vec![
            begin(&call, Replay::Safe, false),
            accepted(call.call_id.clone(), attempt, traceparent),
            Effect::Run(Box::new(call)),
        ]
    }

    fn journalled(&mut self, now: Duration, call_id: &CallId, written: Result<(), String>) -> Vec<Effect> {
        let Some((call_id, entry)) = self.entries.remove_entry(call_id) else { return Vec::new() };
        let Entry::Journalling { call, cancelled } = entry else {
            self.entries.insert(call_id, entry);
            return Vec::new();
        };
        let (attempt, traceparent) = (call.attempt, Some(call.traceparent));
        match (written, cancelled) {
            (Err(why), _) => {
                self.live -= 1;
                let fault = Fault::new("journal_failed", format!("the call was not run: {why}"));
                vec![Effect::Send(failed(&call, fault))]
            }
            (Ok(()), Some(reason)) => {
                self.live -= 1;
                let mut effects = vec![accepted(call_id.clone(), attempt, traceparent)];
                effects.extend(self.finish(now, call_id, attempt, traceparent, Outcome::Cancelled { reason }));
                effects
            }
            (Ok(()), None) => {
                self.entries.insert(call_id.clone(), Entry::Running { attempt, traceparent });
                vec![accepted(call_id, attempt, traceparent), Effect::Run(call)]
            }
        }
    }

    fn ended(&mut self, now: Duration, call_id: &CallId, outcome: Outcome) -> Vec<Effect> {
        let (attempt, traceparent) = match self.entries.get(call_id) {
            Some(Entry::Running { attempt, traceparent }) => {
                self.live -= 1;
                (*attempt, *traceparent)
            }
            // A run that outlived the table that started it.
            Some(Entry::Interrupted { attempt, .. }) => (*attempt, None),
            Some(Entry::Journalling { .. } | Entry::Finished { .. }) | None => return Vec::new(),
        };
        self.finish(now, call_id.clone(), attempt, traceparent, outcome)
    }

    fn cancel(&mut self, now: Duration, call_id: CallId, reason: String) -> Vec<Effect> {
        match self.entries.get_mut(&call_id) {
            Some(Entry::Journalling { cancelled, .. }) => {
                cancelled.get_or_insert(reason);
                Vec::new()
            }
            Some(Entry::Running { .. }) => vec![Effect::CancelRun { call_id, reason }],
            Some(Entry::Finished { .. } | Entry::Interrupted { .. }) => Vec::new(),
            None => {
                if !self.tombstones.contains(&call_id) {
                    if self.early_cancels.len() == MAX_EARLY_CANCELS {
                        self.early_cancels.pop_front();
                    }
                    self.early_cancels.push_back((call_id, reason, now));
                }
                Vec::new()
            }
        }
    }

    fn finish(
        &mut self,
        now: Duration,
        call_id: CallId,
        attempt: u32,
        traceparent: Option<TraceContext>,
        outcome: Outcome,
    ) -> Vec<Effect> {
        self.entries.insert(call_id.clone(), Entry::Finished { attempt, traceparent, sent: now });
        let result = CallResult { call_id, attempt, outcome, traceparent };
        if self.online {
            vec![Effect::Store(result.clone()), Effect::Send(result)]
        } else {
            vec![Effect::Store(result)]
        }
    }

    fn forget(&mut self, call_id: CallId) -> Effect {
        self.entries.remove(&call_id);
        self.tombstones.insert(&call_id);
        Effect::Forget(call_id)
    }

    fn has_room(&self) -> bool {
        self.live < self.max_live && self.entries.len() < MAX_UNACKED
    }

    fn take_early_cancel(&mut self, now: Duration, call_id: &CallId) -> Option<String> {
        self.early_cancels.retain(|(_, _, at)| now.saturating_sub(*at) < EARLY_CANCEL_FOR);
        let at = self.early_cancels.iter().position(|(id, _, _)| id == call_id)?;
        self.early_cancels.remove(at).map(|(_, reason, _)| reason)
    }
}

fn begin(call: &Call, replay: Replay, durable: bool) -> Effect {
    Effect::Begin { call_id: call.call_id.clone(), attempt: call.attempt, tool: call.tool.clone(), replay, durable }
}

fn accepted(call_id: CallId, attempt: u32, traceparent: Option<TraceContext>) -> Effect {
    Effect::Accept(Accepted { call_id, attempt, traceparent })
}

/// An answer to a call that did not run and left no row: should the answer be lost, the Brain sends the call again.
fn failed(call: &Call, fault: Fault) -> CallResult {
    CallResult {
        call_id: call.call_id.clone(),
        attempt: call.attempt,
        outcome: Outcome::Failed { error: fault, result: None },
        traceparent: Some(call.traceparent),
    }
}

fn busy(call: &Call) -> CallResult {
    failed(call, Fault::new("busy", "this client runs as many calls as it may; the call was not run, try again later"))
}

fn interrupted() -> Outcome {
    Outcome::Unknown {
        reason: "the client's process ended while the call ran; it may or may not have had its effect".to_owned(),
    }
}

#[cfg(test)]
mod tests;

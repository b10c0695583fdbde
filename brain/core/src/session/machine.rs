//! Inputs to effects.

use std::collections::BTreeSet;
use std::sync::Arc;

use vance_shared::call::Outcome;
use vance_shared::ids::{CallId, ClientId};
use vance_shared::limits::ANSWER_WITHIN;
use vance_shared::question::Question;
use vance_shared::tool::Replay;
use vance_shared::wire::{self, Cancel, ResultAck, ToFoot};

use super::{
    Client, DEADLINE_SLACK_MS, Effect, Entry, Input, Journal, News, Phase, Presence, SILENCE_MS, Session, error,
};

impl Session {
    /// Takes an input at `now` (milliseconds) and says what to do.
    pub fn handle(&mut self, input: Input, now: i64) -> Vec<Effect> {
        let mut out = Vec::new();
        match input {
            Input::Attach { client_id, epoch, info, tools, loading, inflight, held } => {
                if let Some(old) = self.clients.get(&client_id) {
                    if old.epoch >= epoch {
                        // A later connection is already here: this one lost the race before it began.
                        out.push(Effect::Supersede { client_id, epoch });
                        return out;
                    }
                    if old.presence == Presence::Online {
                        let epoch = old.epoch;
                        self.suspend_calls(&client_id, &mut out);
                        out.push(Effect::Supersede { client_id: client_id.clone(), epoch });
                    }
                }
                let journal = Journal {
                    has: inflight.running.iter().chain(&inflight.finished).cloned().collect(),
                    interrupted: inflight.interrupted.iter().cloned().collect(),
                };
                let presence = Presence::Online;
                let client =
                    Client { epoch, info, tools, loading, journal, presence, draining: false, last_active_ms: now };
                self.clients.insert(client_id.clone(), Box::new(client));
                self.reconcile(&client_id, &inflight, held, now, &mut out);
                out.push(Effect::ViewChanged);
            }
            Input::Detach { client_id, epoch } => self.detach(&client_id, epoch, now, &mut out),
            Input::Draining { client_id, epoch } => {
                if let Some(client) = self.current(&client_id, epoch) {
                    client.draining = true;
                    out.push(Effect::ViewChanged);
                }
            }
            Input::Tools { client_id, epoch, tools, loading } => {
                if let Some(client) = self.current(&client_id, epoch) {
                    (client.tools, client.loading, client.last_active_ms) = (tools, loading, now);
                    out.push(Effect::ViewChanged);
                }
            }
            Input::Accepted { client_id, epoch, call_id } => {
                if self.touch(&client_id, epoch, now)
                    && let Some(entry) = self.held_by(&call_id, &client_id)
                {
                    entry.taken = true;
                    if entry.phase == Phase::Sent {
                        entry.phase = Phase::Accepted;
                    }
                }
            }
            Input::Progress { client_id, epoch, progress } => self.progress(&client_id, epoch, progress, now, &mut out),
            Input::Asked { client_id, epoch, question } => self.asked(client_id, epoch, question, now, &mut out),
            Input::QuestionEnded { client_id, epoch, end } => {
                if self.touch(&client_id, epoch, now) {
                    self.goes_on(&end.call_id, &client_id, now);
                    let call_id = end.call_id.clone();
                    out.push(Effect::Deliver { client_id, call_id, news: News::QuestionEnded(end) });
                }
            }
            Input::Reply { client_id, reply } => {
                self.goes_on(&reply.call_id, &client_id, now);
                if self.is_online(&client_id) {
                    out.push(Effect::Send { client_id, frame: ToFoot::ElicitReply(reply) });
                }
            }
            Input::Result { client_id, epoch, call_id, outcome } => {
                self.result(client_id, epoch, call_id, outcome, now, &mut out);
            }
            Input::Dispatch { client_id, call, replay } => self.dispatch(client_id, call, replay, now, &mut out),
            Input::OutboxFull(call_id) => {
                if let Some(Entry { client_id, .. }) = self.calls.remove(&call_id) {
                    out.push(Effect::Deliver { client_id, call_id, news: News::NotSent { busy: true } });
                }
            }
            Input::Reattach { client_id, call, replay } => self.reattach(client_id, call, replay, now, &mut out),
            Input::Cancel { client_id, call_id, reason } => self.cancel(client_id, call_id, reason, now, &mut out),
            Input::Ack { client_id, call_id } => self.ack(client_id, call_id, &mut out),
            Input::Tick => self.tick(now, &mut out),
        }
        out
    }

    fn current(&mut self, client_id: &ClientId, epoch: u64) -> Option<&mut Client> {
        let client = self.clients.get_mut(client_id).map(Box::as_mut);
        client.filter(|c| c.epoch == epoch && c.presence == Presence::Online)
    }

    /// Notes a sign of life. False for a connection that does not count any more.
    fn touch(&mut self, client_id: &ClientId, epoch: u64, now: i64) -> bool {
        self.current(client_id, epoch).map(|c| c.last_active_ms = now).is_some()
    }

    fn held_by(&mut self, call_id: &CallId, client_id: &ClientId) -> Option<&mut Entry> {
        self.calls.get_mut(call_id).filter(|e| e.client_id == *client_id)
    }

    fn is_online(&self, client_id: &ClientId) -> bool {
        self.clients.get(client_id).is_some_and(|c| c.presence == Presence::Online)
    }

    /// Compares what the client's journal has with what the Brain holds open.
    fn reconcile(
        &mut self,
        client_id: &ClientId,
        inflight: &wire::Inflight,
        held: BTreeSet<CallId>,
        now: i64,
        out: &mut Vec<Effect>,
    ) {
        let mine: Vec<CallId> =
            self.calls.iter().filter(|(_, e)| e.client_id == *client_id).map(|(id, _)| id.clone()).collect();
        let waited: BTreeSet<CallId> = mine.iter().filter(|id| !self.is_cancelled(id)).cloned().chain(held).collect();
        out.push(Effect::Welcome { client_id: client_id.clone(), inflight: waited.iter().cloned().collect() });
        for call_id in &mine {
            if !self.is_cancelled(call_id) {
                self.standing(client_id, call_id, now, out);
            } else if !inflight.running.contains(call_id) && !inflight.finished.contains(call_id) {
                self.calls.remove(call_id);
            }
        }
        for call_id in inflight.running.iter().filter(|id| !waited.contains(*id)) {
            let reason = match self.calls.get(call_id).map(|e| &e.phase) {
                Some(Phase::Cancelled(reason)) => reason.clone(),
                _ => "nobody waits for this call any more".to_owned(),
            };
            out.push(cancel_frame(client_id.clone(), call_id.clone(), reason));
        }
        for call_id in inflight.finished.iter().chain(&inflight.interrupted).filter(|id| !waited.contains(*id)) {
            // Whatever its journal claims, other clients' calls are not its to end.
            if self.held_by(call_id, client_id).is_some() {
                self.calls.remove(call_id);
            }
            out.push(ack_frame(client_id.clone(), call_id.clone()));
        }
    }

    fn is_cancelled(&self, call_id: &CallId) -> bool {
        self.calls.get(call_id).is_some_and(|e| matches!(e.phase, Phase::Cancelled(_)))
    }

    /// Tells whoever waits how a call stands on its client, which is online.
    fn standing(&mut self, client_id: &ClientId, call_id: &CallId, now: i64, out: &mut Vec<Effect>) {
        let Some(client) = self.clients.get(client_id) else { return };
        let (has, interrupted) = (client.journal.has.contains(call_id), client.journal.interrupted.contains(call_id));
        let Some(entry) = self.calls.get_mut(call_id) else { return };
        let mut due = None;
        let news = if entry.phase.is_out() {
            News::Attached
        } else if has {
            (entry.phase, entry.taken) = (Phase::Accepted, true);
            (entry.deadline_ms, entry.cap_ms) = deadlines(&entry.call, now);
            due = Some(entry.deadline_ms + DEADLINE_SLACK_MS);
            News::Attached
        } else if interrupted {
            let machine = client.info.machine.clone();
            self.calls.remove(call_id);
            News::Ended(Outcome::Unknown {
                reason: format!("the process that ran it on {machine} ended before it had a result"),
            })
        } else if entry.taken {
            let machine = client.info.machine.clone();
            self.calls.remove(call_id);
            let reason =
                format!("{machine} accepted it and does not know it any more: its journal was lost, or is a copy");
            News::Ended(Outcome::Unknown { reason })
        } else {
            self.calls.remove(call_id);
            News::NeverArrived
        };
        out.push(Effect::Deliver { client_id: client_id.clone(), call_id: call_id.clone(), news });
        if let Some(due) = due {
            self.is_due(due);
        }
    }

    fn suspend_calls(&mut self, client_id: &ClientId, out: &mut Vec<Effect>) {
        for (call_id, entry) in self.calls.iter_mut().filter(|(_, e)| e.client_id == *client_id) {
            if entry.phase.is_out() {
                entry.phase = Phase::Suspended;
                out.push(Effect::Deliver {
                    client_id: client_id.clone(),
                    call_id: call_id.clone(),
                    news: News::Suspended,
                });
            }
        }
    }

    fn detach(&mut self, client_id: &ClientId, epoch: u64, now: i64, out: &mut Vec<Effect>) {
        let until_ms = now + self.grace_ms;
        let Some(client) = self.current(client_id, epoch) else { return };
        client.presence = Presence::Grace { until_ms };
        self.suspend_calls(client_id, out);
        self.is_due(until_ms);
        out.push(Effect::ViewChanged);
    }

    fn progress(
        &mut self,
        client_id: &ClientId,
        epoch: u64,
        progress: wire::Progress,
        now: i64,
        out: &mut Vec<Effect>,
    ) {
        if !self.touch(client_id, epoch, now) {
            return;
        }
        let call_id = progress.call_id.clone();
        let Some(entry) = self.held_by(&call_id, client_id) else { return };
        entry.taken = true;
        if matches!(entry.phase, Phase::Sent | Phase::Accepted) {
            entry.deadline_ms = (now + ms(entry.call.timeout_ms)).min(entry.cap_ms);
            out.push(Effect::Deliver { client_id: client_id.clone(), call_id, news: News::Progress(progress) });
        }
    }

    /// A person's time is not the tool's: while the question is open, its own limit counts.
    fn asked(&mut self, client_id: ClientId, epoch: u64, question: Question, now: i64, out: &mut Vec<Effect>) {
        if !self.touch(&client_id, epoch, now) {
            return;
        }
        let call_id = question.call_id.clone();
        match self.calls.get_mut(&call_id) {
            Some(entry) if entry.client_id != client_id => {
                let message = format!("call {call_id} is held by another client; its question was not taken");
                out.push(Effect::Send { client_id, frame: error("not_yours", message, &call_id) });
                return;
            }
            Some(entry) => match entry.phase {
                Phase::Sent | Phase::Accepted | Phase::Asking => {
                    (entry.phase, entry.taken) = (Phase::Asking, true);
                    entry.deadline_ms = now.saturating_add(answer_within(&entry.call));
                    let due = entry.deadline_ms + DEADLINE_SLACK_MS;
                    self.is_due(due);
                }
                // Its cancel is on the way.
                Phase::Overdue | Phase::Cancelled(_) => return,
                Phase::Suspended => {}
            },
            // Its task may hold it all the same, after a restart.
            None => {}
        }
        out.push(Effect::Deliver { client_id, call_id, news: News::Asked(question) });
    }

    /// After a question the call has its whole time again.
    fn goes_on(&mut self, call_id: &CallId, client_id: &ClientId, now: i64) {
        let Some(entry) = self.held_by(call_id, client_id).filter(|entry| entry.phase == Phase::Asking) else { return };
        entry.phase = Phase::Accepted;
        (entry.deadline_ms, entry.cap_ms) = deadlines(&entry.call, now);
        let due = entry.deadline_ms + DEADLINE_SLACK_MS;
        self.is_due(due);
    }

    fn result(
        &mut self,
        client_id: ClientId,
        epoch: u64,
        call_id: CallId,
        outcome: Outcome,
        now: i64,
        out: &mut Vec<Effect>,
    ) {
        let Some(client) = self.current(&client_id, epoch) else { return };
        client.last_active_ms = now;
        // It will not come again by itself: whoever asks from here on has the call sent again, and gets it from the journal.
        client.journal.has.remove(&call_id);
        match self.calls.get(&call_id) {
            Some(entry) if entry.client_id != client_id => {
                let message = format!("call {call_id} is held by another client; this result was not taken");
                out.push(Effect::Send { client_id, frame: error("not_yours", message, &call_id) });
            }
            Some(entry) if matches!(entry.phase, Phase::Cancelled(_)) => {
                // The task is over; what really happened still belongs into its history.
                self.calls.remove(&call_id);
                out.push(Effect::Unclaimed { client_id, call_id, outcome });
            }
            Some(_) => {
                self.calls.remove(&call_id);
                out.push(Effect::Deliver { client_id, call_id, news: News::Ended(outcome) });
            }
            None => out.push(Effect::Unclaimed { client_id, call_id, outcome }),
        }
    }

    fn dispatch(
        &mut self,
        client_id: ClientId,
        call: Arc<wire::Call>,
        replay: Replay,
        now: i64,
        out: &mut Vec<Effect>,
    ) {
        let call_id = call.call_id.clone();
        let ready = self.clients.get(&client_id).is_some_and(|c| c.presence == Presence::Online && !c.draining);
        // Counted only where there may be too many.
        let room = self.calls.len() < self.max_inflight
            || self.calls.values().filter(|e| e.client_id == client_id).count() < self.max_inflight;
        if !ready || !room {
            out.push(Effect::Deliver { client_id, call_id, news: News::NotSent { busy: ready } });
            return;
        }
        let (deadline_ms, cap_ms) = deadlines(&call, now);
        let entry = Entry {
            client_id: client_id.clone(),
            call: call.clone(),
            replay,
            phase: Phase::Sent,
            taken: false,
            deadline_ms,
            cap_ms,
        };
        self.calls.insert(call_id, entry);
        self.is_due(deadline_ms + DEADLINE_SLACK_MS);
        out.push(Effect::Send { client_id, frame: ToFoot::Call((*call).clone()) });
    }

    fn reattach(
        &mut self,
        client_id: ClientId,
        call: Arc<wire::Call>,
        replay: Replay,
        now: i64,
        out: &mut Vec<Effect>,
    ) {
        let call_id = call.call_id.clone();
        let (deadline_ms, cap_ms) = deadlines(&call, now);
        self.calls.entry(call_id.clone()).or_insert_with(|| Entry {
            client_id: client_id.clone(),
            call,
            replay,
            phase: Phase::Suspended,
            taken: false,
            deadline_ms,
            cap_ms,
        });
        if self.is_online(&client_id) {
            self.standing(&client_id, &call_id, now, out);
        } else {
            out.push(Effect::Deliver { client_id, call_id, news: News::Suspended });
        }
    }

    fn cancel(&mut self, client_id: ClientId, call_id: CallId, reason: String, now: i64, out: &mut Vec<Effect>) {
        let online = self.is_online(&client_id);
        if let Some(entry) = self.held_by(&call_id, &client_id) {
            entry.phase = Phase::Cancelled(reason.clone());
            entry.deadline_ms = now;
            self.is_due(now + SILENCE_MS);
        }
        if online {
            out.push(cancel_frame(client_id, call_id, reason));
        }
    }

    fn ack(&mut self, client_id: ClientId, call_id: CallId, out: &mut Vec<Effect>) {
        if let Some(client) = self.clients.get_mut(&client_id) {
            client.journal.has.remove(&call_id);
            client.journal.interrupted.remove(&call_id);
            if client.presence == Presence::Online {
                out.push(ack_frame(client_id, call_id));
            }
        }
    }

    fn tick(&mut self, now: i64, out: &mut Vec<Effect>) {
        let before = self.clients.len();
        self.clients.retain(|_, c| !matches!(c.presence, Presence::Grace { until_ms } if until_ms <= now));
        if self.clients.len() != before {
            out.push(Effect::ViewChanged);
        }
        let mut silent = Vec::new();
        for (call_id, entry) in &mut self.calls {
            let overdue_at = entry.deadline_ms + DEADLINE_SLACK_MS;
            match entry.phase {
                Phase::Sent | Phase::Accepted | Phase::Asking if overdue_at <= now => {
                    entry.phase = Phase::Overdue;
                    out.push(cancel_frame(entry.client_id.clone(), call_id.clone(), "its deadline is over".to_owned()));
                }
                Phase::Overdue if overdue_at + SILENCE_MS <= now => silent.push(call_id.clone()),
                Phase::Sent
                | Phase::Accepted
                | Phase::Asking
                | Phase::Overdue
                | Phase::Suspended
                | Phase::Cancelled(_) => {}
            }
        }
        // Nobody waits for these; a client that never answers must not fill its room with them.
        self.calls.retain(|_, e| !(matches!(e.phase, Phase::Cancelled(_)) && e.deadline_ms + SILENCE_MS <= now));
        for call_id in silent {
            let Some(entry) = self.calls.remove(&call_id) else { continue };
            let text = "the client gave no result within the deadline and did not answer the cancel";
            let outcome = match entry.replay {
                Replay::Safe => Outcome::failed("timeout", text),
                Replay::Unsafe => Outcome::Unknown { reason: text.to_owned() },
            };
            out.push(Effect::Deliver { client_id: entry.client_id, call_id, news: News::Ended(outcome) });
        }
        self.due_ms = self.first_due_ms();
    }
}

fn ms(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX / 4)
}

impl Phase {
    /// The client has it, and the line stands.
    pub(super) fn is_out(&self) -> bool {
        match self {
            Self::Sent | Self::Accepted | Self::Asking | Self::Overdue => true,
            Self::Suspended | Self::Cancelled(_) => false,
        }
    }
}

fn answer_within(call: &wire::Call) -> i64 {
    let standard = u64::try_from(ANSWER_WITHIN.as_millis()).unwrap_or(u64::MAX);
    ms(call.answer_ms.unwrap_or(standard))
}

fn deadlines(call: &wire::Call, now: i64) -> (i64, i64) {
    (now + ms(call.timeout_ms), now + ms(call.cap_ms.max(call.timeout_ms)))
}

fn cancel_frame(client_id: ClientId, call_id: CallId, reason: String) -> Effect {
    Effect::Send { client_id, frame: ToFoot::Cancel(Cancel { call_id, reason, traceparent: None }) }
}

fn ack_frame(client_id: ClientId, call_id: CallId) -> Effect {
    Effect::Send { client_id, frame: ToFoot::ResultAck(ResultAck { call_id }) }
}

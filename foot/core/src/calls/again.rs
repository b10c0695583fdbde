//! What is said again: to a Brain that comes back, and to one that stays silent about what it was told.

use std::collections::HashSet;
use std::time::Duration;

use vance_shared::ids::CallId;
use vance_shared::tool::Replay;

use super::{Calls, Effect, Entry, interrupted};

/// A result that was sent and not acknowledged for so long is sent again on the same line: longer than a store takes to come back.
pub(super) const SEND_AGAIN: Duration = Duration::from_secs(60);

impl Calls {
    pub(super) fn connected(&mut self, now: Duration, inflight: Vec<CallId>) -> Vec<Effect> {
        (self.online, self.online_since) = (true, now);
        let listed: HashSet<CallId> = inflight.into_iter().collect();
        let mut ids: Vec<CallId> = self.entries.keys().cloned().collect();
        ids.sort_unstable();
        let mut effects = Vec::new();
        for call_id in ids {
            match self.entries.get_mut(&call_id) {
                Some(Entry::Finished { .. } | Entry::Interrupted { .. }) if !listed.contains(&call_id) => {
                    effects.push(self.forget(call_id));
                }
                Some(Entry::Finished { attempt, traceparent, sent }) => {
                    *sent = now;
                    let (attempt, traceparent) = (*attempt, *traceparent);
                    effects.push(Effect::Resend { call_id, attempt, traceparent });
                }
                Some(Entry::Interrupted { attempt, replay: Replay::Unsafe }) => {
                    let attempt = *attempt;
                    effects.extend(self.finish(now, call_id, attempt, None, interrupted()));
                }
                // The Brain read it in the hello and sends a safe call again.
                Some(Entry::Interrupted { replay: Replay::Safe, .. }) => {}
                Some(Entry::Journalling { .. } | Entry::Running { .. }) | None => {}
            }
        }
        effects
    }

    /// A result without an acknowledgement, though the line stands: whoever took it on the Brain may have fallen with it.
    pub(super) fn send_again(&mut self, now: Duration) -> Vec<Effect> {
        let mut again = Vec::new();
        for (call_id, entry) in self.entries.iter_mut().filter(|_| self.online) {
            if let Entry::Finished { attempt, traceparent, sent } = entry
                && now.saturating_sub(*sent) >= SEND_AGAIN
            {
                *sent = now;
                again.push((call_id.clone(), *attempt, *traceparent));
            }
        }
        again.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let resend = |(call_id, attempt, traceparent)| Effect::Resend { call_id, attempt, traceparent };
        let mut effects: Vec<Effect> = again.into_iter().map(resend).collect();
        effects.extend(self.give_up_interrupted(now));
        effects
    }

    /// An interrupted safe call that the Brain, which read of it in the hello, neither sends again nor acknowledges: the Brain
    /// decides once more.
    fn give_up_interrupted(&mut self, now: Duration) -> Vec<Effect> {
        if !self.online || now.saturating_sub(self.online_since) < SEND_AGAIN {
            return Vec::new();
        }
        let found = self.entries.iter().filter_map(|(call_id, entry)| match entry {
            Entry::Interrupted { attempt, .. } => Some((call_id.clone(), *attempt)),
            Entry::Journalling { .. } | Entry::Running { .. } | Entry::Finished { .. } => None,
        });
        let mut left: Vec<(CallId, u32)> = found.collect();
        left.sort_unstable();
        left.into_iter()
            .flat_map(|(call_id, attempt)| self.finish(now, call_id, attempt, None, interrupted()))
            .collect()
    }
}

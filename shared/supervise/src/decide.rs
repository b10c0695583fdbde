//! Who restarts, when, or give up: a plain value fed with ends and the time, giving actions.
//!
//! Time is the duration since the supervisor started. A child moves like this:
//!
//! | phase | event | next phase, action |
//! |---|---|---|
//! | up | ended, is to restart, within the intensity | waiting |
//! | up | ended, is to restart, past the intensity | the supervisor gives up: all are stopped |
//! | up | ended, is not to restart | failed (after a fault) or removed |
//! | up | a sibling ended and the strategy includes this child | stopping, `Stop` |
//! | up, waiting, failed | `stop` | stopping with `Stop`, or removed |
//! | stopping | ended | waiting, or removed |
//! | waiting | due; in a group: all due, and nobody stopping | up, `Start` |
//!
//! Once it ends, by `shutdown` or by giving up, nothing starts, and `End` comes after the last
//! child is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::exit::ExitReason;
use crate::spec::{Backoff, Intensity, Restart, Strategy};

/// A child's number; later children have greater ones, so numbers are the start order.
pub(crate) type Key = u64;

/// Failed children kept for the status; the oldest is forgotten first.
const FAILED_KEPT: usize = 64;

/// The first wait after a `first` of zero has been used up.
const STEP: Duration = Duration::from_millis(100);

/// No wait is longer, whatever the spec says: a restart later than this is nobody's plan.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Start the child.
    Start(Key),
    /// Ask the child to stop; its end is reported by `ended`.
    Stop(Key),
    /// The child will not be started again, but stays in the list.
    Fail(Key),
    /// The child is no more.
    Remove(Key),
    /// The supervisor itself is no more; always the last action.
    End(ExitReason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Up { since: Duration },
    Stopping(Then),
    Waiting { due: Duration },
    Failed,
}

/// What follows when a stopping child is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Then {
    Restart { due: Duration },
    Remove,
}

#[derive(Clone, Debug)]
pub(crate) struct Child {
    pub(crate) name: String,
    pub(crate) phase: Phase,
    /// Restarts over its whole life.
    pub(crate) restarts: u32,
    pub(crate) last_exit: Option<ExitReason>,
    restart: Restart,
    /// Restarts since it last stayed up.
    streak: u32,
}

pub(crate) struct Decider {
    strategy: Strategy,
    intensity: Intensity,
    backoff: Backoff,
    children: BTreeMap<Key, Child>,
    /// Indexes of the phases, so that one end among thousands of children stays cheap. Only
    /// `set` and `remove` write them.
    waiting: BTreeSet<(Duration, Key)>,
    stopping: BTreeSet<Key>,
    failed: BTreeSet<Key>,
    next: Key,
    ending: Option<ExitReason>,
}

impl Decider {
    pub(crate) fn new(strategy: Strategy, intensity: Intensity, backoff: Backoff) -> Self {
        Decider {
            strategy,
            intensity,
            backoff,
            children: BTreeMap::new(),
            waiting: BTreeSet::new(),
            stopping: BTreeSet::new(),
            failed: BTreeSet::new(),
            next: 0,
            ending: None,
        }
    }

    pub(crate) fn children(&self) -> impl Iterator<Item = &Child> {
        self.children.values()
    }

    pub(crate) fn get(&self, key: Key) -> Option<&Child> {
        self.children.get(&key)
    }

    /// Why it is ending, if it is.
    pub(crate) fn ending(&self) -> Option<&ExitReason> {
        self.ending.as_ref()
    }

    /// A new last child. It starts at the next `tick`.
    pub(crate) fn add(&mut self, name: String, restart: Restart, now: Duration) -> Key {
        let key = self.next;
        self.next += 1;
        let phase = Phase::Waiting { due: now };
        let child = Child { name, phase, restarts: 0, last_exit: None, restart, streak: 0 };
        self.children.insert(key, child);
        self.waiting.insert((now, key));
        key
    }

    /// Starts what is due.
    pub(crate) fn tick(&mut self, now: Duration) -> Vec<Action> {
        if self.ending.is_some() || self.next_due().is_none_or(|due| due > now) {
            return Vec::new();
        }
        let mut due: Vec<Key> = self.waiting.range(..=(now, Key::MAX)).map(|(_, key)| *key).collect();
        due.sort_unstable();
        for key in &due {
            self.set(*key, Phase::Up { since: now });
            if let Some(child) = self.children.get_mut(key)
                && child.last_exit.is_some()
            {
                child.restarts = child.restarts.saturating_add(1);
            }
        }
        due.into_iter().map(Action::Start).collect()
    }

    /// When to call `tick` next. `None`: nobody waits, or a group waits for a stopping sibling.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let next = match self.strategy {
            Strategy::OneForOne => self.waiting.first(),
            Strategy::RestForOne | Strategy::OneForAll if self.stopping.is_empty() => self.waiting.last(),
            Strategy::RestForOne | Strategy::OneForAll => None,
        };
        next.map(|(due, _)| *due)
    }

    /// A child ended. `jitter` is a random number in `0.0..1.0`.
    pub(crate) fn ended(&mut self, key: Key, reason: ExitReason, now: Duration, jitter: f64) -> Vec<Action> {
        let Some(child) = self.children.get_mut(&key) else {
            return Vec::new();
        };
        let phase = child.phase;
        child.last_exit = Some(reason.clone());
        let mut actions = match phase {
            Phase::Up { .. } => self.fell(key, &reason, now, jitter),
            Phase::Stopping(Then::Restart { due }) => {
                self.set(key, Phase::Waiting { due });
                Vec::new()
            }
            Phase::Stopping(Then::Remove) => self.remove(key),
            Phase::Waiting { .. } | Phase::Failed => return Vec::new(),
        };
        actions.extend(self.tick(now));
        actions.extend(self.end_if_empty());
        actions
    }

    /// Someone wants the child gone.
    pub(crate) fn stop(&mut self, key: Key) -> Vec<Action> {
        let Some(child) = self.children.get(&key) else {
            return Vec::new();
        };
        match child.phase {
            Phase::Up { .. } => {
                self.set(key, Phase::Stopping(Then::Remove));
                vec![Action::Stop(key)]
            }
            Phase::Stopping(_) => {
                self.set(key, Phase::Stopping(Then::Remove));
                Vec::new()
            }
            Phase::Waiting { .. } | Phase::Failed => self.remove(key),
        }
    }

    /// Someone wants all gone, and the supervisor with them.
    pub(crate) fn shutdown(&mut self) -> Vec<Action> {
        if self.ending.is_some() {
            return Vec::new();
        }
        let mut actions = self.stop_all(ExitReason::Shutdown);
        actions.extend(self.end_if_empty());
        actions
    }

    /// A running child ended by itself.
    fn fell(&mut self, key: Key, reason: &ExitReason, now: Duration, jitter: f64) -> Vec<Action> {
        let Some(restart) = self.children.get(&key).map(|child| child.restart) else {
            return Vec::new();
        };
        match (comes_back(restart, reason), reason.is_fault()) {
            (false, true) => return self.keep_failed(key),
            (false, false) => return self.remove(key),
            (true, _) => {}
        }
        let (streak, count) = self.count(key, now);
        if count > self.intensity.max_restarts {
            return self.give_up(key, reason);
        }
        let due = now.saturating_add(wait(self.backoff, streak, jitter));
        self.take_down(key, due)
    }

    /// Counts one more restart for a child that fell: its own in a row, and those that count
    /// against the intensity.
    fn count(&mut self, fallen: Key, now: Duration) -> (u32, u32) {
        let within = self.intensity.within;
        let forgive = |child: &mut Child| {
            if matches!(child.phase, Phase::Up { since } if now.saturating_sub(since) >= within) {
                child.streak = 0;
            }
        };
        let mut streak = 0;
        if let Some(child) = self.children.get_mut(&fallen) {
            forgive(child);
            child.streak = child.streak.saturating_add(1);
            streak = child.streak;
        }
        match self.strategy {
            Strategy::OneForOne => (streak, streak),
            Strategy::RestForOne | Strategy::OneForAll => {
                let siblings = self.children.iter_mut().filter(|(key, _)| **key != fallen);
                let count = siblings.fold(streak, |sum, (_, child)| {
                    forgive(child);
                    sum.saturating_add(child.streak)
                });
                (streak, count)
            }
        }
    }

    fn give_up(&mut self, key: Key, reason: &ExitReason) -> Vec<Action> {
        let name = self.children.get(&key).map_or("", |child| child.name.as_str());
        let Intensity { max_restarts, within } = self.intensity;
        let why =
            format!("gave up after {max_restarts} restarts without {within:?} of uptime, at last `{name}`: {reason}");
        let mut actions = self.remove(key);
        actions.extend(self.stop_all(ExitReason::Failed(why)));
        actions
    }

    /// Puts the fallen child, and whom the strategy takes along, on the way to a start at `due`.
    fn take_down(&mut self, fallen: Key, due: Duration) -> Vec<Action> {
        self.set(fallen, Phase::Waiting { due });
        let siblings: Vec<Key> = match self.strategy {
            Strategy::OneForOne => Vec::new(),
            Strategy::RestForOne => self.children.range(fallen + 1..).map(|(key, _)| *key).collect(),
            Strategy::OneForAll => self.children.keys().copied().filter(|key| *key != fallen).collect(),
        };
        siblings.into_iter().filter_map(|key| self.take_along(key, due)).collect()
    }

    fn take_along(&mut self, key: Key, due: Duration) -> Option<Action> {
        let child = self.children.get(&key)?;
        let (phase, action) = match child.phase {
            Phase::Up { .. } => {
                let then = match child.restart {
                    Restart::Permanent | Restart::Transient => Then::Restart { due },
                    Restart::Temporary => Then::Remove,
                };
                (Phase::Stopping(then), Some(Action::Stop(key)))
            }
            Phase::Waiting { due: before } => (Phase::Waiting { due: due.max(before) }, None),
            Phase::Stopping(Then::Restart { due: before }) => {
                let due = due.max(before);
                (Phase::Stopping(Then::Restart { due }), None)
            }
            phase @ (Phase::Stopping(Then::Remove) | Phase::Failed) => (phase, None),
        };
        self.set(key, phase);
        action
    }

    fn keep_failed(&mut self, key: Key) -> Vec<Action> {
        self.set(key, Phase::Failed);
        let mut actions = vec![Action::Fail(key)];
        if self.failed.len() > FAILED_KEPT
            && let Some(oldest) = self.failed.first().copied()
        {
            actions.extend(self.remove(oldest));
        }
        actions
    }

    fn stop_all(&mut self, reason: ExitReason) -> Vec<Action> {
        self.ending = Some(reason);
        let keys: Vec<Key> = self.children.keys().copied().collect();
        keys.into_iter().flat_map(|key| self.stop(key)).collect()
    }

    fn end_if_empty(&self) -> Option<Action> {
        let reason = self.ending.as_ref().filter(|_| self.children.is_empty())?;
        Some(Action::End(reason.clone()))
    }

    fn set(&mut self, key: Key, phase: Phase) {
        let Some(child) = self.children.get_mut(&key) else {
            return;
        };
        let before = std::mem::replace(&mut child.phase, phase);
        self.unindex(key, before);
        match phase {
            Phase::Up { .. } => false,
            Phase::Stopping(_) => self.stopping.insert(key),
            Phase::Waiting { due } => self.waiting.insert((due, key)),
            Phase::Failed => self.failed.insert(key),
        };
    }

    fn remove(&mut self, key: Key) -> Vec<Action> {
        let Some(child) = self.children.remove(&key) else {
            return Vec::new();
        };
        self.unindex(key, child.phase);
        vec![Action::Remove(key)]
    }

    fn unindex(&mut self, key: Key, phase: Phase) {
        match phase {
            Phase::Up { .. } => false,
            Phase::Stopping(_) => self.stopping.remove(&key),
            Phase::Waiting { due } => self.waiting.remove(&(due, key)),
            Phase::Failed => self.failed.remove(&key),
        };
    }
}

fn comes_back(restart: Restart, reason: &ExitReason) -> bool {
    match restart {
        // A shutdown nobody asked this supervisor for is one the child's owner asked it for.
        Restart::Permanent => *reason != ExitReason::Shutdown,
        Restart::Transient => reason.is_fault(),
        Restart::Temporary => false,
    }
}

/// The wait before the restart that makes the streak `streak` (one or more).
fn wait(backoff: Backoff, streak: u32, jitter: f64) -> Duration {
    let doubled = |base: Duration, times: u32| base.saturating_mul(2_u32.saturating_pow(times));
    let full = match streak.saturating_sub(1) {
        0 => backoff.first,
        n => doubled(backoff.first, n).max(doubled(STEP, n - 1)),
    };
    full.min(backoff.max).min(LONGEST).mul_f64(1.0 - jitter.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests;

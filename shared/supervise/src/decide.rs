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

use std::collections::BTreeMap;
use std::time::Duration;

use crate::exit::ExitReason;
use crate::spec::{Backoff, Intensity, Restart, Strategy};

/// A child's number; later children have greater ones, so numbers are the start order.
pub(crate) type Key = u64;

/// Failed children kept for the status; the oldest is forgotten first.
const FAILED_KEPT: usize = 64;

/// The first wait after a `first` of zero has been used up.
const STEP: Duration = Duration::from_millis(100);

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
    next: Key,
    ending: Option<ExitReason>,
}

impl Decider {
    pub(crate) fn new(strategy: Strategy, intensity: Intensity, backoff: Backoff) -> Self {
        Decider { strategy, intensity, backoff, children: BTreeMap::new(), next: 0, ending: None }
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
        self.children.insert(key, Child { name, phase, restarts: 0, last_exit: None, restart, streak: 0 });
        key
    }

    /// Starts what is due.
    pub(crate) fn tick(&mut self, now: Duration) -> Vec<Action> {
        if self.ending.is_some() || self.next_due().is_none_or(|due| due > now) {
            return Vec::new();
        }
        let mut actions = Vec::new();
        for (key, child) in &mut self.children {
            if matches!(child.phase, Phase::Waiting { due } if due <= now) {
                if child.last_exit.is_some() {
                    child.restarts = child.restarts.saturating_add(1);
                }
                child.phase = Phase::Up { since: now };
                actions.push(Action::Start(*key));
            }
        }
        actions
    }

    /// When to call `tick` next. `None`: nobody waits, or a group waits for a stopping sibling.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let waiting = self.children.values().filter_map(|child| match child.phase {
            Phase::Waiting { due } => Some(due),
            Phase::Up { .. } | Phase::Stopping(_) | Phase::Failed => None,
        });
        match self.strategy {
            Strategy::OneForOne => waiting.min(),
            Strategy::RestForOne | Strategy::OneForAll => {
                let stopping = |child: &Child| matches!(child.phase, Phase::Stopping(_));
                if self.children.values().any(stopping) { None } else { waiting.max() }
            }
        }
    }

    /// A child ended. `jitter` is a random number in `0.0..1.0`.
    pub(crate) fn ended(&mut self, key: Key, reason: ExitReason, now: Duration, jitter: f64) -> Vec<Action> {
        let Some(child) = self.children.get_mut(&key) else { return Vec::new() };
        let phase = child.phase;
        child.last_exit = Some(reason.clone());
        let mut actions = match phase {
            Phase::Up { .. } => self.fell(key, reason, now, jitter),
            Phase::Stopping(Then::Restart { due }) => {
                child.phase = Phase::Waiting { due };
                Vec::new()
            }
            Phase::Stopping(Then::Remove) => self.remove(key),
            Phase::Waiting { .. } | Phase::Failed => Vec::new(),
        };
        actions.extend(self.tick(now));
        actions.extend(self.end_if_empty());
        actions
    }

    /// Someone wants the child gone.
    pub(crate) fn stop(&mut self, key: Key) -> Vec<Action> {
        let Some(child) = self.children.get_mut(&key) else { return Vec::new() };
        match child.phase {
            Phase::Up { .. } => {
                child.phase = Phase::Stopping(Then::Remove);
                vec![Action::Stop(key)]
            }
            Phase::Stopping(_) => {
                child.phase = Phase::Stopping(Then::Remove);
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
    fn fell(&mut self, key: Key, reason: ExitReason, now: Duration, jitter: f64) -> Vec<Action> {
        self.forgive(now);
        let Some(child) = self.children.get_mut(&key) else { return Vec::new() };
        if !comes_back(child.restart, &reason) {
            return if reason.is_fault() { self.keep_failed(key) } else { self.remove(key) };
        }
        child.streak = child.streak.saturating_add(1);
        let streak = child.streak;
        if self.count(key) > self.intensity.max_restarts {
            return self.give_up(key, &reason);
        }
        let due = now.saturating_add(wait(self.backoff, streak, jitter));
        self.take_down(key, due)
    }

    /// Sets the count of all who stayed up long enough to zero.
    fn forgive(&mut self, now: Duration) {
        let within = self.intensity.within;
        let stayed =
            |child: &&mut Child| matches!(child.phase, Phase::Up { since } if now.saturating_sub(since) >= within);
        self.children.values_mut().filter(stayed).for_each(|child| child.streak = 0);
    }

    /// The restarts in a row that count against a child that fell.
    fn count(&self, key: Key) -> u32 {
        match self.strategy {
            Strategy::OneForOne => self.children.get(&key).map_or(0, |child| child.streak),
            Strategy::RestForOne | Strategy::OneForAll => {
                self.children.values().fold(0, |sum: u32, child| sum.saturating_add(child.streak))
            }
        }
    }

    fn give_up(&mut self, key: Key, reason: &ExitReason) -> Vec<Action> {
        let name = self.children.get(&key).map_or("", |child| child.name.as_str());
        let Intensity { max_restarts, within } = self.intensity;
        let why = format!(
            "gave up after {max_restarts} restarts in a row without {within:?} of uptime, at last `{name}`: {reason}"
        );
        let mut actions = self.remove(key);
        actions.extend(self.stop_all(ExitReason::Failed(why)));
        actions
    }

    /// Puts the fallen child, and whom the strategy takes along, on the way to a start at `due`.
    fn take_down(&mut self, fallen: Key, due: Duration) -> Vec<Action> {
        let mut actions = Vec::new();
        for (key, child) in &mut self.children {
            let included = match self.strategy {
                Strategy::OneForOne => *key == fallen,
                Strategy::RestForOne => *key >= fallen,
                Strategy::OneForAll => true,
            };
            if !included {
                continue;
            }
            child.phase = match child.phase {
                Phase::Up { .. } if *key == fallen => Phase::Waiting { due },
                Phase::Up { .. } => {
                    actions.push(Action::Stop(*key));
                    match child.restart {
                        Restart::Permanent | Restart::Transient => Phase::Stopping(Then::Restart { due }),
                        Restart::Temporary => Phase::Stopping(Then::Remove),
                    }
                }
                Phase::Waiting { due: before } => Phase::Waiting { due: due.max(before) },
                Phase::Stopping(Then::Restart { due: before }) => {
                    Phase::Stopping(Then::Restart { due: due.max(before) })
                }
                phase @ (Phase::Stopping(Then::Remove) | Phase::Failed) => phase,
            };
        }
        actions
    }

    fn keep_failed(&mut self, key: Key) -> Vec<Action> {
        let mut actions = vec![Action::Fail(key)];
        if let Some(child) = self.children.get_mut(&key) {
            child.phase = Phase::Failed;
        }
        let failed = |(key, child): (&Key, &Child)| (child.phase == Phase::Failed).then_some(*key);
        let kept: Vec<Key> = self.children.iter().filter_map(failed).collect();
        if kept.len() > FAILED_KEPT
            && let Some(oldest) = kept.first()
        {
            actions.extend(self.remove(*oldest));
        }
        actions
    }

    fn stop_all(&mut self, reason: ExitReason) -> Vec<Action> {
        self.ending = Some(reason);
        let keys: Vec<Key> = self.children.keys().copied().collect();
        keys.into_iter().flat_map(|key| self.stop(key)).collect()
    }

    fn remove(&mut self, key: Key) -> Vec<Action> {
        self.children.remove(&key).map(|_| Action::Remove(key)).into_iter().collect()
    }

    fn end_if_empty(&self) -> Option<Action> {
        let reason = self.ending.as_ref().filter(|_| self.children.is_empty())?;
        Some(Action::End(reason.clone()))
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
    full.min(backoff.max).mul_f64(1.0 - jitter.clamp(0.0, 1.0) / 2.0)
}

#[cfg(test)]
mod tests;

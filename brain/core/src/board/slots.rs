//! Who runs next. Sessions take turns: of those that have something ready the one with the fewest running tasks is next, and among
//! equals the one that has waited longest. So a session with ten thousand ready tasks costs another with one of them a turn, not a queue.

use std::collections::{BTreeSet, HashMap, VecDeque};

use vance_shared::ids::{SessionId, TaskId};

use super::{Board, Order, Stand};
use crate::task::Input;

/// Ready tasks, and how many run.
#[derive(Debug, Default)]
pub(super) struct Ready {
    sessions: HashMap<SessionId, Share>,
    /// Sessions with something ready, by running tasks, then by the time of their last turn.
    order: BTreeSet<(usize, u64, SessionId)>,
    running: usize,
    turns: u64,
}

#[derive(Debug, Default)]
struct Share {
    ready: VecDeque<TaskId>,
    running: usize,
    /// When it came into the order, or had its last turn.
    turn: u64,
}

impl Ready {
    /// Tasks that run, of all sessions.
    pub(super) fn running(&self) -> usize {
        self.running
    }

    /// Changes a session's share, and its place in the order.
    fn change(&mut self, session: &SessionId, change: impl FnOnce(&mut Share)) {
        let share = self.sessions.entry(session.clone()).or_default();
        if share.ready.is_empty() {
            self.turns += 1;
            share.turn = self.turns;
        } else {
            self.order.remove(&(share.running, share.turn, session.clone()));
        }
        change(share);
        if !share.ready.is_empty() {
            self.order.insert((share.running, share.turn, session.clone()));
        } else if share.running == 0 {
            self.sessions.remove(session);
        }
    }

    pub(super) fn push(&mut self, session: &SessionId, id: TaskId) {
        self.change(session, |share| share.ready.push_back(id));
    }

    /// The next, of the session whose turn it is.
    pub(super) fn pop(&mut self) -> Option<TaskId> {
        let (_, _, session) = self.order.first()?.clone();
        self.turns += 1;
        let (turn, mut next) = (self.turns, None);
        self.change(&session, |share| {
            next = share.ready.pop_front();
            share.turn = turn;
        });
        next
    }

    pub(super) fn began(&mut self, session: &SessionId) {
        self.running += 1;
        self.change(session, |share| share.running += 1);
    }

    pub(super) fn ended(&mut self, session: &SessionId) {
        self.running = self.running.saturating_sub(1);
        self.change(session, |share| share.running = share.running.saturating_sub(1));
    }
}

impl Board {
    /// A task looks again by itself after a pause. Others may have its slot meanwhile.
    pub fn rests(&mut self, id: &TaskId) -> Vec<Order> {
        let mut out = Vec::new();
        if self.nodes.get(id).is_some_and(|n| matches!(n.stand, Stand::Running | Stand::Parked(_))) {
            self.unindex(id);
            self.set(id, Stand::Resting);
        }
        self.fill_slots(&mut out);
        out
    }

    /// Its pause is over: it runs when a slot is free.
    pub fn rested(&mut self, id: &TaskId) -> Vec<Order> {
        let mut out = Vec::new();
        match self.nodes.get(id).map(|n| &n.stand) {
            Some(Stand::Resting) => self.make_ready(id),
            // That it rests was never heard of: it has its slot.
            Some(Stand::Running) => out.push(Order { task_id: id.clone(), input: Input::Start }),
            Some(
                Stand::Waiting | Stand::Ready | Stand::Around | Stand::Parked(_) | Stand::Done(_) | Stand::Reviving(_),
            )
            | None => {}
        }
        self.fill_slots(&mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn session(name: &str) -> SessionId {
        SessionId::parse(name).unwrap()
    }

    fn task(name: &str, n: usize) -> TaskId {
        TaskId::parse(&format!("{name}.{n}")).unwrap()
    }

    #[test]
    fn a_session_with_one_task_waits_for_one_turn_whatever_another_has() {
        let mut ready = Ready::default();
        for n in 0..10_000 {
            ready.push(&session("noisy"), task("noisy", n));
        }
        for n in 0..3 {
            assert_eq!(ready.pop(), Some(task("noisy", n)));
            ready.began(&session("noisy"));
        }
        ready.push(&session("calm"), task("calm", 0));
        ready.push(&session("other"), task("other", 0));
        assert_eq!(ready.pop(), Some(task("calm", 0)), "fewer of it run");
        ready.began(&session("calm"));
        assert_eq!(ready.pop(), Some(task("other", 0)));
        ready.began(&session("other"));
        assert_eq!((ready.pop(), ready.running()), (Some(task("noisy", 3)), 5));
    }

    #[test]
    fn equals_take_turns_and_what_is_over_is_forgotten() {
        let mut ready = Ready::default();
        for n in 0..3 {
            for name in ["a", "b", "c"] {
                ready.push(&session(name), task(name, n));
            }
        }
        let mut order = Vec::new();
        while let Some(id) = ready.pop() {
            // Each is over at once, so all are equals all the time.
            let name = session(&id.as_str()[..1]);
            ready.began(&name);
            ready.ended(&name);
            order.push(id.as_str().to_owned());
        }
        assert_eq!(order.join(" "), "a.0 b.0 c.0 a.1 b.1 c.1 a.2 b.2 c.2");
        assert!(ready.sessions.is_empty() && ready.order.is_empty() && ready.running == 0);
    }

    #[test]
    fn a_busy_session_gets_all_slots_that_nobody_else_wants() {
        let mut ready = Ready::default();
        for n in 0..5 {
            ready.push(&session("a"), task("a", n));
        }
        for n in 0..5 {
            assert_eq!(ready.pop(), Some(task("a", n)));
            ready.began(&session("a"));
        }
        assert_eq!((ready.pop(), ready.running()), (None, 5));
    }
}

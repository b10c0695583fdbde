//! Autonomous sessions are made one a run, and stay in the store. In memory is only what still goes on.

use std::time::Duration;

use vance_supervise::{AsyncContext as _, Context};

use super::Scheduler;

/// How often is looked for sessions without tasks. What is so twice in a row is let go: whoever has a session in hand meanwhile is done with it.
const EVERY: Duration = Duration::from_secs(60);

impl Scheduler {
    pub(super) fn look_for_idle(ctx: &mut Context<Self>) {
        ctx.run_interval(EVERY, |actor, _| actor.let_idle_go());
    }

    pub(super) fn let_idle_go(&mut self) {
        let idle = self.brain.directory.idle(&self.board.busy_sessions());
        for session_id in idle.intersection(&self.idle) {
            self.board.forget_session(session_id);
        }
        self.brain.directory.let_go(idle.intersection(&self.idle));
        self.idle = idle.difference(&self.idle).cloned().collect();
    }
}

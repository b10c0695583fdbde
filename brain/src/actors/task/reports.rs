//! A task's reports to the scheduler: in order, and none is lost because the scheduler has no room at the moment.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vance_supervise::{ActorRef, Refusal};

use crate::actors::scheduler::{FromTask, Scheduler};

/// Reports that wait for room. Few: a task says how it stands when that changes. A lock, held for one operation each, because whoever waits
/// for room is not the actor.
#[derive(Default, Clone)]
pub(super) struct Reports(Arc<Mutex<VecDeque<FromTask>>>);

impl Reports {
    /// Says it now, or when there is room.
    pub(super) fn say(&self, scheduler: &ActorRef<Scheduler>, message: FromTask) {
        let mut waiting = self.waiting();
        if !waiting.is_empty() {
            waiting.push_back(message);
            return;
        }
        match scheduler.tell(message.clone()) {
            Ok(()) => {}
            Err(Refusal::Full) => {
                waiting.push_back(message);
                tokio::spawn(self.clone().say_all(scheduler.clone()));
            }
            Err(refusal) => lost(&message, refusal),
        }
    }

    async fn say_all(self, scheduler: ActorRef<Scheduler>) {
        while let Some(message) = self.first() {
            match scheduler.post(message.clone()).await {
                Err(Refusal::Full) => continue,
                Ok(()) => {}
                Err(refusal) => lost(&message, refusal),
            }
            self.waiting().pop_front();
        }
    }

    fn first(&self) -> Option<FromTask> {
        self.waiting().front().cloned()
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<FromTask>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The scheduler is restarting: it rebuilds everything from the store and starts new task actors.
fn lost(message: &FromTask, refusal: Refusal) {
    tracing::warn!(task_id = %message.task_id, %refusal, "the scheduler did not take a report");
}

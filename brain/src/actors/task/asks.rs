//! A task's open question, for the clients that are to be shown it.

use vance_brain_core::session::OpenQuestion;
use vance_brain_core::spec::Mode;
use vance_brain_core::task::Place;

use super::TaskActor;

impl TaskActor {
    /// Says with which question the task waits. Only what is stored is said; the same again costs a comparison.
    pub(super) fn says_question(&mut self) {
        let (Some(task), Some(session)) = (&self.task, &self.session) else { return };
        let now = task.question.as_ref().map(|asking| asking.question.question_id.clone());
        if self.said_question.as_ref() == Some(&now) {
            return;
        }
        let question = task.question.as_ref().map(|asking| {
            let call = task.call.as_ref();
            let (asker, machine) = match call.map(|call| &call.place) {
                Some(Place::Client { client_id, machine, .. }) => (Some(client_id.clone()), Some(machine.clone())),
                Some(Place::Server) | None => (None, None),
            };
            OpenQuestion {
                question: asking.question.clone(),
                session_id: session.session_id.clone(),
                autonomous: session.mode == Mode::Autonomous,
                task_id: Some(self.task_id.clone()),
                tool: call.map(|call| call.tool.to_string()).unwrap_or_default(),
                asker,
                machine,
                asked_at: asking.asked_at,
            }
        });
        let answered = task.answered.as_ref().map(|last| (&last.question.question_id, last.by.as_str()));
        self.brain.task_asks(session, &self.task_id, question, answered);
        self.said_question = Some(now);
    }
}

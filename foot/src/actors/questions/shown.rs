//! Questions of calls that other clients (or the Brain) run, shown to the person at this terminal. Without one they are ignored.
//!
//! | the question | `elicit` | the person | `elicit_end` | line gone |
//! |---|---|---|---|---|
//! | unknown | is asked | - | - | - |
//! | is asked | - | answers: `elicit_reply`, given · leaves it: left | taken back | taken back, unknown |
//! | given | `elicit_reply` again | - | forgotten | stays |
//! | left | - | - | forgotten | stays |
//!
//! What is left stays open at the Brain: nobody's silence answers for all.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use tokio::task::AbortHandle;
use vance_mcp_host::Elicited;
use vance_shared::ids::QuestionId;
use vance_shared::json::Raw;
use vance_shared::question::{Action, Answer, QuestionEnd};
use vance_shared::show::plain;
use vance_shared::wire::{Elicit, ElicitEnd, ElicitReply};
use vance_supervise::{ActorRef, Refusal};

use crate::actors::dispatcher::{Dispatcher, ToDispatcher};
use crate::native::{AskElsewhere, Elsewhere};

/// Questions that are remembered: many times what a Brain shows at a time. Beyond it the person is asked no more.
const MAX_SHOWN: usize = 256;

/// All of them.
pub(crate) struct Shown {
    person: Option<AskElsewhere>,
    brain: Option<ActorRef<Dispatcher>>,
    table: Mutex<HashMap<QuestionId, Stand>>,
    /// One at a time: between two of them there is room for what this Foot's own tools ask.
    turn: tokio::sync::Mutex<()>,
}

enum Stand {
    Asked { over: Arc<OnceLock<String>>, task: AbortHandle },
    Given(ElicitReply),
    Left,
}

impl Shown {
    pub(super) fn new(person: Option<AskElsewhere>, brain: Option<ActorRef<Dispatcher>>) -> Self {
        Self { person, brain, table: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    /// A question is open elsewhere. Gives the answer, if there is one already.
    pub(crate) fn asked(self: &Arc<Self>, elicit: Elicit) -> Option<ElicitReply> {
        let person = self.person.clone()?;
        let mut table = self.table();
        match table.get(&elicit.question_id) {
            Some(Stand::Given(reply)) => return Some(reply.clone()),
            Some(Stand::Asked { .. } | Stand::Left) => return None,
            None if table.len() >= MAX_SHOWN => {
                tracing::warn!(
                    "more than {MAX_SHOWN} questions: one more is not asked here; `vancetope tasks` shows it"
                );
                return None;
            }
            None => {}
        }
        let (shown, over, id) = (Arc::clone(self), Arc::<OnceLock<String>>::default(), elicit.question_id.clone());
        let question = Elsewhere { elicit, over: Arc::clone(&over) };
        let task = tokio::spawn(async move {
            let turn = shown.turn.lock().await;
            let (call_id, question_id) = (question.elicit.call_id.clone(), question.elicit.question_id.clone());
            let has_fields = question.elicit.url.is_none();
            let said = answer(person(question).await, has_fields);
            drop(turn);
            let reply = said.map(|answer| ElicitReply::of(call_id, question_id.clone(), answer));
            shown.settle(&question_id, reply).await;
        });
        table.insert(id, Stand::Asked { over, task: task.abort_handle() });
        None
    }

    async fn settle(&self, id: &QuestionId, reply: Option<ElicitReply>) {
        {
            let mut table = self.table();
            // Else it was taken back while it was answered.
            let Some(stand) = table.get_mut(id) else { return };
            *stand = reply.clone().map_or(Stand::Left, Stand::Given);
        }
        let (Some(reply), Some(brain)) = (reply, &self.brain) else { return };
        // Should the line be gone, the question comes again on the next one.
        while brain.post(ToDispatcher::Answers(reply.clone())).await == Err(Refusal::Full) {}
    }

    /// It is not open any more.
    pub(crate) fn over(&self, end: &ElicitEnd) {
        let Some(Stand::Asked { over, task }) = self.table().remove(&end.question_id) else { return };
        take_back(&over, &task, why(end));
    }

    /// The line is gone, and what is open comes again on the next one.
    pub(crate) fn line_gone(&self) {
        self.table().retain(|_, stand| match stand {
            Stand::Asked { over, task } => {
                take_back(over, task, "the line to the Brain is cut; it asks again when it is back".to_owned());
                false
            }
            Stand::Given(_) | Stand::Left => true,
        });
    }

    fn table(&self) -> MutexGuard<'_, HashMap<QuestionId, Stand>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn take_back(over: &OnceLock<String>, task: &AbortHandle, why: String) {
    // Said once: what was first counts.
    over.set(why).ok();
    task.abort();
}

fn why(end: &ElicitEnd) -> String {
    match (end.how, &end.by) {
        (QuestionEnd::Answered, Some(by)) => format!("{} has answered it elsewhere", plain(by)),
        (QuestionEnd::Answered, None) => "it was answered elsewhere".to_owned(),
        (QuestionEnd::Withdrawn, _) => "its server does not wait any more".to_owned(),
        (QuestionEnd::Expired, _) => "nobody answered it in time".to_owned(),
    }
}

/// What the person said; none: it stays open.
fn answer(said: Elicited, has_fields: bool) -> Option<Answer> {
    match said {
        Elicited::Accepted(fields) => {
            let content = has_fields.then(|| Raw::from(serde_json::Value::Object(fields)));
            Some(Answer { action: Action::Accept, content })
        }
        Elicited::Declined => Some(Answer::bare(Action::Decline)),
        Elicited::Cancelled | Elicited::Unanswered => None,
    }
}

#[cfg(test)]
mod tests;

//! Questions of this session's tasks and calls, shown to its other clients; and what the people there say.

use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use vance_brain_core::session::Due;
use vance_shared::ids::{CallId, ClientId, QuestionId};
use vance_shared::question::{Answer, QuestionEnd};
use vance_shared::wire::{ElicitEnd, ElicitReply, ErrorFrame, ToFoot};
use vance_supervise::{AsyncContext as _, Context, Handler, Message};

use super::SessionActor;
use crate::api::{ApiError, questions};
use crate::hub::Brain;
use crate::questions::open::Found;

/// Until a client whose outbox had no room is told again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How often an answer is tried while the store or the scheduler is away, and the pause in between: the Foot says it again on its next line.
const TRIES: u32 = 30;
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// Message: the open questions have changed.
#[derive(Debug, Clone, Message)]
#[rtype(result = "()")]
pub struct LookAtQuestions;

impl Handler<LookAtQuestions> for SessionActor {
    type Result = ();

    fn handle(&mut self, _: LookAtQuestions, ctx: &mut Self::Context) {
        self.look_at_questions(ctx);
    }
}

impl SessionActor {
    /// Tells each client what it has not heard.
    pub(super) fn look_at_questions(&mut self, ctx: &mut Context<Self>) {
        // Before the reading: what changes after it is another word.
        self.handle.looks_at_questions();
        let open = self.brain.questions.for_session(&self.handle);
        let due = self.showing.due(&open, self.links.iter().map(|(client_id, link)| (client_id, link.epoch)));
        let mut all_told = true;
        for due in due {
            let (client_id, frame) = match &due {
                Due::Show { client_id, question } => (client_id, ToFoot::Elicit(Box::new(question.frame()))),
                Due::Over { client_id, call_id, question_id } => (client_id, self.over(call_id, question_id)),
            };
            // What can wait does not overtake, and a full outbox is no reason to close it.
            match self.links.get(client_id).map(|link| link.outbox.send(frame)) {
                Some(Ok(())) => self.showing.told(&due),
                Some(Err(_)) => all_told = false,
                None => {}
            }
        }
        if !all_told && !std::mem::replace(&mut self.looks_again, true) {
            ctx.run_later(LOOK_AGAIN, |actor, ctx| {
                actor.looks_again = false;
                actor.look_at_questions(ctx);
            });
        }
    }

    fn over(&self, call_id: &CallId, question_id: &QuestionId) -> ToFoot {
        let (how, by) = match self.brain.questions.find(&self.handle.owner, question_id) {
            Found::Ended(ended) => (ended.how, ended.by),
            Found::Open(_) | Found::Nowhere => (QuestionEnd::Withdrawn, None),
        };
        ToFoot::ElicitEnd(ElicitEnd { by, ..ElicitEnd::of(call_id.clone(), question_id.clone(), how) })
    }

    /// A client's person answers a question that it was shown. `place`: given back once that is settled.
    pub(super) fn answered(
        &mut self,
        client_id: &ClientId,
        epoch: u64,
        reply: ElicitReply,
        place: OwnedSemaphorePermit,
    ) {
        let Some(link) = self.links.get(client_id).filter(|link| link.epoch == epoch) else { return };
        let ElicitReply { call_id, question_id, action, content, .. } = reply;
        if self.brain.questions.find(&self.handle.owner, &question_id) == Found::Nowhere {
            // Over for long, or not its principal's: it need not ask anybody.
            let over = self.over(&call_id, &question_id);
            self.send(client_id, over);
            return;
        }
        let (brain, owner, outbox) = (self.brain.clone(), self.handle.owner.clone(), link.outbox.clone());
        tokio::spawn(async move {
            let _place = place;
            if let Err(error) = settle(&brain, &owner, &question_id, Answer { action, content }).await {
                let error = ErrorFrame::of(error.fault, Some(question_id.to_string()));
                // A client that is gone is shown it again.
                outbox.send(ToFoot::Error(error)).ok();
            }
        });
    }
}

async fn settle(brain: &Brain, owner: &str, question_id: &QuestionId, answer: Answer) -> Result<(), ApiError> {
    let mut tries = 0;
    loop {
        tries += 1;
        match questions::answer(brain, owner, question_id, answer.clone()).await {
            Err(error) if error.status == 503 && tries < TRIES => tokio::time::sleep(TRY_AGAIN).await,
            other => return other.map(drop),
        }
    }
}

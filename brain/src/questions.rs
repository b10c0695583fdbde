//! What server packs ask in the middle of a task's call, until the task has a person's answer.

use std::sync::Arc;

use dashmap::DashMap;
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use vance_brain_core::task::Input;
use vance_mcp_host::{Elicit, Elicited, People, Person};
use vance_shared::ids::{CallId, QuestionId, TaskId};
use vance_shared::json::Raw;
use vance_shared::question::{Action, Answer, Question, QuestionEnd};

use crate::actors::scheduler::OfQuestion;
use crate::hub::Brain;

pub mod open;

/// Why a call over the API gets no answer to a question.
pub const NO_TASK: &str = "nobody waits for what a call without a task asks; say \"ask\": true with it, or submit it as a task: then it waits for an answer";

/// Open questions. The map is shared because packs ask on the tasks of their calls and answers come from actors; it is held for a map access.
#[derive(Clone, Default)]
pub struct Questions(Arc<DashMap<QuestionId, oneshot::Sender<Answer>>>);

impl Questions {
    /// Gives a server its answer. One that does not wait any more has said so itself.
    pub fn answer(&self, question_id: &QuestionId, answer: Answer) {
        if let Some((_, tell)) = self.0.remove(question_id)
            && tell.send(answer).is_err()
        {
            tracing::debug!(%question_id, "an answer came after its question");
        }
    }
}

/// For server packs, which hear beforehand that people can be asked, and for what they ask outside of any call.
pub fn people() -> People {
    People { elicit: Some(nobody("a server pack asks outside of any call, so nobody was asked")), ..People::default() }
}

fn nobody(why: &'static str) -> Elicit {
    Arc::new(move |question| {
        tracing::warn!(pack = %question.pack, "a question is declined: {why}");
        Box::pin(std::future::ready(Elicited::Declined))
    })
}

/// Whoever answers a task's questions.
pub fn person(brain: &Brain, task_id: &TaskId, call_id: &CallId) -> Person {
    let (brain, task_id, call_id) = (brain.clone(), task_id.clone(), call_id.clone());
    let elicit = move |question: vance_mcp_host::Question| -> BoxFuture<'static, Elicited> {
        Box::pin(ask(brain.clone(), task_id.clone(), call_id.clone(), question))
    };
    Person { elicit: Some(Arc::new(elicit)), ..Person::default() }
}

async fn ask(brain: Brain, task_id: TaskId, call_id: CallId, asked: vance_mcp_host::Question) -> Elicited {
    let question_id = QuestionId::generate();
    let (tell, answer) = oneshot::channel();
    brain.executor.questions().0.insert(question_id.clone(), tell);
    let mut open = Open { brain, task_id, call_id, question_id, how: QuestionEnd::Withdrawn };
    let question = Question {
        call_id: open.call_id.clone(),
        question_id: open.question_id.clone(),
        message: asked.message,
        schema: Raw::from(asked.schema),
        url: asked.url,
    };
    if let Err(refusal) = open.brain.scheduler.post(open.says(Input::Asked(question))).await {
        tracing::warn!(pack = %asked.pack, %refusal, "a question of a server pack did not reach its task");
        return Elicited::Unanswered;
    }
    let (how, said) = match tokio::time::timeout(open.brain.config.defaults.answer_within, answer).await {
        Ok(Ok(answer)) => (QuestionEnd::Answered, elicited(answer)),
        Ok(Err(_)) => (QuestionEnd::Withdrawn, Elicited::Cancelled),
        Err(_) => (QuestionEnd::Expired, Elicited::Unanswered),
    };
    open.how = how;
    said
}

/// An answer as the server's host takes it.
pub fn elicited(Answer { action, content }: Answer) -> Elicited {
    match action {
        Action::Accept => {
            let content = content.and_then(|content| content.value().as_object().cloned());
            Elicited::Accepted(content.unwrap_or_default())
        }
        Action::Decline => Elicited::Declined,
        Action::Cancel => Elicited::Cancelled,
    }
}

/// A question, until its server has the answer or does not wait any more.
struct Open {
    brain: Brain,
    task_id: TaskId,
    call_id: CallId,
    question_id: QuestionId,
    how: QuestionEnd,
}

impl Open {
    fn says(&self, input: Input) -> OfQuestion {
        OfQuestion { task_id: self.task_id.clone(), input }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.brain.executor.questions().0.remove(&self.question_id);
        let (call_id, question_id) = (self.call_id.clone(), self.question_id.clone());
        let message = self.says(Input::QuestionEnded { call_id, question_id, how: self.how });
        // Not taken: the call's end says the same.
        if let Err(refusal) = self.brain.scheduler.tell(message) {
            tracing::debug!(%refusal, "the end of a question was not heard");
        }
    }
}

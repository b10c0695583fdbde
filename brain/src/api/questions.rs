//! Open questions of a principal's tasks and calls, and a person's answers to them.

use serde_json::{Value, json};
use vance_brain_core::session::OpenQuestion;
use vance_shared::ids::QuestionId;
use vance_shared::question::Answer;

use super::ApiError;
use super::commands::{Verb, command, fitting};
use crate::hub::Brain;
use crate::questions::open::{Ended, Found};
use crate::rows::time;

/// `{"questions": […]}`, from the oldest on.
pub fn list(brain: &Brain, owner: &str) -> Value {
    let questions: Vec<Value> = brain.questions.of(owner).iter().map(|question| view(question)).collect();
    json!({ "questions": questions })
}

fn view(open: &OpenQuestion) -> Value {
    let question = &open.question;
    let mut view = json!({
        "id": question.question_id, "call_id": question.call_id, "task_id": open.task_id, "session_id": open.session_id,
        "tool": open.tool, "client_id": open.asker, "machine": open.machine,
        "message": question.message, "schema": question.schema.value(), "asked_at": time(open.asked_at),
    });
    if let (Some(url), Some(view)) = (&question.url, view.as_object_mut()) {
        view.insert("url".to_owned(), json!(url));
    }
    view
}

/// Answers one of them: `{"question", "task"}`, the task as it is then (null: a call without a task).
pub async fn answer(brain: &Brain, owner: &str, id: &QuestionId, answer: Answer) -> Result<Value, ApiError> {
    let task_id = match brain.questions.find(owner, id) {
        Found::Nowhere => {
            let text = "there is no such question (any more); GET /api/v1/questions lists those that are open";
            return Err(ApiError::new(404, "question_not_found", text));
        }
        Found::Open(open) => match &open.task_id {
            Some(task_id) => task_id.clone(),
            None => {
                let answer = fitting(&open.question, answer)?;
                return match brain.tell_call(owner, &open, &answer) {
                    true => Ok(json!({ "question": id, "task": null })),
                    // Somebody was faster.
                    false => late(brain, owner, id, &answer),
                };
            }
        },
        Found::Ended(ended) => match ended.task_id {
            Some(task_id) => task_id,
            None => return late(brain, owner, id, &answer),
        },
    };
    let verb = Verb::Answer { question: Some(id.clone()), answer };
    let task = command(brain, owner, task_id.as_str(), verb).await?;
    Ok(json!({ "question": id, "task": task }))
}

/// An answer to a call's question that is over: the same one again is taken.
fn late(brain: &Brain, owner: &str, id: &QuestionId, answer: &Answer) -> Result<Value, ApiError> {
    match brain.questions.find(owner, id) {
        Found::Ended(ended) if ended.answer.as_ref() == Some(answer) => Ok(json!({ "question": id, "task": null })),
        Found::Ended(Ended { answer: Some(said), by: Some(by), .. }) => {
            let text = format!("question {id} was already {} by {by}", said.action.past());
            Err(ApiError::new(409, "answered", text))
        }
        Found::Ended(_) | Found::Open(_) | Found::Nowhere => {
            Err(ApiError::new(409, "no_question", "the call does not wait for an answer to this question (any more)"))
        }
    }
}

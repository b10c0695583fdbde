//! A person's word on a task: cancel, retry, resolve, answer.

use serde_json::{Value, json};
use tokio::sync::oneshot;
use vance_brain_core::task::{Input, Verdict};
use vance_shared::ids::QuestionId;
use vance_shared::question::{Answer, Question};

use super::{ApiError, queries};
use crate::actors::scheduler::Command;
use crate::hub::Brain;
use crate::recovery;

/// How long the answer of a task is waited for: a store that is away for a moment comes back within it.
const ANSWER_WAIT: std::time::Duration = std::time::Duration::from_secs(30);

/// What to do with a task.
#[derive(Debug, Clone, PartialEq)]
pub enum Verb {
    /// Stop it, its calls and its children.
    Cancel {
        /// For people.
        reason: Option<String>,
    },
    /// Run it again after it failed, was cancelled or skipped; what was skipped because of it too.
    Retry {
        /// Another machine or folder may go on with it, whatever ran its calls so far.
        any_client: bool,
    },
    /// Settle an unknown outcome.
    Resolve {
        /// `done`, `failed` or `retry`.
        r#as: String,
        /// With `done`: the step's structured result.
        output: Option<Value>,
    },
    /// Answer the question that it waits with.
    Answer {
        /// Which question; without it the one that is open.
        question: Option<QuestionId>,
        /// What is said.
        answer: Answer,
    },
}

/// Does it, and gives the task as it is then.
pub async fn command(brain: &Brain, owner: &str, task_id: &str, verb: Verb) -> Result<Value, ApiError> {
    let (id, row) = queries::task_row(brain, owner, task_id).await?;
    let mut tree = Vec::new();
    let input = match verb {
        Verb::Cancel { reason } => Input::Cancel { reason: reason.unwrap_or_else(|| format!("cancelled by {owner}")) },
        Verb::Retry { any_client } => {
            tree = recovery::tree_entries(brain, row.tree_id.as_str()).await?;
            Input::Retry { any_client }
        }
        Verb::Resolve { r#as, output } => {
            let verdict = Verdict::parse(&r#as, output).ok_or_else(|| {
                ApiError::new(400, "bad_verdict", "`as` is one of done, failed, retry; `output` goes with done")
            })?;
            Input::Resolve(verdict)
        }
        Verb::Answer { question, answer } => to_question(row.asked.as_ref(), owner, question, answer)?,
    };
    let (reply, answer) = oneshot::channel();
    let command = Command { task_id: id, input, tree, reply };
    let restarting = || ApiError::new(503, "restarting", "the scheduler is being restarted; try again");
    brain.scheduler.post(command).await.map_err(|_| restarting())?;
    let answer = tokio::time::timeout(ANSWER_WAIT, answer)
        .await
        .map_err(|_| ApiError::new(503, "store_unavailable", "the task did not answer in time; look at it again"))?;
    let done = answer.map_err(|_| restarting())?;
    let task = queries::task(brain, owner, task_id).await?;
    match done {
        Ok(()) => Ok(task),
        Err(fault) if fault.code == "answered" => {
            Err(ApiError::from(fault).with("answered", task.get("answered").cloned().unwrap_or_default()))
        }
        Err(fault) => Err(fault.into()),
    }
}

/// An answer that fits the question that is open or was answered last; whether it counts is the task's to say.
fn to_question(
    asked: Option<&Question>,
    by: &str,
    wanted: Option<QuestionId>,
    answer: Answer,
) -> Result<Input, ApiError> {
    let asked = asked.filter(|asked| wanted.as_ref().is_none_or(|wanted| *wanted == asked.question_id));
    let Some(question) = asked else {
        return Err(ApiError::new(409, "no_question", "the task does not wait for an answer (to this question)"));
    };
    let answer = fitting(question, answer)?;
    Ok(Input::Answer { question_id: question.question_id.clone(), answer, by: by.to_owned() })
}

/// The answer as it goes to that question.
pub(super) fn fitting(question: &Question, answer: Answer) -> Result<Answer, ApiError> {
    answer.fitting(question).map_err(|problems| {
        let text = format!("the answer does not fit the question: {}", problems.join("; "));
        ApiError::new(422, "invalid_answer", text).with("problems", json!(problems))
    })
}

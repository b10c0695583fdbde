//! A person's word on a task: cancel, retry, resolve.

use serde_json::Value;
use tokio::sync::oneshot;
use vance_brain_core::task::{Input, Verdict};

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
    Retry,
    /// Settle an unknown outcome.
    Resolve {
        /// `done`, `failed` or `retry`.
        r#as: String,
        /// With `done`: the step's structured result.
        output: Option<Value>,
    },
}

/// Does it, and gives the task as it is then.
pub async fn command(brain: &Brain, owner: &str, task_id: &str, verb: Verb) -> Result<Value, ApiError> {
    let (id, row) = queries::task_row(brain, owner, task_id).await?;
    let mut tree = Vec::new();
    let input = match verb {
        Verb::Cancel { reason } => Input::Cancel { reason: reason.unwrap_or_else(|| format!("cancelled by {owner}")) },
        Verb::Retry => {
            tree = recovery::tree_entries(brain, row.tree_id.as_str()).await?;
            Input::Retry
        }
        Verb::Resolve { r#as, output } => {
            let verdict = Verdict::parse(&r#as, output).ok_or_else(|| {
                ApiError::new(400, "bad_verdict", "`as` is one of done, failed, retry; `output` goes with done")
            })?;
            Input::Resolve(verdict)
        }
    };
    let (reply, answer) = oneshot::channel();
    let command = Command { task_id: id, input, tree, reply };
    let restarting = || ApiError::new(503, "restarting", "the scheduler is being restarted; try again");
    brain.scheduler.post(command).await.map_err(|_| restarting())?;
    let answer = tokio::time::timeout(ANSWER_WAIT, answer)
        .await
        .map_err(|_| ApiError::new(503, "store_unavailable", "the task did not answer in time; look at it again"))?;
    answer.map_err(|_| restarting())??;
    queries::task(brain, owner, task_id).await
}

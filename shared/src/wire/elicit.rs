//! Frames about a question that a call's server asks a person.

use serde::{Deserialize, Serialize};

use crate::ids::{CallId, QuestionId, TaskId};
use crate::json::Raw;
use crate::question::{Action, Answer, Question, QuestionEnd};

/// A question of a call that another client (or the Brain) runs, for the person at this one. Comes again with each connection while it is open.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Elicit {
    /// The call that waits for the answer.
    pub call_id: CallId,
    /// Its identity: one answer, whoever is asked.
    pub question_id: QuestionId,
    /// The server's words: foreign text.
    pub message: String,
    /// JSON Schema of the answer: an object of plain fields.
    pub schema: Raw,
    /// To be opened by the person, instead of fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// The task that waits with it; none: a call without a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// The tool whose server asks.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tool: String,
    /// The machine that runs the call; none: the Brain's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<String>,
}

/// A person's answer to a question of a call's server: from the Brain to the client whose call asks, and comes again until `elicit_end`;
/// from a client to the Brain for a question that is another one's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ElicitReply {
    /// The call.
    pub call_id: CallId,
    /// The question.
    pub question_id: QuestionId,
    /// What the person does.
    pub action: Action,
    /// With `accept`: an object that fits the question's schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Raw>,
    /// For people, where nobody was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl ElicitReply {
    /// The answer to a question.
    pub fn of(call_id: CallId, question_id: QuestionId, answer: Answer) -> Self {
        Self { call_id, question_id, action: answer.action, content: answer.content, reason: None }
    }

    /// No, because nobody can be asked.
    pub fn decline(question: &Question, reason: &str) -> Self {
        let answer = Answer::bare(Action::Decline);
        let reply = Self::of(question.call_id.clone(), question.question_id.clone(), answer);
        Self { reason: Some(reason.to_owned()), ..reply }
    }
}

/// A question is over: for the call's server, which has the answer or does not wait any more; from the Brain: for whoever was shown it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ElicitEnd {
    /// The call.
    pub call_id: CallId,
    /// The question.
    pub question_id: QuestionId,
    /// How it ended.
    pub how: QuestionEnd,
    /// From the Brain: who answered, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl ElicitEnd {
    /// The end of a question where it was asked.
    pub fn of(call_id: CallId, question_id: QuestionId, how: QuestionEnd) -> Self {
        Self { call_id, question_id, how, by: None }
    }
}

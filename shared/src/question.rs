//! What a tool's server wants to know of a person in the middle of a call, and what it is told.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{CallId, QuestionId};
use crate::json::Raw;
use crate::{schema, show};

/// Of a question's message: more is a document.
pub const MAX_MESSAGE_CHARS: usize = 4_000;
/// Of its schema: a form with some hundred fields. A question is an event of its task, and stays small.
pub const MAX_SCHEMA_BYTES: usize = 64 * 1024;
/// Of an address that the person is to open.
pub const MAX_URL_BYTES: usize = 2 * 1024;
/// Of an answer's content: pasted text fits, a file does not.
pub const MAX_ANSWER_BYTES: usize = 256 * 1024;
/// Of the message in a reason: a row or two of a list.
const ABOUT_CHARS: usize = 200;

/// A question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// The call that waits for the answer.
    pub call_id: CallId,
    /// Its identity: one answer, however often it is asked.
    pub question_id: QuestionId,
    /// The server's words: foreign text.
    pub message: String,
    /// JSON Schema of the answer: an object of plain fields.
    pub schema: Raw,
    /// To be opened by the person, instead of fields.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
}

impl Question {
    /// Why it is too large to be asked, if it is.
    pub fn too_large(&self) -> Option<String> {
        let (chars, schema) = (self.message.chars().count(), self.schema.get().len());
        let url = self.url.as_ref().map_or(0, String::len);
        if chars > MAX_MESSAGE_CHARS {
            Some(format!("its message has {chars} characters, at most {MAX_MESSAGE_CHARS} are asked"))
        } else if schema > MAX_SCHEMA_BYTES {
            Some(format!("its schema has {schema} bytes, at most {MAX_SCHEMA_BYTES} are asked"))
        } else if url > MAX_URL_BYTES {
            Some(format!("its address has {url} bytes, at most {MAX_URL_BYTES} are asked"))
        } else {
            None
        }
    }

    /// Its message in one short line of plain characters.
    pub fn about(&self) -> String {
        let words: Vec<&str> = self.message.split_whitespace().collect();
        let line = words.join(" ");
        let mut about = show::plain(&line.chars().take(ABOUT_CHARS).collect::<String>());
        if line.chars().nth(ABOUT_CHARS).is_some() {
            about.push_str("...");
        }
        about
    }
}

/// What a person does with a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// Answers it.
    Accept,
    /// Says no.
    Decline,
    /// Says neither.
    Cancel,
}

impl Action {
    /// MCP's word.
    pub fn word(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Decline => "decline",
            Self::Cancel => "cancel",
        }
    }

    /// What was done with the question.
    pub fn past(self) -> &'static str {
        match self {
            Self::Accept => "answered",
            Self::Decline => "declined",
            Self::Cancel => "cancelled",
        }
    }
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// What the person does.
    pub action: Action,
    /// With `accept`: an object that fits the question's schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Raw>,
}

impl Answer {
    /// An answer without content.
    pub fn bare(action: Action) -> Self {
        Self { action, content: None }
    }

    /// The answer as it goes to that question, with the schema's defaults for what is missing; or all that is wrong with it.
    pub fn fitting(self, question: &Question) -> Result<Self, Vec<String>> {
        let Self { action, content } = self;
        if action != Action::Accept {
            return match content {
                None => Ok(Self::bare(action)),
                Some(_) => Err(vec![format!("content: goes with accept, not with {}", action.word())]),
            };
        }
        if question.url.is_some() {
            return match content {
                None => Ok(Self::bare(action)),
                Some(_) => Err(vec!["content: this question is answered at its address, without content".to_owned()]),
            };
        }
        let bytes = content.as_ref().map_or(0, |content| content.get().len());
        if bytes > MAX_ANSWER_BYTES {
            return Err(vec![format!("content: {bytes} bytes, at most {MAX_ANSWER_BYTES} are taken")]);
        }
        let mut content = content.map_or_else(|| Value::Object(serde_json::Map::new()), |content| content.value());
        let Some(fields) = content.as_object_mut() else {
            return Err(vec!["content: expected an object".to_owned()]);
        };
        schema::add_defaults(&question.schema.value(), fields);
        let problems = schema::problems(&question.schema, &content, "content");
        if problems.is_empty() { Ok(Self { action, content: Some(Raw::from(content)) }) } else { Err(problems) }
    }
}

/// How a question ended where it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuestionEnd {
    /// Its server has the answer.
    Answered,
    /// Its server does not wait any more.
    Withdrawn,
    /// Nobody answered in time.
    Expired,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn question(message: &str, schema: Value, url: Option<&str>) -> Question {
        Question {
            call_id: CallId::parse("call_1").unwrap(),
            question_id: QuestionId::parse("q_1").unwrap(),
            message: message.to_owned(),
            schema: Raw::from(schema),
            url: url.map(str::to_owned),
        }
    }

    #[test]
    fn an_answer_fits_its_question_or_everything_wrong_is_named() {
        let schema = json!({"type": "object", "required": ["name", "age"], "properties": {
            "name": {"type": "string"}, "age": {"type": "integer"}, "colour": {"type": "string", "default": "red"}}});
        let (form, page) = (question("?", schema, None), question("?", json!({}), Some("https://x")));
        let accept = |content: Value| Answer { action: Action::Accept, content: Some(Raw::from(content)) };
        for (question, answer, want) in [
            (&form, accept(json!({"name": "A", "age": 1})), Ok(Some(json!({"name": "A", "age": 1, "colour": "red"})))),
            (&form, accept(json!({"name": 1, "age": "x"})), Err(2)),
            (&form, Answer::bare(Action::Accept), Err(2)),
            (&form, accept(json!([1])), Err(1)),
            (&form, accept(json!({"name": "x".repeat(MAX_ANSWER_BYTES), "age": 1})), Err(1)),
            (&form, Answer::bare(Action::Decline), Ok(None)),
            (&form, Answer { content: Some(Raw::empty_object()), ..Answer::bare(Action::Cancel) }, Err(1)),
            (&page, Answer::bare(Action::Accept), Ok(None)),
            (&page, accept(json!({})), Err(1)),
        ] {
            let shown = format!("{answer:?}");
            let got = answer.fitting(question).map(|a| a.content.map(|c| c.value())).map_err(|p| p.len());
            assert_eq!(got, want, "{shown}");
        }
    }

    #[test]
    fn a_question_is_small_and_its_reason_is_one_plain_line() {
        let long = "x".repeat(MAX_MESSAGE_CHARS + 1);
        assert!(question(&long, json!({}), None).too_large().is_some());
        assert!(question("m", json!({"d": "x".repeat(MAX_SCHEMA_BYTES)}), None).too_large().is_some());
        assert!(question("m", json!({}), Some(&"u".repeat(MAX_URL_BYTES + 1))).too_large().is_some());
        assert!(question("m", json!({}), Some("https://x")).too_large().is_none());
        assert_eq!(question(" Who\n is\u{1b}[2J there?", json!({}), None).about(), "Who is\\x1b[2J there?");
        assert_eq!(question(&long, json!({}), None).about().len(), ABOUT_CHARS + 3);
    }
}

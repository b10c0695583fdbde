//! A server's question, put to the person on the thread that asks: whether they answer at all, then field by field.

use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::oneshot;
use vance_mcp_host::{Elicited, Question};
use vance_shared::show::plain;

use super::Clerk;
use super::form::{self, Field};
use super::terminal::{Heard, MAX_LINE_BYTES};

/// Until silence ends the question while it is filled in: a value has to be looked up and typed.
const PATIENCE: Duration = Duration::from_secs(120);
/// Lines that may not fit, of one field: after that the question is not understood.
const TRIES: usize = 3;

impl Clerk {
    /// Asks. Only what the person filled in is in the answer.
    pub(super) fn put_form(&mut self, question: &Question, tell: &oneshot::Sender<Elicited>) -> Elicited {
        let declined = |why: &str| {
            self.stage.remark(&format!("a question of pack '{}' is declined: {why}", question.pack));
            Elicited::Declined
        };
        if !self.terminal.is_ours() {
            return Elicited::Unanswered;
        }
        let fields = match form::fields(&question.schema) {
            Ok(fields) => fields,
            Err(why) => return declined(&why),
        };
        let quiet = self.stage.question();
        let elicited = self.converse(question, &fields, tell).unwrap_or_else(|left| {
            self.terminal.say(&format!("{}: nothing is answered", left.why));
            left.said
        });
        drop(quiet);
        elicited
    }

    fn converse(
        &mut self,
        question: &Question,
        fields: &[Field],
        tell: &oneshot::Sender<Elicited>,
    ) -> Result<Elicited, Left> {
        let mut opening = form::opening(question.pack.as_str(), &question.message, fields);
        if let Some(url) = &question.url {
            opening.push_str(&format!("  to be opened by you: {}\n", plain(url)));
        }
        let patience = self.terminal.patience();
        match self.line(patience, &opening, form::CHOICES, tell)?.as_deref().map(str::trim) {
            Some("1") => {}
            Some("2") => return Ok(Elicited::Declined),
            Some(_) | None => return Err("that is not one of 1, 2".to_owned().into()),
        }
        let mut values = Map::new();
        for field in fields {
            if let Some(value) = self.fill_in(field, tell)? {
                values.insert(field.key.clone(), value);
            }
        }
        Ok(Elicited::Accepted(values))
    }

    fn fill_in(&mut self, field: &Field, tell: &oneshot::Sender<Elicited>) -> Result<Option<Value>, Left> {
        let (mut above, prompt) = (field.text(), field.prompt());
        for _ in 0..TRIES {
            let value = match self.line(PATIENCE, &above, &prompt, tell)? {
                Some(line) => field.value(&line),
                None => Err(format!("at most {MAX_LINE_BYTES} bytes are taken")),
            };
            match value {
                Ok(value) => return Ok(value),
                Err(why) => above = format!("  {why}\n"),
            }
        }
        Err(format!("{above}  that was {TRIES} times").into())
    }

    /// A whole line, or none if it was too long.
    fn line(
        &mut self,
        patience: Duration,
        text: &str,
        prompt: &str,
        tell: &oneshot::Sender<Elicited>,
    ) -> Result<Option<String>, Left> {
        let why = match self.terminal.ask_within(patience, text, prompt, &mut || tell.is_closed()) {
            Heard::Line(line) => return Ok(Some(line).filter(|line| line.len() <= MAX_LINE_BYTES)),
            Heard::TooLong => return Ok(None),
            Heard::Silence => {
                let why = format!("\nno answer within {} s", patience.as_secs());
                return Err(Left { why, said: Elicited::Unanswered });
            }
            Heard::End => "\nend of input".to_owned(),
            Heard::Interrupted => "\ninterrupted".to_owned(),
            Heard::TakenBack => "\nthe server does not wait any more".to_owned(),
            Heard::Fault(why) => format!("\nthe terminal cannot be read ({})", plain(&why)),
        };
        Err(why.into())
    }
}

/// A question that was left without an answer.
struct Left {
    why: String,
    said: Elicited,
}

impl From<String> for Left {
    fn from(why: String) -> Self {
        Self { why, said: Elicited::Cancelled }
    }
}

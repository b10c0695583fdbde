//! A server's question, put to the person on the thread that asks: whether they answer at all, then field by field.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::sync::oneshot;
use vance_mcp_host::{Elicited, Question};
use vance_shared::show::plain;

use super::Clerk;
use super::form::{self, Field};
use super::terminal::{Heard, MAX_LINE_BYTES};
use crate::native::Elsewhere;

/// Until silence ends the question while it is filled in: a value has to be looked up and typed.
const PATIENCE: Duration = Duration::from_secs(120);
/// Lines that may not fit, of one field: after that the question is not understood.
const TRIES: usize = 3;
/// Of a tool's or machine's name, in characters: who asks is one row.
const MAX_WHO_CHARS: usize = 60;

/// What is put to the person.
pub(super) struct Form {
    /// Who asks, in a line that is safe to print.
    who: String,
    message: String,
    schema: Value,
    url: Option<String>,
    whose: Whose,
}

/// Who waits for the answer.
enum Whose {
    /// A server of this program.
    Ours,
    /// Another's: whoever does not answer leaves it open, for others and for later.
    Another {
        /// Why it is taken back.
        over: Arc<OnceLock<String>>,
        /// How it is answered later.
        later: String,
    },
}

impl Form {
    /// A question of one of this program's servers.
    pub(super) fn of(question: Question) -> Self {
        let Question { pack, message, schema, url } = question;
        Self { who: format!("The server of pack '{pack}' asks"), message, schema, url, whose: Whose::Ours }
    }

    /// A question of a call that runs elsewhere.
    pub(super) fn elsewhere(Elsewhere { elicit, over }: Elsewhere) -> Self {
        let (id, what) = match &elicit.task_id {
            Some(task_id) => (task_id.as_str(), format!("Task {task_id} waits for an answer")),
            None => (elicit.question_id.as_str(), "A call waits for an answer".to_owned()),
        };
        let later = format!("answer it with `tasks answer {id}`");
        let tool = plain(&elicit.tool.chars().take(MAX_WHO_CHARS).collect::<String>());
        let machine = elicit.machine.map(|name| plain(&name.chars().take(MAX_WHO_CHARS).collect::<String>()));
        let place = machine.map_or_else(|| "at the Brain".to_owned(), |machine| format!("on '{machine}'"));
        let who = format!("{what}: the server of '{tool}' {place} asks");
        let (message, schema, url) = (elicit.message, elicit.schema.value(), elicit.url);
        Self { who, message, schema, url, whose: Whose::Another { over, later } }
    }

    /// What becomes of the question when the person does not answer it.
    fn left(&self) -> String {
        match &self.whose {
            Whose::Ours => "nothing is answered".to_owned(),
            Whose::Another { later, .. } => format!("it stays open; {later}"),
        }
    }

    fn taken_back(&self) -> String {
        match &self.whose {
            Whose::Ours => "\nthe server does not wait any more: nothing is answered".to_owned(),
            Whose::Another { over, .. } => {
                let why = over.get().map_or("it is not open any more", String::as_str);
                format!("\n{why}: nothing is answered here")
            }
        }
    }
}

impl Clerk {
    /// Asks. Only what the person filled in is in the answer.
    pub(super) fn put_form(&mut self, form: &Form, tell: &oneshot::Sender<Elicited>) -> Elicited {
        if !self.terminal.is_ours() {
            return Elicited::Unanswered;
        }
        let fields = match form::fields(&form.schema) {
            Ok(fields) => fields,
            Err(why) => {
                let (said, text) = match &form.whose {
                    Whose::Ours => (Elicited::Declined, "it is declined".to_owned()),
                    Whose::Another { .. } => (Elicited::Unanswered, form.left()),
                };
                self.stage.remark(&format!("{}, but not so that it can be filled in here ({why}): {text}", form.who));
                return said;
            }
        };
        let quiet = self.stage.question();
        let elicited = self.converse(form, &fields, tell).unwrap_or_else(|left| {
            self.terminal.say(&left.text);
            left.said
        });
        drop(quiet);
        elicited
    }

    fn converse(&mut self, form: &Form, fields: &[Field], tell: &oneshot::Sender<Elicited>) -> Result<Elicited, Left> {
        let opening = form::opening(&form.who, &form.message, form.url.as_deref(), fields);
        let patience = self.terminal.patience();
        match self.line(form, patience, &opening, form::CHOICES, tell)?.as_deref().map(str::trim) {
            Some("1") => {}
            Some("2") => return Ok(Elicited::Declined),
            Some(_) | None => return Err(Left::of("that is not one of 1, 2", form)),
        }
        let mut values = Map::new();
        for field in fields {
            if let Some(value) = self.fill_in(form, field, tell)? {
                values.insert(field.key.clone(), value);
            }
        }
        Ok(Elicited::Accepted(values))
    }

    fn fill_in(&mut self, form: &Form, field: &Field, tell: &oneshot::Sender<Elicited>) -> Result<Option<Value>, Left> {
        let (mut above, prompt) = (field.text(), field.prompt());
        for _ in 0..TRIES {
            let value = match self.line(form, PATIENCE, &above, &prompt, tell)? {
                Some(line) => field.value(&line),
                None => Err(format!("at most {MAX_LINE_BYTES} bytes are taken")),
            };
            match value {
                Ok(value) => return Ok(value),
                Err(why) => above = format!("  {why}\n"),
            }
        }
        Err(Left::of(&format!("{above}  that was {TRIES} times"), form))
    }

    /// A whole line, or none if it was too long.
    fn line(
        &mut self,
        form: &Form,
        patience: Duration,
        text: &str,
        prompt: &str,
        tell: &oneshot::Sender<Elicited>,
    ) -> Result<Option<String>, Left> {
        let why = match self.terminal.ask_within(patience, text, prompt, &mut || tell.is_closed()) {
            Heard::Line(line) => return Ok(Some(line).filter(|line| line.len() <= MAX_LINE_BYTES)),
            Heard::TooLong => return Ok(None),
            Heard::Silence => {
                let left = Left::of(&format!("\nno answer within {} s", patience.as_secs()), form);
                return Err(Left { said: Elicited::Unanswered, ..left });
            }
            Heard::TakenBack => return Err(Left { text: form.taken_back(), said: Elicited::Cancelled }),
            Heard::End => "\nend of input".to_owned(),
            Heard::Interrupted => "\ninterrupted".to_owned(),
            Heard::Fault(why) => format!("\nthe terminal cannot be read ({})", plain(&why)),
        };
        Err(Left::of(&why, form))
    }
}

/// A question that was left without an answer.
struct Left {
    text: String,
    said: Elicited,
}

impl Left {
    fn of(why: &str, form: &Form) -> Self {
        Self { text: format!("{why}: {}", form.left()), said: Elicited::Cancelled }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vance_shared::ids::{CallId, QuestionId, TaskId};
    use vance_shared::json::Raw;
    use vance_shared::wire::Elicit;

    use super::*;

    #[test]
    fn who_asks_elsewhere_is_one_row_that_steers_no_terminal_and_names_the_way_to_answer_later() {
        let of = |task: Option<&str>, tool: &str, machine: Option<&str>| {
            let elicit = Elicit {
                call_id: CallId::parse("call_1").unwrap(),
                question_id: QuestionId::parse("question_1").unwrap(),
                message: String::new(),
                schema: Raw::empty_object(),
                url: None,
                task_id: task.map(|id| TaskId::parse(id).unwrap()),
                tool: tool.to_owned(),
                machine: machine.map(str::to_owned),
            };
            Form::elsewhere(Elsewhere { elicit, over: Arc::default() })
        };
        let form = of(Some("task_1"), "jira__ask", Some("office"));
        assert_eq!(form.who, "Task task_1 waits for an answer: the server of 'jira__ask' on 'office' asks");
        assert_eq!(form.left(), "it stays open; answer it with `tasks answer task_1`");
        let form = of(None, "jira__ask", None);
        assert_eq!(form.who, "A call waits for an answer: the server of 'jira__ask' at the Brain asks");
        assert_eq!(form.left(), "it stays open; answer it with `tasks answer question_1`");
        let form = of(None, "\u{1b}[2J\r\n\u{202e}", Some(&"x\u{7}".repeat(500)));
        assert!(!form.who.chars().any(|c| c.is_control() || c == '\u{202e}'), "{:?}", form.who);
        assert!(form.who.chars().count() < 500, "{}", form.who);
    }
}

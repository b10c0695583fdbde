//! `vancetope tasks answer`: what a person says to a question that a task waits with.

use std::io;

use serde_json::{Map, Value};
use vance_shared::ids::{BadId, QuestionId, TaskId};
use vance_shared::question::Action;
use vance_shared::show::plain;

use crate::api::{Brain, OpenQuestion, TaskAnswer, TaskQuestion};
use crate::cli::ask::form::{self, Field};
use crate::cli::ask::{Over, Reply, person_until};
use crate::cli::context::Context;
use crate::cli::failure::{EXIT_OK, Failure};
use crate::cli::screen::Screen;

/// Lines that may not fit, of one field: after that the question is not understood.
const TRIES: usize = 3;
/// Lines of the message that `show` gives.
const MAX_LINES: usize = 40;

/// What waits for the answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) enum Answers {
    /// A task, with its one open question.
    Task(TaskId),
    /// A call without a task, with this question.
    Call(QuestionId),
}

impl Answers {
    /// By the id's own word.
    pub(in crate::cli) fn parse(text: &str) -> Result<Self, BadId> {
        match text.starts_with("question_") {
            true => QuestionId::parse(text).map(Self::Call),
            false => TaskId::parse(text).map(Self::Task),
        }
    }
}

/// Answers a task's question. `action`: what the flags say.
pub(super) async fn answer(
    context: &Context,
    brain: &Brain,
    id: &TaskId,
    action: Option<Action>,
    values: &[String],
) -> Result<(), Failure> {
    let question = brain.task(id).await?.value.question;
    let answer = said(context, question.as_ref(), "The task's tool asks", action, values, &Over::default()).await?;
    let asked = question.map(|question| question.id);
    brain.answer_question(id, &TaskAnswer { question: asked, ..answer }).await?;
    Ok(())
}

/// Answers a question by its own id.
pub(super) async fn answer_call(
    context: &mut Context,
    brain: &Brain,
    id: &QuestionId,
    action: Option<Action>,
    values: &[String],
) -> Result<u8, Failure> {
    let open = brain.questions().await?.value.questions;
    let open = open.into_iter().find(|open| open.question.id == *id);
    let question = open.as_ref().map(|open| &open.question);
    let answer = said(context, question, &who(open.as_ref()), action, values, &Over::default()).await?;
    let body = brain.answer_one(id, &answer).await?;
    if context.screen.json {
        context.screen.raw(&body)?;
    } else {
        context.screen.line(&format!("{id}  {}", answer.action.past()))?;
    }
    Ok(EXIT_OK)
}

/// Asks the person of this command what the call that it waits for asks.
pub(in crate::cli) async fn ask_for_call(
    context: &Context,
    brain: &Brain,
    open: &OpenQuestion,
    over: &Over,
) -> Result<(), Failure> {
    let answer = said(context, Some(&open.question), &who(Some(open)), None, &[], over).await?;
    brain.answer_one(&open.question.id, &answer).await?;
    Ok(())
}

fn who(open: Option<&OpenQuestion>) -> String {
    open.map_or_else(|| "A tool asks".to_owned(), |open| format!("The server of '{}' asks", plain(&open.tool)))
}

async fn said(
    context: &Context,
    question: Option<&TaskQuestion>,
    who: &str,
    action: Option<Action>,
    values: &[String],
    over: &Over,
) -> Result<TaskAnswer, Failure> {
    match (action, question) {
        (Some(action), _) => Ok(bare(action)),
        (None, Some(question)) => fill_in(context, question, who, values, over).await,
        // The Brain says what is wrong.
        (None, None) => Ok(TaskAnswer { content: Some(typed(values, &[])?), ..bare(Action::Accept) }),
    }
}

fn bare(action: Action) -> TaskAnswer {
    TaskAnswer { action, content: None, question: None }
}

async fn fill_in(
    context: &Context,
    question: &TaskQuestion,
    who: &str,
    values: &[String],
    over: &Over,
) -> Result<TaskAnswer, Failure> {
    let fields = form::fields(&question.schema);
    let accept = |content: Option<Map<String, Value>>| TaskAnswer { content, ..bare(Action::Accept) };
    if !values.is_empty() {
        return Ok(accept(Some(typed(values, fields.as_deref().unwrap_or_default())?)));
    }
    let fields = fields.map_err(|why| Failure::Usage(format!("{why}; give the answer as JSON")))?;
    let opening = form::opening(who, &question.message, question.url.as_deref(), &fields);
    match person_until(context, &opening, form::CHOICES, over).await? {
        Reply::Line(line) if line.trim() == "1" => {}
        Reply::Line(line) if line.trim() == "2" => return Ok(bare(Action::Decline)),
        Reply::Line(_) => return Err(Failure::Usage("that is not one of 1, 2: nothing is answered".to_owned())),
        Reply::Nothing => return Err(Failure::Usage("nothing is answered".to_owned())),
        Reply::Nobody => {
            let names: Vec<String> = fields.iter().map(|field| plain(&field.key)).collect();
            let text = match names.is_empty() {
                true => "nobody can be asked here: give {} to answer, or --decline".to_owned(),
                false => format!("nobody can be asked here: give {}=..., or --decline", names.join("=... ")),
            };
            return Err(Failure::Usage(text));
        }
    }
    if question.url.is_some() {
        return Ok(accept(None));
    }
    let mut content = Map::new();
    for field in &fields {
        if let Some(value) = ask(context, field, over).await? {
            content.insert(field.key.clone(), value);
        }
    }
    Ok(accept(Some(content)))
}

async fn ask(context: &Context, field: &Field, over: &Over) -> Result<Option<Value>, Failure> {
    let (mut above, prompt) = (field.text(), field.prompt());
    for _ in 0..TRIES {
        let Reply::Line(line) = person_until(context, &above, &prompt, over).await? else {
            return Err(Failure::Usage("nothing is answered".to_owned()));
        };
        match field.value(&line) {
            Ok(value) => return Ok(value),
            Err(why) => above = format!("  {why}\n"),
        }
    }
    Err(Failure::Usage(format!("{}  that was {TRIES} times: nothing is answered", above.trim_start())))
}

/// Fields from the command line. What a field is decides what its text means; of an unknown one JSON does, else it is a text.
fn typed(values: &[String], fields: &[Field]) -> Result<Map<String, Value>, Failure> {
    if let [one] = values
        && one.trim_start().starts_with('{')
    {
        let object = serde_json::from_str(one);
        return object.map_err(|error| Failure::Usage(format!("the answer is no JSON object: {error}")));
    }
    let mut content = Map::new();
    for pair in values {
        let Some((name, text)) = pair.split_once('=') else {
            return Err(Failure::Usage(format!("'{}' is neither NAME=VALUE nor a JSON object", plain(pair))));
        };
        let value = match fields.iter().find(|field| field.key == name) {
            Some(field) => field.value(text).map_err(|why| Failure::Usage(format!("{}: {why}", plain(name))))?,
            None => Some(serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))),
        };
        if let Some(value) = value {
            content.insert(name.to_owned(), value);
        }
    }
    Ok(content)
}

/// The question and how it is answered, for `show`.
pub(super) fn describe(screen: &mut Screen, id: &TaskId, question: &TaskQuestion) -> io::Result<()> {
    screen.line("question:")?;
    for line in question.message.lines().take(MAX_LINES) {
        screen.line(&format!("  {}", plain(line)))?;
    }
    if let Some(url) = &question.url {
        screen.line(&format!("  to be opened by you: {}", plain(url)))?;
    }
    for field in form::fields(&question.schema).unwrap_or_default() {
        screen.line(&format!("  {}", field.prompt().trim().trim_end_matches('\u{203a}').trim_end()))?;
    }
    screen.line(&format!("  answer it with: vancetope tasks answer {id}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_read_as_their_fields_are_or_as_json() {
        let schema =
            json!({"properties": {"n": {"type": "integer"}, "s": {"type": "string"}, "b": {"type": "boolean"}}});
        let fields = form::fields(&schema).unwrap();
        let of = |values: &[&str]| {
            let values: Vec<String> = values.iter().map(|v| (*v).to_owned()).collect();
            typed(&values, &fields).map(Value::Object).map_err(|failure| failure.to_string())
        };
        assert_eq!(
            of(&["n=3", "s=3", "b=yes", "x=[1]", "y=a=b"]).unwrap(),
            json!({"n": 3, "s": "3", "b": true, "x": [1], "y": "a=b"})
        );
        assert_eq!(of(&[r#" {"n": 4}"#]).unwrap(), json!({"n": 4}));
        for bad in [&["n=three"][..], &["n"], &["{"], &["{}", "{}"]] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
    }
}

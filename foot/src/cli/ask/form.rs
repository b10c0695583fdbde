//! A server's question as fields that are filled in one by one, and what a typed line means in one. Pure.

use serde_json::{Map, Value, json};
use vance_shared::json::Raw;
use vance_shared::schema::check_arguments;
use vance_shared::show::plain;

/// Fields of one question: what has more is for a form on a screen, not for a prompt.
const MAX_FIELDS: usize = 32;
/// Choices of one field that are shown, a screenful; the others count as well, by their word.
const MAX_CHOICES: usize = 40;
/// Lines of the server's message: more would push its first line, which says who asks, off the screen.
const MAX_LINES: usize = 40;
/// Of a field's name, default or choice, in characters: one row.
const MAX_WORD_CHARS: usize = 80;
/// Of a field's description or of what is wrong with a value, in characters: a few rows.
const MAX_TEXT_CHARS: usize = 400;

/// What stands before any field, so that a stray line fills in nothing.
pub(in crate::cli) const CHOICES: &str = "[1] answer  [2] decline \u{203a} ";

/// One thing that the server wants to know.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::cli) struct Field {
    /// Its name in the answer.
    pub(in crate::cli) key: String,
    kind: Kind,
    required: bool,
    property: Value,
}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Text,
    Number,
    Integer,
    YesNo,
    One(Vec<Choice>),
    Several(Vec<Choice>),
}

#[derive(Debug, Clone, PartialEq)]
struct Choice {
    value: Value,
    title: Option<String>,
}

/// The fields in their order, or why nobody can fill them in at a prompt. What cannot be filled in and need not be is left out.
pub(in crate::cli) fn fields(schema: &Value) -> Result<Vec<Field>, String> {
    let none = Map::new();
    let properties = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    if properties.len() > MAX_FIELDS {
        return Err(format!("it has {} fields, at most {MAX_FIELDS} are asked for", properties.len()));
    }
    let required = schema.get("required").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut fields = Vec::new();
    for (key, property) in properties {
        let required = required.iter().any(|name| name == key);
        match Kind::of(property) {
            Some(kind) => fields.push(Field { key: key.clone(), kind, required, property: property.clone() }),
            None if required => return Err(format!("its field '{}' is more than a line", cut(key, MAX_WORD_CHARS))),
            None => {}
        }
    }
    Ok(fields)
}

/// Who asks what, above the first choice. `who`: a line that is safe to print. `url`: to be opened by the person.
pub(in crate::cli) fn opening(who: &str, message: &str, url: Option<&str>, fields: &[Field]) -> String {
    let mut text = format!("{who}\n");
    for line in message.lines().take(MAX_LINES) {
        text.push_str(&format!("  {}\n", plain(line)));
    }
    let more = message.lines().count().saturating_sub(MAX_LINES);
    if more > 0 {
        text.push_str(&format!("  ... and {more} more line(s)\n"));
    }
    let names: Vec<String> = fields.iter().map(|field| cut(&field.key, MAX_WORD_CHARS)).collect();
    match names.is_empty() {
        true => text.push_str("  (nothing to fill in)\n"),
        false => text.push_str(&format!("  to fill in: {}\n", names.join(", "))),
    }
    if let Some(url) = url {
        text.push_str(&format!("  to be opened by you: {}\n", plain(url)));
    }
    text
}

impl Field {
    /// The lines above its prompt.
    pub(in crate::cli) fn text(&self) -> String {
        let mut text = String::new();
        for about in ["title", "description"] {
            if let Some(words) = self.property.get(about).and_then(Value::as_str) {
                text.push_str(&format!("  {}\n", cut(words, MAX_TEXT_CHARS)));
            }
        }
        let choices = self.kind.choices();
        for (number, choice) in choices.iter().take(MAX_CHOICES).enumerate() {
            text.push_str(&format!("    [{}] {}\n", number + 1, choice.shown()));
        }
        if choices.len() > MAX_CHOICES {
            text.push_str(&format!("    ... and {} more\n", choices.len() - MAX_CHOICES));
        }
        text
    }

    /// The row to type in.
    pub(in crate::cli) fn prompt(&self) -> String {
        let mut notes = vec![self.kind.word().to_owned()];
        match self.default() {
            Some(default) => notes.push(format!("empty: {}", shown(default))),
            None if self.required => notes.push("required".to_owned()),
            None => notes.push("empty: nothing".to_owned()),
        }
        format!("  {} ({}) \u{203a} ", cut(&self.key, MAX_WORD_CHARS), notes.join(", "))
    }

    /// What a line means; none leaves the field to its default. The error says what would fit.
    pub(in crate::cli) fn value(&self, line: &str) -> Result<Option<Value>, String> {
        let line = line.trim();
        if line.is_empty() {
            return match self.required && self.default().is_none() {
                true => Err("it is required".to_owned()),
                false => Ok(None),
            };
        }
        let value = self.kind.value(line)?;
        let schema = Raw::from(json!({ "properties": { "value": self.property } }));
        match check_arguments(&schema, &json!({ "value": value })) {
            Ok(()) => Ok(Some(value)),
            Err(fault) => Err(cut(&fault.message.replace("arguments/value: ", ""), MAX_TEXT_CHARS)),
        }
    }

    fn default(&self) -> Option<&Value> {
        self.property.get("default").filter(|default| !default.is_null())
    }
}

impl Kind {
    fn of(property: &Value) -> Option<Self> {
        if let Some(choices) = choices(property) {
            return Some(Self::One(choices));
        }
        match property.get("type")?.as_str()? {
            "string" => Some(Self::Text),
            "number" => Some(Self::Number),
            "integer" => Some(Self::Integer),
            "boolean" => Some(Self::YesNo),
            "array" => Some(Self::Several(choices(property.get("items")?)?)),
            _ => None,
        }
    }

    fn choices(&self) -> &[Choice] {
        match self {
            Self::One(choices) | Self::Several(choices) => choices,
            Self::Text | Self::Number | Self::Integer | Self::YesNo => &[],
        }
    }

    fn word(&self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Number => "number",
            Self::Integer => "whole number",
            Self::YesNo => "yes or no",
            Self::One(_) => "one of these",
            Self::Several(_) => "some of these, with commas",
        }
    }

    fn value(&self, line: &str) -> Result<Value, String> {
        match self {
            Self::Text => Ok(Value::from(line)),
            Self::Integer => whole(line).ok_or_else(|| "that is not a whole number".to_owned()),
            Self::Number => whole(line)
                .or_else(|| line.parse().ok().and_then(serde_json::Number::from_f64).map(Value::Number))
                .ok_or_else(|| "that is not a number".to_owned()),
            Self::YesNo => match line.to_ascii_lowercase().as_str() {
                "yes" | "y" | "true" => Ok(Value::Bool(true)),
                "no" | "n" | "false" => Ok(Value::Bool(false)),
                _ => Err("that is neither yes nor no".to_owned()),
            },
            Self::One(choices) => chosen(choices, line),
            Self::Several(choices) => {
                let words = line.split(',').map(str::trim).filter(|word| !word.is_empty());
                words.map(|word| chosen(choices, word)).collect::<Result<_, _>>().map(Value::Array)
            }
        }
    }
}

impl Choice {
    fn shown(&self) -> String {
        match &self.title {
            Some(title) => format!("{} ({})", cut(title, MAX_WORD_CHARS), shown(&self.value)),
            None => shown(&self.value),
        }
    }

    fn is_called(&self, word: &str) -> bool {
        let value = self.value.as_str().map_or_else(|| self.value.to_string(), str::to_owned);
        value == word || self.title.as_deref() == Some(word)
    }
}

/// The choices of a property: `enum`, with `enumNames`, or one `const` with its `title` each.
fn choices(property: &Value) -> Option<Vec<Choice>> {
    let list = |name: &str| property.get(name).and_then(Value::as_array).filter(|list| !list.is_empty());
    let text = |value: &Value| value.as_str().map(str::to_owned);
    if let Some(values) = list("enum") {
        let names = list("enumNames");
        let title = |i: usize| names.and_then(|names| names.get(i)).and_then(text);
        return Some(values.iter().enumerate().map(|(i, v)| Choice { value: v.clone(), title: title(i) }).collect());
    }
    let one = |choice: &Value| Some(Choice { value: choice.get("const")?.clone(), title: text(&choice["title"]) });
    list("oneOf").or_else(|| list("anyOf"))?.iter().map(one).collect()
}

/// By its number, as it is shown, else by its word.
fn chosen(choices: &[Choice], word: &str) -> Result<Value, String> {
    let numbered = word.parse::<usize>().ok().and_then(|number| number.checked_sub(1)).and_then(|i| choices.get(i));
    let choice = numbered.or_else(|| choices.iter().find(|choice| choice.is_called(word)));
    choice.map(|choice| choice.value.clone()).ok_or_else(|| "that is not one of these".to_owned())
}

fn whole(line: &str) -> Option<Value> {
    line.parse::<i64>().map(Value::from).or_else(|_| line.parse::<u64>().map(Value::from)).ok()
}

fn shown(value: &Value) -> String {
    match value {
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        Value::String(text) => cut(text, MAX_WORD_CHARS),
        other => cut(&other.to_string(), MAX_WORD_CHARS),
    }
}

fn cut(text: &str, max: usize) -> String {
    let mut shown = plain(&text.chars().take(max).collect::<String>());
    if text.chars().nth(max).is_some() {
        shown.push_str("...");
    }
    shown
}

#[cfg(test)]
mod tests;

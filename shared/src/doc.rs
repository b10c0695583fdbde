//! Files that people write, as a tree with line numbers: strict JSON and YAML in, every problem out, each as
//! `FILE:LINE: what is wrong, expected what`. Pure: the caller reads the file and bounds its size.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Number, Value};

mod duration;
mod fields;
mod json;
mod nearest;
mod yaml;
pub use duration::parse_duration;
pub use fields::Fields;
pub use json::{parse_json, read_json};
pub use nearest::{nearest, nearest_field};
pub use yaml::{core_schema, parse_yaml, read_yaml};

/// Deepest nesting of any of our files: the trust gate's limit, and far below what a recursive reader's stack holds.
pub const MAX_DEPTH: usize = 32;
/// Problems kept of one file: enough to mend it; a file with more is not the file that was meant.
pub const MAX_PROBLEMS: usize = 200;
/// Characters shown of a foreign key or value.
const MAX_SHOWN: usize = 80;

/// One thing that is wrong in a file. The message is safe to print: everything outside printable ASCII is escaped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file as the caller named it.
    pub file: String,
    /// 1-based.
    pub line: u32,
    /// What is wrong and what was expected.
    pub message: String,
}

impl Problem {
    /// A problem at a line; the message is made safe to print.
    pub fn new(file: impl Into<String>, line: u32, message: impl AsRef<str>) -> Self {
        Self { file: file.into(), line: line.max(1), message: crate::show::plain(message.as_ref()) }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", crate::show::plain(&self.file), self.line, self.message)
    }
}

/// Collects the problems of one file. Shared by all readers of the file, so that one mistake does not hide the next.
#[derive(Debug)]
pub struct Problems {
    file: String,
    // One reader at a time adds; a cell lets nested readers share the collector without threading `&mut` through each field.
    list: RefCell<Vec<Problem>>,
    dropped: Cell<usize>,
}

impl Problems {
    /// No problems so far.
    pub fn new(file: impl Into<String>) -> Self {
        Self { file: file.into(), list: RefCell::new(Vec::new()), dropped: Cell::new(0) }
    }

    /// Notes one.
    pub fn add(&self, line: u32, message: impl AsRef<str>) {
        let mut list = self.list.borrow_mut();
        if list.len() < MAX_PROBLEMS {
            list.push(Problem::new(self.file.clone(), line, message));
        } else {
            self.dropped.set(self.dropped.get() + 1);
        }
    }

    /// True if nothing was noted.
    pub fn is_empty(&self) -> bool {
        self.list.borrow().is_empty()
    }

    /// True once further problems are only counted.
    pub fn is_full(&self) -> bool {
        self.list.borrow().len() >= MAX_PROBLEMS
    }

    /// All problems, by line.
    pub fn into_list(self) -> Vec<Problem> {
        let mut list = self.list.into_inner();
        list.sort_by_key(|p| p.line);
        if let (dropped @ 1.., Some(last)) = (self.dropped.get(), list.last()) {
            let line = last.line;
            list.push(Problem::new(self.file, line, format!("and {dropped} more problems")));
        }
        list
    }

    /// The value if there is no problem.
    pub fn into_result<T>(self, value: Option<T>) -> Result<T, Vec<Problem>> {
        match value {
            Some(value) if self.is_empty() => Ok(value),
            Some(_) => Err(self.into_list()),
            None => {
                // A reader that gives nothing has said why; this line keeps an omission from looking like success.
                if self.is_empty() {
                    self.add(1, "the file could not be read");
                }
                Err(self.into_list())
            }
        }
    }
}

/// A value and the line where it starts.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// 1-based.
    pub line: u32,
    /// What it is.
    pub kind: Kind,
}

/// The kinds of values, common to JSON and YAML.
#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    /// `null`, or nothing at all in YAML.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// A number that fits an `i64`, a `u64` or a finite `f64`.
    Number(Number),
    /// Text.
    String(String),
    /// A list.
    Sequence(Vec<Node>),
    /// Fields in the file's order, keys unique.
    Mapping(Vec<Entry>),
}

/// One field of a mapping.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The key.
    pub key: String,
    /// The key's own line.
    pub line: u32,
    /// The value.
    pub value: Node,
}

impl Node {
    /// The text, if it is text.
    pub fn as_str(&self) -> Option<&str> {
        match &self.kind {
            Kind::String(text) => Some(text),
            _ => None,
        }
    }

    /// The elements, if it is a list.
    pub fn as_list(&self) -> Option<&[Node]> {
        match &self.kind {
            Kind::Sequence(items) => Some(items),
            _ => None,
        }
    }

    /// The fields, if it is a mapping.
    pub fn as_map(&self) -> Option<&[Entry]> {
        match &self.kind {
            Kind::Mapping(entries) => Some(entries),
            _ => None,
        }
    }

    /// The value of a key of a mapping.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.as_map()?.iter().find(|e| e.key == key).map(|e| &e.value)
    }

    /// True for `null` and for an empty YAML file.
    pub fn is_null(&self) -> bool {
        matches!(self.kind, Kind::Null)
    }

    /// The same value without its lines.
    pub fn to_value(&self) -> Value {
        match &self.kind {
            Kind::Null => Value::Null,
            Kind::Bool(b) => Value::Bool(*b),
            Kind::Number(n) => Value::Number(n.clone()),
            Kind::String(s) => Value::String(s.clone()),
            Kind::Sequence(items) => Value::Array(items.iter().map(Node::to_value).collect()),
            Kind::Mapping(entries) => {
                Value::Object(entries.iter().map(|e| (e.key.clone(), e.value.to_value())).collect::<Map<_, _>>())
            }
        }
    }

    /// What the value is, for people: `a list`, `the number 5`, `'abc'`.
    pub fn describe(&self) -> String {
        match &self.kind {
            Kind::Null => "empty".to_owned(),
            Kind::Bool(b) => format!("the truth value {b}"),
            Kind::Number(n) => format!("the number {n}"),
            Kind::String(s) => crate::show::quoted(s, MAX_SHOWN),
            Kind::Sequence(_) => "a list".to_owned(),
            Kind::Mapping(_) => "a mapping".to_owned(),
        }
    }
}

/// A foreign key in backticks, safe to show.
pub fn ticked(key: &str) -> String {
    let mut shown = crate::show::plain(&key.chars().take(MAX_SHOWN).collect::<String>());
    if key.chars().nth(MAX_SHOWN).is_some() {
        shown.push_str("...");
    }
    format!("`{shown}`")
}

/// Line of the last character: no problem lies beyond it.
fn last_line(text: &str) -> u32 {
    u32::try_from(text.lines().count()).unwrap_or(u32::MAX).max(1)
}

/// A number as text, if it fits without loss of its integer digits.
fn number(text: &str) -> Option<Number> {
    let integer = text.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    if integer {
        return match text.parse::<i64>() {
            Ok(n) => Some(n.into()),
            Err(_) => text.parse::<u64>().ok().map(Number::from),
        };
    }
    text.parse::<f64>().ok().and_then(Number::from_f64)
}

#[cfg(test)]
mod tests;

//! Reads a mapping field by field. Each `take_*` notes what is wrong and goes on; `finish` reports the fields that nobody took.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::{Map, Value};

use super::duration::{parse_duration, seconds_of};
use super::{Entry, Kind, Node, Problems, nearest_field, ticked};

/// One mapping while it is read. `None` from a `take_*` means absent, or wrong and already reported.
#[derive(Debug)]
pub struct Fields<'a> {
    what: String,
    line: u32,
    entries: &'a [Entry],
    known: Vec<&'static str>,
    problems: &'a Problems,
}

impl<'a> Fields<'a> {
    /// Starts on a node that must be a mapping; `what` names it in messages (`a task`, `the pack`).
    pub fn of(node: &'a Node, what: impl Into<String>, problems: &'a Problems) -> Option<Self> {
        let what = what.into();
        match &node.kind {
            Kind::Mapping(entries) => Some(Self { what, line: node.line, entries, known: Vec::new(), problems }),
            Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::String(_) | Kind::Sequence(_) => {
                problems.add(node.line, format!("{what} is {}, expected a mapping (name: value)", node.describe()));
                None
            }
        }
    }

    /// The mapping's line.
    pub fn line(&self) -> u32 {
        self.line
    }

    /// The line of a field's key; the mapping's line if it is absent.
    pub fn line_of(&self, name: &str) -> u32 {
        self.entry(name).map_or(self.line, |e| e.line)
    }

    /// Whether the field is there, whatever it holds.
    pub fn has(&self, name: &str) -> bool {
        self.entry(name).is_some()
    }

    /// The collector, for problems of the caller's own.
    pub fn problems(&self) -> &'a Problems {
        self.problems
    }

    /// Notes a problem of a field at its value's line.
    pub fn add(&self, name: &str, message: impl AsRef<str>) {
        self.problems.add(self.entry(name).map_or(self.line, |e| e.value.line), message);
    }

    /// Reports a field that must be there.
    pub fn require(&self, name: &str, expected: &str) {
        if !self.has(name) {
            self.problems.add(self.line, format!("{} has no `{name}`, expected {expected}", self.what));
        }
    }

    /// The field as it is.
    pub fn take(&mut self, name: &'static str) -> Option<&'a Node> {
        self.known.push(name);
        self.entry(name).map(|e| &e.value)
    }

    /// Text.
    pub fn take_str(&mut self, name: &'static str) -> Option<&'a str> {
        let node = self.take(name)?;
        match &node.kind {
            Kind::String(text) => Some(text),
            Kind::Bool(_) | Kind::Number(_) => self.wrong(name, node, "text (in quotes)"),
            Kind::Null | Kind::Sequence(_) | Kind::Mapping(_) => self.wrong(name, node, "text"),
        }
    }

    /// Text that parses into something; the error says what is wrong with it.
    pub fn take_parsed<T, E: Display>(
        &mut self,
        name: &'static str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        let text = self.take_str(name)?;
        parse(text).map_err(|error| self.add(name, format!("`{name}`: {error}"))).ok()
    }

    /// `true` or `false`.
    pub fn take_bool(&mut self, name: &'static str) -> Option<bool> {
        let node = self.take(name)?;
        match node.kind {
            Kind::Bool(value) => Some(value),
            Kind::Null | Kind::Number(_) | Kind::String(_) | Kind::Sequence(_) | Kind::Mapping(_) => {
                self.wrong(name, node, "true or false")
            }
        }
    }

    /// A whole number in a range.
    pub fn take_u64(&mut self, name: &'static str, range: RangeInclusive<u64>) -> Option<u64> {
        let node = self.take(name)?;
        let value = match &node.kind {
            Kind::Number(number) => number.as_u64().filter(|n| range.contains(n)),
            Kind::Null | Kind::Bool(_) | Kind::String(_) | Kind::Sequence(_) | Kind::Mapping(_) => None,
        };
        if value.is_none() {
            let expected = if *range.end() == u64::MAX {
                format!("a whole number from {}", range.start())
            } else {
                format!("a whole number from {} to {}", range.start(), range.end())
            };
            return self.wrong(name, node, &expected);
        }
        value
    }

    /// `10m`, `1s`, `500ms`, or seconds as a number.
    pub fn take_duration(&mut self, name: &'static str) -> Option<Duration> {
        let node = self.take(name)?;
        let parsed = match &node.kind {
            Kind::String(text) => parse_duration(text),
            Kind::Number(number) => seconds_of(number.as_f64().unwrap_or(f64::NAN)),
            Kind::Null | Kind::Bool(_) | Kind::Sequence(_) | Kind::Mapping(_) => {
                return self.wrong(name, node, "a duration such as 10m");
            }
        };
        parsed.map_err(|error| self.add(name, format!("`{name}`: {error}"))).ok()
    }

    /// A duration above zero.
    pub fn take_timeout(&mut self, name: &'static str) -> Option<Duration> {
        let duration = self.take_duration(name)?;
        if duration.is_zero() {
            self.add(name, format!("`{name}` is zero, expected a duration such as 10m"));
            return None;
        }
        Some(duration)
    }

    /// One of a few words.
    pub fn take_enum<T: Clone>(&mut self, name: &'static str, words: &[(&'static str, T)]) -> Option<T> {
        let node = self.take(name)?;
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let Some(text) = node.as_str() else {
            return self.wrong(name, node, &format!("one of: {}", known.join(", ")));
        };
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| value.clone());
        if found.is_none() {
            self.add(name, format!("`{name}` is {}{}", node.describe(), nearest_field(text, &known)));
        }
        found
    }

    /// A list.
    pub fn take_list(&mut self, name: &'static str, expected: &str) -> Option<&'a [Node]> {
        let node = self.take(name)?;
        match node.as_list() {
            Some(items) => Some(items),
            None => self.wrong(name, node, expected),
        }
    }

    /// A list of texts, each with its line. Elements of another kind are reported and left out.
    pub fn take_strs(&mut self, name: &'static str, expected: &str) -> Option<Vec<(&'a str, u32)>> {
        let items = self.take_list(name, expected)?;
        let mut texts = Vec::with_capacity(items.len());
        for item in items {
            match item.as_str() {
                Some(text) => texts.push((text, item.line)),
                None => {
                    self.problems.add(item.line, format!("`{name}` holds {}, expected text", item.describe()));
                }
            }
        }
        Some(texts)
    }

    /// A mapping with any keys.
    pub fn take_map(&mut self, name: &'static str, expected: &str) -> Option<&'a [Entry]> {
        let node = self.take(name)?;
        match node.as_map() {
            Some(entries) => Some(entries),
            None => self.wrong(name, node, expected),
        }
    }

    /// A mapping from names to texts, each with its line.
    pub fn take_str_map(&mut self, name: &'static str, expected: &str) -> Option<Vec<(&'a str, &'a str, u32)>> {
        let entries = self.take_map(name, expected)?;
        let mut texts = Vec::with_capacity(entries.len());
        for entry in entries {
            match entry.value.as_str() {
                Some(text) => texts.push((entry.key.as_str(), text, entry.line)),
                None => self.problems.add(
                    entry.line,
                    format!("{} in `{name}` is {}, expected text", ticked(&entry.key), entry.value.describe()),
                ),
            }
        }
        Some(texts)
    }

    /// A mapping to read in turn.
    pub fn take_fields(&mut self, name: &'static str) -> Option<Fields<'a>> {
        Fields::of(self.take(name)?, format!("`{name}`"), self.problems)
    }

    /// Any value.
    pub fn take_value(&mut self, name: &'static str) -> Option<Value> {
        self.take(name).map(Node::to_value)
    }

    /// A mapping as JSON.
    pub fn take_object(&mut self, name: &'static str) -> Option<Map<String, Value>> {
        let entries = self.take_map(name, "a mapping (name: value)")?;
        Some(entries.iter().map(|e| (e.key.clone(), e.value.to_value())).collect())
    }

    /// Fields that nobody took: key, line and message.
    pub fn unknown(&self) -> Vec<(&'a str, u32, String)> {
        let unknown = self.entries.iter().filter(|e| !self.known.contains(&e.key.as_str()));
        unknown
            .map(|e| {
                let hint = nearest_field(&e.key, &self.known);
                (e.key.as_str(), e.line, format!("unknown field {} in {}{hint}", ticked(&e.key), self.what))
            })
            .collect()
    }

    /// Reports the fields that nobody took.
    pub fn finish(self) {
        for (_, line, message) in self.unknown() {
            self.problems.add(line, message);
        }
    }

    fn entry(&self, name: &str) -> Option<&'a Entry> {
        self.entries.iter().find(|e| e.key == name)
    }

    fn wrong<T>(&self, name: &str, node: &Node, expected: &str) -> Option<T> {
        self.problems.add(node.line, format!("`{name}` is {}, expected {expected}", node.describe()));
        None
    }
}

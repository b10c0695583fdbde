//! YAML documents. Unlike the files that people write for us they may have anchors, aliases, tags and merge keys, all bounded.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, StrInput};
use serde_json::{Map, Number, Value};
use vance_shared::doc::{Kind, Node, core_schema};

use super::{DocumentError, MAX_BYTES, MAX_DEPTH, MAX_VALUES};

/// Reads one document.
pub(super) fn read(text: &str) -> Result<Value, DocumentError> {
    if text.contains('\0') {
        // The parser would take it for the end and drop the rest in silence.
        return Err(DocumentError::Syntax("it holds a NUL".to_owned()));
    }
    let mut reader = Reader { parser: Parser::new_from_str(text), anchors: HashMap::new(), values: 0, bytes: 0 };
    reader.document()
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    anchors: HashMap<usize, Value>,
    values: usize,
    bytes: usize,
}

impl<'a> Reader<'a> {
    fn document(&mut self) -> Result<Value, DocumentError> {
        loop {
            match self.next()? {
                Event::DocumentStart(_) => {
                    let event = self.next()?;
                    return self.node(event, 1);
                }
                Event::StreamStart | Event::Nothing | Event::DocumentEnd => {}
                Event::StreamEnd => return Ok(Value::Null),
                Event::Alias(_)
                | Event::Scalar(..)
                | Event::SequenceStart(..)
                | Event::SequenceEnd
                | Event::MappingStart(..)
                | Event::MappingEnd => return Err(syntax("content outside of the document")),
            }
        }
    }

    fn next(&mut self) -> Result<Event<'a>, DocumentError> {
        match self.parser.next_event() {
            Some(Ok((event, _))) => Ok(event),
            Some(Err(error)) => {
                let at = error.marker().line();
                Err(syntax(&format!("line {at}: {}", error.info())))
            }
            None => Err(syntax("it ends in the middle")),
        }
    }

    fn count(&mut self, values: usize, bytes: usize) -> Result<(), DocumentError> {
        self.values = self.values.saturating_add(values);
        self.bytes = self.bytes.saturating_add(bytes);
        // Aliases multiply: what they repeat counts each time.
        if self.values > MAX_VALUES || self.bytes > MAX_BYTES { Err(DocumentError::TooMany) } else { Ok(()) }
    }

    fn node(&mut self, event: Event<'a>, depth: usize) -> Result<Value, DocumentError> {
        if depth > MAX_DEPTH {
            return Err(syntax(&format!("nested too deeply, expected at most {MAX_DEPTH} levels")));
        }
        let (value, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.count(1, text.len())?;
                let plain = style == ScalarStyle::Plain
                    && tag.is_none_or(|tag| !(tag.is_yaml_core_schema() && tag.suffix == "str"));
                (if plain { scalar(&text) } else { Value::String(text.into_owned()) }, anchor)
            }
            Event::SequenceStart(anchor, _) => {
                self.count(1, 0)?;
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        Event::SequenceEnd => break,
                        event => items.push(self.node(event, depth + 1)?),
                    }
                }
                (Value::Array(items), anchor)
            }
            Event::MappingStart(anchor, _) => {
                self.count(1, 0)?;
                (Value::Object(self.mapping(depth)?), anchor)
            }
            Event::Alias(anchor) => {
                let value =
                    self.anchors.get(&anchor).cloned().ok_or_else(|| syntax("an alias within its own anchor"))?;
                if height(&value) + depth > MAX_DEPTH {
                    return Err(syntax(&format!("nested too deeply, expected at most {MAX_DEPTH} levels")));
                }
                let (values, bytes) = weight(&value);
                self.count(values, bytes)?;
                (value, 0)
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => return Err(syntax("a value is missing")),
        };
        if anchor > 0 {
            let (values, bytes) = weight(&value);
            self.count(values, bytes)?;
            self.anchors.insert(anchor, value.clone());
        }
        Ok(value)
    }

    fn mapping(&mut self, depth: usize) -> Result<Map<String, Value>, DocumentError> {
        let mut fields = Map::new();
        let mut merged: Vec<Value> = Vec::new();
        loop {
            let key = match self.next()? {
                Event::MappingEnd => break,
                Event::Scalar(text, _, anchor, _) => {
                    self.count(0, text.len())?;
                    if anchor > 0 {
                        self.anchors.insert(anchor, Value::String(text.clone().into_owned()));
                    }
                    text.into_owned()
                }
                other => match self.node(other, depth + 1)? {
                    Value::String(text) => text,
                    _ => return Err(syntax("a key is a list or a mapping, expected text")),
                },
            };
            let event = self.next()?;
            let value = self.node(event, depth + 1)?;
            match (key.as_str(), value) {
                ("<<", Value::Array(list)) => merged.extend(list),
                ("<<", value @ Value::Object(_)) => merged.push(value),
                (_, value) => {
                    fields.insert(key, value);
                }
            }
        }
        for value in merged {
            let Value::Object(more) = value else { continue };
            for (key, value) in more {
                if !fields.contains_key(&key) {
                    fields.insert(key, value);
                }
            }
        }
        Ok(fields)
    }
}

/// What an unquoted word is; a number that JSON cannot hold stays text.
fn scalar(text: &str) -> Value {
    match core_schema(text) {
        Ok(kind @ (Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::String(_))) => {
            Node { line: 1, kind }.to_value()
        }
        Ok(Kind::Sequence(_) | Kind::Mapping(_)) => Value::Null,
        Err(_) => text.parse::<f64>().ok().and_then(Number::from_f64).map_or_else(|| text.into(), Value::Number),
    }
}

/// Values and bytes within a value.
fn weight(value: &Value) -> (usize, usize) {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => (1, 0),
        Value::String(text) => (1, text.len()),
        Value::Array(items) => items.iter().map(weight).fold((1, 0), |(a, b), (c, d)| (a + c, b + d)),
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (weight(value), key.len()))
            .fold((1, 0), |(a, b), ((c, d), k)| (a + c, b + d + k)),
    }
}

fn height(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
        Value::Array(items) => 1 + items.iter().map(height).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(height).max().unwrap_or(0),
    }
}

fn syntax(what: &str) -> DocumentError {
    DocumentError::Syntax(vance_shared::show::plain(what))
}

//! Writes block YAML that our own reader reads back as the same value.

use std::fmt::Write as _;

use serde_json::{Map, Value};

use crate::doc::parse_yaml;

/// A key of one line may have 1024 characters; longer ones (a very long path) are written with `?`.
const MAX_KEY: usize = 1000;

/// A whole file.
pub(super) fn file(root: &Map<String, Value>) -> String {
    let mut out = String::new();
    mapping(root, 0, &mut out);
    out
}

/// The fields of a mapping, each on lines of its own.
pub(super) fn mapping(fields: &Map<String, Value>, indent: usize, out: &mut String) {
    for (key, value) in fields {
        pad(indent, out);
        field(key, value, indent, out);
    }
}

/// `- first: 1`, the other fields below it.
pub(super) fn item(value: &Value, indent: usize, out: &mut String) {
    pad(indent, out);
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            out.push_str("- ");
            for (at, (key, value)) in fields.iter().enumerate() {
                if at > 0 {
                    pad(indent + 2, out);
                }
                field(key, value, indent + 2, out);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            out.push_str("-\n");
            items.iter().for_each(|value| item(value, indent + 2, out));
        }
        other => {
            out.push_str("- ");
            out.push_str(&scalar(other));
            out.push('\n');
        }
    }
}

fn field(key: &str, value: &Value, indent: usize, out: &mut String) {
    let key = text(key);
    match key.len() > MAX_KEY {
        true => {
            out.push_str("? ");
            out.push_str(&key);
            out.push('\n');
            pad(indent, out);
            out.push(':');
        }
        false => {
            out.push_str(&key);
            out.push(':');
        }
    }
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            out.push('\n');
            mapping(fields, indent + 2, out);
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            items.iter().for_each(|value| item(value, indent + 2, out));
        }
        other => {
            out.push(' ');
            out.push_str(&scalar(other));
            out.push('\n');
        }
    }
}

fn pad(indent: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', indent));
}

fn scalar(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Number(n) => n.to_string(),
        Value::String(s) => text(s),
        Value::Array(_) => "[]".to_owned(),
        Value::Object(_) => "{}".to_owned(),
    }
}

/// Bare where the reader takes it for exactly this text, as a key and as a value; else in double quotes with all but printable ASCII escaped.
pub(super) fn text(text: &str) -> String {
    let calm = |c: char| c.is_ascii_alphanumeric() || " _@%+=:,./$()-".contains(c);
    let start = |c: char| c.is_ascii_alphanumeric() || c == '/' || c == '$';
    let bare = text.starts_with(start) && text.len() <= MAX_KEY && text.chars().all(calm);
    if bare
        && let Ok(node) = parse_yaml("", &format!("{text}: {text}\n"))
        && node.to_value() == serde_json::json!({ text: text })
    {
        return text.to_owned();
    }
    let mut out = String::from("\"");
    for c in text.chars() {
        let written = match c {
            '\\' | '"' => write!(out, "\\{c}"),
            ' '..='~' => write!(out, "{c}"),
            c if u32::from(c) <= 0xff => write!(out, "\\x{:02x}", u32::from(c)),
            c if u32::from(c) <= 0xffff => write!(out, "\\u{:04x}", u32::from(c)),
            c => write!(out, "\\U{:08x}", u32::from(c)),
        };
        debug_assert!(written.is_ok(), "writing to a String cannot fail");
    }
    out.push('"');
    out
}

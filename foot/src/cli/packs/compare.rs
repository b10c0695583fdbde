//! The difference of two packs, field by field: what people read before they let one take the other's place. Pure.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use vance_shared::show::plain;

/// `- field = old` and `+ field = new`, by field; nothing if both say the same. Safe to print.
pub(super) fn compare(old: &Value, new: &Value) -> Vec<String> {
    let (old, new) = (flat(old), flat(new));
    let mut fields: Vec<&String> = old.keys().chain(new.keys()).collect();
    fields.sort();
    fields.dedup();
    let mut lines = Vec::new();
    for field in fields {
        let (before, after) = (old.get(field), new.get(field));
        if before != after {
            lines.extend(before.map(|value| format!("- {} = {}", plain(field), plain(value))));
            lines.extend(after.map(|value| format!("+ {} = {}", plain(field), plain(value))));
        }
    }
    lines
}

/// Every leaf by its path. A list is a leaf: a command line is judged as a whole.
fn flat(value: &Value) -> BTreeMap<String, String> {
    let mut leaves = BTreeMap::new();
    match value {
        Value::Object(fields) => walk("", fields, &mut leaves),
        other => drop(leaves.insert(".".to_owned(), other.to_string())),
    }
    leaves
}

fn walk(path: &str, fields: &Map<String, Value>, leaves: &mut BTreeMap<String, String>) {
    for (key, value) in fields {
        // A dot inside a key must not look like a path of two.
        let key = if key.is_empty() || key.contains(['.', '"', ' ']) {
            Value::from(key.as_str()).to_string()
        } else {
            key.clone()
        };
        let path = if path.is_empty() { key } else { format!("{path}.{key}") };
        match value {
            Value::Object(fields) if !fields.is_empty() => walk(&path, fields, leaves),
            leaf => drop(leaves.insert(path, leaf.to_string())),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_what_differs_is_said_and_nothing_that_differs_is_left_out() {
        let old = json!({"name": "a", "parameters": {"command": ["x", "1"], "env": {"A.B": "1"}}, "labels": []});
        assert_eq!(compare(&old, &old), Vec::<String>::new());
        let new = json!({"name": "a", "parameters": {"command": ["x", "2"], "env": {"A": {"B": "1"}}}});
        assert_eq!(
            compare(&old, &new),
            [
                "- labels = []",
                "- parameters.command = [\"x\",\"1\"]",
                "+ parameters.command = [\"x\",\"2\"]",
                "- parameters.env.\"A.B\" = \"1\"",
                "+ parameters.env.A.B = \"1\"",
            ]
        );
        assert_eq!(compare(&json!({}), &json!({"a": "\u{1b}"})), ["+ a = \"\\u001b\""]);
    }
}

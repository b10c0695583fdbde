//! Definitions that refer to themselves without going a step deeper into the value: a validator would never come back.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::fit::referred;

/// Keywords whose schemas look at the same value.
const SAME_VALUE: [&str; 7] = ["allOf", "anyOf", "oneOf", "not", "if", "then", "else"];

/// Opens the references that close such a circle.
pub(super) fn open(definitions: &mut Map<String, Value>) {
    let names: Vec<String> = definitions.keys().cloned().collect();
    let index: HashMap<&str, usize> = names.iter().enumerate().map(|(at, name)| (name.as_str(), at)).collect();
    let edges: Vec<Vec<usize>> = definitions
        .values_mut()
        .map(|definition| {
            let mut found = Vec::new();
            each(definition, &mut |schema| found.extend(referred(schema).and_then(|name| index.get(name)).copied()));
            found
        })
        .collect();
    for (from, to) in back_edges(&edges) {
        let target = names[to].clone();
        if let Some(definition) = definitions.get_mut(&names[from]) {
            each(definition, &mut |schema| {
                if referred(schema) == Some(&target)
                    && let Value::Object(fields) = schema
                {
                    fields.shift_remove("$ref");
                }
            });
        }
    }
}

/// Visits a schema and those within it that look at the same value.
fn each(schema: &mut Value, visit: &mut dyn FnMut(&mut Value)) {
    visit(schema);
    let Value::Object(fields) = schema else { return };
    for (key, value) in fields.iter_mut() {
        match value {
            Value::Array(list) if SAME_VALUE.contains(&key.as_str()) => list.iter_mut().for_each(|s| each(s, visit)),
            Value::Object(named) if key == "dependentSchemas" => named.values_mut().for_each(|s| each(s, visit)),
            value if SAME_VALUE.contains(&key.as_str()) => each(value, visit),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) | Value::Object(_) => {
            }
        }
    }
}

/// Edges that lead back to where the search is. A stack of its own: a document decides how long the chains are.
fn back_edges(edges: &[Vec<usize>]) -> Vec<(usize, usize)> {
    #[derive(Clone, Copy, PartialEq)]
    enum Seen {
        No,
        Above,
        Done,
    }
    let mut seen = vec![Seen::No; edges.len()];
    let mut found = Vec::new();
    for start in 0..edges.len() {
        if seen[start] != Seen::No {
            continue;
        }
        let mut stack = vec![(start, 0)];
        seen[start] = Seen::Above;
        while let Some((node, next)) = stack.last_mut() {
            let Some(to) = edges[*node].get(*next).copied() else {
                seen[*node] = Seen::Done;
                stack.pop();
                continue;
            };
            *next += 1;
            match seen[to] {
                Seen::Above => found.push((*node, to)),
                Seen::Done => {}
                Seen::No => {
                    seen[to] = Seen::Above;
                    stack.push((to, 0));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    #[test]
    fn circles_that_stay_at_the_same_value_are_opened_and_others_stay() {
        let at = |name: &str| json!({"$ref": format!("#/$defs/{name}")});
        let mut definitions = json!({
            "A": at("A"),
            "B": {"allOf": [at("C"), {"type": "object"}]},
            "C": {"anyOf": [at("D"), {"not": at("B")}]},
            "D": {"properties": {"d": at("D")}, "items": at("B"), "allOf": [at("A")]},
        });
        let Value::Object(map) = &mut definitions else { panic!() };
        open(map);
        assert_eq!(
            definitions,
            json!({
                "A": {},
                "B": {"allOf": [at("C"), {"type": "object"}]},
                "C": {"anyOf": [at("D"), {"not": {}}]},
                "D": {"properties": {"d": at("D")}, "items": at("B"), "allOf": [at("A")]},
            })
        );
    }
}

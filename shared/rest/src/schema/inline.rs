//! Schemas without `$ref`, for clients that do not follow them.

use serde_json::{Map, Value, json};

use super::fit::{opened, referred};
use super::walk::{size, within};

/// References within references that are worth a part of what they point at.
const NEAR: usize = 2;

/// Replaces references by what they point at. A schema within itself ends open, and so does what has no room.
pub(super) fn inline(schema: Map<String, Value>, definitions: Map<String, Value>, most: usize) -> Map<String, Value> {
    let mut root = Value::Object(schema);
    let mut room = most.saturating_sub(size(&root));
    replace(&mut root, &definitions, &mut Vec::new(), &mut room);
    match root {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn replace(schema: &mut Value, definitions: &Map<String, Value>, above: &mut Vec<String>, room: &mut usize) {
    let before = above.len();
    // What is put in may be a reference again.
    while let Some(name) = referred(schema).map(str::to_owned) {
        let target = definitions.get(&name).filter(|_| !above.contains(&name));
        let mut bytes = target.map_or(0, size);
        let target = match target {
            Some(target) if bytes <= *room => target.clone(),
            // What the arguments themselves are made of loses its depths before it is lost as a whole.
            Some(target) if above.len() < NEAR => {
                let target = opened(target, *room)
                    .unwrap_or_else(|| json!({"description": format!("{name}, too large to be shown here")}));
                bytes = size(&target);
                target
            }
            Some(_) => json!({"description": format!("{name}, too large to be shown here")}),
            None => json!({"description": format!("{name}, not shown again")}),
        };
        *room = room.saturating_sub(bytes);
        put(schema, target);
        above.push(name);
    }
    within(schema, &mut |inner| replace(inner, definitions, above, room));
    above.truncate(before);
}

/// What stands beside a reference wins over what it points at where it is a text, and holds besides otherwise.
fn put(schema: &mut Value, target: Value) {
    let Value::Object(fields) = schema else { return };
    fields.shift_remove("$ref");
    let mut beside = std::mem::take(fields);
    match target {
        Value::Object(target) => {
            *fields = target;
            let texts = ["description", "title", "default", "examples", "deprecated"];
            for key in texts {
                if let Some(value) = beside.shift_remove(key) {
                    fields.insert(key.to_owned(), value);
                }
            }
            let clash = beside.keys().any(|key| fields.contains_key(key));
            if clash {
                let inner = std::mem::take(fields);
                *fields = Map::from_iter([("allOf".to_owned(), json!([inner, beside]))]);
            } else {
                fields.extend(beside);
            }
        }
        other => *schema = other,
    }
}

//! Where schemas lie within a schema.

use serde_json::Value;

/// Keywords that hold named schemas.
pub(super) const MAPS: [&str; 4] = ["properties", "patternProperties", "dependentSchemas", "$defs"];
/// Keywords that hold lists of schemas.
pub(super) const LISTS: [&str; 4] = ["allOf", "anyOf", "oneOf", "prefixItems"];
/// Keywords that hold one schema.
pub(super) const SINGLES: [&str; 11] = [
    "items",
    "additionalProperties",
    "not",
    "if",
    "then",
    "else",
    "contains",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
];

/// Visits the schemas directly within one.
pub(super) fn within(schema: &mut Value, visit: &mut dyn FnMut(&mut Value)) {
    let Value::Object(fields) = schema else { return };
    for (key, value) in fields.iter_mut() {
        let key = key.as_str();
        if SINGLES.contains(&key) {
            visit(value);
        } else if MAPS.contains(&key)
            && let Value::Object(named) = value
        {
            named.values_mut().for_each(&mut *visit);
        } else if LISTS.contains(&key)
            && let Value::Array(list) = value
        {
            list.iter_mut().for_each(&mut *visit);
        }
    }
}

/// Visits a schema and all within it, with their depth.
pub(super) fn all(schema: &mut Value, depth: usize, visit: &mut dyn FnMut(&mut Value, usize)) {
    visit(schema, depth);
    within(schema, &mut |inner| all(inner, depth + 1, &mut *visit));
}

/// How deep a value is as JSON.
pub(super) fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// Bytes of a value as JSON text, nearly: escapes count once.
pub(super) fn size(value: &Value) -> usize {
    match value {
        Value::Null => 4,
        Value::Bool(truth) => 5 - usize::from(*truth),
        Value::Number(number) => number.to_string().len(),
        Value::String(text) => text.len() + 2,
        Value::Array(items) => 2 + items.iter().map(|item| size(item) + 1).sum::<usize>(),
        Value::Object(fields) => 2 + fields.iter().map(|(key, value)| key.len() + 4 + size(value)).sum::<usize>(),
    }
}

/// Whether a value's JSON text has no more bytes than this; stops looking where it has.
pub(super) fn fits(value: &Value, most: usize) -> bool {
    fn take(value: &Value, left: &mut usize) -> Option<()> {
        let own = match value {
            Value::Null | Value::Bool(_) | Value::Number(_) => size(value),
            Value::String(text) => text.len() + 2,
            Value::Array(_) | Value::Object(_) => 2,
        };
        *left = left.checked_sub(own)?;
        match value {
            Value::Array(items) => items.iter().try_for_each(|item| take(item, left)),
            Value::Object(fields) => fields.iter().try_for_each(|(key, value)| {
                *left = left.checked_sub(key.len() + 3)?;
                take(value, left)
            }),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Some(()),
        }
    }
    let mut left = most;
    take(value, &mut left).is_some()
}

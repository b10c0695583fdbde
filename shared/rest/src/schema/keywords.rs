//! Which keywords of a document's schema mean the same in JSON Schema 2020-12, and what their values must be.

use serde_json::{Number, Value};

use super::walk::fits;
use crate::text;

/// Values of one `enum` that are kept: more is a list that no model reads.
const MAX_ENUM: usize = 500;
/// The largest example, default or list of choices that is kept.
pub(super) const MAX_VALUE_BYTES: usize = 8 * 1024;

/// The value of a keyword that is kept as it is; none if it means nothing here or its value is no such value.
pub(super) fn kept(keyword: &str, value: &Value) -> Option<Value> {
    match keyword {
        "format" | "pattern" | "contentEncoding" | "contentMediaType" => value.as_str().map(Value::from),
        "title" | "description" => {
            let text = value.as_str().map(|text| text::clean(text, text::ARGUMENT_CHARS))?;
            (!text.is_empty()).then(|| text.into())
        }
        "minimum" | "maximum" => value.is_number().then(|| value.clone()),
        "exclusiveMinimum" | "exclusiveMaximum" => value.is_number().then(|| value.clone()),
        "multipleOf" => value.as_f64().filter(|n| *n > 0.0).map(|_| value.clone()),
        "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties" | "maxProperties" | "minContains"
        | "maxContains" => count(value),
        "uniqueItems" | "deprecated" => value.as_bool().map(Value::from),
        "const" | "default" => fits(value, MAX_VALUE_BYTES).then(|| value.clone()),
        "examples" => {
            let list = value.as_array().filter(|list| !list.is_empty() && fits(value, MAX_VALUE_BYTES))?;
            Some(list.clone().into())
        }
        "dependentRequired" => value
            .as_object()
            .filter(|map| map.values().all(|list| list.as_array().is_some_and(|l| l.iter().all(Value::is_string))))
            .map(|map| map.clone().into()),
        _ => None,
    }
}

/// A count; `5.0` is one, too.
fn count(value: &Value) -> Option<Value> {
    match value {
        Value::Number(number) => match (number.as_u64(), number.as_f64()) {
            (Some(n), _) => Some(n.into()),
            #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // whole and small, as the guard says
            (None, Some(n)) if n >= 0.0 && n.fract() == 0.0 && n < 9e15 => Some(Value::Number(Number::from(n as u64))),
            (None, _) => None,
        },
        _ => None,
    }
}

/// `type`: the known words, in lower case, each once. None: anything.
pub(super) fn types(value: &Value) -> Vec<&'static str> {
    const KNOWN: [&str; 7] = ["string", "number", "integer", "boolean", "array", "object", "null"];
    let known = |word: &Value| {
        let word = word.as_str()?.to_ascii_lowercase();
        KNOWN.iter().find(|known| **known == word).copied()
    };
    match value {
        Value::Array(words) => {
            let mut found: Vec<&str> = Vec::new();
            for word in words.iter().filter_map(known) {
                if !found.contains(&word) {
                    found.push(word);
                }
            }
            // One word that is not known means that anything may be meant.
            if words.iter().any(|word| known(word).is_none()) { Vec::new() } else { found }
        }
        word => known(word).into_iter().collect(),
    }
}

/// `enum`, bounded: none if it says nothing or too much.
pub(super) fn choices(value: &Value) -> Option<Vec<Value>> {
    let list = value.as_array()?;
    if list.is_empty() || list.len() > MAX_ENUM || !fits(value, MAX_VALUE_BYTES) {
        return None;
    }
    let mut found: Vec<Value> = Vec::with_capacity(list.len());
    for item in list {
        if !found.contains(item) {
            found.push(item.clone());
        }
    }
    Some(found)
}

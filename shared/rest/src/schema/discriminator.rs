//! A discriminator says which value of a property chooses which branch.

use serde_json::{Value, json};

/// The branches, each with its value; branches that are no references stay as they are.
pub(super) fn name_branches(rule: &Value, sources: &[Value], branches: Vec<Value>) -> Vec<Value> {
    let Some(property) = rule.get("propertyName").and_then(Value::as_str) else { return branches };
    let mapping = rule.get("mapping").and_then(Value::as_object);
    let named = |source: &Value, branch: Value| {
        let Some(reference) = source.get("$ref").and_then(Value::as_str) else { return branch };
        let short = reference.rsplit('/').next().unwrap_or_default();
        let target = |value: &Value| value.as_str().is_some_and(|value| value == reference || value == short);
        let values = mapping.into_iter().flatten().filter(|(_, value)| target(value)).map(|(key, _)| key.as_str());
        let values: Vec<&str> = values.collect();
        let value = match values.as_slice() {
            [] => json!({"const": short}),
            [one] => json!({"const": one}),
            many => json!({"enum": many}),
        };
        json!({"allOf": [branch, {"properties": {property: value}, "required": [property]}]})
    };
    sources.iter().zip(branches).map(|(source, branch)| named(source, branch)).collect()
}

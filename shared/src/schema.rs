//! Arguments are checked against the tool's schema before anything runs.

use serde_json::Value;

use crate::call::Fault;
use crate::json::Raw;

mod coerce;
pub use coerce::Coercion;

/// Problems shown of one bad argument object: enough to mend it, short enough to read.
const MAX_SHOWN: usize = 20;

/// Checks arguments. The fault (`invalid_argument`) names each path and what was expected. A schema that is itself broken
/// lets everything pass: the tool decides then, a peer's bad schema must not make its tool unusable.
pub fn check_arguments(schema: &Raw, arguments: &Value) -> Result<(), Fault> {
    Checker::of(&schema.value()).map_or(Ok(()), |checker| checker.check(arguments))
}

/// A schema that is prepared once for many calls.
#[derive(Debug, Clone)]
pub struct Checker(jsonschema::Validator);

impl Checker {
    /// Prepares a schema. None: it is broken.
    pub fn of(schema: &Value) -> Option<Self> {
        jsonschema::validator_for(schema).ok().map(Self)
    }

    /// As [`check_arguments`].
    pub fn check(&self, arguments: &Value) -> Result<(), Fault> {
        let problems = self.problems(arguments, "arguments");
        if problems.is_empty() { Ok(()) } else { Err(Fault::new("invalid_argument", problems.join("; "))) }
    }

    fn problems(&self, value: &Value, root: &str) -> Vec<String> {
        let mut problems: Vec<String> = Vec::new();
        let mut more = 0usize;
        for error in self.0.iter_errors(value) {
            if problems.len() == MAX_SHOWN {
                more += 1;
                continue;
            }
            let path = error.instance_path().to_string();
            problems.push(crate::show::plain(&format!("{root}{path}: {error}")));
        }
        if more > 0 {
            problems.push(format!("and {more} more"));
        }
        problems
    }
}

/// What of a value does not fit a schema, each with its path below `root`; nothing where the schema itself is broken.
pub fn problems(schema: &Raw, value: &Value, root: &str) -> Vec<String> {
    Checker::of(&schema.value()).map_or_else(Vec::new, |checker| checker.problems(value, root))
}

/// Adds the schema's defaults for fields without a value.
pub fn add_defaults(schema: &Value, fields: &mut serde_json::Map<String, Value>) {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (key, property) in properties.into_iter().flatten() {
        if let Some(default) = property.get("default")
            && !fields.contains_key(key)
        {
            fields.insert(key.clone(), default.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn a_wrong_argument_is_named_with_its_path() {
        let schema = Raw::from(
            json!({"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false}),
        );
        assert!(check_arguments(&schema, &json!({"n": 1})).is_ok());
        let fault = check_arguments(&schema, &json!({"n": "x", "y": 1})).unwrap_err();
        assert_eq!(fault.code, "invalid_argument");
        assert!(fault.message.contains("arguments/n") && fault.message.contains('y'), "{}", fault.message);
    }

    #[test]
    fn a_broken_schema_does_not_make_its_tool_unusable() {
        assert!(check_arguments(&Raw::from(json!({"type": 12})), &json!({})).is_ok());
    }
}

//! Arguments are checked against the tool's schema before anything runs.

use serde_json::Value;

use crate::call::Fault;
use crate::json::Raw;

mod coerce;
pub use coerce::Coercion;

/// Problems shown of one bad argument object: enough to mend it, short enough to read.
const MAX_SHOWN: usize = 5;

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
        let mut problems: Vec<String> = Vec::new();
        let mut more = 0usize;
        for error in self.0.iter_errors(arguments) {
            if problems.len() == MAX_SHOWN {
                more += 1;
                continue;
            }
            let path = error.instance_path().to_string();
            let at = if path.is_empty() { "arguments".to_owned() } else { format!("arguments{path}") };
            problems.push(crate::show::plain(&format!("{at}: {error}")));
        }
        if problems.is_empty() {
            return Ok(());
        }
        if more > 0 {
            problems.push(format!("and {more} more"));
        }
        Err(Fault::new("invalid_argument", problems.join("; ")))
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

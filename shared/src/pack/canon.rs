//! A JSON value as one text, whatever the order of its fields was.

use serde_json::Value;

use crate::doc::Node;

/// Sorted keys, no blanks.
pub fn canonical(value: &Value) -> String {
    let mut out = String::new();
    write(value, &mut out);
    out
}

/// The whole pack except `enabled`: turning a pack off and on is no change of what was consented to.
pub(super) fn without_enabled(pack: &Node) -> String {
    let mut value = pack.to_value();
    if let Value::Object(fields) = &mut value {
        fields.shift_remove("enabled");
    }
    canonical(&value)
}

fn write(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.iter().collect();
            fields.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (at, (key, value)) in fields.into_iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                write(value, out);
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write(item, out);
            }
            out.push(']');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => out.push_str(&value.to_string()),
    }
}

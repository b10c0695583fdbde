//! Arguments before they become a request: what is not given goes, what is not known is refused, the rest must fit the schema.

use serde_json::{Map, Value};
use vance_shared::call::Fault;
use vance_shared::doc::nearest;
use vance_shared::show::{plain, quoted};

use crate::api::Api;
use crate::error::Code;
use crate::operation::{BodyKind, Operation};

/// Arguments that a message lists.
const MAX_LISTED: usize = 30;

/// The arguments that are sent. Null means not given, except within a JSON body.
pub(super) fn checked(api: &Api, operation: &Operation, arguments: &Value) -> Result<Map<String, Value>, Fault> {
    let mut given = match arguments {
        Value::Object(given) => given.clone(),
        Value::Null => Map::new(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            return Err(Code::InvalidArgument.fault("the arguments are no object, expected {\"name\": value}"));
        }
    };
    if let Some(name) = given.keys().find(|name| !operation.arguments().any(|known| known == *name)) {
        return Err(unknown(operation, name));
    }
    given.retain(|name, value| {
        !value.is_null() || operation.body.as_ref().is_some_and(|b| b.required && b.argument == *name)
    });
    if let Some(body) = operation.body.as_ref().filter(|body| matches!(body.kind, BodyKind::Form | BodyKind::Multipart))
        && let Some(Value::Object(fields)) = given.get_mut(&body.argument)
    {
        fields.retain(|_, value| !value.is_null());
    }
    let mut given = Value::Object(given);
    if let Some(coercion) = &api.built(operation).coercion {
        coercion.apply(&mut given);
    }
    if let Some(checker) = api.checker(operation) {
        checker.check(&given)?;
    }
    match given {
        Value::Object(given) => Ok(given),
        _ => Ok(Map::new()),
    }
}

fn unknown(operation: &Operation, name: &str) -> Fault {
    let known: Vec<&str> = operation.arguments().collect();
    let hint = match nearest(name, known.iter().copied()) {
        Some(near) => format!(", did you mean {near}?"),
        None => String::new(),
    };
    let more = if known.len() > MAX_LISTED { ", …" } else { "" };
    let list = match known.as_slice() {
        [] => "none".to_owned(),
        known => known[..known.len().min(MAX_LISTED)].join(", "),
    };
    Code::InvalidArgument.fault(format!(
        "there is no argument {}{hint}; known: {}{more}",
        quoted(name, 64),
        plain(&list)
    ))
}

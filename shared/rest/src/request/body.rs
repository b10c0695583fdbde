//! A request's body from its one argument.

use serde_json::Value;
use url::form_urlencoded::byte_serialize;
use vance_shared::call::Fault;

use super::style::{deep, is_nothing, scalar};
use super::{Data, Files, Part, Payload, file};
use crate::cut::{essence, is_json};
use crate::error::Code;
use crate::operation::{Body, BodyKind, FieldEncoding, Style};

/// The body and its type on the wire.
pub(super) fn payload(body: &Body, value: &Value, files: Files) -> Result<(Payload, String), Fault> {
    let media_type = body.media_type.clone();
    Ok(match body.kind {
        BodyKind::Json => (Payload::Json(value.to_string()), media_type),
        BodyKind::Text => (Payload::Text(scalar(value)), media_type),
        BodyKind::Form => (Payload::Text(form(body, value)?), media_type),
        BodyKind::Multipart => (Payload::Multipart(parts(body, value, files)?), essence(&media_type)),
        BodyKind::Bytes => {
            let file = file::read(&body.argument, value, files)?;
            let media_type = match file.content_type {
                Some(said)
                    if essence(&media_type) == "application/octet-stream" && value.get("contentType").is_some() =>
                {
                    said
                }
                Some(_) | None => media_type,
            };
            (Payload::Data(file.data), media_type)
        }
    })
}

fn fields<'v>(body: &Body, value: &'v Value) -> Result<&'v serde_json::Map<String, Value>, Fault> {
    value.as_object().ok_or_else(|| {
        Code::InvalidArgument
            .fault(format!("the argument {} is a form, expected an object of its fields", body.argument))
    })
}

/// `a=1&b=2`, blanks as `+`.
fn form(body: &Body, value: &Value) -> Result<String, Fault> {
    if let Value::String(text) = value {
        return Ok(text.clone());
    }
    let mut pairs: Vec<(String, String)> = Vec::new();
    for (name, value) in fields(body, value)?.iter().filter(|(_, value)| !is_nothing(value)) {
        field(name, value, body.encoding.get(name), &mut pairs);
    }
    let encode = |text: &str| byte_serialize(text.as_bytes()).collect::<String>();
    Ok(pairs.iter().map(|(name, value)| format!("{}={}", encode(name), encode(value))).collect::<Vec<_>>().join("&"))
}

/// One field: lists repeat and objects are JSON, unless the encoding says otherwise.
fn field(name: &str, value: &Value, encoding: Option<&FieldEncoding>, out: &mut Vec<(String, String)>) {
    let style = encoding.and_then(|encoding| encoding.style);
    let json = style.is_none() && encoding.and_then(|e| e.content_type.as_deref()).is_some_and(is_json);
    let explode = encoding.is_none_or(|encoding| encoding.explode);
    match (value, style) {
        (Value::Array(_) | Value::Object(_), _) if json => out.push((name.to_owned(), value.to_string())),
        (Value::Array(_) | Value::Object(_), Some(Style::DeepObject)) => deep(name, value, out),
        (Value::Array(items), _) if explode => {
            out.extend(items.iter().filter(|i| !i.is_null()).map(|i| (name.to_owned(), scalar(i))))
        }
        (Value::Array(items), style) => {
            let between = match style {
                Some(Style::Joined(c)) => c,
                Some(_) | None => ',',
            };
            let texts: Vec<String> = items.iter().filter(|item| !item.is_null()).map(scalar).collect();
            out.push((name.to_owned(), texts.join(&between.to_string())));
        }
        (Value::Object(object), Some(Style::Form)) if explode => {
            out.extend(object.iter().filter(|(_, v)| !v.is_null()).map(|(key, value)| (key.clone(), scalar(value))));
        }
        (value, _) => out.push((name.to_owned(), scalar(value))),
    }
}

fn parts(body: &Body, value: &Value, files: Files) -> Result<Vec<Part>, Fault> {
    let mut parts = Vec::new();
    for (name, value) in fields(body, value)?.iter().filter(|(_, value)| !is_nothing(value)) {
        let encoding = body.encoding.get(name);
        let joined = encoding.and_then(|encoding| match encoding.style {
            Some(Style::Joined(c)) => Some(c),
            Some(_) | None => None,
        });
        match (value, joined) {
            (Value::Array(items), Some(c)) if !items.iter().any(file::is_file) => {
                let texts: Vec<String> = items.iter().filter(|item| !item.is_null()).map(scalar).collect();
                parts.push(part(name, &Value::String(texts.join(&c.to_string())), encoding, files)?);
            }
            (Value::Array(items), _) => {
                for item in items.iter().filter(|item| !item.is_null()) {
                    parts.push(part(name, item, encoding, files)?);
                }
            }
            (value, _) => parts.push(part(name, value, encoding, files)?),
        }
    }
    Ok(parts)
}

fn part(name: &str, value: &Value, encoding: Option<&FieldEncoding>, files: Files) -> Result<Part, Fault> {
    // A list of types or one with a wildcard says what is accepted, not what is sent.
    let said = encoding.and_then(|encoding| encoding.content_type.clone()).filter(|said| !said.contains([',', '*']));
    let said = said.filter(|said| super::is_sendable(said));
    if file::is_file(value) {
        let file = file::read(name, value, files)?;
        let own = value.get("contentType").is_some();
        let content_type = if own { file.content_type } else { said.or(file.content_type) };
        return Ok(Part {
            name: name.to_owned(),
            filename: Some(file.filename.unwrap_or_else(|| "file".to_owned())),
            content_type: Some(content_type.unwrap_or_else(|| "application/octet-stream".to_owned())),
            data: file.data,
        });
    }
    let content_type = match value {
        Value::Object(_) | Value::Array(_) => Some(said.unwrap_or_else(|| "application/json".to_owned())),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => said,
    };
    Ok(Part { name: name.to_owned(), filename: None, content_type, data: Data::Bytes(scalar(value).into_bytes()) })
}

//! How values are written into paths, queries, headers and cookies.

use percent_encoding::{AsciiSet, CONTROLS, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::Value;

use crate::operation::{Parameter, Style};

/// Everything but what RFC 3986 calls unreserved.
const VALUE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// `allowReserved`: also what is reserved, apart from what would begin another parameter or end the query.
const RESERVED: &AsciiSet = &VALUE
    .remove(b':')
    .remove(b'/')
    .remove(b'?')
    .remove(b'@')
    .remove(b'!')
    .remove(b'$')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b',')
    .remove(b';');
/// A query that is given as a whole.
const QUERY: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'<')
    .add(b'>')
    .add(b'\\')
    .add(b'^')
    .add(b'`')
    .add(b'{')
    .add(b'|')
    .add(b'}');

/// Encodes a text as one value.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, VALUE).to_string()
}

/// A value as plain text; lists and objects within others as JSON.
pub(super) fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    }
}

/// Null, an empty list, and an object without anything in it are not sent.
pub(super) fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.iter().all(Value::is_null),
        Value::Object(fields) => fields.values().all(Value::is_null),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn items(list: &[Value]) -> impl Iterator<Item = String> {
    list.iter().filter(|item| !item.is_null()).map(scalar)
}

fn fields(object: &serde_json::Map<String, Value>) -> impl Iterator<Item = (&str, String)> {
    object.iter().filter(|(_, value)| !value.is_null()).map(|(key, value)| (key.as_str(), scalar(value)))
}

/// A path parameter's value; none if there is nothing to write.
pub(super) fn path(parameter: &Parameter, value: &Value) -> Option<String> {
    if is_nothing(value) {
        return None;
    }
    let (first, between, named) = match (parameter.style, parameter.explode) {
        (Style::Label, true) => (".", ".".to_owned(), false),
        (Style::Label, false) => (".", ",".to_owned(), false),
        (Style::Matrix, true) => (";", ";".to_owned(), true),
        (Style::Matrix, false) => (";", ",".to_owned(), false),
        (Style::Joined(c), _) => ("", encoded(&c.to_string()), false),
        (Style::Simple | Style::Form | Style::DeepObject | Style::Json, _) => ("", ",".to_owned(), false),
    };
    let name = encoded(&parameter.wire);
    let written = match value {
        _ if parameter.style == Style::Json => encoded(&value.to_string()),
        Value::Array(list) => {
            let item = |text: String| if named { format!("{name}={}", encoded(&text)) } else { encoded(&text) };
            items(list).map(item).collect::<Vec<_>>().join(&between)
        }
        Value::Object(object) => {
            let sign = if parameter.explode { "=" } else { "," };
            let pair = |(key, text): (&str, String)| format!("{}{sign}{}", encoded(key), encoded(&text));
            fields(object).map(pair).collect::<Vec<_>>().join(&between)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => encoded(&scalar(value)),
    };
    // A matrix names its value once, unless each item does.
    let prefix = match (parameter.style, value) {
        (Style::Matrix, Value::Array(_) | Value::Object(_)) if parameter.explode => String::new(),
        (Style::Matrix, _) => format!("{name}="),
        _ => String::new(),
    };
    Some(format!("{first}{prefix}{written}"))
}

/// Texts of a path value before they are encoded, for the search for dot segments.
pub(super) fn texts(value: &Value) -> Vec<String> {
    match value {
        Value::Array(list) => list.iter().flat_map(texts).collect(),
        Value::Object(object) => {
            object.iter().flat_map(|(key, value)| [vec![key.clone()], texts(value)].concat()).collect()
        }
        Value::Null => Vec::new(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => vec![scalar(value)],
    }
}

/// Adds a query parameter's `name=value`.
pub(super) fn query(parameter: &Parameter, value: &Value, out: &mut Vec<String>) {
    if is_nothing(value) {
        return;
    }
    let set = if parameter.reserved { RESERVED } else { VALUE };
    let text = |text: &str| utf8_percent_encode(text, set).to_string();
    let name = encoded(&parameter.wire);
    if parameter.style == Style::Json {
        out.push(format!("{name}={}", text(&value.to_string())));
        return;
    }
    let between = match parameter.style {
        Style::Joined(c) => encoded(&c.to_string()),
        Style::Simple | Style::Label | Style::Matrix | Style::Form | Style::DeepObject | Style::Json => ",".to_owned(),
    };
    match value {
        _ if parameter.style == Style::DeepObject && (value.is_object() || value.is_array()) => {
            let mut pairs = Vec::new();
            deep(&parameter.wire, value, &mut pairs);
            out.extend(pairs.into_iter().map(|(key, value)| format!("{}={}", encoded(&key), text(&value))));
        }
        Value::Array(list) if parameter.explode => {
            out.extend(items(list).map(|item| format!("{name}={}", text(&item))))
        }
        Value::Array(list) => {
            let joined = items(list).map(|item| text(&item)).collect::<Vec<_>>().join(&between);
            out.push(format!("{name}={joined}"));
        }
        Value::Object(object) if parameter.explode => {
            out.extend(fields(object).map(|(key, value)| format!("{}={}", encoded(key), text(&value))));
        }
        Value::Object(object) => {
            let pair = |(key, value): (&str, String)| format!("{}{between}{}", encoded(key), text(&value));
            out.push(format!("{name}={}", fields(object).map(pair).collect::<Vec<_>>().join(&between)));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            out.push(format!("{name}={}", text(&scalar(value))));
        }
    }
}

/// The whole query in one argument: an object's fields, or a text as it is.
pub(super) fn whole_query(value: &Value, out: &mut Vec<String>) {
    match value {
        Value::Object(object) => {
            for (key, value) in object.iter().filter(|(_, value)| !is_nothing(value)) {
                let name = encoded(key);
                match value {
                    Value::Array(list) => out.extend(items(list).map(|item| format!("{name}={}", encoded(&item)))),
                    value => out.push(format!("{name}={}", encoded(&scalar(value)))),
                }
            }
        }
        Value::String(text) if !text.is_empty() => out.push(utf8_percent_encode(text, QUERY).to_string()),
        Value::Null | Value::String(_) => {}
        Value::Bool(_) | Value::Number(_) | Value::Array(_) => out.push(encoded(&value.to_string())),
    }
}

/// What servers take for `name=value` in a query or a cookie: some of them separate at `;` in both.
pub(super) fn pairs(text: &str) -> impl Iterator<Item = &str> {
    text.split(['&', ';']).map(str::trim).filter(|pair| !pair.is_empty())
}

/// Whether a pair has this name, however it is written.
pub(super) fn is_named(pair: &str, name: &str) -> bool {
    let written = pair.split('=').next().unwrap_or_default().replace('+', " ");
    percent_decode_str(&written).decode_utf8_lossy() == name
}

/// Takes out all that has this name: what the pack itself sends under it is the only one.
pub(super) fn without(parts: &mut Vec<String>, name: &str) {
    for part in &mut *parts {
        if pairs(part).any(|pair| is_named(pair, name)) {
            let kept: Vec<&str> = pairs(part).filter(|pair| !is_named(pair, name)).collect();
            *part = kept.join("&");
        }
    }
    parts.retain(|part| !part.is_empty());
}

/// `name[key][]` and values, in order.
pub(super) fn deep(name: &str, value: &Value, out: &mut Vec<(String, String)>) {
    match value {
        Value::Object(object) => object.iter().for_each(|(key, value)| deep(&format!("{name}[{key}]"), value, out)),
        Value::Array(list) => list.iter().for_each(|item| deep(&format!("{name}[]"), item, out)),
        Value::Null => {}
        Value::Bool(_) | Value::Number(_) | Value::String(_) => out.push((name.to_owned(), scalar(value))),
    }
}

/// A header's value as it is; none if there is nothing to send.
pub(super) fn header(parameter: &Parameter, value: &Value) -> Option<String> {
    if is_nothing(value) {
        return None;
    }
    let between = match parameter.style {
        Style::Joined(c) => c.to_string(),
        Style::Simple | Style::Label | Style::Matrix | Style::Form | Style::DeepObject | Style::Json => ",".to_owned(),
    };
    Some(match value {
        _ if parameter.style == Style::Json => value.to_string(),
        Value::Array(list) => items(list).collect::<Vec<_>>().join(&between),
        Value::Object(object) => {
            let sign = if parameter.explode { "=" } else { "," };
            fields(object).map(|(key, value)| format!("{key}{sign}{value}")).collect::<Vec<_>>().join(&between)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => scalar(value),
    })
}

/// Adds a cookie.
pub(super) fn cookie(parameter: &Parameter, value: &Value, out: &mut Vec<String>) {
    let mut pairs = Vec::new();
    query(&Parameter { argument: String::new(), wire: parameter.wire.clone(), ..*parameter }, value, &mut pairs);
    out.extend(pairs);
}

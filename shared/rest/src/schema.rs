//! An operation's arguments as one JSON Schema (2020-12): a closed object with the definitions that it reaches.

use serde_json::{Map, Value, json};
use vance_shared::launch::rest::Refs;

use crate::cut::{BodySource, FormSource, body_source};
use crate::document::Document;
use crate::operation::{BodyKind, Key, Operation, Parameter};
use crate::raw::RawOperation;
use crate::text;

mod convert;
mod cycles;
mod discriminator;
mod fit;
mod inline;
mod keywords;
mod walk;
use convert::Converter;

/// How schemas are made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) most_bytes: usize,
    pub(crate) refs: Refs,
}

/// The schema of an operation's arguments. Nothing in it fails: what cannot be understood stays open.
pub(crate) fn input_schema(doc: &Document, raw: &RawOperation<'_>, operation: &Operation, rules: Rules) -> Value {
    let mut converter = Converter::new(doc, rules.most_bytes);
    let sources = raw.parameters(doc).unwrap_or_default();
    let (mut properties, mut required) = (Map::new(), Vec::new());
    for parameter in &operation.parameters {
        let source = parameter.source.and_then(|at| sources.get(at).copied());
        properties.insert(parameter.argument.clone(), argument(&mut converter, parameter, source));
        let sent_anyway = matches!(&operation.key, Key::Argument(name) if *name == parameter.argument);
        if parameter.required && !sent_anyway {
            required.push(Value::from(parameter.argument.as_str()));
        }
    }
    if let Some(body) = &operation.body {
        let source = body_source(doc, raw).ok().flatten();
        properties.insert(body.argument.clone(), body_schema(&mut converter, body.kind, source));
        if body.required {
            required.push(body.argument.as_str().into());
        }
    }
    let mut schema = Map::new();
    schema.insert("type".to_owned(), "object".into());
    schema.insert("properties".to_owned(), Value::Object(properties));
    if !required.is_empty() {
        schema.insert("required".to_owned(), Value::Array(required));
    }
    schema.insert("additionalProperties".to_owned(), false.into());
    let mut definitions = converter.definitions();
    cycles::open(&mut definitions);
    fit::not_too_deep(match rules.refs {
        Refs::Defs => fit::fit(schema, definitions, rules.most_bytes),
        Refs::Inline => fit::fit(inline::inline(schema, definitions, rules.most_bytes), Map::new(), rules.most_bytes),
    })
}

fn argument(converter: &mut Converter<'_>, parameter: &Parameter, source: Option<&Map<String, Value>>) -> Value {
    let mut schema = match source {
        None => json!({"type": "string"}),
        Some(source) => converter.parameter(source),
    };
    let said = source.and_then(|source| source.get("description")).and_then(Value::as_str).unwrap_or_default();
    let mut description = text::clean(said, text::ARGUMENT_CHARS);
    if parameter.argument != parameter.wire {
        let wire = text::clean(&parameter.wire, text::ARGUMENT_CHARS);
        let note = format!("({} parameter `{wire}`)", parameter.place.word());
        description = if description.is_empty() { note } else { format!("{description} {note}") };
    }
    describe(&mut schema, description);
    schema
}

/// Puts a description in, if there is one to put in.
fn describe(schema: &mut Value, description: String) {
    if description.is_empty() {
        return;
    }
    if let Value::Bool(open) = schema {
        *schema = if *open { json!({}) } else { json!({"not": {}}) };
    }
    if let Value::Object(fields) = schema {
        fields.insert("description".to_owned(), description.into());
    }
}

fn body_schema(converter: &mut Converter<'_>, kind: BodyKind, source: Option<BodySource<'_>>) -> Value {
    let Some(source) = source else { return json!({}) };
    let mut schema = match (&source.schema, kind) {
        (FormSource::Fields(fields), _) => converter.fields(fields),
        (FormSource::Schema(schema), BodyKind::Json) => converter.schema(schema),
        (FormSource::Schema(schema), BodyKind::Form | BodyKind::Multipart) => {
            converter.form(schema, kind == BodyKind::Multipart)
        }
        (FormSource::Schema(schema), BodyKind::Text) if converter.is_text(schema) => converter.schema(schema),
        (FormSource::Schema(_) | FormSource::None, BodyKind::Text) if source.media_type.starts_with("text/plain") => {
            json!({"type": "string"})
        }
        (FormSource::Schema(_) | FormSource::None, BodyKind::Text) => {
            let what = source.media_type.split(';').next().unwrap_or_default();
            json!({"type": "string", "description": format!("{what} document")})
        }
        (FormSource::Schema(_) | FormSource::None, BodyKind::Bytes) => converter.file(),
        (FormSource::None, BodyKind::Json) => json!({}),
        (FormSource::None, BodyKind::Form | BodyKind::Multipart) => json!({"type": "object"}),
    };
    let open = schema.as_object().is_some_and(|fields| !fields.contains_key("description"));
    if open {
        describe(&mut schema, text::clean(source.description.unwrap_or_default(), text::ARGUMENT_CHARS));
    }
    schema
}

/// Removes regular expressions.
pub(crate) fn without_patterns(schema: &mut Value) {
    walk::all(schema, 0, &mut |schema, _| {
        if let Value::Object(fields) = schema {
            fields.shift_remove("pattern");
            fields.shift_remove("patternProperties");
        }
    });
}

#[cfg(test)]
mod tests;

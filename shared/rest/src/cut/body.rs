//! The request's body: which of its types is used, and how forms are written.

use serde_json::{Map, Value, json};

use super::{essence, is_json, query_style};
use crate::document::{Document, Version};
use crate::operation::{Body, BodyKind, FieldEncoding, Style};
use crate::raw::{RawOperation, truth};

/// Where a body's schema is.
pub(crate) enum FormSource<'d> {
    /// Nothing is said.
    None,
    /// One schema.
    Schema(&'d Value),
    /// Form fields of 2.0, each a parameter.
    Fields(Vec<&'d Map<String, Value>>),
}

/// A body before its encodings are read.
pub(crate) struct BodySource<'d> {
    pub(crate) media_type: String,
    pub(crate) kind: BodyKind,
    pub(crate) required: bool,
    pub(crate) schema: FormSource<'d>,
    pub(crate) description: Option<&'d str>,
    encoding: Option<&'d Map<String, Value>>,
}

/// The body of an operation.
pub(crate) fn body_source<'d>(doc: &'d Document, raw: &RawOperation<'d>) -> Result<Option<BodySource<'d>>, String> {
    if doc.version() == Version::V2 { old(doc, raw) } else { new(doc, raw) }
}

fn new<'d>(doc: &'d Document, raw: &RawOperation<'d>) -> Result<Option<BodySource<'d>>, String> {
    let Some(body) = raw.request_body(doc)? else { return Ok(None) };
    let description = body.get("description").and_then(Value::as_str);
    let required = truth(body.get("required"));
    let Some(Value::Object(content)) = body.get("content") else { return Ok(None) };
    let types: Vec<&str> = content.keys().map(String::as_str).collect();
    let Some((media_type, kind)) = choose(&types) else { return Ok(None) };
    let media = content.get(media_type).map(|media| doc.follow(media)).transpose().map_err(|e| e.to_string())?;
    Ok(Some(BodySource {
        media_type: wire(media_type, kind),
        kind,
        required,
        schema: media.and_then(|media| media.get("schema")).map_or(FormSource::None, FormSource::Schema),
        description,
        encoding: media.and_then(|media| media.get("encoding")).and_then(Value::as_object),
    }))
}

fn old<'d>(doc: &'d Document, raw: &RawOperation<'d>) -> Result<Option<BodySource<'d>>, String> {
    let parameters = raw.parameters(doc)?;
    let of = |place: &str| {
        let found = parameters.iter().copied().filter(|p| p.get("in").and_then(Value::as_str) == Some(place));
        found.collect::<Vec<_>>()
    };
    let consumes = raw.operation.get("consumes").or(doc.root().get("consumes")).and_then(Value::as_array);
    let types: Vec<&str> = consumes.into_iter().flatten().filter_map(Value::as_str).collect();
    let (bodies, fields) = (of("body"), of("formData"));
    if let Some(body) = bodies.first() {
        let types: Vec<&str> = types.into_iter().filter(|text| !is_form(text)).collect();
        let (media_type, kind) = choose(&types).unwrap_or(("application/json", BodyKind::Json));
        return Ok(Some(BodySource {
            media_type: wire(media_type, kind),
            kind,
            required: truth(body.get("required")),
            schema: body.get("schema").map_or(FormSource::None, FormSource::Schema),
            description: body.get("description").and_then(Value::as_str),
            encoding: None,
        }));
    }
    if fields.is_empty() {
        return Ok(None);
    }
    let file = fields.iter().any(|field| field.get("type").and_then(Value::as_str) == Some("file"));
    let multipart = file || (types.iter().any(|t| is_multipart(t)) && !types.iter().any(|t| is_urlencoded(t)));
    let (media_type, kind) = match multipart {
        true => ("multipart/form-data", BodyKind::Multipart),
        false => ("application/x-www-form-urlencoded", BodyKind::Form),
    };
    Ok(Some(BodySource {
        media_type: media_type.to_owned(),
        kind,
        required: fields.iter().any(|field| truth(field.get("required"))),
        schema: FormSource::Fields(fields),
        description: None,
        encoding: None,
    }))
}

impl BodySource<'_> {
    /// What is read by `openapiv3`: the chosen type alone, its schema a stub.
    pub(super) fn stub(&self) -> Value {
        let mut encodings = Map::new();
        for (name, value) in self.encoding.into_iter().flatten() {
            let mut stub = Map::new();
            for key in ["contentType", "style"] {
                if let Some(Value::String(text)) = value.get(key) {
                    stub.insert(key.to_owned(), text.as_str().into());
                }
            }
            let style = value.get("style").and_then(Value::as_str);
            let default = style.is_none_or(|style| style == "form");
            let explode = value.get("explode").map_or(default, |explode| truth(Some(explode)));
            stub.insert("explode".to_owned(), explode.into());
            encodings.insert(name.clone(), Value::Object(stub));
        }
        json!({"required": self.required, "content": {self.media_type.as_str(): {"schema": {}, "encoding": encodings}}})
    }

    /// With what was read.
    pub(super) fn read(self, media: Option<openapiv3::MediaType>) -> Body {
        let encoding = match &self.schema {
            FormSource::Fields(fields) => fields.iter().filter_map(|field| old_field(field)).collect(),
            FormSource::None | FormSource::Schema(_) => {
                let read = media.map(|media| media.encoding).unwrap_or_default();
                let field = |encoding: openapiv3::Encoding| FieldEncoding {
                    style: encoding.style.as_ref().map(query_style),
                    explode: encoding.explode,
                    content_type: encoding.content_type,
                };
                read.into_iter().map(|(name, encoding)| (name, field(encoding))).collect()
            }
        };
        Body {
            argument: String::new(),
            required: self.required,
            media_type: self.media_type,
            kind: self.kind,
            encoding,
        }
    }
}

/// A list in a form of 2.0 is one text, csv where nothing is said.
fn old_field(field: &Map<String, Value>) -> Option<(String, FieldEncoding)> {
    let name = field.get("name")?.as_str()?.to_owned();
    let separator = match field.get("collectionFormat").and_then(Value::as_str) {
        Some("multi") => return Some((name, FieldEncoding { style: None, explode: true, content_type: None })),
        Some("ssv") => ' ',
        Some("tsv") => '\t',
        Some("pipes") => '|',
        Some(_) | None => ',',
    };
    Some((name, FieldEncoding { style: Some(Style::Joined(separator)), explode: false, content_type: None }))
}

/// The type that says most: JSON, then forms, then text, then bytes; `application/json` itself before its relatives.
fn choose<'t>(types: &[&'t str]) -> Option<(&'t str, BodyKind)> {
    let rank = |media_type: &str| -> u8 {
        let essence = essence(media_type);
        match essence.as_str() {
            "application/json" => 0,
            _ if is_json(media_type) => 1,
            "*/*" | "application/*" => 2,
            _ if is_multipart(media_type) => 3,
            _ if is_urlencoded(media_type) => 4,
            _ if essence == "application/xml" || essence == "text/xml" || essence.ends_with("+xml") => 6,
            _ if essence.starts_with("text/") => 5,
            "application/x-ndjson" | "application/jsonl" | "application/graphql" | "application/sparql-query" => 5,
            _ if essence.contains("yaml") => 5,
            _ => 7,
        }
    };
    let best = types.iter().min_by_key(|media_type| rank(media_type))?;
    let kind = match rank(best) {
        0..=2 => BodyKind::Json,
        3 => BodyKind::Multipart,
        4 => BodyKind::Form,
        5 | 6 => BodyKind::Text,
        _ => BodyKind::Bytes,
    };
    Some((best, kind))
}

/// What is sent for a type: wildcards are no type, and one that no header can carry is not sent.
fn wire(media_type: &str, kind: BodyKind) -> String {
    let sendable = media_type.contains('/') && media_type.bytes().all(|b| (b' '..=b'~').contains(&b));
    if sendable && !media_type.contains('*') {
        return media_type.trim().to_owned();
    }
    match kind {
        BodyKind::Json => "application/json",
        BodyKind::Multipart => "multipart/form-data",
        BodyKind::Form => "application/x-www-form-urlencoded",
        BodyKind::Text => "text/plain",
        BodyKind::Bytes => "application/octet-stream",
    }
    .to_owned()
}

fn is_multipart(media_type: &str) -> bool {
    essence(media_type).starts_with("multipart/")
}

fn is_urlencoded(media_type: &str) -> bool {
    essence(media_type) == "application/x-www-form-urlencoded"
}

fn is_form(media_type: &str) -> bool {
    is_multipart(media_type) || is_urlencoded(media_type)
}

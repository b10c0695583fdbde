//! A document's schema becomes JSON Schema 2020-12: references point into `$defs`, and what 2.0 and 3.0 say in words of their own
//! (`nullable`, `example`, exclusive bounds as truths, `type: file`) is said in those of JSON Schema.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};

use serde_json::{Map, Value, json};

use super::{discriminator, keywords, walk};
use crate::document::{Document, Version};
use crate::raw::truth;

/// Deepest nesting of what is written inline.
const MAX_INLINE: usize = 48;
/// How far `allOf` is searched for what is read-only, and how many branches in all.
const MAX_SEARCH: usize = 6;
const MAX_BRANCHES: usize = 100;
/// Schemas of one operation that are looked at: no tool that can be used has more, and documents repeat large ones in every operation.
const MAX_PLACES: usize = 20_000;
/// The pointer under which the definition of a file is known.
const FILE: &str = "file";

/// What is special about a place.
#[derive(Clone, Copy)]
struct Place<'a> {
    depth: usize,
    /// Within a form: here (0), one of its properties (1); none elsewhere.
    form: Option<u8>,
    /// Names that an `allOf` around this place makes read-only.
    hidden: &'a BTreeSet<String>,
}

/// Converts the schemas of one operation.
pub(super) struct Converter<'d> {
    doc: &'d Document,
    /// By pointer: the definition's name.
    names: HashMap<String, String>,
    taken: HashSet<String>,
    /// Definitions that are referred to and not converted yet, nearest first.
    queue: VecDeque<(String, &'d Value)>,
    /// In the order in which they were met: nearest first.
    definitions: Map<String, Value>,
    /// Beyond this nothing more is converted: it would be dropped again.
    most_bytes: usize,
    /// Schemas that may still be looked at.
    places: usize,
}

impl<'d> Converter<'d> {
    pub(super) fn new(doc: &'d Document, most_bytes: usize) -> Self {
        Self {
            doc,
            names: HashMap::new(),
            taken: HashSet::new(),
            queue: VecDeque::new(),
            definitions: Map::new(),
            most_bytes: most_bytes.saturating_mul(3),
            places: MAX_PLACES,
        }
    }

    /// Any schema.
    pub(super) fn schema(&mut self, schema: &Value) -> Value {
        let hidden = BTreeSet::new();
        self.at(schema, Place { depth: 0, form: None, hidden: &hidden })
    }

    /// A parameter's schema: its `schema`, that of its content, or the parameter itself (2.0).
    pub(super) fn parameter(&mut self, source: &Map<String, Value>) -> Value {
        if self.doc.version() == Version::V2 {
            return self.own_words(source);
        }
        let content = || {
            let media = source.get("content").and_then(Value::as_object)?.values().next()?;
            self.doc.follow(media).ok()?.get("schema")
        };
        match source.get("schema").or_else(content) {
            Some(schema) => self.schema(schema),
            None => json!({}),
        }
    }

    /// A parameter of 2.0 is its own schema, apart from its description.
    fn own_words(&mut self, source: &Map<String, Value>) -> Value {
        let words: Map<String, Value> = source
            .iter()
            .filter(|(key, _)| !matches!(key.as_str(), "description" | "required"))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect();
        self.schema(&Value::Object(words))
    }

    /// The fields of a form of 2.0.
    pub(super) fn fields(&mut self, fields: &[&Map<String, Value>]) -> Value {
        let (mut properties, mut required) = (Map::new(), Vec::new());
        for field in fields {
            let Some(name) = field.get("name").and_then(Value::as_str) else { continue };
            let mut schema = self.own_words(field);
            if let (Some(text), Value::Object(schema)) = (field.get("description"), &mut schema)
                && let Some(text) = keywords::kept("description", text)
            {
                schema.insert("description".to_owned(), text);
            }
            properties.insert(name.to_owned(), schema);
            if truth(field.get("required")) {
                required.push(Value::from(name));
            }
        }
        let mut form = Map::new();
        form.insert("type".to_owned(), "object".into());
        form.insert("properties".to_owned(), Value::Object(properties));
        if !required.is_empty() {
            form.insert("required".to_owned(), Value::Array(required));
        }
        Value::Object(form)
    }

    /// A form's schema. In a multipart form, what is binary is a file.
    pub(super) fn form(&mut self, schema: &Value, files: bool) -> Value {
        if !files {
            return self.schema(schema);
        }
        let kind = self.doc.follow(schema).ok().and_then(|schema| schema.get("type")).and_then(Value::as_str);
        if kind.is_some_and(|kind| kind != "object") {
            // Parts have names: whatever the document means by this, it can only be sent as fields.
            return json!({"type": "object"});
        }
        let hidden = BTreeSet::new();
        self.at(schema, Place { depth: 0, form: Some(0), hidden: &hidden })
    }

    /// What a file is given as.
    pub(super) fn file(&mut self) -> Value {
        if !self.names.contains_key(FILE) {
            let name = self.free_name("File");
            self.names.insert(FILE.to_owned(), name.clone());
            let text = || json!({"type": "string"});
            let file = json!({
                "type": "object",
                "description": "File content: give exactly one of path, base64 or text.",
                "properties": {"path": text(), "base64": text(), "text": text(), "filename": text(), "contentType": text()},
                "additionalProperties": false,
            });
            self.definitions.insert(name, file);
        }
        json!({"$ref": format!("#/$defs/{}", self.names[FILE])})
    }

    /// Whether a schema is that of a text.
    pub(super) fn is_text(&self, schema: &Value) -> bool {
        self.doc.follow(schema).is_ok_and(|schema| schema.get("type").and_then(Value::as_str) == Some("string"))
    }

    /// All definitions that were referred to, and those that they refer to.
    pub(super) fn definitions(mut self) -> Map<String, Value> {
        let mut bytes: usize = self.definitions.values().map(walk::size).sum();
        while let Some((name, schema)) = self.queue.pop_front() {
            let definition = if bytes > self.most_bytes { json!({}) } else { self.schema(schema) };
            bytes += walk::size(&definition) + name.len();
            self.definitions.insert(name, definition);
        }
        self.definitions
    }

    fn free_name(&mut self, wanted: &str) -> String {
        let fine = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') { c } else { '_' };
        let clean: String = wanted.chars().map(fine).take(120).collect();
        let clean = if clean.is_empty() { "Schema".to_owned() } else { clean };
        let mut name = clean.clone();
        let mut count = 2;
        while !self.taken.insert(name.clone()) {
            name = format!("{clean}_{count}");
            count += 1;
        }
        name
    }

    /// A reference into `$defs`, or an open schema with a note.
    fn reference(&mut self, reference: &str) -> Value {
        if let Some(name) = self.names.get(reference) {
            return json!({"$ref": format!("#/$defs/{name}")});
        }
        let doc = self.doc;
        match doc.resolve(reference) {
            Ok(target) => {
                let last = reference.rsplit('/').next().unwrap_or_default().replace("~1", "_").replace("~0", "_");
                let name = self.free_name(&last);
                self.names.insert(reference.to_owned(), name.clone());
                // Its place among the definitions is that of its first mention.
                self.queue.push_back((name.clone(), target));
                json!({"$ref": format!("#/$defs/{name}")})
            }
            Err(_) => json!({"description": format!("unresolved reference {}", crate::document::shown(reference))}),
        }
    }

    fn at(&mut self, schema: &Value, place: Place<'_>) -> Value {
        self.places = self.places.saturating_sub(1);
        let fields = match schema {
            Value::Object(fields) if place.depth <= MAX_INLINE && self.places > 0 => fields,
            Value::Bool(truth) => return Value::Bool(*truth),
            Value::Object(_) | Value::Null | Value::Number(_) | Value::String(_) | Value::Array(_) => return json!({}),
        };
        if place.form.is_some()
            && let Some(form) = self.in_form(schema, place)
        {
            return form;
        }
        if is_file(fields) {
            return self.file();
        }
        let nullable = truth(fields.get("nullable")) || truth(fields.get("x-nullable"));
        match fields.get("$ref").and_then(Value::as_str) {
            Some(reference) => {
                let target = self.reference(reference);
                let (mut out, outside) = self.beside_reference(fields, target, place);
                if nullable {
                    out = json!({"anyOf": [out, {"type": "null"}]});
                }
                add(&mut out, outside);
                out
            }
            None => {
                let mut out = self.keywords(fields, place);
                if nullable {
                    make_nullable(&mut out);
                }
                Value::Object(out)
            }
        }
    }

    /// What stands beside a `$ref`: everything counts from 3.1 on, before that texts do no harm.
    fn beside_reference(
        &mut self,
        fields: &Map<String, Value>,
        target: Value,
        place: Place<'_>,
    ) -> (Value, Map<String, Value>) {
        let mut beside = fields.clone();
        beside.shift_remove("$ref");
        if self.doc.version() < Version::V31 {
            beside.retain(|key, _| key == "description");
        }
        let (mut texts, mut others) = (Map::new(), Map::new());
        for (key, value) in self.keywords(&beside, place) {
            match key.as_str() {
                "description" | "title" | "default" | "examples" | "deprecated" => texts.insert(key, value),
                _ => others.insert(key, value),
            };
        }
        if target.get("$ref").is_none() {
            // The note on what is missing says more than a text.
            texts.shift_remove("description");
        }
        let mut out = target;
        add(&mut out, others);
        (out, texts)
    }

    /// Within a form: references are opened, since files look different here.
    fn in_form(&mut self, schema: &Value, place: Place<'_>) -> Option<Value> {
        let doc = self.doc;
        let target = doc.follow(schema).ok()?;
        let fields = target.as_object()?;
        let described = || schema.get("description").or(target.get("description")).cloned();
        match place.form {
            Some(1) if is_binary(fields) => {
                let mut file = self.file();
                let text = described().and_then(|text| keywords::kept("description", &text));
                if let Some(text) = text {
                    add(&mut file, Map::from_iter([("description".to_owned(), text)]));
                }
                Some(file)
            }
            Some(1) => {
                let items = fields.get("items").and_then(|items| doc.follow(items).ok()).and_then(Value::as_object);
                if !items.is_some_and(is_binary) {
                    // Nothing special in here.
                    return Some(self.at(schema, Place { form: None, ..place }));
                }
                let mut out = self.keywords(fields, Place { form: None, ..place });
                out.insert("items".to_owned(), self.file());
                Some(Value::Object(out))
            }
            Some(_) | None => {
                let reference = schema.get("$ref").is_some();
                (reference && place.depth < 8).then(|| self.at(target, Place { depth: place.depth + 1, ..place }))
            }
        }
    }

    fn keywords(&mut self, fields: &Map<String, Value>, place: Place<'_>) -> Map<String, Value> {
        let mut out = Map::new();
        let (mut hidden, mut branches) = (place.hidden.clone(), MAX_BRANCHES);
        self.read_only(fields, &mut hidden, 0, &mut branches);
        let deeper = Place { depth: place.depth + 1, form: None, hidden: &BTreeSet::new() };
        for (key, value) in fields {
            let keyword = key.as_str();
            match (keyword, value) {
                ("type", value) => match keywords::types(value).as_slice() {
                    [] => {}
                    [one] => drop(out.insert(key.clone(), (*one).into())),
                    many => drop(out.insert(key.clone(), many.into())),
                },
                ("properties", Value::Object(named)) => {
                    let inner = Place { form: place.form.map(|level| level + 1).filter(|level| *level == 1), ..deeper };
                    let properties = named.iter().filter(|(_, schema)| !self.is_read_only(schema));
                    let properties: Vec<_> = properties.collect();
                    let properties =
                        properties.into_iter().map(|(name, schema)| (name.clone(), self.at(schema, inner)));
                    out.insert(key.clone(), Value::Object(properties.collect()));
                }
                ("required", Value::Array(names)) => {
                    let mut kept: Vec<Value> = Vec::with_capacity(names.len());
                    for name in names.iter().filter(|name| name.as_str().is_some_and(|name| !hidden.contains(name))) {
                        if !kept.contains(name) {
                            kept.push(name.clone());
                        }
                    }
                    if !kept.is_empty() {
                        out.insert(key.clone(), Value::Array(kept));
                    }
                }
                ("items", Value::Array(list)) if !list.is_empty() => {
                    let list = list.iter().map(|schema| self.at(schema, deeper)).collect();
                    out.insert("prefixItems".to_owned(), Value::Array(list));
                }
                ("allOf" | "anyOf" | "oneOf", Value::Array(list)) if !list.is_empty() => {
                    let same = keyword == "allOf";
                    let none = BTreeSet::new();
                    let inner = Place {
                        form: place.form.filter(|level| *level == 0),
                        hidden: if same { &hidden } else { &none },
                        ..deeper
                    };
                    let branches: Vec<Value> = list.iter().map(|schema| self.at(schema, inner)).collect();
                    let branches = match fields.get("discriminator").filter(|_| !same) {
                        Some(rule) => discriminator::name_branches(rule, list, branches),
                        None => branches,
                    };
                    out.insert(key.clone(), Value::Array(branches));
                }
                ("enum", value) => {
                    if let Some(choices) = keywords::choices(value) {
                        out.insert(key.clone(), Value::Array(choices));
                    }
                }
                ("example", value)
                    if !fields.contains_key("examples") && walk::fits(value, keywords::MAX_VALUE_BYTES) =>
                {
                    out.insert("examples".to_owned(), Value::Array(vec![value.clone()]));
                }
                // Bounds that are truths in 2.0 and 3.0.
                ("minimum" | "maximum", Value::Number(_)) => {
                    let exclusive = if keyword == "minimum" { "exclusiveMinimum" } else { "exclusiveMaximum" };
                    let name = if truth(fields.get(exclusive)) { exclusive } else { keyword };
                    out.insert(name.to_owned(), value.clone());
                }
                ("prefixItems", Value::Array(list)) if !list.is_empty() => {
                    let list = list.iter().map(|schema| self.at(schema, deeper)).collect();
                    out.insert(key.clone(), Value::Array(list));
                }
                ("patternProperties" | "dependentSchemas", Value::Object(named)) => {
                    let named = named.iter().map(|(name, schema)| (name.clone(), self.at(schema, deeper)));
                    out.insert(key.clone(), Value::Object(named.collect()));
                }
                (_, Value::Object(_) | Value::Bool(_)) if walk::SINGLES.contains(&keyword) => {
                    out.insert(key.clone(), self.at(value, deeper));
                }
                (_, value) => {
                    if let Some(value) = keywords::kept(keyword, value) {
                        out.insert(key.clone(), value);
                    }
                }
            }
        }
        out
    }

    fn is_read_only(&self, schema: &Value) -> bool {
        truth(schema.get("readOnly")) || self.doc.follow(schema).is_ok_and(|schema| truth(schema.get("readOnly")))
    }

    /// Names of read-only properties, here and in what `allOf` adds.
    fn read_only(&self, fields: &Map<String, Value>, names: &mut BTreeSet<String>, depth: usize, left: &mut usize) {
        if depth > MAX_SEARCH || (depth == 0 && !fields.contains_key("required") && !fields.contains_key("allOf")) {
            return;
        }
        if let Some(Value::Object(properties)) = fields.get("properties") {
            names.extend(
                properties.iter().filter(|(_, schema)| self.is_read_only(schema)).map(|(name, _)| name.clone()),
            );
        }
        for branch in fields.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            if *left == 0 {
                return;
            }
            *left -= 1;
            if let Ok(Value::Object(branch)) = self.doc.follow(branch) {
                self.read_only(branch, names, depth + 1, left);
            }
        }
    }
}

fn add(schema: &mut Value, more: Map<String, Value>) {
    if let Value::Object(fields) = schema {
        fields.extend(more);
    }
}

/// `type: file` of 2.0.
fn is_file(fields: &Map<String, Value>) -> bool {
    fields.get("type").and_then(Value::as_str) == Some("file")
}

/// What is sent as a file in a multipart form.
fn is_binary(fields: &Map<String, Value>) -> bool {
    let text = |key: &str| fields.get(key).and_then(Value::as_str);
    let texts = match fields.get("type") {
        Some(Value::Array(types)) => types.iter().any(|word| word == "string"),
        word => word.is_none_or(|word| word == "string"),
    };
    let media =
        text("contentMediaType").is_some_and(|media| !media.starts_with("text/") && !crate::cut::is_json(media));
    is_file(fields) || (texts && (text("format") == Some("binary") || (media && text("contentEncoding").is_none())))
}

/// Null besides what the schema allows.
fn make_nullable(schema: &mut Map<String, Value>) {
    if let Some(Value::Array(choices)) = schema.get_mut("enum")
        && !choices.contains(&Value::Null)
    {
        choices.push(Value::Null);
    }
    if ["allOf", "anyOf", "oneOf", "not", "const"].iter().any(|keyword| schema.contains_key(*keyword)) {
        let mut outside = Map::new();
        for key in ["title", "description", "default"] {
            if let Some(value) = schema.shift_remove(key) {
                outside.insert(key.to_owned(), value);
            }
        }
        let inner = std::mem::take(schema);
        schema.insert("anyOf".to_owned(), json!([inner, {"type": "null"}]));
        schema.extend(outside);
        return;
    }
    match schema.get_mut("type") {
        Some(Value::String(word)) if word != "null" => {
            let both = json!([word.as_str(), "null"]);
            schema.insert("type".to_owned(), both);
        }
        Some(Value::Array(words)) if !words.iter().any(|word| word == "null") => words.push("null".into()),
        Some(_) | None => {}
    }
}

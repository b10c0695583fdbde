//! Arguments as models write them: `"true"` and `"3"` become `true` and `3` where the schema can only mean that.
//!
//! Only what the schema refuses as it stands is changed, so a value that is valid never changes. Everything is followed that must hold anyway (`properties`,
//! `items`, `$ref` within the schema, the only branch that fits); where text is allowed, or the schema says nothing, the value stays.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Nesting that is followed; also the end of schemas that contain themselves.
const MAX_DEPTH: usize = 12;
/// Places of one schema: far above any tool's, and an end for schemas that fan out.
const MAX_PLACES: usize = 4_000;

const NULL: u8 = 1;
const BOOL: u8 = 2;
const INTEGER: u8 = 4;
/// Numbers that are no integers.
const FRACTION: u8 = 8;
const STRING: u8 = 16;
const ARRAY: u8 = 32;
const OBJECT: u8 = 64;
const ALL: u8 = 127;

/// What can be coerced below one schema, prepared once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coercion(Place);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Place {
    /// What a text may become; zero: it stays.
    text_becomes: u8,
    properties: BTreeMap<String, Place>,
    /// Keys that `properties` does not name.
    others: Option<Box<Place>>,
    items: Option<Box<Place>>,
}

impl Place {
    fn is_idle(&self) -> bool {
        self.text_becomes == 0 && self.properties.is_empty() && self.others.is_none() && self.items.is_none()
    }
}

impl Coercion {
    /// Prepares a schema. None: nothing in it is ever coerced.
    pub fn of(schema: &Value) -> Option<Self> {
        let mut reader = Reader { root: schema, places: 0 };
        let place = reader.place(schema, MAX_DEPTH);
        (!place.is_idle()).then_some(Self(place))
    }

    /// Coerces in place. False: nothing changed.
    pub fn apply(&self, value: &mut Value) -> bool {
        apply(&self.0, value)
    }
}

fn apply(place: &Place, value: &mut Value) -> bool {
    match value {
        Value::String(text) => match read(text, place.text_becomes) {
            Some(better) => {
                *value = better;
                true
            }
            None => false,
        },
        Value::Array(items) => {
            let Some(place) = &place.items else { return false };
            items.iter_mut().fold(false, |changed, item| apply(place, item) | changed)
        }
        Value::Object(fields) => fields.iter_mut().fold(false, |changed, (key, field)| {
            let place = place.properties.get(key).or(place.others.as_deref());
            place.is_some_and(|place| apply(place, field)) | changed
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The one value that a text can mean, of the kinds that are wanted.
fn read(text: &str, wanted: u8) -> Option<Value> {
    if wanted == 0 {
        return None;
    }
    match text {
        "true" if wanted & BOOL != 0 => return Some(Value::Bool(true)),
        "false" if wanted & BOOL != 0 => return Some(Value::Bool(false)),
        _ => {}
    }
    if wanted & (INTEGER | FRACTION) == 0 || !text.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
        return None;
    }
    // JSON's own grammar: no blanks, no leading zeros, no plus. What a double would round stays text.
    let number: serde_json::Number = serde_json::from_str(text).ok()?;
    if number.is_f64() {
        let fits = wanted & FRACTION != 0 && text.bytes().filter(u8::is_ascii_digit).count() <= 15;
        return fits.then_some(Value::Number(number));
    }
    (text != "-0").then_some(Value::Number(number))
}

struct Reader<'a> {
    root: &'a Value,
    places: usize,
}

impl<'a> Reader<'a> {
    fn place(&mut self, schema: &'a Value, depth: usize) -> Place {
        self.places += 1;
        let mut place = Place::default();
        if depth == 0 || self.places > MAX_PLACES {
            return place;
        }
        let kinds = self.kinds(schema, depth);
        if kinds & STRING == 0 {
            place.text_becomes = kinds & (BOOL | INTEGER | FRACTION);
        }
        if kinds & OBJECT != 0
            && let Some(object) = self.view(schema, OBJECT, depth)
        {
            self.fields(object, &mut place, depth);
        }
        if kinds & ARRAY != 0
            && let Some(array) = self.view(schema, ARRAY, depth)
            // Beside a tuple, drafts disagree on what `items` means.
            && !array.contains_key("prefixItems")
            && let Some(items @ Value::Object(_)) = array.get("items")
        {
            let items = self.place(items, depth - 1);
            place.items = (!items.is_idle()).then(|| Box::new(items));
        }
        place
    }

    fn fields(&mut self, object: &'a Map<String, Value>, place: &mut Place, depth: usize) {
        let properties = object.get("properties").and_then(Value::as_object);
        let mut all_idle = true;
        for (key, schema) in properties.into_iter().flatten() {
            let field = self.place(schema, depth - 1);
            all_idle &= field.is_idle();
            place.properties.insert(key.clone(), field);
        }
        if !object.contains_key("patternProperties")
            && let Some(schema @ Value::Object(_)) = object.get("additionalProperties")
        {
            let others = self.place(schema, depth - 1);
            place.others = (!others.is_idle()).then(|| Box::new(others));
        }
        if all_idle && place.others.is_none() {
            place.properties.clear();
        }
    }

    /// The schema that says what an object (or array) holds: this one, what it refers to, or the only branch that allows such a thing.
    fn view(&self, schema: &'a Value, kind: u8, depth: usize) -> Option<&'a Map<String, Value>> {
        let map = schema.as_object()?;
        let depth = depth.checked_sub(1)?;
        if let Some(reference) = map.get("$ref") {
            return self.view(self.target(reference)?, kind, depth);
        }
        let said = if kind == OBJECT { ["properties", "additionalProperties"] } else { ["items", "prefixItems"] };
        if said.iter().any(|key| map.contains_key(*key)) {
            return Some(map);
        }
        let branches = map.get("anyOf").or_else(|| map.get("oneOf")).and_then(Value::as_array)?;
        let mut fitting = branches.iter().filter(|branch| self.kinds(branch, depth) & kind != 0);
        let only = fitting.next()?;
        if fitting.next().is_some() { None } else { self.view(only, kind, depth) }
    }

    /// What a value may be at most.
    fn kinds(&self, schema: &Value, depth: usize) -> u8 {
        let Some(map) = schema.as_object() else { return ALL };
        let Some(depth) = depth.checked_sub(1) else { return ALL };
        if let Some(reference) = map.get("$ref") {
            // In older drafts what stands beside it does not count.
            return self.target(reference).map_or(ALL, |schema| self.kinds(schema, depth));
        }
        let mut kinds = match map.get("type") {
            Some(Value::String(word)) => kind(word),
            Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).fold(0, |all, word| all | kind(word)),
            _ => ALL,
        };
        for key in ["anyOf", "oneOf"] {
            if let Some(branches) = map.get(key).and_then(Value::as_array) {
                kinds &= branches.iter().fold(0, |all, branch| all | self.kinds(branch, depth));
            }
        }
        for branch in map.get("allOf").and_then(Value::as_array).into_iter().flatten() {
            kinds &= self.kinds(branch, depth);
        }
        kinds
    }

    fn target(&self, reference: &Value) -> Option<&'a Value> {
        match reference.as_str()?.strip_prefix('#')? {
            "" => Some(self.root),
            pointer => self.root.pointer(pointer),
        }
    }
}

fn kind(word: &str) -> u8 {
    match word {
        "null" => NULL,
        "boolean" => BOOL,
        "integer" => INTEGER,
        "number" => INTEGER | FRACTION,
        "string" => STRING,
        "array" => ARRAY,
        "object" => OBJECT,
        _ => ALL,
    }
}

#[cfg(test)]
mod tests;

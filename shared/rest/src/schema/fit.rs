//! A schema within its budget: examples go first, then texts that lie deep, then the definitions that are farthest away.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use super::walk::{all, depth, size, within};

/// Texts of arguments and of what lies directly in them stay the longest.
const NEAR: usize = 2;
/// Nesting that is kept when even the arguments themselves are too large, step by step.
const DEPTHS: [usize; 7] = [12, 8, 6, 4, 3, 2, 1];
/// Schemas within schemas: most of them are two levels of JSON deep.
const MAX_DEPTH: usize = 36;
/// Readers of JSON go 128 levels down, and what a schema lies in has some, too.
const MAX_JSON_DEPTH: usize = 100;
/// A schema of fewer bytes is not worth opening, unless nothing else is left.
const SMALL: usize = 40;

/// Puts schema and definitions together; what is too large loses its details and stays open.
pub(super) fn fit(schema: Map<String, Value>, definitions: Map<String, Value>, most: usize) -> Value {
    let mut root = Value::Object(schema);
    let mut definitions = definitions;
    if total(&root, &definitions) > most {
        shrink(&mut root, &mut definitions, most);
    }
    if let (Value::Object(fields), false) = (&mut root, definitions.is_empty()) {
        fields.insert("$defs".to_owned(), Value::Object(definitions));
    }
    root
}

fn total(root: &Value, definitions: &Map<String, Value>) -> usize {
    size(root) + if definitions.is_empty() { 0 } else { 10 + entries(definitions) }
}

fn entries(definitions: &Map<String, Value>) -> usize {
    definitions.iter().map(|(name, definition)| name.len() + 4 + size(definition)).sum()
}

fn shrink(root: &mut Value, definitions: &mut Map<String, Value>, most: usize) {
    drop_keyword(root, definitions, "examples", 0);
    if total(root, definitions) <= most {
        return;
    }
    drop_keyword(root, definitions, "description", NEAR);
    if total(root, definitions) <= most {
        return;
    }
    drop_keyword(root, definitions, "title", 0);
    let room = most.saturating_sub(size(root) + 10);
    let mut near = Vec::new();
    references(root, &mut near);
    drop_definitions(definitions, room, |name| !near.iter().any(|near| near == name));
    drop_unreachable(root, definitions);
    // What the arguments themselves are made of loses its depths before it is lost as a whole.
    for depth in DEPTHS {
        if total(root, definitions) <= most {
            return;
        }
        for (_, definition) in definitions.iter_mut().filter(|(name, _)| near.iter().any(|near| near == *name)) {
            open_at(definition, depth);
        }
        drop_unreachable(root, definitions);
    }
    drop_definitions(definitions, room, |_| true);
    drop_unreachable(root, definitions);
    for depth in DEPTHS {
        if total(root, definitions) <= most {
            return;
        }
        open_at(root, depth);
        drop_unreachable(root, definitions);
    }
}

/// Opens what lies so deep.
fn open_at(schema: &mut Value, depth: usize) {
    all(schema, 0, &mut |schema, at| {
        if at == depth && schema.is_object() && (size(schema) > SMALL || depth == 1) {
            *schema = json!({});
        }
    });
}

/// A schema without its depths, so that it has room; none if it has not even then.
pub(super) fn opened(schema: &Value, room: usize) -> Option<Value> {
    DEPTHS.into_iter().find_map(|depth| {
        let mut schema = schema.clone();
        open_at(&mut schema, depth);
        (size(&schema) <= room).then_some(schema)
    })
}

/// Opens what lies so deep that readers of JSON give up on it.
pub(super) fn not_too_deep(mut schema: Value) -> Value {
    open_at(&mut schema, MAX_DEPTH);
    if depth(&schema) > MAX_JSON_DEPTH {
        // Values within schemas, as of `enum`, can be deep, too.
        open_at(&mut schema, 1);
    }
    schema
}

/// Removes a keyword in all definitions, and in the arguments from a depth on.
fn drop_keyword(root: &mut Value, definitions: &mut Map<String, Value>, keyword: &str, depth: usize) {
    let mut drop_it = |schema: &mut Value, at: usize| {
        if let Value::Object(fields) = schema
            && at >= depth
        {
            fields.shift_remove(keyword);
        }
    };
    all(root, 0, &mut drop_it);
    for definition in definitions.values_mut() {
        all(definition, depth + 1, &mut drop_it);
    }
}

/// Opens definitions from the farthest on until the rest has room.
fn drop_definitions(definitions: &mut Map<String, Value>, room: usize, may_go: impl Fn(&str) -> bool) {
    let mut bytes = entries(definitions);
    let names: Vec<String> = definitions.keys().rev().filter(|name| may_go(name)).cloned().collect();
    for name in names {
        if bytes <= room {
            break;
        }
        if let Some(definition) = definitions.get_mut(&name) {
            let was = size(definition);
            *definition = json!({});
            bytes = bytes - was + size(definition);
        }
    }
}

/// Definitions that nothing refers to any more go; references to what is open anyway say that instead.
fn drop_unreachable(root: &mut Value, definitions: &mut Map<String, Value>) {
    let open: BTreeSet<String> = definitions
        .iter()
        .filter(|(_, definition)| definition.as_object().is_some_and(Map::is_empty))
        .map(|(name, _)| name.clone())
        .collect();
    let mut replace = |schema: &mut Value, _: usize| {
        if let Some(name) = referred(schema)
            && open.contains(name)
            && let Value::Object(fields) = schema
        {
            fields.shift_remove("$ref");
        }
    };
    all(root, 0, &mut replace);
    definitions.values_mut().for_each(|definition| all(definition, 0, &mut replace));
    let mut reached: BTreeSet<String> = BTreeSet::new();
    let mut next: Vec<String> = Vec::new();
    references(root, &mut next);
    while let Some(name) = next.pop() {
        if reached.insert(name.clone())
            && let Some(definition) = definitions.get_mut(&name)
        {
            references(definition, &mut next);
        }
    }
    definitions.retain(|name, _| reached.contains(name));
}

fn references(schema: &mut Value, names: &mut Vec<String>) {
    names.extend(referred(schema).map(str::to_owned));
    within(schema, &mut |inner| references(inner, names));
}

/// The definition that a schema refers to.
pub(super) fn referred(schema: &Value) -> Option<&str> {
    schema.get("$ref")?.as_str()?.strip_prefix("#/$defs/")
}

//! Documents in several files: each file goes under `x-files` of the main one, and references are turned to point there.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Where other files are put.
const FILES: &str = "x-files";
/// Files of one document: more is a repository.
const MAX_FILES: usize = 256;

/// Puts the files in.
pub(super) fn bundle(mut root: Value, files: Vec<(String, Value)>) -> Value {
    if files.is_empty() {
        return root;
    }
    let known: BTreeSet<String> = files.iter().map(|(path, _)| path.clone()).collect();
    turn(&mut root, "", &known);
    let mut inside = Map::new();
    for (path, mut file) in files {
        turn(&mut file, &path, &known);
        inside.insert(path, file);
    }
    if let Value::Object(fields) = &mut root {
        fields.insert(FILES.to_owned(), Value::Object(inside));
    }
    root
}

/// Paths that are referred to and not there.
pub(super) fn missing(root: &Value, files: &[(String, Value)]) -> Vec<String> {
    let mut wanted = BTreeSet::new();
    collect(root, "", &mut wanted);
    for (path, file) in files {
        collect(file, path, &mut wanted);
    }
    wanted.retain(|path| !files.iter().any(|(known, _)| known == path));
    wanted.into_iter().take(MAX_FILES.saturating_sub(files.len())).collect()
}

fn collect(value: &Value, from: &str, wanted: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if let Some((path, _)) = fields.get("$ref").and_then(Value::as_str).and_then(|text| target(text, from)) {
                wanted.insert(path);
            }
            fields.values().for_each(|value| collect(value, from, wanted));
        }
        Value::Array(items) => items.iter().for_each(|value| collect(value, from, wanted)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn turn(value: &mut Value, from: &str, known: &BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(text)) = fields.get_mut("$ref") {
                if let Some(pointer) = text.strip_prefix('#') {
                    if !from.is_empty() {
                        *text = place(from, pointer);
                    }
                } else if let Some((path, pointer)) = target(text, from).filter(|(path, _)| known.contains(path)) {
                    *text = place(&path, &pointer);
                }
            }
            fields.values_mut().for_each(|value| turn(value, from, known));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| turn(value, from, known)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn place(path: &str, pointer: &str) -> String {
    format!("#/{FILES}/{}{pointer}", path.replace('~', "~0").replace('/', "~1").replace('%', "%25"))
}

/// `./other.yaml#/a` seen from a file: the file's path below the document's folder, and the pointer.
fn target(reference: &str, from: &str) -> Option<(String, String)> {
    let (path, pointer) = reference.split_once('#').unwrap_or((reference, ""));
    if path.is_empty() || path.contains(':') || path.starts_with(['/', '\\']) || path.contains(['\\', '?', '%']) {
        return None;
    }
    let mut parts: Vec<&str> = from.rsplit_once('/').map(|(folder, _)| folder.split('/').collect()).unwrap_or_default();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            // Above the document's folder nothing is read.
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    (!parts.is_empty()).then(|| (parts.join("/"), pointer.to_owned()))
}

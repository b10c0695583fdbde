//! Operations by words.

use std::cmp::Reverse;

use serde_json::{Value, json};

use crate::api::Api;
use crate::operation::Operation;
use crate::text;

/// Results of one search: a model has to read them.
pub(super) const MAX_FOUND: usize = 50;
/// Where nothing is said.
const USUAL_FOUND: usize = 20;
/// Words of one search.
const MAX_WORDS: usize = 16;
/// Characters of an operation's description in a list.
const MAX_CHARS: usize = 160;

/// `{total, operations: [{name, operation, description, required}]}`, best first. A word counts most in the name, then in path and
/// tags, then in the description; operations that hold more of the words come first.
pub(super) fn search(api: &Api, arguments: &Value) -> Value {
    let word = |key: &str| arguments.get(key).and_then(Value::as_str).unwrap_or_default().trim().to_lowercase();
    let number = |key: &str| arguments.get(key).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
    let (tag, method, query) = (word("tag"), word("method"), word("query"));
    let split = |c: char| !c.is_alphanumeric();
    let words: Vec<&str> = query.split(split).filter(|word| !word.is_empty()).take(MAX_WORDS).collect();
    let mut found: Vec<(Reverse<usize>, usize, &Operation)> = api
        .operations()
        .iter()
        .filter(|op| tag.is_empty() || op.tags.iter().any(|known| known.to_lowercase() == tag))
        .filter(|op| method.is_empty() || op.method.eq_ignore_ascii_case(&method))
        .enumerate()
        .map(|(at, op)| (Reverse(score(op, &words)), at, op))
        .filter(|(score, ..)| words.is_empty() || score.0 > 0)
        .collect();
    found.sort_by_key(|(score, at, _)| (*score, *at));
    let limit = number("limit").unwrap_or(USUAL_FOUND).min(MAX_FOUND);
    let page = found.iter().skip(number("offset").unwrap_or(0)).take(limit);
    let shown: Vec<Value> = page.map(|(_, _, operation)| line(operation)).collect();
    json!({"total": found.len(), "operations": shown})
}

fn line(operation: &Operation) -> Value {
    let first = operation.description.lines().next().unwrap_or_default();
    let parameters = operation.parameters.iter().filter(|p| p.required).map(|p| p.argument.as_str());
    let body = operation.body.iter().filter(|body| body.required).map(|body| body.argument.as_str());
    json!({
        "name": operation.sub_tool(),
        "operation": operation.title(),
        "description": text::clean(first, MAX_CHARS),
        "required": parameters.chain(body).collect::<Vec<_>>(),
    })
}

fn score(operation: &Operation, words: &[&str]) -> usize {
    let name = operation.sub_tool().to_lowercase();
    let places = format!("{} {}", operation.path, operation.tags.join(" ")).to_lowercase();
    let said = operation.description.to_lowercase();
    let worth = |word: &&str| {
        // `issues` finds `issue`, too.
        let stem = if word.len() > 3 { word.strip_suffix('s').unwrap_or(word) } else { word };
        let within = |text: &str| usize::from(text.contains(stem));
        6 * within(&name) + 4 * within(&places) + 2 * within(&said)
    };
    let each: Vec<usize> = words.iter().map(worth).collect();
    let held = each.iter().filter(|worth| **worth > 0).count();
    each.iter().sum::<usize>() + 20 * held
}

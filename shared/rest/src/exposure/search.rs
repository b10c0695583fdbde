//! Operations by words.

use std::cmp::Reverse;

use serde_json::{Value, json};

use crate::api::Api;
use crate::operation::Operation;
use crate::text;

mod words;

/// Results of one search: a model has to read them.
pub(super) const MAX_FOUND: usize = 50;
/// Where nothing is said.
const USUAL_FOUND: usize = 20;
/// Words of one search.
const MAX_WORDS: usize = 16;
/// Characters of an operation's description in a list.
const MAX_CHARS: usize = 160;

/// `{total, operations: [{name, operation, description, required}]}`, best first: what is asked for word by word, then what holds more of the words. A
/// word counts most in the name, then in the first line, in path and tags, then in the rest of the description.
pub(super) fn search(api: &Api, arguments: &Value) -> Value {
    let word = |key: &str| arguments.get(key).and_then(Value::as_str).unwrap_or_default().trim().to_lowercase();
    let number = |key: &str| arguments.get(key).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
    let (tag, method) = (word("tag"), word("method"));
    let query = arguments.get("query").and_then(Value::as_str).unwrap_or_default();
    let words = words::asked(query, MAX_WORDS);
    let mut found: Vec<(Reverse<Rank>, usize, &Operation)> = api
        .operations()
        .iter()
        .filter(|op| tag.is_empty() || op.tags.iter().any(|known| known.to_lowercase() == tag))
        .filter(|op| method.is_empty() || op.method.eq_ignore_ascii_case(&method))
        .enumerate()
        .map(|(at, op)| (Reverse(rank(op, &words)), at, op))
        .filter(|(rank, ..)| words.is_empty() || rank.0.held > 0)
        .collect();
    found.sort_by_key(|(rank, at, _)| (*rank, *at));
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

/// How well an operation fits, compared from top to bottom.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// The words are its name or its first line, or one piece of it.
    phrase: u8,
    /// So many of the words occur.
    held: usize,
    score: usize,
    /// Of two that hold the same, the one that says less else.
    brief: Reverse<usize>,
}

fn rank(operation: &Operation, asked: &[String]) -> Rank {
    let (first, rest) = operation.description.split_once('\n').unwrap_or((&operation.description, ""));
    let (name, first) = (words::of(operation.sub_tool()), words::of(first));
    let places = words::of(&format!("{} {}", operation.path, operation.tags.join(" ")));
    let rest = words::of(rest);
    let worth = |word: &String| {
        let within = |text: &[String], most: usize| {
            let best = text.iter().map(|known| words::fit(word, known)).max().unwrap_or_default();
            most * best
        };
        within(&name, 6) + within(&first, 4) + within(&places, 3) + within(&rest, 1)
    };
    let each: Vec<usize> = asked.iter().map(worth).collect();
    let phrase = [&name, &first].into_iter().map(|text| words::phrase(asked, text)).max().unwrap_or_default();
    Rank {
        phrase,
        held: each.iter().filter(|worth| **worth > 0).count(),
        score: each.iter().sum(),
        brief: Reverse(first.len() + name.len()),
    }
}

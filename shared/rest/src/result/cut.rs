//! JSON that is too long loses items, ends of texts, fields and depths, in this order, and stays JSON that says what is missing.

use serde_json::{Map, Value};

/// What is kept of each value, step by step: texts, fields, depth. Items are searched for within each step.
const STEPS: [(usize, usize, usize); 8] = [
    (usize::MAX, usize::MAX, usize::MAX),
    (4000, usize::MAX, usize::MAX),
    (1000, 400, usize::MAX),
    (300, 200, 12),
    (120, 100, 8),
    (60, 40, 5),
    (30, 20, 3),
    (16, 8, 2),
];
/// With as many items a list still shows what it is a list of.
const ENOUGH_ITEMS: usize = 3;

#[derive(Debug, Clone, Copy)]
struct Keep {
    items: usize,
    chars: usize,
    fields: usize,
    depth: usize,
}

/// The value's text in at most `max_bytes`, and whether something is missing.
pub(super) fn within(value: &Value, max_bytes: usize) -> (String, bool) {
    let longest = longest_list(value);
    let mut best: Option<Keep> = None;
    for (chars, fields, depth) in STEPS {
        let keep = |items: usize| Keep { items, chars, fields, depth };
        if !fits(value, keep(0), max_bytes) {
            continue;
        }
        let mut items = most(longest, |items| fits(value, keep(items), max_bytes));
        while items > 0 && !fits(value, keep(items), max_bytes) {
            items -= 1;
        }
        if best.is_none_or(|best| items > best.items) {
            best = Some(keep(items));
        }
        if items >= ENOUGH_ITEMS.min(longest) {
            break;
        }
    }
    match best {
        Some(keep) => {
            let cut = cut(value, keep, 0);
            let missing = cut != *value;
            (cut.to_string(), missing)
        }
        None => ("\"…\"".to_owned(), true),
    }
}

/// The largest number up to `end` for which something holds, if it holds for all below it.
fn most(end: usize, holds: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, end);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if holds(middle) { low = middle } else { high = middle - 1 }
    }
    low
}

fn longest_list(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(longest_list).max().unwrap_or(0).max(items.len()),
        Value::Object(fields) => fields.values().map(longest_list).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn fits(value: &Value, keep: Keep, max_bytes: usize) -> bool {
    let mut left = max_bytes;
    take(value, keep, 0, &mut left).is_some()
}

/// Takes a value's bytes after cutting from what is left; none as soon as it does not suffice.
fn take(value: &Value, keep: Keep, depth: usize, left: &mut usize) -> Option<()> {
    match value {
        Value::Null => spend(left, 4),
        Value::Bool(truth) => spend(left, 5 - usize::from(*truth)),
        Value::Number(number) => spend(left, number.to_string().len()),
        Value::String(text) => match short(text, keep.chars) {
            Some(short) => spend(left, quoted(&short)),
            None => spend(left, quoted(text)),
        },
        Value::Array(items) if depth >= keep.depth => spend(left, quoted(&many(items.len(), "items"))),
        Value::Object(fields) if depth >= keep.depth => spend(left, quoted(&many(fields.len(), "fields"))),
        Value::Array(items) => {
            spend(left, 2 + items.len().min(keep.items + 1).saturating_sub(1))?;
            items.iter().take(keep.items).try_for_each(|item| take(item, keep, depth + 1, left))?;
            if items.len() > keep.items {
                spend(left, quoted(&more(items.len() - keep.items, "items")))
            } else {
                Some(())
            }
        }
        Value::Object(fields) => {
            spend(left, 2 + fields.len().min(keep.fields.saturating_add(1)).saturating_sub(1))?;
            for (key, value) in fields.iter().take(keep.fields) {
                spend(left, quoted(key) + 1)?;
                take(value, keep, depth + 1, left)?;
            }
            match fields.len().checked_sub(keep.fields) {
                Some(missing @ 1..) => spend(left, quoted("…") + 1 + quoted(&count(missing, "fields"))),
                Some(0) | None => Some(()),
            }
        }
    }
}

fn spend(left: &mut usize, bytes: usize) -> Option<()> {
    *left = left.checked_sub(bytes)?;
    Some(())
}

fn cut(value: &Value, keep: Keep, depth: usize) -> Value {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        Value::String(text) => short(text, keep.chars).map_or_else(|| value.clone(), Value::String),
        Value::Array(items) if depth >= keep.depth => many(items.len(), "items").into(),
        Value::Object(fields) if depth >= keep.depth => many(fields.len(), "fields").into(),
        Value::Array(items) => {
            let mut kept: Vec<Value> = items.iter().take(keep.items).map(|item| cut(item, keep, depth + 1)).collect();
            if items.len() > keep.items {
                kept.push(more(items.len() - keep.items, "items").into());
            }
            Value::Array(kept)
        }
        Value::Object(fields) => {
            let kept = fields.iter().take(keep.fields);
            let mut kept: Map<String, Value> = kept.map(|(key, v)| (key.clone(), cut(v, keep, depth + 1))).collect();
            if fields.len() > keep.fields {
                kept.insert("…".to_owned(), count(fields.len() - keep.fields, "fields").into());
            }
            Value::Object(kept)
        }
    }
}

fn short(text: &str, chars: usize) -> Option<String> {
    let (end, _) = text.char_indices().nth(chars)?;
    let rest = text[end..].chars().count();
    // A note that is longer than what it replaces helps nobody.
    (rest > 30).then(|| format!("{}… {rest} more characters", &text[..end]))
}

fn more(number: usize, what: &str) -> String {
    format!("… {}", count(number, what))
}

fn count(number: usize, what: &str) -> String {
    format!("{number} more {what}")
}

fn many(number: usize, what: &str) -> String {
    format!("… {number} {what}")
}

/// Bytes of a text as JSON.
fn quoted(text: &str) -> usize {
    2 + text
        .bytes()
        .map(|b| match b {
            b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
            0..0x20 => 6,
            _ => 1,
        })
        .sum::<usize>()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn items_go_first_then_texts_then_fields() {
        let list = json!({"items": (0..30).map(|n| format!("i{n}")).collect::<Vec<_>>(), "total": 30});
        assert_eq!(within(&list, 60).0, "{\"items\":[\"i0\",\"i1\",\"i2\",\"… 27 more items\"],\"total\":30}");
        let texts = json!([{"t": "x".repeat(5000)}, {"t": "y".repeat(5000)}, {"t": "z".repeat(5000)}, {"t": "z"}]);
        let (text, missing) = within(&texts, 6000);
        assert!(missing && text.len() <= 6000, "{}", text.len());
        let kept: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(kept.as_array().map(Vec::len), Some(4), "texts were cut, no item is missing: {text}");
        let wide: Value = (0..1000).map(|n| (format!("k{n}"), Value::from(n))).collect::<Map<_, _>>().into();
        let (text, _) = within(&wide, 4000);
        assert!(text.contains("\"…\":\"") && text.contains("more fields"), "{text}");
        assert_eq!(within(&json!("x".repeat(100)), 5), ("\"…\"".to_owned(), true));
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,80}".prop_map(Value::from),
        ];
        leaf.prop_recursive(5, 200, 12, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..12).prop_map(Value::from),
                prop::collection::vec((".{0,8}", inner), 0..8).prop_map(|pairs| pairs.into_iter().collect::<Value>()),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_cut_is_json_within_its_limit(value in value(), max in 8usize..2000) {
            let (text, missing) = within(&value, max);
            prop_assert!(text.len() <= max, "{} > {max}", text.len());
            let back: Value = serde_json::from_str(&text).unwrap();
            if !missing {
                prop_assert_eq!(back, value);
            }
        }
    }
}

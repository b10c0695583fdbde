//! JSON that is too long loses items, ends of texts, fields and depths, in this order, and stays JSON that says what is missing.

use super::tree::Tree;

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
pub(super) fn within(value: &Tree<'_>, max_bytes: usize) -> (String, bool) {
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
            let mut text = String::with_capacity(max_bytes.min(64 * 1024));
            let missing = write(value, keep, 0, &mut text);
            (text, missing)
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

fn longest_list(value: &Tree<'_>) -> usize {
    match value {
        Tree::List(items, _) => items.iter().map(longest_list).max().unwrap_or(0).max(items.len()),
        Tree::Fields(fields, _) => fields.iter().map(|(_, value)| longest_list(value)).max().unwrap_or(0),
        Tree::Leaf(_) | Tree::Text(..) => 0,
    }
}

fn fits(value: &Tree<'_>, keep: Keep, max_bytes: usize) -> bool {
    let mut left = max_bytes;
    take(value, keep, 0, &mut left).is_some()
}

/// Takes a value's bytes after cutting from what is left; none as soon as it does not suffice. As [`write`] writes it.
fn take(value: &Tree<'_>, keep: Keep, depth: usize, left: &mut usize) -> Option<()> {
    match value {
        Tree::Leaf(text) => spend(left, text.len()),
        Tree::Text(text, rest) => match short(text, *rest, keep.chars) {
            Some(short) => spend(left, quoted(&short)),
            None => spend(left, quoted(text)),
        },
        Tree::List(items, more) if depth >= keep.depth => spend(left, quoted(&many(items.len() + more, "items"))),
        Tree::Fields(fields, more) if depth >= keep.depth => spend(left, quoted(&many(fields.len() + more, "fields"))),
        Tree::List(items, unread) => {
            let (shown, missing) = split(items.len(), *unread, keep.items);
            spend(left, 2 + (shown + usize::from(missing > 0)).saturating_sub(1))?;
            items.iter().take(shown).try_for_each(|item| take(item, keep, depth + 1, left))?;
            if missing > 0 { spend(left, quoted(&more(missing, "items"))) } else { Some(()) }
        }
        Tree::Fields(fields, unread) => {
            let (shown, missing) = split(fields.len(), *unread, keep.fields);
            spend(left, 2 + (shown + usize::from(missing > 0)).saturating_sub(1))?;
            for (key, value) in fields.iter().take(shown) {
                spend(left, quoted(key) + 1)?;
                take(value, keep, depth + 1, left)?;
            }
            if missing > 0 { spend(left, quoted("…") + 1 + quoted(&count(missing, "fields"))) } else { Some(()) }
        }
    }
}

/// Of so many that were read and so many that were not: how many are shown, and how many are missing then.
fn split(read: usize, unread: usize, keep: usize) -> (usize, usize) {
    let shown = read.min(keep);
    (shown, read - shown + unread)
}

fn spend(left: &mut usize, bytes: usize) -> Option<()> {
    *left = left.checked_sub(bytes)?;
    Some(())
}

/// Writes what is left of a value; says whether something is missing.
fn write(value: &Tree<'_>, keep: Keep, depth: usize, out: &mut String) -> bool {
    match value {
        Tree::Leaf(text) => {
            out.push_str(text);
            false
        }
        Tree::Text(text, rest) => match short(text, *rest, keep.chars) {
            Some(short) => note(&short, out),
            None => {
                note(text, out);
                false
            }
        },
        Tree::List(items, more) if depth >= keep.depth => note(&many(items.len() + more, "items"), out),
        Tree::Fields(fields, more) if depth >= keep.depth => note(&many(fields.len() + more, "fields"), out),
        Tree::List(items, unread) => {
            let (shown, missing) = split(items.len(), *unread, keep.items);
            let mut cut = missing > 0;
            out.push('[');
            for (at, item) in items.iter().take(shown).enumerate() {
                if at > 0 {
                    out.push(',');
                }
                cut |= write(item, keep, depth + 1, out);
            }
            if missing > 0 {
                if shown > 0 {
                    out.push(',');
                }
                note(&more(missing, "items"), out);
            }
            out.push(']');
            cut
        }
        Tree::Fields(fields, unread) => {
            let (shown, missing) = split(fields.len(), *unread, keep.fields);
            let mut cut = missing > 0;
            out.push('{');
            for (at, (key, value)) in fields.iter().take(shown).enumerate() {
                if at > 0 {
                    out.push(',');
                }
                note(key, out);
                out.push(':');
                cut |= write(value, keep, depth + 1, out);
            }
            if missing > 0 {
                if shown > 0 {
                    out.push(',');
                }
                note("…", out);
                out.push(':');
                note(&count(missing, "fields"), out);
            }
            out.push('}');
            cut
        }
    }
}

/// Writes a text in quotes; what stands for something else is missing then.
fn note(text: &str, out: &mut String) -> bool {
    out.push_str(&serde_json::Value::from(text).to_string());
    true
}

/// A text that is cut, with `unread` characters behind what is there of it.
fn short(text: &str, unread: usize, chars: usize) -> Option<String> {
    let end = match text.char_indices().nth(chars) {
        Some((end, _)) => end,
        None if unread > 0 => text.len(),
        None => return None,
    };
    let rest = text[end..].chars().count() + unread;
    // A note that is longer than what it replaces helps nobody.
    (rest > 30 || unread > 0).then(|| format!("{}… {rest} more characters", &text[..end]))
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
    use serde_json::{Map, Value, json};

    use super::*;

    fn within(value: &Value, max_bytes: usize) -> (String, bool) {
        let text = value.to_string();
        super::within(&Tree::parse(&text, max_bytes).unwrap(), max_bytes)
    }

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

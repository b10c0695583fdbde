//! Arguments that fit a schema, as far as a simple mind can make them up.

use std::cell::Cell;

use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;
use serde_json::{Map, Number, Value, json};

/// Deepest nesting that is made up.
const MAX_DEPTH: usize = 8;
/// Values of one call.
const MAX_VALUES: usize = 3000;
/// Longest pattern and longest text that are made up.
const MAX_TEXT: usize = 2000;

/// Arguments for a tool. Attempts differ: 0 takes examples, 1 ignores them, 2 takes the last branch instead of the first, 3 gives everything.
pub(crate) fn arguments(schema: &Value, attempt: usize) -> Value {
    Maker { root: schema, attempt, left: Cell::new(MAX_VALUES) }.value(schema, 0)
}

struct Maker<'a> {
    root: &'a Value,
    attempt: usize,
    left: Cell<usize>,
}

impl Maker<'_> {
    fn value(&self, schema: &Value, depth: usize) -> Value {
        let Value::Object(fields) = schema else { return json!("x") };
        self.left.set(self.left.get().saturating_sub(1));
        if self.left.get() == 0 {
            return json!("x");
        }
        if let Some(value) = fields.get("const") {
            return value.clone();
        }
        if let Some(Value::Array(choices)) = fields.get("enum") {
            let wanted = fields.get("type").map(words);
            let fits = |value: &&Value| wanted.as_ref().is_none_or(|wanted| wanted.iter().any(|w| is(w, value)));
            if let Some(value) = choices.iter().find(fits) {
                return value.clone();
            }
        }
        let example = fields.get("examples").and_then(Value::as_array).and_then(|list| list.first());
        if let Some(value) = example.or(fields.get("default")).filter(|v| self.attempt == 0 && !v.is_null() && *v != "")
        {
            return value.clone();
        }
        let mut made = Value::Null;
        if let Some(reference) = fields.get("$ref").and_then(Value::as_str)
            && depth < MAX_DEPTH
        {
            let target = self.root.pointer(reference.trim_start_matches('#'));
            made = self.value(target.unwrap_or(&Value::Null), depth + 1);
        }
        for keyword in ["oneOf", "anyOf"] {
            if let Some(Value::Array(branches)) = fields.get(keyword) {
                let branch = if self.attempt == 2 { branches.last() } else { branches.first() };
                if depth < MAX_DEPTH {
                    let mut branch = branch.cloned().unwrap_or(Value::Null);
                    // A branch that only requires means the properties beside it.
                    if let (Some(_), None, Some(own)) =
                        (branch.get("required"), branch.get("properties"), fields.get("properties"))
                    {
                        branch["properties"] = own.clone();
                    }
                    made = merge(made, self.value(&branch, depth + 1));
                }
            }
        }
        if let Some(Value::Array(branches)) = fields.get("allOf")
            && depth < MAX_DEPTH
        {
            for branch in branches {
                let keyword = ["type", "$ref", "properties", "allOf", "oneOf", "anyOf", "enum"];
                if keyword.iter().any(|keyword| branch.get(*keyword).is_some()) {
                    made = merge(made, self.value(branch, depth + 1));
                }
            }
        }
        let kinds = fields.get("type").map(words).unwrap_or_default();
        let kind = kinds.iter().find(|kind| **kind != "null").copied();
        let kind = kind.or_else(|| (fields.contains_key("properties") || made.is_object()).then_some("object"));
        match kind {
            Some("object") => merge(made, self.object(fields, depth)),
            Some(_) if !made.is_null() => made,
            Some("string") => self.text(fields),
            Some("boolean") => json!(true),
            Some("integer") => number(fields, true),
            Some("number") => number(fields, false),
            Some("array") => {
                let least = fields.get("minItems").and_then(Value::as_u64).unwrap_or(1).clamp(1, 64);
                let item = fields.get("items").map_or(json!("x"), |items| match depth < MAX_DEPTH {
                    true => self.value(items, depth + 1),
                    false => json!("x"),
                });
                let unique = fields.get("uniqueItems") == Some(&json!(true));
                let item = |n: u64| match (&item, unique) {
                    (Value::String(text), true) if n > 0 => json!(format!("{text}{n}")),
                    (item, _) => item.clone(),
                };
                Value::Array((0..least).map(item).collect())
            }
            Some(_) => Value::Null,
            None if made.is_null() => json!("x"),
            None => made,
        }
    }

    fn object(&self, fields: &Map<String, Value>, depth: usize) -> Value {
        let required = fields.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let mut names: Vec<&str> = required.collect();
        let properties = fields.get("properties").and_then(Value::as_object);
        if self.attempt == 3 && depth < 2 {
            names.extend(properties.into_iter().flatten().map(|(name, _)| name.as_str()));
        }
        let is_file = properties.is_some_and(|p| p.contains_key("base64") && p.contains_key("filename"));
        if is_file {
            return json!({"text": "x"});
        }
        let least =
            fields.get("minProperties").and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        for (name, _) in properties.into_iter().flatten() {
            if names.len() < least {
                names.push(name);
            }
        }
        let mut made = Map::new();
        for name in names {
            let schema = properties.and_then(|properties| properties.get(name)).or(fields.get("additionalProperties"));
            let value = match depth < MAX_DEPTH {
                true => self.value(schema.unwrap_or(&Value::Null), depth + 1),
                false => json!("x"),
            };
            made.insert(name.to_owned(), value);
        }
        Value::Object(made)
    }

    fn text(&self, fields: &Map<String, Value>) -> Value {
        let bound = |key: &str| fields.get(key).and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
        if let Some(pattern) = fields.get("pattern").and_then(Value::as_str)
            && let Some(text) =
                matching(pattern, bound("minLength").unwrap_or(1), bound("maxLength").unwrap_or(usize::MAX))
        {
            return text.into();
        }
        let text = match fields.get("format").and_then(Value::as_str) {
            Some("date") => "2026-01-02",
            Some("date-time") => "2026-01-02T03:04:05Z",
            Some("uuid") => "123e4567-e89b-12d3-a456-426614174000",
            Some("email") => "a@example.com",
            Some("uri" | "url") => "https://example.com",
            _ => "x",
        };
        let least = bound("minLength").unwrap_or(0).min(100_000);
        let text = if text.len() < least { "x".repeat(least) } else { text.to_owned() };
        text.chars().take(bound("maxLength").unwrap_or(usize::MAX)).collect::<String>().into()
    }
}

fn words(value: &Value) -> Vec<&str> {
    match value {
        Value::Array(words) => words.iter().filter_map(Value::as_str).collect(),
        word => word.as_str().into_iter().collect(),
    }
}

fn is(kind: &str, value: &Value) -> bool {
    match kind {
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        _ => false,
    }
}

fn merge(a: Value, b: Value) -> Value {
    match (a, b) {
        (Value::Object(mut a), Value::Object(b)) => {
            for (key, value) in b {
                let before = a.remove(&key).unwrap_or(Value::Null);
                a.insert(key, if before.is_object() && value.is_object() { merge(before, value) } else { value });
            }
            Value::Object(a)
        }
        (Value::Null, b) => b,
        (a, Value::Null) => a,
        (_, b) => b,
    }
}

fn number(fields: &Map<String, Value>, whole: bool) -> Value {
    let bound = |key: &str| fields.get(key).and_then(Value::as_f64);
    let step = bound("multipleOf").unwrap_or(1.0);
    let least = bound("minimum").or(bound("exclusiveMinimum").map(|n| n + step));
    let most = bound("maximum").or(bound("exclusiveMaximum").map(|n| n - step));
    let value = match (least, most) {
        (Some(least), _) if least > 1.0 => (least / step).ceil() * step,
        (Some(least), Some(most)) if most < 1.0 => (least + most) / 2.0,
        (None, Some(most)) if most < 1.0 => most,
        _ => step.max(1.0),
    };
    #[allow(clippy::cast_possible_truncation)] // made up
    match whole || value.fract() == 0.0 {
        true => json!(value as i64),
        false => Number::from_f64(value).map_or(json!(1), Value::Number),
    }
}

/// A text that matches a regular expression, if one is found within its lengths.
fn matching(pattern: &str, least: usize, most: usize) -> Option<String> {
    if pattern.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > 4) {
        return None;
    }
    // ASCII is enough, and what looks around cannot be made.
    let mut plain = String::new();
    let mut rest = pattern;
    let mut class = false;
    while let Some(c) = rest.chars().next() {
        if let (Some(after), false) = (rest.strip_prefix("(?!").or(rest.strip_prefix("(?=")), class) {
            let mut open = 1;
            let end = after.find(|c| {
                open += i32::from(c == '(') - i32::from(c == ')');
                open == 0
            });
            rest = &after[end? + 1..];
            continue;
        }
        let mut taken = c.len_utf8();
        if c == '\\' {
            let next = rest[1..].chars().next()?;
            taken += next.len_utf8();
            match (next, class) {
                ('d', true) => plain.push_str("0-9"),
                ('d', false) => plain.push_str("[0-9]"),
                ('w', true) => plain.push_str("a-z0-9_"),
                ('w', false) => plain.push_str("[a-z0-9_]"),
                ('s', _) => plain.push(' '),
                ('S', true) => plain.push_str("a-z"),
                ('S' | 'D' | 'W', _) => plain.push_str("[a-z]"),
                ('p', _) => plain.push_str("\\p"),
                (other, _) => plain.extend(['\\', other]),
            }
        } else {
            match (c, class) {
                ('^' | '$', false) => {}
                ('.', false) => plain.push_str("[a-z]"),
                ('[', false) => {
                    class = true;
                    plain.push(c);
                }
                (']', true) => {
                    class = false;
                    plain.push(c);
                }
                (other, _) => plain.push(other),
            }
        }
        rest = &rest[taken..];
    }
    if plain.len() > MAX_TEXT || most > MAX_TEXT && least > MAX_TEXT {
        return None;
    }
    let strategy = proptest::string::string_regex(&plain).ok()?;
    let mut runner = TestRunner::deterministic();
    let fits = |text: &String| (least..=most).contains(&text.chars().count());
    let tries: Vec<String> =
        (0..24).filter_map(|_| strategy.new_tree(&mut runner).ok()).map(|tree| tree.current()).collect();
    let safe = |text: &&String| fits(text) && !text.contains(['.', '/', '%', '\\']);
    tries.iter().find(safe).or_else(|| tries.iter().find(|text| fits(text))).cloned()
}

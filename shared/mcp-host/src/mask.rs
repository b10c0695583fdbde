//! One mask for a server's words: where it repeats a value that it was given, the value's name stands. For its diagnostics, stray lines, log,
//! errors, reasons, questions and descriptions; the result of a call that succeeded is what the tool was called for and passes as it is.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;

use aho_corasick::{AhoCorasick, MatchKind};
use base64::Engine as _;
use serde_json::Value;
use vance_shared::call::{Fault, Outcome};
use vance_shared::json::Raw;
use vance_shared::launch::rest::RestAuth;
use vance_shared::launch::{Auth, LaunchPlan, Transport};
use vance_shared::secrets;
use vance_shared::show::plain;
use vance_shared::tool::{ToolResult, ToolSpec};

use crate::env::{self, Words};
use crate::handle::HostEnv;
use crate::http::encode_query;

/// Values, and lines of values, that are shorter are not looked for: they would be found everywhere.
const MIN_BYTES: usize = 6;
/// A text inside a secret that is JSON itself (a service account's file) counts as a secret of its own from here on.
const MIN_LEAF_BYTES: usize = 16;
/// What stands for a header of basic authentication.
const BASIC: &str = "{{basic credentials}}";

/// Knows the values of one pack. Without any it costs nothing.
#[derive(Debug, Default)]
pub(crate) struct Mask(Option<Table>);

#[derive(Debug)]
struct Table {
    values: AhoCorasick,
    /// For each pattern what stands in its place.
    names: Vec<String>,
    longest: usize,
}

impl Mask {
    /// The values that a plan names, as far as they are set: secrets, and variables other than those that every child sees and paths of this
    /// machine, which are no secrets and whose absence would make errors useless.
    pub(crate) fn of(plan: &LaunchPlan, env: &HostEnv) -> Self {
        let variables = env::ambient();
        let words = env.words(&variables);
        let mut values = Vec::new();
        for text in secrets::texts(plan) {
            for name in secrets::names(&text).unwrap_or_default() {
                let reference = format!("{}{name}{}", secrets::OPEN, secrets::CLOSE);
                values.extend(env::expand(&reference, "", words).ok().map(|value| (value, reference)));
            }
            for name in env::variables(&text).into_iter().filter(|name| !env::is_common(name)) {
                let reference = format!("${{env:{name}}}");
                let value = env::expand(&reference, "", words).ok();
                let value = value.filter(|value| !(Path::new(value).is_absolute() && Path::new(value).exists()));
                values.extend(value.map(|value| (value, reference)));
            }
        }
        values.extend(basic(plan, words).map(|pair| (pair, BASIC.to_owned())));
        Self::new(values)
    }

    /// Of values, each with what stands in its place.
    pub(crate) fn new(values: impl IntoIterator<Item = (String, String)>) -> Self {
        let mut patterns = BTreeMap::new();
        for (value, name) in values {
            for form in pieces(&value).iter().flat_map(|piece| forms(piece)) {
                patterns.entry(form).or_insert_with(|| name.clone());
            }
        }
        if patterns.is_empty() {
            return Self(None);
        }
        let longest = patterns.keys().map(String::len).max().unwrap_or_default();
        // Longest first: a whole value, not one line of it after the other. Hex digits of escapes come in both cases.
        let built = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .ascii_case_insensitive(true)
            .build(patterns.keys());
        let names = patterns.into_values().collect();
        Self(built.map(|values| Table { values, names, longest }).ok())
    }

    /// So long is what may stand for one value: who cuts a text before it is masked keeps so much more of it.
    pub(crate) fn longest(&self) -> usize {
        self.0.as_ref().map_or(0, |table| table.longest)
    }

    /// A text without the values.
    pub(crate) fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match &self.0 {
            Some(table) if table.values.is_match(text) => Cow::Owned(table.values.replace_all(text, &table.names)),
            Some(_) | None => Cow::Borrowed(text),
        }
    }

    /// The same for a text that is at hand.
    pub(crate) fn owned(&self, text: String) -> String {
        match self.text(&text) {
            Cow::Owned(masked) => masked,
            Cow::Borrowed(_) => text,
        }
    }

    fn finds(&self, text: &str) -> bool {
        self.0.as_ref().is_some_and(|table| table.values.is_match(text))
    }

    /// All texts and keys of a JSON value.
    pub(crate) fn value(&self, value: &mut Value) {
        if self.0.is_none() {
            return;
        }
        match value {
            Value::String(text) => *text = self.owned(std::mem::take(text)),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(fields) => {
                let entries = std::mem::take(fields).into_iter().map(|(key, mut value)| {
                    self.value(&mut value);
                    (self.owned(key), value)
                });
                *fields = entries.collect();
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }

    /// The same for JSON that was not read. It stays what it is, blank by blank, where nothing is found.
    pub(crate) fn raw(&self, raw: Raw) -> Raw {
        if !self.finds(raw.get()) {
            return raw;
        }
        let mut value = raw.value();
        self.value(&mut value);
        Raw::from(value)
    }

    /// What is told of a call: errors and reasons, not the result of one that succeeded.
    pub(crate) fn outcome(&self, outcome: Outcome) -> Outcome {
        match outcome {
            Outcome::Done(_) => outcome,
            Outcome::Failed { error, result } => Outcome::Failed {
                error: Fault { code: error.code, message: self.owned(error.message) },
                result: result.map(|result| ToolResult {
                    content: self.raw(result.content),
                    structured: result.structured.map(|structured| self.raw(structured)),
                    is_error: result.is_error,
                }),
            },
            Outcome::Cancelled { reason } => Outcome::Cancelled { reason: self.owned(reason) },
            Outcome::Unknown { reason } => Outcome::Unknown { reason: self.owned(reason) },
        }
    }

    /// What is told of tools.
    pub(crate) fn specs(&self, specs: std::sync::Arc<[ToolSpec]>) -> std::sync::Arc<[ToolSpec]> {
        if self.0.is_none() {
            return specs;
        }
        specs.iter().cloned().map(|spec| self.spec(spec)).collect()
    }

    fn spec(&self, mut spec: ToolSpec) -> ToolSpec {
        spec.description = self.owned(spec.description);
        spec.input_schema = self.raw(spec.input_schema);
        spec.output_schema = spec.output_schema.map(|schema| self.raw(schema));
        if let Some(annotations) = &mut spec.annotations {
            annotations.title = annotations.title.take().map(|title| self.owned(title));
        }
        spec
    }
}

/// User and password as they travel.
fn basic(plan: &LaunchPlan, words: Words<'_>) -> Option<String> {
    let (user, password) = match &plan.transport {
        Transport::Http { auth: Auth::Basic { user, password }, .. } => (user, password),
        Transport::Rest(rest) => match &rest.auth {
            RestAuth::Basic { user, password } => (user, password),
            RestAuth::None
            | RestAuth::Header { .. }
            | RestAuth::Query { .. }
            | RestAuth::OAuth(_)
            | RestAuth::Schemes(_) => {
                return None;
            }
        },
        Transport::Http { .. } | Transport::Stdio { .. } => return None,
    };
    let expand = |text: &str| env::expand(text, "", words).ok();
    Some(base64::engine::general_purpose::STANDARD.encode(format!("{}:{}", expand(user)?, expand(password)?)))
}

/// What gives a value away: itself, each of its lines, and, where it is JSON, the long texts in it with their lines.
fn pieces(value: &str) -> Vec<String> {
    let mut all = vec![value.to_owned()];
    if let Ok(value) = serde_json::from_str::<Value>(value)
        && matches!(value, Value::Object(_) | Value::Array(_))
    {
        leaves(&value, &mut all);
    }
    let lines: Vec<String> = all.iter().flat_map(|text| text.lines()).map(|line| line.trim().to_owned()).collect();
    all.extend(lines);
    all.retain(|piece| piece.trim().len() >= MIN_BYTES);
    all
}

fn leaves(value: &Value, found: &mut Vec<String>) {
    match value {
        // An address is where a secret is used, and no secret.
        Value::String(text) if text.len() >= MIN_LEAF_BYTES && !text.contains("://") => found.push(text.clone()),
        Value::Array(items) => items.iter().for_each(|item| leaves(item, found)),
        Value::Object(fields) => fields.values().for_each(|field| leaves(field, found)),
        Value::String(_) | Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// How programs write a text: as it is, in JSON (also in JSON within JSON, and in ASCII alone), as Python and as we show it, in an address.
fn forms(text: &str) -> Vec<String> {
    let json = escaped(text);
    let ascii = in_ascii(&json);
    let mut all = vec![
        text.to_owned(),
        escaped(&json),
        escaped(&ascii),
        json.replace('/', "\\/"),
        ascii.replace('/', "\\/"),
        repr(text),
        plain(text),
        encode_query(text),
        encode_query(text).replace("%20", "+"),
        json,
        ascii,
    ];
    all.sort_unstable();
    all.dedup();
    all
}

/// Between the quotes of a JSON string.
fn escaped(text: &str) -> String {
    let quoted = Value::from(text).to_string();
    quoted.get(1..quoted.len() - 1).unwrap_or_default().to_owned()
}

fn in_ascii(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c.is_ascii() {
            true => out.push(c),
            false => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}"))),
        }
    }
    out
}

fn repr(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t");
    if text.contains('"') { text.replace('\'', "\\'") } else { text }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::json;

    use super::*;

    fn mask(value: &str) -> Mask {
        Mask::new([(value.to_owned(), "{{secret:A}}".to_owned())])
    }

    #[test]
    fn a_value_is_found_in_every_form_that_programs_give_it() {
        let odd = "aa\"bb\\cc'dd \u{e4}/\u{1f600}x";
        let json = Value::from(odd).to_string();
        for said in [
            format!("key {odd}."),
            format!("key {json}."),
            format!("key {}.", json!({"inner": json.clone()})),
            r#"key "aa\"bb\\cc'dd \u00e4/\ud83d\ude00x"."#.to_owned(),
            r#"key "aa\"bb\\cc'dd \u00E4\/\uD83D\uDE00x"."#.to_owned(),
            format!("key {}.", r#"'aa"bb\\cc\'dd ä/😀x'"#),
            format!("key {}.", plain(odd)),
            "GET /?k=aa%22bb%5Ccc%27dd%20%C3%A4%2F%F0%9F%98%80x.".to_owned(),
            "GET /?k=aa%22bb%5ccc%27dd+%c3%a4%2f%f0%9f%98%80x.".to_owned(),
        ] {
            let shown = mask(odd).owned(said.clone());
            assert!(shown.contains("{{secret:A}}") && !shown.contains("bb") && shown.contains('.'), "{said}: {shown}");
        }
    }

    #[test]
    fn several_lines_are_found_as_a_whole_and_one_by_one() {
        let pem = "-----BEGIN KEY-----\nline-one-SEK\r\n  line-two-SEK\nxy\n";
        for (said, want) in [
            ("half line-one-SEK", "half {{secret:A}}"),
            ("line-two-SEK", "{{secret:A}}"),
            (pem, "{{secret:A}}"),
            (r#"{'k': '-----BEGIN KEY-----\nline-one-SEK\r\n  line-two-SEK\nxy\n'}"#, "{'k': '{{secret:A}}'}"),
            (r#"repr 'line-one-SEK\nline-two-SEK'"#, r#"repr '{{secret:A}}\n{{secret:A}}'"#),
            ("xy is too short to be a secret", "xy is too short to be a secret"),
        ] {
            assert_eq!(mask(pem).text(said), want);
        }
        assert_eq!(mask("short").text("short"), "short");
        assert_eq!(mask("").longest(), 0);
    }

    #[test]
    fn what_is_inside_a_secret_that_is_json_is_one_too() {
        let account = json!({"type": "service_account", "uri": "https://oauth.example.org/token", "private_key": "-----BEGIN KEY-----\nMIIEvQIBADANBg\n"});
        let mask = mask(&account.to_string());
        for said in ["MIIEvQIBADANBg", "-----BEGIN KEY-----\nMIIEvQIBADANBg\n", &account.to_string()] {
            assert_eq!(mask.text(said), "{{secret:A}}");
        }
        assert_eq!(
            mask.text("cannot reach https://oauth.example.org/token"),
            "cannot reach https://oauth.example.org/token"
        );
    }

    #[test]
    fn errors_and_descriptions_are_masked_and_results_are_not() {
        let mask = mask("hunter22");
        let part = |text: &str| ToolResult::text(text);
        let failed = Outcome::of(ToolResult { is_error: true, ..part("bad key hunter22") });
        let Outcome::Failed { error, result } = mask.outcome(failed) else { panic!("failed") };
        assert_eq!(error.message, "bad key {{secret:A}}");
        assert_eq!(result.unwrap().joined_text(), "bad key {{secret:A}}");
        assert_eq!(mask.outcome(Outcome::Done(part("hunter22"))), Outcome::Done(part("hunter22")));
        let unknown = mask.outcome(Outcome::Unknown { reason: "hunter22".to_owned() });
        assert_eq!(unknown, Outcome::Unknown { reason: "{{secret:A}}".to_owned() });
        let schema = Raw::parse(r#"{"a": {"description":  "not hunter22", "hunter22": 1}}"#.to_owned()).unwrap();
        assert_eq!(mask.raw(schema).value(), json!({"a": {"description": "not {{secret:A}}", "{{secret:A}}": 1}}));
        let same = r#"{"a":  1}"#;
        assert_eq!(mask.raw(Raw::parse(same.to_owned()).unwrap()).get(), same);
    }
}

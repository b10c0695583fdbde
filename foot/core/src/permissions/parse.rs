//! `permissions.yaml` as people write it, strictly: every mistake with its line, all at once.

use std::sync::Arc;

use vance_shared::doc::{Entry, Node, Problem, Problems, nearest_field, read_yaml, ticked};
use vance_shared::names::ToolName;

use super::paths::PathGlob;
use super::{Effect, Matcher, Rule, Rules};

/// Rules of one file: each call looks at all of them.
const MAX_RULES: usize = 1000;
/// Roots of one file: each holds an open folder.
const MAX_ROOTS: usize = 64;
const FIELDS: &[&str] = &["allow", "ask", "deny", "roots", "sandbox"];
const KINDS: &[&str] = &["exec", "read", "write", "tool"];

/// Reads a file. An empty one is no rules. A file with a mistake gives no rules at all: a rule that was meant to deny must not get lost.
pub fn parse_permissions(file: &str, text: &str) -> Result<Rules, Vec<Problem>> {
    let problems = Problems::new(file);
    let Some(node) = read_yaml(text, &problems) else { return Err(problems.into_list()) };
    let mut rules = Rules::none(file);
    if node.is_null() {
        return problems.into_result(Some(rules));
    }
    let Some(entries) = node.as_map() else {
        problems.add(
            node.line,
            format!("{}, expected a mapping with `allow`, `ask`, `deny`, `roots` or `sandbox`", node.describe()),
        );
        return problems.into_result(None);
    };
    for Entry { key, line, value } in entries {
        let effect = match key.as_str() {
            "allow" => Effect::Allow,
            "ask" => Effect::Ask,
            "deny" => Effect::Deny,
            "roots" => {
                (rules.roots, rules.roots_line) = (roots(value, &problems), Some(*line));
                continue;
            }
            "sandbox" => {
                (rules.fence, rules.fence_line) = (super::sandbox::parse(value, &problems), Some(*line));
                continue;
            }
            other => {
                problems.add(*line, format!("unknown field {}{}", ticked(other), nearest_field(other, FIELDS)));
                continue;
            }
        };
        for item in list(value, key, &problems) {
            rules.rules.extend(matcher(item, &problems).map(|matcher| Rule {
                effect,
                matcher,
                file: Arc::clone(&rules.file),
                line: item.line,
            }));
        }
    }
    if rules.rules.len() > MAX_RULES {
        problems.add(node.line, format!("{} rules, expected at most {MAX_RULES}", rules.rules.len()));
    }
    problems.into_result(Some(rules))
}

fn list<'a>(value: &'a Node, what: &str, problems: &Problems) -> &'a [Node] {
    if value.is_null() {
        return &[];
    }
    value.as_list().unwrap_or_else(|| {
        problems.add(value.line, format!("`{what}` is {}, expected a list", value.describe()));
        &[]
    })
}

fn roots(value: &Node, problems: &Problems) -> Vec<String> {
    let items = list(value, "roots", problems);
    if items.len() > MAX_ROOTS {
        problems.add(value.line, format!("{} roots, expected at most {MAX_ROOTS}", items.len()));
    }
    let root = |item: &Node| {
        let text = item.as_str().filter(|t| !t.is_empty());
        if text.is_none() {
            problems
                .add(item.line, format!("a root is {}, expected a folder such as `.` or `~/papers`", item.describe()));
        }
        text.map(str::to_owned)
    };
    items.iter().filter_map(root).collect()
}

fn matcher(item: &Node, problems: &Problems) -> Option<Matcher> {
    let wanted = "expected one of `{exec: [WORD, ...]}`, `{read: GLOB}`, `{write: GLOB}`, `{tool: NAME}`";
    let Some([Entry { key, line, value }]) = item.as_map() else {
        let got = if item.as_map().is_some() {
            "a rule with more or less than one field".to_owned()
        } else {
            item.describe()
        };
        problems.add(item.line, format!("{got}, {wanted}"));
        return None;
    };
    match key.as_str() {
        "exec" => exec(value, problems),
        "read" => glob(value, problems).map(Matcher::Read),
        "write" => glob(value, problems).map(Matcher::Write),
        "tool" => tool(value, problems),
        other => {
            problems.add(*line, format!("unknown kind of rule {}{}", ticked(other), nearest_field(other, KINDS)));
            None
        }
    }
}

fn exec(value: &Node, problems: &Problems) -> Option<Matcher> {
    let words: Option<Vec<String>> =
        value.as_list().and_then(|items| items.iter().map(|w| w.as_str().map(str::to_owned)).collect());
    match words {
        Some(words) if words.first().is_some_and(|w| !w.is_empty()) => Some(Matcher::Exec(words)),
        _ => {
            let hint = match value.as_str() {
                Some(text) => format!("; write `[{}]`", text.split_whitespace().collect::<Vec<_>>().join(", ")),
                None => String::new(),
            };
            problems.add(
                value.line,
                format!("`exec` is {}, expected a list of words, the program first{hint}", value.describe()),
            );
            None
        }
    }
}

fn glob(value: &Node, problems: &Problems) -> Option<PathGlob> {
    let Some(text) = value.as_str().filter(|t| !t.is_empty()) else {
        problems.add(
            value.line,
            format!(
                "the glob is {}, expected a text such as `src/**` (in quotes if it starts with `*`)",
                value.describe()
            ),
        );
        return None;
    };
    PathGlob::parse(text)
        .map_err(|e| problems.add(value.line, format!("the glob {} is not valid: {e}", value.describe())))
        .ok()
}

fn tool(value: &Node, problems: &Problems) -> Option<Matcher> {
    let name = value.as_str().map(ToolName::parse);
    match name {
        Some(Ok(name)) => Some(Matcher::Tool(name.as_str().to_owned())),
        Some(Err(e)) => {
            problems.add(value.line, e.to_string());
            None
        }
        None => {
            problems.add(value.line, format!("`tool` is {}, expected a tool's name", value.describe()));
            None
        }
    }
}

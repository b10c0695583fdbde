//! Which other tasks a text means. Read from the text itself: the template library's own list of variables leaves out what is
//! sliced, subscripted or gone through in a loop.

use std::collections::BTreeSet;

/// What a text says of `tasks`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct TaskReferences {
    /// Ids that it names: `tasks.ID`, `tasks['ID']`.
    pub ids: BTreeSet<String>,
    /// It also takes `tasks` in another way: by a variable, in a loop, as a whole. Then it may mean any task that it waits for.
    pub any: bool,
}

/// Reads a text.
pub fn task_references(text: &str) -> TaskReferences {
    let mut found = TaskReferences::default();
    let mut rest = text;
    while let Some((at, close)) = opening(rest) {
        let inside = &rest[at + 2..];
        rest = match close {
            "#}" => inside.find(close).map_or("", |end| &inside[end + 2..]),
            _ => code(inside, close, &mut found),
        };
    }
    found
}

/// The next block, and what ends it.
fn opening(text: &str) -> Option<(usize, &'static str)> {
    let blocks = [("{{", "}}"), ("{%", "%}"), ("{#", "#}")];
    blocks.iter().filter_map(|(open, close)| Some((text.find(open)?, *close))).min_by_key(|(at, _)| *at)
}

/// Reads a block up to its end; gives what follows it.
fn code<'t>(mut text: &'t str, close: &str, found: &mut TaskReferences) -> &'t str {
    let mut attribute = false;
    while let Some(c) = text.chars().next() {
        if let Some(after) = text.strip_prefix(close) {
            return after;
        }
        if c == '"' || c == '\'' {
            text = quoted(text).map_or("", |(_, after)| after);
            attribute = false;
        } else if is_word(c) {
            let (word, after) = word(text);
            text = after;
            if word == "tasks" && !attribute {
                text = reference(after, found);
            }
            attribute = false;
        } else {
            attribute = c == '.' || (attribute && c.is_whitespace());
            text = &text[c.len_utf8()..];
        }
    }
    text
}

/// What follows the word `tasks`.
fn reference<'t>(text: &'t str, found: &mut TaskReferences) -> &'t str {
    let next = text.trim_start();
    if let Some(attribute) = next.strip_prefix('.') {
        let (id, after) = word(attribute.trim_start());
        if !id.is_empty() {
            found.ids.insert(id.to_owned());
            return after;
        }
    } else if let Some(subscript) = next.strip_prefix('[')
        && let Some((id, after)) = quoted(subscript.trim_start())
        && after.trim_start().starts_with(']')
    {
        found.ids.insert(id.to_owned());
        return after;
    }
    found.any = true;
    text
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn word(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c| !is_word(c)).unwrap_or(text.len()))
}

/// A string at the start of the text, and what follows it. Ids have nothing to escape.
fn quoted(text: &str) -> Option<(&str, &str)> {
    let quote = text.chars().next().filter(|c| matches!(c, '"' | '\''))?;
    let inside = &text[1..];
    let mut escaped = false;
    let end = inside.find(|c| {
        let ends = c == quote && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    })?;
    Some((&inside[..end], &inside[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_to_write_a_task_is_seen() {
        let rows: &[(&str, &[&str], bool)] = &[
            ("{{ tasks.a.x.text }} {{ tasks.b }} {{ paper.text }}", &["a", "b"], false),
            ("{{ tasks.a.r.text[:50] }}", &["a"], false),
            ("{{ tasks['my-task'].r.text }}{{ tasks[ \"b\" ].x }}", &["b", "my-task"], false),
            ("{% for item in tasks.a.r.items %}{{ item }}{% endfor %}", &["a"], false),
            ("{% if tasks . a %}x{% endif %}", &["a"], false),
            ("{{ tasks[name].x }}", &[], true),
            ("{{ tasks | length }} {{ tasks.a }}", &["a"], true),
            ("{% for id in tasks %}{{ id }}{% endfor %}", &[], true),
            ("{{ 'tasks.a' ~ paper.tasks.b ~ subtasks.c ~ tasks_.d }} tasks.e {# tasks.f #}", &[], false),
            ("{{ 'it\\'s tasks.a' }}{{ tasks.b }}", &["b"], false),
            ("{{ tasks", &[], true),
            ("{{ tasks['a", &[], true),
            ("{{ täsks.a }} {{ tasks.ä }}", &["ä"], false),
            ("plain", &[], false),
        ];
        for (text, ids, any) in rows {
            let want = TaskReferences { ids: ids.iter().map(|id| (*id).to_owned()).collect(), any: *any };
            assert_eq!(task_references(text), want, "{text}");
        }
    }
}

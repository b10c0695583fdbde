//! `{{ … }}` in step arguments: valid, and about results that are there by then.

use vance_shared::doc::{Kind, Node, Problems, ticked};

use super::Draft;
use super::graph::{Index, Order, Search, did_you_mean};
use super::step::unknown_name;
use crate::expression;

/// Functions that expressions know without anybody defining them.
const GLOBALS: [&str; 8] = ["range", "dict", "debug", "namespace", "lipsum", "cycler", "joiner", "loop"];

/// One text that may hold expressions.
pub(super) struct Text<'a> {
    /// Where in the step: `with.items[2].name`.
    path: String,
    text: &'a str,
    line: u32,
    /// The step's place in its task.
    step: usize,
}

/// Finds the texts of a value.
pub(super) fn collect<'a>(node: &'a Node, path: &str, step: usize, texts: &mut Vec<Text<'a>>) {
    match &node.kind {
        Kind::String(text) if text.contains("{{") || text.contains("{%") || text.contains("{#") => {
            texts.push(Text { path: path.to_owned(), text, line: node.line, step });
        }
        Kind::Sequence(items) => {
            items.iter().enumerate().for_each(|(i, item)| collect(item, &format!("{path}[{i}]"), step, texts));
        }
        Kind::Mapping(entries) => {
            entries.iter().for_each(|entry| collect(&entry.value, &format!("{path}.{}", entry.key), step, texts));
        }
        Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::String(_) => {}
    }
}

/// Checks every text of every task.
pub(super) fn check(drafts: &[Draft<'_>], index: &Index<'_>, order: &Order, problems: &Problems) {
    let mut search = order.search();
    for (at, draft) in drafts.iter().enumerate() {
        for text in &draft.texts {
            if let Err(message) = expression::check(text.text) {
                problems.add(text.line, format!("{}: {message}", ticked(&text.path)));
                continue;
            }
            for name in expression::step_references(text.text) {
                check_step_reference(&name, draft, text, problems);
            }
            for id in expression::task_references(text.text).ids {
                if let Some(message) = wrong_task_reference(&id, at, drafts, index, &mut search, problems) {
                    problems.add(
                        text.line,
                        format!("{} uses {}, {message}", ticked(&text.path), ticked(&format!("tasks.{id}"))),
                    );
                }
            }
        }
    }
}

fn check_step_reference(name: &str, draft: &Draft<'_>, text: &Text<'_>, problems: &Problems) {
    let earlier: Vec<&str> = draft.names.iter().take(text.step).flatten().copied().collect();
    if earlier.contains(&name) || GLOBALS.contains(&name) {
        return;
    }
    let place = ticked(&text.path);
    if draft.names.iter().flatten().any(|later| *later == name) {
        problems.add(text.line, format!("{place}: `{name}` is not there yet, its step comes later or is this one"));
    } else {
        problems.add(text.line, format!("{place}: {}", unknown_name(name, &earlier)));
    }
}

fn wrong_task_reference(
    id: &str,
    at: usize,
    drafts: &[Draft<'_>],
    index: &Index<'_>,
    search: &mut Search<'_>,
    problems: &Problems,
) -> Option<String> {
    let Some(&other) = index.get(id) else {
        let goes_on = |known: &str| {
            known.strip_prefix(id).is_some_and(|rest| rest.starts_with(|c: char| !c.is_alphanumeric() && c != '_'))
        };
        if let Some(meant) = drafts.iter().filter_map(|draft| draft.id).filter(|known| goes_on(known)).min() {
            return Some(format!("which an expression reads as `{id}` and more; write tasks['{meant}']"));
        }
        return Some(format!("but there is no task of this id{}", did_you_mean(id, index, problems)));
    };
    if other == at {
        return Some("its own result; an earlier step of the same task is named without `tasks.`".to_owned());
    }
    if drafts.get(at).is_some_and(|draft| draft.depends_on.iter().any(|(known, _)| *known == id))
        || search.done_before(at, other)
    {
        return None;
    }
    if search.around(at, other) {
        return Some("the task around this one, which is done only after it".to_owned());
    }
    Some(format!("but does not wait for it; add {id} to this task's `depends_on`"))
}

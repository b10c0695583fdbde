//! Task trees as people write them (YAML or JSON): a mapping with `tasks`, or the list of tasks alone. A tree is taken as a
//! whole or not at all, and every mistake is reported at once.

use vance_shared::doc::{Fields, Node, Problem, Problems, read_json, read_yaml};
use vance_shared::ids::SessionId;

use crate::engine::{check_id, engine_spec};
use crate::spec::{EngineRef, Mode, TaskSpec, TreeSpec};

mod expressions;
mod graph;
mod step;
mod task;

/// Largest file: ten thousand tasks with a few steps each fit.
pub const MAX_FILE_BYTES: usize = 4 * 1024 * 1024;
/// Tasks of one tree, children included.
pub const MAX_TASKS: usize = 10_000;
/// Steps of one task.
pub const MAX_STEPS: usize = 1_000;

/// One task as it stands in the file, before references between tasks are checked.
struct Draft<'a> {
    /// `None`: absent or wrong, and reported.
    id: Option<&'a str>,
    /// The line that names it.
    line: u32,
    /// Index of the task around it.
    parent: Option<usize>,
    /// What it depends on, with lines.
    depends_on: Vec<(&'a str, u32)>,
    /// Texts with expressions.
    texts: Vec<expressions::Text<'a>>,
    /// `as` names by step.
    names: Vec<Option<&'a str>>,
    /// What becomes of it. Without an id it is only there for its other mistakes.
    spec: Option<TaskSpec>,
}

/// Reads a task tree. What starts with `{` or `[` is JSON, all else YAML.
pub fn parse_tree(file: &str, text: &str) -> Result<TreeSpec, Vec<Problem>> {
    if text.len() > MAX_FILE_BYTES {
        let message = format!("the file has {} bytes, expected at most {MAX_FILE_BYTES}", text.len());
        return Err(vec![Problem::new(file, 1, message)]);
    }
    let problems = Problems::new(file);
    let node = match text.trim_start_matches('\u{feff}').trim_start().starts_with(['{', '[']) {
        true => read_json(text, &problems),
        false => read_yaml(text, &problems),
    };
    let Some(node) = node else { return Err(problems.into_list()) };
    let tree = tree(&node, &problems);
    problems.into_result(tree)
}

fn tree(node: &Node, problems: &Problems) -> Option<TreeSpec> {
    let (mut session, mut mode, mut engine, mut max_parallel) = (None, Mode::default(), None, None);
    let items = match node.as_list() {
        Some(items) => items,
        None => {
            let mut fields = Fields::of(node, "the task tree", problems)?;
            fields.require("tasks", "a list of tasks (- id: ...)");
            session = fields.take_parsed("session", SessionId::parse).map(|id| id.to_string());
            mode = fields
                .take_enum("mode", &[("interactive", Mode::Interactive), ("autonomous", Mode::Autonomous)])
                .unwrap_or_default();
            engine = fields.take("engine").and_then(|node| engine_ref(node, problems));
            max_parallel = task::max_parallel(&mut fields);
            let items = fields.take_list("tasks", "a list of tasks (- id: ...)");
            fields.finish();
            items?
        }
    };
    if items.is_empty() {
        problems.add(node.line, "there are no tasks, expected at least one (- id: ...)");
        return None;
    }
    let mut drafts = Vec::new();
    collect(items, None, &mut drafts, problems);
    let index = graph::index(&drafts, problems);
    let order = graph::Order::of(&drafts, &index, problems);
    order.report_circles(&drafts, problems);
    expressions::check(&drafts, &index, &order, problems);
    let of_tree = |spec: TaskSpec| TaskSpec { tree_max_parallel: max_parallel, ..spec };
    let tasks = drafts.into_iter().filter_map(|draft| draft.spec.map(of_tree)).collect();
    Some(TreeSpec { session, mode, engine, tasks })
}

fn engine_ref(node: &Node, problems: &Problems) -> Option<EngineRef> {
    let Some(text) = node.as_str() else { return engine_spec(node, problems).map(EngineRef::Inline) };
    check_id(text).map_err(|message| problems.add(node.line, format!("`engine`: {message}"))).ok().map(EngineRef::Id)
}

/// Flattens nested tasks, parents first. Depth is bounded by the document reader.
fn collect<'a>(items: &'a [Node], parent: Option<usize>, drafts: &mut Vec<Draft<'a>>, problems: &'a Problems) {
    for item in items {
        if drafts.len() == MAX_TASKS {
            // Said once: the children of a skipped task are not visited.
            problems.add(item.line, format!("too many tasks, expected at most {MAX_TASKS} in one tree"));
            return;
        }
        let Some((draft, children)) = task::read(item, parent, drafts, problems) else { continue };
        let at = drafts.len();
        drafts.push(draft);
        if let Some(children) = children {
            collect(children, Some(at), drafts, problems);
            if drafts.len() == MAX_TASKS {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests;

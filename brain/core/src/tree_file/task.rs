//! One task of the file.

use std::collections::BTreeSet;

use vance_shared::doc::{Fields, Node, Problems};
use vance_shared::names::ToolName;

use super::{Draft, MAX_STEPS, MAX_TASKS, step};
use crate::engine::{OFFLINE_WORDS, check_id, tool_list};
use crate::spec::{ExecutionTarget, OnUnknown, Retry, RunIf, TaskSpec};

/// More attempts than this are a loop, not a retry.
const MAX_ATTEMPTS: u64 = 1_000;
/// Longest name of a client.
const MAX_CLIENT_BYTES: usize = 128;

const TARGETS: [(&str, ExecutionTarget); 4] = [
    ("auto", ExecutionTarget::Auto),
    ("server", ExecutionTarget::Server),
    ("client", ExecutionTarget::Client),
    ("any", ExecutionTarget::Any),
];

/// Reads a task without its children, which come back as they stand.
pub(super) fn read<'a>(
    node: &'a Node,
    parent: Option<usize>,
    drafts: &[Draft<'a>],
    problems: &'a Problems,
) -> Option<(Draft<'a>, Option<&'a [Node]>)> {
    let what = match node.get("id").and_then(Node::as_str) {
        Some(id) => format!("the task {}", vance_shared::doc::ticked(id)),
        None => "a task".to_owned(),
    };
    let mut fields = Fields::of(node, what, problems)?;
    fields.require("id", "an id such as extract_from_paper");
    let id = fields.take_str("id").filter(|id| match check_id(id) {
        Ok(_) => true,
        Err(message) => {
            fields.add("id", format!("`id`: {message}"));
            false
        }
    });
    let goal = fields.take_str("goal").unwrap_or_default();
    let tools = tool_list(&mut fields, "tools");
    let mut depends_on = fields.take_strs("depends_on", "a list of ids such as [fetch]").unwrap_or_default();
    let mut seen = BTreeSet::new();
    depends_on.retain(|(other, _)| seen.insert(*other));
    let children = fields.take_list("children", "a list of tasks (- id: ...)").filter(|c| !c.is_empty());
    let client = fields.take_str("client");
    if client.is_some_and(|c| c.is_empty() || c.len() > MAX_CLIENT_BYTES) {
        fields.add("client", format!("`client` is a client's name or id, 1 to {MAX_CLIENT_BYTES} bytes"));
    }
    let mut spec = TaskSpec {
        id: id.unwrap_or_default().to_owned(),
        parent: parent.and_then(|p| drafts.get(p)).and_then(|p| p.id).map(str::to_owned),
        goal: goal.to_owned(),
        tools,
        execution_target: fields.take_enum("execution_target", &TARGETS).unwrap_or_default(),
        offline_strategy: fields.take_enum("offline_strategy", &OFFLINE_WORDS),
        depends_on: depends_on.iter().map(|(other, _)| (*other).to_owned()).collect(),
        client: client.map(str::to_owned),
        any_client: fields.take_bool("any_client").unwrap_or(false),
        on_unknown: on_unknown(&mut fields),
        run_if: fields
            .take_enum("run_if", &[("success", RunIf::Success), ("always", RunIf::Always)])
            .unwrap_or_default(),
        retry: retry(&mut fields),
        timeout: fields.take_timeout("timeout"),
        max_parallel: max_parallel(&mut fields),
        tree_max_parallel: None,
        steps: Vec::new(),
    };
    let mut draft =
        Draft { id, line: fields.line_of("id"), parent, depends_on, texts: Vec::new(), names: Vec::new(), spec: None };
    steps(&mut fields, &mut spec, &mut draft);
    let has_steps = fields.has("steps") && !draft.names.is_empty();
    if has_steps && children.is_some() {
        problems.add(
            fields.line_of("children"),
            "a task has `steps` or `children`, not both; put the steps into a child of their own",
        );
    }
    if !has_steps && children.is_none() && !fields.has("goal") && !fields.has("steps") && !fields.has("children") {
        problems.add(
            fields.line(),
            "a task has `steps`, `children`, or a `goal` for the engine's model; this one has none",
        );
    }
    if fields.has("max_parallel") && children.is_none() {
        fields.add("max_parallel", "`max_parallel` limits what is below a task, but this one has no `children`");
    }
    for name in OF_STEPS.into_iter().filter(|name| children.is_some() && fields.has(name)) {
        let text = format!(
            "`{name}` is about a task's own steps, but this one has `children`; write it at those that have steps"
        );
        fields.add(name, text);
    }
    fields.finish();
    draft.spec = id.map(|_| spec);
    Some((draft, children))
}

/// Fields that would say nothing at a task with `children`: it has no calls of its own.
const OF_STEPS: [&str; 7] =
    ["tools", "execution_target", "offline_strategy", "client", "any_client", "on_unknown", "retry"];

/// How many tasks may run at once, in a tree or below a task.
pub(super) fn max_parallel(fields: &mut Fields<'_>) -> Option<u32> {
    fields.take_u64("max_parallel", 1..=MAX_TASKS as u64).and_then(|n| u32::try_from(n).ok())
}

fn on_unknown(fields: &mut Fields<'_>) -> OnUnknown {
    let words = [("ask", OnUnknown::Ask), ("fail", OnUnknown::Fail), ("retry", OnUnknown::Retry)];
    fields.take_enum("on_unknown", &words).unwrap_or_default()
}

fn retry(fields: &mut Fields<'_>) -> Retry {
    let mut retry = Retry::default();
    let Some(mut inner) = fields.take_fields("retry") else { return retry };
    if let Some(attempts) = inner.take_u64("max_attempts", 1..=MAX_ATTEMPTS).and_then(|n| u32::try_from(n).ok()) {
        retry.max_attempts = attempts;
    }
    if let Some(backoff) = inner.take_duration("backoff") {
        retry.backoff = backoff;
    }
    inner.finish();
    retry
}

fn steps<'a>(fields: &mut Fields<'a>, spec: &mut TaskSpec, draft: &mut Draft<'a>) {
    let problems = fields.problems();
    let Some(items) = fields.take_list("steps", "a list of steps (- call: TOOL)") else { return };
    if items.len() > MAX_STEPS {
        let line = fields.line_of("steps");
        problems.add(line, format!("{} steps, expected at most {MAX_STEPS} in one task", items.len()));
        return;
    }
    for item in items {
        let step = step::read(item, draft, problems);
        // One entry per step, also for a wrong one: later steps are numbered by it.
        let Some(step) = step else { continue };
        check_tool(&step.call, item, spec.tools.as_deref(), problems);
        spec.steps.push(step);
    }
}

/// A list of tools is a promise: a step outside of it would surprise whoever read the list.
fn check_tool(call: &ToolName, step: &Node, tools: Option<&[String]>, problems: &Problems) {
    let Some(tools) = tools else { return };
    // What a label stands for is known only when tools are.
    if tools.iter().any(|tool| tool.starts_with('@') || tool == call.as_str()) {
        return;
    }
    let line = step.get("call").map_or(step.line, |node| node.line);
    problems.add(line, format!("the step calls `{call}`, which is not in the task's `tools`; add it there"));
}

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::spec::{ExecutionTarget, OfflineStrategy, OnUnknown, Retry, RunIf};

/// The contract's example, whole.
const CONTRACT: &str = r#"session: sess_123            # optional; default: the caller's default session (autonomous mode: a new one)
mode: interactive            # interactive | autonomous (no client expected: client tools queue)
engine: eng_literature_review   # optional: an id from engines/, or an inline block as in the routing document §8
tasks:
- id: extract_from_paper
  goal: "Extract core theses from paper"
  tools: [read_local_file]
  execution_target: auto     # auto | server | client | any
  offline_strategy: block    # block | skip | fallback | queue
  depends_on: []             # ids; `children:` nests tasks, a parent is done when its children are
  client: laptop             # optional: a client's name or id; any_client: true lets another machine go on
  on_unknown: ask            # ask | fail | retry
  run_if: success            # success | always
  retry: {max_attempts: 3, backoff: 1s}
  timeout: 10m
  steps:                     # fixed steps; a task without steps is worked on by the engine's model toward its goal
  - call: read_local_file
    with: {path: "papers/review.txt"}
    as: paper
- id: create_jira_story
  depends_on: [extract_from_paper]
  tools: [jira_create_issue]
  steps:
  - call: jira_create_issue
    with: {summary: "{{ tasks.extract_from_paper.paper.text }}"}
"#;

/// The routing document's snippet (§6), as it stands.
const DOCUMENT: &str = r#"- id: extract_from_paper
  goal: "Extract core theses from paper"
  tools: [read_local_file]          # needs Client
  execution_target: auto             # Router decides

- id: create_jira_story
  goal: "Create Jira Story from result"
  tools: [jira_create_issue]        # Server Tool
  execution_target: auto

- id: analyze_code
  goal: "Analyze the code in the repo"
  tools: [shell_execute, git_status] # Client Tools
  execution_target: client            # explicitly Client
"#;

fn shown(text: &str) -> Vec<String> {
    parse_tree("f", text).expect_err(text).iter().map(|p| format!("{}: {}", p.line, p.message)).collect()
}

#[test]
fn the_contracts_example_parses_whole_in_yaml_and_in_json() {
    let tree = parse_tree("tree.yaml", CONTRACT).unwrap();
    assert_eq!((tree.session.as_deref(), tree.mode), (Some("sess_123"), Mode::Interactive));
    assert_eq!(tree.engine, Some(EngineRef::Id("eng_literature_review".into())));
    let [first, second] = &tree.tasks[..] else { panic!() };
    assert_eq!((first.id.as_str(), first.goal.as_str()), ("extract_from_paper", "Extract core theses from paper"));
    assert_eq!(first.tools.as_deref(), Some(&["read_local_file".to_owned()][..]));
    assert_eq!((first.execution_target, first.offline_strategy), (ExecutionTarget::Auto, Some(OfflineStrategy::Block)));
    assert_eq!((first.client.as_deref(), first.any_client), (Some("laptop"), false));
    assert_eq!((first.on_unknown, first.run_if), (OnUnknown::Ask, RunIf::Success));
    assert_eq!(first.retry, Retry { max_attempts: 3, backoff: Duration::from_secs(1) });
    assert_eq!(first.timeout, Some(Duration::from_secs(600)));
    assert_eq!(first.steps[0].call.as_str(), "read_local_file");
    assert_eq!(serde_json::Value::from(first.steps[0].with.clone()), json!({"path": "papers/review.txt"}));
    assert_eq!(first.steps[0].r#as.as_deref(), Some("paper"));
    assert_eq!(second.depends_on, ["extract_from_paper"]);
    assert_eq!((second.tools.as_ref().map(Vec::len), second.retry), (Some(1), Retry::default()));

    let json = vance_shared::doc::parse_yaml("f", CONTRACT).unwrap().to_value().to_string();
    assert_eq!(parse_tree("tree.json", &json).unwrap(), tree);
    assert_eq!(parse_tree("tree.json", &format!("\n  {json}")).unwrap(), tree);
}

#[test]
fn the_documents_snippet_parses_as_it_stands() {
    let tree = parse_tree("tree.yaml", DOCUMENT).unwrap();
    assert_eq!(
        tree.tasks.iter().map(|t| t.id.as_str()).collect::<Vec<_>>(),
        ["extract_from_paper", "create_jira_story", "analyze_code"]
    );
    assert_eq!((tree.session, tree.engine, tree.mode), (None, None, Mode::Interactive));
    assert_eq!(tree.tasks[2].execution_target, ExecutionTarget::Client);
    assert!(tree.tasks.iter().all(|t| t.steps.is_empty() && t.parent.is_none()));
}

#[test]
fn children_are_flattened_after_their_parents() {
    let tree = parse_tree(
        "f",
        "- id: a\n  children:\n  - id: b\n    children: [{id: c, goal: x}]\n  - {id: d, goal: x, depends_on: [b]}\n- {id: e, goal: x, depends_on: [a, a]}\n",
    )
    .unwrap();
    let got: Vec<_> = tree.tasks.iter().map(|t| (t.id.as_str(), t.parent.as_deref())).collect();
    assert_eq!(got, [("a", None), ("b", Some("a")), ("c", Some("b")), ("d", Some("a")), ("e", None)]);
    assert_eq!(tree.tasks[4].depends_on, ["a"]);
}

#[test]
fn an_engine_can_be_written_out() {
    let tree = parse_tree("f", "engine:\n  id: e\n  tools: {server: [x]}\ntasks: [{id: a, goal: g}]\n").unwrap();
    let Some(EngineRef::Inline(engine)) = tree.engine else { panic!() };
    assert_eq!((engine.id.as_str(), engine.server, engine.client), ("e", Some(vec!["x".to_owned()]), Some(vec![])));
}

#[test]
fn mistakes_in_the_file_are_named_with_their_line() {
    for (text, want) in [
        ("", vec!["1: the task tree is empty, expected a mapping (name: value)"]),
        ("[]", vec!["1: there are no tasks, expected at least one (- id: ...)"]),
        ("tasks: []", vec!["1: there are no tasks, expected at least one (- id: ...)"]),
        (
            "task:\n- id: a\n",
            vec![
                "1: the task tree has no `tasks`, expected a list of tasks (- id: ...)",
                "1: unknown field `task` in the task tree, did you mean `tasks`?",
            ],
        ),
        (
            "mode: auto\nsession: 'a b'\nengine: [x]\ntasks: {}\n",
            vec![
                "1: `mode` is 'auto', expected one of: interactive, autonomous",
                "2: `session`: an id is 1 to 128 of [A-Za-z0-9_.:-], got 'a b'",
                "3: the engine is a list, expected a mapping (name: value)",
                "4: `tasks` is a mapping, expected a list of tasks (- id: ...)",
            ],
        ),
        ("engine: a b\ntasks: [{id: a, goal: g}]", vec!["1: `engine`: an id is 1 to 64 of [A-Za-z0-9_-], got 'a b'"]),
        ("{\"tasks\": [\n{\"id\": \"a\", \"goal\": \"g\",}]}", vec!["2: not valid JSON: trailing comma (column 25)"]),
    ] {
        assert_eq!(shown(text), want, "{text}");
    }
}

#[test]
fn mistakes_in_a_task_are_named_with_their_line() {
    for (text, want) in [
        ("- goal: x", vec!["1: a task has no `id`, expected an id such as extract_from_paper"]),
        ("- a", vec!["1: a task is 'a', expected a mapping (name: value)"]),
        ("- id: a b\n  goal: x", vec!["1: `id`: an id is 1 to 64 of [A-Za-z0-9_-], got 'a b'"]),
        ("- id: 7\n  goal: x", vec!["1: `id` is the number 7, expected text (in quotes)"]),
        ("- id: a", vec!["1: a task has `steps`, `children`, or a `goal` for the engine's model; this one has none"]),
        (
            "- id: a\n  goal: x\n  children:\n  - {id: b, goal: x}\n  steps:\n  - call: t\n",
            vec!["3: a task has `steps` or `children`, not both; put the steps into a child of their own"],
        ),
        (
            "- id: a\n  goal: x\n  execution_target: serverside\n  offline_strategy: wait\n  on_unknown: aks\n  run_if: 1\n  retry: {max_attempts: 0, backof: 1s}\n  timeout: 10\n  timout: 1s\n  any_client: maybe\n  client: ''\n  tools: read\n  depends_on: b\n",
            vec![
                "3: `execution_target` is 'serverside', expected one of: auto, server, client, any",
                "4: `offline_strategy` is 'wait', expected one of: block, skip, fallback, queue",
                "5: `on_unknown` is 'aks', did you mean `ask`?",
                "6: `run_if` is the number 1, expected one of: success, always",
                "7: `max_attempts` is the number 0, expected a whole number from 1 to 1000",
                "7: unknown field `backof` in `retry`, did you mean `backoff`?",
                "9: unknown field `timout` in the task `a`, did you mean `timeout`?",
                "10: `any_client` is 'maybe', expected true or false",
                "11: `client` is a client's name or id, 1 to 128 bytes",
                "12: `tools` is 'read', expected a list such as [web_search, \"@read-only\"]",
                "13: `depends_on` is 'b', expected a list of ids such as [fetch]",
            ],
        ),
        (
            "- id: a\n  goal: x\n  timeout: 10 minutes",
            vec!["3: `timeout`: '10 minutes' is not a duration, expected one such as 10m, 1s or 500ms"],
        ),
        ("- id: a\n  goal: x\n  timeout: 0", vec!["3: `timeout` is zero, expected a duration such as 10m"]),
        ("- id: a\n  goal: x\n  timeout:\n", vec!["3: `timeout` is empty, expected a duration such as 10m"]),
        ("- id: a\n  goal: x\n  tools: [a b]", vec!["3: `tools`: a tool name is 1 to 64 of [A-Za-z0-9_-], got 'a b'"]),
        (
            "- id: a\n  goal: x\n  tools: [@mcp]",
            vec![
                "3: not valid YAML: unexpected character: `@' (column 11); text that starts with @ or % stands in quotes",
            ],
        ),
    ] {
        assert_eq!(shown(text), want, "{text}");
    }
}

#[test]
fn mistakes_in_steps_are_named_with_their_line() {
    let steps = |steps: &str| format!("- id: a\n  steps:\n{steps}");
    for (text, want) in [
        (steps("  - with: {}\n"), vec!["3: a step has no `call`, expected the tool's name"]),
        (steps("  - call: a b\n"), vec!["3: `call`: a tool name is 1 to 64 of [A-Za-z0-9_-], got 'a b'"]),
        (steps("  - call: t\n    with: [1]\n"), vec!["4: `with` is a list, expected a mapping (name: value)"]),
        (steps("  - call: t\n    wiht: {}\n"), vec!["4: unknown field `wiht` in a step, did you mean `with`?"]),
        (
            steps("  - call: t\n    as: a-b\n"),
            vec!["4: `as` is a name of [A-Za-z0-9_] that starts with a letter, got 'a-b'"],
        ),
        (
            steps("  - call: t\n    as: tasks\n"),
            vec!["4: `as: tasks` means something else inside {{ }}, expected another name"],
        ),
        (
            steps("  - {call: t, as: p}\n  - {call: t, as: p}\n"),
            vec!["4: `as: p` is there twice in this task, rename one"],
        ),
        (steps("  - {call: t, timeout: 0s}\n"), vec!["3: `timeout` is zero, expected a duration such as 10m"]),
        (
            "- id: a\n  tools: [read]\n  steps:\n  - call: read\n  - call: write\n".to_owned(),
            vec!["5: the step calls `write`, which is not in the task's `tools`; add it there"],
        ),
        (
            format!("- id: a\n  steps: [{}]\n", "{call: t},".repeat(MAX_STEPS + 1)),
            vec!["2: 1001 steps, expected at most 1000 in one task"],
        ),
    ] {
        assert_eq!(shown(&text), want, "{text}");
    }
    assert!(parse_tree("f", "- id: a\n  tools: ['@mcp']\n  steps:\n  - call: write\n").is_ok());
}

#[test]
fn mistakes_between_tasks_are_named_with_their_line() {
    for (text, want) in [
        (
            "- {id: a, goal: x}\n- {id: a, goal: x}\n",
            vec!["2: the id `a` is there twice, first on line 1; ids are unique in a tree"],
        ),
        (
            "- {id: fetch_page, goal: x}\n- id: b\n  goal: x\n  depends_on:\n  - fetch_pag\n  - zzz\n",
            vec![
                "5: `depends_on` names `fetch_pag`, but there is no task of this id, did you mean `fetch_page`?",
                "6: `depends_on` names `zzz`, but there is no task of this id",
            ],
        ),
        ("- {id: a, goal: x, depends_on: [a]}\n", vec!["1: tasks wait for each other in a circle: a -> a"]),
        (
            "- {id: a, goal: x, depends_on: [b]}\n- {id: b, goal: x, depends_on: [c]}\n- {id: c, goal: x, depends_on: [a]}\n- {id: d, goal: x, depends_on: [a]}\n",
            vec!["1: tasks wait for each other in a circle: a -> b -> c -> a"],
        ),
        (
            "- {id: a, goal: x, depends_on: [b]}\n- {id: b, goal: x, depends_on: [a]}\n- {id: c, goal: x, depends_on: [d]}\n- {id: d, goal: x, depends_on: [c]}\n",
            vec![
                "1: tasks wait for each other in a circle: a -> b -> a",
                "3: tasks wait for each other in a circle: c -> d -> c",
            ],
        ),
        (
            "- id: p\n  children:\n  - id: c\n    goal: x\n    depends_on: [p]\n",
            vec![
                "5: tasks wait for each other in a circle: c -> p -> c; a task ends after its children and they start after it",
            ],
        ),
        (
            "- id: p\n  depends_on: [c]\n  children:\n  - {id: c, goal: x}\n",
            vec![
                "2: tasks wait for each other in a circle: p -> c -> p; a task ends after its children and they start after it",
            ],
        ),
        (
            "- id: p\n  children:\n  - id: c\n    goal: x\n    depends_on: [other]\n- {id: other, goal: x, depends_on: [p]}\n",
            vec![
                "5: tasks wait for each other in a circle: c -> other -> p -> c; a task ends after its children and they start after it",
            ],
        ),
    ] {
        assert_eq!(shown(text), want, "{text}");
    }
}

#[test]
fn expressions_speak_of_what_is_there_by_then() {
    let one = |with: &str| {
        format!(
            "- id: a\n  steps:\n  - {{call: t, as: paper}}\n  - call: t\n    with:\n      x: {with}\n    as: mine\n  - {{call: t, as: later}}\n- {{id: b, goal: g}}\n"
        )
    };
    for (text, want) in [
        (one("'{{ paper.text }}'"), vec![]),
        (one("'{{ paper.text | upper }} and {{ range(3) }}{% for i in paper.list %}{{ i }}{% endfor %}'"), vec![]),
        (one("'{{ papr.text }}'"), vec!["6: `with.x`: `papr` is no result of an earlier step, did you mean `paper`?"]),
        (
            one("[1, {y: '{{ mine.text }}'}]"),
            vec!["6: `with.x[1].y`: `mine` is not there yet, its step comes later or is this one"],
        ),
        (one("'{{ later }}'"), vec!["6: `with.x`: `later` is not there yet, its step comes later or is this one"]),
        (
            one("'{{ tasks.b.paper }}'"),
            vec!["6: `with.x` uses `tasks.b`, but does not wait for it; add b to this task's `depends_on`"],
        ),
        (
            one("'{{ tasks.bb.paper }}'"),
            vec!["6: `with.x` uses `tasks.bb`, but there is no task of this id, did you mean `b`?"],
        ),
        (
            one("'{{ tasks.a.paper }}'"),
            vec![
                "6: `with.x` uses `tasks.a`, its own result; an earlier step of the same task is named without `tasks.`",
            ],
        ),
        (
            "- id: p\n  children:\n  - id: a\n    steps: [{call: t, with: {x: '{{ tasks.p.x }}'}}]\n".to_owned(),
            vec!["4: `with.x` uses `tasks.p`, the task around this one, which is done only after it"],
        ),
        (
            "- id: a\n  steps: [{call: t, with: {x: '{{ q }}'}}]\n".to_owned(),
            vec!["2: `with.x`: `q` is no result of an earlier step, there is none with `as`"],
        ),
    ] {
        let got: Vec<String> = match parse_tree("f", &text) {
            Ok(_) => Vec::new(),
            Err(_) => shown(&text),
        };
        assert_eq!(got, want, "{text}");
    }
    let broken = shown(&one("'{{ paper. }}'"));
    assert_eq!(broken.len(), 1);
    assert!(broken[0].starts_with("6: `with.x`: syntax error"), "{broken:?}");
}

#[test]
fn whatever_has_ended_before_may_be_used() {
    // c waits for b, b for a; d sits in a parent that waits for c; c is a parent itself, so its child has ended with it.
    let text = "- {id: a, goal: g}\n- {id: b, goal: g, depends_on: [a]}\n- id: c\n  depends_on: [b]\n  children: [{id: inner, goal: g}]\n- id: p\n  depends_on: [c]\n  children:\n  - id: d\n    steps: [{call: t, with: {x: '{{ tasks.a.x }} {{ tasks.inner.x }} {{ tasks.c.x }}'}}]\n";
    parse_tree("f", text).unwrap();
}

#[test]
fn every_mistake_of_a_file_is_reported_at_once() {
    let text = "mod: x\ntasks:\n- id: a\n  timeout: [1]\n  steps:\n  - call: t\n    with: {x: '{{ q }}'}\n- id: a\n  goal: g\n  depends_on: [zzz]\n";
    assert_eq!(
        shown(text),
        [
            "1: unknown field `mod` in the task tree, did you mean `mode`?",
            "4: `timeout` is a list, expected a duration such as 10m",
            "7: `with.x`: `q` is no result of an earlier step, there is none with `as`",
            "8: the id `a` is there twice, first on line 3; ids are unique in a tree",
            "10: `depends_on` names `zzz`, but there is no task of this id",
        ]
    );
}

#[test]
fn limits_are_answers() {
    let many = |count: usize| (0..count).map(|i| format!("- {{id: t{i}, goal: g}}\n")).collect::<String>();
    assert_eq!(parse_tree("f", &many(MAX_TASKS)).unwrap().tasks.len(), MAX_TASKS);
    assert_eq!(shown(&many(MAX_TASKS + 5)), ["10001: too many tasks, expected at most 10000 in one tree"]);
    assert_eq!(shown(&" ".repeat(MAX_FILE_BYTES + 1)), ["1: the file has 4194305 bytes, expected at most 4194304"]);
}

#[test]
fn a_chain_of_ten_thousand_tasks_is_read_without_recursion() {
    let mut text = "- {id: t0, goal: g}\n".to_owned();
    for i in 1..MAX_TASKS {
        text.push_str(&format!("- {{id: t{i}, goal: g, depends_on: [t{}]}}\n", i - 1));
    }
    assert_eq!(parse_tree("f", &text).unwrap().tasks.len(), MAX_TASKS);
    let closed = text.replacen("{id: t0, goal: g}", "{id: t0, goal: g, depends_on: [t9999]}", 1);
    let problems = shown(&closed);
    assert_eq!(problems.len(), 1);
    assert!(
        problems[0].starts_with("1: tasks wait for each other in a circle: t0 -> t9999 -> t9998 ->"),
        "{problems:?}"
    );
    assert!(problems[0].ends_with("-> ..."), "{problems:?}");
}

/// Trees whose references are mostly right, so that the checks between tasks are reached.
fn nearly_a_tree() -> impl Strategy<Value = String> {
    let id = prop::sample::select(vec!["a", "b", "c", "d", "e"]);
    let extra = prop::sample::select(vec![
        "",
        "  goal: g\n",
        "  steps: [{call: t, as: p}, {call: t, with: {x: '{{ p.text }}'}}]\n",
        "  steps: [{call: t, with: {x: '{{ tasks.a.p }}'}}]\n",
        "  tools: [t]\n",
        "  retry: 3\n",
        "  children: [{id: k, goal: g, depends_on: [a]}]\n",
        "  children: [{id: m, steps: [{call: t, with: {y: ['{% if']}}]}]\n",
        "  client: \u{e9}\n",
        "  ? x\n",
    ]);
    let task = (id.clone(), prop::collection::vec(id, 0..3), prop::collection::vec(extra, 0..3)).prop_map(
        |(id, depends, extra)| format!("- id: {id}\n  depends_on: [{}]\n{}", depends.join(", "), extra.concat()),
    );
    prop::collection::vec(task, 0..7).prop_map(|tasks| tasks.concat())
}

/// Runs a tree on paper: a task starts when what it waits for is done, and ends with its children.
fn runs_to_the_end(tree: &TreeSpec) -> bool {
    let (mut started, mut done) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
    loop {
        let before = (started.len(), done.len());
        for task in &tree.tasks {
            let free = task.depends_on.iter().all(|d| done.contains(d))
                && task.parent.as_ref().is_none_or(|p| started.contains(p));
            if free {
                started.insert(task.id.clone());
            }
            let children_done =
                tree.tasks.iter().filter(|c| c.parent.as_ref() == Some(&task.id)).all(|c| done.contains(&c.id));
            if started.contains(&task.id) && children_done {
                done.insert(task.id.clone());
            }
        }
        if (started.len(), done.len()) == before {
            return done.len() == tree.tasks.len();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(1500), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_tree_that_is_taken_can_run_and_problems_lie_within_the_file(text in prop_oneof![nearly_a_tree(), ".{0,60}".prop_map(|s| s)]) {
        match parse_tree("f", &text) {
            Ok(tree) => prop_assert!(runs_to_the_end(&tree), "{text}"),
            Err(problems) => {
                let lines = u32::try_from(text.lines().count().max(1)).unwrap();
                prop_assert!(!problems.is_empty());
                for problem in problems {
                    prop_assert!(problem.line >= 1 && problem.line <= lines, "{problem}\n{text}");
                }
            }
        }
    }

    #[test]
    fn only_a_circle_is_called_one(edges in prop::collection::vec((0usize..6, 0usize..6), 0..8), parents in prop::collection::vec(0usize..3, 6)) {
        // Tasks 0..3 are roots, 3..6 children of one of them.
        let mut text = String::new();
        let depends = |task: usize| edges.iter().filter(|(a, _)| *a == task).map(|(_, b)| format!("t{b}")).collect::<Vec<_>>().join(", ");
        let mut tree = TreeSpec { session: None, mode: Mode::Interactive, engine: None, tasks: Vec::new() };
        for root in 0..3 {
            text.push_str(&format!("- id: t{root}\n  goal: g\n  depends_on: [{}]\n", depends(root)));
            let children: Vec<usize> = (3..6).filter(|c| parents[*c] == root).collect();
            if !children.is_empty() {
                text.push_str("  children:\n");
            }
            for child in children {
                text.push_str(&format!("  - {{id: t{child}, goal: g, depends_on: [{}]}}\n", depends(child)));
            }
        }
        for (task, parent) in parents.iter().enumerate() {
            let spec = json!({"id": format!("t{task}"), "parent": (task >= 3).then(|| format!("t{parent}")),
                "depends_on": edges.iter().filter(|(a, _)| *a == task).map(|(_, b)| format!("t{b}")).collect::<Vec<_>>()});
            tree.tasks.push(serde_json::from_value(spec).unwrap());
        }
        prop_assert_eq!(parse_tree("f", &text).is_ok(), runs_to_the_end(&tree), "{}", text);
    }
}

#[test]
fn what_is_about_calls_is_refused_at_a_task_without_any() {
    let text = "- id: a\n  client: lap\n  retry: {max_attempts: 2}\n  timeout: 1m\n  children:\n  - {id: b, goal: x, client: lap}\n";
    let problems: Vec<String> = parse_tree("f", text).unwrap_err().iter().map(ToString::to_string).collect();
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems[0].starts_with("f:2: `client` is about a task's own steps"), "{problems:?}");
    assert!(problems[1].starts_with("f:3: `retry`"), "{problems:?}");
}

#[test]
fn a_hyphen_in_an_id_is_written_as_a_subscript() {
    let of = |reference: &str| {
        format!(
            "- {{id: my-task, steps: [{{call: now, as: r}}]}}\n- id: b\n  depends_on: [my-task]\n  steps:\n  - call: task_note\n    with: {{text: \"{{{{ {reference} }}}}\"}}\n"
        )
    };
    assert!(parse_tree("f", &of("tasks['my-task'].r.text")).is_ok());
    let problems = parse_tree("f", &of("tasks.my-task.r.text")).unwrap_err();
    assert!(problems.iter().any(|problem| problem.to_string().contains("write tasks['my-task']")), "{problems:?}");
}

#[test]
fn max_parallel_limits_a_tree_or_what_is_below_a_task() {
    let text =
        "max_parallel: 4\ntasks:\n- id: a\n  max_parallel: 2\n  children:\n  - {id: b, goal: x}\n- {id: c, goal: x}\n";
    let tree = parse_tree("f", text).unwrap();
    let limits: Vec<_> = tree.tasks.iter().map(|t| (t.id.as_str(), t.max_parallel, t.tree_max_parallel)).collect();
    assert_eq!(limits, [("a", Some(2), Some(4)), ("b", None, Some(4)), ("c", None, Some(4))]);
    for (text, want) in [
        ("max_parallel: 0\ntasks:\n- {id: a, goal: x}\n", "f:1: "),
        ("- id: a\n  goal: x\n  max_parallel: 2\n", "f:3: `max_parallel` limits what is below a task"),
    ] {
        let problems = parse_tree("f", text).unwrap_err();
        assert!(problems[0].to_string().starts_with(want), "{problems:?}");
    }
}

#![allow(clippy::unwrap_used, clippy::expect_used)]

use vance_shared::launch::Origin;

use super::*;
use crate::config::{ToolPacks, parse_config};
use crate::merge::{PackFile, merge};
use crate::select::{Selected, select};

fn pack(name: &str, program: &str, more: &str) -> String {
    format!(
        r#"{{"name":"{name}",{more}"type":"mcp_server","parameters":{{"transport":"stdio","command":["{program}"]}}}}"#
    )
}

fn level(origin: Origin, files: &[(&str, String)]) -> Merged {
    let folder = if origin == Origin::Project { "/p" } else { "/h" };
    merge(files.iter().map(|(file, text)| PackFile {
        file: format!("{folder}/{file}.json"),
        text: text.clone(),
        origin,
    }))
}

fn laid(global: &[(&str, String)], project: &[(&str, String)]) -> Levels {
    levels(level(Origin::Global, global), level(Origin::Project, project))
}

/// `name program (fallback)`, in order.
fn wanted(levels: Levels, config: &ToolPacks) -> (Vec<String>, Selected) {
    let selected = select(levels.packs, config, &levels.failed);
    let program = |plan: &vance_shared::launch::LaunchPlan| vance_shared::gate::reach(plan);
    let shown = selected
        .wanted
        .iter()
        .map(|w| {
            let fallback = w.fallback.as_ref().map(|plan| format!(" ({})", program(plan))).unwrap_or_default();
            format!("{} {}{fallback}", w.plan.pack, program(&w.plan))
        })
        .collect();
    (shown, selected)
}

#[test]
fn the_levels_are_one_list_and_the_project_wins() {
    let global = [
        ("chrome", pack("chrome", "g1", "")),
        ("jira", pack("jira", "g2", "")),
        ("off", pack("off", "g3", "\"enabled\":false,")),
    ];
    for (why, project, want, notices) in [
        ("no project level", vec![], vec!["chrome g1", "jira g2"], 0),
        ("contributes", vec![("x", pack("x", "p", ""))], vec!["chrome g1", "jira g2", "x p"], 0),
        ("redirects", vec![("y", pack("chrome", "p", ""))], vec!["chrome p (g1)", "jira g2"], 0),
        ("turns off", vec![("y", "{\"name\":\"jira\",\"enabled\":false}".to_owned())], vec!["chrome g1"], 1),
        ("turns off what is off", vec![("y", pack("off", "p", "\"enabled\":false,"))], vec!["chrome g1", "jira g2"], 0),
        ("redirects what is off", vec![("y", pack("off", "p", ""))], vec!["chrome g1", "jira g2", "off p"], 0),
        ("another case is another name", vec![("y", pack("Jira", "p", ""))], vec!["chrome g1", "jira g2", "Jira p"], 0),
    ] {
        let levels = laid(&global, &project);
        assert_eq!(levels.notices.len(), notices, "{why}");
        assert_eq!(wanted(levels, &ToolPacks::default()).0, want, "{why}");
    }
    let notice = laid(&global, &[("y", pack("jira", "p", "\"enabled\":false,"))]).notices;
    assert_eq!(
        notice,
        [
            "this project turns off your global pack 'jira' (/p/y.json); \"projectOverride\": \"forbid\" in /h/jira.json would keep it"
        ]
    );
}

#[test]
fn a_global_pack_can_forbid_both() {
    let global = [("jira", pack("jira", "g", "\"projectOverride\":\"forbid\","))];
    for (project, reason) in [
        (
            pack("jira", "p", ""),
            "would redirect your global pack 'jira', but /h/jira.json says \"projectOverride\": \"forbid\"",
        ),
        (
            pack("jira", "p", "\"enabled\":false,"),
            "would turn off your global pack 'jira', but /h/jira.json says \"projectOverride\": \"forbid\"",
        ),
    ] {
        let levels = laid(&global, &[("y", project)]);
        assert_eq!(levels.skipped, [LeftOut { pack: "jira".into(), file: "/p/y.json".into(), reason: reason.into() }]);
        assert_eq!((levels.notices.len(), wanted(levels, &ToolPacks::default()).0), (0, vec!["jira g".to_owned()]));
    }
    // Only a pack of the user's own can say so.
    let levels = laid(&[], &[("a", pack("jira", "p", "\"projectOverride\":\"forbid\","))]);
    assert_eq!((levels.packs.len(), levels.failed.len()), (0, 1));
}

#[test]
fn a_broken_project_file_does_not_take_a_global_pack_away() {
    let levels = laid(
        &[("jira", pack("jira", "g", ""))],
        &[("y", "{\"name\": \"jira\", \"type\": \"x\"}".to_owned()), ("z", "{".to_owned())],
    );
    assert_eq!(levels.failed.len(), 2);
    assert!(levels.failed[0].reason.ends_with("; your global pack of that name stays active"), "{:?}", levels.failed);
    assert!(!levels.failed[1].reason.contains("stays active"));
    assert!(!levels.problems.is_empty());
    assert_eq!(wanted(levels, &ToolPacks::default()).0, ["jira g"]);
}

#[test]
fn of_two_project_packs_with_one_name_the_first_counts() {
    let levels =
        laid(&[("jira", pack("jira", "g", ""))], &[("a", pack("jira", "p1", "")), ("b", pack("jira", "p2", ""))]);
    assert_eq!((levels.failed.len(), wanted(levels, &ToolPacks::default()).0), (1, vec!["jira p1 (g)".to_owned()]));
}

#[test]
fn enabled_comes_before_the_selection_and_both_give_reasons() {
    let config = parse_config("config.yaml", "toolPacks: {packs: [a, b, brken], disabledPacks: [b]}").tool_packs;
    let levels = laid(
        &[("a", pack("a", "g", "\"enabled\":false,")), ("b", pack("b", "g", "")), ("broken", "{".to_owned())],
        &[("c", pack("c", "p", ""))],
    );
    let (shown, selected) = wanted(levels, &config);
    assert_eq!(shown, Vec::<String>::new());
    let reasons: Vec<_> = selected.skipped.iter().map(|l| format!("{} {}: {}", l.pack, l.file, l.reason)).collect();
    assert_eq!(
        reasons,
        [
            "a /h/a.json: \"enabled\" is false in the pack file",
            "b /h/b.json: config.yaml:1 lists it in `toolPacks.disabledPacks`",
            "c /p/c.json: not in the list `toolPacks.packs` of config.yaml:1",
        ]
    );
    let warnings: Vec<_> = selected.warnings.iter().map(ToString::to_string).collect();
    assert_eq!(
        warnings,
        ["config.yaml:1: 'brken' in `toolPacks.packs` is no pack that was found, did you mean 'broken'?"],
        "a file that could not be read may be meant"
    );
}

#[test]
fn a_selection_that_wants_a_name_wants_whichever_level_has_it() {
    let config = parse_config("config.yaml", "toolPacks: {packs: [a]}").tool_packs;
    let levels = laid(&[("a", pack("a", "g", "")), ("b", pack("b", "g", ""))], &[("a", pack("a", "p", ""))]);
    assert_eq!(wanted(levels, &config).0, ["a p (g)"]);
}

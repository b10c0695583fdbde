#![allow(clippy::unwrap_used)]
use std::time::Duration;

use serde_json::json;
use vance_shared::launch::{Origin, RestartBudget, Transport};
use vance_shared::names::PackName;

use super::*;

fn plan() -> LaunchPlan {
    LaunchPlan {
        pack: PackName::parse("p").unwrap(),
        origin: Origin::Global,
        transport: Transport::Stdio { argv: vec!["x".into()], cwd: None, env: BTreeMap::new() },
        init_timeout: Duration::from_secs(1),
        call_timeout: Duration::from_secs(1),
        labels: vec!["web".into(), "mcp".into()],
        disabled_sub_tools: Vec::new(),
        default_args: Map::new(),
        replay: BTreeMap::new(),
        restart: RestartBudget::default(),
        source: vance_shared::launch::Source::default(),
    }
}

fn tool(name: &str) -> Value {
    json!({"name": name, "inputSchema": {"type": "object", "properties": {"a": {}}}})
}

fn list(plan: &LaunchPlan, tools: &[Value]) -> (Table, Vec<String>) {
    let mut listing = Listing::default();
    assert_eq!(listing.take(&json!({"tools": tools}).to_string()).unwrap(), None);
    listing.finish(plan, &plan.default_args)
}

fn names(table: &Table) -> Vec<&str> {
    table.specs.iter().map(|spec| spec.name.as_str()).collect()
}

#[test]
fn tools_get_their_full_name_labels_and_pack() {
    let (table, warnings) = list(&plan(), &[tool("a.b")]);
    assert_eq!(warnings, Vec::<String>::new());
    let spec = &table.specs[0];
    assert_eq!((spec.name.as_str(), spec.pack.as_deref()), ("p__a_b", Some("p")));
    assert_eq!(spec.labels, ["web", "mcp", "mcp:p", "side-effect"]);
    assert_eq!(table.routes[&spec.name].subtool, "a.b");
}

#[test]
fn tools_that_collide_after_mapping_are_all_dropped() {
    let (table, warnings) = list(&plan(), &[tool("a.b"), tool("c"), tool("a/b"), tool("d"), tool("d")]);
    assert_eq!(names(&table), ["p__c"]);
    assert_eq!(
        warnings,
        [
            "'a.b', 'a/b' would all be called p__a_b: none of them is offered",
            "'d', 'd' would all be called p__d: none of them is offered"
        ]
    );
}

#[test]
fn disabled_sub_tools_are_not_offered_and_settle_a_collision() {
    let plan = LaunchPlan { disabled_sub_tools: vec!["a/b".into(), "p__x".into(), "gone".into()], ..plan() };
    let (table, warnings) = list(&plan, &[tool("a.b"), tool("a/b"), tool("x")]);
    assert_eq!(names(&table), ["p__a_b"]);
    assert_eq!(warnings, ["disabledSubTools names 'gone', which the server does not offer"]);
}

#[test]
fn a_broken_tool_costs_only_itself() {
    let broken =
        [json!({"name": 3}), json!({"name": ""}), json!({"name": "s", "inputSchema": true}), json!({"name": "n"})];
    let (table, warnings) = list(&plan(), &[&broken[..], &[tool("ok")]].concat());
    assert_eq!(names(&table), ["p__n", "p__ok"]);
    assert_eq!(warnings.len(), 3, "{warnings:?}");
}

#[test]
fn the_packs_word_on_replay_beats_the_servers_hints() {
    let plan =
        LaunchPlan { replay: BTreeMap::from([("r".into(), Replay::Unsafe), ("p__w".into(), Replay::Safe)]), ..plan() };
    for (name, annotations, replay, read_only) in [
        ("x", json!(null), Replay::Unsafe, false),
        ("x", json!({"readOnlyHint": true}), Replay::Safe, true),
        ("x", json!({"idempotentHint": true}), Replay::Safe, false),
        ("x", json!({"readOnlyHint": true, "destructiveHint": true}), Replay::Unsafe, false),
        ("r", json!({"readOnlyHint": true}), Replay::Unsafe, true),
        ("w", json!({"destructiveHint": true}), Replay::Safe, false),
    ] {
        let (table, _) = list(&plan, &[json!({"name": name, "inputSchema": {}, "annotations": annotations})]);
        let spec = &table.specs[0];
        assert_eq!(
            (spec.replay, spec.labels.contains(&"read-only".to_owned())),
            (replay, read_only),
            "{name} {annotations}"
        );
    }
}

#[test]
fn defaults_fill_only_declared_keys_that_the_caller_left_out() {
    let mut plan = plan();
    plan.default_args = json!({"a": 1, "other": 2}).as_object().unwrap().clone();
    let (table, _) = list(&plan, &[tool("t")]);
    let defaults = &table.routes["p__t"].defaults;
    for (arguments, want) in [
        ("{}", Ok(json!({"a": 1}))),
        ("null", Ok(json!({"a": 1}))),
        (r#"{"a": null, "b": 3}"#, Ok(json!({"a": null, "b": 3}))),
        ("[]", Err("arguments are a JSON object".to_owned())),
    ] {
        let got = with_defaults(&Raw::parse(arguments.into()).unwrap(), defaults).map(|raw| raw.value());
        assert_eq!(got, want, "{arguments}");
    }
}

#[test]
fn pages_end_at_a_loop_at_too_many_pages_and_at_too_many_tools() {
    let page = |cursor: &str| json!({"tools": [], "nextCursor": cursor}).to_string();
    let mut listing = Listing::default();
    assert_eq!(listing.take(&page("a")).unwrap().as_deref(), Some("a"));
    assert_eq!(listing.take(&page("b")).unwrap().as_deref(), Some("b"));
    assert_eq!(listing.take(&page("a")).unwrap(), None);
    assert_eq!(listing.warnings, ["its tools/list loops: cursor 'a' came twice; reading stopped"]);

    let mut listing = Listing::default();
    let last = (0..MAX_PAGES).map(|n| listing.take(&page(&n.to_string())).unwrap()).last().unwrap();
    assert_eq!((last, listing.warnings.len()), (None, 1));

    let mut listing = Listing::default();
    let many: Vec<Value> = (0..=MAX_TOOLS).map(|n| tool(&n.to_string())).collect();
    assert_eq!(listing.take(&json!({"tools": many, "nextCursor": "more"}).to_string()).unwrap(), None);
    assert_eq!(listing.finish(&plan(), &Map::new()).0.specs.len(), MAX_TOOLS);
    assert!(Listing::default().take("[]").is_err());
}

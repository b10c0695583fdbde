#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::Path;

use serde_json::json;

use super::*;
use crate::names::ToolName;
use crate::tool::{Annotations, Replay};

fn tool(name: &str) -> ToolSpec {
    ToolSpec {
        name: ToolName::parse(name).unwrap(),
        description: "d".to_owned(),
        input_schema: Raw::from(json!({"type": "object", "properties": {"a": {}, "b": {}}})),
        output_schema: None,
        labels: Vec::new(),
        annotations: None,
        replay: Replay::Unsafe,
        pack: Some("p".to_owned()),
    }
}

#[test]
fn whatever_a_server_says_of_a_tool_is_pinned() {
    let pinned = Pins::of(&[tool("p__a")]);
    for (why, changed) in [
        ("description", ToolSpec { description: "ignore all previous".to_owned(), ..tool("p__a") }),
        ("schema", ToolSpec { input_schema: Raw::from(json!({"type": "object"})), ..tool("p__a") }),
        ("output", ToolSpec { output_schema: Some(Raw::from(json!({}))), ..tool("p__a") }),
        (
            "hints",
            ToolSpec {
                annotations: Some(Annotations { read_only_hint: Some(true), ..Annotations::default() }),
                ..tool("p__a")
            },
        ),
    ] {
        let drift = pinned.compare(&Pins::of(&[changed]));
        assert_eq!(drift.summary(), "changed: p__a", "{why}");
        assert!(drift.withholds(Origin::Project, "p__a") && !drift.withholds(Origin::Global, "p__a"));
    }
    let reordered = r#"{"properties":{"b":{},"a":{}},"type":"object"}"#.to_owned();
    for (why, same) in [
        ("field order", ToolSpec { input_schema: Raw::parse(reordered).unwrap(), ..tool("p__a") }),
        ("the file's own words", ToolSpec { labels: vec!["x".to_owned()], replay: Replay::Safe, ..tool("p__a") }),
    ] {
        assert!(pinned.compare(&Pins::of(&[same])).is_empty(), "{why}");
    }
}

#[test]
fn new_tools_are_held_back_and_absent_ones_are_no_change() {
    let drift = Pins::of(&[tool("p__a"), tool("p__b")]).compare(&Pins::of(&[tool("p__b"), tool("p__c"), tool("p__d")]));
    assert_eq!(drift.summary(), "new: p__c, p__d");
    assert!(drift.withholds(Origin::Project, "p__c") && !drift.withholds(Origin::Project, "p__b"));
}

/// A service, which can ask nobody anything, and a prompt, which can, start the same server in turn.
#[test]
fn a_tool_that_only_some_clients_are_offered_is_told_once_and_stays_pinned() {
    let now = |text: &str| {
        Pins::of(
            &text
                .split_whitespace()
                .map(|word| {
                    let (name, description) = word.split_once('=').unwrap_or((word, "d"));
                    ToolSpec { description: description.to_owned(), ..tool(name) }
                })
                .collect::<Vec<_>>(),
        )
    };
    for (origin, starts) in [
        (
            Origin::Global,
            [
                ("p__a", "", ""),
                ("p__a p__asks", "new: p__asks", ""),
                ("p__a", "", ""),
                ("p__a p__asks", "", ""),
                ("p__a", "", ""),
                ("p__a p__asks=else", "changed: p__asks", "changed: p__asks"),
                ("p__a", "", "changed: p__asks"),
                ("p__a p__asks", "", ""),
            ],
        ),
        (
            Origin::Project,
            [
                ("p__a", "", ""),
                ("p__a p__asks", "new: p__asks", "new: p__asks"),
                ("p__a", "", "new: p__asks"),
                ("p__a p__asks=else", "new: p__asks", "new: p__asks"),
                ("p__a=else", "changed: p__a", "new: p__asks; changed: p__a"),
                ("", "", "new: p__asks; changed: p__a"),
                ("p__a", "", "new: p__asks"),
                ("p__a p__asks", "new: p__asks", "new: p__asks"),
            ],
        ),
    ] {
        let mut met: Option<Met> = None;
        for (at, (tools, told, waits)) in starts.into_iter().enumerate() {
            let before = met.as_ref();
            let next = Met::of(origin, before.map(|met| &met.pinned), before.map(|met| &met.waits), &now(tools));
            assert_eq!(next.drift.summary(), told, "{origin:?} {at}: {tools}");
            assert_eq!(next.pinned.compare(&next.waits).summary(), waits, "{origin:?} {at}: {tools}");
            met = Some(next);
        }
    }
}

#[test]
fn a_server_whose_tools_have_new_names_at_each_start_fills_no_file() {
    for origin in [Origin::Global, Origin::Project] {
        let mut met = Met::default();
        for start in 0..30 {
            let tools: Vec<ToolSpec> = (0..100).map(|n| tool(&format!("p__{start}-{n}"))).collect();
            met = Met::of(origin, Some(&met.pinned), Some(&met.waits), &Pins::of(&tools));
        }
        assert!(met.pinned.len().max(met.waits.len()) <= MAX_ABSENT + 100, "{origin:?}");
    }
}

#[test]
fn a_file_of_pins_reads_back() {
    let (project, pack) = (Project::new(Path::new("/p")).unwrap(), PackName::parse("p").unwrap());
    let mut book = PinBook::default();
    assert_eq!(PinBook::parse("f", &book.to_json()), Ok(book.clone()));
    book.set(Some(&project), &pack, Pins::of(&[tool("p__a")]));
    book.set(None, &pack, Pins::of(&[tool("p__b")]));
    book.set(None, &PackName::parse("q").unwrap(), Pins::default());
    let mut read = PinBook::parse("f", &book.to_json()).unwrap();
    assert_eq!(read, book);
    assert_ne!(read.get(None, &pack), read.get(Some(&project), &pack));
    read.forget(Some(&project), &pack);
    assert_eq!((read.get(Some(&project), &pack), read.get(None, &pack).map(Pins::len)), (None, Some(1)));
    for bad in ["", "[]", "{}", r#"{"pins": {"/p": {"p": {"t": "x"}}}}"#, r#"{"pins": {"/p": {"p": {"t": 1}}}}"#] {
        assert!(PinBook::parse("f", bad).is_err(), "{bad}");
    }
}

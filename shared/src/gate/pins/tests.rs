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
fn new_tools_are_held_back_and_gone_ones_are_told() {
    let drift = Pins::of(&[tool("p__a"), tool("p__b")]).compare(&Pins::of(&[tool("p__b"), tool("p__c"), tool("p__d")]));
    assert_eq!(drift.summary(), "new: p__c, p__d; gone: p__a");
    assert!(drift.withholds(Origin::Project, "p__c") && !drift.withholds(Origin::Project, "p__b"));
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

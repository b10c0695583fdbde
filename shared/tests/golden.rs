//! Every frame of the wire has a golden file: what both ends agree on, as bytes that a review can see change.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde_json::Value;
use vance_shared::wire::{Decoded, ToBrain, ToFoot, decode_to_brain, decode_to_foot, encode};

fn golden() -> BTreeMap<String, String> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/wire/golden");
    let files = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    files
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read_to_string(path).unwrap()))
        .collect()
}

fn value(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// The type's name for each variant. A new variant does not compile until it has its word here, and fails until it has its file.
fn words_to_brain(frame: &ToBrain) -> &'static str {
    match frame {
        ToBrain::ClientConnected(_) => "client_connected",
        ToBrain::ToolsChanged(_) => "tools_changed",
        ToBrain::Accepted(_) => "accepted",
        ToBrain::Progress(_) => "progress",
        ToBrain::Result(_) => "result",
        ToBrain::ResultPart(_) => "result_part",
        ToBrain::Elicit(_) => "elicit",
        ToBrain::ElicitEnd(_) => "elicit_end",
        ToBrain::ElicitReply(_) => "elicit_reply",
        ToBrain::BlobPart(_) => "blob_part",
        ToBrain::Ping(_) => "ping",
        ToBrain::Pong(_) => "pong",
        ToBrain::Drain(_) => "drain",
        ToBrain::Error(_) => "error",
    }
}

fn words_to_foot(frame: &ToFoot) -> &'static str {
    match frame {
        ToFoot::Welcome(_) => "welcome",
        ToFoot::Call(_) => "call",
        ToFoot::ResultAck(_) => "result_ack",
        ToFoot::Cancel(_) => "cancel",
        ToFoot::ElicitReply(_) => "elicit_reply",
        ToFoot::Elicit(_) => "elicit",
        ToFoot::ElicitEnd(_) => "elicit_end",
        ToFoot::BlobGet(_) => "blob_get",
        ToFoot::Ping(_) => "ping",
        ToFoot::Pong(_) => "pong",
        ToFoot::Drain(_) => "drain",
        ToFoot::Error(_) => "error",
    }
}

const TO_BRAIN: [&str; 14] = [
    "client_connected",
    "tools_changed",
    "accepted",
    "progress",
    "result",
    "result_part",
    "elicit",
    "elicit_end",
    "elicit_reply",
    "blob_part",
    "ping",
    "pong",
    "drain",
    "error",
];
const TO_FOOT: [&str; 12] = [
    "welcome",
    "call",
    "result_ack",
    "cancel",
    "elicit_reply",
    "elicit",
    "elicit_end",
    "blob_get",
    "ping",
    "pong",
    "drain",
    "error",
];

/// Of a type that both directions know, what only the Brain says.
const ONLY_TO_FOOT: [&str; 1] = ["elicit_shown"];

#[test]
fn each_golden_frame_decodes_and_encodes_to_itself() {
    let mut seen = BTreeSet::new();
    for (name, text) in golden() {
        let kind = value(&text)["type"].as_str().unwrap().to_owned();
        let again = match (TO_BRAIN.contains(&kind.as_str()), TO_FOOT.contains(&kind.as_str())) {
            (true, false) => to_brain(&name, &text),
            (false, true) => to_foot(&name, &text),
            (true, true) if ONLY_TO_FOOT.contains(&name.as_str()) => to_foot(&name, &text),
            (true, true) => {
                assert_eq!(to_foot(&name, &text), to_brain(&name, &text), "{name}");
                to_foot(&name, &text)
            }
            (false, false) => panic!("{name}: type {kind} is not of the wire"),
        };
        assert!(name.starts_with(&kind), "{name} holds a {kind}");
        if name != "client_connected_document" {
            assert_eq!(value(&again), value(&text), "{name}");
        }
        seen.insert(kind);
    }
    for kind in TO_BRAIN.iter().chain(&TO_FOOT) {
        assert!(seen.contains(*kind), "no golden frame for {kind}");
    }
}

fn to_brain(name: &str, text: &str) -> String {
    match decode_to_brain(text) {
        Decoded::Frame(frame) => {
            assert_eq!(value(text)["type"], words_to_brain(&frame), "{name}");
            encode(&frame)
        }
        other => panic!("{name}: {other:?}"),
    }
}

fn to_foot(name: &str, text: &str) -> String {
    match decode_to_foot(text) {
        Decoded::Frame(frame) => {
            assert_eq!(value(text)["type"], words_to_foot(&frame), "{name}");
            encode(&frame)
        }
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn the_routing_documents_own_frame_is_understood_as_it_stands() {
    let text = &golden()["client_connected_document"];
    let Decoded::Frame(ToBrain::ClientConnected(hello)) = decode_to_brain(text) else { panic!("not a hello") };
    assert_eq!(hello.session_id.unwrap().as_str(), "sess_123");
    assert_eq!(hello.client_type, "desktop");
    let tools: Vec<(&str, &str, Option<&str>)> = hello
        .available_tools
        .iter()
        .map(|tool| (tool.name.as_str(), tool.kind.as_str(), tool.mcp_server.as_deref()))
        .collect();
    assert_eq!(
        tools,
        [
            ("obsidian_read_note", "mcp", Some("obsidian-mcp-tools")),
            ("shell_execute", "native", None),
            ("read_local_file", "native", None),
            ("git_status", "native", None),
        ]
    );
}

#[test]
fn unknown_fields_are_ignored_and_unknown_types_are_named() {
    for (name, text) in golden() {
        let mut more = value(&text);
        more["from_a_later_release"] = serde_json::json!({"deep": [1]});
        let kind = more["type"].as_str().unwrap().to_owned();
        let text = more.to_string();
        let read = if TO_BRAIN.contains(&kind.as_str()) {
            matches!(decode_to_brain(&text), Decoded::Frame(_))
        } else {
            matches!(decode_to_foot(&text), Decoded::Frame(_))
        };
        assert!(read, "{name}");
    }
    let Decoded::Unknown(error) = decode_to_foot(r#"{"type":"from_a_later_release"}"#) else { panic!("known?") };
    assert_eq!(error.code, "unknown_type");
    for bad in ["", "[]", "{}", "{\"type\":1}", "{\"type\":\"call\"}", "nonsense"] {
        assert!(matches!(decode_to_foot(bad), Decoded::Malformed(_)), "{bad}");
    }
}

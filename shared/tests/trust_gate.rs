//! The gate's promises for any command, any pack and any bytes.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::disallowed_methods)] // bash is the judge of what can be pasted into it

use std::process::Command;

use proptest::prelude::*;
use serde_json::{Value, json};
use vance_shared::gate::pins::PinBook;
use vance_shared::gate::{Book, FileHash, Project, audit, digest, files, quote, reach};
use vance_shared::launch::{LaunchPlan, Origin, Transport};
use vance_shared::pack::{PackBody, parse_pack};

fn plan(pack: &Value) -> LaunchPlan {
    let parsed = parse_pack("f", &pack.to_string(), Origin::Project);
    match parsed.pack.map(|pack| pack.body) {
        Some(PackBody::Launch(plan)) => plan,
        other => panic!("{other:?} {:?}", parsed.problems),
    }
}

fn of_argv(words: &[String]) -> LaunchPlan {
    let mut plan =
        plan(&json!({"name": "a", "type": "mcp_server", "parameters": {"transport": "stdio", "command": ["x"]}}));
    if let Transport::Stdio { argv, .. } = &mut plan.transport {
        *argv = words.to_vec();
    }
    plan
}

/// Words as an attacker would choose them.
fn word() -> impl Strategy<Value = String> {
    let bits = prop::sample::select(vec![
        " ",
        "'",
        "\"",
        "\\",
        "$",
        "`",
        "$(x)",
        "\n",
        "\t",
        "\u{1b}[2J",
        "\u{202e}",
        "\u{200b}",
        "é",
        "\u{1f600}",
        "a",
        "A=b",
        "-",
        "--x=",
        "./",
        "*",
        "?",
        "{a,b}",
        "~",
        "#",
        ";",
        "&",
        "|",
        "<",
        ">",
        "!",
        "\u{7f}",
        "\u{85}",
        "x4",
        "0",
        "time",
        "if",
        "$'",
    ]);
    prop_oneof!["[^\u{0}]{0,12}", prop::collection::vec(bits, 0..5).prop_map(|bits| bits.concat())]
}

fn argv() -> impl Strategy<Value = Vec<String>> {
    prop::collection::vec(word(), 1..5)
}

#[test]
fn bash_reads_back_the_words_that_are_shown() {
    use proptest::strategy::ValueTree as _;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut all = Vec::new();
    let mut script = String::new();
    for _ in 0..400 {
        let words = argv().new_tree(&mut runner).unwrap().current();
        let shown = words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ");
        assert!(shown.bytes().all(|b| (b' '..=b'~').contains(&b)), "{shown}");
        script.push_str(&format!("printf '%s\\0' {shown}\n"));
        all.extend(words);
    }
    let output = Command::new("bash").args(["--norc", "-c", &script]).env("LC_ALL", "C.UTF-8").output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut read: Vec<String> =
        output.stdout.split(|b| *b == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect();
    assert_eq!(read.pop().as_deref(), Some(""));
    assert_eq!(read, all);
}

#[test]
fn the_first_word_is_never_an_assignment_a_keyword_or_an_address() {
    for (first, want) in [
        ("https://e/mcp", "'https://e/mcp' x"),
        ("A=b", "'A=b' x"),
        ("if", "'if' x"),
        ("time", "'time' x"),
        ("node", "node x"),
        ("", "'' x"),
    ] {
        assert_eq!(reach(&of_argv(&[first.to_owned(), "x".to_owned()])), want);
    }
}

/// A pack with every field that a stdio pack has.
fn whole() -> Value {
    json!({
        "name": "a", "type": "mcp_server", "description": "d", "labels": ["l"], "disabledSubTools": ["s"],
        "parameters": {
            "transport": "stdio", "command": ["node", "/x.js"], "cwd": ".", "env": {"A": "b"}, "timeoutSeconds": 5,
            "initTimeoutSeconds": 7, "defaultArgs": {"k": [1, {"z": null}]}, "replay": {"r": "unsafe"},
            "restart": {"maxRestarts": 2, "windowSeconds": 9}
        }
    })
}

/// Paths of all leaves.
fn leaves(value: &Value, at: String, out: &mut Vec<String>) {
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| leaves(value, format!("{at}/{key}"), out)),
        Value::Array(items) => items.iter().enumerate().for_each(|(i, value)| leaves(value, format!("{at}/{i}"), out)),
        _ => out.push(at),
    }
}

#[test]
fn the_digest_differs_when_any_field_differs() {
    let base = digest(&plan(&whole()), &[]);
    let mut paths = Vec::new();
    leaves(&whole(), String::new(), &mut paths);
    let mut seen = vec![base];
    for path in &paths {
        let mut changed = whole();
        let slot = changed.pointer_mut(path).unwrap();
        *slot = match &*slot {
            // Words that only have one other meaning keep the pack valid in another way.
            Value::String(text) if text == "mcp_server" || text == "stdio" => continue,
            Value::String(text) if text == "unsafe" => json!("safe"),
            Value::String(text) => json!(format!("{text}x")),
            Value::Number(number) => json!(number.as_u64().unwrap() + 1),
            _ => json!("something"),
        };
        let digest = digest(&plan(&changed), &[]);
        assert!(!seen.contains(&digest), "{path}");
        seen.push(digest);
    }
    assert!(seen.len() > 12);
    let mut same = whole();
    same["enabled"] = json!(true);
    assert_eq!(digest(&plan(&same), &[]), base, "turning a pack off and on asks nothing");
    let file = |path: &str, text: &str| FileHash::read(path, text.as_bytes()).unwrap();
    let sets = [
        vec![],
        vec![file("a", "1")],
        vec![file("a", "2")],
        vec![file("b", "1")],
        vec![file("a", "1"), file("b", "1")],
    ];
    let digests: std::collections::BTreeSet<_> = sets.iter().map(|files| digest(&plan(&whole()), files)).collect();
    assert_eq!(digests.len(), sets.len());
    assert_eq!(digest(&plan(&whole()), &[file("b", "1"), file("a", "1")]), digest(&plan(&whole()), &sets[4]));
}

#[test]
fn a_file_beyond_the_limit_cannot_be_hashed() {
    use std::io::Read as _;
    let endless = std::io::repeat(0);
    assert!(FileHash::read("x", endless.take(vance_shared::gate::MAX_HASHED_BYTES + 1)).is_err());
}

#[test]
fn a_log_tells_when_a_line_was_changed_or_taken_out() {
    let line = |pack: &str| audit::Line {
        at: "2026-03-01T12:00:00Z".to_owned(),
        event: audit::Event::AllowedOnce,
        project: Some("/p".to_owned()),
        pack: Some(pack.to_owned()),
        reach: None,
        digest: None,
        reason: None,
    };
    let mut text = String::new();
    for pack in ["a", "b", "c"] {
        let next = audit::append(&text, None, line(pack)).unwrap();
        text.push_str(&next);
    }
    assert_eq!(audit::read(&text).unwrap(), [line("a"), line("b"), line("c")]);
    assert_eq!(audit::read(&text.replace("\"b\"", "\"x\"")).unwrap_err().line, 3);
    let without: String =
        text.lines().enumerate().filter(|(at, _)| *at != 1).map(|(_, line)| format!("{line}\n")).collect();
    assert_eq!(audit::read(&without).unwrap_err().line, 2);
    let headless: String = text.lines().skip(1).map(|line| format!("{line}\n")).collect();
    assert_eq!(audit::read(&headless).unwrap_err().line, 1);
    assert_eq!(audit::read(&format!("{text}{{")).unwrap().last().unwrap().event, audit::Event::Torn);
    assert_eq!(audit::read(&text.replacen('\n', "\n{\n", 1)).unwrap_err().line, 2);
}

/// Bytes that are nearly a file of ours often enough.
fn nearly() -> impl Strategy<Value = String> {
    let bits = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"",
        "\n",
        "  ",
        "- ",
        "name",
        "\"name\": \"a\"",
        "\"type\": \"mcp_server\"",
        "\"parameters\": ",
        "\"transport\": \"stdio\"",
        "\"command\": [\"x\"]",
        "trustedPacks:",
        "deniedPacks:",
        "/p:",
        "name: a",
        "reach: b",
        "digest: sha256:",
        "\"pins\": ",
        "*x",
        "&x",
        "\u{0}",
        "é",
        "null",
    ]);
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..120).prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        prop::collection::vec(bits, 0..40).prop_map(|bits| bits.concat()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn different_commands_never_look_the_same(a in argv(), b in argv()) {
        let (shown_a, shown_b) = (reach(&of_argv(&a)), reach(&of_argv(&b)));
        prop_assert!(shown_a.bytes().all(|byte| (b' '..=b'~').contains(&byte)));
        prop_assert_eq!(shown_a == shown_b, a == b, "{} {}", shown_a, shown_b);
    }

    #[test]
    fn splitting_words_elsewhere_shows(words in argv(), at in 0..4usize) {
        let mut joined = words.clone();
        if at + 1 < joined.len() {
            let next = joined.remove(at + 1);
            joined[at] = format!("{} {next}", joined[at]);
            prop_assert_ne!(reach(&of_argv(&joined)), reach(&of_argv(&words)));
        }
    }

    #[test]
    fn digests_are_the_same_exactly_if_the_packs_are(a in env(), b in env(), same in any::<bool>()) {
        let b = if same { a.clone() } else { b };
        let pack = |env: &[(String, String)]| {
            let env: serde_json::Map<String, Value> = env.iter().map(|(k, v)| (k.clone(), v.as_str().into())).collect();
            json!({"name": "a", "type": "mcp_server", "parameters": {"transport": "stdio", "command": ["x"], "env": env}})
        };
        let (a, b) = (pack(&a), pack(&b));
        prop_assert_eq!(digest(&plan(&a), &[]) == digest(&plan(&b), &[]), a == b);
    }

    #[test]
    fn readers_never_panic(text in nearly()) {
        let project = Project::new(std::path::Path::new("/p")).unwrap();
        for origin in [Origin::Global, Origin::Project] {
            if let Some(PackBody::Launch(plan)) = parse_pack("f", &text, origin).pack.map(|pack| pack.body) {
                files(&plan, &project);
                reach(&plan);
            }
        }
        let (book, pins, log) = (Book::parse("f", &text), PinBook::parse("f", &text), audit::read(&text));
        prop_assert!(book.is_ok() || book.is_err_and(|problems| !problems.is_empty()));
        prop_assert!(pins.is_ok() || pins.is_err_and(|problems| !problems.is_empty()));
        prop_assert!(log.is_ok() || log.is_err());
    }

    #[test]
    fn a_log_that_can_be_read_still_can_after_the_next_line_whatever_a_crash_left(text in nearly(), lines in 0..3, cut in 0..400usize) {
        let line = |pack: &str| audit::Line {
            at: String::new(), event: audit::Event::Denied, project: None, pack: Some(pack.to_owned()), reach: None, digest: None, reason: None,
        };
        let mut log = String::new();
        for n in 0..lines {
            log.push_str(&audit::append(&log, None, line(&n.to_string())).unwrap());
        }
        let next = audit::append(&log, None, line(&text)).unwrap();
        let torn = String::from_utf8_lossy(&next.as_bytes()[..cut.min(next.len())]);
        for tail in [text.as_str(), &torn] {
            let log = format!("{log}{tail}");
            let next = audit::append(&log, None, line("next")).unwrap();
            prop_assert!(next.ends_with('\n'));
            if audit::read(&log).is_ok() {
                let after = audit::read(&format!("{log}{next}"));
                prop_assert!(after.as_ref().is_ok_and(|lines| lines.last() == Some(&line("next"))), "{after:?}: {log}{next}");
            }
        }
    }

    #[test]
    fn file_candidates_are_bounded_and_absolute(words in argv()) {
        let project = Project::new(std::path::Path::new("/p")).unwrap();
        for path in files(&of_argv(&words), &project) {
            prop_assert!(path.is_absolute(), "{path:?}");
        }
    }
}

fn env() -> impl Strategy<Value = Vec<(String, String)>> {
    prop::collection::vec(("[A-C]{1,2}", "[a-c=,\"]{0,3}"), 0..3)
}

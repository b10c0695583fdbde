//! Consent is to exactly what was shown: whatever changes asks again, and until then nothing of it runs.

use serde_json::{Value, json};

use crate::desk::{Desk, endpoint, stdio};

/// What changes, and the pack before and after it.
type Case = (&'static str, fn(&Desk) -> (Value, Value));

/// Allows one for good, then finds another in its place.
fn changed(what: &str, desk: &Desk, before: &Value, after: &Value) {
    desk.pack("a", before);
    let ended = desk.answered("2\n");
    assert!(ended.text.contains("a__echo"), "{what}: {}", ended.text);
    assert_eq!(desk.loads("a"), "up", "{what}");
    for marker in ["before", "after"] {
        drop(std::fs::remove_file(desk.path(marker)));
    }
    desk.pack("a", after);
    let reason = desk.loads("a");
    assert!(reason.contains("needs consent"), "{what}: {reason}");
    assert!(!desk.has("before") && !desk.has("after"), "{what}: something ran");
    let asked = desk.answered("3\n");
    assert!(asked.text.contains("changed since you allowed it on 20"), "{what}: {}", asked.text);
    assert!(!desk.has("before") && !desk.has("after"), "{what}: something ran");
    desk.pack("a", before);
    assert_eq!(desk.loads("a"), "up", "{what}: and back");
}

#[test]
fn a_change_of_anything_asks_again_and_runs_nothing() {
    let with = |mut pack: Value, key: &str, value: Value| {
        pack[key] = value;
        pack
    };
    let cases: [Case; 7] = [
        ("the program", |desk| (stdio(&[desk.server("before")]), stdio(&[desk.server("after")]))),
        ("an argument", |desk| (stdio(&["sh", "-c", &desk.line("before")]), stdio(&["sh", "-c", &desk.line("after")]))),
        ("one more argument", |desk| (stdio(&[desk.server("before")]), stdio(&[&desk.server("before"), "after"]))),
        ("where a word ends", |desk| {
            let server = desk.server("before");
            (stdio(&["sh", "-c", &format!("exec {server}")]), stdio(&["sh", "-c", "exec", &server]))
        }),
        ("a variable", |desk| {
            let mut pack = stdio(&["sh", "-c", "exec $RUN"]);
            pack["env"] = json!({"RUN": desk.server("before")});
            let mut other = pack.clone();
            other["env"] = json!({"RUN": desk.server("after")});
            (pack, other)
        }),
        ("the folder", |desk| {
            let one = stdio(&[desk.server("before")]);
            let mut other = one.clone();
            other["cwd"] = json!(".");
            (one, other)
        }),
        ("arguments of its tools", |desk| {
            let one = stdio(&[desk.server("before")]);
            let mut other = one.clone();
            other["defaultArgs"] = json!({"to": "evil"});
            (one, other)
        }),
    ];
    for (what, packs) in cases {
        let desk = Desk::new();
        let (before, after) = packs(&desk);
        changed(what, &desk, &before, &after);
    }
    let desk = Desk::new();
    let secret = |name: &str| with(stdio(&[desk.server("before")]), "env", json!({"T": format!("${{env:{name}}}")}));
    changed("a secret", &desk, &secret("HOME"), &secret("PATH"));
}

#[test]
fn a_script_of_the_repository_that_changes_asks_again() {
    let desk = Desk::new();
    desk.put("repo/tools/x.sh", &desk.line("before"));
    let mut pack = stdio(&["sh", "./tools/x.sh"]);
    pack["cwd"] = json!(".");
    desk.pack("a", &pack);
    let ended = desk.answered("2\n");
    assert!(ended.text.contains("  repo code:    tools/x.sh (asks again when it changes)\n"), "{}", ended.text);
    assert_eq!(desk.loads("a"), "up");
    desk.put("repo/tools/x.sh", &desk.line("after"));
    assert!(desk.loads("a").contains("needs consent"));
    assert!(!desk.has("after"));
}

#[test]
fn a_script_behind_the_projects_variable_is_watched_and_what_a_line_finds_by_itself_is_said_not_to_be() {
    let desk = Desk::new();
    desk.put("repo/tools/x.sh", &desk.line("before"));
    desk.pack("a", &stdio(&["sh", "-c", "exec sh \"$VANCE_PROJECT_DIR/tools/x.sh\""]));
    let ended = desk.answered("2\n");
    assert!(ended.text.contains("  (!) runs a shell line"), "{}", ended.text);
    assert!(ended.text.contains("  repo code:    tools/x.sh (asks again when it changes)\n"), "{}", ended.text);
    assert_eq!(desk.loads("a"), "up");
    desk.put("repo/tools/x.sh", &desk.line("after"));
    assert!(desk.loads("a").contains("needs consent"));
    assert!(!desk.has("after"));
}

#[test]
fn a_script_that_changes_while_the_question_stands_there_does_not_run() {
    let desk = Desk::new();
    desk.put("repo/x.sh", &desk.line("before"));
    let mut pack = stdio(&["sh", "./x.sh"]);
    pack["cwd"] = json!(".");
    desk.pack("a", &pack);
    let mut seat = desk.seat(&["tools", "list"]);
    seat.asked(1);
    desk.put("repo/x.sh", &desk.line("after"));
    seat.types("1\n");
    let ended = seat.leaves();
    assert!(!desk.has("before") && !desk.has("after"), "{}", ended.text);
    assert!(ended.text.contains("x.sh is not what was allowed"), "{}", ended.text);
    let log = desk.json(&["trust", "log"]).to_string();
    assert!(log.contains("allowed_once") && log.contains("\"changed\""), "{log}");
}

#[test]
fn an_endpoint_is_reached_after_a_yes_and_another_one_or_other_headers_are_not() {
    let desk = Desk::new();
    let ((url, came), (other, other_came)) = (endpoint(), endpoint());
    let pack = |url: &str, header: &str| json!({"transport": "http", "url": url, "headers": {"X-A": header}, "initTimeoutSeconds": 3});
    desk.pack("a", &pack(&url, "1"));
    assert!(desk.loads("a").contains("needs consent"));
    let ended = desk.answered("3\n");
    assert!(ended.text.contains(&format!("  wants to reach: {url}\n  with header:  X-A=1\n")), "{}", ended.text);
    assert_eq!(came(), 0, "not before a yes");
    desk.answered("2\n");
    let before = came();
    assert!(before > 0);
    for changed in [pack(&other, "1"), pack(&url, "${env:HOME}")] {
        desk.pack("a", &changed);
        assert!(desk.loads("a").contains("needs consent"));
    }
    assert_eq!((came(), other_came()), (before, 0));
}

#[test]
fn a_file_behind_an_option_or_in_a_variable_that_changes_asks_again() {
    let by_words = |words: &'static [&str]| {
        move |desk: &Desk| {
            let server = desk.server("marker");
            let mut all = vec![server.as_str()];
            all.extend(words);
            stdio(&all)
        }
    };
    let by_variable = |desk: &Desk| {
        let mut pack = stdio(&[desk.server("marker")]);
        pack["env"] = json!({"NODE_OPTIONS": "--require ./hook.js"});
        pack
    };
    type Case<'a> = (&'a str, &'a dyn Fn(&Desk) -> Value);
    let cases: [Case<'_>; 7] = [
        ("hook.js", &by_words(&["--require", "./hook.js"])),
        ("hook.js", &by_words(&["--require=./hook.js"])),
        ("hook.js", &by_words(&["-r", "./hook"])),
        ("hook.mjs", &by_words(&["--import=./hook.mjs"])),
        (".env", &by_words(&["--env-file", ".env"])),
        (".env", &by_words(&["--env-file=.env"])),
        ("hook.js", &by_variable),
    ];
    for (file, pack) in cases {
        let desk = Desk::new();
        desk.put(&format!("repo/{file}"), "before");
        let mut pack = pack(&desk);
        pack["cwd"] = json!(".");
        desk.pack("a", &pack);
        let ended = desk.answered("2\n");
        let shown = format!("  repo code:    {file} (asks again when it changes)\n");
        assert!(ended.text.contains(&shown) && desk.has("marker"), "{pack}: {}", ended.text);
        assert_eq!(desk.loads("a"), "up", "{pack}");
        std::fs::remove_file(desk.path("marker")).unwrap();
        desk.put(&format!("repo/{file}"), "after");
        let reason = desk.loads("a");
        assert!(reason.contains("needs consent") && !desk.has("marker"), "{pack}: {reason}");
    }
}

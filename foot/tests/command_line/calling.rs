//! `vancetope tools call` and `tools list`: which packs a call starts, how far it is, what a list keeps back.

use serde_json::json;

use crate::asking::sit_down;
use crate::packs::Place;
use crate::terminal::Terminal;

/// Notes its start in a file, says how far its one tool is, and waits for a file before it ends.
pub const SERVER: &str = include_str!("slow_server.py");

fn place() -> Place {
    let place = Place::new();
    let server = place.put("server.py", SERVER);
    for name in ["one", "two"] {
        let command = json!(["python3", server, place.path(&format!("{name}-started")), place.path("go")]);
        let parameters = json!({"transport": "stdio", "command": command});
        let pack = json!({"name": name, "type": "mcp_server", "parameters": parameters});
        place.put(&format!("vance/foot-tools/{name}.json"), &pack.to_string());
    }
    place
}

#[test]
fn a_call_starts_the_pack_that_it_needs_and_no_other() {
    let place = place();
    let started = |name: &str| place.path(&format!("{name}-started")).exists();
    place.put("project/notes.txt", "milk");
    place.put("go", "");
    let native = place.run(&["tools", "call", "read_local_file", r#"{"path": "notes.txt"}"#]);
    assert!(native.exit == 0 && native.out == "milk\n" && !started("one") && !started("two"), "{native:?}");
    let one = place.run(&["tools", "call", "one__work"]);
    assert!(one.exit == 0 && one.out == "worked\n" && started("one") && !started("two"), "{one:?}");
    let none = place.run(&["tools", "call", "three__work"]);
    assert!(none.exit == 1 && none.err.contains("there is no pack 'three' here"), "{none:?}");
    let near = place.run(&["tools", "call", "one__wrok"]);
    assert!(near.exit == 1 && near.err.contains("did you mean `one__work`?") && !started("two"), "{near:?}");
}

#[test]
fn what_is_wrong_is_said_once_beside_the_result_of_a_tools_command() {
    let place = place();
    place.put("go", "");
    place.put("project/.vancetope/trusted-packs.yaml", "");
    place.put("vance/foot-tools/broken.json", "{");
    for words in [&["tools", "list"][..], &["tools", "call", "one__work"]] {
        let ended = place.run(words);
        let warned = |text: &str| ended.err.lines().filter(|line| line.contains("WARN") && line.contains(text)).count();
        assert_eq!((ended.exit, warned("trusted-packs.yaml has no effect")), (0, 1), "{ended:?}");
        assert_eq!(warned("broken"), 0, "the summary says it: {ended:?}");
        assert_eq!(ended.err.contains("skipped: broken"), words[1] == "list", "{ended:?}");
    }
}

#[test]
fn a_pack_that_was_allowed_once_is_listed_as_that_while_it_runs() {
    let place = place();
    let pack = place.read("vance/foot-tools/one.json").replace("\"one\"", "\"theirs\"");
    place.put("project/.vancetope/foot-tools/theirs.json", &pack);
    let state = || {
        let list = place.run(&["trust", "list", "--json"]).json();
        list["packs"][0]["state"].as_str().unwrap().to_owned()
    };
    assert_eq!(state(), "waits");
    let mut command = place.program(&["--brain", "http://127.0.0.1:1"]);
    command.env("TERM", "xterm").env("NO_COLOR", "1");
    let mut terminal = Terminal::start(command);
    terminal.shows("Load it?");
    terminal.types("1\n");
    terminal.shows("loaded 3 pack(s)");
    assert_eq!(state(), "once");
    terminal.types("/trust\r");
    terminal.until("the list", |rows| rows.iter().any(|row| row.contains("theirs") && row.contains("once")));
    assert_eq!(place.run(&["trust", "show", "theirs", "--json"]).json()["state"], "once");
    terminal.types("/quit\r");
    assert_eq!(terminal.leaves().0, 0);
    assert_eq!(state(), "waits");
    assert_eq!(place.run(&["trust", "show", "theirs", "--json"]).json()["state"], "waits");
}

#[test]
fn how_far_a_call_is_shows_at_a_terminal_and_nowhere_else() {
    for (flags, dumb) in [(&[][..], false), (&["--no-ui"][..], false), (&[], true)] {
        let place = place();
        let mut command = place.program(&[flags, &["tools", "call", "one__work"]].concat());
        command.env("TERM", if dumb { "dumb" } else { "xterm" });
        let seat = sit_down(command);
        seat.until(|text| text.contains("one__work: 40%: reading\\x1b[2J"));
        place.put("go", "");
        let (exit, text) = seat.leaves();
        assert!(exit == 0 && text.contains("worked"), "{exit}: {text}");
    }
    let place = place();
    place.put("go", "");
    let piped = place.run(&["tools", "call", "one__work"]);
    assert!(piped.exit == 0 && !piped.err.contains("one__work"), "{piped:?}");
}

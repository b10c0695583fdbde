//! `vancetope login`, `doctor` and `trace`: the real program against a Brain that speaks just the API.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixListener;
use std::path::Path;

use serde_json::{Value, json};

use crate::asking::sit_down;
use crate::fake_brain::{FakeBrain, TOKEN};
use crate::harness::Ended;
use crate::packs::{Place, ended};

/// Runs the program beside the fake Brain, which answers on its own threads.
fn run(place: &Place, words: &[&str], input: &str) -> Ended {
    ended(place.program(words), input)
}

fn chmod(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_login_is_kept_for_its_owner_and_every_command_uses_it_from_then_on() {
    let (place, brain) = (Place::new(), FakeBrain::start());
    brain.has_tasks(&["a running"]);
    let login = run(&place, &["login", &brain.url()], &format!("{TOKEN}\n"));
    assert_eq!((login.exit, login.out.starts_with("paired with http://127.0.0.1:")), (0, true), "{login:?}");
    let file = place.path("vance/access.yaml");
    assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let tasks = run(&place, &["tasks"], "");
    assert!(tasks.exit == 0 && tasks.out.contains("task_a"), "{tasks:?}");
    let other = FakeBrain::start();
    let refused = run(&place, &["tasks", "--brain", &other.url()], "");
    assert!(refused.exit == 1 && refused.err.contains("vancetope login"), "{refused:?}");
    assert!(other.seen("GET").iter().all(|seen| seen.header("authorization").is_none()), "the token stays at home");
    let json = run(&place, &["login", &brain.url(), "--token", TOKEN, "--json"], "");
    assert_eq!(json.json()["file"], file.to_str().unwrap(), "{json:?}");
}

#[test]
fn a_token_that_does_not_work_is_not_kept_and_none_goes_to_a_stranger() {
    let (place, brain) = (Place::new(), FakeBrain::start());
    for (words, input, exit, why) in [
        (vec!["login", "URL"], "wrong\n", 1, "does not know this token"),
        (vec!["login", "URL"], "", 2, "that is no token"),
        (vec!["login", "URL", "--token", "a b"], "", 2, "that is no token"),
        (vec!["login", "http://127.0.0.1:1"], TOKEN, 1, "no Brain answers"),
        (vec!["login", "http://brain.example"], TOKEN, 2, "--allow-insecure"),
        (vec!["login", "brain.example"], TOKEN, 2, "expected a Brain's address"),
        (vec!["login", "URL", "--forget"], "", 2, "--forget is for packs"),
    ] {
        let url = brain.url();
        let words: Vec<&str> = words.into_iter().map(|word| if word == "URL" { url.as_str() } else { word }).collect();
        let ended = run(&place, &words, input);
        assert!(ended.exit == exit && ended.err.contains(why), "{words:?}: {ended:?}");
    }
    brain.answers("GET /readyz", 302, json!({}));
    let redirect = run(&place, &["login", &brain.url()], TOKEN);
    assert!(redirect.exit == 1 && redirect.err.contains("redirect"), "{redirect:?}");
    assert!(brain.seen("GET /readyz").iter().all(|seen| seen.header("authorization").is_none()));
    assert!(!place.path("vance/access.yaml").exists());
    brain.answers("GET /api/v1/sessions", 403, json!({"error": {"code": "forbidden", "message": "no"}}));
    let foot_only = run(&place, &["login", &brain.url()], TOKEN);
    assert!(foot_only.exit == 0 && foot_only.err.contains("scope api"), "{foot_only:?}");
}

#[test]
fn a_token_typed_at_the_terminal_does_not_show() {
    let (place, brain) = (Place::new(), FakeBrain::start());
    let mut command = place.program(&["login", &brain.url()]);
    command.env("TERM", "xterm");
    let mut seat = sit_down(command);
    seat.until(|text| text.contains("Token (it does not show): "));
    seat.types(&format!("{TOKEN}\n"));
    let (exit, text) = seat.leaves();
    assert!(exit == 0 && text.contains("paired with") && !text.contains(TOKEN), "{exit}: {text}");
    assert!(place.read("vance/access.yaml").contains(TOKEN));
    let mut command = place.program(&["login", &brain.url()]);
    command.env("TERM", "xterm");
    let mut seat = sit_down(command);
    seat.until(|text| text.contains("Token (it does not show): "));
    seat.types("\u{3}");
    let (exit, text) = seat.leaves();
    assert!(exit == 1 && text.contains("nothing was written"), "{exit}: {text}");
}

#[test]
fn a_pack_without_a_login_says_why_and_one_that_has_none_is_told_so() {
    let place = Place::new();
    place.put(
        "vance/foot-tools/a.json",
        r#"{"name":"a","type":"mcp_server","parameters":{"transport":"stdio","command":["x"]}}"#,
    );
    place.put(
        "vance/foot-tools/h.json",
        r#"{"name":"h","type":"mcp_server","parameters":{"transport":"http","url":"https://127.0.0.1:1/mcp"}}"#,
    );
    let theirs =
        r#"{"name":"t","type":"mcp_server","parameters":{"transport":"http","url":"https://127.0.0.1:1/mcp"}}"#;
    place.put("project/.vancetope/foot-tools/t.json", theirs);
    for (words, exit, why) in [
        (&["login", "a"][..], 1, "takes no login: its server is a program here"),
        (&["login", "h"], 1, "vancetope: "),
        (&["login", "t"], 1, "has no consent yet"),
        (&["login", "nope"], 2, "there is no pack 'nope'"),
    ] {
        let ended = run(&place, words, "");
        assert!(ended.exit == exit && ended.err.contains(why), "{words:?}: {ended:?}");
    }
    let none = run(&place, &["login", "h", "--forget"], "");
    assert_eq!((none.exit, none.out.as_str()), (0, "h: there was no login\n"), "{none:?}");
}

#[test]
fn where_a_wrong_address_or_token_came_from_is_said_with_what_to_type() {
    let (place, brain) = (Place::new(), FakeBrain::start());
    let run = |words: &[&str], variables: &[(&str, &str)]| {
        let mut command = place.program(words);
        command.envs(variables.iter().copied());
        ended(command, "")
    };
    let (url, nowhere) = (brain.url(), ("VANCE_BRAIN", "http://127.0.0.1:1"));
    for (words, variables, said) in [
        (&["tasks"][..], &[nowhere][..], "unset VANCE_BRAIN"),
        (&["tasks"], &[("VANCE_BRAIN", url.as_str()), ("VANCE_TOKEN", "wrong")], "unset VANCE_TOKEN VANCE_BRAIN"),
        (&["tasks", "--brain", &url], &[nowhere, ("VANCE_TOKEN", "wrong")], "unset VANCE_TOKEN"),
        (&["doctor"], &[nowhere], "unset VANCE_BRAIN"),
        (&["doctor", "--brain", &url], &[("VANCE_TOKEN", "wrong")], "unset VANCE_TOKEN"),
        (&["login", &url, "--token", TOKEN], &[nowhere, ("VANCE_TOKEN", "x")], "stored: unset VANCE_TOKEN"),
        (&["login", &url, "--token", TOKEN], &[nowhere], "(http://127.0.0.1:1) is set and comes before"),
    ] {
        let ended = run(words, variables);
        assert!((ended.out.clone() + &ended.err).contains(said), "{words:?} {variables:?}: {ended:?}");
    }
    for words in [&["tasks", "--brain", "http://127.0.0.1:1"][..], &["doctor", "--brain", "http://127.0.0.1:1"]] {
        let ended = run(words, &[nowhere]);
        assert!(!(ended.out.clone() + &ended.err).contains("unset"), "the flag's own: {ended:?}");
    }
}

#[test]
fn a_root_that_is_no_folder_is_said_with_its_line() {
    let place = Place::new();
    let file = place.put("vance/permissions.yaml", "roots:\n- .\n- /nowhere/at/all\n");
    let doctor = run(&place, &["doctor"], "");
    let said = format!("{}:3: `roots`: /nowhere/at/all does not exist", file.display());
    assert!(doctor.exit == 1 && doctor.out.contains(&said), "{doctor:?}");
}

#[test]
fn a_broken_login_stops_what_needs_the_brain_and_nothing_else() {
    let place = Place::new();
    let file = place.put("vance/access.yaml", "brain: https://b.example\ntoken: x\ntokn: y\n");
    chmod(&file, 0o600);
    let tasks = run(&place, &["tasks"], "");
    assert!(tasks.exit == 2 && tasks.err.contains("access.yaml:3: unknown field"), "{tasks:?}");
    assert_eq!(run(&place, &["packs"], "").exit, 0);
    chmod(&file, 0o666);
    let tasks = run(&place, &["tasks"], "");
    assert!(tasks.exit == 2 && tasks.err.contains("others may write it"), "{tasks:?}");
}

fn findings(ended: &Ended) -> Vec<Value> {
    ended.json()["findings"].as_array().unwrap().clone()
}

fn fixes(ended: &Ended) -> Vec<(String, String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let wrong = findings(ended).into_iter().filter(|f| f["level"] == "fix");
    wrong.map(|f| (text(&f["check"]), text(&f["message"]), text(&f["fix"]))).collect()
}

#[test]
fn where_all_is_well_the_doctor_says_so() {
    let (place, brain) = (Place::new(), FakeBrain::start());
    assert_eq!(run(&place, &["login", &brain.url()], TOKEN).exit, 0);
    place.put(
        "vance/foot-tools/a.json",
        r#"{"name":"a","type":"mcp_server","parameters":{"transport":"stdio","command":["npx","-y","x"],"env":{"A":"${env:HOME}"}}}"#,
    );
    place.put("vance/permissions.yaml", "allow: []\n");
    let ended = run(&place, &["doctor", "--json"], "");
    assert_eq!((ended.exit, fixes(&ended)), (0, vec![]), "{ended:?}");
    let all = findings(&ended);
    for (check, word) in
        [("brain", "knows the token"), ("program", "node"), ("program", "npx"), ("pack", "a ("), ("disk", "MiB free")]
    {
        let found = all.iter().any(|f| f["check"] == check && f["message"].as_str().unwrap().contains(word));
        assert!(found, "{check} {word}: {all:?}");
    }
    let text = run(&place, &["doctor"], "");
    assert!(text.exit == 0 && text.out.ends_with("all is well\n"), "{text:?}");
}

#[test]
fn whatever_is_wrong_is_found_with_what_to_type() {
    let (place, brain) = (Place::new(), FakeBrain::start());
    assert_eq!(run(&place, &["login", &brain.url()], TOKEN).exit, 0);
    let stdio = |name: &str, command: &str, env: &str| {
        format!(
            r#"{{"name":"{name}","type":"mcp_server","parameters":{{"transport":"stdio","command":["{command}"],"env":{{{env}}}}}}}"#
        )
    };
    place.put("vance/foot-tools/gone.json", &stdio("gone", "no-such-program", ""));
    place.put("vance/foot-tools/uv.json", &stdio("uv", "uvx", ""));
    place.put("vance/foot-tools/vars.json", &stdio("vars", "sh", r#""A":"${env:NOT_SET_HERE}""#));
    place.put("vance/foot-tools/broken.json", "{\n\"name\": 1}");
    place.put("vance/foot-tools/old.json", &stdio("old", "npx", ""));
    place.put("vance/permissions.yaml", "allow: []\ndney: []\n");
    place.put("vance/config.yaml", "toolPacks: 1\n");
    place.put("vance/trusted-packs.yaml", "trustedPacks: 1\n");
    place.put("project/.vancetope/trusted-packs.yaml", "trustedPacks: {}\n");
    // An old Node before the right one, and a folder that means "here".
    for (name, version) in [("node", "v18.1.0"), ("npx", "6.14.4")] {
        chmod(&place.put(&format!("bin/{name}"), &format!("#!/bin/sh\necho {version}\n")), 0o755);
    }
    drop(UnixListener::bind(place.path("vance/foot.sock")).unwrap());
    for slot in ["client-0", "client-1"] {
        place.put(&format!("vance/state/{slot}/lock"), "");
        place.put(&format!("vance/state/{slot}/journal.db"), &"no database ".repeat(1000));
    }
    let held = std::fs::File::open(place.path("vance/state/client-1/lock")).unwrap();
    held.lock().unwrap();
    chmod(&place.path("vance/access.yaml"), 0o600);
    chmod(&place.path("vance/trusted-packs.yaml"), 0o644);
    chmod(&place.path("vance"), 0o755);
    let mut command = place.program(&["doctor", "--json"]);
    command.env("PATH", format!("{}:.:/usr/bin:/bin", place.path("bin").display()));
    let ended = ended(command, "");
    assert_eq!(ended.exit, 1, "{ended:?}");
    let found = fixes(&ended);
    for (check, message, fix) in [
        ("path", "PATH holds '.'", "export PATH='"),
        ("pack", "gone: program 'no-such-program' not found", "full path"),
        ("pack", "vars: not set here: NOT_SET_HERE", "export NOT_SET_HERE="),
        ("pack", "broken.json:2:", "line 2"),
        ("program", "node is version 18.1, at least 20.0", "nodejs.org"),
        ("program", "npx is version 6.14, at least 7.0", "npm install -g npm"),
        ("file", "permissions.yaml:2: unknown field `dney`", "line 2"),
        ("file", "config.yaml:1: `toolPacks` is the number 1", "line 1"),
        ("file", "trusted-packs.yaml:1:", "line 1"),
        ("home", "vance can be read by others", "chmod 700"),
        ("home", "trusted-packs.yaml can be read by others", "chmod 600"),
        ("state", "nobody listens on this socket", "rm "),
        ("state", "client-0/journal.db: file is not a database", "sets a damaged journal aside"),
    ] {
        let hit = found.iter().any(|(c, m, f)| c == check && m.contains(message) && f.contains(fix));
        assert!(hit, "{check} {message}: {found:#?}");
    }
    assert!(!found.iter().any(|(_, m, _)| m.contains("client-1/journal.db")), "a Foot is at work there: {found:#?}");
    let notes = findings(&ended);
    assert!(
        notes.iter().any(|f| f["level"] == "note" && f["message"].as_str().unwrap().contains("has no effect")),
        "{notes:?}"
    );
}

#[test]
fn a_brain_that_is_away_wrong_or_another_release_is_told_apart() {
    let place = Place::new();
    let doctor = |brain: &str, token: Option<&str>| {
        let mut command = place.program(&["doctor", "--json", "--brain", brain]);
        if let Some(token) = token {
            command.env("VANCE_TOKEN", token);
        }
        fixes(&ended(command, ""))
    };
    let brain = FakeBrain::start();
    let url = brain.url();
    for (found, check, message, fix) in [
        (doctor("http://127.0.0.1:1", None), "brain", "refused", "vance-brain serve"),
        (doctor("http://nowhere.invalid", None), "brain", "not encrypted", "ssh -L"),
        (doctor("https://nowhere.invalid", None), "brain", "nowhere.invalid", "host name"),
        (doctor(&url.replace("http:", "https:"), None), "brain", "127.0.0.1", "use http://"),
        (doctor(&url, None), "token", "there is no token", "vancetope login"),
        (doctor(&url, Some("wrong")), "token", "VANCE_TOKEN", "vancetope login"),
        (doctor(&format!("{url}/elsewhere"), Some(TOKEN)), "brain", "it is no Brain", "is the address right"),
    ] {
        let hit = found.iter().any(|(c, m, f)| c == check && m.contains(message) && f.contains(fix));
        assert!(hit, "{check} {message}: {found:#?}");
    }
    let other = json!({"status": "ready", "details": {"version": "9.0.0", "protocol": [7]}});
    for (status, body, message) in [
        (200, other, "speaks protocol [7]"),
        (
            503,
            json!({"error": {"code": "not_ready", "message": "the Brain does not take work now"}}),
            "does not take work",
        ),
        (200, json!({"hello": 1}), "does not understand"),
    ] {
        brain.answers("GET /readyz", status, body);
        let found = doctor(&url, Some(TOKEN));
        assert!(found.iter().any(|(_, m, _)| m.contains(message)), "{message}: {found:#?}");
    }
    assert_eq!(doctor(&url, Some(TOKEN)), vec![]);
}

#[test]
fn a_calls_trace_is_shown_by_its_task_its_call_or_its_trace() {
    let (place, brain) = (Place::new(), FakeBrain::start());
    brain.has_tasks(&["a running", "b running"]);
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    brain.moves("a", "completed", json!({"calls": [{
        "call_id": "call_9", "tool": "git_status", "route": "client", "client_id": "foot_1", "machine": "m\u{1b}1", "attempts": 2,
        "outcome": "done", "trace_id": trace, "started_at": "2026-01-01T00:00:00Z", "ended_at": "2026-01-01T00:00:01Z",
    }]}));
    let run = |words: &[&str]| {
        let mut command = place.program(words);
        command.env("VANCE_TOKEN", TOKEN).env("VANCE_BRAIN", brain.url());
        ended(command, "")
    };
    for id in ["task_a", "call_9", trace] {
        let shown = run(&["trace", id, "--jaeger", "http://localhost:16686/"]);
        assert_eq!(shown.exit, 0, "{id}: {shown:?}");
        for word in [
            "git_status",
            "client m\\x1b1",
            "attempts: 2",
            "done",
            "2026-01-01T00:00:01Z",
            &format!("http://localhost:16686/trace/{trace}"),
        ] {
            assert!(shown.out.contains(word), "{id} {word}: {}", shown.out);
        }
    }
    let json = run(&["trace", "call_9", "--json"]).json();
    assert_eq!((&json["calls"][0]["trace_id"], &json["calls"][0]["task"]), (&json!(trace), &json!("a")), "{json}");
    for (id, why) in [
        ("task_b", "has made no calls yet"),
        ("call_x", "no task of yours has a call or trace 'call_x'"),
        ("task_x", "no task has this id"),
    ] {
        let ended = run(&["trace", id]);
        assert!(ended.exit == 1 && ended.err.contains(why), "{id}: {ended:?}");
    }
}

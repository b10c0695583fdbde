//! Every answer, and every way not to give one.

use std::process::Stdio;

use crate::desk::{CHOICES, Desk, Seat, stdio};

const LIST: &[&str] = &["tools", "list"];

#[test]
fn only_1_and_2_load_a_pack_and_only_2_is_remembered() {
    for (keys, loads, remembered) in [
        ("1\n", true, false),
        ("2\n", true, true),
        (" 2 \n", true, true),
        ("3\n", false, false),
        ("\n", false, false),
        ("y\n", false, false),
        ("yes\n", false, false),
        ("12\n", false, false),
        ("1 2\n", false, false),
        ("\u{661}\n", false, false),
        ("\u{4}", false, false),
        ("\u{3}", false, false),
    ] {
        let desk = Desk::new();
        let server = desk.server("started");
        desk.pack("chrome", &stdio(&[&server]));
        let ended = desk.answered(keys);
        let file = desk.text("repo/.vancetope/foot-tools/chrome.json");
        let question = format!("Project tool pack 'chrome' from {file}\n  wants to run: {server}\n{CHOICES} ");
        assert!(ended.text.contains(&question), "{keys:?}: {}", ended.text);
        assert_eq!(desk.has("started"), loads, "{keys:?}: {}", ended.text);
        assert_eq!(ended.text.contains("chrome__echo"), loads, "{keys:?}: {}", ended.text);
        assert_eq!(desk.store().contains("name: chrome"), remembered, "{keys:?}: {}", desk.store());
        if remembered {
            let again = desk.seat(LIST).leaves();
            assert!(!again.text.contains("Load it?") && again.text.contains("chrome__echo"), "{}", again.text);
            assert_eq!(desk.loads("chrome"), "up", "also without a terminal");
        }
    }
}

#[test]
fn what_was_typed_before_the_question_is_no_answer() {
    let desk = Desk::new();
    desk.pack("chrome", &stdio(&[&desk.server("started")]));
    let mut seat = desk.seat(LIST);
    seat.types("1\n1\n2\n1");
    let ended = seat.answers("\n");
    assert!(!desk.has("started") && desk.store().is_empty(), "{}", ended.text);
}

#[test]
fn packs_are_asked_about_one_at_a_time() {
    let desk = Desk::new();
    for name in ["a", "b", "c"] {
        desk.pack(name, &stdio(&[&desk.server(name)]));
    }
    let mut seat = desk.seat(LIST);
    for (nth, keys) in ["1\n", "3\n", "1\n"].into_iter().enumerate() {
        seat.asked(nth + 1);
        let asked = seat.text().matches("Load it?").count();
        assert_eq!(asked, nth + 1, "one at a time: {}", seat.text());
        seat.types(keys);
    }
    let ended = seat.leaves();
    let loaded = ["a", "b", "c"].into_iter().filter(|name| desk.has(name)).count();
    assert_eq!(loaded, 2, "{}", ended.text);
}

#[test]
fn where_nobody_looks_nobody_is_asked_and_the_way_out_is_said() {
    let desk = Desk::new();
    desk.pack("chrome", &stdio(&[&desk.server("started")]));
    let reason = desk.loads("chrome");
    for part in ["no terminal to ask on", "trust allow --pack chrome --digest sha256:", &desk.text("home/foot-tools")] {
        assert!(reason.contains(part), "{reason}");
    }
    let (mut dumb, mut empty) = (desk.command(LIST), desk.command(LIST));
    dumb.env("TERM", "dumb");
    empty.env("TERM", "");
    let json = desk.command(&["tools", "list", "--json"]);
    for (command, why) in [
        (dumb, "with TERM=dumb nobody is asked"),
        (empty, "with an empty TERM nobody is asked"),
        (json, "with --json nobody is asked"),
    ] {
        let ended = Seat::take(command).leaves();
        let said = ended.text.contains(why) && ended.text.contains("trust allow --pack chrome --digest sha256:");
        assert!(said && !ended.text.contains("Load it?"), "{}", ended.text);
    }
    assert!(!desk.has("started") && desk.store().is_empty());
}

#[test]
fn a_daemon_warns_and_loads_nothing_even_at_a_terminal() {
    let desk = Desk::new();
    desk.pack("chrome", &stdio(&[&desk.server("started")]));
    for pretender in ["trusted-packs.yaml", "secrets.yaml", "local.token"] {
        desk.put(&format!("repo/.vancetope/{pretender}"), "");
    }
    let mut at_terminal = desk.seat(&["--daemon", "--brain", "http://127.0.0.1:1"]);
    at_terminal.until(|text| text.contains("WARN") && text.contains("--daemon asks nobody"));
    at_terminal.until(|text| {
        ["trusted-packs.yaml", "secrets.yaml", "local.token"]
            .iter()
            .all(|file| text.contains(&format!(".vancetope/{file} has no effect")))
    });
    at_terminal.types("\u{3}");
    assert!(!at_terminal.leaves().text.contains("Load it?"));
    let mut piped = desk.command(&["--no-ui", "--brain", "http://127.0.0.1:1"]);
    let mut child = piped.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let stderr = child.stderr.take().unwrap();
    let warned = std::io::BufRead::lines(std::io::BufReader::new(stderr))
        .map(Result::unwrap)
        .find(|line| line.contains("WARN") && line.contains("chrome") && line.contains("--no-ui asks nobody"));
    nix::sys::signal::kill(
        nix::unistd::Pid::from_raw(child.id().try_into().unwrap()),
        nix::sys::signal::Signal::SIGTERM,
    )
    .unwrap();
    child.wait().unwrap();
    assert!(warned.is_some());
    assert!(!desk.has("started"));
}

#[test]
#[ignore = "waits for 25 s"]
fn a_question_that_nobody_answers_is_a_no_after_25_seconds() {
    let desk = Desk::new();
    desk.pack("chrome", &stdio(&[&desk.server("started")]));
    let seat = desk.seat(LIST);
    seat.asked(1);
    let begun = std::time::Instant::now();
    std::thread::sleep(std::time::Duration::from_secs(20));
    assert!(!seat.text().contains("no answer"), "{}", seat.text());
    let ended = seat.leaves();
    let waited = begun.elapsed().as_secs_f64();
    assert!((24.0..35.0).contains(&waited), "{waited} s: {}", ended.text);
    assert!(ended.text.contains("no answer within 25 s: no") && !desk.has("started"), "{}", ended.text);
}

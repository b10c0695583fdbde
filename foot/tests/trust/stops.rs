//! Consent that is taken back ends what runs with it: in the right folder, and nowhere else.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::time::{Duration, Instant};

use nix::sys::signal::kill;
use nix::unistd::Pid;

use crate::desk::{Desk, Seat, stdio};

/// A pack's server that tells its process id in a file.
fn server(desk: &Desk, marker: &str) -> String {
    let text = format!("#!/bin/sh\necho $$ > {}\n{}\n", desk.text(marker), desk.line(&format!("{marker}-started")));
    desk.program(&format!("{marker}.sh"), &text)
}

fn lives(desk: &Desk, marker: &str) -> bool {
    let pid = std::fs::read_to_string(desk.path(marker)).unwrap().trim().parse().unwrap();
    kill(Pid::from_raw(pid), None).is_ok()
}

/// A Foot in a folder, whose pack is allowed.
fn foot(desk: &Desk, folder: &str) -> Seat {
    let command = |words: &[&str]| {
        let mut command = desk.command(words);
        command.current_dir(desk.path(folder)).stdin(Stdio::null());
        command
    };
    let shown = command(&["trust", "show", "a", "--json"]).output().unwrap();
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let digest = shown["digest"].as_str().unwrap();
    let ended = command(&["trust", "allow", "--pack", "a", "--digest", digest]).output().unwrap();
    assert!(ended.status.success(), "{}", said(&ended));
    let foot = Seat::take(command(&["--no-ui", "--brain", "http://127.0.0.1:1"]));
    foot.until(|text| text.contains("pack 'a' is up") && text.contains("pack 'mine' is up"));
    foot
}

fn said(output: &std::process::Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn only_packs_of_the_right_folder_end_whatever_the_store_says() {
    let desk = Desk::new();
    desk.own_pack("mine", &stdio(&[server(&desk, "mine")]));
    desk.pack("a", &stdio(&[server(&desk, "here")]));
    let there = serde_json::json!({"name": "a", "type": "mcp_server", "parameters": stdio(&[server(&desk, "there")])});
    desk.put("repo-2/.vancetope/foot-tools/a.json", &there.to_string());
    let feet = [foot(&desk, "repo"), foot(&desk, "repo-2")];
    desk.put("home/trusted-packs.yaml", "trustedPacks: [");
    let ended = desk.alone(&["trust", "revoke", "a"]);
    assert!(!ended.status.success(), "{}", said(&ended));
    assert!(said(&ended).contains("pack 'a' was stopped (client-0)"), "{}", said(&ended));
    assert!(said(&ended).contains("nothing was changed"), "{}", said(&ended));
    feet[0].until(|_| !lives(&desk, "here"));
    feet[0]
        .until(|text| text.contains("WARN") && text.contains("pack 'a' is stopped, for consent to it was taken back"));
    // Like a pack that is allowed only once: it runs, and the store holds nothing of it.
    std::fs::remove_file(desk.path("home/trusted-packs.yaml")).unwrap();
    let ended = desk.alone(&["trust", "revoke", "--project"]);
    assert!(ended.status.success() && !said(&ended).contains("stopped"), "{}", said(&ended));
    assert!(lives(&desk, "there") && lives(&desk, "mine"));
    let ended = desk.alone(&["trust", "revoke", "--all"]);
    assert!(ended.status.success() && said(&ended).contains("pack 'a' was stopped (client-1)"), "{}", said(&ended));
    feet[1].until(|_| !lives(&desk, "there"));
    assert!(lives(&desk, "mine"), "the user's own pack is nobody's to take back");

    std::fs::remove_file(desk.path("home/state/client-1/control.sock")).unwrap();
    let ended = desk.alone(&["trust", "revoke", "--all"]);
    assert_eq!(ended.status.code(), Some(1), "{}", said(&ended));
    assert!(said(&ended).contains("client-1 is running but cannot be reached"), "{}", said(&ended));
    // Their guards end what still runs.
    drop(feet);
}

#[test]
fn a_running_foot_hears_only_who_has_its_key_and_silent_connections_hold_up_nobody() {
    let desk = Desk::new();
    desk.own_pack("mine", &stdio(&[server(&desk, "mine")]));
    desk.pack("a", &stdio(&[server(&desk, "here")]));
    let foot = foot(&desk, "repo");
    let socket = desk.path("home/state/client-0/control.sock");
    for line in [r#"{"do":"stop","pack":"mine"}"#, r#"{"key":"guessed","do":"stop","pack":"mine"}"#] {
        let mut stream = UnixStream::connect(&socket).unwrap();
        writeln!(stream, "{line}").unwrap();
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).unwrap();
        assert!(answer.contains("does not show the Foot's key"), "{line}: {answer}");
    }
    assert!(lives(&desk, "mine"));
    let idle: Vec<_> = (0..100).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    let asked = Instant::now();
    let ended = desk.alone(&["tools", "reload"]);
    assert!(ended.status.success() && said(&ended).contains("loaded 2 pack(s)"), "{}", said(&ended));
    assert!(asked.elapsed() < Duration::from_secs(30), "a hundred deadlines one after the other");
    drop(idle);
    foot.until(|_| lives(&desk, "mine"));
}

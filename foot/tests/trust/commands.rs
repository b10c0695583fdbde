//! `vancetope trust`.

use crate::desk::{Desk, stdio};

fn said(output: &std::process::Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn a_pack_is_allowed_without_a_terminal_by_its_full_digest_only() {
    let desk = Desk::new();
    desk.pack("a", &stdio(&[desk.server("started")]));
    let shown = desk.json(&["trust", "show", "a"]);
    assert_eq!(shown["state"], "waits");
    let digest = shown["digest"].as_str().unwrap();
    let other = format!("sha256:{}", "0".repeat(64));
    for wrong in [&other, &digest[..70], "sha256:", &digest.to_uppercase()] {
        let ended = desk.alone(&["trust", "allow", "--pack", "a", "--digest", wrong]);
        assert!(!ended.status.success(), "{wrong}: {}", said(&ended));
    }
    assert!(desk.store().is_empty() && !desk.has("started"));
    assert!(desk.loads("a").contains(digest), "the reason names it");
    for _ in 0..2 {
        let ended = desk.alone(&["trust", "allow", "--pack", "a", "--digest", digest]);
        assert!(ended.status.success(), "{}", said(&ended));
    }
    assert!(!desk.has("started"), "allowing starts nothing");
    assert_eq!(desk.loads("a"), "up");
    assert_eq!(desk.json(&["trust", "show", "a"])["state"], "allowed");
}

#[test]
fn what_was_allowed_is_taken_back_denied_and_forgotten() {
    let desk = Desk::new();
    desk.pack("a", &stdio(&[desk.server("a")]));
    desk.pack("b", &stdio(&[desk.server("b")]));
    let mut seat = desk.seat(&["tools", "list"]);
    for nth in 1..=2 {
        seat.asked(nth);
        seat.types("2\n");
    }
    seat.leaves();
    let state = |pack: &str| {
        let list = desk.json(&["trust"]);
        let row = list["packs"].as_array().unwrap().iter().find(|row| row["pack"] == pack).cloned();
        row.map_or("none".to_owned(), |row| row["state"].as_str().unwrap().to_owned())
    };
    assert_eq!((state("a"), state("b")), ("allowed".to_owned(), "allowed".to_owned()));
    assert!(desk.alone(&["trust", "revoke", "a"]).status.success());
    assert_eq!((state("a"), state("b")), ("waits".to_owned(), "allowed".to_owned()));
    assert!(desk.loads("a").contains("needs consent"));
    assert!(!desk.alone(&["trust", "revoke", "a"]).status.success(), "there is nothing to take back");

    assert!(desk.alone(&["trust", "deny", "a"]).status.success());
    assert!(desk.loads("a").contains("you denied it") && desk.loads("b") == "up");
    let ended = desk.seat(&["tools", "list"]).leaves();
    assert!(!ended.text.contains("Load it?"), "{}", ended.text);
    assert!(desk.alone(&["trust", "undeny", "a"]).status.success());
    assert_eq!(state("a"), "waits");

    assert!(desk.alone(&["trust", "revoke", "--project"]).status.success());
    assert_eq!(state("b"), "waits");
    desk.put("home/trusted-packs.yaml", "trustedPacks:\n  /nowhere/at/all:\n    - name: x\n      reach: y\n");
    assert!(desk.alone(&["trust", "prune"]).status.success());
    assert_eq!(state("x"), "none");
    let log = desk.json(&["trust", "log"]);
    let events: Vec<&str> =
        log["lines"].as_array().unwrap().iter().map(|line| line["event"].as_str().unwrap()).collect();
    for event in ["allowed_always", "revoked", "denied", "undenied", "not_asked", "pruned"] {
        assert!(events.contains(&event), "{event}: {events:?}");
    }
    let file = desk.path("home/audit/trust.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.split_inclusive('\n').skip(1).collect::<String>()).unwrap();
    let ended = desk.alone(&["trust", "log"]);
    assert!(!ended.status.success() && said(&ended).contains("somebody has changed the log"), "{}", said(&ended));
}

#[test]
fn a_review_asks_about_what_waits_and_starts_nothing() {
    let desk = Desk::new();
    desk.pack("a", &stdio(&[desk.server("a")]));
    desk.pack("b", &stdio(&[desk.server("b")]));
    let mut seat = desk.seat(&["trust", "review"]);
    seat.asked(1);
    seat.types("2\n");
    seat.asked(2);
    seat.types("3\n");
    let ended = seat.leaves();
    assert_eq!(ended.exit, 0, "{}", ended.text);
    assert!(!desk.has("a") && !desk.has("b"));
    assert!(desk.store().contains("name: a") && !desk.store().contains("name: b"));
    let alone = desk.alone(&["trust", "review"]);
    assert!(!alone.status.success() && said(&alone).contains("needs a terminal"), "{}", said(&alone));
}

#[test]
fn a_revocation_stops_the_pack_where_it_runs() {
    let desk = Desk::new();
    let marker = desk.text("pid");
    let server = desk.program("server", &format!("#!/bin/sh\necho $$ > {marker}\n{}\n", desk.line("started")));
    desk.pack("a", &stdio(&[server]));
    desk.answered("2\n");
    std::fs::remove_file(&marker).unwrap();
    // A Foot in the background; no Brain is needed for its packs.
    let foot = desk.seat(&["--no-ui", "--brain", "http://127.0.0.1:1"]);
    foot.until(|text| text.contains("pack 'a' is up"));
    let pid: i32 = std::fs::read_to_string(&marker).unwrap().trim().parse().unwrap();
    let lives = || nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None).is_ok();
    assert!(lives());
    let ended = desk.alone(&["trust", "revoke", "a"]);
    assert!(ended.status.success() && said(&ended).contains("pack 'a' was stopped"), "{}", said(&ended));
    foot.until(|_| !lives());
    let mut foot = foot;
    foot.types("\u{3}");
    foot.leaves();
}

//! Consent that is taken back ends what runs with it: in the right folder, and nowhere else.

use nix::sys::signal::kill;
use nix::unistd::Pid;

use crate::desk::{CHOICES, Desk, Seat, stdio};

/// A pack's server that tells its process id in a file.
fn server(desk: &Desk, marker: &str) -> String {
    let text = format!("#!/bin/sh\necho $$ > {}\n{}\n", desk.text(marker), desk.line(&format!("{marker}-started")));
    desk.program(&format!("{marker}.sh"), &text)
}

fn pid(desk: &Desk, marker: &str) -> Option<Pid> {
    std::fs::read_to_string(desk.path(marker)).ok()?.trim().parse().ok().map(Pid::from_raw)
}

fn lives(desk: &Desk, marker: &str) -> bool {
    kill(pid(desk, marker).unwrap(), None).is_ok()
}

/// A Foot in a folder, whose pack is allowed once.
fn foot(desk: &Desk, folder: &str, marker: &str) -> Seat {
    let mut command = desk.command(&["--brain", "http://127.0.0.1:1"]);
    command.current_dir(desk.path(folder));
    let mut foot = Seat::take(command);
    foot.until(|text| text.contains(CHOICES));
    foot.types("1\n");
    foot.until(|_| pid(desk, marker).is_some() && pid(desk, "mine").is_some());
    foot
}

fn said(output: &std::process::Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn only_packs_of_the_right_folder_end_also_those_allowed_once_and_whatever_the_store_says() {
    let desk = Desk::new();
    desk.own_pack("mine", &stdio(&[server(&desk, "mine")]));
    desk.pack("a", &stdio(&[server(&desk, "here")]));
    let there = serde_json::json!({"name": "a", "type": "mcp_server", "parameters": stdio(&[server(&desk, "there")])});
    desk.put("repo-2/.vancetope/foot-tools/a.json", &there.to_string());
    let feet = [foot(&desk, "repo", "here"), foot(&desk, "repo-2", "there")];
    desk.put("home/trusted-packs.yaml", "trustedPacks: [");
    let ended = desk.alone(&["trust", "revoke", "a"]);
    assert!(!ended.status.success(), "{}", said(&ended));
    assert!(said(&ended).contains("pack 'a' was stopped (client-0)"), "{}", said(&ended));
    assert!(said(&ended).contains("nothing was changed"), "{}", said(&ended));
    feet[0].until(|_| !lives(&desk, "here"));
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

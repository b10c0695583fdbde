//! The files of consent as commands meet them.

use std::os::unix::fs::PermissionsExt as _;

use crate::packs::{Place, ended};

fn chmod(path: &std::path::Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// A pack of the project that nobody was asked about.
fn place() -> Place {
    let place = Place::new();
    place.put(
        "project/.vancetope/foot-tools/a.json",
        r#"{"name":"a","type":"mcp_server","parameters":{"transport":"stdio","command":["npx","a"]}}"#,
    );
    place.put("vance/foot-tools/own.txt", "");
    chmod(&place.path("vance"), 0o700);
    place
}

#[test]
fn what_others_could_read_is_closed_and_said_in_every_command() {
    for words in [&["tools", "list"][..], &["trust", "list"], &["trust", "show", "a"], &["trust", "deny", "a"]] {
        let place = place();
        let store = place.put("vance/trusted-packs.yaml", "trustedPacks: {}\n");
        chmod(&store, 0o644);
        let ended = place.run(words);
        let said = ended.err.lines().filter(|line| line.contains("NOTICE:") && line.contains("others could read"));
        assert_eq!((ended.exit, said.count()), (0, 1), "{words:?}: {ended:?}");
        assert_eq!(store.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{words:?}");
        assert!(!place.run(words).err.contains("NOTICE:"), "{words:?}: once");
    }
}

#[test]
fn a_denied_pack_has_one_line_and_a_garbled_access_file_stops_no_trust_command() {
    let place = place();
    let access = place.put("vance/access.yaml", "brain: [\n");
    chmod(&access, 0o600);
    assert_eq!(place.run(&["trust", "deny", "a"]).exit, 0);
    let list = place.run(&["trust", "list", "--json"]).json();
    let states: Vec<&str> =
        list["packs"].as_array().unwrap().iter().map(|row| row["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["denied"], "{list}");
    assert_eq!(place.run(&["trust", "undeny", "a"]).exit, 0);
    let log = place.run(&["trust", "log", "--json"]).json();
    assert_eq!(log["lines"].as_array().unwrap().len(), 2, "{log}");
    std::fs::remove_file(place.path("vance/audit/trust.end")).unwrap();
    let log = place.run(&["trust", "log"]);
    assert!(log.exit == 0 && log.err.contains("decisions may be missing"), "{log:?}");
}

#[test]
fn the_way_out_leads_to_no_folder_of_the_project() {
    let place = place();
    let packs = place.path("project/.vancetope/foot-tools");
    let mut command = place.program(&["tools", "list"]);
    command.env("VANCE_FOOT_TOOLS_DIR", packs);
    let ended = ended(command, "");
    let own = place.path("vance/foot-tools");
    assert!(ended.err.contains(&format!("or move it to {} (without VANCE_FOOT_TOOLS_DIR", own.display())), "{ended:?}");
}

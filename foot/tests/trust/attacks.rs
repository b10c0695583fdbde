//! What a repository tries. In every story the marker stays absent.

use std::os::unix::fs::{chown, symlink};

use serde_json::json;

use crate::desk::{Desk, Seat, endpoint, stdio};

/// Nobody is asked, nothing runs, and the reason names the trouble.
fn never_loads(desk: &Desk, pack: &str, why: &str) {
    let reason = desk.loads(pack);
    assert!(reason.contains(why), "{pack}: {reason}");
    let ended = desk.seat(&["tools", "list"]).leaves();
    assert!(!ended.text.contains("Load it?"), "{}", ended.text);
    assert!(!desk.has("marker"), "{pack}: it ran");
}

#[test]
fn a_pack_file_that_is_a_link_or_a_pipe_or_somebody_elses_is_not_read() {
    let desk = Desk::new();
    desk.pack("real", &stdio(&[desk.server("marker")]));
    let folder = desk.path("repo/.vancetope/foot-tools");
    std::fs::rename(folder.join("real.json"), desk.path("elsewhere.json")).unwrap();
    symlink(desk.path("elsewhere.json"), folder.join("link.json")).unwrap();
    never_loads(&desk, "link", "link");
    std::fs::remove_file(folder.join("link.json")).unwrap();
    nix::unistd::mkfifo(&folder.join("pipe.json"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    never_loads(&desk, "pipe", "not a regular file");
    std::fs::remove_file(folder.join("pipe.json")).unwrap();
    desk.pack("theirs", &stdio(&[desk.server("marker")]));
    if chown(folder.join("theirs.json"), Some(12345), None).is_ok() {
        never_loads(&desk, "theirs", "another user");
    }
    std::fs::remove_file(folder.join("theirs.json")).unwrap();
    // The whole folder leads elsewhere.
    std::fs::rename(&folder, desk.path("tools")).unwrap();
    desk.put("tools/real.json", &std::fs::read_to_string(desk.path("elsewhere.json")).unwrap());
    symlink(desk.path("tools"), &folder).unwrap();
    let ended = desk.seat(&["tools", "list"]).leaves();
    assert!(!ended.text.contains("Load it?") && !desk.has("marker"), "{}", ended.text);
}

#[test]
fn a_store_that_came_with_the_repository_vouches_for_nothing() {
    let desk = Desk::new();
    let server = desk.server("marker");
    desk.pack("a", &stdio(&[&server]));
    let vouches = format!("trustedPacks:\n  {}:\n    - name: a\n      reach: {server}\n", desk.text("repo"));
    desk.put("repo/.vancetope/trusted-packs.yaml", &vouches);
    desk.put("repo/.vancetope/home/trusted-packs.yaml", &vouches);
    assert!(desk.loads("a").contains("needs consent"));
    let home_inside = |home: &str| {
        let mut command = desk.command(&["tools", "list"]);
        command.env("VANCE_HOME", desk.repo(home));
        command
    };
    for home in [".vancetope", ".vancetope/home"] {
        let ended = Seat::take(home_inside(home)).answers("3\n");
        assert!(ended.text.contains("Load it?") && !desk.has("marker"), "{home}: {}", ended.text);
    }
    // The same from a folder further down: it is the clone's `.vancetope`, not a home.
    desk.put("repo/sub/x", "");
    desk.put("repo/.git/HEAD", "");
    let below = vouches.replace(&desk.text("repo"), &desk.text("repo/sub"));
    desk.put("repo/.vancetope/trusted-packs.yaml", &below);
    let mut command = home_inside(".vancetope");
    command.current_dir(desk.path("repo/sub"));
    let ended = Seat::take(command).answers("3\n");
    assert!(ended.text.contains("Load it?") && !desk.has("marker"), "{}", ended.text);
    assert!(ended.text.contains("set VANCE_HOME to a folder of your own"), "{}", ended.text);
    // Packs in such a home ask, too.
    desk.put(
        "repo/inside/foot-tools/b.json",
        &json!({"name": "b", "type": "mcp_server", "parameters": stdio(&[&server])}).to_string(),
    );
    std::fs::remove_file(desk.repo(".vancetope/foot-tools/a.json")).unwrap();
    let ended = Seat::take(home_inside("inside")).answers("3\n");
    assert!(ended.text.contains("pack 'b'") && !desk.has("marker"), "{}", ended.text);
    // The same entry in the user's own home is consent.
    desk.pack("a", &stdio(&[&server]));
    desk.put("home/trusted-packs.yaml", &vouches);
    assert_eq!(desk.loads("a"), "up");
}

#[test]
fn a_pack_that_replaces_ones_own_and_is_refused_leaves_that_one_active() {
    let desk = Desk::new();
    let (own, theirs) = (desk.server("own"), desk.server("marker"));
    desk.own_pack("a", &stdio(&[&own]));
    desk.pack("a", &stdio(&[&theirs]));
    let ended = desk.answered("3\n");
    assert!(
        ended.text.contains(&format!("  replaces:     your global pack 'a', which runs: {own}\n")),
        "{}",
        ended.text
    );
    assert!(ended.text.contains("a__echo") && desk.has("own") && !desk.has("marker"), "{}", ended.text);
    assert_eq!(desk.loads("a"), "up", "and where nobody is asked");
    assert!(!desk.has("marker"));
    std::fs::remove_file(desk.path("own")).unwrap();
    let ended = desk.answered("1\n");
    assert!(desk.has("marker") && !desk.has("own"), "{}", ended.text);
}

#[test]
fn a_secret_is_named_and_never_shown_and_goes_nowhere_before_a_yes() {
    let desk = Desk::new();
    let out = desk.text("marker");
    let server = desk.program("takes", &format!("#!/bin/sh\necho \"$T\" > {out}\n{}\n", desk.line("started")));
    let mut pack = stdio(&[server]);
    pack["env"] = json!({"T": "${env:MY_SECRET}"});
    desk.pack("a", &pack);
    let seat = || {
        let mut command = desk.command(&["tools", "list"]);
        command.env("MY_SECRET", "hunter2");
        Seat::take(command)
    };
    let ended = seat().answers("3\n");
    assert!(ended.text.contains("  sends:        $MY_SECRET\n") && !ended.text.contains("hunter2"), "{}", ended.text);
    assert!(!desk.has("marker"));
    let ended = seat().answers("1\n");
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "hunter2\n", "{}", ended.text);
    assert!(!desk.store().contains("hunter2"));
}

#[test]
fn what_the_repository_ships_is_not_picked_up_by_the_way() {
    let desk = Desk::new();
    let trap = format!("open({:?}, 'w')\n", desk.text("marker"));
    desk.put("repo/json.py", &trap);
    desk.put("repo/this.py", &trap);
    desk.put("repo/.npmrc", &format!("script-shell={}\n", desk.text("repo/evil.sh")));
    desk.program("repo/node_modules/.bin/evil", &format!("#!/bin/sh\ntouch {}\n", desk.text("marker")));
    let looks = format!(
        "#!/bin/sh\nfor f in .npmrc node_modules json.py .env package.json; do test -e $f && touch {}; done; python3 -c 'import json, this' > /dev/null; test \"$VANCE_PROJECT_DIR\" = {} || exit 9; {}\n",
        desk.text("marker"),
        desk.text("repo"),
        desk.line("started")
    );
    let looks = desk.program("looks", &looks);
    desk.pack("a", &stdio(&[&looks]));
    let ended = desk.answered("1\n");
    assert!(ended.text.contains("a__echo") && desk.has("started") && !desk.has("marker"), "{}", ended.text);
    // The same for the user's own packs, in a repository.
    std::fs::remove_file(desk.repo(".vancetope/foot-tools/a.json")).unwrap();
    std::fs::remove_file(desk.path("started")).unwrap();
    desk.own_pack("b", &stdio(&[&looks]));
    assert_eq!(desk.loads("b"), "up");
    assert!(desk.has("started") && !desk.has("marker"));
}

#[test]
fn a_program_of_the_repository_runs_only_by_its_path() {
    let desk = Desk::new();
    desk.program("repo/bin/innocent", &format!("#!/bin/sh\n{}\n", desk.line("marker")));
    desk.pack("a", &stdio(&["innocent"]));
    let seat = |path: &str| {
        let mut command = desk.command(&["tools", "list"]);
        command.env("PATH", path);
        Seat::take(command)
    };
    let usual = std::env::var("PATH").unwrap();
    let ended = seat(&format!("{}:{usual}", desk.text("repo/bin"))).leaves();
    assert!(ended.text.contains("which came with the project") && !ended.text.contains("Load it?"), "{}", ended.text);
    // By a link, too.
    symlink(desk.repo("bin"), desk.path("innocent-bin")).unwrap();
    let ended = seat(&format!("{}:{usual}", desk.text("innocent-bin"))).leaves();
    assert!(ended.text.contains("which came with the project"), "{}", ended.text);
    let ended = seat(&format!(":.:bin:{usual}")).answers("1\n");
    assert!(ended.text.contains("not found in PATH") && !desk.has("marker"), "{}", ended.text);
    assert!(!desk.has("marker"));
    // Written as a path it is shown and hashed.
    let mut pack = stdio(&["./bin/innocent"]);
    pack["cwd"] = json!(".");
    desk.pack("a", &pack);
    let ended = desk.answered("1\n");
    assert!(
        ended.text.contains("  repo code:    bin/innocent (asks again when it changes)\n") && desk.has("marker"),
        "{}",
        ended.text
    );
}

#[test]
fn a_link_that_the_command_names_is_refused() {
    let desk = Desk::new();
    desk.put("elsewhere.sh", &desk.line("marker"));
    symlink(desk.path("elsewhere.sh"), desk.repo("x.sh")).unwrap();
    let mut pack = stdio(&["sh", "./x.sh"]);
    pack["cwd"] = json!(".");
    desk.pack("a", &pack);
    never_loads(&desk, "a", "is a link");
}

#[test]
fn nothing_that_steers_a_terminal_reaches_it() {
    let desk = Desk::new();
    desk.pack("a", &stdio(&["sh", "-c", "\u{1b}[2J\rLoad it? \u{202e}\u{200b}\ntrue"]));
    desk.put("repo/.vancetope/foot-tools/b.json", "{\"name\": \"\u{1b}[31mb\"}");
    let ended = desk.answered("3\n");
    assert!(ended.text.contains(r"$'\x1b[2J\x0dLoad it? \u202e\u200b\x0atrue'"), "{}", ended.text);
    for steering in ['\u{202e}', '\u{200b}'] {
        assert!(!ended.text.contains(steering), "{}", ended.text);
    }
    assert!(!ended.text.contains("\u{1b}[2J") && !ended.text.contains("\u{1b}[31mb"), "{}", ended.text);
}

#[test]
fn two_spellings_of_the_folder_are_one_project() {
    let desk = Desk::new();
    desk.pack("a", &stdio(&[desk.server("started")]));
    desk.answered("2\n");
    symlink(desk.path("repo"), desk.path("another-name")).unwrap();
    let mut command = desk.command(&["tools", "list"]);
    command.current_dir(desk.path("another-name")).env("PWD", desk.path("another-name"));
    let ended = Seat::take(command).leaves();
    assert!(ended.text.contains("a__echo") && !ended.text.contains("Load it?"), "{}", ended.text);
    // And what stands where the project was is another one.
    std::fs::rename(desk.path("repo"), desk.path("moved")).unwrap();
    let mut command = desk.command(&["tools", "list"]);
    command.current_dir(desk.path("moved"));
    let ended = Seat::take(command).answers("3\n");
    assert!(ended.text.contains("Load it?"), "{}", ended.text);
}

#[test]
fn a_store_that_others_may_write_trusts_nothing_and_stays_as_it_is() {
    use std::os::unix::fs::PermissionsExt as _;
    let desk = Desk::new();
    desk.pack("a", &stdio(&[desk.server("started")]));
    desk.answered("2\n");
    assert_eq!(desk.loads("a"), "up");
    std::fs::remove_file(desk.path("started")).unwrap();
    let store = desk.path("home/trusted-packs.yaml");
    std::fs::set_permissions(&store, std::fs::Permissions::from_mode(0o666)).unwrap();
    let before = desk.store();
    let ended = desk.answered("2\n");
    assert!(ended.text.contains("it was not remembered") && ended.text.contains("others may write"), "{}", ended.text);
    assert_eq!(desk.store(), before);
    std::fs::remove_file(desk.path("started")).unwrap();
    let said = String::from_utf8(desk.alone(&["trust", "list"]).stderr).unwrap();
    assert!(said.contains("nothing is trusted") && said.contains("chmod 600"), "{said}");
    assert!(desk.loads("a").contains("needs consent") && !desk.has("started"));
}

#[test]
fn what_no_pack_of_a_repository_may_say_is_refused_without_a_question() {
    let with_env = |desk: &Desk, name: &str, value: &str| {
        let mut pack = stdio(&[desk.server("marker")]);
        pack["env"] = json!({name: value});
        desk.pack("a", &pack);
    };
    type Case<'a> = (&'a str, &'a str, &'a dyn Fn(&Desk));
    let cases: [Case<'_>; 7] = [
        ("PATH", "may not set `PATH`", &|desk| with_env(desk, "PATH", &desk.text("repo/bin"))),
        ("LD_PRELOAD", "may not set LD_*", &|desk| with_env(desk, "LD_PRELOAD", "./evil.so")),
        ("LD_LIBRARY_PATH", "may not set LD_*", &|desk| with_env(desk, "LD_LIBRARY_PATH", ".")),
        ("DYLD_INSERT_LIBRARIES", "DYLD_*", &|desk| with_env(desk, "DYLD_INSERT_LIBRARIES", "./evil.dylib")),
        ("VANCE_HOME", "VANCE_*", &|desk| with_env(desk, "VANCE_HOME", ".")),
        ("two commands", "twice", &|desk| {
            let server = desk.server("marker");
            let text = format!(
                r#"{{"name":"a","type":"mcp_server","parameters":{{"transport":"stdio","command":["true"],"command":["{server}"]}}}}"#
            );
            desk.put("repo/.vancetope/foot-tools/a.json", &text);
        }),
        ("two spellings of one key", "twice", &|desk| {
            let server = desk.server("marker");
            let text = format!(
                r#"{{"name":"a","type":"mcp_server","parameters":{{"transport":"stdio","command":["true"],"\u0063ommand":["{server}"]}}}}"#
            );
            desk.put("repo/.vancetope/foot-tools/a.json", &text);
        }),
    ];
    for (what, why, write) in cases {
        println!("{what}");
        let desk = Desk::new();
        write(&desk);
        never_loads(&desk, "a", why);
    }
}

#[test]
fn a_host_that_a_variable_chooses_is_refused_and_nobody_is_reached() {
    for (kind, key) in [("mcp_server", "url"), ("rest_api", "specUrl"), ("rest_api", "baseUrl")] {
        let desk = Desk::new();
        let (url, came) = endpoint();
        let port = url.rsplit(':').next().unwrap();
        let mut parameters = json!({key: format!("http://${{env:HOST}}:{port}")});
        match (kind, key) {
            ("mcp_server", _) => parameters["transport"] = json!("http"),
            (_, "baseUrl") => parameters["specUrl"] = json!(url),
            (_, _) => {}
        }
        let text = json!({"name": "a", "type": kind, "parameters": parameters}).to_string();
        desk.put("repo/.vancetope/foot-tools/a.json", &text);
        let mut command = desk.command(&["tools", "list"]);
        command.env("HOST", "127.0.0.1");
        let ended = Seat::take(command).leaves();
        assert!(!ended.text.contains("Load it?") && ended.text.contains("env:"), "{key}: {}", ended.text);
        assert_eq!(came(), 0, "{key}");
    }
}

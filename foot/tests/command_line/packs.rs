//! `vancetope packs`: the real program on real folders; nothing is started.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::harness::Ended;

/// A person's home with a project in it; the product's own home is beside it.
pub struct Place(tempfile::TempDir);

impl Place {
    pub fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(place.path("project")).unwrap();
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    pub fn program(&self, words: &[&str]) -> Command {
        // The test is the person who starts the program from a shell.
        #[allow(clippy::disallowed_methods)]
        let mut command = Command::new(env!("CARGO_BIN_EXE_vancetope"));
        command.args(words).current_dir(self.path("project")).env_clear();
        command
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.0.path())
            .env("VANCE_HOME", self.path("vance"));
        command
    }

    pub fn run(&self, words: &[&str]) -> Ended {
        ended(self.program(words), "")
    }
}

pub fn ended(mut command: Command, input: &str) -> Ended {
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Whoever does not read its input may have left already.
    drop(child.stdin.take().unwrap().write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let exit = u8::try_from(output.status.code().unwrap()).unwrap();
    Ended { exit, out: text(output.stdout), err: text(output.stderr) }
}

fn pack(name: &str, more: &str, command: &str) -> String {
    format!(r#"{{"name":"{name}","type":"mcp_server"{more},"parameters":{{"transport":"stdio","command":{command}}}}}"#)
}

#[test]
fn settings_that_have_no_effect_are_named_with_their_line_by_the_list_and_the_doctor() {
    let place = Place::new();
    place.put("vance/foot-tools/chrome.json", &pack("chrome", "", r#"["true"]"#));
    place.put("vance/permissions.yaml", "sandbox: on\n");
    place.put("project/.vancetope/config.yaml", "toolPacks:\n  packs:\n  - chrome\n  - chrom\n");
    place.put(
        "project/.vancetope/permissions.yaml",
        "deny:\n- {exec: [rm]}\nallow:\n- {exec: [git]}\nroots: [/]\nsandbox: off\n",
    );
    let want = [
        "config.yaml:4: 'chrom' in `toolPacks.packs` is no pack that was found, did you mean 'chrome'?",
        "permissions.yaml:4 (`allow`): a project cannot allow anything; put the rule into ",
        "permissions.yaml:5 (`roots`): a project cannot add `roots`; put them into ",
        "permissions.yaml:6 (`sandbox`): a project cannot turn the `sandbox` off; ",
    ];
    let json = place.run(&["packs", "list", "--json"]).json();
    let notes: Vec<&str> = json["notes"].as_array().unwrap().iter().map(|note| note.as_str().unwrap()).collect();
    let listed = place.run(&["packs"]);
    let doctor = place.run(&["doctor", "--brain", "http://127.0.0.1:1"]);
    for text in want {
        assert!(notes.iter().any(|note| note.contains(text)), "{text}: {notes:?}");
        assert!(listed.exit == 0 && listed.err.contains(text), "{text}: {listed:?}");
        assert!(doctor.out.contains(text), "{text}: {doctor:?}");
    }
    assert_eq!(place.run(&["packs", "list", "--json", "--no-local"]).json()["notes"], json!([]));
}

#[test]
fn a_home_in_the_project_is_the_projects_and_said_to_be_no_home() {
    let place = Place::new();
    place.put("project/home/foot-tools/a.json", &pack("a", "", r#"["true"]"#));
    let run = |words: &[&str]| {
        let mut command = place.program(words);
        command.env("VANCE_HOME", place.path("project/home"));
        ended(command, "")
    };
    let json = run(&["packs", "list", "--json"]).json();
    let row = &json["packs"][0];
    assert_eq!((&row["level"], &row["state"]), (&json!("project"), &json!("needs consent")), "{json}");
    let why = "lies in a project: its packs ask like those of the project";
    assert!(json["notes"][0].as_str().unwrap().contains(why), "{json}");
    let doctor = run(&["doctor", "--brain", "http://127.0.0.1:1"]);
    assert!(doctor.out.contains(why) && !doctor.out.contains("yours alone"), "{doctor:?}");
}

#[test]
fn another_folder_for_packs_replaces_that_of_the_home_and_nothing_else() {
    let place = Place::new();
    place.put("vance/foot-tools/own.json", &pack("own", "", r#"["true"]"#));
    place.put("vance/permissions.yaml", "sandbox: on\n");
    place.put("elsewhere/other.json", &pack("other", "", r#"["true"]"#));
    place.put("project/.vancetope/foot-tools/theirs.json", &pack("theirs", "", r#"["true"]"#));
    let run = |words: &[&str]| {
        let mut command = place.program(words);
        command.env("VANCE_FOOT_TOOLS_DIR", place.path("elsewhere"));
        ended(command, "")
    };
    let rows = |said: &Value| {
        let text = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
        let packs = said["packs"].as_array().unwrap();
        let mut rows: Vec<_> =
            packs.iter().map(|row| (text(row, "name"), text(row, "level"), text(row, "state"))).collect();
        rows.sort();
        rows
    };
    let row = |pack: &str, level: &str, state: &str| (pack.to_owned(), level.to_owned(), state.to_owned());
    let theirs = row("theirs", "project", "needs consent");
    let listed = run(&["packs", "list", "--json"]);
    assert_eq!(rows(&listed.json()), [row("other", "global", "enabled"), theirs.clone()], "{listed:?}");
    assert_eq!(rows(&place.run(&["packs", "list", "--json"]).json()), [row("own", "global", "enabled"), theirs]);
    // What the rest of the home says still counts, and what is added goes where packs are read.
    let added = run(&["packs", "add", "new", "--", "true"]);
    assert!(added.exit == 0 && place.path("elsewhere/new.json").exists(), "{added:?}");
    assert!(!place.path("vance/foot-tools/new.json").exists());
    place.put("vance/permissions.yaml", "dney: []\n");
    let refused = run(&["tools", "list"]);
    assert!(refused.exit == 2 && refused.err.contains("vance/permissions.yaml:1"), "{refused:?}");
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o777
}

#[test]
fn both_levels_are_listed_and_each_file_says_whether_it_counts() {
    let place = Place::new();
    let (own, theirs) = ("vance/foot-tools", "project/.vancetope/foot-tools");
    place.put(&format!("{own}/a.json"), &pack("a", "", r#"["npx","-y","a b"]"#));
    place.put(&format!("{own}/b.json"), &pack("b", "", r#"["b"]"#));
    place.put(&format!("{own}/c.json"), &pack("c", "", r#"["c"]"#));
    place.put(&format!("{own}/d.json"), &pack("d", r#","projectOverride":"forbid""#, r#"["d"]"#));
    place.put(&format!("{own}/e.json"), &pack("e", r#","enabled":false"#, r#"["e"]"#));
    place.put(&format!("{own}/f.json"), "{");
    place.put(&format!("{own}/z.json"), &pack("a", "", r#"["other"]"#));
    place.put(&format!("{own}/off.json.disabled"), &pack("off", "", r#"["off"]"#));
    place.put(&format!("{theirs}/b.json"), &pack("b", "", r#"["evil"]"#));
    place.put(&format!("{theirs}/c.json"), &pack("c", r#","enabled":false"#, r#"["c"]"#));
    place.put(&format!("{theirs}/d.json"), &pack("d", r#","enabled":false"#, r#"["d"]"#));
    place.put(&format!("{theirs}/new.json"), &pack("new", "", r#"["new"]"#));
    std::os::unix::fs::symlink(place.path(&format!("{own}/a.json")), place.path(&format!("{theirs}/link.json")))
        .unwrap();
    let ended = place.run(&["packs", "list", "--json"]);
    assert_eq!(ended.exit, 0, "{ended:?}");
    let said = ended.json();
    let packs = said["packs"].as_array().unwrap();
    let row = |file: &str| packs.iter().find(|p| p["file"].as_str().unwrap().ends_with(file)).unwrap();
    for (file, level, state, reach) in [
        ("vance/foot-tools/a.json", "global", "enabled", json!("npx -y 'a b'")),
        ("vance/foot-tools/b.json", "global", "enabled", json!("b")),
        ("vance/foot-tools/c.json", "global", "disabled", json!("c")),
        ("vance/foot-tools/d.json", "global", "enabled", json!("d")),
        ("vance/foot-tools/e.json", "global", "disabled", json!("e")),
        ("vance/foot-tools/f.json", "global", "broken", json!(null)),
        ("vance/foot-tools/z.json", "global", "broken", json!("other")),
        (".vancetope/foot-tools/d.json", "project", "forbidden", json!("d")),
        (".vancetope/foot-tools/b.json", "project", "needs consent", json!("evil")),
        (".vancetope/foot-tools/new.json", "project", "needs consent", json!("new")),
        (".vancetope/foot-tools/link.json", "project", "broken", json!(null)),
    ] {
        let row = row(file);
        assert_eq!(
            (&row["level"], &row["state"], &row["reach"]),
            (&json!(level), &json!(state), &reach),
            "{file}: {row}"
        );
    }
    assert!(row("foot-tools/c.json")["reason"].as_str().unwrap().contains("project/.vancetope"), "{said}");
    assert_eq!(packs.len(), 12, "what is turned off by its file's name is no pack: {said}");
    let key = place.path("project").canonicalize().unwrap();
    let store =
        format!("trustedPacks:\n  {}:\n  - name: b\n    reach: evil\n  - name: new\n    reach: old\n", key.display());
    let store = place.put("vance/trusted-packs.yaml", &store);
    std::fs::set_permissions(store, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::set_permissions(place.path("vance"), std::fs::Permissions::from_mode(0o700)).unwrap();
    let said = place.run(&["packs", "--json"]).json();
    let packs = said["packs"].as_array().unwrap();
    for (file, state) in [
        ("vance/foot-tools/b.json", "redirected"),
        (".vancetope/foot-tools/b.json", "trusted"),
        (".vancetope/foot-tools/new.json", "needs consent"),
    ] {
        let row = packs.iter().find(|p| p["file"].as_str().unwrap().ends_with(file)).unwrap();
        assert_eq!(row["state"], state, "{row}");
    }
    assert!(said.to_string().contains("changed since you allowed it: - run old + run new"), "{said}");
    let diff = place.run(&["packs", "diff", "new"]);
    assert!(
        diff.exit == 1 && diff.out.contains("changed since you allowed it") && diff.out.contains("+ run new"),
        "{diff:?}"
    );
    let own_only = place.run(&["packs", "--no-local", "--json"]).json();
    assert_eq!(own_only["packs"].as_array().unwrap().len(), 7, "{own_only}");
    place.put("project/.vancetope/config.yaml", "toolPacks:\n  disabledPacks: [a]\n");
    let selected = place.run(&["packs", "--json"]).json();
    assert_eq!(selected["packs"][0]["state"], "not selected", "{selected}");
    let table = place.run(&["packs", "--no-local"]);
    assert!(table.out.contains("npx -y 'a b'") && table.err.contains("f (global): broken: line 1"), "{table:?}");
    let none = Place::new().run(&["packs"]);
    assert!(none.exit == 0 && none.err.contains("vancetope packs add NAME"), "{none:?}");
}

#[test]
fn a_pack_is_added_for_its_owner_alone_and_never_over_another_one() {
    let place = Place::new();
    let add = [
        "packs", "add", "chrome", "--env", "A=1", "--env", "TOKEN", "--cwd", ".", "--label", "browser", "--", "npx",
        "-y", "x@1",
    ];
    let ended = place.run(&add);
    assert_eq!(ended.exit, 0, "{ended:?}");
    let file = place.path("vance/foot-tools/chrome.json");
    assert_eq!(ended.out.trim_end(), file.to_str().unwrap());
    assert!(ended.err.contains("next: `vancetope tools list`"), "{ended:?}");
    let written: Value = serde_json::from_str(&place.read("vance/foot-tools/chrome.json")).unwrap();
    let want = json!({
        "name": "chrome", "type": "mcp_server", "labels": ["browser"],
        "parameters": {"transport": "stdio", "command": ["npx", "-y", "x@1"], "cwd": ".", "env": {"A": "1", "TOKEN": "${env:TOKEN}"}},
    });
    assert_eq!(written, want);
    assert_eq!((mode(&file), mode(file.parent().unwrap())), (0o600, 0o700));
    let again = place.run(&["packs", "add", "chrome", "--", "other"]);
    assert!(again.exit == 2 && again.err.contains("there already") && again.err.contains("--force"), "{again:?}");
    assert!(place.read("vance/foot-tools/chrome.json").contains("x@1"));
    let forced = place.run(&["packs", "add", "chrome", "--force", "--json", "--", "other"]);
    assert!(forced.exit == 0 && forced.json()["pack"]["parameters"]["command"] == json!(["other"]), "{forced:?}");
    let http = place.run(&[
        "packs",
        "add",
        "jira",
        "--project",
        "--url",
        "https://x/mcp",
        "--header",
        "Authorization: Bearer ${env:T}",
    ]);
    assert!(http.exit == 0 && http.err.contains("consent"), "{http:?}");
    let written: Value = serde_json::from_str(&place.read("project/.vancetope/foot-tools/jira.json")).unwrap();
    assert_eq!(written["parameters"]["headers"], json!({"Authorization": "Bearer ${env:T}"}));
    for (words, why) in [
        (&["packs", "add", "x", "--env", "PATH=/x", "--", "y"][..], "may not set `PATH`"),
        (&["packs", "add", "x", "--", "npx -y y"], "expected [\"npx\", \"-y\", \"y\"]"),
        (&["packs", "add", "x", "--url", "ftp://x"], "`url` has the scheme"),
        (&["packs", "add", "x"], "vancetope packs add x -- npx -y SERVER"),
        (&["packs", "add", "a__b", "--", "y"], "a pack name has no `__`"),
    ] {
        let refused = place.run(words);
        assert!(refused.exit == 2 && refused.err.contains(why), "{words:?}: {refused:?}");
    }
    assert!(!place.path("vance/foot-tools/x.json").exists());
}

#[test]
fn a_dry_run_shows_what_would_start_and_starts_nothing() {
    let place = Place::new();
    let marker = place.path("marker");
    let command = json!(["sh", "-c", format!("touch {}", marker.display())]);
    let text = json!({
        "name": "a", "type": "mcp_server",
        "parameters": {"transport": "stdio", "command": command, "env": {"KEY": "${env:MINE}", "B": "${env:NOT_SET}", "NODE_OPTIONS": "-r x"}},
    });
    let file = place.put("vance/foot-tools/a.json", &text.to_string());
    let mut command = place.program(&["packs", "check", file.to_str().unwrap(), "--dry-run", "--json"]);
    command.env("MINE", "value");
    let ended = ended(command, "");
    let said = ended.json();
    let launch = &said["launch"][0];
    assert_eq!((ended.exit, &said["ok"], &launch["env"]["KEY"]), (0, &json!(true), &json!("value")), "{said}");
    assert_eq!((&launch["sends"], &launch["cwd"]), (&json!(["MINE", "NOT_SET"]), &json!(null)), "{said}");
    assert!(launch["problems"][0].as_str().unwrap().contains("NOT_SET is not set"), "{said}");
    assert!(launch["program"].as_str().unwrap().ends_with("/sh"), "{said}");
    let shown = place.run(&["packs", "check", file.to_str().unwrap(), "--dry-run"]);
    for word in ["runs:", "a private empty folder", "sends:", "$MINE $NOT_SET", "(!) changes what runs"] {
        assert!(shown.out.contains(word), "{word}: {}", shown.out);
    }
    let theirs = place.put("project/.vancetope/foot-tools/a.json", &text.to_string());
    let mut command = place.program(&["packs", "check", theirs.to_str().unwrap(), "--dry-run", "--json"]);
    command.env("MINE", "value");
    let said = self::ended(command, "").json();
    assert_eq!(said["launch"][0]["env"]["KEY"], "${env:MINE}", "a project's texts are not expanded: {said}");
    assert!(said["launch"][0].get("program").is_none(), "{said}");
    let http = json!({"name": "h", "type": "mcp_server", "parameters": {"transport": "http", "url": "https://x/mcp", "headers": {"X": "y"}}});
    let file = place.put("h.json", &http.to_string());
    let shown = place.run(&["packs", "check", file.to_str().unwrap(), "--dry-run"]);
    assert!(shown.out.contains("reaches:      https://x/mcp") && shown.out.contains("X=y"), "{}", shown.out);
    assert!(!marker.exists());
}

#[test]
fn the_difference_of_a_redirected_pack_is_shown_field_by_field() {
    let place = Place::new();
    place.put("vance/foot-tools/a.json", &pack("a", "", r#"["npx","a"]"#));
    place.put("vance/foot-tools/same.json", &pack("same", "", r#"["x"]"#));
    place.put("vance/foot-tools/own.json", &pack("own", "", r#"["x"]"#));
    let none = place.run(&["packs", "diff"]);
    assert!(none.exit == 0 && none.err.contains("this folder has no packs"), "{none:?}");
    place.put("project/.vancetope/foot-tools/a.json", &pack("a", "", r#"["npx","\u001b[2Jevil"]"#));
    place.put("project/.vancetope/foot-tools/same.json", &pack("same", "", r#"["x"]"#));
    let diff = place.run(&["packs", "diff"]);
    assert_eq!(diff.exit, 1, "{diff:?}");
    for line in [
        "pack 'a': differs",
        "pack 'same': the same",
        "    - parameters.command = [\"npx\",\"a\"]",
        "    + parameters.command = [\"npx\",\"\\u001b[2Jevil\"]",
    ] {
        assert!(diff.out.contains(line), "{line}: {}", diff.out);
    }
    assert_eq!(place.run(&["packs", "diff", "same"]).exit, 0);
    let json = place.run(&["packs", "diff", "a", "--json"]).json();
    assert_eq!(json["diffs"][0]["changes"].as_array().unwrap().len(), 2, "{json}");
    for (name, why) in [("own", "the project has no pack 'own'"), ("nope", "the project has no pack 'nope'")] {
        let ended = place.run(&["packs", "diff", name]);
        assert!(ended.exit == 2 && ended.err.contains(why), "{ended:?}");
    }
}

#[test]
fn the_examples_of_the_documentation_write_packs_that_load() {
    let place = Place::new();
    let docs =
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("docs/packs.md")).unwrap();
    let examples: Vec<&str> = docs.lines().filter(|line| line.starts_with("vancetope packs add ")).collect();
    assert!(examples.len() >= 4, "{examples:?}");
    let programs = Path::new(env!("CARGO_BIN_EXE_vancetope")).parent().unwrap().to_owned();
    for example in &examples {
        // The person's own shell reads the line.
        #[allow(clippy::disallowed_methods)]
        let mut shell = Command::new("/bin/sh");
        shell
            .args(["-c", example])
            .current_dir(place.path("project"))
            .env_clear()
            .env("VANCE_HOME", place.path("vance"));
        shell.env("PATH", format!("{}:/usr/bin:/bin", programs.display()));
        let written = ended(shell, "");
        assert_eq!(written.exit, 0, "{example}: {written:?}");
        let checked = place.run(&["packs", "check", written.out.trim_end()]);
        assert!(checked.exit == 0 && checked.err.is_empty(), "{example}: {checked:?}");
    }
    let listed = place.run(&["packs", "--json"]).json();
    assert_eq!(listed["packs"].as_array().unwrap().len(), examples.len(), "{listed}");
}

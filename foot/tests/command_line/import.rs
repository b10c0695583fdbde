//! `vancetope packs import`: files as other programs write them, and packs that load.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::asking::sit_down;
use crate::packs::{Place, ended};

const DESKTOP: &str = r#"{
  "mcpServers": {
    "filesystem": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "/tmp"]},
    "My GitHub": {"command": "docker", "args": ["run", "-i", "x"], "env": {"GITHUB_TOKEN": "ghp_0123456789"}},
    "old": {"type": "sse", "url": "https://x.example/sse"}
  }
}"#;

fn desktop(place: &Place) -> PathBuf {
    place.put(".config/Claude/claude_desktop_config.json", DESKTOP)
}

#[test]
fn each_programs_own_file_is_found_and_its_servers_become_packs() {
    let place = Place::new();
    desktop(&place);
    place.put(
        ".claude.json",
        &json!({
            "numStartups": 3, "mcpServers": {"everywhere": {"type": "stdio", "command": "a", "args": [], "env": {}}},
            "projects": {place.path("project").canonicalize().unwrap().to_str().unwrap(): {"mcpServers": {"here": {"type": "http", "url": "https://x/mcp", "headers": {"A": "${A}"}}}}},
        })
        .to_string(),
    );
    place.put(".cursor/mcp.json", r#"{"mcpServers": {"cur": {"command": "node", "args": ["${userHome}/s.js"]}}}"#);
    place.put(
        ".config/Code/User/mcp.json",
        "{\n  // mine\n  \"inputs\": [{\"id\": \"api-key\", \"type\": \"promptString\", \"description\": \"The key\", \"password\": true}],\n  \"servers\": {\"code\": {\"type\": \"stdio\", \"command\": \"x\", \"env\": {\"K\": \"${input:api-key}\"},},},\n}",
    );
    place.put(
        ".codex/config.toml",
        "model = \"o\"\n[mcp_servers.dex]\ncommand = \"uvx\"\nargs = [\"dex\"]\nstartup_timeout_sec = 30\n[mcp_servers.dex.env]\nA = \"1\"\n[mcp_servers.web]\nurl = \"https://w/mcp\"\nbearer_token_env_var = \"WEB\"\n",
    );
    for (program, packs) in [
        (
            "claude-desktop",
            vec![
                ("filesystem", "/parameters/command/2", json!("@modelcontextprotocol/server-filesystem")),
                ("My-GitHub", "/parameters/env/GITHUB_TOKEN", json!("ghp_0123456789")),
            ],
        ),
        (
            "claude-code",
            vec![
                ("everywhere", "/parameters/command", json!(["a"])),
                ("here", "/parameters/headers/A", json!("${env:A}")),
            ],
        ),
        ("cursor", vec![("cur", "/parameters/command/1", json!(place.path("s.js").to_str().unwrap()))]),
        ("vscode", vec![("code", "/parameters/env/K", json!("${env:API_KEY}"))]),
        (
            "codex",
            vec![
                ("dex", "/parameters/initTimeoutSeconds", json!(30)),
                ("web", "/parameters/auth/token", json!("${env:WEB}")),
            ],
        ),
    ] {
        let ended = place.run(&["packs", "import", "--from", program, "--yes", "--json"]);
        assert_eq!(ended.exit, 0, "{program}: {ended:?}");
        assert_eq!(ended.json()["written"], true, "{program}: {ended:?}");
        for (name, field, want) in packs {
            let file = place.path(&format!("vance/foot-tools/{name}.json"));
            let pack: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
            assert_eq!(pack.pointer(field), Some(&want), "{program}: {pack}");
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, 0o600, "{name}");
            let checked = place.run(&["packs", "check", file.to_str().unwrap()]);
            assert_eq!(checked.exit, 0, "{name}: {checked:?}");
        }
    }
    let sources = place.run(&["packs", "import", "--json"]).json();
    let named: Vec<&str> =
        sources["sources"].as_array().unwrap().iter().map(|s| s["program"].as_str().unwrap()).collect();
    assert_eq!(named, ["claude-desktop", "claude-code", "cursor", "vscode", "codex"], "{sources}");
}

#[test]
fn what_would_be_written_is_shown_and_only_a_yes_writes_it() {
    let place = Place::new();
    let file = desktop(&place);
    let dry = place.run(&["packs", "import", "--from", "claude-desktop", "--dry-run"]);
    assert_eq!(dry.exit, 0, "{dry:?}");
    for word in [
        "filesystem: writes ",
        "\"@modelcontextprotocol/server-filesystem\"",
        "note: its name there is 'My GitHub'",
        "note: (!) `GITHUB_TOKEN` in env looks like a credential",
        "old: cannot be taken over: HTTP+SSE",
        "nothing was written",
    ] {
        assert!(dry.out.contains(word), "{word}: {}", dry.out);
    }
    let nobody = place.run(&["packs", "import", file.to_str().unwrap()]);
    assert!(nobody.exit == 2 && nobody.err.contains("--yes writes"), "{nobody:?}");
    assert!(!place.path("vance/foot-tools").exists());
    for (keys, written) in [("3\n", false), ("yes\n", false), ("\u{4}", false), ("\u{3}", false), ("1\n", true)] {
        let mut command = place.program(&["packs", "import", "--from", "claude-desktop"]);
        command.env("TERM", "xterm");
        let (exit, text) = sit_down(command).answers(keys);
        assert_eq!(exit, 0, "{keys:?}: {text}");
        assert!(text.contains("Write 2 pack(s) to"), "{text}");
        assert_eq!(text.contains("that is not one of 1, 3: no"), keys == "yes\n", "{text}");
        assert_eq!(place.path("vance/foot-tools/filesystem.json").exists(), written, "{keys:?}: {text}");
    }
}

#[test]
fn packs_that_are_there_stay_until_somebody_insists() {
    let place = Place::new();
    desktop(&place);
    place.put(
        "vance/foot-tools/files.json",
        r#"{"name":"filesystem","type":"mcp_server","parameters":{"transport":"stdio","command":["mine"]}}"#,
    );
    place.put("vance/foot-tools/My-GitHub.json.disabled", "{}");
    let import = ["packs", "import", "--from", "claude-desktop", "--yes", "--json"];
    let said = place.run(&import).json();
    let actions = |said: &Value| -> Vec<String> {
        said["packs"].as_array().unwrap().iter().map(|p| p["action"].as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(
        (actions(&said), &said["written"]),
        (vec!["keep".to_owned(), "keep".to_owned(), "refuse".to_owned()], &json!(false))
    );
    assert_eq!(said["packs"][0]["changes"][0], "- parameters.command = [\"mine\"]", "{said}");
    assert!(said["packs"][1]["reason"].as_str().unwrap().contains("turned off"), "{said}");
    let mut forced = import.to_vec();
    forced.push("--force");
    let said = place.run(&forced).json();
    assert_eq!(actions(&said), ["replace", "replace", "refuse"], "{said}");
    assert!(place.read("vance/foot-tools/files.json").contains("server-filesystem"), "the file that holds the pack");
    let again = place.run(&import).json();
    assert_eq!(actions(&again), ["unchanged", "unchanged", "refuse"], "{again}");
    let one = place
        .run(&["packs", "import", "--from", "claude-desktop", "--only", "My GitHub", "--dry-run", "--json"])
        .json();
    assert_eq!(actions(&one), ["unchanged"], "{one}");
}

#[test]
fn a_server_that_is_not_there_is_an_error_also_beside_one_that_is() {
    let place = Place::new();
    let file = place.put("mcp.json", r#"{"mcpServers": {"good": {"command": "a"}}}"#);
    let words = ["packs", "import", file.to_str().unwrap(), "--yes", "--only", "good", "--only", "nosuch"];
    let ended = place.run(&words);
    assert!(ended.exit == 2 && ended.err.contains("nosuch") && ended.err.contains("good"), "{ended:?}");
    assert!(!place.path("vance/foot-tools/good.json").exists());
    assert_eq!(place.run(&words[..6]).exit, 0);
}

#[test]
fn a_file_of_the_working_directory_is_taken_only_by_its_name() {
    let place = Place::new();
    let evil = place.put("project/.mcp.json", r#"{"mcpServers": {"evil": {"command": "evil"}}}"#);
    let ended = place.run(&["packs", "import", "--from", "claude-code", "--yes"]);
    assert!(ended.exit == 2 && ended.err.contains("vancetope packs import .mcp.json"), "{ended:?}");
    assert!(!place.path("vance/foot-tools/evil.json").exists());
    assert_eq!(place.run(&["packs", "import", evil.to_str().unwrap(), "--yes"]).exit, 0);
    assert!(place.path("vance/foot-tools/evil.json").exists());
}

#[test]
fn files_that_hold_no_servers_say_why() {
    let place = Place::new();
    for (file, text, why) in [
        ("a.json", "{}", "holds no `mcpServers`"),
        ("b.json", "{\"mcpServers\": {", "not valid JSON"),
        ("c.toml", "x = ", "not valid TOML"),
        ("d.json", r#"{"mcpServers": {}}"#, "names no servers"),
        ("e.json", r#"{"mcpServers": {"a b": {"command": "x"}, "a-b": {"command": "y"}}}"#, "becomes 'a-b', too"),
    ] {
        let file = place.put(file, text);
        let command = place.program(&["packs", "import", file.to_str().unwrap(), "--dry-run"]);
        let ended = ended(command, "");
        assert!(format!("{}{}", ended.out, ended.err).contains(why), "{file:?}: {ended:?}");
    }
    let none = place.run(&["packs", "import", "nowhere.json"]);
    assert_eq!(none.exit, 2, "{none:?}");
    let all_bad = place.put("f.json", r#"{"mcpServers": {"a": {}}}"#);
    assert_eq!(place.run(&["packs", "import", all_bad.to_str().unwrap(), "--yes"]).exit, 1);
}

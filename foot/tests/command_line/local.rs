//! What needs no Brain: this machine's tools, and a Foot whose Brain is not there yet.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::harness::{Ended, environment, start};

async fn here(home: &Path, line: &str) -> Ended {
    start(&format!("--brain http://127.0.0.1:1 {line}"), environment(home)).ends().await
}

fn pack(home: &Path, file: &str, text: &str) {
    std::fs::create_dir_all(home.join("foot-tools")).unwrap();
    std::fs::write(home.join("foot-tools").join(file), text).unwrap();
}

#[tokio::test]
async fn tools_are_listed_without_a_brain_and_what_did_not_load_has_its_reason() {
    let home = tempfile::tempdir().unwrap();
    pack(home.path(), "broken.json", "{");
    pack(
        home.path(),
        "off.json",
        r#"{"name":"off","type":"mcp_server","enabled":false,"parameters":{"transport":"stdio","command":["true"]}}"#,
    );
    let ended = here(home.path(), "tools list --json").await;
    assert_eq!(ended.exit, 0, "{ended:?}");
    let said = ended.json();
    let tools = said["tools"].as_array().unwrap();
    let read = tools.iter().find(|t| t["name"] == "read_local_file").unwrap();
    assert_eq!((&read["pack"], &read["replay"]), (&json!(null), &json!("safe")));
    assert!(read["labels"].is_array(), "{read}");
    let skipped = said["skipped"].as_array().unwrap();
    for (pack, file) in [("off", "off.json"), ("broken", "broken.json")] {
        let skip = skipped.iter().find(|s| s["pack"] == pack).unwrap_or_else(|| panic!("{pack}: {said}"));
        assert!(skip["file"].as_str().unwrap().ends_with(file) && skip["reason"].as_str().unwrap().len() > 5, "{skip}");
    }
    let table = here(home.path(), "tools").await;
    assert!(table.out.contains("read_local_file") && table.err.contains("skipped: broken"), "{table:?}");
    let none = here(home.path(), "tools --no-tools --json").await;
    assert_eq!(none.json(), json!({"tools": [], "skipped": [], "notes": []}));
}

#[tokio::test]
async fn a_pack_file_is_checked_without_starting_it_and_every_mistake_has_its_line() {
    let home = tempfile::tempdir().unwrap();
    pack(
        home.path(),
        "good.json",
        r#"{"name":"a","type":"mcp_server","parameters":{"transport":"stdio","command":["no-such"]}}"#,
    );
    pack(
        home.path(),
        "bad.json",
        "{\"name\": \"b__\",\n\"type\": \"mcp\",\n\"parameters\": {\"transport\": \"stdio\",\n\"command\": \"a b\"},\n\"name\": \"c\"}",
    );
    let file = |name: &str| home.path().join("foot-tools").join(name).display().to_string();
    let good = here(home.path(), &format!("packs check {}", file("good.json"))).await;
    assert!(good.exit == 0 && good.out == "no problems\n", "{good:?}");
    let bad = here(home.path(), &format!("packs check {} {}", file("good.json"), file("bad.json"))).await;
    assert_eq!(bad.exit, 2, "{bad:?}");
    for line in [1, 2, 5] {
        assert!(bad.out.contains(&format!("bad.json:{line}: ")), "{line}: {bad:?}");
    }
    let json = here(home.path(), &format!("packs check {} --json", file("bad.json"))).await;
    let said = json.json();
    assert_eq!((json.exit, &said["ok"], &said["tools"]), (2, &json!(false), &json!([])));
    assert!(said["problems"][0]["line"].is_number() && said["skipped"].is_array(), "{said}");
    let none = here(home.path(), "packs check nowhere.json --json").await;
    assert_eq!((none.exit, &none.json()["error"]["code"]), (2, &json!("file")));
}

#[tokio::test]
async fn a_tool_is_called_without_a_brain_and_its_failure_is_the_commands() {
    let home = tempfile::tempdir().unwrap();
    let done = here(home.path(), r#"tools call read_local_file {"path":"Cargo.toml"}"#).await;
    assert!(done.exit == 0 && done.out.contains("name = \"vance-foot\""), "{done:?}");
    let json = here(home.path(), r#"tools call read_local_file {"path":"Cargo.toml"} --json"#).await;
    let said = json.json();
    assert_eq!((json.exit, &said["call"]["outcome"], &said["call"]["route"]), (0, &json!("done"), &json!("client")));
    assert!(
        said["result"]["text"].as_str().unwrap().contains("vance-foot") && said["result"]["content"].is_array(),
        "{said}"
    );
    let missing = here(home.path(), r#"tools call read_local_file {"path":"nowhere.txt"}"#).await;
    assert!(missing.exit == 1 && missing.err.starts_with("vancetope: read_local_file: "), "{missing:?}");
    let failed = here(home.path(), r#"tools call read_local_file {"path":"nowhere.txt"} --json"#).await;
    assert_eq!((failed.exit, &failed.json()["call"]["outcome"]), (1, &json!("failed")));
    assert!(failed.json()["error"]["message"].is_string(), "{failed:?}");
    let unknown = here(home.path(), "tools call reed_local_file --json").await;
    assert_eq!((unknown.exit, &unknown.json()["error"]["code"]), (1, &json!("unknown_tool")));
}

#[tokio::test]
async fn a_mistake_in_the_permissions_stops_the_command_with_its_line() {
    let home = tempfile::tempdir().unwrap();
    std::fs::write(home.path().join("permissions.yaml"), "allow: []\ndney: []\n").unwrap();
    let ended = here(home.path(), "tools").await;
    assert!(ended.exit == 2 && ended.err.contains("permissions.yaml:2: "), "{ended:?}");
}

#[allow(clippy::disallowed_methods)] // the program itself is under test, as a service manager starts it
fn foot(home: &Path, flag: &str) -> Child {
    Command::new(env!("CARGO_BIN_EXE_vancetope"))
        .args([flag, "--brain", "http://127.0.0.1:1"])
        .env("VANCE_HOME", home)
        .env_remove("VANCE_LOG")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_foot_without_its_brain_says_so_and_ends_cleanly_on_either_signal() {
    for (flag, signal) in [("--no-ui", Signal::SIGINT), ("--daemon", Signal::SIGTERM)] {
        let home = tempfile::tempdir().unwrap();
        let mut child = foot(home.path(), flag);
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let said = lines.map_while(Result::ok).find(|line| line.contains("http://127.0.0.1:1"));
        assert!(said.is_some(), "{flag}");
        kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"".as_slice()), "{flag}");
    }
}

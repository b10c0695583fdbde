//! `sandbox: on`: the kernel keeps programs away from what they do not need. The folders of these stories lie outside of the temporary folder, which
//! every program may use.

use std::path::PathBuf;

use serde_json::json;

use crate::support::{World, taken};

const OPEN: &str = "allow: [{tool: shell_execute}, {exec: [sh]}]\nsandbox: ";

fn world(sandbox: &str) -> World {
    let world = World::below(closed(), &format!("{OPEN}{sandbox}"), None);
    std::fs::write(world.outside.join("secret"), "the secret").unwrap();
    std::fs::write(world.home.join("access.yaml"), "token: the secret").unwrap();
    world
}

/// A folder that no sandbox opens by itself.
fn closed() -> PathBuf {
    let built = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    if built.starts_with("/tmp") || built.starts_with(std::env::temp_dir()) {
        std::env::home_dir().unwrap()
    } else {
        built
    }
}

/// What a shell line prints, with the words that the system has for what went wrong.
async fn says(world: &World, line: &str) -> String {
    let line = format!("({line}) 2>&1; true");
    taken(world.call("shell_execute", json!({"argv": ["sh", "-c", line]})).await).0
}

#[tokio::test]
async fn a_secret_is_unreadable_with_it_and_readable_without() {
    for (sandbox, readable) in [("off", true), ("on", false)] {
        let world = world(sandbox);
        // By their way from the project: a rule refuses words that name the home.
        for file in ["outside/secret", "home/access.yaml"] {
            let text = says(&world, &format!("cat $(dirname $PWD)/{file}")).await;
            assert_eq!(text.contains("the secret"), readable, "sandbox {sandbox}: {text}");
            assert_eq!(text.contains("Permission denied"), !readable, "sandbox {sandbox}: {text}");
        }
        let text = says(&world, &format!("kill -0 {} && echo reached", std::process::id())).await;
        assert_eq!(text.contains("reached"), readable, "sandbox {sandbox}, a signal: {text}");
        let made = world.outside.join("made");
        says(&world, &format!("echo x > {}", made.display())).await;
        assert_eq!(made.exists(), readable, "sandbox {sandbox}");
    }
}

#[tokio::test]
async fn what_programs_need_is_there() {
    let world = world("on");
    assert_eq!(says(&world, "echo kept > note && cat note").await, "kept\n");
    assert_eq!(std::fs::read_to_string(world.project.join("note")).unwrap(), "kept\n");
    assert_eq!(says(&world, "t=$(mktemp) && echo temp > $t && cat $t && rm $t").await, "temp\n");
    for (line, wanted) in [
        ("python3 -c 'import json, ssl; print(json.dumps([1]))'", "[1]\n"),
        ("node -e 'console.log(1 + 1)'", "2\n"),
        ("git init -q . && git status --short | head -1", "?? note\n"),
    ] {
        assert_eq!(says(&world, line).await, wanted, "{line}");
    }
}

#[tokio::test]
async fn the_rules_open_more() {
    let world = world("off");
    let folder = world.outside.display();
    let world = World::below(closed(), &format!("{OPEN}{{read: ['{folder}']}}"), None);
    assert_eq!(says(&world, &format!("cat {folder}/secret")).await, "the secret");
    assert!(says(&world, &format!("echo x > {folder}/secret")).await.contains("Permission denied"));
}

#[tokio::test]
async fn the_terminal_of_a_person_cannot_be_opened() {
    let pty = nix::pty::openpty(None, None).unwrap();
    let terminal = nix::unistd::ttyname(&pty.slave).unwrap();
    for (sandbox, opens) in [("off", true), ("on", false)] {
        let world = world(sandbox);
        let python =
            format!("import os; os.open(\"{}\", os.O_RDWR | os.O_NOCTTY); print(\"opened\")", terminal.display());
        let text = says(&world, &format!("python3 -c '{python}'")).await;
        assert_eq!(text.contains("opened"), opens, "sandbox {sandbox}: {text}");
        assert_eq!(text.contains("Permission denied"), !opens, "sandbox {sandbox}: {text}");
        assert!(!says(&world, ": < /dev/tty && echo has it").await.contains("has it"), "sandbox {sandbox}");
    }
}

//! Ways of running in which nobody is asked: a project's pack stays out whatever is at the other end, and the reason names the way.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;

use nix::sys::signal::{Signal, kill};

use crate::fake_brain::FakeBrain;
use crate::prompt::{home, program};
use crate::terminal::Terminal;

/// A project's pack that leaves a marker when it runs.
fn shipped(home: &Path) {
    let folder = home.join("project/.vancetope/foot-tools");
    std::fs::create_dir_all(&folder).unwrap();
    let parameters = serde_json::json!({"transport": "stdio", "command": ["touch", home.join("marker")]});
    let pack = serde_json::json!({"name": "shipped", "type": "mcp_server", "parameters": parameters});
    std::fs::write(folder.join("shipped.json"), pack.to_string()).unwrap();
}

#[test]
fn a_one_shot_at_a_terminal_asks_nobody_and_says_so() {
    let (home, brain) = (home(), FakeBrain::start());
    shipped(home.path());
    std::fs::write(home.path().join("project/plan.yaml"), "tasks: [{id: a, steps: [{call: now}]}]\n").unwrap();
    let url = brain.url();
    let words = ["--brain", url.as_str(), "--skill-one-shot", "plan.yaml"];
    let terminal = Terminal::start(program(home.path(), &words));
    terminal.until("why nobody is asked", |_| terminal.raw().contains("--skill-one-shot asks nobody"));
    let raw = terminal.raw();
    assert!(raw.contains("shipped") && !raw.contains("Load it?"), "{raw}");
    assert!(!home.path().join("marker").exists(), "it ran: {raw}");
}

#[test]
fn a_debug_interface_without_a_terminal_asks_nobody_and_says_so() {
    let (home, brain) = (home(), FakeBrain::start());
    shipped(home.path());
    let url = brain.url();
    let mut command = program(home.path(), &["--brain", &url, "--rest-api", "127.0.0.1:0"]);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said = Vec::new();
    for line in lines.map_while(Result::ok) {
        said.push(line);
        if said.last().is_some_and(|line| line.contains("shipped") && line.contains("no terminal to ask on")) {
            break;
        }
    }
    kill(nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGTERM).unwrap();
    let ended = child.wait().unwrap();
    let all = said.join("\n");
    assert!(said.last().is_some_and(|line| line.contains("no terminal to ask on")), "{all}");
    assert!(!all.contains("Load it?") && ended.success(), "{ended}: {all}");
    assert!(!home.path().join("marker").exists(), "it ran: {all}");
}

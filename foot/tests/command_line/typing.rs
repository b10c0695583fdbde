//! What is typed is not lost, whatever appears above it and whatever runs meanwhile: the real program on a terminal.

use serde_json::json;

use crate::fake_brain::FakeBrain;
use crate::prompt::{home, program};
use crate::terminal::Terminal;

/// Writes a log line, which appears above the prompt, fifty times a second until there is a file; its tool waits for another one.
const CHATTER: &str = r#"
import json, os, sys, threading, time

lock = threading.Lock()
def send(**m):
    with lock: print(json.dumps({"jsonrpc": "2.0", **m}), flush=True)
def chat():
    n = 0
    while not os.path.exists(sys.argv[1]):
        n += 1
        send(method="notifications/message", params={"level": "error", "data": f"chatter {n}"})
        time.sleep(0.02)
for line in sys.stdin:
    m = json.loads(line)
    method, id = m.get("method"), m.get("id")
    if method == "initialize":
        send(id=id, result={"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}, "logging": {}},
                            "serverInfo": {"name": "chatter", "version": "1"}})
    elif method == "tools/list":
        send(id=id, result={"tools": [{"name": "wait", "inputSchema": {"type": "object"}}]})
        threading.Thread(target=chat, daemon=True).start()
    elif method == "tools/call":
        while not os.path.exists(sys.argv[2]): time.sleep(0.01)
        send(id=id, result={"content": [{"type": "text", "text": "waited"}]})
    elif id is not None:
        send(id=id, result={})
"#;

#[test]
fn keys_that_are_typed_while_lines_appear_or_a_command_runs_are_all_there_afterwards() {
    let (home, brain) = (home(), FakeBrain::start());
    let server = home.path().join("server.py");
    std::fs::write(&server, CHATTER).unwrap();
    let folder = home.path().join("vance/foot-tools");
    std::fs::create_dir_all(&folder).unwrap();
    let (quiet, go) = (home.path().join("quiet"), home.path().join("go"));
    let parameters = json!({"transport": "stdio", "command": ["python3", server, quiet, go]});
    let pack = json!({"name": "chat", "type": "mcp_server", "parameters": parameters});
    std::fs::write(folder.join("chat.json"), pack.to_string()).unwrap();
    let url = brain.url();
    let mut terminal = Terminal::start(program(home.path(), &["--brain", url.as_str()]));
    terminal.shows("| 13 tools");
    terminal.shows("chatter");
    for round in 0..8 {
        // A line that is typed key by key while others appear above it.
        let goal = format!("tidy room {round}");
        for key in goal.chars() {
            terminal.types(&key.to_string());
            std::thread::sleep(std::time::Duration::from_millis(round % 4));
        }
        terminal.ends_with(&format!("\u{203a} {goal}"));
        terminal.types("\u{3}");
        terminal.ends_with("\u{203a}");
        // A whole line and half of another one, while a command runs.
        terminal.types("/tools call chat__wait '{}'\r");
        terminal.until("the call runs", |rows| rows.last().is_some_and(|row| !row.starts_with('\u{203a}')));
        terminal.types("/packs\r");
        std::thread::sleep(std::time::Duration::from_millis(round * 7));
        let half = format!("half a goal {round}");
        terminal.types(&half[..round as usize]);
        std::fs::write(&go, "").unwrap();
        terminal.types(&half[round as usize..]);
        terminal.ends_with(&format!("\u{203a} {half}"));
        std::fs::remove_file(&go).unwrap();
        terminal.types("\u{3}");
        terminal.ends_with("\u{203a}");
    }
    std::fs::write(&quiet, "").unwrap();
    assert_eq!(terminal.raw().matches("waited").count(), 8);
    terminal.types("/quit\r");
    assert_eq!(terminal.leaves().0, 0);
}

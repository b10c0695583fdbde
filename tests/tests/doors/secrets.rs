//! What server packs need and nobody else sees.

use std::path::Path;
use std::process::Stdio;

use anyhow::Context as _;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;
use vance_tests::api::Api;
use vance_tests::home::Home;
use vance_tests::process::{program, run};
use vance_tests::wait::{PATIENCE, until};

const FIRST: &str = "hunter2-first-value";
const SECOND: &str = "hunter3-second-value";

/// A server that says the length of its key, and complains of the key itself.
const SERVER: &str = r#"
import json, os, sys
key = os.environ["KEY"]
print("my key is " + key, file=sys.stderr, flush=True)
for line in sys.stdin:
    m = json.loads(line)
    if m.get("method") == "initialize":
        r = {"protocolVersion": m["params"]["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": {"name": "k", "version": "1"}}
    elif m.get("method") == "tools/list":
        r = {"tools": [{"name": "length", "inputSchema": {"type": "object"}}]}
    elif m.get("method") == "tools/call":
        r = {"content": [{"type": "text", "text": str(len(key))}]}
    elif "id" in m:
        print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "error": {"code": -32601, "message": "no"}}), flush=True)
        continue
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": m["id"], "result": r}), flush=True)
"#;

fn pack(home: &Home, name: &str, key: &str) -> anyhow::Result<()> {
    let program = home.write_project("server.py", SERVER)?;
    let parameters = json!({"transport": "stdio", "command": ["python3", program], "env": {"KEY": key}});
    let pack = json!({"name": name, "type": "mcp_server", "parameters": parameters});
    home.write(&format!("brain/packs/{name}.json"), &serde_json::to_string_pretty(&pack)?)?;
    Ok(())
}

/// `secret set`, with the value on standard input.
async fn set(home: &Home, name: &str, value: &str) -> anyhow::Result<()> {
    #[allow(clippy::disallowed_methods)] // the test waits for it
    let mut child = Command::new(program("vance-brain")?)
        .args(["secret", "set", name])
        .env("VANCE_HOME", home.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut input = child.stdin.take().context("stdin")?;
    input.write_all(format!("{value}\n").as_bytes()).await?;
    drop(input);
    let output = child.wait_with_output().await?;
    let said = format!("{name} is set ({} characters)\n", value.len());
    anyhow::ensure!(output.status.success() && output.stdout == said.into_bytes());
    Ok(())
}

/// A Brain that logs everything into a file.
async fn serve(home: &Home, log: &Path) -> anyhow::Result<(Child, String)> {
    #[allow(clippy::disallowed_methods)] // the test is the owner here, and kills what it starts
    let mut child = Command::new(program("vance-brain")?)
        .args(["serve", "--listen", "127.0.0.1:0"])
        .env("VANCE_HOME", home.path())
        .env("VANCE_LOG", "trace")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(log)?)
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("stdout")?).lines();
    let ready = timeout(PATIENCE, lines.next_line()).await??.context("the Brain ended")?;
    Ok((child, ready.strip_prefix("brain ready ").context("ready")?.to_owned()))
}

async fn length(api: &Api, tool: &str) -> anyhow::Result<Value> {
    Ok(api.call(tool, &json!({"arguments": {}, "timeout": "20s"})).await?.1)
}

/// Every file below a folder that holds a text.
fn files_with(folder: &Path, text: &str) -> anyhow::Result<Vec<String>> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()).contains(text) {
                found.push(path.display().to_string());
            }
        }
    }
    Ok(found)
}

#[tokio::test]
async fn a_secret_is_set_and_changed_while_the_brain_runs_and_is_seen_by_its_pack_alone() -> anyhow::Result<()> {
    let home = Home::new()?;
    pack(&home, "needy", "{{secret:KEY}}")?;
    pack(&home, "plain", "1234")?;
    let check = run("vance-brain", &home, &["check"]).await?;
    let line = "needy.json:11: the secret KEY is not set: run `vance-brain secret set KEY`";
    assert!(check.code == 2 && check.stdout.contains(line), "{}", check.stdout);
    let log = home.root().join("log");
    let (_brain, url) = serve(&home, &log).await?;
    let api = Api::new(&home, &url)?;
    // The other pack does not wait for it.
    let called = until("the pack without a secret is up", || async {
        let called = length(&api, "plain__length").await?;
        Ok((called["result"]["text"] == "4").then_some(called))
    });
    called.await?;
    let why = until("the pack says what it lacks", || async {
        let called = length(&api, "needy__length").await?.to_string();
        Ok(called.contains("secret set KEY").then_some(called))
    })
    .await?;
    let mut answers = why;
    for value in [FIRST, SECOND] {
        set(&home, "KEY", value).await?;
        until("the pack has the new value", || async {
            let called = length(&api, "needy__length").await?;
            Ok((called["result"]["text"].as_str() == Some(value.len().to_string().as_str())).then_some(()))
        })
        .await?;
    }
    for path in ["/api/v1/sessions", "/api/v1/sessions/default.local/tools", "/api/v1/tasks", "/metrics", "/readyz"] {
        answers += &api.get(path).await?.1.to_string();
    }
    for words in [&["secret", "list"][..], &["check"], &["secret", "rotate"], &["secret", "list", "--json"]] {
        let said = run("vance-brain", &home, words).await?;
        answers = answers + &said.stdout + &said.stderr;
    }
    let length_after = length(&api, "needy__length").await?;
    assert_eq!(length_after["result"]["text"], SECOND.len().to_string(), "{length_after}");
    let log = std::fs::read_to_string(log)?;
    // Also what the server itself said of it is there, without it.
    assert!(log.contains("my key is {{secret:KEY}}"), "the log is read");
    for value in [FIRST, SECOND] {
        assert!(!answers.contains(value), "{answers}");
        assert!(!log.contains(value), "{log}");
        assert_eq!(files_with(home.path(), value)?, Vec::<String>::new());
    }
    Ok(())
}

//! Logins of server packs: by a browser or a code, kept encrypted, used by the Brain that runs already.

use std::path::Path;

use anyhow::Context as _;
use serde_json::json;
use tokio::process::{Child, Command};
use vance_tests::api::Api;
use vance_tests::home::Home;
use vance_tests::process::{Brain, Process, run};
use vance_tests::wait::until;

/// An MCP server that wants a login, with its authorization server.
struct Server {
    _child: Child,
    url: String,
    ledger: std::path::PathBuf,
}

impl Server {
    async fn start(home: &Home) -> anyhow::Result<Self> {
        let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace")?;
        let script = root.join("shared/mcp-host/tests/support/fake_oauth.py");
        let ledger = home.project().join("oauth-ledger");
        #[allow(clippy::disallowed_methods)] // the test is the owner here, and kills what it starts
        let child = Command::new("python3")
            .arg(script)
            .arg(&ledger)
            .args([&port.to_string(), "device"])
            .kill_on_drop(true)
            .spawn()?;
        until("the server is there", || async { Ok(tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()) })
            .await?;
        Ok(Self { _child: child, url: format!("http://127.0.0.1:{port}"), ledger })
    }

    fn count(&self, line: &str) -> anyhow::Result<usize> {
        Ok(std::fs::read_to_string(&self.ledger)?.lines().filter(|l| *l == line).count())
    }
}

#[tokio::test]
async fn a_login_by_code_brings_the_pack_of_a_running_brain_up_and_is_kept_encrypted() -> anyhow::Result<()> {
    let home = Home::new()?;
    let server = Server::start(&home).await?;
    let parameters = json!({"transport": "http", "url": format!("{}/mcp", server.url)});
    let pack = json!({"name": "guarded", "type": "mcp_server", "parameters": parameters});
    home.write("brain/packs/guarded.json", &pack.to_string())?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let body = json!({"arguments": {"a": 1}, "timeout": "20s"});
    let call = || api.call("guarded__echo", &body);
    until("the pack says what it lacks", || async {
        let said = call().await?.1.to_string();
        Ok(said.contains("vance-brain oauth login guarded").then_some(()))
    })
    .await?;
    let mut login = Process::start("vance-brain", &home, &["oauth", "login", "guarded", "--device"])?;
    let direct = until("the code is shown", || async {
        let log = login.log();
        Ok(log.split_once("(or open ").and_then(|(_, rest)| rest.split_once(')')).map(|(url, _)| url.to_owned()))
    })
    .await?;
    reqwest::get(direct).await?.error_for_status()?;
    assert_eq!(login.exit_code().await?, 0, "{}", login.log());
    until("the running Brain uses it", || async { Ok((call().await?.1["call"]["outcome"] == "done").then_some(())) })
        .await?;
    // Sixteen calls meet a refused token, and one of them renews it.
    reqwest::get(format!("{}/revoke", server.url)).await?;
    let (mut calls, mut done) = (tokio::task::JoinSet::new(), 0);
    for _ in 0..16 {
        let api = api.clone();
        calls.spawn(async move { api.call("guarded__echo", &json!({"arguments": {}})).await });
    }
    while let Some(call) = calls.join_next().await {
        let (_, body) = call??;
        done += usize::from(body["call"]["outcome"] == "done");
    }
    assert_eq!((done, server.count("token refresh_token")?), (16, 1));
    // Nothing of it lies about in clear.
    let kept = std::fs::read_to_string(home.path().join("brain/data/secrets.json"))?;
    assert!(kept.contains("\"login\"") && !kept.contains("access_token"), "{kept}");
    let beside = std::fs::read_dir(home.path().join("brain/oauth")).context("where the lock is")?;
    for entry in beside {
        let path = entry?.path();
        assert_eq!(std::fs::read(&path)?, b"", "{}", path.display());
    }
    let forgotten = run("vance-brain", &home, &["oauth", "login", "guarded", "--forget"]).await?;
    assert_eq!((forgotten.code, forgotten.stdout.as_str()), (0, "guarded: the login is forgotten\n"));
    let unknown = run("vance-brain", &home, &["oauth", "login", "nothing"]).await?;
    assert!(unknown.code == 2 && unknown.stderr.contains("no server pack 'nothing'"), "{}", unknown.stderr);
    Ok(())
}

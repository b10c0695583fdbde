//! A Foot without a prompt: what a service manager hears, where log lines go, the debug interface.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::fake_brain::{FakeBrain, TOKEN};

/// No wait for an event lasts so long on a machine that works.
const LIMIT: Duration = Duration::from_secs(20);

/// Ends with the test.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn start(home: &std::path::Path, brain: &FakeBrain, words: &[&str], env: &[(&str, &str)]) -> Serving {
    std::fs::create_dir_all(home.join("project")).unwrap();
    // The test is the person who starts the program from a shell.
    #[allow(clippy::disallowed_methods)]
    let mut command = Command::new(env!("CARGO_BIN_EXE_vancetope"));
    command.args(words).args(["--brain", &brain.url()]).current_dir(home.join("project")).env_clear();
    command
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("VANCE_HOME", home.join("vance"))
        .env("VANCE_TOKEN", TOKEN);
    command.envs(env.iter().copied()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    Serving(command.spawn().unwrap())
}

#[test]
fn a_service_manager_hears_that_the_foot_is_up_lives_and_ends() {
    let (home, brain) = (tempfile::tempdir().unwrap(), FakeBrain::start());
    let (path, log) = (home.path().join("notify"), home.path().join("foot.log"));
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(LIMIT)).unwrap();
    let hears = |wanted: &str| {
        let mut bytes = [0; 1000];
        loop {
            let n = manager.recv(&mut bytes).unwrap();
            let text = std::str::from_utf8(&bytes[..n]).unwrap();
            if text == wanted {
                return;
            }
        }
    };
    let env = [
        ("NOTIFY_SOCKET", path.to_str().unwrap()),
        ("WATCHDOG_USEC", "100000"),
        ("VANCE_LOG_FILE", log.to_str().unwrap()),
    ];
    let mut foot = start(home.path(), &brain, &["--daemon"], &env);
    hears("READY=1");
    hears("STATUS=waiting for the Brain");
    hears("WATCHDOG=1");
    hears("WATCHDOG=1");
    kill(Pid::from_raw(i32::try_from(foot.0.id()).unwrap()), Signal::SIGTERM).unwrap();
    hears("STOPPING=1");
    assert_eq!(foot.0.wait().unwrap().code(), Some(0));
    let lines = std::fs::read_to_string(&log).unwrap();
    assert!(lines.contains("INFO loaded 0 pack(s)") && lines.contains("no line to the Brain"), "{lines}");
    assert_eq!(log.metadata().unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn the_debug_interface_serves_who_has_the_token_and_answers_no_question() {
    let (home, brain) = (tempfile::tempdir().unwrap(), FakeBrain::start());
    let mut foot = start(home.path(), &brain, &["--rest-api"], &[]);
    let mut line = String::new();
    BufReader::new(foot.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("rest api ").unwrap().to_owned();
    let token = std::fs::read_to_string(home.path().join("vance/state/rest-api.token")).unwrap();
    drop(rustls::crypto::ring::default_provider().install_default());
    let http = reqwest::Client::builder().no_proxy().tls_certs_only([]).build().unwrap();
    let asks = async |request: reqwest::RequestBuilder| {
        let response = request.send().await.unwrap();
        (response.status().as_u16(), response.json::<Value>().await.unwrap())
    };
    let get = |path: &str| http.get(format!("{url}{path}")).bearer_auth(token.trim());
    let call =
        |tool: &str, body: Value| http.post(format!("{url}/tools/{tool}/call")).bearer_auth(token.trim()).json(&body);

    let (status, tools) = asks(get("/tools")).await;
    assert!(status == 200 && tools["tools"].as_array().unwrap().len() == 12, "{tools}");
    let (status, read) = asks(call("list_local_files", json!({"arguments": {}}))).await;
    assert_eq!((status, &read["call"]["outcome"]), (200, &json!("done")), "{read}");
    let wanted = json!({"arguments": {"path": "a.txt", "content": "hi"}, "timeout": "5s"});
    let (status, written) = asks(call("write_local_file", wanted)).await;
    assert_eq!((status, &written["error"]["code"]), (200, &json!("permission_denied")), "{written}");
    assert!(!home.path().join("project/a.txt").exists());
    for (request, want) in [
        (http.get(format!("{url}/tools")), 401),
        (http.get(format!("{url}/tools")).bearer_auth("guess"), 401),
        (get("/tools").header("Origin", url.as_str()), 403),
        (get("/tools").header("Host", "rebound.example"), 403),
        (get("/answers"), 404),
        (call("list_local_files", json!({"arguments": []})), 400),
        (call("list_local_files", json!({"argument": {}})), 422),
        (call("list_local_files", json!({"timeout": "soon"})), 400),
    ] {
        let (status, said) = asks(request).await;
        assert!(status == want && said["error"]["message"].is_string(), "{status}, not {want}: {said}");
    }
    let (_, packs) = asks(get("/packs")).await;
    assert_eq!(packs, json!({"packs": []}));
    let reload = http.post(format!("{url}/tools/reload")).bearer_auth(token.trim());
    let (status, reloaded) = asks(reload).await;
    let summary = json!("loaded 0 pack(s) \u{2192} 0 tool(s); 0 skipped, 0 failed");
    assert_eq!((status, &reloaded["summary"]), (200, &summary), "{reloaded}");
}

//! What servers say reaches the log, harmless, and what goes through them does not.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/host.rs"]
mod host;

use std::io::Write;
use std::sync::{Arc, Mutex};

use host::{Host, plan, run, text_of};
use serde_json::json;
use vance_mcp_host::{HostState, Vault};
use vance_shared::call::Outcome;
use vance_shared::launch::{Origin, Transport};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    fn start() -> Self {
        let log = Self::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_ansi(false)
            .with_env_filter("warn,vance_mcp_host=trace")
            .with_writer(move || writer.clone());
        tracing::subscriber::set_global_default(subscriber.finish()).unwrap();
        log
    }

    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

#[test]
fn a_servers_words_are_logged_and_escaped_and_payloads_are_not() {
    let log = Log::start();
    run(async {
        let host = Host::of_fake(&["garbage"]);
        host.up().await;
        text_of(&host.call("echo", json!({"text": "the payload"})).await);
        text_of(&host.call("log", json!({})).await);
        let said = |text: &str| log.text().contains(text);
        host.until("the log", |_| said("server log:") && said("stderr: on stderr")).await;
        let text = log.text();
        assert!(!text.contains('\u{1b}'), "{text}");
        assert!(!text.contains("the payload"), "{text}");
        assert!(text.contains("is no message; skipped"), "{text}");
        host.end().await;
    });
}

/// A key of two lines, with what programs escape.
const KEY: &str = "line-one-\"S\\EK\u{e4}\nline-two-SEKRET";

#[derive(Debug)]
struct One;

impl Vault for One {
    fn secret(&self, name: &str) -> Result<String, String> {
        if name == "K" { Ok(KEY.to_owned()) } else { Err(format!("the secret {name} is not set")) }
    }
    fn login(&self, _: &str) -> Result<Option<String>, String> {
        Ok(None)
    }
    fn keep_login(&self, _: &str, _: &str) -> Result<(), String> {
        Ok(())
    }
    fn forget_login(&self, _: &str) -> Result<bool, String> {
        Ok(false)
    }
    fn login_mark(&self, _: &str) -> u64 {
        0
    }
}

fn leaky(word: &str) -> Host {
    let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/leaky.py");
    let argv = vec!["python3".to_owned(), script.to_str().unwrap().to_owned(), word.to_owned()];
    let env = [("KEY".to_owned(), "{{secret:K}}".to_owned())].into();
    let mut plan = plan(Transport::Stdio { argv, cwd: None, env });
    plan.origin = Origin::Server;
    Host::with_vault(plan, Arc::new(One))
}

fn shows_no_key(text: &str) {
    let parts = ["line-one", "SEK\u{e4}", "SEKRET"];
    assert!(!parts.iter().any(|part| text.contains(part)), "{text}");
    assert!(text.contains("{{secret:K}}"), "{text}");
}

#[test]
fn a_key_that_a_server_shows_stands_in_no_log_error_reason_or_description() {
    let log = Log::start();
    run(async {
        let host = leaky("up");
        host.up().await;
        for tool in &*host.handle.tools() {
            shows_no_key(&tool.description);
            shows_no_key(tool.input_schema.get());
        }
        shows_no_key(&format!("{:?}", host.events()));
        for tool in ["error", "fail"] {
            let outcome = host.call(tool, json!({})).await;
            assert_eq!(outcome.word(), "failed");
            shows_no_key(&serde_json::to_string(&outcome).unwrap());
        }
        // What a call is made for is not changed.
        let Outcome::Done(result) = host.call("give", json!({})).await else { panic!("done") };
        assert_eq!(result.joined_text(), format!("the key is {KEY}"));
        host.until("the log", |_| log.text().contains("server log:")).await;
        host.end().await;

        let host = leaky("die");
        host.until("its end", |host| matches!(host.handle.state(), HostState::Failed { .. })).await;
        shows_no_key(&host.handle.state().to_string());
        shows_no_key(&format!("{:?}", host.events()));
        host.end_failed().await;
    });
    let text = log.text();
    assert!(["server log:", "is no message; skipped", "stderr:"].iter().all(|said| text.contains(said)), "{text}");
    shows_no_key(&text);
}

//! What servers say reaches the log, harmless, and what goes through them does not.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "support/host.rs"]
mod host;

use std::io::Write;
use std::sync::{Arc, Mutex};

use host::{Host, run, text_of};
use serde_json::json;

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
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

#[test]
fn a_servers_words_are_logged_and_escaped_and_payloads_are_not() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_env_filter("warn,vance_mcp_host=trace")
        .with_writer(move || writer.clone());
    tracing::subscriber::set_global_default(subscriber.finish()).unwrap();
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

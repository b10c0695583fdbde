//! A home, a user's home of its own, a project and a web page: nothing outside them is written.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::response::Html;
use axum::routing::get;
use serde_json::Value;
use tokio::process::Command;
use vance_tests::home::Home;
use vance_tests::process::{Brain, Process, processes_with, program};
use vance_tests::wait::until;

use crate::page::{Call, SITE};

/// Eleven interpreters and two browsers may have to share two cores.
const PATIENCE: Duration = Duration::from_secs(180);

const HTML: &str = "<!doctype html><html><head><title>Green tea</title></head><body><main><h1>Green tea</h1>\
    <p>Pour at 80 degrees, and wait for two minutes before you drink it.</p><button>Brew</button></main></body></html>";

/// Where the servers of one test live.
pub(crate) struct Place {
    pub(crate) home: Home,
    /// The page, in place of the documents'.
    pub(crate) site: String,
}

impl Place {
    pub(crate) async fn new() -> anyhow::Result<Self> {
        let home = Home::new()?;
        home.write_project("tea.txt", "a cup of green tea")?;
        #[allow(clippy::disallowed_methods)] // the test waits for it
        let made = Command::new("git").args(["init", "-q"]).current_dir(home.project()).status().await?;
        anyhow::ensure!(made.success(), "git init");
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let site = format!("http://{}/", listener.local_addr()?);
        let router = Router::new().route("/", get(|| async { Html(HTML) }));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Ok(Self { home, site })
    }

    /// Writes a pack of the Foot.
    pub(crate) fn pack(&self, pack: &Value) -> anyhow::Result<()> {
        let name = pack["name"].as_str().context("name")?;
        self.home.write(&format!("foot-tools/{name}.json"), &self.here(&pack.to_string()))?;
        Ok(())
    }

    /// A text of the documents, with this place's web page.
    pub(crate) fn here(&self, text: &str) -> String {
        text.replace(SITE, &self.site)
    }

    /// The home of the person who sits here: one for each name.
    fn user(&self, name: &str) -> anyhow::Result<PathBuf> {
        let user = self.home.root().join(name);
        std::fs::create_dir_all(&user)?;
        Ok(user)
    }

    /// `vancetope ARGS --json`, typed by a person of this name.
    pub(crate) async fn vancetope(&self, user: &str, args: &[&str]) -> anyhow::Result<Value> {
        #[allow(clippy::disallowed_methods)] // the test waits for it
        let output = Command::new(program("vancetope")?)
            .args(args)
            .arg("--json")
            .env_remove("VANCE_BRAIN")
            .env_remove("VANCE_TOKEN")
            .env("VANCE_HOME", self.home.path())
            .env("HOME", self.user(user)?)
            .current_dir(self.home.project())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output =
            tokio::time::timeout(PATIENCE, output).await.with_context(|| format!("{args:?} does not end"))??;
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        let value = serde_json::from_str(&stdout).with_context(|| format!("{args:?}: {stdout}\n{stderr}"))?;
        anyhow::ensure!(output.status.success(), "{args:?}: {stdout}\n{stderr}");
        Ok(value)
    }

    /// Makes a call of the page, with further arguments of the command line; gives the text of its answer.
    pub(crate) async fn call(&self, user: &str, tool: &str, arguments: &str, more: &[&str]) -> anyhow::Result<String> {
        let arguments = self.here(arguments);
        let words = [&["tools", "call", tool, &arguments, "--timeout", "120s"], more].concat();
        let said = self.vancetope(user, &words).await?;
        anyhow::ensure!(said["call"]["outcome"] == "done", "{tool}: {said}");
        Ok(said["result"]["text"].as_str().with_context(|| format!("{tool}: {said}"))?.to_owned())
    }

    /// The same, and the answer is what the page says.
    pub(crate) async fn ask(&self, user: &str, call: &Call, more: &[&str]) -> anyhow::Result<()> {
        let answer = self.call(user, &call.tool, &call.arguments, more).await?;
        anyhow::ensure!(answer.contains(&self.here(&call.answer)), "{}: {answer}", call.tool);
        Ok(())
    }

    /// A Foot that stays.
    pub(crate) async fn foot(&self, user: &str, brain: &Brain) -> anyhow::Result<Process> {
        let user = self.user(user)?;
        let user = user.to_str().context("a path in UTF-8")?;
        let mut foot =
            Process::start_with("vancetope", &self.home, &["--daemon", "--brain", &brain.url], &[("HOME", user)])?;
        foot.line("foot ready").await?;
        Ok(foot)
    }

    /// Nothing runs any more that was started for this place.
    pub(crate) async fn is_quiet(&self) -> anyhow::Result<()> {
        let root = self.home.root().to_str().context("a path in UTF-8")?;
        until("all that was started is gone", || async { Ok(processes_with(root)?.is_empty().then_some(())) }).await
    }
}

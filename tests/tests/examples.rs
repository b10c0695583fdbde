//! `examples/scientist`, `examples/developer`, `examples/night`: each is run from a copy, with the servers that the tests installed.
#![allow(missing_docs)]

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::process::Command;
use vance_tests::api::{Api, Tree};
use vance_tests::home::Home;
use vance_tests::process::{Brain, Process};
use vance_tests::wait::until;

const SESSION: &str = "default.local";

fn root() -> anyhow::Result<PathBuf> {
    Ok(Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("root")?.join("examples"))
}

fn cache() -> anyhow::Result<PathBuf> {
    let own = std::env::var_os("VANCE_TEST_CACHE").map(PathBuf::from);
    let usual = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/vancetope-test"));
    own.or_else(usual).context("HOME")
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?
        } else {
            std::fs::copy(entry.path(), to).map(drop)?
        }
    }
    Ok(())
}

/// The installed program in place of `npx -y PACKAGE` or `uvx PACKAGE`.
fn installed(folder: &Path) -> anyhow::Result<()> {
    let Ok(files) = std::fs::read_dir(folder) else { return Ok(()) };
    for file in files {
        let path = file?.path();
        let mut pack: Value = serde_json::from_str(&std::fs::read_to_string(&path)?)?;
        let words = pack["parameters"]["command"].as_array().cloned().unwrap_or_default();
        let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
        if pack["enabled"] == false || words.is_empty() {
            continue;
        }
        let (program, rest) = match words.as_slice() {
            ["npx", "-y", package, rest @ ..] => {
                let name = package.split('/').next_back().and_then(|p| p.split('@').next()).context("a package")?;
                (cache()?.join("npm/node_modules/.bin").join(format!("mcp-{name}")), rest)
            }
            ["uvx", package, rest @ ..] => {
                (cache()?.join("venv/bin").join(package.split("==").next().context("a package")?), rest)
            }
            other => anyhow::bail!("{}: neither npx nor uvx: {other:?}", path.display()),
        };
        anyhow::ensure!(program.exists(), "{} is not there: run `tests/install-components.sh`", program.display());
        let program = program.to_str().context("a path in UTF-8")?;
        pack["parameters"]["command"] = json!([&[program], rest].concat());
        std::fs::write(&path, pack.to_string())?;
    }
    Ok(())
}

/// A copy of an example, whose Brain runs.
struct Example {
    server: Home,
    laptop: Home,
    brain: Brain,
    api: Api,
    tree: String,
}

impl Example {
    async fn start(name: &str) -> anyhow::Result<Self> {
        let (from, server) = (root()?.join(name), Home::new()?);
        copy(&from.join("brain-home"), server.path())?;
        installed(&server.path().join("brain/packs"))?;
        let config = server.path().join("brain/brain.yaml");
        if let Ok(text) = std::fs::read_to_string(&config) {
            anyhow::ensure!(text.contains("http://127.0.0.1:8888"), "the address of the search is not there");
            std::fs::write(&config, text.replace("http://127.0.0.1:8888", &search().await?))?;
        }
        let checked = vance_tests::process::run("vance-brain", &server, &["check"]).await?;
        anyhow::ensure!(checked.code == 0, "{}{}", checked.stdout, checked.stderr);
        let home = server.root().to_str().context("a path in UTF-8")?;
        let mut process =
            Process::start_with("vance-brain", &server, &["serve", "--listen", "127.0.0.1:0"], &[("HOME", home)])?;
        let url = process.line("brain ready ").await?;
        let api = Api::new(&server, &url)?;
        let laptop = Home::beside(&server)?;
        copy(&from.join("foot-home"), laptop.path())?;
        copy(&from.join("project"), &laptop.project())?;
        installed(&laptop.path().join("foot-tools"))?;
        let tree = std::fs::read_to_string(from.join("tree.yaml"))?;
        Ok(Self { server, laptop, brain: Brain { process, url }, api, tree })
    }

    async fn foot(&self) -> anyhow::Result<Process> {
        vance_tests::process::foot(&self.laptop, &self.brain.url, &["--name", "laptop"]).await
    }

    async fn submit(&self) -> anyhow::Result<Tree> {
        self.api.submit(&self.tree).await
    }

    fn written(&self, name: &str) -> anyhow::Result<String> {
        Ok(std::fs::read_to_string(self.laptop.project().join(name))?)
    }
}

/// What answers like SearXNG.
async fn search() -> anyhow::Result<String> {
    let found =
        json!({"results": [{"title": "Tea", "url": "https://tea.example/", "content": "Not above 80 degrees"}]});
    let router = Router::new().route("/search", get(move || async move { Json(found) }));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(url)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scientists_tree_reads_searches_and_answers_in_the_vault() -> anyhow::Result<()> {
    let example = Example::start("scientist").await?;
    let _foot = example.foot().await?;
    let tree = example.submit().await?;
    let answer = tree.until("write_the_answer", "completed").await?;
    assert_eq!(answer["calls"][0]["route"], "client", "{answer}");
    let written = example.written("vault/tea-answer.md")?;
    for part in ["Open question: how hot?", "Boiling water makes it bitter", "Not above 80 degrees"] {
        assert!(written.contains(part), "{written}");
    }
    assert_eq!(tree.until("find_related_work", "completed").await?["calls"][0]["route"], "server");
    let skipped = tree.until("look_into_the_library", "skipped").await?;
    assert!(skipped["skip_reason"].as_str().is_some_and(|why| why.contains("zotero_search")), "{skipped}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_developers_tree_tests_writes_and_keeps() -> anyhow::Result<()> {
    let example = Example::start("developer").await?;
    for args in [
        &["init", "-q"][..],
        &["add", "."],
        &["-c", "user.name=me", "-c", "user.email=me@example.com", "commit", "-qm", "First words"],
    ] {
        #[allow(clippy::disallowed_methods)] // the test waits for it
        let done = Command::new("git").args(args).current_dir(example.laptop.project()).status().await?;
        anyhow::ensure!(done.success(), "git {args:?}");
    }
    let _foot = example.foot().await?;
    let tree = example.submit().await?;
    tree.until("write_changes", "completed").await?;
    let written = example.written("CHANGES.md")?;
    assert!(written.contains("1 test passed") && written.contains("First words"), "{written}");
    let kept = tree.until("tell_the_team", "completed").await?;
    assert_eq!(kept["calls"][0]["route"], "server", "{kept}");
    let memory = std::fs::read_to_string(example.server.root().join("vancetope-memory.jsonl"))?;
    assert!(memory.contains("1 test passed"), "{memory}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_night_runs_without_a_client_and_goes_on_by_itself_with_one() -> anyhow::Result<()> {
    let example = Example::start("night").await?;
    let tree = example.submit().await?;
    for id in ["research", "keep", "note"] {
        tree.until(id, "completed").await?;
    }
    let waits = tree.until("read_questions", "queued").await?;
    assert_eq!(waits["blocked_reason"], "Waiting for Client for Tool: read_local_file");
    let id = tree.body["tree_id"].as_str().context("tree_id")?;
    let (_, list) = example.api.get(&format!("/api/v1/tasks?tree={id}")).await?;
    assert_eq!(list["summary"], "3 completed, 1 waiting for client, 1 pending", "{list}");
    until("the Brain has said so", || async {
        Ok(example.brain.process.log().contains("3 completed, 1 waiting for client, 1 pending").then_some(()))
    })
    .await?;
    let session = tree.body["session_id"].as_str().context("session_id")?;
    assert_ne!(session, SESSION);
    let (_, shown) = example.api.get(&format!("/api/v1/sessions/{session}")).await?;
    assert_eq!(shown["queue"][0]["tool"], "read_local_file", "{shown}");

    let _foot = example.foot().await?;
    let report = tree.until("write_report", "completed").await?;
    assert_eq!(report["calls"][0]["route"], "client", "{report}");
    let written = example.written("report.md")?;
    assert!(written.contains("How hot should green tea be?") && written.contains("Not above 80 degrees"), "{written}");
    Ok(())
}

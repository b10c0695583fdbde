//! Packs with real servers: they load side by side, announce themselves as they come, and harm nobody when they fail.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../src/engine/tests/brain.rs"]
#[allow(dead_code)] // the other stories use the rest
mod brain;
#[path = "packs/reload.rs"]
mod reload;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use vance_foot::engine::{Foot, FootConfig, Load, LocalCall, start};
use vance_foot_core::permissions::Rules;
use vance_shared::call::Outcome;
use vance_shared::gate::Nobody;
use vance_shared::ids::CallId;
use vance_shared::json::Raw;
use vance_shared::wire::{ToBrain, ToFoot};

use brain::{Brain, call, id};

fn fake() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("shared/mcp-host/tests/support/fake.py")
}

/// A home with packs of the fake server; a word that begins with `!` is a program that is not there.
fn home(packs: &[(&str, &str)]) -> TempDir {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("foot-tools");
    std::fs::create_dir_all(&dir).unwrap();
    for (name, words) in packs {
        let command = match words.strip_prefix('!') {
            Some(program) => serde_json::json!([program]),
            None => {
                let ledger = home.path().join(format!("{name}.ledger"));
                let mut argv = vec!["python3".to_owned(), fake().display().to_string(), ledger.display().to_string()];
                argv.extend(words.split_whitespace().map(str::to_owned));
                serde_json::json!(argv)
            }
        };
        let pack = serde_json::json!({
            "name": name,
            "type": "mcp_server",
            "parameters": {"transport": "stdio", "command": command, "restart": {"maxRestarts": 0, "windowSeconds": 60}},
        });
        std::fs::write(dir.join(format!("{name}.json")), pack.to_string()).unwrap();
    }
    home
}

/// The working directory of this test's Foot.
fn project() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("project-{}", std::process::id()))
}

fn foot(home: &Path, brain: Option<&str>) -> Foot {
    foot_with(home, brain, Rules::none("permissions.yaml"))
}

fn foot_with(home: &Path, brain: Option<&str>, rules: Rules) -> Foot {
    // Beside the home: what lies in the working directory would have to ask.
    let project_dir = project();
    std::fs::create_dir_all(&project_dir).unwrap();
    let config = FootConfig {
        home: home.to_owned(),
        project_dir,
        packs_dir: None,
        brain_url: brain.map(|url| url.parse().unwrap()),
        token: Arc::new(|| None.into()),
        session: None,
        also_sessions: Vec::new(),
        new_session: false,
        name: None,
        client_type: "cli".to_owned(),
        no_local: false,
        no_tools: false,
        load: Load::All,
        guard_program: env!("CARGO_BIN_EXE_vancetope").into(),
        rules,
        asker: None,
        nobody: Nobody::NO_TERMINAL,
    };
    start(config).unwrap()
}

fn has(foot: &Foot, tool: &str) -> bool {
    foot.tools().iter().any(|spec| spec.name.as_str() == tool)
}

fn local(tool: &str) -> LocalCall {
    LocalCall {
        call_id: CallId::generate(),
        tool: tool.to_owned(),
        arguments: Raw::from(serde_json::json!({"text": "hi"})),
        timeout: None,
        cancel: CancellationToken::new(),
        progress: None,
    }
}

fn story(tell: impl AsyncFnOnce()) {
    vance_supervise::run(2, async {
        tokio::time::timeout(Duration::from_secs(60), tell()).await.expect("the story hangs");
    })
    .unwrap();
}

#[test]
fn a_slow_pack_and_a_broken_one_delay_nobody_and_the_late_one_appears_by_itself() {
    story(async || {
        let home = home(&[("quick", ""), ("slow", "slow=4"), ("dead", "!/nowhere/at-all")]);
        std::fs::write(home.path().join("foot-tools/wrong.json"), "{\"name\": \"wrong\"}").unwrap();
        let brain = Brain::listen().await;
        let foot = foot(home.path(), Some(&brain.url));
        let mut line = brain.accept().await;
        let hello = line.hello().await;
        assert!(hello.available_tools.iter().any(|tool| tool.name == "read_local_file"));
        line.welcome(vec![]).await;
        let mut quick_came = false;
        // `loading` tells the Brain to wait for the slow one while the quick one is there already.
        loop {
            let ToBrain::ToolsChanged(delta) = line.any().await else { continue };
            let loading = delta.loading.unwrap_or_default();
            quick_came |= delta.added.iter().any(|tool| tool.name == "quick__echo");
            if delta.added.iter().any(|tool| tool.name == "slow__echo") {
                assert!(quick_came && loading.is_empty(), "{loading:?}");
                break;
            }
            if quick_came {
                assert!(loading.contains(&"slow".to_owned()), "{loading:?}");
            }
        }
        let summary = foot.first_load().await;
        let said = summary.to_string();
        assert_eq!(
            (summary.loaded.as_slice(), summary.failed.len()),
            (&["quick".to_owned(), "slow".to_owned()][..], 2),
            "{said}"
        );
        assert!(said.starts_with("loaded 2 pack(s) → ") && said.ends_with("0 skipped, 2 failed"), "{said}");
        for failed in &summary.failed {
            assert!(["dead", "wrong"].contains(&failed.pack.as_str()) && !failed.reason.is_empty(), "{failed:?}");
        }
        line.send(ToFoot::Call(call(1, "slow__echo"))).await;
        let result = loop {
            if let ToBrain::Result(result) = line.next().await {
                break result;
            }
        };
        assert_eq!((result.call_id, result.outcome.word()), (id(1), "done"));
        foot.shutdown().await;
    });
}

#[test]
fn without_a_brain_a_packs_tool_runs_and_its_neighbour_may_die() {
    story(async || {
        let home = home(&[("one", ""), ("two", "")]);
        let foot = foot(home.path(), None);
        let summary = foot.first_load().await;
        assert_eq!(summary.loaded, ["one", "two"], "{summary}");
        let outcome = foot.call_local(local("one__die")).await;
        assert_ne!(outcome.word(), "done", "{outcome:?}");
        let outcome = foot.call_local(local("two__echo")).await;
        assert!(matches!(&outcome, Outcome::Done(result) if result.joined_text().contains("hi")), "{outcome:?}");
        let gone = async {
            while has(&foot, "one__echo") {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(10), gone).await.expect("the dead pack's tools stay");
        assert!(has(&foot, "two__echo") && has(&foot, "shell_execute"));
        foot.shutdown().await;
    });
}

#[test]
fn a_pack_loader_that_falls_comes_back_with_its_packs() {
    story(async || {
        let home = home(&[("one", "")]);
        let foot = foot(home.path(), None);
        assert_eq!(foot.first_load().await.loaded, ["one"]);
        let starts = || {
            let ledger = std::fs::read_to_string(home.path().join("one.ledger")).unwrap_or_default();
            ledger.lines().filter(|line| line.starts_with("start ")).count()
        };
        for fall in 1..=2 {
            assert!(foot.strike("loader").await);
            // Its servers belong to it: they end and are started anew. What needs no pack stays all the while.
            while starts() <= fall || !has(&foot, "one__echo") {
                assert!(has(&foot, "shell_execute"));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            let outcome = foot.call_local(local("one__echo")).await;
            assert!(matches!(&outcome, Outcome::Done(_)), "{outcome:?}");
        }
        foot.shutdown().await;
    });
}

#[test]
fn without_tools_nothing_is_started() {
    story(async || {
        let home = home(&[("one", "")]);
        let config = |no_tools| FootConfig {
            home: home.path().to_owned(),
            project_dir: home.path().to_owned(),
            packs_dir: None,
            brain_url: None,
            token: Arc::new(|| None.into()),
            session: None,
            also_sessions: Vec::new(),
            new_session: false,
            name: None,
            client_type: "cli".to_owned(),
            no_local: true,
            no_tools,
            load: Load::All,
            guard_program: env!("CARGO_BIN_EXE_vancetope").into(),
            rules: Rules::none("permissions.yaml"),
            asker: None,
            nobody: Nobody::NO_TERMINAL,
        };
        let foot = start(config(true)).unwrap();
        assert_eq!(foot.first_load().await.to_string(), "loaded 0 pack(s) → 0 tool(s); 0 skipped, 0 failed");
        assert!(foot.tools().is_empty());
        assert!(!home.path().join("one.ledger").exists());
        foot.shutdown().await;
    });
}

#[test]
#[cfg(target_os = "linux")]
fn a_sandboxed_packs_server_works_and_reads_no_secret() {
    // Every program may use the temporary folder.
    let built = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let closed = if built.starts_with(std::env::temp_dir()) { std::env::home_dir().unwrap() } else { built };
    let secrets = tempfile::tempdir_in(closed).unwrap();
    let secret = secrets.path().join("secret");
    std::fs::write(&secret, "the secret").unwrap();
    for (mode, readable) in [("off", true), ("on", false)] {
        let home = home(&[]);
        let leak = home.path().join("leak");
        let (script, ledger) = (fake(), home.path().join("a.ledger"));
        let line = format!(
            "cat {} > {}; exec python3 {} {}",
            secret.display(),
            leak.display(),
            script.display(),
            ledger.display()
        );
        let pack = serde_json::json!({
            "name": "a", "type": "mcp_server", "parameters": {"transport": "stdio", "command": ["sh", "-c", line]},
        });
        std::fs::write(home.path().join("foot-tools/a.json"), pack.to_string()).unwrap();
        let rules = format!("sandbox: {{mode: {mode}, read: ['{}']}}", script.parent().unwrap().display());
        let rules = vance_foot_core::permissions::parse_permissions("permissions.yaml", &rules).unwrap();
        story(async || {
            let foot = foot_with(home.path(), None, rules.clone());
            let summary = foot.first_load().await;
            assert_eq!(summary.loaded, ["a"], "{summary:?}");
            foot.shutdown().await;
        });
        assert_eq!(std::fs::read_to_string(&leak).unwrap() == "the secret", readable, "sandbox: {mode}");
    }
}

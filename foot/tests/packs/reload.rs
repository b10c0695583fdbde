//! Reading the packs again: what is new comes, what changed is replaced after its calls, what went away ends, all else goes on.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use vance_foot::engine::{Foot, LocalCall, PackState};
use vance_shared::call::Outcome;

use super::{fake, foot, has, home, local, project, story};

/// Writes the file of a pack of the fake server.
fn put(home: &TempDir, name: &str, words: &[&str], more: Value) {
    let ledger = home.path().join(format!("{name}.ledger"));
    let mut argv = vec!["python3".to_owned(), fake().display().to_string(), ledger.display().to_string()];
    argv.extend(words.iter().map(|word| (*word).to_owned()));
    let mut pack = json!({"name": name, "type": "mcp_server", "parameters": {"transport": "stdio", "command": argv}});
    for (key, value) in more.as_object().unwrap() {
        pack[key] = value.clone();
    }
    std::fs::write(home.path().join(format!("foot-tools/{name}.json")), pack.to_string()).unwrap();
}

/// The processes of a pack's servers, one a start.
fn starts(home: &TempDir, name: &str) -> Vec<String> {
    let ledger = std::fs::read_to_string(home.path().join(format!("{name}.ledger"))).unwrap_or_default();
    ledger.lines().filter_map(|line| line.strip_prefix("start ")).map(str::to_owned).collect()
}

fn lives(pid: &str) -> bool {
    Path::new("/proc").join(pid).exists()
}

fn steps(tool: &str, steps: u32) -> LocalCall {
    LocalCall { arguments: vance_shared::json::Raw::from(json!({"text": steps.to_string()})), ..local(tool) }
}

async fn state(foot: &Foot, pack: &str) -> Option<PackState> {
    foot.packs().await.into_iter().find(|status| status.pack == pack).map(|status| status.state)
}

#[test]
fn what_is_new_comes_what_is_gone_ends_and_the_rest_goes_on() {
    story(async || {
        let home = home(&[]);
        for name in ["kept", "gone", "off"] {
            put(&home, name, &[], json!({}));
        }
        put(&home, "broken", &["crash"], json!({"parameters": {"transport": "stdio", "command": ["/nowhere/at-all"]}}));
        let foot = foot(home.path(), None);
        let summary = foot.first_load().await;
        assert_eq!(summary.loaded, ["gone", "kept", "off"]);
        let (kept, gone) = (starts(&home, "kept"), starts(&home, "gone"));

        std::fs::remove_file(home.path().join("foot-tools/gone.json")).unwrap();
        put(&home, "off", &[], json!({"enabled": false}));
        put(&home, "new", &[], json!({}));
        put(&home, "broken", &[], json!({}));
        let summary = foot.reload().await;
        let wanted = format!("loaded 3 pack(s) → {} tool(s); 1 skipped, 0 failed", summary.tools);
        assert!(summary.tools > 3 && summary.to_string() == wanted, "{summary}");
        assert_eq!(summary.loaded, ["broken", "kept", "new"]);
        assert_eq!(summary.skipped[0].pack, "off");
        assert!(
            has(&foot, "new__echo")
                && has(&foot, "kept__echo")
                && !has(&foot, "gone__echo")
                && !has(&foot, "off__echo")
        );
        assert_eq!(starts(&home, "kept"), kept, "it goes on as it was");
        assert_eq!(state(&foot, "kept").await, Some(PackState::Up));
        assert!(!lives(&gone[0]) || state(&foot, "gone").await == Some(PackState::Ending));
        foot.shutdown().await;
        let all: Vec<String> = ["kept", "gone", "off", "new", "broken"].iter().flat_map(|n| starts(&home, n)).collect();
        assert!(all.len() >= 5 && all.iter().all(|pid| !lives(pid)), "{all:?}");
    });
}

#[test]
fn a_changed_pack_is_replaced_after_its_calls_and_the_old_server_is_gone_before_the_new_one_starts() {
    story(async || {
        let home = home(&[]);
        put(&home, "a", &[], json!({}));
        let foot = Arc::new(foot(home.path(), None));
        assert_eq!(foot.first_load().await.loaded, ["a"]);
        let old = starts(&home, "a");
        let calling = Arc::clone(&foot);
        let call = tokio::task::spawn_local(async move { calling.call_local(steps("a__steps", 6)).await });
        while !std::fs::read_to_string(home.path().join("a.ledger")).unwrap().contains("call steps") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        put(&home, "a", &["slow=0"], json!({}));
        let watching = old[0].clone();
        let ledger = home.path().join("a.ledger");
        let both = tokio::task::spawn_local(async move {
            // From the moment that the new one has written itself down the old one must be gone.
            while std::fs::read_to_string(&ledger).unwrap().matches("start ").count() < 2 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            lives(&watching)
        });
        let summary = foot.reload().await;
        assert_eq!(summary.loaded, ["a"]);
        let outcome = call.await.unwrap();
        assert!(matches!(&outcome, Outcome::Done(result) if result.joined_text() == "done"), "{outcome:?}");
        assert!(!both.await.unwrap(), "both ran at once");
        assert_eq!(starts(&home, "a").len(), 2);
        Arc::into_inner(foot).unwrap().shutdown().await;
    });
}

#[test]
fn a_pack_of_the_working_directory_waits_for_consent_and_the_global_one_stays() {
    story(async || {
        let home = home(&[]);
        put(&home, "a", &[], json!({}));
        let foot = foot(home.path(), None);
        assert_eq!(foot.first_load().await.loaded, ["a"]);
        let theirs = project().join(".vancetope/foot-tools");
        std::fs::create_dir_all(&theirs).unwrap();
        let marker = home.path().join("marker");
        for name in ["a", "theirs"] {
            let pack = json!({"name": name, "type": "mcp_server",
                "parameters": {"transport": "stdio", "command": ["touch", marker]}});
            std::fs::write(theirs.join(format!("{name}.json")), pack.to_string()).unwrap();
        }
        let (first, second) = (foot.reload().await, foot.reload().await);
        std::fs::remove_dir_all(theirs.parent().unwrap()).unwrap();
        for summary in [first, second] {
            assert_eq!(summary.loaded, ["a"], "{summary:?}");
            let reasons: Vec<&str> = summary.skipped.iter().map(|l| l.reason.as_str()).collect();
            assert!(reasons.len() == 2 && reasons.iter().all(|r| r.contains("no terminal to ask on")), "{reasons:?}");
            assert!(reasons.iter().any(|r| r.ends_with("your global pack 'a' stays active")), "{reasons:?}");
        }
        assert!(!marker.exists() && has(&foot, "a__echo"));
        assert_eq!(starts(&home, "a").len(), 1, "the global one ran on");
        foot.shutdown().await;
    });
}

#[test]
fn reloads_at_once_are_answered_together_and_a_fallen_gate_is_a_no() {
    story(async || {
        let home = home(&[("a", "")]);
        let foot = foot(home.path(), None);
        foot.first_load().await;
        let many = futures_util::future::join_all((0..20).map(|_| foot.reload())).await;
        assert!(many.iter().all(|summary| summary.loaded == ["a"]), "{many:?}");
        assert_eq!(starts(&home, "a").len(), 1);
        assert!(foot.strike("trust_gate").await);
        // Whatever the gate said while it fell, the next load asks it anew.
        foot.reload().await;
        assert_eq!(foot.reload().await.loaded, ["a"]);
        foot.shutdown().await;
    });
}

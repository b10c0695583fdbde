//! Real documents of widely used APIs, as `tests/install-components.sh` installs them.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::PathBuf;
use std::time::{Duration, Instant};

#[path = "../examples/corpus/check.rs"]
mod check;

fn installed(path: &str) -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let cache = std::env::var_os("VANCE_TEST_CACHE").map_or_else(|| home.join(".cache/vancetope-test"), PathBuf::from);
    let folder = cache.join("openapi/node_modules").join(path);
    assert!(folder.exists(), "{} is missing: run tests/install-components.sh", folder.display());
    folder
}

#[test]
fn every_operation_of_real_documents_is_a_tool_that_can_be_called_or_has_a_reason() {
    let folders: Vec<PathBuf> = [
        "@octokit/openapi/generated/api.github.com.json",
        "@readme/oas-examples",
        "@netlify/open-api",
        "kubernetes-client",
        "@figma/rest-api-spec",
        "@notionhq/notion-mcp-server",
        "@scalar/galaxy",
    ]
    .map(installed)
    .into();
    let started = Instant::now();
    let total = check::all(&folders, true, f64::MAX);
    assert!(check::report(&total, started.elapsed(), check::workers()), "see above");
    assert!(total.documents >= 130 && total.tools >= 2800, "{} documents, {} tools", total.documents, total.tools);
    assert!(total.load < Duration::from_secs(60), "loading took {:?}", total.load);
}

//! Many servers in one Foot.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;
use vance_tests::api::Api;
use vance_tests::process::Brain;

use crate::installed::{chromium, pack};
use crate::page::{Server, servers};
use crate::place::Place;

/// Those that start quickly and need no browser.
const FEW: [&str; 6] = ["everything", "files", "memory", "thinking", "git", "time"];
const BROWSERS: [&str; 2] = ["chrome", "playwright"];
const READINGS: [&str; 4] = ["__list_resources", "__read_resource", "__list_prompts", "__get_prompt"];
const SESSION: &str = "default.local";

#[tokio::test(flavor = "multi_thread")]
async fn a_few_widely_used_servers_load_list_and_answer_in_one_foot() -> anyhow::Result<()> {
    let few: Vec<Server> = servers()?.into_iter().filter(|server| FEW.contains(&server.name.as_str())).collect();
    anyhow::ensure!(few.len() == FEW.len());
    side_by_side(&few, &["everything", "time"]).await
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "all of them take a minute, and `tests/install-components.sh all`"]
async fn every_server_of_the_page_loads_lists_and_answers_in_one_foot() -> anyhow::Result<()> {
    let mut all = servers()?;
    anyhow::ensure!(all.iter().filter(|server| !server.calls.is_empty()).count() >= 10);
    if !chromium("chrome and playwright beside the other servers") {
        all.retain(|server| !BROWSERS.contains(&server.name.as_str()));
    }
    let names: Vec<String> = all.iter().map(|server| server.name.clone()).collect();
    side_by_side(&all, &names.iter().map(String::as_str).collect::<Vec<_>>()).await
}

/// Lists all, asks those of `alone` without a Brain, and then all in a Foot that stays.
async fn side_by_side(servers: &[Server], alone: &[&str]) -> anyhow::Result<()> {
    let place = Place::new().await?;
    for server in servers {
        place.pack(&pack(server)?)?;
    }
    let listed = place.vancetope("alone", &["tools", "list"]).await?;
    assert_eq!(listed["skipped"], serde_json::json!([]));
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for tool in listed["tools"].as_array().context("tools")? {
        // The host adds these, by what the server says that it can do.
        if READINGS.iter().any(|reading| tool["name"].as_str().is_some_and(|name| name.ends_with(reading))) {
            continue;
        }
        *counts.entry(tool["pack"].as_str().unwrap_or("native")).or_default() += 1;
    }
    counts.remove("native");
    let expected: BTreeMap<&str, usize> = servers.iter().map(|server| (server.name.as_str(), server.tools)).collect();
    assert_eq!(counts, expected);

    let calls = |server: &&Server| alone.contains(&server.name.as_str());
    for call in servers.iter().filter(calls).flat_map(|server| &server.calls) {
        place.ask("alone", call, &[]).await?;
    }

    let brain = Brain::start(&place.home).await?;
    let api = Api::new(&place.home, &brain.url)?;
    let mut foot = place.foot("attached", &brain).await?;
    for server in servers {
        for call in &server.calls {
            api.until_available(SESSION, &call.tool).await?;
            place.ask("attached", call, &["--via-brain", "--brain", &brain.url]).await?;
        }
    }
    let (_, body) = api.get(&format!("/api/v1/sessions/{SESSION}/tools")).await?;
    let offered: Vec<&str> =
        body["tools"].as_array().context("tools")?.iter().filter_map(|tool| tool["name"].as_str()).collect();
    for tool in listed["tools"].as_array().context("tools")? {
        let name = tool["name"].as_str().context("name")?;
        assert!(offered.contains(&name), "{name} is not offered");
    }
    assert_eq!(foot.stop().await?, 0, "{}", foot.log());
    drop((foot, brain));
    place.is_quiet().await
}

#[test]
fn what_of_the_conformance_suite_is_not_spoken_stands_on_the_page_and_nothing_else() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("root")?;
    let list = std::fs::read_to_string(root.join("shared/mcp-host/tests/conformance.yaml"))?;
    let failed: BTreeSet<&str> = list.lines().filter_map(|line| line.trim().strip_prefix("- ")).collect();
    let page = std::fs::read_to_string(root.join("docs/servers.md"))?;
    let head = page.split("\n## ").next().context("the head")?;
    let named: BTreeSet<&str> = head
        .lines()
        .filter(|line| line.starts_with("- `auth/"))
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .collect();
    assert!(!failed.is_empty());
    assert_eq!(named, failed);
    Ok(())
}

#[test]
fn each_pack_of_the_page_has_its_tools_called_by_their_full_names() -> anyhow::Result<()> {
    for Server { name, calls, pack, .. } in servers()? {
        assert_eq!(pack["type"], Value::from("mcp_server"), "{name}");
        for call in calls {
            assert!(call.tool.starts_with(&format!("{name}__")), "{name}: {}", call.tool);
            assert!(serde_json::from_str::<Value>(&call.arguments)?.is_object(), "{name}");
        }
    }
    Ok(())
}

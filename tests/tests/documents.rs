//! Every snippet of the documents is taken by the program that should take it: `tests/data/documents/`, word for word (comment lines of
//! JSON left out).
#![allow(missing_docs)]

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};
use vance_foot_core::config::parse_config;
use vance_shared::gate::Book;
use vance_tests::api::Api;
use vance_tests::home::Home;
use vance_tests::process::{Brain, run};
use vance_tests::socket::Socket;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("data/documents").join(name)
}

fn text(name: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(file(name)).with_context(|| name.to_owned())
}

async fn checked(home: &Home) -> anyhow::Result<Value> {
    let checked = run("vance-brain", home, &["check", "--json"]).await?;
    anyhow::ensure!(checked.code == 0, "{}{}", checked.stdout, checked.stderr);
    Ok(serde_json::from_str(&checked.stdout)?)
}

#[tokio::test]
async fn the_registry_the_engine_the_tasks_and_the_clients_first_frame_work_as_they_stand() -> anyhow::Result<()> {
    let home = Home::new()?;
    home.write("brain/tools.yaml", &text("tools.yaml")?)?;
    home.write("brain/engines/engine.yaml", &text("engine.yaml")?)?;
    let check = checked(&home).await?;
    assert_eq!(check["problems"], json!([]), "{check}");
    let named = |pack: &str| check["warnings"].to_string().contains(pack);
    assert!(named("jira-mcp") && named("google-drive-mcp") && !named("obsidian-mcp"), "{check}");

    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let hello: Value = serde_json::from_str(&text("client_connected.json")?)?;
    let (_socket, welcome) = Socket::hello(brain.addr(), api.token(), &hello).await?;
    assert_eq!((welcome["session_id"].as_str(), welcome.get("refused")), (Some("sess_123"), None), "{welcome}");
    let (status, body) = api.get("/api/v1/sessions/sess_123/tools").await?;
    assert_eq!(status, 200, "{body}");
    let tool = |name: &str| body["tools"].as_array().into_iter().flatten().find(|tool| tool["name"] == name).cloned();
    for (name, location, available) in [
        ("jira_create_issue", "server", false),
        ("read_local_file", "client", true),
        ("obsidian_read_note", "client", true),
        ("google_drive_search", "prefer_server", false),
        ("shell_execute", "client", true),
        ("web_search", "server", true),
        ("git_status", "client", true),
    ] {
        let tool = tool(name).with_context(|| format!("{name} in {body}"))?;
        assert_eq!(
            (tool["location"].as_str(), tool["available"].as_bool()),
            (Some(location), Some(available)),
            "{tool}"
        );
    }
    let told = tool("jira_create_issue").context("jira_create_issue")?;
    assert_eq!(told["description"], "Creates a Jira issue");

    // Without steps they are goals for a model; the tree itself is right.
    let (status, body) = api.submit_raw(&text("tasks.yaml")?, &[]).await?;
    let ids: Vec<&str> = body["tasks"].as_array().into_iter().flatten().filter_map(|t| t["id"].as_str()).collect();
    assert_eq!((status, ids), (201, vec!["extract_from_paper", "create_jira_story", "analyze_code"]), "{body}");
    let engine = "engine: eng_literature_review\ntasks:\n- {id: in, steps: [{call: web_search, with: {query: x}}]}\n- {id: out, steps: [{call: shell_execute, with: {command: x}}]}\n";
    let tree = api.submit(engine).await?;
    assert_eq!(tree.until("out", "failed").await?["error"]["code"], "unknown_tool");
    assert_ne!(tree.until("in", "failed").await?["error"]["code"], "unknown_tool", "it has no provider");
    // The block itself may stand in a tree, too.
    let inline = format!("{}tasks:\n- {{id: a, goal: x}}\n", text("engine.yaml")?);
    assert_eq!(api.submit_raw(&inline, &[]).await?.0, 201);
    Ok(())
}

#[tokio::test]
async fn the_list_of_strategies_is_a_registry() -> anyhow::Result<()> {
    let home = Home::new()?;
    home.write("brain/tools.yaml", &text("strategies.yaml")?)?;
    let check = checked(&home).await?;
    assert_eq!((&check["problems"], &check["warnings"]), (&json!([]), &json!([])), "{check}");
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let tree = api.submit("tasks: [{id: a, steps: [{call: read_local_file, with: {path: x}}]}]").await?;
    tree.until("a", "blocked").await?;
    Ok(())
}

#[tokio::test]
async fn the_pack_its_selection_and_the_store_of_consents_are_read() -> anyhow::Result<()> {
    let home = Home::new()?;
    let pack = file("chrome.json");
    let checked = run("vancetope", &home, &["packs", "check", pack.to_str().context("path")?, "--json"]).await?;
    let said: Value = serde_json::from_str(&checked.stdout).with_context(|| checked.stderr.clone())?;
    assert_eq!((checked.code, &said["ok"], &said["problems"]), (0, &json!(true), &json!([])), "{said}");

    let config = parse_config("config.yaml", &text("config.yaml")?);
    assert!(config.problems.is_empty() && config.warnings.is_empty(), "{config:?}");
    let reason = |pack: &str| config.tool_packs.reason_against(pack);
    assert!(reason("chrome").is_none() && reason("jira").is_some() && reason("other").is_some());

    let book = Book::parse("trusted-packs.yaml", &text("trusted-packs.yaml")?);
    let book = book.map_err(|problems| anyhow::anyhow!("{problems:?}"))?;
    let entries: Vec<(&str, &str, &str)> =
        book.entries().map(|(project, entry)| (project, entry.name.as_str(), entry.reach.as_str())).collect();
    assert_eq!(entries, [("/Users/me/src/repo", "chrome", "npx -y chrome-devtools-mcp@latest")]);
    Ok(())
}

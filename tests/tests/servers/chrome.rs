//! The documents' own example: `npx -y chrome-devtools-mcp@latest` with Debian's Chromium takes a snapshot of a local page.

use anyhow::Context as _;
use serde_json::{Value, json};
use vance_tests::api::Api;
use vance_tests::process::Brain;

use crate::installed::{cache, chromium};
use crate::page::{SITE, Server, servers};
use crate::place::Place;

const SESSION: &str = "default.local";

/// The pack of the page, which lets npx look into the tests' cache first.
fn pack(server: &Server) -> anyhow::Result<Value> {
    let mut pack = server.pack.clone();
    let command = &pack["parameters"]["command"];
    anyhow::ensure!(command[0] == "npx" && command[1] == "-y" && command[2] == "chrome-devtools-mcp@latest");
    let cache = cache()?.join("npx");
    anyhow::ensure!(cache.exists(), "{} is not there: run `tests/install-components.sh`", cache.display());
    pack["parameters"]["env"]["npm_config_cache"] = json!(cache);
    pack["parameters"]["env"]["npm_config_prefer_offline"] = json!("true");
    Ok(pack)
}

fn shows_the_page(snapshot: &str) {
    for part in ["RootWebArea \"Green tea\"", "heading \"Green tea\"", "button \"Brew\""] {
        assert!(snapshot.contains(part), "{snapshot}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documents_chrome_pack_takes_a_snapshot_for_a_person_and_for_a_task() -> anyhow::Result<()> {
    if !chromium("the documents' chrome pack") {
        return Ok(());
    }
    let chrome = servers()?.into_iter().find(|server| server.name == "chrome").context("chrome")?;
    let place = Place::new().await?;

    // One call, one browser: it has to begin with the page.
    let mut begins = pack(&chrome)?;
    let command = begins["parameters"]["command"].as_array_mut().context("command")?;
    command.push(json!(format!("--chromeArg={SITE}")));
    place.pack(&begins)?;
    let answer = place.call("alone", "chrome__take_snapshot", r#"{"pageId": 1}"#, &[]).await?;
    shows_the_page(&answer);

    // A Foot that stays keeps its browser: a task walks it, and then a person.
    place.pack(&pack(&chrome)?)?;
    let brain = Brain::start(&place.home).await?;
    let api = Api::new(&place.home, &brain.url)?;
    let mut foot = place.foot("attached", &brain).await?;
    let tree = api.submit(&place.here(chrome.tree.as_deref().context("a tree")?)).await?;
    let remembered = tree.until("remember", "completed").await?;
    shows_the_page(remembered["output"]["note"]["structured"]["text"].as_str().unwrap_or_default());
    let looked = tree.task("look").await?;
    assert_eq!(looked["calls"][1]["route"], "client", "{looked}");

    api.until_available(SESSION, "chrome__take_snapshot").await?;
    let through = ["--via-brain", "--brain", &brain.url];
    let opened = place.call("attached", "chrome__new_page", &json!({"url": SITE}).to_string(), &through).await?;
    let selected = opened.lines().find(|line| line.ends_with("[selected]")).with_context(|| opened.clone())?;
    let (page, _) = selected.split_once(':').context("a page id")?;
    let arguments = format!(r#"{{"pageId": {page}}}"#);
    shows_the_page(&place.call("attached", "chrome__take_snapshot", &arguments, &through).await?);

    assert_eq!(foot.stop().await?, 0, "{}", foot.log());
    drop((foot, brain));
    place.is_quiet().await
}

//! The Brain's files change while it runs.
#![allow(missing_docs)]

use anyhow::Context as _;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use vance_tests::api::Api;
use vance_tests::home::Home;
use vance_tests::process::{Brain, run};
use vance_tests::toy::Toy;
use vance_tests::wait::until;

const SESSION: &str = "default.local";

/// What the Brain says of its files and packs.
async fn details(api: &Api) -> anyhow::Result<Value> {
    let (status, mut body) = api.get("/readyz").await?;
    anyhow::ensure!(status == 200, "{status} {body}");
    Ok(body["details"].take())
}

async fn until_problems(api: &Api, part: &str) -> anyhow::Result<()> {
    until(&format!("a problem with '{part}'"), || async {
        let problems = details(api).await?["files"]["problems"].clone();
        let list = problems.as_array().context("problems")?;
        let found = if part.is_empty() { list.is_empty() } else { list.iter().any(|p| p.to_string().contains(part)) };
        Ok(found.then_some(()))
    })
    .await
}

/// Makes the default session, whose tools can be looked at then.
async fn session(api: &Api) -> anyhow::Result<()> {
    api.submit("tasks: [{id: hello, steps: [{call: now}]}]").await.map(drop)
}

async fn has_tool(api: &Api, name: &str) -> anyhow::Result<bool> {
    let (_, body) = api.get(&format!("/api/v1/sessions/{SESSION}/tools")).await?;
    Ok(body["tools"].as_array().into_iter().flatten().any(|t| t["name"] == name && t["available"] == true))
}

/// The processes of each start, with those of earlier starts that lived then.
fn starts(toy: &Toy) -> anyhow::Result<Vec<Vec<String>>> {
    let text = std::fs::read_to_string(toy.file())?;
    let words = |line: &str| line.split(' ').map(str::to_owned).collect();
    Ok(text.lines().filter_map(|line| line.strip_prefix("start ")).map(words).collect())
}

#[tokio::test]
async fn what_comes_changes_and_goes_counts_without_a_restart_and_waiting_tasks_look_again() -> anyhow::Result<()> {
    let home = Home::new()?;
    let toy = Toy::new(&home)?;
    let entry = |location: &str| format!("- {{name: report, location: {location}, mcp_server: srv, tool: look}}\n");
    home.write("brain/tools.yaml", &entry("client"))?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let tree = api.submit("tasks:\n- {id: a, steps: [{call: report, with: {name: a}, as: r}]}\n").await?;
    tree.until("a", "blocked").await?;
    let engine = "engine: eng_late\ntasks:\n- {id: b, steps: [{call: srv__look, with: {name: b}}]}\n";
    assert_eq!(api.submit_raw(engine, &[]).await?.0, 400, "nobody knows the engine yet");

    // Nobody offers it on a client: but now the server does, and the entry says that this will do.
    toy.for_brain(&home, "srv", &[])?;
    api.until_available(SESSION, "srv__look").await?;
    home.write("brain/tools.yaml", &entry("both"))?;
    let done = tree.until("a", "completed").await?;
    assert_eq!(
        (done["output"]["r"]["text"].as_str(), done["calls"][0]["route"].as_str()),
        (Some("did a"), Some("server"))
    );
    home.write("brain/engines/late.yaml", "id: eng_late\ntools: {server: [srv__look]}\n")?;
    let late = until("the engine is known", || async {
        let (status, body) = api.submit_raw(engine, &[]).await?;
        Ok((status == 201).then_some(body))
    })
    .await?;
    let task = late["tasks"][0]["task_id"].as_str().context("task_id")?;
    until("b is done", || async {
        Ok((api.get(&format!("/api/v1/tasks/{task}")).await?.1["state"] == "completed").then_some(()))
    })
    .await?;

    std::fs::remove_file(home.path().join("brain/packs/srv.json"))?;
    until("the pack is gone", || async { Ok((!has_tool(&api, "srv__look").await?).then_some(())) }).await?;
    assert_eq!(details(&api).await?["packs"], json!({}));
    until("its server has ended", || async {
        Ok(vance_tests::process::processes_with(&toy.file().display().to_string())?.is_empty().then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_bad_file_keeps_what_it_said_and_everybody_can_see_it() -> anyhow::Result<()> {
    let home = Home::new()?;
    let toy = Toy::new(&home)?;
    toy.for_brain(&home, "srv", &["starts"])?;
    home.write("brain/tools.yaml", "- {name: report, location: server, mcp_server: srv, tool: look}\n")?;
    home.write("brain/engines/e.yaml", "id: eng\n")?;
    let mut brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    session(&api).await?;
    api.until_available(SESSION, "report").await?;
    home.write("brain/tools.yaml", "- name: report\n  location: moon\n")?;
    until_problems(&api, "tools.yaml:2: ").await?;
    home.write("brain/packs/srv.json", "{\n  \"name\": \"srv\",\n")?;
    until_problems(&api, "srv.json:").await?;
    home.write("brain/engines/e.yaml", "id: [\n")?;
    until_problems(&api, "e.yaml:").await?;
    let (_, metrics) = api.get("/metrics").await?;
    assert!(metrics.as_str().context("text")?.lines().any(|l| l == "vance_file_problems 3"), "{metrics}");
    assert!(brain.process.log().contains("what it said before still counts"), "{}", brain.process.log());
    // All three count as they were.
    let tree = api.submit("engine: eng\ntasks:\n- {id: a, steps: [{call: report, with: {name: a}}]}\n").await?;
    tree.until("a", "completed").await?;
    toy.for_brain(&home, "srv", &["starts"])?;
    home.write("brain/engines/e.yaml", "id: eng\n")?;
    home.write("brain/tools.yaml", "")?;
    until_problems(&api, "").await?;
    until("the entry is gone", || async { Ok((!has_tool(&api, "report").await?).then_some(())) }).await?;
    assert!(has_tool(&api, "srv__look").await?);
    assert_eq!(starts(&toy)?.len(), 1, "the server went on all the time");
    // What only a restart takes over is said.
    home.write("brain/brain.yaml", "defaults: {grace: 7s}\n")?;
    until("a restart is asked for", || async {
        Ok((details(&api).await?["files"]["needs_restart"] == true).then_some(()))
    })
    .await?;
    assert_eq!(brain.process.stop().await?, 0);
    Ok(())
}

#[tokio::test]
async fn a_changed_pack_is_replaced_after_its_calls_and_its_neighbour_goes_on() -> anyhow::Result<()> {
    let home = Home::new()?;
    let (toy, other) = (Toy::new(&home)?, Home::new()?);
    let neighbour = Toy::new(&other)?;
    toy.for_brain(&home, "srv", &["starts"])?;
    neighbour.for_brain(&home, "calm", &["starts"])?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    session(&api).await?;
    api.until_available(SESSION, "srv__effect").await?;
    api.until_available(SESSION, "calm__look").await?;
    let tree = api
        .submit("tasks:\n- {id: long, steps: [{call: srv__effect, with: {name: long, ms: 4000}, as: r}]}\n- {id: calm, steps: [{call: calm__effect, with: {name: calm, ms: 6000}, as: r}]}\n")
        .await?;
    until("the call runs", || async { Ok((toy.begun_of("long")? == 1).then_some(())) }).await?;
    toy.for_brain(&home, "srv", &["starts", "slow=0"])?;
    brain.process.signal(Signal::SIGHUP)?;
    until("it is being replaced", || async {
        Ok((details(&api).await?["packs"]["srv"]["state"] == "starting").then_some(()))
    })
    .await?;
    // Taken while the old server still ends: it runs on the new one.
    let next = api.submit("tasks:\n- {id: next, steps: [{call: srv__effect, with: {name: next}, as: r}]}\n").await?;
    assert_eq!(tree.until("long", "completed").await?["output"]["r"]["text"], "did long");
    assert_eq!(next.until("next", "completed").await?["output"]["r"]["text"], "did next");
    assert_eq!((toy.begun_of("long")?, toy.begun_of("next")?), (1, 1));
    tree.until("calm", "completed").await?;
    let all = starts(&toy)?;
    assert_eq!(all.iter().map(Vec::len).collect::<Vec<_>>(), [1, 1], "the old one was gone before the new one started");
    assert_eq!(starts(&neighbour)?.len(), 1, "nothing happened to the other one");
    Ok(())
}

#[tokio::test]
async fn check_names_packs_that_are_not_there_and_tools_that_nobody_has() -> anyhow::Result<()> {
    let home = Home::new()?;
    home.write(
        "brain/tools.yaml",
        "tools:\n- name: jira_create_issue\n  location: server\n  mcp_server: jira-mcp\n- name: web_serch\n  location: server\n  type: built_in\n- {name: notes, location: client, mcp_server: obsidian-mcp}\n",
    )?;
    let checked = run("vance-brain", &home, &["check"]).await?;
    assert_eq!(checked.code, 0, "{}{}", checked.stdout, checked.stderr);
    for part in [
        "tools.yaml:2: warning: `jira_create_issue` needs the server pack 'jira-mcp', which is not there",
        "tools.yaml:5: warning: the Brain has no built-in tool `web_serch`, did you mean `web_search`?",
    ] {
        assert!(checked.stderr.contains(part), "{}", checked.stderr);
    }
    assert!(!checked.stderr.contains("obsidian"), "it is the client's");
    Ok(())
}

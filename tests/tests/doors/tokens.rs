//! Two people with one Brain.

use std::os::unix::fs::PermissionsExt as _;

use anyhow::Context as _;
use serde_json::json;
use vance_tests::api::Api;
use vance_tests::home::Home;
use vance_tests::process::{Brain, Process, run};
use vance_tests::wait::until;

/// Makes a token while the Brain runs.
async fn token(home: &Home, words: &[&str]) -> anyhow::Result<String> {
    let made = run("vance-brain", home, &[&["token", "new"], words].concat()).await?;
    anyhow::ensure!(made.code == 0 && made.stdout.lines().count() == 1, "{}{}", made.stdout, made.stderr);
    Ok(made.stdout.trim().to_owned())
}

/// What `vancetope login` writes.
fn pair(home: &Home, brain: &Brain, token: &str) -> anyhow::Result<()> {
    let file = home.write("access.yaml", &format!("brain: {:?}\ntoken: {token:?}\n", brain.url))?;
    std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o600))?;
    Ok(())
}

#[tokio::test]
async fn a_second_person_gets_a_token_and_their_own_sessions() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let mine = Api::new(&home, &brain.url)?;
    let hers = mine.with_token(&token(&home, &["--name", "alice"]).await?);
    assert_eq!(hers.get("/api/v1/sessions").await?, (200, json!({"sessions": []})), "it works at once");
    let her_home = Home::new()?;
    pair(&her_home, &brain, hers.token())?;
    her_home.write_project("a.txt", "hers")?;
    let mut foot = Process::start("vancetope", &her_home, &["--daemon", "--name", "hers"])?;
    foot.line("foot ready").await?;
    hers.until_available("default.alice", "read_local_file").await?;
    let tree = hers.submit("tasks:\n- id: a\n  steps: [{call: read_local_file, with: {path: a.txt}}]\n").await?;
    let task = tree.until("a", "completed").await?;
    assert_eq!((&task["session_id"], &task["output"]["result"]["text"]), (&json!("default.alice"), &json!("hers")));
    // Nobody else has any of it.
    assert_eq!(mine.get("/api/v1/sessions/default.alice").await?.0, 403);
    assert_eq!(mine.get(&format!("/api/v1/tasks/{}", tree.task_id("a")?)).await?.0, 404);
    let call = json!({"arguments": {"path": "a.txt"}, "session": "default.alice"});
    assert_eq!(mine.call("read_local_file", &call).await?.0, 403);
    // A token for less says what it lacks.
    let narrow = mine.with_token(&token(&home, &["--name", "screen", "--scope", "admin"]).await?);
    let (status, body) = narrow.get("/api/v1/tasks").await?;
    assert_eq!(status, 403);
    assert!(body.to_string().contains("scope api") && body.to_string().contains("this one has admin"), "{body}");
    assert_eq!(narrow.get("/metrics").await?.0, 200);
    Ok(())
}

#[tokio::test]
async fn a_revoked_machine_stops_says_what_to_do_and_comes_back_with_a_new_token() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let mine = Api::new(&home, &brain.url)?;
    let her_home = Home::new()?;
    pair(&her_home, &brain, &token(&home, &["--name", "alice"]).await?)?;
    let mut foot = Process::start("vancetope", &her_home, &["--daemon"])?;
    foot.line("foot ready").await?;
    let revoked = run("vance-brain", &home, &["token", "revoke", "alice"]).await?;
    assert_eq!(revoked.code, 0, "{}", revoked.stderr);
    until("the Foot says why it stopped", || async {
        let log = foot.log();
        Ok((log.contains("does not accept the token") && log.contains("token new")).then_some(()))
    })
    .await?;
    until("the Brain says it too", || async {
        Ok(brain.process.log().contains("its token was revoked").then_some(()))
    })
    .await?;
    // It says so once, and looks for another token.
    let said = foot.log().matches("does not accept the token").count();
    let again = token(&home, &["--name", "alice"]).await?;
    let hers = mine.with_token(&again);
    pair(&her_home, &brain, &again)?;
    hers.until_available("default.alice", "read_local_file").await?;
    assert_eq!(foot.log().matches("does not accept the token").count(), said, "{}", foot.log());
    let listed = run("vance-brain", &home, &["token", "list", "--json"]).await?;
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).context("a list")?;
    assert_eq!(listed["tokens"][0]["name"], "alice", "{listed}");
    Ok(())
}

#[tokio::test]
async fn a_token_file_that_is_bad_for_a_moment_throws_nobody_out_and_the_same_token_stored_again_is_tried_again()
-> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let mine = Api::new(&home, &brain.url)?;
    let her_home = Home::new()?;
    let hers = token(&home, &["--name", "alice"]).await?;
    pair(&her_home, &brain, &hers)?;
    let foot = Process::start("vancetope", &her_home, &["--daemon"])?;
    let hers_api = mine.with_token(&hers);
    hers_api.until_available("default.alice", "read_local_file").await?;
    let file = home.path().join("brain/data/tokens.json");
    let good = std::fs::read_to_string(&file)?;
    std::fs::write(&file, &good[..good.len() / 2])?;
    until("the Brain says it", || async { Ok(brain.process.log().contains("tokens.json").then_some(())) }).await?;
    assert_eq!(hers_api.get("/api/v1/sessions/default.alice").await?.0, 200);
    assert!(!foot.log().contains("does not accept the token"), "{}", foot.log());
    // Gone from a good file is revoked; there again, she has to be let in without another token.
    std::fs::write(&file, "{\"tokens\": []}\n")?;
    until("the Foot is sent out", || async { Ok(foot.log().contains("does not accept the token").then_some(())) })
        .await?;
    std::fs::write(&file, &good)?;
    pair(&her_home, &brain, &hers)?;
    hers_api.until_available("default.alice", "read_local_file").await?;
    Ok(())
}

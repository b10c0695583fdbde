//! The line is cut at every frame of a call's life.

use tokio::time::Duration;
use vance_tests::api::Api;
use vance_tests::home::Home;
use vance_tests::process::{Brain, foot};
use vance_tests::proxy::{Line, Proxy, Trap, Way};
use vance_tests::toy::Toy;
use vance_tests::wait::until;

use super::sleep::a_foot_stands_still;

/// One call with a trap on one of its frames, for an unsafe and a safe tool. It completes, and the unsafe one began once.
async fn cut_at(way: Way, text: &str, then: Line) -> anyhow::Result<()> {
    let home = Home::new()?;
    let toy = Toy::new(&home)?;
    toy.for_foot(&home)?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let proxy = Proxy::before(brain.addr()).await?;
    let foot = foot(&home, &proxy.url, &[]).await?;
    api.until_available("default.local", "toy__effect").await?;
    for (n, (tool, passes)) in
        [("effect", true), ("effect", false), ("look", true), ("look", false)].into_iter().enumerate()
    {
        let name = format!("{tool}{n}");
        proxy.trap(Trap { way, text: text.to_owned(), passes, then });
        let tree = api
            .submit(&format!(
                "tasks:\n- id: a\n  steps:\n  - {{call: toy__{tool}, with: {{name: {name}, ms: 100}}, as: r}}\n  - {{call: now}}\n"
            ))
            .await?;
        until("the trap", || async { Ok((proxy.line() == then).then_some(())) }).await?;
        if then == Line::Cut {
            proxy.set(Line::Open);
        }
        let done = tree.until("a", "completed").await;
        let done = done.map_err(|e| anyhow::anyhow!("{e:#}\n{}\n{}", brain.process.log(), foot.log()))?;
        assert_eq!(done["output"]["r"]["text"], format!("did {name}"), "{done}");
        assert_eq!(done["calls"].as_array().map(Vec::len), Some(2), "one call id: {done}");
        assert_eq!(toy.begun_of(&name)?, 1, "{tool} {passes}");
    }
    Ok(())
}

#[tokio::test]
async fn cut_at_the_call() -> anyhow::Result<()> {
    cut_at(Way::Down, r#""type":"call""#, Line::Cut).await
}

#[tokio::test]
async fn cut_at_the_accepted() -> anyhow::Result<()> {
    cut_at(Way::Up, r#""type":"accepted""#, Line::Cut).await
}

#[tokio::test]
async fn cut_at_the_result() -> anyhow::Result<()> {
    cut_at(Way::Up, r#""type":"result""#, Line::Cut).await
}

#[tokio::test]
async fn cut_at_the_ack() -> anyhow::Result<()> {
    cut_at(Way::Down, r#""type":"result_ack""#, Line::Cut).await
}

#[tokio::test]
async fn cut_while_the_client_says_hello() -> anyhow::Result<()> {
    let home = Home::new()?;
    let toy = Toy::new(&home)?;
    toy.for_foot(&home)?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let proxy = Proxy::before(brain.addr()).await?;
    let _foot = foot(&home, &proxy.url, &[]).await?;
    api.until_available("default.local", "toy__effect").await?;
    let frames = [(Way::Up, "client_connected", true), (Way::Down, r#""type":"welcome""#, false)];
    for (n, (way, text, passes)) in frames.into_iter().enumerate() {
        let name = format!("n{n}.");
        let step = format!("{{call: toy__effect, with: {{name: {name}, ms: 700}}}}");
        let tree = api.submit(&format!("tasks:\n- {{id: a, steps: [{step}]}}\n")).await?;
        until("it runs", || async { Ok((toy.begun_of(&name)? == 1).then_some(())) }).await?;
        proxy.set(Line::Cut);
        tree.until("a", "blocked").await?;
        proxy.trap(Trap { way, text: text.to_owned(), passes, then: Line::Cut });
        proxy.set(Line::Open);
        until("the trap", || async { Ok((proxy.line() == Line::Cut).then_some(())) }).await?;
        proxy.set(Line::Open);
        tree.until("a", "completed").await?;
        assert_eq!(toy.begun_of(&name)?, 1);
    }
    Ok(())
}

/// Slow on purpose: only the heartbeats tell. Three of ten seconds, then the backoff.
#[tokio::test]
async fn a_line_that_swallows_everything_and_a_foot_that_stands_still_are_noticed_and_come_back() -> anyhow::Result<()>
{
    let longer_than_three_heartbeats = Duration::from_secs(33);
    tokio::try_join!(a_line_swallows_everything(), a_foot_stands_still(longer_than_three_heartbeats))?;
    Ok(())
}

async fn a_line_swallows_everything() -> anyhow::Result<()> {
    let home = Home::new()?;
    let toy = Toy::new(&home)?;
    toy.for_foot(&home)?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let proxy = Proxy::before(brain.addr()).await?;
    let foot = foot(&home, &proxy.url, &[]).await?;
    api.until_available("default.local", "toy__effect").await?;
    let tree = api
        .submit("tasks:\n- {id: a, steps: [{call: toy__effect, with: {name: a, ms: 1000}, timeout: 120s}]}\n- {id: b, depends_on: [a], steps: [{call: now}]}\n")
        .await?;
    until("it runs", || async { Ok((toy.begun_of("a")? == 1).then_some(())) }).await?;
    proxy.set(Line::Hole);
    let blocked = tree.until("a", "blocked").await?;
    assert_eq!(blocked["blocked_reason"], "Waiting for Client for Tool: toy__effect");
    until("the Foot notices too", || async { Ok(foot.log().contains("silent").then_some(())) }).await?;
    proxy.set(Line::Cut);
    proxy.set(Line::Open);
    tree.until("b", "completed").await?;
    assert_eq!(toy.begun_of("a")?, 1);
    Ok(())
}

//! The line is cut at every frame of a call's life.

use vance_tests::api::Api;
use vance_tests::home::Home;
use vance_tests::process::{Brain, foot};
use vance_tests::proxy::{Line, Proxy, Trap, Way};
use vance_tests::toy::Toy;
use vance_tests::wait::until;

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

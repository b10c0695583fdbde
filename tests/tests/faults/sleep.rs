//! A laptop sleeps, a Foot's process ends between a result and its acknowledgement, a Brain is killed while it recovers, and a
//! store is away: all of it is a delay.

use nix::sys::signal::Signal;
use rusqlite::Connection;
use tokio::time::{Duration, sleep};
use vance_tests::api::Api;
use vance_tests::home::Home;
use vance_tests::process::{Brain, Process, foot};
use vance_tests::proxy::{Line, Proxy, Trap, Way};
use vance_tests::toy::Toy;
use vance_tests::wait::until;

/// The Foot's process stands still with two calls running; its tool servers go on, as if nothing was.
pub(super) async fn a_foot_stands_still(time: Duration) -> anyhow::Result<()> {
    let home = Home::new()?;
    let toy = Toy::new(&home)?;
    toy.for_foot(&home)?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let foot = foot(&home, &brain.url, &[]).await?;
    let tree = api
        .submit(
            r"
tasks:
- {id: danger, steps: [{call: toy__effect, with: {name: danger, ms: 1000}, as: r}]}
- {id: safe, steps: [{call: toy__look, with: {name: safe, ms: 1000}}]}
- {id: after, depends_on: [danger, safe], steps: [{call: now}]}
- {id: beside, steps: [{call: now}]}
",
        )
        .await?;
    until("both run", || async { Ok((toy.begun()?.len() == 2).then_some(())) }).await?;
    foot.signal(Signal::SIGSTOP)?;
    sleep(time).await;
    for id in ["danger", "safe"] {
        let task = tree.until(id, "blocked").await?;
        assert!(task["blocked_reason"].as_str().unwrap_or_default().starts_with("Waiting for Client"), "{task}");
    }
    tree.until("beside", "completed").await?;
    foot.signal(Signal::SIGCONT)?;
    tree.until("after", "completed").await?;
    assert_eq!(tree.task("danger").await?["output"]["r"]["text"], "did danger");
    assert_eq!((toy.begun_of("danger")?, toy.begun_of("safe")?), (1, 1));
    Ok(())
}

#[tokio::test]
#[ignore = "nightly: it takes the ten minutes"]
async fn a_foot_that_stood_still_for_ten_minutes_goes_on_by_itself() -> anyhow::Result<()> {
    a_foot_stands_still(Duration::from_secs(600)).await
}

#[tokio::test]
async fn a_result_that_was_not_acknowledged_outlives_the_foots_process() -> anyhow::Result<()> {
    let home = Home::new()?;
    let toy = Toy::new(&home)?;
    toy.for_foot(&home)?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let proxy = Proxy::before(brain.addr()).await?;
    let mut process = foot(&home, &proxy.url, &[]).await?;
    api.until_available("default.local", "toy__effect").await?;
    // The process is killed after the result came and its acknowledgement was lost, and after a result that never left.
    for (name, way, frame) in [("acked", Way::Down, r#""type":"result_ack""#), ("kept", Way::Up, r#""type":"result""#)]
    {
        proxy.trap(Trap { way, text: frame.to_owned(), passes: false, then: Line::Hole });
        let tree = api
            .submit(&format!(
                "tasks:\n- {{id: a, steps: [{{call: toy__effect, with: {{name: {name}}}, as: r}}, {{call: now}}]}}\n"
            ))
            .await?;
        until("the trap", || async { Ok((proxy.line() == Line::Hole).then_some(())) }).await?;
        // An unsafe call's result goes to the disk as it ends; give it the moment.
        sleep(Duration::from_millis(500)).await;
        process.kill9().await?;
        proxy.set(Line::Cut);
        proxy.set(Line::Open);
        process = foot(&home, &proxy.url, &[]).await?;
        let done = tree.until("a", "completed").await?;
        assert_eq!(done["output"]["r"]["text"], format!("did {name}"), "{done}");
        assert_eq!(toy.begun_of(name)?, 1);
    }
    Ok(())
}

#[tokio::test]
async fn a_brain_that_is_killed_again_while_it_recovers_goes_on_as_after_one_start() -> anyhow::Result<()> {
    let home = Home::new()?;
    let toy = Toy::new(&home)?;
    toy.for_foot(&home)?;
    toy.for_brain(&home, "srv", &[])?;
    let mut brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let _foot = foot(&home, &brain.url, &[]).await?;
    let mut yaml = "tasks:\n".to_owned();
    for n in 0..10 {
        yaml.push_str(&format!(
            "- {{id: t{n}, steps: [{{call: toy__effect, with: {{name: t{n}a., ms: 1000}}}}, {{call: toy__effect, with: {{name: t{n}b.}}}}, {{call: srv__look, with: {{name: t{n}c.}}}}]}}\n"
        ));
    }
    let tree = api.submit(&yaml).await?;
    until("all run", || async { Ok((toy.begun()?.len() == 10).then_some(())) }).await?;
    let addr = brain.addr().to_owned();
    brain.process.kill9().await?;
    for n in 0..8 {
        let mut attempt = Process::start("vance-brain", &home, &["serve", "--listen", &addr])?;
        sleep(Duration::from_millis(n * 40)).await;
        attempt.kill9().await?;
    }
    let _brain = Brain::start_on(&home, &addr).await?;
    for n in 0..10 {
        tree.until(&format!("t{n}"), "completed").await?;
        for step in ["a", "b"] {
            assert_eq!(toy.begun_of(&format!("t{n}{step}."))?, 1, "t{n}{step}");
        }
        assert!(toy.begun_of(&format!("t{n}c."))? >= 1);
    }
    Ok(())
}

#[tokio::test]
async fn a_store_that_is_away_for_ten_seconds_delays_and_loses_nothing() -> anyhow::Result<()> {
    let home = Home::new()?;
    let toy = Toy::new(&home)?;
    toy.for_foot(&home)?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let _foot = foot(&home, &brain.url, &[]).await?;
    api.until_available("default.local", "toy__effect").await?;
    let tree = api
        .submit(
            r"
tasks:
- id: a
  steps:
  - {call: toy__effect, with: {name: one., ms: 1000}, as: one}
  - {call: toy__effect, with: {name: two.}}
- {id: b, depends_on: [a], steps: [{call: now}]}
",
        )
        .await?;
    until("the first step runs", || async { Ok((toy.begun_of("one.")? == 1).then_some(())) }).await?;
    // Somebody else holds the file: nothing can be written.
    let holder = Connection::open(home.path().join("brain/data/brain.db"))?;
    holder.busy_timeout(Duration::from_secs(5))?;
    holder.execute_batch("BEGIN IMMEDIATE")?;
    let away = sleep(Duration::from_secs(10));
    let during = async {
        let yaml = "tasks:\n- {id: c, steps: [{call: toy__effect, with: {name: three.}}]}\n";
        let answer = api.submit_raw(yaml, &[("idempotency-key", "once")]).await?;
        anyhow::Ok((yaml, answer))
    };
    let ((), during) = tokio::join!(away, during);
    assert_eq!(toy.begun_of("two.")?, 0, "no effect before its event is stored");
    let (yaml, (status, body)) = during?;
    assert_eq!((status, body["error"]["code"].as_str()), (503, Some("store_unavailable")), "{body}");
    holder.execute_batch("ROLLBACK")?;
    let (status, body) = until("it is taken", || async {
        let answer = api.submit_raw(yaml, &[("idempotency-key", "once")]).await?;
        Ok((answer.0 != 503).then_some(answer))
    })
    .await?;
    assert_eq!(status, 201, "{body}");
    assert_eq!(tree.until("a", "completed").await?["output"]["one"]["text"], "did one.");
    tree.until("b", "completed").await?;
    for name in ["one.", "two.", "three."] {
        until(name, || async { Ok((toy.begun_of(name)? == 1).then_some(())) }).await?;
    }
    Ok(())
}

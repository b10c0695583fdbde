//! Tool servers of Brain and Foot that are slow, crash, hang, print noise, or whose Brain is killed.

use serde_json::json;
use tokio::time::Instant;
use vance_tests::api::Api;
use vance_tests::home::Home;
use vance_tests::process::{Brain, foot};
use vance_tests::toy::Toy;
use vance_tests::wait::until;

#[tokio::test]
async fn a_call_waits_for_a_server_pack_that_starts_and_one_that_never_does_delays_nobody() -> anyhow::Result<()> {
    let home = Home::new()?;
    let toy = Toy::new(&home)?;
    toy.for_brain(&home, "slow", &["slow=3"])?;
    toy.for_brain(&home, "never", &["never"])?;
    toy.for_brain(&home, "crash", &["crash"])?;
    toy.for_brain(&home, "noisy", &["noise"])?;
    let begin = Instant::now();
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let tree = api
        .submit(
            r"
tasks:
- {id: slow, steps: [{call: slow__look, with: {name: slow}, as: r}]}
- {id: never, steps: [{call: never__look, with: {name: never}}]}
- {id: crash, steps: [{call: crash__look, with: {name: crash}}]}
- {id: noisy, steps: [{call: noisy__effect, with: {name: noisy}, as: r}]}
- {id: plain, steps: [{call: now}]}
",
        )
        .await?;
    tree.until("plain", "completed").await?;
    let noisy = tree.until("noisy", "completed").await?;
    assert_eq!(noisy["output"]["r"]["text"], "did noisy", "{noisy}");
    assert!(begin.elapsed().as_secs_f64() < 3.0, "delayed: {:?}", begin.elapsed());
    let (status, body) = api.call("slow__look", &json!({"arguments": {"name": "direct"}})).await?;
    assert_eq!((status, body["call"]["outcome"].as_str()), (200, Some("done")), "{body}");
    let slow = tree.until("slow", "completed").await?;
    assert_eq!(slow["calls"].as_array().map(Vec::len), Some(1), "{slow}");
    let never = tree.task("never").await?;
    assert_eq!(
        (never["state"].as_str(), never["calls"].as_array().map(Vec::len)),
        (Some("running"), Some(0)),
        "{never}"
    );
    let (status, body) = tree.post("never", "cancel", &json!({})).await?;
    assert_eq!((status, body["state"].as_str()), (200, Some("cancelled")), "{body}");
    Ok(())
}

#[tokio::test]
async fn a_server_that_dies_in_a_call_is_unknown_if_unsafe_and_runs_again_if_safe() -> anyhow::Result<()> {
    let home = Home::new()?;
    let toy = Toy::new(&home)?;
    toy.for_brain(&home, "srv", &[])?;
    toy.for_foot(&home)?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let _foot = foot(&home, &brain.url, &[]).await?;
    let tree = api
        .submit(
            r"
tasks:
- {id: server, steps: [{call: srv__die, with: {name: server}}]}
- {id: client, steps: [{call: toy__die, with: {name: client}}]}
- {id: safe_server, depends_on: [server], run_if: always, steps: [{call: srv__die_looking, with: {name: safe_server}, as: r}]}
- {id: safe_client, depends_on: [client], run_if: always, steps: [{call: toy__die_looking, with: {name: safe_client}, as: r}]}
",
        )
        .await?;
    for id in ["server", "client"] {
        until("outcome unknown", || async {
            let task = tree.task(id).await?;
            anyhow::ensure!(task["state"] != "failed" && task["state"] != "completed", "{task}");
            let reason = task["blocked_reason"].as_str().unwrap_or_default().to_owned();
            Ok(reason.starts_with("Outcome unknown for Tool: ").then_some(()))
        })
        .await?;
        let (status, body) = tree.post(id, "resolve", &json!({"as": "failed"})).await?;
        assert_eq!(status, 200, "{body}");
        let failed = tree.until(id, "failed").await?;
        assert_eq!(failed["error"]["code"], "resolved_failed", "{failed}");
        assert_eq!(toy.begun_of(id)?, 1);
    }
    for id in ["safe_server", "safe_client"] {
        let done = tree.until(id, "completed").await?;
        assert_eq!(done["output"]["r"]["text"], format!("did {id}"), "{done}");
        assert_eq!(toy.begun_of(id)?, 2, "{done}");
    }
    Ok(())
}

#[tokio::test]
async fn a_server_call_of_a_killed_brain_is_unknown_if_unsafe_and_runs_again_if_safe() -> anyhow::Result<()> {
    let home = Home::new()?;
    let toy = Toy::new(&home)?;
    toy.for_brain(&home, "srv", &[])?;
    let mut brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let tree = api
        .submit(
            r"
tasks:
- {id: danger, steps: [{call: srv__effect, with: {name: danger, ms: 3000}}]}
- {id: safe, steps: [{call: srv__look, with: {name: safe, ms: 1000}, as: r}]}
",
        )
        .await?;
    until("both run", || async {
        let begun = toy.begun()?;
        Ok((begun.len() == 2).then_some(()))
    })
    .await?;
    brain.kill9_and_restart(&home).await?;
    let blocked = tree.until("danger", "blocked").await?;
    assert!(
        blocked["blocked_reason"].as_str().unwrap_or_default().starts_with("Outcome unknown for Tool: srv__effect")
    );
    let safe = tree.until("safe", "completed").await?;
    assert_eq!(safe["output"]["r"]["text"], "did safe", "{safe}");
    assert_eq!((toy.begun_of("danger")?, toy.begun_of("safe")?), (1, 2));
    let (status, _) = tree.post("danger", "resolve", &json!({"as": "retry"})).await?;
    assert_eq!(status, 200);
    tree.until("danger", "completed").await?;
    assert_eq!(toy.begun_of("danger")?, 2);
    Ok(())
}

#[tokio::test]
async fn a_server_that_hangs_costs_its_own_call_only() -> anyhow::Result<()> {
    let home = Home::new()?;
    let toy = Toy::new(&home)?;
    toy.for_brain(&home, "srv", &[])?;
    toy.for_foot(&home)?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let _foot = foot(&home, &brain.url, &[]).await?;
    let tree = api
        .submit(
            r"
tasks:
- {id: hang_server, steps: [{call: srv__hang, with: {name: a}, timeout: 1s}]}
- {id: hang_client, steps: [{call: toy__hang, with: {name: b}, timeout: 1s}]}
- {id: beside_server, steps: [{call: srv__effect, with: {name: c}}]}
- {id: beside_client, steps: [{call: toy__effect, with: {name: d}}]}
",
        )
        .await?;
    tree.until("beside_server", "completed").await?;
    tree.until("beside_client", "completed").await?;
    for id in ["hang_server", "hang_client"] {
        let task = until("a verdict", || async {
            let task = tree.task(id).await?;
            Ok((task["state"] == "failed" || task["state"] == "blocked").then_some(task))
        })
        .await?;
        assert_ne!(task["error"]["code"], "unknown_tool", "{task}");
        println!("{id}: {} {} {}", task["state"], task["blocked_reason"], task["error"]);
    }
    assert_eq!((toy.begun_of("a")?, toy.begun_of("b")?), (1, 1));
    Ok(())
}

#[tokio::test]
async fn calls_that_outlast_a_brains_goodbye_are_decided_after_its_next_start() -> anyhow::Result<()> {
    let home = Home::new()?;
    let toy = Toy::new(&home)?;
    toy.for_brain(&home, "srv", &[])?;
    let mut brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let tree = api
        .submit(
            r"
tasks:
- {id: short, steps: [{call: srv__effect, with: {name: short, ms: 2000}}, {call: srv__effect, with: {name: then}}]}
- {id: danger, steps: [{call: srv__effect, with: {name: danger, ms: 15000}}]}
- {id: safe, steps: [{call: srv__look, with: {name: safe, ms: 15000}}]}
",
        )
        .await?;
    until("all run", || async { Ok((toy.begun()?.len() == 3).then_some(())) }).await?;
    let addr = brain.addr().to_owned();
    assert_eq!(brain.process.stop().await?, 0);
    let _brain = Brain::start_on(&home, &addr).await?;
    tree.until("short", "completed").await?;
    let danger = tree.until("danger", "blocked").await?;
    assert!(danger["blocked_reason"].as_str().unwrap_or_default().starts_with("Outcome unknown"), "{danger}");
    until("the safe one runs again", || async { Ok((toy.begun_of("safe")? == 2).then_some(())) }).await?;
    assert_eq!((toy.begun_of("short")?, toy.begun_of("then")?, toy.begun_of("danger")?), (1, 1, 1));
    Ok(())
}

#[tokio::test]
async fn an_unsafe_call_that_takes_too_long_may_have_run_and_is_not_retried_by_itself() -> anyhow::Result<()> {
    let home = Home::new()?;
    let toy = Toy::new(&home)?;
    toy.for_brain(&home, "srv", &[])?;
    toy.for_foot(&home)?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let _foot = foot(&home, &brain.url, &[]).await?;
    let mut yaml = "tasks:\n".to_owned();
    for pack in ["srv", "toy"] {
        for tool in ["effect", "look"] {
            yaml.push_str(&format!(
                "- {{id: {pack}_{tool}, retry: {{max_attempts: 3, backoff: 10ms}}, steps: [{{call: {pack}__{tool}, with: {{name: {pack}_{tool}, ms: 3000}}, timeout: 500ms}}]}}\n"
            ));
        }
    }
    let tree = api.submit(&yaml).await?;
    for (id, runs) in [("srv_effect", 1), ("toy_effect", 1), ("srv_look", 3), ("toy_look", 3)] {
        let failed = tree.until(id, "failed").await?;
        assert_eq!(failed["error"]["code"], "timeout", "{failed}");
        assert_eq!(toy.begun_of(id)?, runs, "{failed}");
    }
    Ok(())
}

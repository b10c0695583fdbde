//! Results that are too large to travel stay where they were made and are read by their handles, whoever is killed in between.

use serde_json::{Value, json};
use vance_tests::api::Api;
use vance_tests::home::Home;
use vance_tests::process::{Brain, foot};
use vance_tests::toy::Toy;
use vance_tests::wait::until;

const LARGE: usize = 9 * 1024 * 1024;

/// The link that stands for a large part of a step's result.
fn link(task: &Value, step: &str) -> anyhow::Result<Value> {
    let content = task["output"][step]["content"].as_array().cloned().unwrap_or_default();
    let link = content.into_iter().find(|part| part["type"] == "resource_link");
    link.ok_or_else(|| anyhow::anyhow!("no link in {task}"))
}

fn path(link: &Value) -> String {
    format!("/api/v1/blobs/{}", link["name"].as_str().unwrap_or_default())
}

async fn status(api: &Api, path: &str) -> anyhow::Result<(u16, Value)> {
    let (status, body) = api.get(path).await?;
    Ok((status, body["error"]["code"].clone()))
}

#[tokio::test]
async fn results_that_are_too_large_to_travel_are_read_by_their_handle_whoever_was_killed() -> anyhow::Result<()> {
    let home = Home::new()?;
    let toy = Toy::new(&home)?;
    toy.for_foot(&home)?;
    toy.for_brain(&home, "srv", &[])?;
    let mut brain = Brain::start(&home).await?;
    let mut api = Api::new(&home, &brain.url)?;
    let mut laptop = foot(&home, &brain.url, &[]).await?;
    let tree = api
        .submit(&format!(
            "tasks:\n- {{id: foot, steps: [{{call: toy__big, with: {{name: foot, bytes: {LARGE}}}, as: r}}]}}\n- {{id: srv, steps: [{{call: srv__big, with: {{name: srv, bytes: {LARGE}}}, as: r}}]}}\n"
        ))
        .await?;
    let mut paths = Vec::new();
    for id in ["foot", "srv"] {
        let task = tree.until(id, "completed").await?;
        assert_eq!(toy.begun_of(id)?, 1);
        let shown = task["output"]["r"]["text"].as_str().unwrap_or_default();
        assert!(shown.starts_with("xxx") && shown.contains("bytes of text/plain are kept") && shown.len() < 1_300);
        let link = link(&task, "r")?;
        assert_eq!((&link["size"], &link["mimeType"]), (&json!(LARGE), &json!("text/plain")), "{link}");
        paths.push(path(&link));
        let whole = api.bytes(&path(&link), None).await?;
        assert!(whole.status == 200 && whole.body.len() == LARGE && whole.body.iter().all(|byte| *byte == b'x'));
        assert_eq!(Some(whole.etag.trim_matches('"')), link["_meta"]["vancetope/sha256"].as_str());
        let part = api.bytes(&path(&link), Some("bytes=262140-262149")).await?;
        assert_eq!((part.status, part.body.len()), (206, 10));
        assert_eq!(part.range, format!("bytes 262140-262149/{LARGE}"));
        let last = api.bytes(&path(&link), Some("bytes=-3")).await?;
        assert_eq!((last.status, last.body.as_slice()), (206, b"xxx".as_slice()));
        assert_eq!(api.bytes(&path(&link), Some(&format!("bytes={LARGE}-"))).await?.status, 416);
    }
    // A caller without a task gets its handle as well.
    let (_, body) = api.call("toy__big", &json!({"arguments": {"name": "direct", "bytes": LARGE}})).await?;
    let direct = body["result"]["content"].as_array().cloned().unwrap_or_default();
    let direct = direct.iter().find(|part| part["type"] == "resource_link").cloned().unwrap_or_default();
    assert_eq!(api.bytes(&path(&direct), Some("bytes=0-0")).await?.status, 206, "{body}");

    laptop.kill9().await?;
    until("the client is seen as gone", || async {
        let found = status(&api, &paths[0]).await?;
        Ok((found == (409, json!("client_absent"))).then_some(()))
    })
    .await?;
    brain.kill9_and_restart(&home).await?;
    api = Api::new(&home, &brain.url)?;
    assert_eq!(api.bytes(&paths[1], None).await?.body.len(), LARGE);
    assert_eq!(status(&api, &paths[0]).await?, (409, json!("client_absent")));
    // What a killed process left half written goes at the next start; a file that is whole stays.
    let slot = home.path().join("state/client-0/blobs");
    std::fs::write(slot.join("half-blob_x"), "half")?;
    let _laptop = foot(&home, &brain.url, &[]).await?;
    until("the client is back", || async {
        Ok(api.bytes(&paths[0], None).await.is_ok_and(|whole| whole.body.len() == LARGE).then_some(()))
    })
    .await?;
    assert!(!slot.join("half-blob_x").exists());
    for never in ["/api/v1/blobs/blob_never", "/api/v1/blobs/blob_x.foot_of_nobody", "/api/v1/blobs/..%2f..%2fstore.db"]
    {
        assert_eq!(status(&api, never).await?, (404, json!("blob_not_found")), "{never}");
    }
    Ok(())
}

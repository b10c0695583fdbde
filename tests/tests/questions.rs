//! A tool's server asks in the middle of a call while its person is away: the question waits with the task.
#![allow(missing_docs)]

use anyhow::Context as _;
use serde_json::{Value, json};
use vance_tests::api::{Api, Tree};
use vance_tests::home::Home;
use vance_tests::process::{Brain, Process, foot, run};
use vance_tests::proxy::{Line, Proxy};
use vance_tests::toy::Toy;
use vance_tests::wait::until;

/// A Brain and a Foot whose pack asks.
struct Place {
    home: Home,
    toy: Toy,
    brain: Brain,
    api: Api,
    proxy: Proxy,
    foot: Process,
}

impl Place {
    async fn with(settings: &str) -> anyhow::Result<Self> {
        let home = Home::new()?;
        home.write("brain/brain.yaml", settings)?;
        let toy = Toy::new(&home)?;
        toy.for_foot(&home)?;
        let brain = Brain::start(&home).await?;
        let api = Api::new(&home, &brain.url)?;
        let proxy = Proxy::before(brain.addr()).await?;
        let foot = foot(&home, &proxy.url, &[]).await?;
        Ok(Self { home, toy, brain, api, proxy, foot })
    }

    async fn new() -> anyhow::Result<Self> {
        Self::with("").await
    }

    /// Submits one task `a` and waits until it waits for an answer.
    async fn asking(&self, tool: &str, step: &str) -> anyhow::Result<Tree> {
        let yaml = format!("tasks:\n- {{id: a, steps: [{{call: {tool}, with: {{name: {step}}}, as: r}}]}}\n");
        let tree = self.api.submit(&yaml).await?;
        asks(&tree).await?;
        Ok(tree)
    }

    /// What the server got for a step.
    fn answers(&self, step: &str) -> anyhow::Result<Vec<Value>> {
        let text = std::fs::read_to_string(self.toy.file())?;
        let begin = format!("answer {step} ");
        text.lines().filter_map(|line| line.strip_prefix(&begin)).map(|line| Ok(serde_json::from_str(line)?)).collect()
    }
}

/// Waits until task `a` shows its question.
async fn asks(tree: &Tree) -> anyhow::Result<Value> {
    until("a question", || async {
        let Ok(task) = tree.task("a").await else { return Ok(None) };
        let reason = task["blocked_reason"].as_str().unwrap_or_default().to_owned();
        Ok(reason.starts_with("Waiting for an answer: ").then_some(task))
    })
    .await
}

fn accept(colour: &str, count: i64) -> Value {
    json!({"action": "accept", "content": {"colour": colour, "count": count}})
}

fn heard(colour: &str, count: i64) -> Value {
    json!({"action": "accept", "content": {"colour": colour, "count": count, "note": "none"}})
}

#[tokio::test]
async fn a_question_survives_the_brains_death_and_its_answer_reaches_the_server_once() -> anyhow::Result<()> {
    let mut place = Place::with("defaults: {max_parallel_tasks: 1}\n").await?;
    let tree = place.asking("toy__ask", "one").await?;
    let task = tree.task("a").await?;
    assert_eq!(
        (task["state"].as_str(), task["blocked_reason"].as_str()),
        (Some("blocked"), Some("Waiting for an answer: What about one?"))
    );
    let question = &task["question"];
    assert_eq!(question["message"], "What about one?", "{task}");
    assert_eq!(question["schema"]["required"], json!(["colour", "count"]), "{task}");
    // It holds no slot, though there is but one.
    let other = place.api.submit("tasks: [{id: a, steps: [{call: now}]}]").await?;
    other.until("a", "completed").await?;

    place.brain.kill9_and_restart(&place.home).await?;
    let again = asks(&tree).await?;
    assert_eq!(again["question"]["id"], *question.get("id").context("id")?, "the same question");
    for (body, status, code, problems) in [
        (json!({}), 400, "bad_request", 0),
        (json!({"action": "perhaps"}), 400, "bad_request", 0),
        (json!({"action": "accept"}), 422, "invalid_answer", 2),
        (json!({"action": "accept", "content": {"colour": 1, "count": 0}}), 422, "invalid_answer", 2),
        (json!({"action": "decline", "content": {}}), 422, "invalid_answer", 1),
        (json!({"action": "decline", "question": "question_of_somebody_else"}), 409, "no_question", 0),
    ] {
        let (got, answer) = tree.post("a", "answer", &body).await?;
        let listed = answer["error"]["problems"].as_array().map_or(0, Vec::len);
        assert_eq!((got, answer["error"]["code"].as_str()), (status, Some(code)), "{body}: {answer}");
        assert!(problems == 0 || listed == problems, "{body}: {answer}");
    }
    let (status, body) = tree.post("a", "answer", &accept("red", 3)).await?;
    assert_eq!((status, &body["question"]), (200, &Value::Null), "{body}");
    let done = tree.until("a", "completed").await?;
    assert_eq!(place.answers("one")?, [heard("red", 3)]);
    assert_eq!(place.toy.begun_of("one")?, 1);
    assert_eq!(done["calls"].as_array().map(Vec::len), Some(1), "{done}");
    assert_eq!(
        (done["answered"]["by"].as_str(), done["answered"]["action"].as_str()),
        (Some("local"), Some("accept")),
        "{done}"
    );
    // Said again after a lost answer: the same is taken, another is not, with who was first.
    assert_eq!(tree.post("a", "answer", &accept("red", 3)).await?.0, 200);
    let (status, body) = tree.post("a", "answer", &accept("blue", 3)).await?;
    assert_eq!((status, body["error"]["code"].as_str()), (409, Some("answered")), "{body}");
    assert_eq!(body["error"]["answered"], done["answered"], "{body}");
    assert_eq!(place.answers("one")?.len(), 1);
    Ok(())
}

#[tokio::test]
async fn an_answer_that_is_given_while_the_client_is_away_waits_for_it() -> anyhow::Result<()> {
    let mut place = Place::new().await?;
    let tree = place.asking("toy__ask", "one").await?;
    place.proxy.set(Line::Cut);
    until("the client is away", || async {
        let (_, body) = place.api.get("/api/v1/sessions/default.local").await?;
        let clients = body["clients"].as_array().cloned().unwrap_or_default();
        Ok(clients.iter().all(|c| c["presence"] != "online").then_some(()))
    })
    .await?;
    asks(&tree).await?;
    assert_eq!(tree.post("a", "answer", &accept("red", 1)).await?.0, 200);
    let waits = until("it waits for the client", || async {
        let task = tree.task("a").await?;
        Ok((task["blocked_reason"] == "Waiting for Client for Tool: toy__ask").then_some(task))
    })
    .await?;
    assert_eq!(waits["question"], Value::Null, "{waits}");
    // Stored is stored.
    place.brain.kill9_and_restart(&place.home).await?;
    assert_eq!(place.answers("one")?.len(), 0);
    place.proxy.set(Line::Open);
    tree.until("a", "completed").await?;
    assert_eq!((place.answers("one")?, place.toy.begun_of("one")?), (vec![heard("red", 1)], 1));
    Ok(())
}

#[tokio::test]
async fn the_command_line_shows_the_question_and_answers_or_declines_it() -> anyhow::Result<()> {
    let place = Place::new().await?;
    let tasks = async |args: &[&str]| {
        let mut all = vec!["tasks", "--brain", &place.brain.url];
        all.extend(args);
        run("vancetope", &place.home, &all).await
    };
    let tree = place.asking("toy__ask", "one").await?;
    let id = tree.task_id("a")?;
    let shown = tasks(&["show", &id]).await?;
    for part in [
        "What about one?",
        "colour (text, required)",
        "note (text, empty: none)",
        &format!("vancetope tasks answer {id}"),
    ] {
        assert!(shown.stdout.contains(part), "{part}: {}", shown.stdout);
    }
    assert!(tasks(&["list"]).await?.stdout.contains("Waiting for an answer: What about one?"));
    let nobody = tasks(&["answer", &id]).await?;
    assert!(nobody.code == 2 && nobody.stderr.contains("colour=... count=..."), "{}", nobody.stderr);
    let wrong = tasks(&["answer", &id, "colour=red", "count=many"]).await?;
    assert!(wrong.code == 2 && wrong.stderr.contains("count"), "{}", wrong.stderr);
    let missing = tasks(&["answer", &id, "colour=red", "--json"]).await?;
    assert!(missing.code == 1 && missing.stdout.contains("invalid_answer"), "{}", missing.stderr);
    let answered = tasks(&["answer", &id, "colour=red", "count=2"]).await?;
    assert_eq!(answered.code, 0, "{}", answered.stderr);
    tree.until("a", "completed").await?;
    assert_eq!(place.answers("one")?, [heard("red", 2)]);

    let tree = place.asking("toy__ask", "two").await?;
    assert_eq!(tasks(&["answer", &tree.task_id("a")?, "--decline"]).await?.code, 0);
    tree.until("a", "completed").await?;
    assert_eq!(place.answers("two")?, [json!({"action": "decline"})]);
    let late = tasks(&["answer", &tree.task_id("a")?, "colour=red", "count=2", "--json"]).await?;
    assert!(late.code == 1 && late.stdout.contains("answered"), "{}", late.stderr);

    let tree = place.asking("toy__ask_to_open", "three").await?;
    assert_eq!(tree.task("a").await?["question"]["url"], "https://example.org/three");
    assert_eq!(tree.post("a", "answer", &json!({"action": "accept"})).await?.0, 200);
    tree.until("a", "completed").await?;
    assert_eq!(place.answers("three")?, [json!({"action": "accept"})]);
    Ok(())
}

#[tokio::test]
async fn of_many_answers_at_once_one_counts_and_a_cancel_takes_the_question_along() -> anyhow::Result<()> {
    let place = Place::new().await?;
    let tree = place.asking("toy__ask", "one").await?;
    let bodies: Vec<Value> = (1..=8).map(|n| accept("red", n)).collect();
    let said = futures_util::future::join_all(bodies.iter().map(|body| tree.post("a", "answer", body))).await;
    let said: Vec<(u16, Value)> = said.into_iter().collect::<anyhow::Result<_>>()?;
    assert_eq!(said.iter().filter(|(status, _)| *status == 200).count(), 1, "{said:?}");
    for (_, body) in said.iter().filter(|(status, _)| *status != 200) {
        assert_eq!(body["error"]["code"], "answered", "{body}");
    }
    tree.until("a", "completed").await?;
    assert_eq!(place.answers("one")?.len(), 1);

    let tree = place.asking("toy__ask", "two").await?;
    assert_eq!(tree.post("a", "cancel", &json!({})).await?.0, 200);
    until("the server hears of the cancel", || async {
        Ok(std::fs::read_to_string(place.toy.file())?.contains("cancelled ").then_some(()))
    })
    .await?;
    let task = tree.until("a", "cancelled").await?;
    assert_eq!(task["question"], Value::Null, "{task}");
    let (status, body) = tree.post("a", "answer", &accept("red", 1)).await?;
    assert_eq!((status, body["error"]["code"].as_str()), (409, Some("no_question")), "{body}");
    Ok(())
}

#[tokio::test]
async fn a_dead_client_leaves_the_outcome_to_the_replay_class_and_a_safe_tool_asks_anew() -> anyhow::Result<()> {
    let mut place = Place::new().await?;
    let unsafe_one = place.asking("toy__ask", "one").await?;
    let safe_one = place.asking("toy__ask_looking", "two").await?;
    let before = safe_one.task("a").await?["question"]["id"].clone();
    place.foot.kill9().await?;
    let _again = foot(&place.home, &place.proxy.url, &[]).await?;
    let unknown = until("outcome unknown", || async {
        let task = unsafe_one.task("a").await?;
        Ok(task["blocked_reason"].as_str().unwrap_or_default().starts_with("Outcome unknown").then_some(task))
    })
    .await?;
    assert_eq!((place.toy.begun_of("one")?, &unknown["question"]), (1, &Value::Null));
    until("it asks anew", || async {
        let question = safe_one.task("a").await?["question"]["id"].clone();
        Ok((question.is_string() && question != before).then_some(()))
    })
    .await?;
    assert_eq!(safe_one.post("a", "answer", &accept("red", 1)).await?.0, 200);
    safe_one.until("a", "completed").await?;
    assert_eq!(place.answers("two")?, [heard("red", 1)]);
    Ok(())
}

#[tokio::test]
async fn a_pack_of_the_brain_asks_the_same_way_and_dies_with_it() -> anyhow::Result<()> {
    let home = Home::new()?;
    let toy = Toy::new(&home)?;
    toy.for_brain(&home, "srv", &[])?;
    let mut brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let submit = async |tool: &str, step: &str| {
        api.submit(&format!("tasks:\n- {{id: a, steps: [{{call: srv__{tool}, with: {{name: {step}}}}}]}}\n")).await
    };
    let one = submit("ask", "one").await?;
    asks(&one).await?;
    assert_eq!(one.post("a", "answer", &accept("red", 1)).await?.0, 200);
    let done = one.until("a", "completed").await?;
    assert!(done["output"]["result"]["text"].as_str().unwrap_or_default().contains("\"count\": 1"), "{done}");

    let (unsafe_one, safe_one) = (submit("ask", "two").await?, submit("ask_looking", "three").await?);
    let before = asks(&safe_one).await?["question"]["id"].clone();
    asks(&unsafe_one).await?;
    brain.kill9_and_restart(&home).await?;
    until("outcome unknown", || async {
        let Ok(task) = unsafe_one.task("a").await else { return Ok(None) };
        Ok(task["blocked_reason"].as_str().unwrap_or_default().starts_with("Outcome unknown").then_some(()))
    })
    .await?;
    until("it asks anew", || async {
        let question = safe_one.task("a").await?["question"]["id"].clone();
        Ok((question.is_string() && question != before).then_some(()))
    })
    .await?;
    assert_eq!(safe_one.post("a", "answer", &json!({"action": "cancel"})).await?.0, 200);
    safe_one.until("a", "completed").await?;
    assert_eq!((toy.begun_of("two")?, toy.begun_of("three")?), (1, 2));
    Ok(())
}

#[tokio::test]
async fn a_call_without_a_task_is_declined_and_nobody_in_time_is_no_answer() -> anyhow::Result<()> {
    let place = Place::with("defaults: {answer_within: 1s}\n").await?;
    place.api.until_available("default.local", "toy__ask").await?;
    let (status, body) = place.api.call("toy__ask", &json!({"arguments": {"name": "direct"}})).await?;
    assert_eq!((status, body["call"]["outcome"].as_str()), (200, Some("done")), "{body}");
    assert_eq!(place.answers("direct")?, [json!({"action": "decline"})]);
    assert!(place.foot.log().contains("nobody waits for what a call without a task asks"), "{}", place.foot.log());
    let tree = place.asking("toy__ask", "late").await?;
    tree.until("a", "completed").await?;
    assert_eq!(place.answers("late")?, [json!({"action": "cancel"})]);
    Ok(())
}

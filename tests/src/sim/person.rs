//! The person outside: submits the tree until it is taken, settles unknown outcomes by running the call again, and cancels what
//! the simulation says. Everything is asked again until there is an answer.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;
use vance_brain::api::commands::{Verb, command};
use vance_brain::api::queries::{TaskFilter, tasks};
use vance_brain::api::submit::{Submission, submit};
use vance_brain::hub::Brain;
use vance_shared::ids::QuestionId;
use vance_shared::json::Raw;
use vance_shared::question::{Action, Answer};
use vance_shared::trace::TraceContext;

use super::direct::Direct;
use super::tree::Tree;
use super::{OWNER, Shared};

/// Between two looks at the tasks.
const LOOK: Duration = Duration::from_millis(500);

/// What the person has done and means to do.
#[derive(Debug, Default)]
pub struct Person {
    pub(super) trees: Vec<Tree>,
    /// Answers to the same submission that were not the same.
    pub contradictions: Vec<String>,
    /// How often a call of a step was asked to run again.
    pub asked: BTreeMap<String, usize>,
    /// Tasks that are to be cancelled.
    pub to_cancel: BTreeSet<String>,
    /// Tasks for which a cancel was sent, whatever came of it.
    pub cancelled: BTreeSet<String>,
    /// Tasks that are to run again after they were cancelled.
    pub to_retry: BTreeSet<String>,
    /// Answers to questions, by the question.
    pub said: BTreeMap<String, Vec<Said>>,
    /// Calls without a task.
    pub direct: Vec<Direct>,
    /// The trouble is over: nothing new is begun.
    pub is_calm: bool,
}

/// One answer to a question.
#[derive(Debug, Clone)]
pub struct Said {
    /// No two answers have the same number; none is a decline.
    pub number: Option<u64>,
    /// What the Brain said to it: an HTTP status; none: nothing yet.
    pub status: Option<u16>,
}

/// Lives with one life of the Brain.
pub(super) async fn live(brain: Brain, shared: Shared) {
    loop {
        // An error is asked again: that is all that a person can do.
        if let Err(why) = look(&brain, &shared).await {
            shared.story.note(format!("person: {why}"));
        }
        sleep(LOOK).await;
    }
}

async fn look(brain: &Brain, shared: &Shared) -> Result<(), String> {
    // Before a Foot has ever come, its tools are unknown, and a task that needs one rightly fails.
    let mut known = is_known(brain, "unsafe_tool");
    let now = turmoil::sim_elapsed().unwrap_or_default();
    let trees = super::lock(&shared.person).trees.len();
    for tree in 0..trees {
        let (due, is_taken) = {
            let tree = &super::lock(&shared.person).trees[tree];
            (tree.due <= now, tree.taken.is_some())
        };
        known |= is_taken;
        // One that was taken is sent again now and then: it must stay the same.
        if due && known && (!is_taken || fastrand::u32(0..50) == 0) {
            send(brain, shared, tree).await?;
        }
    }
    cancel(brain, shared).await?;
    retry(brain, shared).await?;
    let filter = TaskFilter { state: Some("blocked".to_owned()), ..TaskFilter::default() };
    let blocked = tasks(brain, OWNER, filter).await.map_err(|e| e.fault.message)?.value();
    for task in blocked["tasks"].as_array().into_iter().flatten() {
        if text(&task["blocked_reason"]).starts_with("Outcome unknown") {
            resolve(brain, shared, task).await?;
        }
        // People take their time, and sometimes two answer at once.
        for _ in 0..2 {
            if task["question"].is_object() && fastrand::u32(0..4) == 0 {
                tokio::task::spawn_local(answer(brain.clone(), shared.clone(), task.clone()));
            }
        }
    }
    Ok(())
}

fn is_known(brain: &Brain, tool: &str) -> bool {
    let sessions = brain.directory.loaded();
    sessions.iter().any(|session| session.published().view.known.keys().any(|name| name.as_str() == tool))
}

async fn send(brain: &Brain, shared: &Shared, tree: usize) -> Result<(), String> {
    let submission = Submission {
        owner: OWNER.to_owned(),
        file: "tree.json".to_owned(),
        text: super::lock(&shared.person).trees[tree].text.clone(),
        // The same key each time: however often it is sent, it is one tree.
        idempotency_key: Some(format!("tree-{tree}")),
        client: None,
        session: None,
        trace: TraceContext::root(),
    };
    let submitted = submit(brain, submission).await.map_err(|e| format!("submit: {}", e.fault.message))?;
    let ids = submitted.body["tasks"].as_array().cloned().unwrap_or_default();
    let ids: BTreeMap<_, _> = ids.iter().map(|task| (text(&task["id"]), text(&task["task_id"]))).collect();
    let mut person = super::lock(&shared.person);
    let before = person.trees[tree].taken.replace(ids.clone());
    match before {
        Some(before) if before != ids => person.contradictions.push(format!("tree {tree}: {before:?} and {ids:?}")),
        Some(_) => {}
        None => shared.story.note(format!("person: tree {tree} is taken")),
    }
    Ok(())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

async fn resolve(brain: &Brain, shared: &Shared, task: &Value) -> Result<(), String> {
    let id = task["id"].as_str().unwrap_or_default();
    let done = task["calls"].as_array().into_iter().flatten().filter(|call| call["outcome"] == "done").count();
    let step = format!("{id}.{done}");
    // Counted before it is sent: without an answer it may have been taken.
    *super::lock(&shared.person).asked.entry(step.clone()).or_default() += 1;
    shared.story.note(format!("person: {} of {step}: run it again", task["blocked_reason"]));
    let verb = Verb::Resolve { r#as: "retry".to_owned(), output: None };
    match command(brain, OWNER, task["task_id"].as_str().unwrap_or_default(), verb).await {
        Ok(_) => Ok(()),
        Err(error) => {
            if error.status == 409 {
                super::lock(&shared.person).asked.entry(step).and_modify(|asked| *asked -= 1);
            }
            Err(format!("resolve: {} {}", error.status, error.fault.message))
        }
    }
}

async fn answer(brain: Brain, shared: Shared, task: Value) {
    let question = text(&task["question"]["id"]);
    let Ok(id) = QuestionId::parse(&question) else { return };
    let (number, at) = {
        let person = &mut super::lock(&shared.person);
        let numbers: usize = person.said.values().map(Vec::len).sum();
        let number = (fastrand::u32(0..8) > 0).then_some(numbers as u64);
        let said = person.said.entry(question.clone()).or_default();
        // Noted before it is sent: without an answer it may have been taken.
        said.push(Said { number, status: None });
        (number, said.len() - 1)
    };
    let answer = match number {
        Some(number) => Answer { action: Action::Accept, content: Some(Raw::from(json!({ "number": number }))) },
        None => Answer::bare(Action::Decline),
    };
    let verb = Verb::Answer { question: Some(id), answer };
    let status = match command(&brain, OWNER, &text(&task["task_id"]), verb).await {
        Ok(_) => 200,
        Err(error) => error.status,
    };
    shared.story.note(format!("person: {number:?} to {question}: {status}"));
    if let Some(said) = super::lock(&shared.person).said.get_mut(&question) {
        said[at].status = Some(status);
    }
}

async fn cancel(brain: &Brain, shared: &Shared) -> Result<(), String> {
    let wanted: Vec<String> = super::lock(&shared.person).to_cancel.iter().cloned().collect();
    for id in wanted {
        let task_id = {
            let person = super::lock(&shared.person);
            person.trees.iter().find_map(|tree| tree.taken.as_ref()?.get(&id).cloned())
        };
        let Some(task_id) = task_id else { continue };
        super::lock(&shared.person).cancelled.insert(id.clone());
        let answer = command(brain, OWNER, &task_id, Verb::Cancel { reason: None }).await;
        match answer {
            Ok(_) => {}
            Err(error) if error.status == 409 => {}
            Err(error) => return Err(format!("cancel {id}: {} {}", error.status, error.fault.message)),
        }
        shared.story.note(format!("person: cancelled {id}"));
        super::lock(&shared.person).to_cancel.remove(&id);
    }
    Ok(())
}

/// A cancelled task goes on at the step where it was.
async fn retry(brain: &Brain, shared: &Shared) -> Result<(), String> {
    let filter = TaskFilter { state: Some("cancelled".to_owned()), ..TaskFilter::default() };
    let cancelled = tasks(brain, OWNER, filter).await.map_err(|e| e.fault.message)?.value();
    for task in cancelled["tasks"].as_array().into_iter().flatten() {
        let id = text(&task["id"]);
        if !super::lock(&shared.person).to_retry.remove(&id) {
            continue;
        }
        let done = task["calls"].as_array().into_iter().flatten().filter(|call| call["outcome"] == "done").count();
        // Once, whatever the answer is: its call may run once more.
        *super::lock(&shared.person).asked.entry(format!("{id}.{done}")).or_default() += 1;
        shared.story.note(format!("person: {id} goes on at step {done}"));
        let answer = command(brain, OWNER, &text(&task["task_id"]), Verb::Retry { any_client: false }).await;
        answer.map_err(|error| format!("retry {id}: {} {}", error.status, error.fault.message))?;
    }
    Ok(())
}

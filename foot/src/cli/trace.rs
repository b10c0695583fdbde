//! `vancetope trace`: where a call went, how often, for how long, and where its trace can be seen.

use clap::Args;
use reqwest::Url;
use serde_json::{Value, json};
use vance_shared::ids::TaskId;
use vance_shared::show::plain;

use super::context::Context;
use super::failure::{EXIT_OK, Failure};
use crate::api::TaskFilter;

pub(super) const EXAMPLES: &str = "\
Examples:
  vancetope trace task_0198…                all calls of a task
  vancetope trace call_0198…                one call
  vancetope trace 4bf92f3577b34da6a3ce929d0e0e4736 --jaeger http://localhost:16686

VANCE_JAEGER (or --jaeger) is the address of Jaeger's page; with it each call has its link.";

#[derive(Debug, Args)]
pub(super) struct TraceArgs {
    /// A task's, a call's or a trace's id
    #[arg(value_name = "ID")]
    id: String,

    /// Jaeger's address
    #[arg(long, env = "VANCE_JAEGER", value_name = "URL")]
    jaeger: Option<Url>,
}

/// Shows the calls.
pub(super) async fn trace(context: &mut Context, args: &TraceArgs) -> Result<u8, Failure> {
    let brain = context.brain()?;
    let id = args.id.as_str();
    let tasks = match TaskId::parse(id) {
        Ok(task) if id.starts_with("task_") => vec![brain.task(&task).await?.body.value()],
        Ok(_) | Err(_) => {
            let all = brain.tasks(&TaskFilter::default()).await?.body.value();
            all["tasks"].as_array().cloned().unwrap_or_default()
        }
    };
    let mut calls = Vec::new();
    for task in &tasks {
        for call in task["calls"].as_array().into_iter().flatten().filter(|call| call.is_object()) {
            if task["task_id"] == id || call["call_id"] == id || call["trace_id"] == id {
                calls.push(with_task(call, task, args.jaeger.as_ref()));
            }
        }
    }
    if calls.is_empty() {
        return Err(absent(id, &tasks));
    }
    let screen = &mut context.screen;
    if screen.json {
        screen.value(&json!({ "calls": calls }))?;
        return Ok(EXIT_OK);
    }
    for (at, call) in calls.iter().enumerate() {
        if at > 0 {
            screen.line("")?;
        }
        for line in lines(call) {
            screen.line(&line)?;
        }
    }
    Ok(EXIT_OK)
}

fn with_task(call: &Value, task: &Value, jaeger: Option<&Url>) -> Value {
    let mut call = call.clone();
    (call["task"], call["task_id"], call["state"]) =
        (task["id"].clone(), task["task_id"].clone(), task["state"].clone());
    if let (Some(jaeger), Some(trace)) = (jaeger, call["trace_id"].as_str()) {
        call["link"] = json!(format!("{}/trace/{trace}", jaeger.as_str().trim_end_matches('/')));
    }
    call
}

fn absent(id: &str, tasks: &[Value]) -> Failure {
    let shown = vance_shared::show::quoted(id, 80);
    let known = tasks.iter().any(|task| task["task_id"] == id);
    let message = match known {
        true => format!("the task {shown} has made no calls yet"),
        false => format!(
            "no task of yours has a call or trace {shown}; a call over /api/v1/tools is not kept, its answer names its trace"
        ),
    };
    Failure::Call { code: "unknown_call".to_owned(), message }
}

fn lines(call: &Value) -> Vec<String> {
    let text = |key: &str| call[key].as_str().map(plain);
    let mut lines = Vec::new();
    let mut say = |label: &str, what: String| lines.push(format!("{:<9} {what}", format!("{label}:")));
    say("call", text("call_id").unwrap_or_default());
    say("tool", text("tool").unwrap_or_default());
    let task = (text("task"), text("task_id"), text("state"));
    say(
        "task",
        format!("{} ({}), {}", task.0.unwrap_or_default(), task.1.unwrap_or_default(), task.2.unwrap_or_default()),
    );
    let place = match (text("route").as_deref(), text("machine").or(text("client_id"))) {
        (Some("client"), Some(machine)) => format!("client {machine}"),
        (Some(route), _) => route.to_owned(),
        (None, _) => "not yet".to_owned(),
    };
    say("route", place);
    say("attempts", call["attempts"].as_u64().unwrap_or_default().to_string());
    say("outcome", text("outcome").unwrap_or_else(|| "it runs".to_owned()));
    if let Some(started) = text("started_at") {
        let ended = text("ended_at").map(|ended| format!(", ended {ended}")).unwrap_or_default();
        say("started", format!("{started}{ended}"));
    }
    say("trace", text("trace_id").unwrap_or_else(|| "none".to_owned()));
    if let Some(link) = text("link") {
        say("link", link);
    }
    lines
}

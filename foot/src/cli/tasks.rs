//! `vancetope tasks`: what the Brain has to do, what it waits for, and a person's word on it.

use serde_json::Value;
use vance_shared::ids::TaskId;
use vance_shared::json::Raw;
use vance_shared::question::Action;
use vance_shared::show::plain;

use super::args::{TasksArgs, TasksCommand};
use super::context::Context;
use super::failure::{EXIT_FAILED, EXIT_OK, Failure};
use super::progress::{Pace, words};
use crate::api::{Bound, Brain, Event, Follow, Notice, Resolve, Task, TaskFilter, TaskState};
use answer::Answers;

pub(super) mod answer;

/// Runs the command.
pub(super) async fn tasks(context: &mut Context, args: &TasksArgs) -> Result<u8, Failure> {
    let brain = context.brain()?;
    match args.command.as_ref().unwrap_or(&TasksCommand::List) {
        TasksCommand::List => {
            let filter = TaskFilter { state: args.state.clone(), session: context.general.session.clone(), tree: None };
            let events = listen(&brain, args.watch).await;
            list(context, &brain, &filter).await?;
            match events {
                Some(events) => watch_all(context, &brain, &filter, events).await,
                None => Ok(EXIT_OK),
            }
        }
        TasksCommand::Show { id } => {
            let events = listen(&brain, args.watch).await;
            let task = show(context, &brain, id).await?;
            match events {
                Some(events) if !task.state.is_terminal() => watch_one(context, &brain, task, events).await,
                _ => Ok(EXIT_OK),
            }
        }
        TasksCommand::Cancel { id } => {
            brain.cancel(id).await?;
            after(context, &brain, id).await
        }
        TasksCommand::Retry { id, any_client } => {
            brain.retry(id, *any_client).await?;
            after(context, &brain, id).await
        }
        TasksCommand::Resolve { id, verdict, output } => {
            let not_json = |e| Failure::Usage(format!("--output is not JSON: {e}"));
            let output = output.clone().map(Raw::parse).transpose().map_err(not_json)?;
            brain.resolve(id, &Resolve { verdict: *verdict, output }).await?;
            after(context, &brain, id).await
        }
        TasksCommand::Answer { id, decline, cancel, values } => {
            let action = match (decline, cancel) {
                (true, _) => Some(Action::Decline),
                (_, true) => Some(Action::Cancel),
                (false, false) => None,
            };
            match id {
                Answers::Task(id) => {
                    answer::answer(context, &brain, id, action, values).await?;
                    after(context, &brain, id).await
                }
                Answers::Call(id) => answer::answer_call(context, &brain, id, action, values).await,
            }
        }
    }
}

/// Opens the stream before anything is read, so that no change falls between. If it does not open, the reading says why.
async fn listen(brain: &Brain, watch: bool) -> Option<Follow> {
    let mut events = watch.then(|| Follow::start(brain.clone(), None))?;
    match events.next().await {
        Some(Notice::Open) | None => {}
        Some(Notice::Event(..) | Notice::Lost(_) | Notice::Refused(_)) => {
            tracing::debug!("the events did not open at once")
        }
    }
    Some(events)
}

async fn list(context: &mut Context, brain: &Brain, filter: &TaskFilter) -> Result<(), Failure> {
    let answer = brain.tasks(filter).await?;
    if context.screen.json {
        return Ok(context.screen.raw(&answer.body)?);
    }
    let rows = answer.value.tasks.iter().map(|task| {
        let reason = task.reason().unwrap_or_default().to_owned();
        [task.task_id.to_string(), task.id.clone(), task.state.word().to_owned(), task.session_id.to_string(), reason]
    });
    Ok(context.screen.table(["TASK", "ID", "STATE", "SESSION", "REASON"], rows.collect(), "no tasks")?)
}

async fn show(context: &mut Context, brain: &Brain, id: &TaskId) -> Result<Task, Failure> {
    let answer = brain.task(id).await?;
    if context.screen.json {
        context.screen.raw(&answer.body)?;
    } else {
        let only = only_on(brain, &answer.value).await;
        describe(context, &answer.value, only.as_deref())?;
    }
    Ok(answer.value)
}

/// What a task is after a person's word on it.
async fn after(context: &mut Context, brain: &Brain, id: &TaskId) -> Result<u8, Failure> {
    let answer = brain.task(id).await?;
    if context.screen.json {
        context.screen.raw(&answer.body)?;
    } else {
        context.screen.line(&line(&answer.value))?;
    }
    Ok(EXIT_OK)
}

/// For a task that waits for the client that began it.
fn begun_on(bound: &Bound) -> String {
    let folder = bound.working_dir.as_deref().map(|folder| format!(", in {}", plain(folder))).unwrap_or_default();
    format!(
        "it goes on where it began: {}{folder}; to let another client go on: `vancetope tasks cancel`, then `tasks retry --any-client`",
        plain(&bound.machine)
    )
}

/// For a task that waits for a client that it names: which one, and which ones are there instead.
pub(super) async fn only_on(brain: &Brain, task: &Task) -> Option<String> {
    let Some(name) = task.named_client().map(plain) else { return task.bound_to.as_ref().map(begun_on) };
    let there = match brain.session(&task.session_id).await {
        Ok(answer) => answer.value.clients,
        Err(error) => {
            tracing::debug!("the session was not read: {error}");
            return Some(format!("only on client '{name}'"));
        }
    };
    let online = there.into_iter().filter(|client| client.presence.as_deref() == Some("online"));
    let names: Vec<String> = online.map(|client| plain(&client.name.unwrap_or(client.client_id))).collect();
    let names = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
    Some(format!("only on client '{name}'; connected: {names}"))
}

fn describe(context: &mut Context, task: &Task, only: Option<&str>) -> Result<(), Failure> {
    let screen = &mut context.screen;
    screen.line(&format!("task:    {} ({})", task.task_id, plain(&task.id)))?;
    screen.line(&format!("tree:    {}", task.tree_id))?;
    screen.line(&format!("session: {}", task.session_id))?;
    if let Some(goal) = task.goal.as_ref().filter(|goal| !goal.is_empty()) {
        screen.line(&format!("goal:    {}", plain(goal)))?;
    }
    screen.line(&format!("state:   {}", task.state.word()))?;
    if let Some(reason) = task.reason() {
        let only = only.map(|only| format!(" ({only})")).unwrap_or_default();
        screen.line(&format!("reason:  {}{only}", plain(reason)))?;
        if task.is_unknown() {
            screen.remark(&format!(
                "vancetope: did the call run? Say it with `vancetope tasks resolve {} --as done|failed|retry`",
                task.task_id
            ));
        }
    }
    if let Some(question) = &task.question {
        answer::describe(screen, &task.task_id, question)?;
    }
    let rows = task.calls.iter().map(|call| {
        let place = call.machine.clone().or_else(|| call.client_id.clone());
        let route = call.route.clone().unwrap_or_default();
        let route = place.map_or(route.clone(), |place| format!("{route} {place}"));
        let outcome = call.outcome.clone().unwrap_or_else(|| "open".to_owned());
        [call.call_id.clone(), call.tool.clone(), route, call.attempts.to_string(), outcome]
    });
    screen.table(["CALL", "TOOL", "ROUTE", "ATTEMPTS", "OUTCOME"], rows.collect(), "no calls yet")?;
    if let Some(output) = task.output.as_ref().filter(|o| !o.is_null() && **o != Value::Object(serde_json::Map::new()))
    {
        screen.line("output:")?;
        screen.pretty(output)?;
    }
    Ok(())
}

/// One line on a task.
fn line(task: &Task) -> String {
    let mut line = format!("{}  {}: {}", task.task_id, plain(&task.id), task.state.word());
    if let Some(reason) = task.reason() {
        line.push_str(": ");
        line.push_str(&plain(reason));
    }
    line
}

async fn watch_all(
    context: &mut Context,
    brain: &Brain,
    filter: &TaskFilter,
    mut events: Follow,
) -> Result<u8, Failure> {
    let wanted = |event: &Event| {
        let state = event.state.is_some_and(|s| filter.state.as_deref().is_none_or(|want| want == s.word()));
        state && filter.session.as_ref().is_none_or(|want| event.session_id.as_ref() == Some(want))
    };
    loop {
        tokio::select! {
            notice = events.next() => {
                let Some((event, raw)) = heard(context, notice)? else { continue };
                let Some(id) = event.task_id.as_ref().filter(|_| wanted(&event)) else { continue };
                if context.screen.json {
                    context.screen.raw(&raw)?;
                } else if let Ok(answer) = brain.task(id).await {
                    context.screen.line(&line(&answer.value))?;
                }
            }
            _ = context.interrupts.next() => return Ok(EXIT_OK),
        }
    }
}

async fn watch_one(context: &mut Context, brain: &Brain, mut task: Task, mut events: Follow) -> Result<u8, Failure> {
    let mut pace = Pace::default();
    while !task.state.is_terminal() {
        tokio::select! {
            notice = events.next() => {
                // A stream that opens again may have left something out, so it counts as news, too.
                let news = match notice {
                    Some(Notice::Open) => true,
                    Some(Notice::Event(event, _)) if event.kind == Event::PROGRESS => {
                        if event.task_id.as_ref() == Some(&task.task_id) {
                            goes_on(context, &mut pace, &event);
                        }
                        false
                    }
                    other => heard(context, other)?.is_some_and(|(event, _)| event.task_id.as_ref() == Some(&task.task_id)),
                };
                if !news {
                    continue;
                }
                let Ok(answer) = brain.task(&task.task_id).await else { continue };
                let moved = (answer.value.state, answer.value.reason()) != (task.state, task.reason());
                task = answer.value;
                match (moved, context.screen.json) {
                    (true, true) => context.screen.raw(&answer.body)?,
                    (true, false) => context.screen.line(&line(&task))?,
                    (false, _) => {}
                }
            }
            _ = context.interrupts.next() => return Ok(EXIT_OK),
        }
    }
    let good = matches!(task.state, TaskState::Completed | TaskState::Skipped);
    Ok(if good { EXIT_OK } else { EXIT_FAILED })
}

/// How far the call of a watched task is.
fn goes_on(context: &mut Context, pace: &mut Pace, event: &Event) {
    // Beside the result: as JSON that is the task, each time it moves.
    let text = words(event.fraction, event.message.as_deref());
    if let Some(text) = text.filter(|text| !context.screen.json && pace.is_due(text)) {
        context.screen.remark(&text);
    }
}

/// An event, or a remark on the way to it.
fn heard(context: &mut Context, notice: Option<Notice>) -> Result<Option<(Event, Raw)>, Failure> {
    match notice {
        Some(Notice::Event(event, raw)) => Ok(Some((event, raw))),
        Some(Notice::Open) => Ok(None),
        Some(Notice::Lost(why)) => {
            context.screen.remark(&format!("vancetope: the Brain is away ({}); trying again", plain(&why)));
            Ok(None)
        }
        Some(Notice::Refused(error)) => Err(error.into()),
        None => Err(Failure::Foot("the Brain's events ended".to_owned())),
    }
}

//! `vancetope tools`: this machine's tools, listed and called without a Brain, or called through it.

use serde_json::{Value, json};
use vance_shared::call::Outcome;
use vance_shared::doc::nearest;
use vance_shared::ids::CallId;
use vance_shared::json::Raw;
use vance_shared::names::{PackName, SUBTOOL_SEPARATOR};
use vance_shared::show::plain;
use vance_shared::tool::{Replay, ToolResult};

use super::args::{CallArgs, ToolsCommand};
use super::ask::nobody;
use super::context::Context;
use super::failure::{EXIT_FAILED, EXIT_OK, Failure};
use super::foot::{LocalFoot, left_out};
use super::packs::launch::{launch, reading_host, with_document};
use crate::api::{ApiError, CallOutput, CallRequest};
use crate::control::{Answer, Reached, Request, every_foot};

mod asked;

/// Runs the command.
pub(super) async fn tools(context: &mut Context, command: &ToolsCommand) -> Result<u8, Failure> {
    match command {
        ToolsCommand::List => {
            let foot = LocalFoot::offline(context)?;
            let ended = list(context, &foot).await;
            foot.shutdown().await;
            ended
        }
        ToolsCommand::Reload => reload(context).await,
        ToolsCommand::Call(args) if args.dry_run => dry_run(context, args).await,
        ToolsCommand::Call(args) if args.via_brain => call_via_brain(context, args).await,
        ToolsCommand::Call(args) => {
            let foot = LocalFoot::for_call(context, &args.tool)?;
            let ended = call_here(context, &foot, args).await;
            foot.shutdown().await;
            ended
        }
    }
}

/// Tells every running Foot of this home.
async fn reload(context: &mut Context) -> Result<u8, Failure> {
    let state = context.home()?.join("state");
    let feet = tokio::select! {
        feet = every_foot(&state, &Request::Reload) => feet,
        _ = context.interrupts.next() => return Err(Failure::Foot("interrupted; a Foot that was told goes on".to_owned())),
    };
    if feet.is_empty() {
        let why = "no Foot of this home is running, so there is nothing to reload; packs are read when one starts (`vancetope`, `vancetope --daemon`)";
        return Err(Failure::Foot(why.to_owned()));
    }
    let mut exit = EXIT_OK;
    let mut said = Vec::new();
    for Reached { slot, answer } in feet {
        let answer = answer.unwrap_or_else(|error| Answer { error: Some(error.to_string()), ..Answer::default() });
        match (answer.ok, &answer.summary) {
            (true, Some(summary)) => {
                for left in &answer.left_out {
                    let (pack, file, reason) = (plain(&left.pack), plain(&left.file), plain(&left.reason));
                    context.screen.remark(&format!("{slot}: {pack} ({file}): {reason}"));
                }
                if !context.screen.json {
                    // The Foot's own words, but for the numbers.
                    context.screen.line(&format!("{slot}: {summary}"))?;
                }
            }
            (_, _) => {
                exit = EXIT_FAILED;
                context.screen.remark(&format!("{slot}: {}", plain(answer.error.as_deref().unwrap_or("no answer"))));
            }
        }
        said.push(json!({"foot": slot, "answer": answer}));
    }
    if context.screen.json {
        context.screen.value(&json!({"feet": said}))?;
    }
    Ok(exit)
}

/// Lists the tools of a Foot, once its packs have loaded.
pub(super) async fn list(context: &mut Context, foot: &LocalFoot) -> Result<u8, Failure> {
    let summary = foot.loaded(context).await?;
    let (tools, skipped) = (foot.tools(), left_out(&summary));
    let screen = &mut context.screen;
    if screen.json {
        let tools: Vec<Value> = tools
            .iter()
            .map(|t| json!({"name": t.name, "pack": t.pack, "labels": t.labels, "replay": t.replay}))
            .collect();
        let skipped: Vec<Value> =
            skipped.map(|s| json!({"pack": s.pack, "file": s.file, "reason": s.reason})).collect();
        screen.value(&json!({"tools": tools, "skipped": skipped, "notes": summary.notes}))?;
        return Ok(EXIT_OK);
    }
    let rows = tools.into_iter().map(|tool| {
        let replay = match tool.replay {
            Replay::Safe => "safe",
            Replay::Unsafe => "unsafe",
        };
        [tool.name.to_string(), tool.pack.unwrap_or_else(|| "-".to_owned()), replay.to_owned(), tool.labels.join(", ")]
    });
    screen.table(["TOOL", "PACK", "REPLAY", "LABELS"], rows.collect(), "no tools")?;
    for skip in skipped {
        screen.remark(&format!("skipped: {} ({}): {}", plain(&skip.pack), plain(&skip.file), plain(&skip.reason)));
    }
    for note in &summary.notes {
        screen.remark(&format!("note: {}", plain(note)));
    }
    Ok(EXIT_OK)
}

/// Calls a tool of a Foot.
pub(super) async fn call_here(context: &mut Context, foot: &LocalFoot, args: &CallArgs) -> Result<u8, Failure> {
    let call_id = CallId::generate();
    let outcome = foot.call(context, &call_id, args).await?;
    if context.screen.json {
        context.screen.value(&outcome_json(&call_id, args.tool.as_str(), &outcome))?;
        return Ok(if matches!(outcome, Outcome::Done(_)) { EXIT_OK } else { EXIT_FAILED });
    }
    match judged(&outcome) {
        (Ok(()), result) => print(context, result.map(output_of).as_ref()),
        (Err((code, message)), _) => {
            let message = match code {
                "unknown_tool" | "unavailable" => format!("{message}; {}", whereabouts(foot, args).await),
                _ => message.to_owned(),
            };
            Err(Failure::Call { code: code.to_owned(), message: format!("{}: {message}", args.tool) })
        }
    }
}

/// Shows the request that a call would send.
async fn dry_run(context: &mut Context, args: &CallArgs) -> Result<u8, Failure> {
    let none = |why: String| Failure::Usage(format!("--dry-run shows the request of a tool of a rest_api pack; {why}"));
    let name = args.tool.as_str();
    let pack = name.split_once(SUBTOOL_SEPARATOR).map(|(pack, _)| pack).and_then(|pack| PackName::parse(pack).ok());
    let pack = pack.ok_or_else(|| none(format!("{name} is a tool of no pack")))?;
    let host = reading_host(context)?;
    let launch = with_document(context, launch(context, &pack)?, &host).await?;
    let arguments: Value = serde_json::from_str(&args.arguments).unwrap_or(Value::Null);
    match vance_mcp_host::rest::dry_run(&launch, &host, name, &arguments).await {
        None => Err(none(format!("'{pack}' is an MCP server"))),
        Some(Ok(request)) if context.screen.json => {
            context.screen.value(&request)?;
            Ok(EXIT_OK)
        }
        Some(Ok(request)) => {
            context.screen.line(&serde_json::to_string_pretty(&request).unwrap_or_else(|_| request.to_string()))?;
            Ok(EXIT_OK)
        }
        Some(Err(fault)) => Err(Failure::Call { code: fault.code, message: fault.message }),
    }
}

/// What went wrong, as code and message, and what came of it.
fn judged(outcome: &Outcome) -> (Result<(), (&str, &str)>, Option<&ToolResult>) {
    match outcome {
        Outcome::Done(result) => (Ok(()), Some(result)),
        Outcome::Failed { error, result } => (Err((&error.code, &error.message)), result.as_ref()),
        Outcome::Cancelled { reason } => (Err(("cancelled", reason)), None),
        Outcome::Unknown { reason } => (Err(("outcome_unknown", reason)), None),
    }
}

/// A call that was made here, in the shape in which the Brain tells of one.
pub(super) fn outcome_json(call_id: &CallId, tool: &str, outcome: &Outcome) -> Value {
    let (judged, result) = judged(outcome);
    let word = match &judged {
        Ok(()) => "done",
        Err(("cancelled", _)) => "cancelled",
        Err(("outcome_unknown", _)) => "unknown",
        Err(_) => "failed",
    };
    let mut said = json!({
        "call": {"call_id": call_id, "tool": tool, "route": "client", "outcome": word},
        "result": result.map(output_of),
    });
    if let Err((code, message)) = judged {
        said["error"] = json!({"code": code, "message": message});
    }
    said
}

/// Why a tool is not there: what its pack says, or where to look.
async fn whereabouts(foot: &LocalFoot, args: &CallArgs) -> String {
    let pack = args.tool.as_str().split_once(SUBTOOL_SEPARATOR).map(|(pack, _)| pack);
    if let Some(pack) = pack {
        let summary = foot.first_load().await;
        if let Some(left) = left_out(&summary).find(|left| left.pack == pack) {
            return format!("pack '{pack}' ({}) is not loaded: {}", plain(&left.file), plain(&left.reason));
        }
        if let Some(note) = summary.notes.first() {
            return plain(note);
        }
        if summary.loaded.is_empty() {
            return format!("there is no pack '{}' here; `vancetope packs` lists all", plain(pack));
        }
    }
    let tools = foot.tools();
    match nearest(args.tool.as_str(), tools.iter().map(|tool| tool.name.as_str())) {
        Some(name) => format!("did you mean `{name}`? `vancetope tools` lists all"),
        None => "`vancetope tools` lists what is here, `--via-brain` also calls the Brain's".to_owned(),
    }
}

/// Calls a tool through the Brain.
pub(super) async fn call_via_brain(context: &mut Context, args: &CallArgs) -> Result<u8, Failure> {
    let brain = context.brain()?;
    let bad = |e: serde_json::Error| Failure::Usage(e.to_string());
    let request = CallRequest {
        arguments: Raw::parse(args.arguments.clone()).map_err(bad)?,
        session: context.general.session.clone(),
        timeout: Some(format!("{}ms", args.timeout.as_millis())),
        // Somebody is there to be asked: here, or by the Foot of the prompt around this command.
        ask: nobody(context).is_none(),
    };
    let called = asked::answered(context, &brain, args, &request).await;
    let Some(answer) = called else { return Err(Failure::Foot(format!("interrupted; {}", may_run(args)))) };
    let answer = answer.map_err(|error| cut_off(args, error))?;
    let declined = answer.value.call.declined_questions;
    if declined > 0 {
        context.screen.remark(&format!(
            "{}: {declined} question(s) of its server were declined, because nobody can be asked here; call it in a terminal, or make it a step of a task",
            args.tool
        ));
    }
    let done = answer.value.call.outcome.as_deref() == Some("done");
    if context.screen.json {
        context.screen.raw(&answer.body)?;
        return Ok(if done { EXIT_OK } else { EXIT_FAILED });
    }
    if done {
        return print(context, answer.value.result.as_ref());
    }
    let outcome = answer.value.call.outcome.unwrap_or_else(|| "open".to_owned());
    let text = answer.value.error.map(|e| e.message).or_else(|| answer.value.result.and_then(|r| r.text));
    let message = format!("{}: {outcome}: {}", args.tool, text.unwrap_or_else(|| "no reason was given".to_owned()));
    Err(Failure::Call { code: "tool_failed".to_owned(), message })
}

/// The answer did not come, or not to its end: what became of the call is not known.
fn cut_off(args: &CallArgs, error: ApiError) -> Failure {
    match error {
        ApiError::Broken { .. } => {
            Failure::Call { code: error.code().to_owned(), message: format!("{error}; {}", may_run(args)) }
        }
        error => error.into(),
    }
}

fn may_run(args: &CallArgs) -> String {
    format!(
        "the Brain cancels the call when it sees that nobody waits, but {} may have run, or still run; to keep a call that outlasts its caller, \
         make it a step of a task: `vancetope run FILE`",
        args.tool
    )
}

fn output_of(result: &ToolResult) -> CallOutput {
    CallOutput {
        text: Some(result.joined_text()),
        structured: result.structured.as_ref().map(Raw::value),
        content: Some(result.content.value()),
    }
}

/// A tool's text, else its structured content, else its parts.
fn print(context: &mut Context, output: Option<&CallOutput>) -> Result<u8, Failure> {
    let screen = &mut context.screen;
    let Some(output) = output else { return Ok(EXIT_OK) };
    let value = output.structured.as_ref().or(output.content.as_ref());
    match (output.text.as_deref().filter(|text| !text.is_empty()), value) {
        (Some(text), _) => {
            let text = screen.foreign(text.strip_suffix('\n').unwrap_or(text)).into_owned();
            screen.line(&text)?;
        }
        (None, Some(value)) => screen.value(value)?,
        (None, None) => {}
    }
    Ok(EXIT_OK)
}

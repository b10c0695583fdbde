//! `vancetope packs check`: what is wrong in pack files, and with `--dry-run` what each would start or reach.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use vance_mcp_host::env::{ambient, clean_path, expand};
use vance_mcp_host::guard::find_program;
use vance_mcp_host::rest::look;
use vance_mcp_host::{HostEnv, files};
use vance_shared::doc::Problem;
use vance_shared::gate::{changes_what_runs, reach, sends};
use vance_shared::launch::{LaunchPlan, Origin, Transport};
use vance_shared::pack::{PackBody, parse_pack};
use vance_shared::show::plain;
use vance_shared::tool::ToolSpec;

use super::args::CheckArgs;
use super::launch;
use super::shelf::paths;
use crate::cli::context::Context;
use crate::cli::failure::{EXIT_OK, EXIT_USAGE, Failure};
use crate::packs::text;
use crate::paths::{Paths, shown};

/// Prints what is wrong in each file. Problems are the result; what is odd but loads is a remark.
pub(super) async fn check(context: &mut Context, args: &CheckArgs) -> Result<u8, Failure> {
    let paths = paths(context)?;
    let (mut problems, mut warnings, mut plans) = (Vec::new(), Vec::new(), Vec::new());
    let (mut tools, mut skipped) = (Vec::new(), Vec::new());
    for path in &args.files {
        let file = shown(path);
        let text = text(path).map_err(|error| Failure::File { file: file.clone(), why: error.to_string() })?;
        let parsed = parse_pack(&file, &text, origin(path, &paths));
        match parsed.pack.map(|pack| pack.body) {
            Some(PackBody::Nothing) => {
                warnings.push(Problem::new(&file, 1, "the pack is disabled, and its parameters are not complete"));
            }
            Some(PackBody::Launch(plan)) => {
                if parsed.problems.is_empty() {
                    let host = HostEnv { packs_dir: folder(path), ..launch::host(context)? };
                    match look(&plan, &host).await {
                        Some(Ok(looked)) => {
                            tools.extend(looked.tools);
                            skipped.extend(looked.skipped);
                            problems.extend(looked.problem.map(|why| Problem::new(&file, spec_line(&text), why)));
                            warnings.extend(looked.warnings.iter().map(|text| Problem::new(&file, 1, text.as_str())));
                        }
                        Some(Err(why)) => problems.push(Problem::new(&file, spec_line(&text), why)),
                        None => {}
                    }
                }
                if args.dry_run {
                    let project = Some(paths.project.as_path());
                    plans.push((file, files::shown(plan, project, &folder(path))));
                }
            }
            None => {}
        }
        problems.extend(parsed.problems);
        warnings.extend(parsed.warnings);
    }
    let ok = problems.is_empty();
    let ambient = ambient();
    let launches: Vec<Value> = plans.iter().map(|(file, plan)| launched(file, plan, &paths, &ambient)).collect();
    let screen = &mut context.screen;
    if screen.json {
        // What an MCP server offers is known once it runs, and nothing is started here.
        let tools: Vec<Value> = tools.iter().map(tool).collect();
        let skipped: Vec<Value> =
            skipped.iter().map(|one| json!({"operation": one.operation, "reason": one.reason})).collect();
        let mut said =
            json!({"ok": ok, "problems": problems, "warnings": warnings, "tools": tools, "skipped": skipped});
        if args.dry_run {
            said["launch"] = Value::Array(launches);
        }
        screen.value(&said)?;
        return Ok(if ok { EXIT_OK } else { EXIT_USAGE });
    }
    for Problem { file, line, message } in &warnings {
        screen.remark(&format!("{file}:{line}: warning: {message}"));
    }
    for problem in &problems {
        screen.line(&problem.to_string())?;
    }
    for launch in &launches {
        for line in lines(launch) {
            screen.line(&line)?;
        }
    }
    if ok && !args.dry_run {
        for tool in &tools {
            screen.line(&format!("{}  {}", tool.name, plain(tool.description.lines().next().unwrap_or_default())))?;
        }
        for one in &skipped {
            screen.remark(&format!("left out: {}: {}", plain(&one.operation), plain(&one.reason)));
        }
        let count = if tools.is_empty() { String::new() } else { format!(", {} tools", tools.len()) };
        screen.line(&format!("no problems{count}"))?;
    }
    Ok(if ok { EXIT_OK } else { EXIT_USAGE })
}

fn tool(spec: &ToolSpec) -> Value {
    json!({
        "name": spec.name, "description": spec.description, "inputSchema": spec.input_schema.value(), "labels": spec.labels,
    })
}

/// The line that names a pack's document.
fn spec_line(text: &str) -> u32 {
    let names = ["specFile", "specUrl", "specInline"];
    text.lines()
        .position(|line| names.iter().any(|name| line.contains(name)))
        .map_or(1, |at| u32::try_from(at + 1).unwrap_or(u32::MAX))
}

fn folder(path: &Path) -> PathBuf {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).map_or_else(|| PathBuf::from("."), Path::to_owned)
}

/// A file in a project's folder is read as strictly as one that somebody else wrote; one that lies anywhere else is the user's own.
fn origin(path: &Path, paths: &Paths) -> Origin {
    let folder = std::path::absolute(path).ok().and_then(|path| path.parent().map(Path::to_owned));
    match folder {
        Some(folder) if folder == paths.project_packs && folder != paths.global_packs => Origin::Project,
        Some(_) | None => Origin::Global,
    }
}

/// The launch as it would be. A project's texts stay as they are: nothing is looked up or expanded for it before consent.
fn launched(file: &str, plan: &LaunchPlan, paths: &Paths, ambient: &BTreeMap<OsString, OsString>) -> Value {
    let own = plan.origin != Origin::Project;
    let mut unset = Vec::new();
    let mut value = |name: &str, text: &str| match own.then(|| expand(text, name, ambient)) {
        Some(Ok(value)) => value,
        Some(Err(error)) => {
            unset.push(error.to_string());
            text.to_owned()
        }
        None => text.to_owned(),
    };
    let mut said = json!({
        "pack": plan.pack, "file": file, "level": if own { "global" } else { "project" }, "reach": reach(plan),
    });
    match &plan.transport {
        Transport::Stdio { argv, cwd, env } => {
            let env: BTreeMap<&str, String> = env.iter().map(|(k, v)| (k.as_str(), value(k, v))).collect();
            let folder = cwd.as_deref().map(|cwd| paths.project.join(cwd));
            said["transport"] = json!("stdio");
            said["command"] = json!(argv);
            if own {
                let path = clean_path(ambient.get(&OsString::from("PATH")).map(OsString::as_os_str));
                let at = folder.as_deref().unwrap_or(Path::new("/"));
                match argv.first().map(|program| find_program(program, Some(&path), at)) {
                    Some(Ok(program)) => said["program"] = json!(shown(&program)),
                    Some(Err(error)) => said["missing"] = json!(error.to_string()),
                    None => {}
                }
            }
            said["cwd"] = json!(folder.map(|folder| shown(&folder)));
            said["env"] = json!(env);
        }
        Transport::Http { url, headers, .. } => {
            let headers: BTreeMap<&str, String> = headers.iter().map(|(k, v)| (k.as_str(), value(k, v))).collect();
            said["transport"] = json!("http");
            said["url"] = json!(value("url", url));
            said["headers"] = json!(headers);
        }
        Transport::Rest(plan) => {
            let headers: BTreeMap<&str, String> = plan.headers.iter().map(|(k, v)| (k.as_str(), value(k, v))).collect();
            said["transport"] = json!("rest");
            said["base"] = json!(plan.reach_base().map(|base| value("baseUrl", base)));
            said["headers"] = json!(headers);
        }
    }
    said["sends"] = json!(sends(plan));
    said["problems"] = json!(unset);
    said
}

fn lines(launch: &Value) -> Vec<String> {
    let text = |key: &str| launch[key].as_str().map(plain);
    let mut lines = vec![format!(
        "{} pack '{}' from {}",
        text("level").unwrap_or_default(),
        text("pack").unwrap_or_default(),
        text("file").unwrap_or_default()
    )];
    let mut say = |label: &str, what: String| lines.push(format!("  {:<13} {what}", format!("{label}:")));
    let reach = launch["reach"].as_str().unwrap_or_default().to_owned();
    if launch["transport"] == "stdio" {
        say("runs", reach);
        if let Some(program) = text("program") {
            say("program", program);
        }
        if let Some(missing) = text("missing") {
            say("program", format!("{missing}   (!)"));
        }
        say("in", text("cwd").unwrap_or_else(|| "a private empty folder".to_owned()));
    } else {
        say("reaches", reach);
    }
    for (label, key) in [("with env", "env"), ("with header", "headers")] {
        for (name, value) in launch[key].as_object().into_iter().flatten() {
            let warning = if key == "env" && changes_what_runs(name) { "   (!) changes what runs" } else { "" };
            say(label, format!("{}={}{warning}", plain(name), plain(value.as_str().unwrap_or_default())));
        }
    }
    let list = |key: &str| launch[key].as_array().cloned().unwrap_or_default();
    let sends: Vec<String> =
        list("sends").iter().filter_map(Value::as_str).map(|name| format!("${}", plain(name))).collect();
    if !sends.is_empty() {
        say("sends", sends.join(" "));
    }
    for problem in list("problems") {
        say("problem", plain(problem.as_str().unwrap_or_default()));
    }
    lines
}

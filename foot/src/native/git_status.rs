//! `git_status`: runs git with everything off that a repository could make it run.

use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use vance_mcp_host::guard::Exit;
use vance_shared::call::Outcome;
use vance_shared::show::plain;
use vance_shared::tool::ToolResult;

use super::gate::{Call, Gate, Halt, blocking};
use super::git::{environment, filters_argv, parse_status, repository_filters, status_argv};
use super::launch::Launcher;
use super::shell::drive;
use super::text::{MAX_TEXT_BYTES, cut};
use super::{Ended, failed};

/// Of git's complaint in a message.
const MAX_MESSAGE_BYTES: usize = 500;

#[derive(Debug, Deserialize)]
struct Arguments {
    #[serde(default)]
    path: Option<String>,
}

pub(super) async fn run(gate: &Arc<Gate>, launcher: &Launcher, call: Call) -> Ended {
    let args: Arguments = call.parse()?;
    let (finder, path) = (Arc::clone(gate), args.path.unwrap_or_else(|| ".".to_owned()));
    let at = blocking(move || {
        let at = finder.resolve(&path, false)?;
        at.dir()?;
        Ok(at)
    })
    .await?;
    gate.permit_read(&call, &at).await?;
    let git = Git { launcher, folder: &at.real, halt: &call.halt };
    // Exit code 1: there are none.
    let (found, _) = git.run(filters_argv(), &[], &[0, 1]).await?;
    let filters = repository_filters(&found);
    let (answer, whole) = git.run(status_argv(), &filters, &[0]).await?;
    let mut status = parse_status(&answer);
    status.truncated |= !whole;
    let value = serde_json::to_value(&status).map_err(|e| failed("internal", e.to_string()))?;
    Ok(ToolResult::structured(value))
}

struct Git<'a> {
    launcher: &'a Launcher,
    folder: &'a Path,
    halt: &'a Halt,
}

impl Git<'_> {
    /// Gives its output, and whether that is all of it.
    async fn run(&self, argv: Vec<String>, filters: &[String], good: &[i32]) -> Result<(Vec<u8>, bool), Box<Outcome>> {
        let mut child = self.launcher.spawn(argv, self.folder.to_owned(), environment(filters), false).await?;
        let ran = drive(&mut child, MAX_TEXT_BYTES, self.halt).await;
        if let Some(outcome) = ran.halted {
            return Err(Box::new(outcome));
        }
        let code = match ran.exit {
            Ok(Exit::Code(code)) => code,
            Ok(other) => return Err(failed("git_failed", format!("git: {other}"))),
            Err(e) => return Err(failed("git_failed", format!("git: {}", plain(&e.to_string())))),
        };
        if !good.contains(&code) {
            let (said, _) = ran.stderr.text(MAX_MESSAGE_BYTES);
            let said = plain(cut(said.trim(), MAX_MESSAGE_BYTES));
            return Err(failed("git_failed", format!("git: {said} (exit code {code})")));
        }
        Ok(ran.stdout.into_head())
    }
}

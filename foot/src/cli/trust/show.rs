//! `vancetope trust show`: everything that consent would cover, without starting anything.

use serde_json::json;
use vance_shared::gate::{Book, Verdict, quote, reach};
use vance_shared::launch::Origin;
use vance_shared::names::PackName;
use vance_shared::show::ascii;

use super::desk::{Desk, tell};
use super::list;
use crate::cli::context::Context;
use crate::cli::failure::{EXIT_OK, Failure};

/// True if it runs although it has no consent for good: a person allowed it once.
async fn runs(context: &Context, desk: &Desk, book: &Book, name: &PackName) -> Result<bool, Failure> {
    let Ok(project) = desk.trust.project() else { return Ok(false) };
    // What was allowed for good and has changed since may still run as it was.
    if book.entries().any(|(key, entry)| key == project.key() && entry.name == *name) {
        return Ok(false);
    }
    let run = list::running(&context.home()?.join("state")).await;
    Ok(run.iter().any(|pack| list::is(pack, name.as_str(), project.key())))
}

/// Shows one pack of this folder.
pub(super) async fn show(context: &mut Context, name: &PackName) -> Result<u8, Failure> {
    let desk = Desk::new(context)?;
    let candidate = desk.candidate(name)?;
    let (verdict, reading) = desk.judge(candidate);
    tell(context, &reading);
    let as_new = desk.as_new(candidate);
    let digest = as_new.as_ref().ok().map(|(_, digest)| *digest);
    let (state, reason) = match &verdict {
        Verdict::Trusted(_) => ("allowed", None),
        Verdict::Ask(_) if runs(context, &desk, &reading.book, name).await? => ("once", None),
        Verdict::Ask(_) => ("waits", None),
        Verdict::Denied(reason) => ("refused", Some(reason.clone())),
    };
    // A question also says what is different from what was allowed before.
    let text = match &verdict {
        Verdict::Ask(question) => question.text().rsplit_once('\n').map(|(lines, _)| lines.to_owned()),
        Verdict::Trusted(_) | Verdict::Denied(_) => as_new.ok().map(|(text, _)| text),
    };
    let drift = desk.trust.pins().waiting(Origin::Project, name).map_err(super::desk::unchanged)?.drift;
    let screen = &mut context.screen;
    if screen.json {
        screen.value(&json!({
            "pack": name, "file": candidate.plan.source.file, "reach": reach(&candidate.plan), "state": state, "reason": reason,
            "digest": digest.map(|digest| digest.to_string()), "text": text, "tools": drift.summary(),
        }))?;
        return Ok(EXIT_OK);
    }
    let text =
        text.unwrap_or_else(|| format!("Project tool pack '{name}' from {}", ascii(&candidate.plan.source.file)));
    screen.line(&text)?;
    if !candidate.plan.labels.is_empty() {
        let labels: Vec<String> = candidate.plan.labels.iter().map(|label| quote(label)).collect();
        screen.line(&format!("  labels:       {}", labels.join(" ")))?;
    }
    if let Some(digest) = digest {
        screen.line(&format!("  digest:       {digest}"))?;
    }
    screen.line(&match &reason {
        Some(reason) => format!("  state:        {state}: {reason}"),
        None => format!("  state:        {state}"),
    })?;
    if !drift.is_empty() {
        screen.line(&format!("  tools:        {}; `vancetope trust review` shows them", drift.summary()))?;
    }
    Ok(EXIT_OK)
}

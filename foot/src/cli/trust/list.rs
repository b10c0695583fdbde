//! `vancetope trust list`.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};
use vance_shared::gate::{Book, Verdict, reach};
use vance_shared::names::PackName;

use super::desk::{Desk, tell};
use crate::cli::binding;
use crate::cli::context::Context;
use crate::cli::failure::{EXIT_OK, Failure};
use crate::control::{Request, every_foot};
use crate::engine::PackStatus;

/// One line.
struct Row {
    pack: String,
    state: &'static str,
    since: Option<String>,
    reach: Option<String>,
    digest: Option<String>,
    project: String,
    reason: Option<String>,
}

/// Lists what the store says, and what of this folder it says nothing about.
pub(super) async fn list(context: &mut Context) -> Result<u8, Failure> {
    let desk = Desk::new(context)?;
    let reading = desk.trust.store().read();
    tell(context, &reading);
    let allowed = reading.book.entries().map(|(project, entry)| Row {
        pack: entry.name.to_string(),
        state: "allowed",
        since: entry.since.clone(),
        reach: Some(entry.reach.clone()),
        digest: entry.digest.map(|digest| digest.to_string()),
        project: project.to_owned(),
        reason: None,
    });
    let denied = reading.book.denials().map(|(project, denial)| Row {
        pack: denial.name.to_string(),
        state: "denied",
        since: denial.since.clone(),
        reach: None,
        digest: None,
        project: project.to_owned(),
        reason: None,
    });
    let brains = desk.trust.brains().read();
    tell(context, &brains);
    let named = brains.book.entries().map(|(project, entry)| Row {
        pack: "(brain)".to_owned(),
        state: "allowed",
        since: entry.since.clone(),
        reach: Some(entry.reach.clone()),
        digest: entry.digest.map(|digest| digest.to_string()),
        project: project.to_owned(),
        reason: None,
    });
    let mut rows: Vec<Row> = allowed.chain(denied).chain(named).collect();
    rows.extend(waiting(&desk, &reading.book));
    rows.extend(binding::waiting(context, &desk.trust).map(|waiting| Row {
        pack: "(brain)".to_owned(),
        state: "waits",
        since: None,
        reach: Some(waiting.reach()),
        digest: None,
        project: desk.trust.project().map_or_else(str::to_owned, |project| project.key().to_owned()),
        reason: None,
    }));
    once(&context.home()?.join("state"), &mut rows).await;
    if context.screen.json {
        let rows: Vec<Value> = rows
            .iter()
            .map(|row| {
                json!({
                    "pack": row.pack, "state": row.state, "since": row.since, "reach": row.reach,
                    "digest": row.digest, "project": row.project, "reason": row.reason,
                })
            })
            .collect();
        context.screen.value(&json!({ "store": desk.trust.store().shown(), "packs": rows }))?;
        return Ok(EXIT_OK);
    }
    let dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    let cells = rows
        .iter()
        .map(|row| [row.pack.clone(), row.state.to_owned(), dash(&row.since), dash(&row.reach), row.project.clone()]);
    context.screen.table(
        ["PACK", "STATE", "SINCE", "REACH", "FOLDER"],
        cells.collect(),
        "nothing is allowed or denied, and nothing of this folder waits",
    )?;
    for row in rows.iter().filter(|row| row.reason.is_some()) {
        context.screen.remark(&format!("{}: {}: {}", row.pack, row.state, dash(&row.reason)));
    }
    Ok(EXIT_OK)
}

/// What waits and has no entry, but runs in a Foot of this home, was allowed once.
async fn once(state: &Path, rows: &mut [Row]) {
    let known: BTreeSet<String> =
        rows.iter().filter(|row| row.state == "allowed").map(|row| row.pack.clone()).collect();
    let waits = |row: &Row| row.state == "waits" && row.digest.is_some() && !known.contains(&row.pack);
    if !rows.iter().any(waits) {
        return;
    }
    let run = running(state).await;
    for row in rows.iter_mut().filter(|row| waits(row)) {
        if run.iter().any(|pack| is(pack, &row.pack, &row.project)) {
            row.state = "once";
        }
    }
}

/// The packs of all Feet of this home.
pub(super) async fn running(state: &Path) -> Vec<PackStatus> {
    let feet = every_foot(state, &Request::Packs).await;
    feet.into_iter().filter_map(|foot| foot.answer.ok()).flat_map(|said| said.packs).collect()
}

/// True if a running pack is that one of that project.
pub(super) fn is(running: &PackStatus, pack: &str, project: &str) -> bool {
    running.pack == pack && running.project.as_deref() == Some(project)
}

/// Packs of this folder that would ask, or cannot be asked about. A denied one has its line already.
fn waiting(desk: &Desk, book: &Book) -> Vec<Row> {
    let project = desk.trust.project().map_or_else(str::to_owned, |project| project.key().to_owned());
    let is_denied = |pack: &PackName| desk.trust.project().is_ok_and(|project| book.denial(project, pack).is_some());
    let row = |candidate: &super::desk::Candidate| {
        let (state, digest, reason) = match desk.judge(candidate).0 {
            Verdict::Trusted(_) => return None,
            Verdict::Ask(question) => ("waits", Some(question.digest().to_string()), None),
            Verdict::Denied(_) if is_denied(&candidate.plan.pack) => return None,
            Verdict::Denied(reason) => ("refused", None, Some(reason)),
        };
        let plan = &candidate.plan;
        let (pack, reach, project) = (plan.pack.to_string(), Some(reach(plan)), project.clone());
        Some(Row { pack, state, since: None, reach, digest, project, reason })
    };
    desk.candidates.iter().filter_map(row).collect()
}

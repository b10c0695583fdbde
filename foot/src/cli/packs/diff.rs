//! `vancetope packs diff`: what the project's packs change in the user's own of the same name, and in what was consented to.

use serde_json::{Value, json};
use vance_shared::launch::Origin;
use vance_shared::names::PackName;
use vance_shared::pack::{Pack, PackBody};
use vance_shared::show::plain;

use super::compare::compare;
use super::consent::{Consent, consent};
use super::shelf::{PackFile, both, paths};
use crate::cli::context::Context;
use crate::cli::failure::{EXIT_FAILED, EXIT_OK, Failure};
use crate::trust::Trust;

/// One of the project's packs.
struct Diff<'a> {
    name: String,
    theirs: &'a PackFile,
    /// The user's own of the same name, and what differs.
    own: Option<(&'a PackFile, Vec<String>)>,
    /// Nothing for a pack that starts nothing.
    consent: Option<Consent>,
}

/// Compares; exit 1 if there is a difference.
pub(super) fn diff(context: &mut Context, only: Option<&PackName>) -> Result<u8, Failure> {
    let paths = paths(context)?;
    let files = both(&paths, true);
    let trust = Trust::new(&paths.home, &paths.project);
    let of = |origin: Origin| files.iter().filter(move |file| file.origin == origin);
    let mut diffs = Vec::new();
    for theirs in of(Origin::Project) {
        let name = theirs.name();
        if only.is_some_and(|only| only.as_str() != name) {
            continue;
        }
        let own = match of(Origin::Global).find(|own| own.name() == name) {
            Some(own) => Some((own, compare(&value(own)?, &value(theirs)?))),
            None => None,
        };
        let pack =
            |file: &PackFile| file.parsed().and_then(|parsed| parsed.pack).filter(|pack| pack.enabled).and_then(plan);
        let below = own.as_ref().and_then(|(own, _)| pack(own));
        let consent = pack(theirs).map(|plan| consent(&trust, plan, below.as_ref()));
        diffs.push(Diff { name, theirs, own, consent });
    }
    if let (Some(only), true) = (only, diffs.is_empty()) {
        return Err(Failure::Usage(format!("the project has no pack '{only}'; `vancetope packs` lists what is there")));
    }
    let differs = diffs.iter().any(|diff| {
        let from_own = diff.own.as_ref().is_some_and(|(_, lines)| !lines.is_empty());
        from_own || matches!(&diff.consent, Some(Consent::Asks(changed)) if !changed.is_empty())
    });
    let screen = &mut context.screen;
    if screen.json {
        let diffs: Vec<Value> = diffs.iter().map(to_json).collect();
        screen.value(&json!({ "diffs": diffs }))?;
    } else if diffs.is_empty() {
        screen.remark("this folder has no packs");
    } else {
        for line in diffs.iter().flat_map(lines) {
            screen.line(&line)?;
        }
    }
    Ok(if differs { EXIT_FAILED } else { EXIT_OK })
}

fn plan(pack: Pack) -> Option<vance_shared::launch::LaunchPlan> {
    match pack.body {
        PackBody::Launch(plan) => Some(plan),
        PackBody::Nothing => None,
    }
}

fn value(file: &PackFile) -> Result<Value, Failure> {
    let fault = |why: String| Failure::File { file: file.shown(), why };
    let text = file.text.as_ref().map_err(|why| fault(why.clone()))?;
    serde_json::from_str(text).map_err(|error| fault(error.to_string()))
}

fn to_json(diff: &Diff<'_>) -> Value {
    let (word, changed) = match &diff.consent {
        None => (None, &[][..]),
        Some(Consent::Trusted) => (Some("trusted"), &[][..]),
        Some(Consent::Asks(changed)) => (Some("needs consent"), &changed[..]),
        Some(Consent::Denied(_)) => (Some("denied"), &[][..]),
    };
    json!({
        "pack": diff.name, "project": diff.theirs.shown(), "global": diff.own.as_ref().map(|(own, _)| own.shown()),
        "changes": diff.own.as_ref().map(|(_, lines)| lines), "consent": word, "since_consent": changed,
    })
}

fn lines(diff: &Diff<'_>) -> Vec<String> {
    let word = match &diff.own {
        None => "is the project's alone",
        Some((_, lines)) if lines.is_empty() => "the same as yours",
        Some(_) => "differs from yours",
    };
    let mut out = vec![format!("pack '{}': {word}", plain(&diff.name))];
    if let Some((own, lines)) = &diff.own {
        out.push(format!("  - {}", own.shown()));
        out.push(format!("  + {}", diff.theirs.shown()));
        out.extend(lines.iter().map(|line| format!("    {line}")));
    }
    match &diff.consent {
        None => {}
        Some(Consent::Trusted) => out.push("  you allowed it as it is".to_owned()),
        Some(Consent::Denied(why)) => out.push(format!("  it is not loaded: {}", plain(why))),
        Some(Consent::Asks(changed)) if changed.is_empty() => out.push("  it asks before it runs".to_owned()),
        Some(Consent::Asks(changed)) => {
            // The first line says when.
            out.extend(
                changed.iter().enumerate().map(|(at, line)| format!("{}{line}", if at == 0 { "  " } else { "    " })),
            );
        }
    }
    out
}

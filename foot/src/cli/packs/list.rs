//! `vancetope packs list`: every pack file of both levels, and whether it counts.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Read as _};
use std::path::Path;

use serde_json::{Value, json};
use vance_foot_core::config::{MAX_CONFIG_BYTES, ToolPacks, parse_config};
use vance_foot_core::levels::{Layered, levels};
use vance_foot_core::merge::{self, Found, LeftOut, merge};
use vance_shared::gate::reach;
use vance_shared::launch::{Origin, Transport};
use vance_shared::pack::{Pack, PackBody};
use vance_shared::show::plain;

use super::consent::{Consent, consent};
use super::shelf::{PackFile, both, paths};
use crate::cli::context::Context;
use crate::cli::failure::{EXIT_OK, Failure};
use crate::cli::permissions;
use crate::paths::{Paths, shown};
use crate::trust::{Trust, is_own_home};

/// Name of the file with the selection, in the home and in a project's `.vancetope`.
const CONFIG: &str = "config.yaml";

/// One file's line.
struct Row {
    name: String,
    level: &'static str,
    file: String,
    kind: &'static str,
    state: State,
    reach: Option<String>,
}

/// Whether a file counts.
enum State {
    /// It is loaded.
    Enabled,
    /// It is a project's, and is loaded: somebody said yes to it.
    Trusted,
    /// It would be loaded, once somebody says yes; with what has changed since they did.
    NeedsConsent(String),
    /// It is not loaded, with the reason.
    Left(&'static str, String),
}

impl State {
    fn word(&self) -> &'static str {
        match self {
            Self::Enabled => "enabled",
            Self::Trusted => "trusted",
            Self::NeedsConsent(_) => "needs consent",
            Self::Left(word, _) => word,
        }
    }

    fn reason(&self) -> Option<&str> {
        match self {
            Self::Enabled | Self::Trusted => None,
            Self::NeedsConsent(changed) => Some(changed.as_str()).filter(|changed| !changed.is_empty()),
            Self::Left(_, reason) => Some(reason),
        }
    }
}

/// Lists.
pub(super) fn list(context: &mut Context) -> Result<u8, Failure> {
    let paths = paths(context)?;
    let files = both(&paths, !context.general.no_local);
    let tool_packs = selection(&context.home()?, &paths, !context.general.no_local);
    let rows = rows(&files, &tool_packs, &paths, &Trust::new(&paths.home, &paths.project));
    let mut notes = notes(&paths, !context.general.no_local);
    notes.extend(foreign_home(&paths).map(|(what, fix)| format!("{what}; {fix}")));
    let screen = &mut context.screen;
    if screen.json {
        let packs: Vec<Value> = rows
            .iter()
            .map(|row| {
                json!({
                    "name": row.name, "level": row.level, "file": row.file, "type": row.kind,
                    "state": row.state.word(), "reason": row.state.reason(), "reach": row.reach,
                })
            })
            .collect();
        screen.value(&json!({ "packs": packs, "notes": notes }))?;
        return Ok(EXIT_OK);
    }
    let empty = format!(
        "no packs; `vancetope packs add NAME -- COMMAND…` writes one to {}",
        plain(&paths.global_packs.to_string_lossy())
    );
    let cells = rows.iter().map(|row| {
        let reach = row.reach.clone().unwrap_or_else(|| "-".to_owned());
        [
            row.name.clone(),
            row.level.to_owned(),
            row.kind.to_owned(),
            row.state.word().to_owned(),
            reach,
            row.file.clone(),
        ]
    });
    screen.table(["PACK", "LEVEL", "TYPE", "STATE", "REACH", "FILE"], cells.collect(), &empty)?;
    for row in &rows {
        if let Some(reason) = row.state.reason() {
            screen.remark(&format!("{} ({}): {}: {}", plain(&row.name), row.level, row.state.word(), plain(reason)));
        }
    }
    for note in &notes {
        screen.remark(&format!("note: {}", plain(note)));
    }
    Ok(EXIT_OK)
}

/// A home that came with a project, and what to do about it.
pub(in crate::cli) fn foreign_home(paths: &Paths) -> Option<(String, &'static str)> {
    let foreign = paths.home.exists() && !is_own_home(&paths.home, &paths.project);
    let home = shown(&paths.home);
    foreign.then(|| {
        let what = format!("the home {home} lies in a project: its packs ask like those of the project, and what it allows does not count");
        (what, "set VANCE_HOME to a folder of your own outside of it")
    })
}

/// What of this folder's settings has no effect, each with its file and line and what to do.
pub(in crate::cli) fn notes(paths: &Paths, local: bool) -> Vec<String> {
    let unselected = crate::packs::read(paths, local).unselected;
    let ignored = if local { permissions::ignored(&paths.home, &paths.project) } else { Vec::new() };
    unselected.iter().map(ToString::to_string).chain(ignored).collect()
}

/// Each file with what becomes of it, as the loader decides it.
fn rows(files: &[PackFile], tool_packs: &ToolPacks, paths: &Paths, trust: &Trust) -> Vec<Row> {
    let level = |origin: Origin| {
        let readable = files.iter().filter(move |file| file.origin == origin);
        merge(readable.filter_map(|file| {
            let text = file.text.clone().ok()?;
            Some(merge::PackFile { file: file.shown(), text, origin: file.origin })
        }))
    };
    let levels = levels(level(Origin::Global), level(Origin::Project));
    let counts: BTreeMap<String, &Layered> =
        levels.packs.iter().map(|layered| (layered.found.pack.name.to_string(), layered)).collect();
    let plan = |found: Option<&Found>| match found.map(|found| &found.pack.body) {
        Some(PackBody::Launch(plan)) => Some(plan.clone()),
        Some(PackBody::Nothing) | None => None,
    };
    let verdict = |layered: Option<&&Layered>| {
        let layered = layered?;
        let own = plan(layered.below.as_ref());
        Some(consent(trust, plan(Some(&layered.found))?, own.as_ref()))
    };
    let row = |file: &PackFile| {
        let (shown, name, pack) = (file.shown(), file.name(), file.parsed().and_then(|parsed| parsed.pack));
        let said = |list: &[LeftOut]| list.iter().find(|left| left.file == shown).map(|left| left.reason.clone());
        let layered = counts.get(&name);
        let state = if let Err(why) = &file.text {
            State::Left("broken", why.clone())
        } else if let Some(reason) = said(&levels.failed) {
            State::Left("broken", reason)
        } else if let Some(reason) = said(&levels.skipped) {
            State::Left("forbidden", reason)
        } else if let Some(over) = layered.filter(|layered| layered.found.file != shown) {
            let by = format!("by {}", over.found.file);
            match (over.found.pack.enabled, tool_packs.reason_against(&name)) {
                (false, _) => State::Left("disabled", by),
                (true, Some(reason)) => State::Left("not selected", reason),
                // Until somebody says yes to the project's pack, this one counts.
                (true, None) if verdict(layered) == Some(Consent::Trusted) => State::Left("redirected", by),
                (true, None) => State::Enabled,
            }
        } else if pack.as_ref().is_some_and(|pack| !pack.enabled) {
            State::Left("disabled", "\"enabled\" is false in the file".to_owned())
        } else if let Some(reason) = tool_packs.reason_against(&name) {
            State::Left("not selected", reason)
        } else if file.origin == Origin::Project {
            match verdict(layered) {
                Some(Consent::Trusted) | None => State::Trusted,
                Some(Consent::Asks(changed)) => State::NeedsConsent(changed.join(" ")),
                Some(Consent::Denied(why)) => State::Left("denied", why),
            }
        } else {
            State::Enabled
        };
        Row {
            level: if file.origin == Origin::Project { "project" } else { "global" },
            kind: kind(pack.as_ref()),
            reach: pack.as_ref().and_then(|pack| match &pack.body {
                PackBody::Launch(plan) => {
                    Some(reach(&vance_mcp_host::files::shown(plan.clone(), Some(&paths.project), &paths.global_packs)))
                }
                PackBody::Nothing => None,
            }),
            name,
            file: shown,
            state,
        }
    };
    files.iter().map(row).collect()
}

/// The selection: the project's file instead of the user's own.
fn selection(home: &Path, paths: &Paths, local: bool) -> ToolPacks {
    let own = home.join(CONFIG);
    let theirs = paths.project.join(".vancetope").join(CONFIG);
    let path = if local && theirs.symlink_metadata().is_ok() { theirs } else { own };
    let file = shown(&path);
    let mut text = String::new();
    let read =
        std::fs::File::open(&path).and_then(|open| open.take(MAX_CONFIG_BYTES as u64 + 1).read_to_string(&mut text));
    match read {
        Ok(_) => parse_config(&file, &text).tool_packs,
        Err(error) if error.kind() == ErrorKind::NotFound => ToolPacks::default(),
        Err(error) => ToolPacks::unreadable(&file, &error.to_string()),
    }
}

fn kind(pack: Option<&Pack>) -> &'static str {
    match pack.map(|pack| &pack.body) {
        Some(PackBody::Launch(plan)) if matches!(plan.transport, Transport::Rest(_)) => "rest_api",
        Some(PackBody::Launch(_)) => "mcp_server",
        Some(PackBody::Nothing) | None => "-",
    }
}

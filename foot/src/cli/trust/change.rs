//! Taking consent back, denying, and forgetting folders that are gone.

use std::collections::BTreeSet;
use std::fmt;
use std::io::ErrorKind;
use std::path::Path;

use vance_shared::gate::Project;
use vance_shared::gate::audit::Event;
use vance_shared::launch::Origin;
use vance_shared::names::PackName;
use vance_shared::show::plain;

use super::args::RevokeArgs;
use super::desk::{Desk, unchanged};
use crate::cli::context::Context;
use crate::cli::failure::{EXIT_FAILED, EXIT_OK, Failure};
use crate::control::{Answer, Reached, Request, Unanswered, every_foot, one_foot};
use crate::engine::PackStatus;
use crate::trust::today;

/// Takes consent back, and stops what runs with it.
pub(super) async fn revoke(context: &mut Context, args: &RevokeArgs) -> Result<u8, Failure> {
    let desk = Desk::new(context)?;
    let here = desk.project()?.clone();
    let taken = take_back(context, &desk, &here, args);
    // Whatever became of the store; also what was allowed once runs without an entry.
    let whose = match &args.pack {
        Some(name) => Whose::Pack(here.key(), name),
        None if args.all => Whose::All,
        None => Whose::Project(here.key()),
    };
    let stopped = stop(context, &desk, whose).await;
    let is_taken = taken?;
    if !is_taken {
        context.screen.remark("vancetope: there was no lasting consent to take back");
    }
    let is_done = is_taken || stopped.any || args.pack.is_none();
    Ok(if is_done && !stopped.doubt { EXIT_OK } else { EXIT_FAILED })
}

/// The store's part. False if there was nothing about packs.
fn take_back(context: &mut Context, desk: &Desk, here: &Project, args: &RevokeArgs) -> Result<bool, Failure> {
    let revoked: Vec<(String, PackName)> = desk
        .trust
        .store()
        .edit(|book| {
            let gone = |project: &str, name: &PackName| match &args.pack {
                Some(wanted) => wanted == name && project == here.key(),
                None => args.all || project == here.key(),
            };
            let gone: Vec<(String, PackName)> = book
                .entries()
                .filter(|(project, entry)| gone(project, &entry.name))
                .map(|(project, entry)| (project.to_owned(), entry.name.clone()))
                .collect();
            let taken = match &args.pack {
                Some(name) => usize::from(book.revoke(here, name)),
                None if args.all => book.revoke_all(),
                None => book.revoke_project(here),
            };
            debug_assert_eq!(taken, gone.len());
            // Into the log first, here and below: a decision that counts is always in it.
            gone.iter()
                .for_each(|(project, name)| desk.trust.record_name(Event::Revoked, Some(project), Some(name.as_str())));
            gone
        })
        .map_err(unchanged)?;
    for (project, name) in &revoked {
        context.screen.progress(&format!("pack '{name}' asks again in {}", plain(project)))?;
    }
    // The next start of each is its first one.
    let pins = desk.trust.pins();
    match &args.pack {
        Some(name) => pins.forget(Origin::Project, name),
        None if args.all => pins.forget_projects(),
        None => pins.forget_project(),
    }
    .map_err(unchanged)?;
    if args.pack.is_none() {
        let brains = desk.trust.brains().edit(|book| {
            let taken = if args.all { book.revoke_all() } else { book.revoke_project(here) };
            if taken > 0 {
                desk.trust.record_name(Event::Revoked, Some(here.key()), None);
            }
            taken
        });
        if brains.map_err(unchanged)? > 0 {
            context.screen.progress("the Brain that was named there asks again")?;
        }
    }
    Ok(!revoked.is_empty())
}

/// Denies a pack for good.
pub(super) async fn deny(context: &mut Context, name: &PackName) -> Result<u8, Failure> {
    let desk = Desk::new(context)?;
    let here = desk.project()?;
    let denying = desk.trust.store().edit(|book| {
        desk.trust.record_name(Event::Denied, Some(here.key()), Some(name.as_str()));
        book.deny(here, name, &today());
    });
    let denied = denying.map_err(unchanged);
    if denied.is_ok() {
        context.screen.progress(&format!("pack '{name}' is denied in {}, and does not ask", plain(here.key())))?;
    }
    let stopped = stop(context, &desk, Whose::Pack(here.key(), name)).await;
    denied?;
    Ok(if stopped.doubt { EXIT_FAILED } else { EXIT_OK })
}

/// Ends a denial.
pub(super) fn undeny(context: &mut Context, name: &PackName) -> Result<u8, Failure> {
    let desk = Desk::new(context)?;
    let here = desk.project()?;
    let undenying = desk.trust.store().edit(|book| {
        let was_denied = book.undeny(here, name);
        if was_denied {
            desk.trust.record_name(Event::Undenied, Some(here.key()), Some(name.as_str()));
        }
        was_denied
    });
    let was_denied = undenying.map_err(unchanged)?;
    if !was_denied {
        context.screen.remark(&format!("vancetope: pack '{name}' was not denied in {}", here.key()));
        return Ok(EXIT_FAILED);
    }
    context.screen.progress(&format!("pack '{name}' asks again in {}", here.key()))?;
    Ok(EXIT_OK)
}

/// Forgets folders that are gone. One that merely cannot be reached stays.
pub(super) fn prune(context: &mut Context) -> Result<u8, Failure> {
    let desk = Desk::new(context)?;
    let gone = |dir: &Path| dir.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
    let pruning = desk.trust.store().edit(|book| {
        let pruned = book.prune(gone);
        pruned.iter().for_each(|project| desk.trust.record_name(Event::Pruned, Some(project), None));
        pruned
    });
    let pruned = pruning.map_err(unchanged)?;
    for project in &pruned {
        context.screen.progress(&format!("{} is gone and forgotten", plain(project)))?;
    }
    if pruned.is_empty() {
        context.screen.remark("vancetope: every folder is still there");
    }
    Ok(EXIT_OK)
}

/// Which packs may not run any more.
#[derive(Clone, Copy)]
enum Whose<'a> {
    /// One of a project.
    Pack(&'a str, &'a PackName),
    /// Those of a project.
    Project(&'a str),
    /// Those of all projects.
    All,
}

impl Whose<'_> {
    /// Another folder, and the user, may have a pack of the same name.
    fn includes(self, status: &PackStatus) -> bool {
        let Some(project) = &status.project else { return false };
        match self {
            Self::Pack(here, name) => project == here && status.pack == name.as_str(),
            Self::Project(here) => project == here,
            Self::All => true,
        }
    }
}

impl fmt::Display for Whose<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pack(_, name) => write!(f, "pack '{name}'"),
            Self::Project(_) => f.write_str("packs of this folder"),
            Self::All => f.write_str("packs of projects"),
        }
    }
}

/// What was stopped.
#[derive(Debug, Default)]
struct Stopped {
    any: bool,
    /// Something may still run.
    doubt: bool,
}

/// Ends what runs without consent from now on, in every Foot of this home.
async fn stop(context: &mut Context, desk: &Desk, whose: Whose<'_>) -> Stopped {
    let mut stopped = Stopped::default();
    let state = desk.trust.home().join("state");
    for Reached { slot, answer } in every_foot(&state, &Request::Packs).await {
        let packs = match said(answer) {
            Ok(answer) => answer.packs,
            Err(why) => {
                stopped.doubt = true;
                context.screen.remark(&format!("vancetope: {slot} {why}; {whose} may still run there"));
                continue;
            }
        };
        let packs: BTreeSet<String> =
            packs.into_iter().filter(|status| whose.includes(status)).map(|status| status.pack).collect();
        for pack in packs {
            // Gone meanwhile: what we want.
            let Some(answer) = one_foot(&state.join(&slot), &Request::Stop { pack: pack.clone() }).await else { break };
            let pack = plain(&pack);
            match said(answer) {
                Ok(answer) if answer.stopped == Some(true) => {
                    stopped.any = true;
                    context.screen.remark(&format!("vancetope: pack '{pack}' was stopped ({slot})"));
                }
                Ok(_) => {}
                Err(why) => {
                    stopped.doubt = true;
                    context.screen.remark(&format!("vancetope: {slot} {why}; pack '{pack}' may still run there"));
                }
            }
        }
    }
    stopped
}

/// What a Foot answered, or why that is nothing, said of it.
fn said(answer: Result<Answer, Unanswered>) -> Result<Answer, String> {
    match answer {
        Ok(answer) if answer.ok => Ok(answer),
        Ok(answer) => Err(format!("refused ({})", plain(&answer.error.unwrap_or_default()))),
        Err(why) => Err(why.to_string()),
    }
}

//! Taking consent back, denying, and forgetting folders that are gone.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::Path;

use vance_shared::gate::audit::Event;
use vance_shared::launch::Origin;
use vance_shared::names::PackName;
use vance_shared::show::plain;

use super::args::RevokeArgs;
use super::desk::{Desk, unchanged};
use crate::cli::context::Context;
use crate::cli::failure::{EXIT_FAILED, EXIT_OK, Failure};
use crate::control::{Reached, Request, every_foot};
use crate::trust::today;

/// Takes consent back, and stops what runs with it.
pub(super) async fn revoke(context: &mut Context, args: &RevokeArgs) -> Result<u8, Failure> {
    let desk = Desk::new(context)?;
    let here = desk.project()?.clone();
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
                Some(name) => usize::from(book.revoke(&here, name)),
                None if args.all => book.revoke_all(),
                None => book.revoke_project(&here),
            };
            debug_assert_eq!(taken, gone.len());
            gone
        })
        .map_err(unchanged)?;
    for (project, name) in &revoked {
        desk.trust.record_name(Event::Revoked, Some(project), Some(name.as_str()));
        if project == here.key() {
            // Its next start is its first one.
            desk.trust.pins().forget(Origin::Project, name).map_err(unchanged)?;
        }
        context.screen.progress(&format!("pack '{name}' asks again in {}", plain(project)))?;
    }
    if args.pack.is_none() {
        let brains =
            desk.trust.brains().edit(|book| if args.all { book.revoke_all() } else { book.revoke_project(&here) });
        if brains.map_err(unchanged)? > 0 {
            desk.trust.record_name(Event::Revoked, Some(here.key()), None);
            context.screen.progress("the Brain that was named there asks again")?;
        }
    }
    if revoked.is_empty() {
        context.screen.remark("vancetope: there was no consent to take back");
    }
    // Also what was allowed once runs without an entry.
    let names = args.pack.iter().cloned().chain(revoked.iter().map(|(_, name)| name.clone()));
    stop(context, &desk, names.collect::<BTreeSet<_>>()).await;
    Ok(if revoked.is_empty() && args.pack.is_some() { EXIT_FAILED } else { EXIT_OK })
}

/// Denies a pack for good.
pub(super) async fn deny(context: &mut Context, name: &PackName) -> Result<u8, Failure> {
    let desk = Desk::new(context)?;
    let here = desk.project()?;
    desk.trust.store().edit(|book| book.deny(here, name, &today())).map_err(unchanged)?;
    desk.trust.record_name(Event::Denied, Some(here.key()), Some(name.as_str()));
    context.screen.progress(&format!("pack '{name}' is denied in {}, and does not ask", plain(here.key())))?;
    stop(context, &desk, [name.clone()]).await;
    Ok(EXIT_OK)
}

/// Ends a denial.
pub(super) fn undeny(context: &mut Context, name: &PackName) -> Result<u8, Failure> {
    let desk = Desk::new(context)?;
    let here = desk.project()?;
    let was_denied = desk.trust.store().edit(|book| book.undeny(here, name)).map_err(unchanged)?;
    if !was_denied {
        context.screen.remark(&format!("vancetope: pack '{name}' was not denied in {}", here.key()));
        return Ok(EXIT_FAILED);
    }
    desk.trust.record_name(Event::Undenied, Some(here.key()), Some(name.as_str()));
    context.screen.progress(&format!("pack '{name}' asks again in {}", here.key()))?;
    Ok(EXIT_OK)
}

/// Forgets folders that are gone. One that merely cannot be reached stays.
pub(super) fn prune(context: &mut Context) -> Result<u8, Failure> {
    let desk = Desk::new(context)?;
    let gone = |dir: &Path| dir.symlink_metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
    let pruned = desk.trust.store().edit(|book| book.prune(gone)).map_err(unchanged)?;
    for project in &pruned {
        desk.trust.record_name(Event::Pruned, Some(project), None);
        context.screen.progress(&format!("{} is gone and forgotten", plain(project)))?;
    }
    if pruned.is_empty() {
        context.screen.remark("vancetope: every folder is still there");
    }
    Ok(EXIT_OK)
}

/// Ends what runs without consent from now on, in every Foot of this home.
async fn stop(context: &mut Context, desk: &Desk, packs: impl IntoIterator<Item = PackName>) {
    let Ok(project) = desk.trust.project() else { return };
    let state = desk.trust.home().join("state");
    let theirs = crate::paths::shown(&project.dir().join(".vancetope"));
    for pack in packs {
        let lists = every_foot(&state, &Request::Packs).await;
        let listed = lists.iter().filter_map(|reached| reached.answer.as_ref().ok()).flat_map(|answer| &answer.packs);
        // Another folder may have a pack of that name.
        if !listed.into_iter().any(|status| status.pack == pack.as_str() && status.file.starts_with(&theirs)) {
            continue;
        }
        for Reached { slot, answer } in every_foot(&state, &Request::Stop { pack: pack.to_string() }).await {
            match answer {
                Ok(answer) if answer.stopped == Some(true) => {
                    context.screen.remark(&format!("vancetope: pack '{pack}' was stopped ({slot})"));
                }
                Ok(answer) if answer.ok => {}
                Ok(answer) => {
                    let why = answer.error.unwrap_or_default();
                    context.screen.remark(&format!("vancetope: pack '{pack}' still runs ({slot}): {}", plain(&why)));
                }
                Err(error) => {
                    context.screen.remark(&format!(
                        "vancetope: pack '{pack}' may still run ({slot}): {error}; `/tools reload` there ends it"
                    ));
                }
            }
        }
    }
}

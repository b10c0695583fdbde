//! One pack for a command that works with it by itself: what would be launched, and where.

use std::sync::Arc;

use vance_mcp_host::HostEnv;
use vance_shared::gate::{Once, TrustedLaunch, Verdict};
use vance_shared::launch::{LaunchPlan, Origin};
use vance_shared::names::PackName;
use vance_shared::pack::PackBody;

use super::shelf::{self, PackFile};
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::{ask, permissions};
use crate::engine::reader;
use crate::native::{NativeEnv, NativeTools};
use crate::trust::Trust;

/// Where a command's own packs live; nobody is asked for files.
pub(in crate::cli) fn host(context: &Context) -> Result<HostEnv, Failure> {
    let paths = shelf::paths(context)?;
    let program = |why: std::io::Error| Failure::Foot(format!("this program's own file cannot be told: {why}"));
    Ok(HostEnv {
        state_dir: paths.state.clone(),
        logins_dir: paths.state.clone(),
        packs_dir: paths.global_packs.clone(),
        read_file: None,
        vault: None,
        project_dir: Some(paths.project.clone()),
        guard_program: context.environment.program.clone().map_or_else(std::env::current_exe, Ok).map_err(program)?,
        client_name: "vancetope".to_owned(),
        sandbox: None,
    })
}

/// The same with files for requests, under the rules and by the person that decide for a call.
pub(in crate::cli) fn reading_host(context: &Context) -> Result<HostEnv, Failure> {
    let (host, paths) = (host(context)?, shelf::paths(context)?);
    let native = NativeTools::new(NativeEnv {
        rules: permissions::rules(&paths.home, (!context.general.no_local).then_some(paths.project.as_path()))?,
        asker: ask::at_terminal(context)?,
        guard_program: host.guard_program.clone(),
        state_dir: paths.state,
        home: paths.home,
        project_dir: paths.project,
    });
    Ok(HostEnv { read_file: Some(reader(Arc::new(native))), ..host })
}

/// The pack that counts, if it may be reached at all.
pub(in crate::cli) fn launch(context: &Context, name: &PackName) -> Result<TrustedLaunch, Failure> {
    let paths = shelf::paths(context)?;
    let files = shelf::both(&paths, !context.general.no_local);
    let of = |origin: Origin| {
        let named = files.iter().filter(|file| file.origin == origin && file.name() == name.as_str());
        named.into_iter().find_map(plan)
    };
    let (own, theirs) = (of(Origin::Global), of(Origin::Project));
    if let Some(theirs) = theirs {
        let trust = Trust::new(&paths.home, &paths.project);
        if let Verdict::Trusted(launch) = trust.judge(theirs, &Once::default(), own.as_ref()).0 {
            return Ok(launch);
        }
        if own.is_none() {
            let why = format!(
                "the pack '{name}' comes with this folder and has no consent yet; `vancetope tools list` asks for it"
            );
            return Err(Failure::Call { code: "needs_consent".to_owned(), message: why });
        }
    }
    let none =
        || Failure::Usage(format!("there is no pack '{name}' that is on; `vancetope packs` lists what is there"));
    TrustedLaunch::own_home(own.ok_or_else(none)?).map_err(|needs| Failure::Foot(needs.to_string()))
}

/// The same with the hosts that its fetched document leads to, if somebody said yes to those for good.
pub(in crate::cli) async fn with_document(
    context: &Context,
    launch: TrustedLaunch,
    host: &HostEnv,
) -> Result<TrustedLaunch, Failure> {
    let Some(further) = vance_mcp_host::rest::leads(&launch, host).await else { return Ok(launch) };
    let paths = shelf::paths(context)?;
    match Trust::new(&paths.home, &paths.project).judge(further, &Once::default(), None).0 {
        Verdict::Trusted(further) => Ok(further),
        Verdict::Ask(_) | Verdict::Denied(_) => Ok(launch),
    }
}

fn plan(file: &PackFile) -> Option<LaunchPlan> {
    match file.parsed()?.pack.filter(|pack| pack.enabled)?.body {
        PackBody::Launch(plan) => Some(plan),
        PackBody::Nothing => None,
    }
}

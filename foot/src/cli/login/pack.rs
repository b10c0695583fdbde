//! A login to a pack's server (OAuth), in the person's browser. The running Foot finds it by itself.

use std::sync::Arc;

use serde_json::json;
use vance_mcp_host::HostEnv;
use vance_mcp_host::auth::{self, AuthFault, OnAuthorize, OnDeviceCode};
use vance_shared::gate::{Once, TrustedLaunch, Verdict};
use vance_shared::launch::{LaunchPlan, Origin};
use vance_shared::names::PackName;
use vance_shared::pack::PackBody;
use vance_shared::show::plain;

use crate::cli::context::Context;
use crate::cli::failure::{EXIT_OK, Failure};
use crate::cli::packs::shelf::{self, PackFile};
use crate::trust::Trust;

/// Logs in, or forgets a login.
pub(super) async fn login(context: &mut Context, pack: &PackName, forget: bool, device: bool) -> Result<u8, Failure> {
    let launch = launch(context, pack)?;
    let paths = shelf::paths(context)?;
    let program = |why: std::io::Error| Failure::Foot(format!("this program's own file cannot be told: {why}"));
    let env = HostEnv {
        state_dir: paths.state.clone(),
        logins_dir: paths.state.clone(),
        vault: None,
        project_dir: Some(paths.project.clone()),
        guard_program: context.environment.program.clone().map_or_else(std::env::current_exe, Ok).map_err(program)?,
        client_name: "vancetope".to_owned(),
        sandbox: None,
    };
    if forget {
        let was = auth::logout(&launch, &env).await.map_err(fault)?;
        let word = if was { "the login is forgotten" } else { "there was no login" };
        if context.screen.json {
            context.screen.value(&json!({"pack": pack, "forgotten": was}))?;
        } else {
            context.screen.line(&format!("{pack}: {word}"))?;
        }
        return Ok(EXIT_OK);
    }
    let (stage, other) = (context.screen.stage().clone(), context.screen.stage().clone());
    let open: OnAuthorize = Arc::new(move |pack, address| {
        stage.remark(&format!("to log in to '{pack}', open in a browser on this machine: {}", plain(address)));
    });
    let show: OnDeviceCode = Arc::new(move |pack, code| other.remark(&code.invitation(pack)));
    let login = async {
        match device {
            true => auth::login_by_device(&launch, &env, show).await,
            false => auth::login(&launch, &env, open).await,
        }
    };
    let login = tokio::select! {
        login = login => login.map_err(fault)?,
        _ = context.interrupts.next() => return Err(Failure::Foot("interrupted, so nobody is logged in".to_owned())),
    };
    let seconds = login.expires_in.map(|left| left.as_secs());
    let screen = &mut context.screen;
    if screen.json {
        screen.value(&json!({
            "pack": pack, "issuer": login.issuer, "scopes": login.scopes, "expires_in_seconds": seconds, "renewable": login.renewable,
        }))?;
        return Ok(EXIT_OK);
    }
    let by = login.issuer.map(|issuer| format!(" by {}", plain(&issuer))).unwrap_or_default();
    screen.line(&format!("{pack}: logged in{by}"))?;
    if let (Some(seconds), false) = (seconds, login.renewable) {
        screen.remark(&format!("it lasts {seconds} s and does not renew itself"));
    }
    Ok(EXIT_OK)
}

/// The pack that counts, if it may be reached at all.
fn launch(context: &Context, name: &PackName) -> Result<TrustedLaunch, Failure> {
    let paths = shelf::paths(context)?;
    let files = shelf::both(&paths, !context.general.no_local)?;
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

fn plan(file: &PackFile) -> Option<LaunchPlan> {
    match file.parsed()?.pack.filter(|pack| pack.enabled)?.body {
        PackBody::Mcp(plan) => Some(plan),
        PackBody::RestApi | PackBody::Nothing => None,
    }
}

fn fault(fault: AuthFault) -> Failure {
    let code = match &fault {
        AuthFault::TakesNone { .. } => "takes_no_login",
        AuthFault::Refused(_) => "login_refused",
        AuthFault::TimedOut => "login_timed_out",
        AuthFault::NeedsLogin { .. }
        | AuthFault::Busy
        | AuthFault::Store(_)
        | AuthFault::Server(_)
        | AuthFault::Pack(_) => "login_failed",
    };
    Failure::Call { code: code.to_owned(), message: plain(&fault.to_string()) }
}

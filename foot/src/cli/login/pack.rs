//! A login to a pack's server (OAuth), in the person's browser. The running Foot finds it by itself.

use std::sync::Arc;

use serde_json::json;
use vance_mcp_host::auth::{self, AuthFault, OnAuthorize, OnDeviceCode};
use vance_shared::names::PackName;
use vance_shared::show::plain;

use crate::cli::context::Context;
use crate::cli::failure::{EXIT_OK, Failure};
use crate::cli::packs::launch::{host, launch};

/// Logs in, or forgets a login.
pub(super) async fn login(context: &mut Context, pack: &PackName, forget: bool, device: bool) -> Result<u8, Failure> {
    let launch = launch(context, pack)?;
    let env = host(context)?;
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

fn fault(fault: AuthFault) -> Failure {
    let code = match &fault {
        AuthFault::TakesNone { .. } => "takes_no_login",
        AuthFault::Refused(_) => "login_refused",
        AuthFault::TimedOut => "login_timed_out",
        AuthFault::NeedsLogin { .. }
        | AuthFault::NeedsScope { .. }
        | AuthFault::StillRefused { .. }
        | AuthFault::Busy
        | AuthFault::Store(_)
        | AuthFault::Server(_)
        | AuthFault::Pack(_) => "login_failed",
    };
    Failure::Call { code: code.to_owned(), message: plain(&fault.to_string()) }
}

//! `vance-brain oauth login`: a login to the server of a pack, kept in the vault. A running Brain finds it by itself.

use std::io;
use std::sync::Arc;

use serde_json::{Value, json};
use vance_mcp_host::HostEnv;
use vance_mcp_host::auth::{self, AuthFault, LoggedIn, OnAuthorize, OnDeviceCode};
use vance_shared::launch::TrustedLaunch;
use vance_shared::pack::PackBody;
use vance_shared::show::{plain, quoted};

use super::args::{LoginArgs, OAuthCommand};
use super::{EXIT_FAILED, EXIT_OK, EXIT_USAGE, Screen, home, said};
use crate::home::Home;
use crate::secrets::Vault;

/// Why there is no login.
enum Failure {
    Usage(String),
    Login(AuthFault),
}

pub(super) async fn run(json: bool, command: OAuthCommand) -> u8 {
    let OAuthCommand::Login(args) = command;
    let home = match home(args.home.home.clone()) {
        Ok(home) => home,
        Err(error) => return said(json, "home", &error.to_string(), &Value::Null, EXIT_FAILED),
    };
    match login(&home, &args).await {
        Ok(done) => {
            let (mut out, mut remarks) = (io::stdout().lock(), io::stderr().lock());
            let mut screen = Screen { out: &mut out, remarks: &mut remarks, json };
            super::written(done.say(&args.pack, &mut screen))
        }
        Err(Failure::Usage(why)) => said(json, "usage", &why, &Value::Null, EXIT_USAGE),
        Err(Failure::Login(fault)) => said(json, code(&fault), &fault.to_string(), &Value::Null, EXIT_FAILED),
    }
}

enum Done {
    In(LoggedIn),
    Forgotten(bool),
}

async fn login(home: &Home, args: &LoginArgs) -> Result<Done, Failure> {
    let launch = launch(home, &args.pack)?;
    let env = HostEnv {
        state_dir: home.brain(),
        logins_dir: home.brain(),
        vault: Some(Arc::new(Vault::new(&home.data()))),
        packs_dir: home.brain().join("packs"),
        read_file: None,
        project_dir: None,
        guard_program: std::env::current_exe().unwrap_or_else(|_| "vance-brain".into()),
        client_name: "vance-brain".to_owned(),
        sandbox: None,
    };
    if args.forget {
        return auth::logout(&launch, &env).await.map(Done::Forgotten).map_err(Failure::Login);
    }
    let done = if args.device {
        let show: OnDeviceCode = Arc::new(|pack, code| remark(&code.invitation(pack)));
        auth::login_by_device(&launch, &env, show).await
    } else {
        let open: OnAuthorize = Arc::new(|pack, address| {
            remark(&format!("to log in to '{pack}', open in a browser on this machine: {}", plain(address)));
        });
        auth::login(&launch, &env, open).await
    };
    done.map(Done::In).map_err(Failure::Login)
}

/// On standard error: the result is the other stream's.
#[allow(clippy::print_stderr)] // a person reads it while the login waits
fn remark(text: &str) {
    eprintln!("{text}");
}

/// The pack's server, as the Brain would start it.
fn launch(home: &Home, name: &str) -> Result<TrustedLaunch, Failure> {
    let loaded = crate::home::load(home);
    let pack = loaded.packs.into_iter().find(|pack| pack.name.as_str() == name && pack.enabled);
    let Some(pack) = pack else {
        let folder = plain(&home.packs().display().to_string());
        let why = format!(
            "there is no server pack {} that is on in {folder}; `vance-brain check` says what is wrong with files",
            quoted(name, 80)
        );
        return Err(Failure::Usage(why));
    };
    match pack.body {
        PackBody::Launch(plan) => TrustedLaunch::own_home(plan).map_err(|refusal| Failure::Usage(refusal.to_string())),
        PackBody::Nothing => Err(Failure::Usage(format!("the pack {} has no MCP server", quoted(name, 80)))),
    }
}

impl Done {
    fn say(&self, pack: &str, screen: &mut Screen<'_>) -> io::Result<u8> {
        match self {
            Self::Forgotten(was) if screen.json => {
                screen.line(&json!({ "pack": pack, "forgotten": was }).to_string())?;
            }
            Self::Forgotten(true) => screen.line(&format!("{pack}: the login is forgotten"))?,
            Self::Forgotten(false) => screen.line(&format!("{pack}: there was no login"))?,
            Self::In(login) => {
                let seconds = login.expires_in.map(|left| left.as_secs());
                if screen.json {
                    let body = json!({
                        "pack": pack, "issuer": login.issuer, "scopes": login.scopes, "expires_in_seconds": seconds,
                        "renewable": login.renewable,
                    });
                    screen.line(&body.to_string())?;
                } else {
                    let by = login.issuer.as_deref().map(|issuer| format!(" by {}", plain(issuer))).unwrap_or_default();
                    screen.line(&format!("{pack}: logged in{by}"))?;
                    if let (Some(seconds), false) = (seconds, login.renewable) {
                        screen.remark(&format!("it lasts {seconds} s and does not renew itself"))?;
                    }
                }
            }
        }
        Ok(EXIT_OK)
    }
}

fn code(fault: &AuthFault) -> &'static str {
    match fault {
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
    }
}

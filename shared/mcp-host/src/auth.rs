//! Logins: tokens of servers that want OAuth (RFC 6749, 7636, 8414, 8707, 9728 as MCP puts them together).
//!
//! What a token is good for is the server's address, so it is kept under pack *and* address: a pack that is redirected does not take its tokens along.
//! The protocol is the SDK's; ours are the store, the browser's way back, one renewal at a time over all processes, and where requests may go.

mod callback;
mod client;
mod session;
mod store;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use vance_shared::launch::{Auth, LaunchPlan, OAuth, Origin, Transport, TrustedLaunch};
use vance_shared::names::PackName;
use vance_shared::show::plain;

use crate::handle::HostEnv;
use crate::{env, http};

pub(crate) use client::{HttpClient, HttpError, is_unauthorized};
pub(crate) use session::Session;
pub(crate) use store::Store;

/// A person has this long to log in.
pub const LOGIN_WAIT: Duration = Duration::from_secs(300);
/// Characters of an authorization server's words that are worth showing.
const SHOWN_CHARS: usize = 300;

/// Brings a person to an address: opens a browser, or shows the address. Quick, and never blocking.
pub type OnAuthorize = Arc<dyn Fn(&PackName, &str) + Send + Sync>;

/// What a person does to log in from another machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceCode {
    /// Where to go.
    pub address: String,
    /// What to type there.
    pub code: String,
    /// The address that knows the code already, if there is one.
    pub direct: Option<String>,
}

impl DeviceCode {
    /// What to tell the person, safe to print.
    pub fn invitation(&self, pack: &PackName) -> String {
        let (address, code) = (plain(&self.address), plain(&self.code));
        let direct = self.direct.as_deref().map(|direct| format!(" (or open {})", plain(direct))).unwrap_or_default();
        format!("to log in to '{pack}', open {address} on any machine and enter the code {code}{direct}")
    }
}

/// Shows a code to a person. Quick, and never blocking.
pub type OnDeviceCode = Arc<dyn Fn(&PackName, &DeviceCode) + Send + Sync>;

/// How a person is brought to the login.
enum Way {
    /// By a browser that comes back to this machine.
    Browser(OnAuthorize),
    /// By a code that is typed on any machine.
    Device(OnDeviceCode),
}

/// Why there is no token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuthFault {
    /// Somebody has to log in.
    #[error("needs a login: run `{command} {pack}`")]
    NeedsLogin {
        /// The program's command.
        command: &'static str,
        /// The pack.
        pack: PackName,
    },
    /// What there is does not suffice, and a login like it would not either.
    #[error(
        "the server wants the scope {scope} besides: add it to `scopes` in the pack's `auth`, then run `{command} {pack}`"
    )]
    NeedsScope {
        /// What it wants, safe to print.
        scope: String,
        /// The program's command.
        command: &'static str,
        /// The pack.
        pack: PackName,
    },
    /// A token that was given a moment ago is no good.
    #[error(
        "the server refuses a token that is new (HTTP 401): it may be for another account or another address; run `{command} {pack}` as somebody who may use it"
    )]
    StillRefused {
        /// The program's command.
        command: &'static str,
        /// The pack.
        pack: PackName,
    },
    /// The pack does not take a login.
    #[error("pack '{pack}' takes no login: {why}")]
    TakesNone {
        /// The pack.
        pack: PackName,
        /// Its way to authorize.
        why: &'static str,
    },
    /// The person or the authorization server said no.
    #[error("the login was refused: {0}")]
    Refused(String),
    /// Nobody came back from the browser.
    #[error("nobody logged in within {} s", LOGIN_WAIT.as_secs())]
    TimedOut,
    /// Another process is at it.
    #[error("another process is logging in or renewing the token; try again in a moment")]
    Busy,
    /// The token's file.
    #[error("the token store: {0}")]
    Store(String),
    /// Discovery, registration, an exchange.
    #[error("authorization failed: {0}")]
    Server(String),
    /// The pack itself.
    #[error("{0}")]
    Pack(String),
}

/// A login that worked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedIn {
    /// Who gave the token.
    pub issuer: Option<String>,
    /// What it is good for.
    pub scopes: Vec<String>,
    /// How long it lasts if it is not renewed.
    pub expires_in: Option<Duration>,
    /// It renews itself.
    pub renewable: bool,
}

/// Logs in, whether or not there is a token: asks the server for its authorization server, brings a person there, waits for the answer and keeps the token.
/// Running hosts find it by themselves.
pub async fn login(launch: &TrustedLaunch, host: &HostEnv, open: OnAuthorize) -> Result<LoggedIn, AuthFault> {
    login_by(launch, host, Way::Browser(open)).await
}

/// The same for a machine that the person's browser does not reach, where the authorization server offers device codes.
pub async fn login_by_device(
    launch: &TrustedLaunch,
    host: &HostEnv,
    show: OnDeviceCode,
) -> Result<LoggedIn, AuthFault> {
    login_by(launch, host, Way::Device(show)).await
}

async fn login_by(launch: &TrustedLaunch, host: &HostEnv, way: Way) -> Result<LoggedIn, AuthFault> {
    let plan = launch.plan();
    let Transport::Http { url, headers, auth, tls } = &plan.transport else {
        return Err(AuthFault::TakesNone { pack: plan.pack.clone(), why: "its server is a program here" });
    };
    let none = |why| AuthFault::TakesNone { pack: plan.pack.clone(), why };
    match auth {
        Auth::IfAsked | Auth::OAuth(_) => {}
        Auth::Constant => return Err(none("its credentials are in its file, or its `auth` is none")),
        Auth::Basic { .. } => return Err(none("it has a user and a password")),
    }
    let endpoint = http::endpoint(url, headers, auth, host.words(&env::ambient())).map_err(AuthFault::Pack)?;
    let client = http::client(tls, host.project_dir.as_deref()).map_err(AuthFault::Pack)?;
    let open = match &way {
        Way::Browser(open) => Some(open.clone()),
        Way::Device(_) => None,
    };
    let session = Session::of(plan, host, &endpoint.url, open)?.ok_or_else(|| none("its `auth` is none"))?;
    let challenge = client::challenge(&client, &endpoint).await?;
    match way {
        Way::Browser(_) => session.login(&challenge).await,
        Way::Device(show) => session.login_by_device(&challenge, &show).await,
    }
}

/// Forgets a login. False: there was none.
pub async fn logout(launch: &TrustedLaunch, host: &HostEnv) -> Result<bool, AuthFault> {
    let plan = launch.plan();
    let Transport::Http { url, headers, auth, .. } = &plan.transport else { return Ok(false) };
    let endpoint = http::endpoint(url, headers, auth, host.words(&env::ambient())).map_err(AuthFault::Pack)?;
    let store = Store::new(host, &plan.pack, &endpoint.url);
    let _held = store.lock().await?;
    store.remove()
}

/// What the plan says of OAuth, with its variables expanded; none where it excludes it.
fn oauth_of(plan: &LaunchPlan, host: &HostEnv) -> Result<Option<OAuth>, AuthFault> {
    let Transport::Http { auth, .. } = &plan.transport else { return Ok(None) };
    let mut oauth = match auth {
        Auth::IfAsked => OAuth::default(),
        Auth::OAuth(oauth) => oauth.clone(),
        Auth::Constant | Auth::Basic { .. } => return Ok(None),
    };
    let ambient = env::ambient();
    for (field, place) in [(&mut oauth.client_id, "clientId"), (&mut oauth.client_secret, "clientSecret")] {
        if let Some(text) = field {
            *text =
                env::expand(text, place, host.words(&ambient)).map_err(|error| AuthFault::Pack(error.to_string()))?;
        }
    }
    Ok(Some(oauth))
}

/// The command that logs in to a pack of this origin.
fn command(origin: Origin) -> &'static str {
    match origin {
        Origin::Global | Origin::Project => "vancetope login",
        Origin::Server => "vance-brain oauth login",
    }
}

/// Foreign words, made safe to show.
fn shown(words: &str) -> String {
    plain(&words.chars().take(SHOWN_CHARS).collect::<String>())
}

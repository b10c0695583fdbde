//! What a pack wants to start, as one value: reach, prompt and spawn all come from it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value};

pub mod rest;

pub use crate::gate::{NeedsConsent, TrustedLaunch};
use crate::names::PackName;
use crate::tool::Replay;

/// Who wrote the pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The user's own home, on the Foot.
    Global,
    /// The Brain's own home.
    Server,
    /// The working directory: content of whatever was cloned.
    Project,
}

/// What stands behind a pack, and how it is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(clippy::large_enum_variant)] // there are at most 128 plans
pub enum Transport {
    /// A child process that speaks on stdin and stdout.
    Stdio {
        /// Program and arguments, never a shell line.
        argv: Vec<String>,
        /// Working directory; `None` is a private empty one.
        cwd: Option<String>,
        /// Added to the allow-listed environment; values may hold `${env:NAME}`.
        env: BTreeMap<String, String>,
    },
    /// Streamable HTTP.
    Http {
        /// The endpoint; behind its `?` it may hold `${env:NAME}` (a key that the server wants in the query).
        url: String,
        /// Constant headers (a bearer token or a key included); values may hold `${env:NAME}`.
        headers: BTreeMap<String, String>,
        /// Credentials that are more than a constant header.
        auth: Auth,
        /// Whom to believe, and what to show them.
        tls: Tls,
    },
    /// No MCP server: an HTTP API that an OpenAPI document describes.
    Rest(Box<rest::RestPlan>),
}

impl Transport {
    /// A server behind an address, without anything special.
    pub fn http(url: impl Into<String>) -> Self {
        Self::Http { url: url.into(), headers: BTreeMap::new(), auth: Auth::default(), tls: Tls::default() }
    }
}

/// How a client shows who it is, where a constant header (see [`Transport::Http`]) does not say it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Auth {
    /// The pack says nothing: a login is used if there was one, and asked for if the server wants one.
    #[default]
    IfAsked,
    /// Nothing but what `headers` and `url` hold, whatever the server asks for.
    Constant,
    /// User and password; both may hold `${env:NAME}` and are encoded after that.
    Basic {
        /// The user's name, without a colon.
        user: String,
        /// The password.
        password: String,
    },
    /// A token from an authorization server.
    OAuth(OAuth),
}

impl Auth {
    /// Its word, where it is more than a constant header.
    pub fn kind(&self) -> Option<&'static str> {
        match self {
            Self::IfAsked | Self::Constant => None,
            Self::Basic { .. } => Some("basic"),
            Self::OAuth(_) => Some("oauth2"),
        }
    }
}

/// How tokens are got. `client_id` and `client_secret` may hold `${env:NAME}`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OAuth {
    /// By whose right.
    pub grant: Grant,
    /// A client that is registered already; without it we register ourselves where the server lets us.
    pub client_id: Option<String>,
    /// Its secret.
    pub client_secret: Option<String>,
    /// The address of a client metadata document, for servers that take one instead of a registration.
    pub client_metadata_url: Option<String>,
    /// What to ask for; empty: what the server says.
    pub scopes: Vec<String>,
    /// The authorization server where it is known. Its host may be a private one, as the pack names it literally.
    pub issuer: Option<String>,
    /// The token endpoint where nothing is to be discovered; for [`Grant::ClientCredentials`].
    pub token_url: Option<String>,
    /// The port of the answer's address, for clients that are registered with a fixed one.
    pub callback_port: Option<u16>,
}

/// By whose right a client gets its tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Grant {
    /// A person's, who logs in with a browser.
    #[default]
    AuthorizationCode,
    /// Its own.
    ClientCredentials,
}

/// TLS beyond the system's certificates. Paths are absolute or begin with `~/`; those of a project's pack may be relative to the project.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// Certificates (PEM) that are believed besides the system's.
    pub ca_file: Option<String>,
    /// Our certificate (PEM), with its key unless `client_key_file` holds that.
    pub client_cert_file: Option<String>,
    /// The key (PEM) of our certificate.
    pub client_key_file: Option<String>,
    /// Nothing is verified. Never in a project's pack.
    pub insecure: bool,
}

impl Tls {
    /// The files that it names, in the order of the fields.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        [&self.ca_file, &self.client_cert_file, &self.client_key_file].into_iter().flatten().map(String::as_str)
    }
}

/// Restarts within a window before the server counts as failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartBudget {
    /// At most this many…
    pub max_restarts: u32,
    /// …within this time.
    pub within: Duration,
}

impl Default for RestartBudget {
    /// A crash-loop is told from a bad day: five restarts a minute.
    fn default() -> Self {
        Self { max_restarts: 5, within: Duration::from_secs(60) }
    }
}

/// Everything that starting one pack takes, made once from its bytes.
#[derive(Debug, Clone, PartialEq)]
pub struct LaunchPlan {
    /// The pack.
    pub pack: PackName,
    /// Who wrote it.
    pub origin: Origin,
    /// What is started or reached.
    pub transport: Transport,
    /// Until the server has answered its handshake and listed its tools, or the document was read.
    pub init_timeout: Duration,
    /// One call's default deadline.
    pub call_timeout: Duration,
    /// The pack's labels.
    pub labels: Vec<String>,
    /// Sub-tools that are not offered.
    pub disabled_sub_tools: Vec<String>,
    /// Arguments that are added where the tool's schema declares the key and the caller did not give it.
    pub default_args: Map<String, Value>,
    /// Replay class by sub-tool: the pack's own word.
    pub replay: BTreeMap<String, Replay>,
    /// How often it may crash.
    pub restart: RestartBudget,
    /// The file that says all this.
    pub source: Source,
}

/// What the gate has to know of the pack file besides the plan. The default is that of a plan without a file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Source {
    /// The file, as its reader named it.
    pub file: String,
    /// The whole pack as canonical JSON (sorted keys), unknown fields included, `enabled` left out: what a digest is made of.
    pub canonical: String,
    /// The last part of the url's query is a credential of `auth`, not a part of the address.
    pub credential_in_query: bool,
}

//! What a `rest_api` pack says, as one value. Texts may hold `${env:NAME}`; they are expanded after consent.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::{LaunchPlan, Origin, RestartBudget, Source, Tls, Transport};
use crate::names::PackName;

/// Fetching a document takes 30 s at most, reading a large one some more.
const INIT_TIMEOUT: Duration = Duration::from_secs(60);
/// All attempts of one call together.
const MAX_CALL: Duration = Duration::from_secs(24 * 3600);

/// Where the OpenAPI document is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spec {
    /// An https address (http only on this machine).
    Url(String),
    /// A path, relative to the pack file.
    File(String),
    /// The document itself, as a value or as JSON or YAML text.
    Inline(Value),
}

/// How a client shows who it is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RestAuth {
    /// Not at all.
    #[default]
    None,
    /// One constant header.
    Header {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// One part of the query.
    Query {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
    },
    /// User and password, encoded after expansion.
    Basic {
        /// The user's name.
        user: String,
        /// The password.
        password: String,
    },
    /// A token for every call of the pack.
    OAuth(RestOAuth),
    /// By the names of the document's security schemes.
    Schemes(BTreeMap<String, Credential>),
}

impl RestAuth {
    /// Its word.
    pub fn kind(&self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Header { .. } => Some("header"),
            Self::Query { .. } => Some("query"),
            Self::Basic { .. } => Some("basic"),
            Self::OAuth(_) => Some("oauth2"),
            Self::Schemes(_) => Some("schemes"),
        }
    }

    /// All its texts by name: what it sends, and where it asks for tokens.
    pub fn texts(&self) -> Vec<(String, String)> {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        match self {
            Self::None => Vec::new(),
            Self::Header { name, value } | Self::Query { name, value } => {
                vec![pair("name", name), pair("value", value)]
            }
            Self::Basic { user, password } => vec![pair("user", user), pair("password", password)],
            Self::OAuth(oauth) => oauth.texts(),
            Self::Schemes(schemes) => {
                let all = schemes.iter().flat_map(|(scheme, credential)| {
                    credential.texts().into_iter().map(move |(name, value)| (format!("{scheme}.{name}"), value))
                });
                all.collect()
            }
        }
    }
}

impl Credential {
    fn texts(&self) -> Vec<(String, String)> {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        match self {
            Self::Value(value) => vec![pair("value", value)],
            Self::Token(token) => vec![pair("token", token)],
            Self::Basic { user, password } => vec![pair("user", user), pair("password", password)],
            Self::OAuth(oauth) => oauth.texts(),
        }
    }
}

impl RestOAuth {
    fn texts(&self) -> Vec<(String, String)> {
        let Self { client_id, client_secret, scopes, token_url, refresh_token } = self;
        let one = |name: &str, value: &Option<String>| value.clone().map(|value| (name.to_owned(), value));
        let mut all = vec![("clientId".to_owned(), client_id.clone())];
        all.extend(one("clientSecret", client_secret));
        all.extend(one("tokenUrl", token_url));
        all.extend(one("refreshToken", refresh_token));
        all.extend(scopes.iter().map(|scope| ("scope".to_owned(), scope.clone())));
        all
    }
}

/// What one security scheme is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credential {
    /// The key of an `apiKey` scheme, or what follows the scheme's name in `Authorization`.
    Value(String),
    /// A bearer token.
    Token(String),
    /// User and password.
    Basic {
        /// The user's name.
        user: String,
        /// The password.
        password: String,
    },
    /// A token is asked for.
    OAuth(RestOAuth),
}

/// How tokens are got: with a refresh token if there is one, else with the client's own credentials.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RestOAuth {
    /// The client.
    pub client_id: String,
    /// Its secret.
    pub client_secret: Option<String>,
    /// What to ask for; empty: what the document's requirement says.
    pub scopes: Vec<String>,
    /// The token endpoint; without it the document's.
    pub token_url: Option<String>,
    /// A refresh token.
    pub refresh_token: Option<String>,
}

/// What becomes of deprecated operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Deprecated {
    /// They are offered, marked.
    #[default]
    Label,
    /// They are left out.
    Skip,
}

/// How a pack's operations are offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Exposure {
    /// One tool each, unless they are too many.
    #[default]
    Auto,
    /// One tool each.
    Tools,
    /// Three tools: search, describe, call.
    Search,
}

/// What becomes of `$ref` in the tools' schemas.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Refs {
    /// They point into `$defs`.
    #[default]
    Defs,
    /// They are replaced by what they point at; a schema within itself ends open.
    Inline,
}

/// When a request is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// Attempts after the first.
    pub max: u32,
    /// The longest wait before an attempt; a server that wants more gets no other attempt.
    pub max_wait: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { max: 2, max_wait: Duration::from_secs(20) }
    }
}

/// Everything that a `rest_api` pack says, made once from the pack's bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RestPlan {
    /// The pack.
    pub pack: PackName,
    /// Who wrote it.
    pub origin: Origin,
    /// The document.
    pub spec: Spec,
    /// What the document's bytes must hash to, in lower-case hex.
    pub spec_sha256: Option<String>,
    /// Wins over every `servers` of the document.
    pub base_url: Option<String>,
    /// The base that a document of this machine gives, as whoever read it found: nobody has to fetch anything to show it. Of a fetched document
    /// the base that leads to another origin than the pack names, once a person is asked about that.
    pub document_base: Option<String>,
    /// Where single operations of a fetched document go beside its base, as origins, and a person said yes to that.
    pub document_hosts: Vec<String>,
    /// Values for `{name}` in the document's servers.
    pub server_variables: BTreeMap<String, String>,
    /// Hosts besides the base's that the document's servers may name: `host`, `host:port` or an origin. None: the pack says nothing.
    pub allowed_hosts: Option<Vec<String>>,
    /// Who we are.
    pub auth: RestAuth,
    /// Constant headers.
    pub headers: BTreeMap<String, String>,
    /// Patterns of the operations that are offered; empty: all.
    pub include: Vec<String>,
    /// Patterns of the operations that are left out in any case.
    pub exclude: Vec<String>,
    /// Patterns of the operations whose requests carry the call's id as `Idempotency-Key` although the document does not say so.
    pub idempotency_key: Vec<String>,
    /// Labels by method (upper case), in place of the usual ones.
    pub method_labels: BTreeMap<String, Vec<String>>,
    /// Labels by operation id or tool name, in place of the method's.
    pub label_overrides: BTreeMap<String, Vec<String>>,
    /// Whether a tool is only found by search, by operation id or tool name.
    pub deferred_overrides: BTreeMap<String, bool>,
    /// Sub-tool names by operation id.
    pub name_overrides: BTreeMap<String, String>,
    /// Deprecated operations.
    pub deprecated: Deprecated,
    /// One tool an operation, or three for all.
    pub exposure: Exposure,
    /// The largest schema of one tool.
    pub max_schema_bytes: usize,
    /// References in schemas.
    pub refs: Refs,
    /// One attempt.
    pub timeout: Duration,
    /// Until a connection stands.
    pub connect_timeout: Duration,
    /// Further attempts.
    pub retry: Retry,
    /// Requests at the same time.
    pub concurrency: usize,
    /// Bytes of an answer that are read.
    pub max_response_bytes: usize,
    /// Bytes of an answer that a model sees.
    pub max_result_bytes: usize,
    /// Whom to believe, and what to show them.
    pub tls: Tls,
    /// Unencrypted bases besides this machine's.
    pub allow_insecure_http: bool,
    /// Private addresses that the base does not name literally.
    pub allow_private_network: bool,
    /// The pack's labels.
    pub labels: Vec<String>,
    /// Sub-tools that are not offered.
    pub disabled_sub_tools: Vec<String>,
    /// The file that says all this.
    pub source: Source,
}

impl RestPlan {
    /// A pack that names its document and leaves everything else as it is by default.
    pub fn new(pack: PackName, origin: Origin, spec: Spec) -> Self {
        Self {
            pack,
            origin,
            spec,
            spec_sha256: None,
            base_url: None,
            document_base: None,
            document_hosts: Vec::new(),
            server_variables: BTreeMap::new(),
            allowed_hosts: None,
            auth: RestAuth::None,
            headers: BTreeMap::new(),
            include: Vec::new(),
            exclude: Vec::new(),
            idempotency_key: Vec::new(),
            method_labels: BTreeMap::new(),
            label_overrides: BTreeMap::new(),
            deferred_overrides: BTreeMap::new(),
            name_overrides: BTreeMap::new(),
            deprecated: Deprecated::default(),
            exposure: Exposure::default(),
            max_schema_bytes: 32 * 1024,
            refs: Refs::default(),
            timeout: Duration::from_secs(30),
            connect_timeout: Duration::from_secs(10),
            retry: Retry::default(),
            concurrency: 4,
            max_response_bytes: 10 * 1024 * 1024,
            max_result_bytes: 48 * 1024,
            tls: Tls::default(),
            allow_insecure_http: false,
            allow_private_network: origin != Origin::Project,
            labels: Vec::new(),
            disabled_sub_tools: Vec::new(),
            source: Source::default(),
        }
    }

    /// Where requests go, as far as the pack itself says: its own base, that of its document if it has it, else where the document is.
    pub fn reach_base(&self) -> Option<&str> {
        let origin = match &self.spec {
            Spec::Url(url) => url.split_once("://").map(|(scheme, rest)| {
                let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
                &url[..scheme.len() + "://".len() + end]
            }),
            Spec::File(_) | Spec::Inline(_) => None,
        };
        self.base_url.as_deref().or(self.document_base.as_deref()).or(origin)
    }

    /// Where a fetched document leads that the pack itself does not name: its base, then origins.
    pub fn leads(&self) -> Vec<&str> {
        match self.spec {
            Spec::Url(_) => self.document_base.iter().chain(&self.document_hosts).map(String::as_str).collect(),
            Spec::File(_) | Spec::Inline(_) => Vec::new(),
        }
    }

    /// The plan to launch it with.
    pub fn launch(self) -> LaunchPlan {
        let tries = self.retry.max.saturating_add(1);
        let waits = self.retry.max_wait.saturating_mul(self.retry.max);
        LaunchPlan {
            pack: self.pack.clone(),
            origin: self.origin,
            init_timeout: INIT_TIMEOUT,
            call_timeout: self.timeout.saturating_mul(tries).saturating_add(waits).min(MAX_CALL),
            labels: self.labels.clone(),
            disabled_sub_tools: self.disabled_sub_tools.clone(),
            default_args: serde_json::Map::new(),
            replay: BTreeMap::new(),
            restart: RestartBudget::default(),
            source: self.source.clone(),
            transport: Transport::Rest(Box::new(self)),
        }
    }
}

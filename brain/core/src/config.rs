//! `brain.yaml`: how this Brain listens, stores and reaches out. Everything is optional.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use vance_shared::doc::{Fields, Problem, Problems, read_yaml, ticked};
use vance_shared::{limits, secrets};

/// Tasks that run at once: each may hold a call and its result in memory.
const MAX_PARALLEL_TASKS: u64 = 16;

/// The Brain's settings.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct BrainConfig {
    /// `HOST:PORT`.
    pub listen: Option<String>,
    /// `sqlite:`.
    pub store: Option<String>,
    /// Further values of the `Host` header that are answered.
    pub allowed_hosts: Vec<String>,
    /// Listen beyond loopback without TLS.
    pub allow_insecure: bool,
    /// Certificate and key of the Brain's own TLS.
    pub tls: Option<TlsFiles>,
    /// Where spans go.
    pub otlp: Option<String>,
    /// Times and limits.
    pub defaults: Defaults,
    /// Model providers by name.
    pub providers: BTreeMap<String, Provider>,
    /// Who answers `web_search`.
    pub web_search: Option<WebSearch>,
    /// What `http_fetch` may reach.
    pub http_fetch: HttpFetch,
}

/// Files in PEM. Relative paths begin in the Brain's folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, then those of its issuers.
    pub cert: String,
    /// Its private key.
    pub key: String,
}

/// Times and limits that hold unless a tool or task says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Defaults {
    /// Between the loss of a client and its tools leaving the session.
    pub grace: Duration,
    /// A call's deadline.
    pub call_timeout: Duration,
    /// How long a question in the middle of a call waits for a person.
    pub answer_within: Duration,
    /// Tasks that run at once.
    pub max_parallel_tasks: usize,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            grace: limits::GRACE,
            call_timeout: limits::CALL_TIMEOUT,
            answer_within: limits::ANSWER_WITHIN,
            max_parallel_tasks: MAX_PARALLEL_TASKS as usize,
        }
    }
}

/// One model provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// `openai`, `anthropic`, …
    pub kind: String,
    /// Another address than the provider's own.
    pub base_url: Option<String>,
    /// The credential.
    pub api_key: Option<Secret>,
}

/// Whose JSON `web_search` speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebSearchKind {
    /// A SearXNG instance with its JSON format switched on.
    Searxng,
    /// Brave's Search API.
    Brave,
}

/// Who answers `web_search`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebSearch {
    /// Whose JSON.
    pub kind: WebSearchKind,
    /// The instance; for Brave only if it is not Brave's own.
    pub base_url: Option<String>,
    /// The credential; Brave needs one.
    pub api_key: Option<Secret>,
}

/// What `http_fetch` may reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HttpFetch {
    /// Also private and loopback addresses.
    pub allow_private: bool,
}

/// A credential as written: the text itself, one `${env:NAME}` or one `{{secret:NAME}}`. Never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Takes a text; a reference must stand alone.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("empty, expected the key, ${env:NAME} or {{secret:NAME}}".to_owned());
        }
        let secret = Self(text.to_owned());
        let named = secrets::names(text).map_err(|bad| bad.to_string())?;
        if !named.is_empty() && !secret.secret().is_some_and(secrets::is_name) {
            return Err("expected {{secret:NAME}} alone, with a name of [A-Za-z0-9_.-]".to_owned());
        }
        let good = |name: &str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if text.contains("${") && !secret.variable().is_some_and(good) {
            return Err("expected the key itself or ${env:NAME} alone".to_owned());
        }
        Ok(secret)
    }

    /// The credential; the lookups give a variable's and a secret's value. The error names what is missing, never a value.
    pub fn resolve(
        &self,
        lookup: impl FnOnce(&str) -> Option<String>,
        vault: impl FnOnce(&str) -> Result<String, String>,
    ) -> Result<String, String> {
        if let Some(name) = self.secret() {
            return vault(name);
        }
        match self.variable() {
            None => Ok(self.0.clone()),
            Some(name) => match lookup(name) {
                Some(value) if !value.is_empty() => Ok(value),
                Some(_) | None => Err(format!("environment variable {name} is not set")),
            },
        }
    }

    /// The secret that it names.
    pub fn secret(&self) -> Option<&str> {
        self.0.strip_prefix(secrets::OPEN)?.strip_suffix(secrets::CLOSE)
    }

    fn variable(&self) -> Option<&str> {
        self.0.strip_prefix("${env:")?.strip_suffix('}')
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// Reads the settings. An empty file is all defaults.
pub fn parse_config(file: &str, text: &str) -> Result<BrainConfig, Vec<Problem>> {
    let problems = Problems::new(file);
    let Some(node) = read_yaml(text, &problems) else { return Err(problems.into_list()) };
    if node.is_null() {
        return problems.into_result(Some(BrainConfig::default()));
    }
    let config = Fields::of(&node, "the configuration", &problems).map(config);
    problems.into_result(config)
}

fn config(mut fields: Fields<'_>) -> BrainConfig {
    let allowed_hosts = fields.take_strs("allowed_hosts", "a list such as [brain.example.com]").unwrap_or_default();
    for (host, line) in &allowed_hosts {
        if host.is_empty() || !host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._:[]".contains(&b)) {
            let shown = vance_shared::show::quoted(host, 80);
            fields.problems().add(
                *line,
                format!("`allowed_hosts` holds {shown}, expected a host name, with its port if it has one"),
            );
        }
    }
    let config = BrainConfig {
        listen: fields.take_parsed("listen", check_listen),
        store: fields.take_parsed("store", check_store),
        allowed_hosts: allowed_hosts.into_iter().map(|(host, _)| host.to_owned()).collect(),
        allow_insecure: fields.take_bool("allow_insecure").unwrap_or(false),
        tls: tls(&mut fields),
        otlp: fields.take_parsed("otlp", check_url),
        defaults: defaults(&mut fields),
        providers: providers(&mut fields),
        web_search: web_search(&mut fields),
        http_fetch: http_fetch(&mut fields),
    };
    fields.finish();
    config
}

fn tls(fields: &mut Fields<'_>) -> Option<TlsFiles> {
    let mut inner = fields.take_fields("tls")?;
    inner.require("cert", "a file with the certificate in PEM");
    inner.require("key", "a file with its private key in PEM");
    let file =
        |text: &str| if text.is_empty() { Err("empty, expected a file".to_owned()) } else { Ok(text.to_owned()) };
    let (cert, key) = (inner.take_parsed("cert", file), inner.take_parsed("key", file));
    inner.finish();
    Some(TlsFiles { cert: cert?, key: key? })
}

fn defaults(fields: &mut Fields<'_>) -> Defaults {
    let mut defaults = Defaults::default();
    let Some(mut inner) = fields.take_fields("defaults") else { return defaults };
    if let Some(grace) = inner.take_duration("grace") {
        defaults.grace = grace;
    }
    if let Some(timeout) = inner.take_timeout("call_timeout") {
        defaults.call_timeout = timeout;
    }
    if let Some(within) = inner.take_timeout("answer_within") {
        defaults.answer_within = within;
    }
    if let Some(tasks) = inner.take_u64("max_parallel_tasks", 1..=10_000).and_then(|n| usize::try_from(n).ok()) {
        defaults.max_parallel_tasks = tasks;
    }
    inner.finish();
    defaults
}

fn providers(fields: &mut Fields<'_>) -> BTreeMap<String, Provider> {
    let mut providers = BTreeMap::new();
    for entry in fields.take_map("providers", "names and providers").unwrap_or_default() {
        let what = format!("the provider {}", ticked(&entry.key));
        let Some(mut inner) = Fields::of(&entry.value, what, fields.problems()) else { continue };
        inner.require("kind", "a kind such as openai");
        let kind = inner.take_str("kind").map(str::to_owned);
        let base_url = inner.take_parsed("base_url", check_url);
        let api_key = inner.take_parsed("api_key", Secret::parse);
        inner.finish();
        if let Some(kind) = kind {
            providers.insert(entry.key.clone(), Provider { kind, base_url, api_key });
        }
    }
    providers
}

fn web_search(fields: &mut Fields<'_>) -> Option<WebSearch> {
    let mut inner = fields.take_fields("web_search")?;
    inner.require("kind", "searxng or brave");
    let kind = inner.take_enum("kind", &[("searxng", WebSearchKind::Searxng), ("brave", WebSearchKind::Brave)]);
    let base_url = inner.take_parsed("base_url", check_url);
    let api_key = inner.take_parsed("api_key", Secret::parse);
    match kind {
        Some(WebSearchKind::Searxng) => {
            inner.require("base_url", "the instance's address such as http://localhost:8080")
        }
        Some(WebSearchKind::Brave) => inner.require("api_key", "a key such as ${env:BRAVE_API_KEY}"),
        None => {}
    }
    inner.finish();
    Some(WebSearch { kind: kind?, base_url, api_key })
}

fn http_fetch(fields: &mut Fields<'_>) -> HttpFetch {
    let Some(mut inner) = fields.take_fields("http_fetch") else { return HttpFetch::default() };
    let allow_private = inner.take_bool("allow_private").unwrap_or(false);
    inner.finish();
    HttpFetch { allow_private }
}

/// A name would be looked up, and could then be any machine's: an IP address, or `localhost`.
fn check_listen(text: &str) -> Result<String, String> {
    let port = text.strip_prefix("localhost:").is_some_and(|port| port.parse::<u16>().is_ok());
    match port || text.parse::<std::net::SocketAddr>().is_ok() {
        true => Ok(text.to_owned()),
        false => {
            Err(format!("{} is no address, expected one such as 127.0.0.1:9990", vance_shared::show::quoted(text, 80)))
        }
    }
}

/// What is refused is not repeated: a database's address may carry a password.
fn check_store(text: &str) -> Result<String, String> {
    match text {
        "sqlite" | "sqlite:" => Ok(text.to_owned()),
        _ => Err("this release keeps events in SQLite, in the Brain's data folder; expected sqlite:".to_owned()),
    }
}

fn check_url(text: &str) -> Result<String, String> {
    let rest = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
    let host = rest.map(|r| r.split(['/', '?', '#']).next().unwrap_or_default());
    match host {
        Some(host) if host.contains('@') => Err("user names and passwords have no place in an address".to_owned()),
        Some(host) if !host.is_empty() && text.chars().all(|c| c.is_ascii_graphic()) => Ok(text.to_owned()),
        Some(_) | None => Err(format!(
            "{} is no address, expected one such as https://example.com",
            vance_shared::show::quoted(text, 80)
        )),
    }
}

#[cfg(test)]
mod tests;

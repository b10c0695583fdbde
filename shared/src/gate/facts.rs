//! What there is to say about a pack beyond its command: as lines for the prompt, and for the difference to what was allowed before.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;

use super::{FileHash, Project, quote};
use crate::launch::{Auth, LaunchPlan, Tls, Transport};
use crate::tool::Replay;

/// Variables that decide what code runs or whom it talks to, in lower case; `*` is any end.
const CHANGES_WHAT_RUNS: &[&str] = &[
    "ld_*",
    "dyld_*",
    "path",
    "pathext",
    "home",
    "shell",
    "env",
    "ifs",
    "bash_env",
    "bash_func*",
    "ps4",
    "shellopts",
    "bashopts",
    "zdotdir",
    "fpath",
    "terminfo",
    "makeflags",
    "gnumakeflags",
    "mflags",
    "ts_node_*",
    "tsx_*",
    "babel_*",
    "julia_*",
    "erl_*",
    "elixir_*",
    "kubeconfig",
    "chrome_path",
    "puppeteer_*",
    "playwright_*",
    "mise_*",
    "asdf_*",
    "prompt_command",
    "node_*",
    "npm_*",
    "yarn_*",
    "pnpm_*",
    "bun_*",
    "deno_*",
    "corepack_*",
    "python*",
    "pip_*",
    "uv_*",
    "poetry_*",
    "virtual_env",
    "conda_*",
    "perl*",
    "ruby*",
    "gem_*",
    "bundle_*",
    "java_*",
    "_java_options",
    "jdk_*",
    "classpath",
    "maven_*",
    "gradle_*",
    "dotnet_*",
    "cor_*",
    "coreclr_*",
    "goflags",
    "gopath",
    "goroot",
    "goproxy",
    "gotoolchain",
    "goenv",
    "gowork",
    "gonosumdb",
    "gonosumcheck",
    "goprivate",
    "goinsecure",
    "cgo_*",
    "cargo_*",
    "rustc*",
    "rustdoc*",
    "rustflags",
    "rustup_*",
    "lua_*",
    "php*",
    "r_profile*",
    "r_environ*",
    "r_libs*",
    "git_*",
    "ssh_*",
    "docker_*",
    "editor",
    "visual",
    "pager",
    "browser",
    "less*",
    "manpager",
    "gconv_path",
    "locpath",
    "openssl_*",
    "ssl_*",
    "xdg_*",
    "http_proxy",
    "https_proxy",
    "all_proxy",
];
/// Of these the ones that people set for other reasons and that change nothing of the kind.
const HARMLESS: [&str; 10] = [
    "node_env",
    "pythonunbuffered",
    "pythonioencoding",
    "pythonutf8",
    "pythondontwritebytecode",
    "git_author_name",
    "git_author_email",
    "git_committer_name",
    "git_committer_email",
    "lesscharset",
];

/// Whether a variable can change which code a program runs, or whom it talks to: marked in the prompt, and files in its value are hashed.
pub fn changes_what_runs(variable: &str) -> bool {
    let name = variable.to_ascii_lowercase();
    let known = CHANGES_WHAT_RUNS.iter().any(|known| match known.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *known,
    });
    known && !HARMLESS.contains(&name.as_str())
}

/// Names of the user's variables whose values the pack would get: never the values.
pub fn sends(plan: &LaunchPlan) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut note = |text: &str| references(text, &mut names);
    match &plan.transport {
        Transport::Stdio { argv: _, cwd: _, env } => env.values().for_each(|value| note(value)),
        Transport::Http { url, headers, auth, tls: _ } => {
            note(url);
            headers.values().for_each(|value| note(value));
            credentials(auth).iter().for_each(|(_, value)| note(value));
        }
        Transport::Rest(plan) => {
            plan.base_url.iter().for_each(|url| note(url));
            plan.headers.values().for_each(|value| note(value));
            plan.auth.texts().iter().for_each(|(_, value)| note(value));
        }
    }
    plan.default_args.values().for_each(|value| texts(value, &mut note));
    names
}

fn references(text: &str, names: &mut BTreeSet<String>) {
    for part in text.split("${env:").skip(1) {
        if let Some((name, _)) = part.split_once('}') {
            names.insert(name.to_owned());
        }
    }
}

fn texts(value: &Value, note: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => note(text),
        Value::Array(items) => items.iter().for_each(|item| texts(item, note)),
        Value::Object(fields) => fields.values().for_each(|field| texts(field, note)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The texts of an `auth` with their names.
pub(super) fn credentials(auth: &Auth) -> Vec<(&'static str, String)> {
    match auth {
        Auth::IfAsked | Auth::Constant => Vec::new(),
        Auth::Basic { user, password } => vec![("user", user.clone()), ("password", password.clone())],
        Auth::OAuth(oauth) => {
            let one = |name, value: &Option<String>| value.clone().map(|value| (name, value));
            let mut all: Vec<_> = [
                one("clientId", &oauth.client_id),
                one("clientSecret", &oauth.client_secret),
                one("clientMetadataUrl", &oauth.client_metadata_url),
                one("issuer", &oauth.issuer),
                one("tokenUrl", &oauth.token_url),
                one("callbackPort", &oauth.callback_port.map(|port| port.to_string())),
            ]
            .into_iter()
            .flatten()
            .collect();
            all.extend(oauth.scopes.iter().map(|scope| ("scope", scope.clone())));
            all
        }
    }
}

/// What a prompt shows and an entry remembers beside the reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Facts {
    /// Variables that the pack sets.
    pub(super) env: BTreeMap<String, String>,
    /// Headers that it sends.
    pub(super) headers: BTreeMap<String, String>,
    /// How it logs in, and TLS settings.
    pub(super) access: BTreeMap<String, String>,
    /// Variables of the user's that it gets.
    pub(super) sends: BTreeSet<String>,
    /// Its own choice of a directory.
    pub(super) cwd: Option<String>,
    /// Local files with their hashes; those of the project are relative to it.
    pub(super) files: BTreeMap<String, String>,
    /// Arguments that it adds to calls, as JSON.
    pub(super) args: BTreeMap<String, String>,
    /// Which of its tools are repeated how; a project's pack cannot call one safe, so this only narrows.
    pub(super) replay: BTreeMap<String, String>,
    /// Words to select its tools by. Not in the prompt, which stays three lines for a pack that has nothing else; a change of them is said.
    pub(super) labels: BTreeSet<String>,
    /// Where its fetched document leads that the pack does not name.
    pub(super) leads: BTreeSet<String>,
}

impl Facts {
    pub(super) fn of(plan: &LaunchPlan, project: &Project, files: &[FileHash]) -> Self {
        let word = |replay: &Replay| match replay {
            Replay::Safe => "safe".to_owned(),
            Replay::Unsafe => "unsafe".to_owned(),
        };
        let mut facts = Self {
            sends: sends(plan),
            args: plan.default_args.iter().map(|(key, value)| (key.clone(), value.to_string())).collect(),
            replay: plan.replay.iter().map(|(tool, replay)| (tool.clone(), word(replay))).collect(),
            labels: plan.labels.iter().cloned().collect(),
            ..Self::default()
        };
        match &plan.transport {
            Transport::Stdio { argv: _, cwd, env } => {
                facts.cwd.clone_from(cwd);
                facts.env.clone_from(env);
            }
            Transport::Http { url: _, headers, auth, tls } => {
                facts.headers.clone_from(headers);
                facts.access = access(auth.kind(), credentials(auth), tls);
            }
            Transport::Rest(plan) => {
                facts.headers.clone_from(&plan.headers);
                facts.access = access(plan.auth.kind(), plan.auth.texts(), &plan.tls);
                let hosts = plan.allowed_hosts.iter().flatten().enumerate();
                facts.access.extend(hosts.map(|(at, host)| (format!("allowedHosts.{at}"), host.clone())));
                facts.leads = plan.leads().into_iter().map(str::to_owned).collect();
            }
        }
        for FileHash { path, sha256 } in files {
            facts.files.insert(file_name(path, project), sha256.to_string());
        }
        facts
    }

    /// Nothing beyond a command or an address.
    pub(super) fn is_plain(&self) -> bool {
        let Self { env, headers, access, sends, cwd, files, args, replay: _, labels: _, leads: _ } = self;
        let project_file = files.keys().any(|file| !Path::new(file).is_absolute());
        [env, headers, access, args].into_iter().all(BTreeMap::is_empty)
            && sends.is_empty()
            && cwd.is_none()
            && !project_file
    }

    /// One line each, for the difference between two.
    pub(super) fn lines(&self) -> Vec<String> {
        let Self { env, headers, access, sends, cwd, files, args, replay, labels, leads } = self;
        let mut lines: Vec<String> = cwd.iter().map(|cwd| format!("cwd {}", quote(cwd))).collect();
        lines.extend(env.iter().map(|(name, value)| format!("env {}", assignment(name, value))));
        lines.extend(headers.iter().map(|(name, value)| format!("header {}", assignment(name, value))));
        lines.extend(access.iter().map(|(name, value)| format!("access {}", assignment(name, value))));
        lines.extend(sends.iter().map(|name| format!("sends ${}", crate::show::ascii(name))));
        lines.extend(files.iter().map(|(file, hash)| format!("file {} {}", quote(file), crate::show::ascii(hash))));
        lines.extend(args.iter().map(|(key, value)| format!("argument {}", assignment(key, value))));
        lines.extend(replay.iter().map(|(tool, word)| format!("replay {}", assignment(tool, word))));
        lines.extend(labels.iter().map(|label| format!("label {}", quote(label))));
        lines.extend(leads.iter().map(|lead| format!("document leads to {}", quote(lead))));
        lines
    }
}

/// `NAME=value`, quoted as the command is.
pub(super) fn assignment(name: &str, value: &str) -> String {
    format!("{}={}", quote(name), quote(value))
}

fn access(
    kind: Option<&'static str>,
    credentials: Vec<(impl std::fmt::Display, String)>,
    tls: &Tls,
) -> BTreeMap<String, String> {
    let mut access: BTreeMap<String, String> = BTreeMap::new();
    if let Some(kind) = kind {
        access.insert("auth".to_owned(), kind.to_owned());
        for (name, value) in credentials {
            let slot = access.entry(format!("auth.{name}")).or_default();
            let comma = if slot.is_empty() { "" } else { " " };
            *slot = format!("{slot}{comma}{value}");
        }
    }
    let Tls { ca_file, client_cert_file, client_key_file, insecure } = tls;
    for (name, file) in
        [("tls.caFile", ca_file), ("tls.clientCertFile", client_cert_file), ("tls.clientKeyFile", client_key_file)]
    {
        if let Some(file) = file {
            access.insert(name.to_owned(), file.clone());
        }
    }
    if *insecure {
        access.insert("tls.insecure".to_owned(), "true".to_owned());
    }
    access
}

fn file_name(path: &Path, project: &Project) -> String {
    path.strip_prefix(project.dir()).unwrap_or(path).to_string_lossy().into_owned()
}

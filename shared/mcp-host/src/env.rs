//! The environment of a child: an allow-list of ours, then the pack's own words. Nothing else is inherited.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use vance_shared::launch::Origin;

/// What every child may see, besides `LC_*`: who and where it is, and how the network is reached here.
const ALLOWED: &[&str] = &[
    "HOME",
    "LANG",
    "TZ",
    "TMPDIR",
    "TERM",
    "USER",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "all_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
];
/// Only for packs of the user's own home: whoever holds it can log in as the user.
const AGENT: &str = "SSH_AUTH_SOCK";
/// Where there is no PATH at all.
const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// Names that belong to the product: its own settings and secrets, not a pack's to read or write.
const OWN_PREFIX: &str = "VANCE_";
/// Tells a child which project it works for; its working directory does not.
pub const PROJECT_DIR: &str = "VANCE_PROJECT_DIR";

/// What is wrong with a pack's `env`, headers or arguments.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvError {
    /// `${env:NAME}` without a value here.
    #[error("environment variable {name} is not set (named by '{}')", vance_shared::show::plain(place))]
    Unset {
        /// The variable.
        name: String,
        /// The key that names it.
        place: String,
    },
    /// `${env:VANCE_…}`.
    #[error("'{}' names {name}: VANCE_* is not available to packs", vance_shared::show::plain(place))]
    Own {
        /// The variable.
        name: String,
        /// The key that names it.
        place: String,
    },
    /// `${env:` without its end, or with a name that is none.
    #[error("'{}' has a malformed reference, expected ${{env:NAME}}", vance_shared::show::plain(place))]
    Malformed {
        /// The key.
        place: String,
    },
    /// A variable that decides what runs.
    #[error("a pack may not set {}: {why}", vance_shared::show::plain(name))]
    Forbidden {
        /// The variable.
        name: String,
        /// The reason.
        why: &'static str,
    },
}

/// The variables of this process.
pub fn ambient() -> BTreeMap<OsString, OsString> {
    std::env::vars_os().collect()
}

/// The allow-listed part of `ambient`, the project's folder, and the pack's `env` with its references expanded.
pub fn child_env(
    ambient: &BTreeMap<OsString, OsString>,
    origin: Origin,
    pack_env: &BTreeMap<String, String>,
    project_dir: Option<&Path>,
) -> Result<BTreeMap<OsString, OsString>, EnvError> {
    let mut env: BTreeMap<OsString, OsString> = ambient
        .iter()
        .filter(|(name, _)| name.to_str().is_some_and(|name| is_allowed(name, origin)))
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    env.insert("PATH".into(), clean_path(ambient.get(OsStr::new("PATH")).map(OsString::as_os_str)));
    if let Some(dir) = project_dir {
        env.insert(PROJECT_DIR.into(), dir.into());
    }
    for (name, value) in pack_env {
        check_name(name, origin)?;
        env.insert(name.into(), expand(value, name, ambient)?.into());
    }
    Ok(env)
}

fn is_allowed(name: &str, origin: Origin) -> bool {
    ALLOWED.contains(&name) || name.starts_with("LC_") || (name == AGENT && origin == Origin::Global)
}

/// PATH without empty and relative entries.
pub fn clean_path(path: Option<&OsStr>) -> OsString {
    let entries = std::env::split_paths(path.unwrap_or_default()).filter(|entry| entry.is_absolute());
    match std::env::join_paths(entries) {
        Ok(path) if !path.is_empty() => path,
        _ => DEFAULT_PATH.into(),
    }
}

fn check_name(name: &str, origin: Origin) -> Result<(), EnvError> {
    let forbidden = |why| Err(EnvError::Forbidden { name: name.to_owned(), why });
    if !is_name(name) {
        return forbidden("a name is one or more of [A-Za-z0-9_] and does not start with a digit");
    }
    if name == "PATH" {
        return forbidden("write the program as a path instead");
    }
    if name.starts_with(OWN_PREFIX) {
        return forbidden("VANCE_* belongs to Vancetope");
    }
    if origin == Origin::Project && (name.starts_with("LD_") || name.starts_with("DYLD_")) {
        return forbidden("it loads code into the program, and this pack comes with a project");
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && name.bytes().next().is_some_and(|b| !b.is_ascii_digit())
}

/// Expands every `${env:NAME}` of a text. `place` is the key that holds it, for the message. A variable that is empty counts as not set: an empty credential helps nobody.
pub fn expand(text: &str, place: &str, ambient: &BTreeMap<OsString, OsString>) -> Result<String, EnvError> {
    expand_with(text, place, ambient, str::to_owned)
}

/// Like [`expand`], with each value written as `write` says.
pub fn expand_with(
    text: &str,
    place: &str,
    ambient: &BTreeMap<OsString, OsString>,
    write: impl Fn(&str) -> String,
) -> Result<String, EnvError> {
    const OPEN: &str = "${env:";
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once(OPEN) {
        out.push_str(before);
        let malformed = || EnvError::Malformed { place: place.to_owned() };
        let (name, tail) = after.split_once('}').ok_or_else(malformed)?;
        if !is_name(name) {
            return Err(malformed());
        }
        if name.starts_with(OWN_PREFIX) {
            return Err(EnvError::Own { name: name.to_owned(), place: place.to_owned() });
        }
        let value = ambient.get(OsStr::new(name)).and_then(|value| value.to_str()).filter(|value| !value.is_empty());
        let value = value.ok_or_else(|| EnvError::Unset { name: name.to_owned(), place: place.to_owned() })?;
        out.push_str(&write(value));
        rest = tail;
    }
    out.push_str(rest);
    Ok(out)
}

/// Expands the references in every string of a JSON value.
pub fn expand_json(
    value: &mut serde_json::Value,
    place: &str,
    ambient: &BTreeMap<OsString, OsString>,
) -> Result<(), EnvError> {
    use serde_json::Value;
    match value {
        Value::String(text) => *text = expand(text, place, ambient)?,
        Value::Array(items) => items.iter_mut().try_for_each(|item| expand_json(item, place, ambient))?,
        Value::Object(fields) => fields.values_mut().try_for_each(|field| expand_json(field, place, ambient))?,
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn vars(pairs: &[(&str, &str)]) -> BTreeMap<OsString, OsString> {
        pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    fn pack(name: &str, value: &str) -> BTreeMap<String, String> {
        BTreeMap::from([(name.to_owned(), value.to_owned())])
    }

    #[test]
    fn a_child_sees_the_allow_list_and_its_own_words_only() {
        let ambient = vars(&[
            ("PATH", "/a::b:/c"),
            ("HOME", "/h"),
            ("LC_ALL", "C"),
            ("AWS_SECRET_ACCESS_KEY", "x"),
            ("VANCE_TOKEN", "x"),
            ("SSH_AUTH_SOCK", "/s"),
            ("https_proxy", "p"),
            ("JIRA", "t"),
        ]);
        let env =
            child_env(&ambient, Origin::Global, &pack("TOKEN", "Bearer ${env:JIRA}!"), Some(Path::new("/p"))).unwrap();
        let want = vars(&[
            ("PATH", "/a:/c"),
            ("HOME", "/h"),
            ("LC_ALL", "C"),
            ("SSH_AUTH_SOCK", "/s"),
            ("https_proxy", "p"),
            ("TOKEN", "Bearer t!"),
            ("VANCE_PROJECT_DIR", "/p"),
        ]);
        assert_eq!(env, want);
        for origin in [Origin::Server, Origin::Project] {
            let env = child_env(&ambient, origin, &BTreeMap::new(), None).unwrap();
            assert!(!env.contains_key(OsStr::new("SSH_AUTH_SOCK")), "{origin:?}");
        }
        assert_eq!(clean_path(None), OsString::from(DEFAULT_PATH));
    }

    #[test]
    fn a_pack_cannot_change_what_runs() {
        for (name, origin, ok) in [
            ("PATH", Origin::Global, false),
            ("VANCE_HOME", Origin::Global, false),
            ("LD_PRELOAD", Origin::Global, true),
            ("LD_PRELOAD", Origin::Project, false),
            ("DYLD_INSERT_LIBRARIES", Origin::Project, false),
            ("A=B", Origin::Global, false),
            ("", Origin::Global, false),
            ("1A", Origin::Global, false),
            ("NODE_OPTIONS", Origin::Project, true),
        ] {
            assert_eq!(child_env(&BTreeMap::new(), origin, &pack(name, "x"), None).is_ok(), ok, "{name} {origin:?}");
        }
    }

    #[test]
    fn references_are_expanded_or_named_in_the_error() {
        let ambient = vars(&[("A", "1"), ("EMPTY", ""), ("VANCE_X", "x")]);
        assert_eq!(expand("${env:A}-${env:A}$", "k", &ambient).unwrap(), "1-1$");
        for (text, want) in [
            ("${env:NOPE}", "environment variable NOPE is not set (named by 'k')"),
            ("${env:EMPTY}", "environment variable EMPTY is not set (named by 'k')"),
            ("${env:VANCE_X}", "'k' names VANCE_X: VANCE_* is not available to packs"),
            ("${env:A", "'k' has a malformed reference, expected ${env:NAME}"),
            ("${env:a b}", "'k' has a malformed reference, expected ${env:NAME}"),
        ] {
            assert_eq!(expand(text, "k", &ambient).unwrap_err().to_string(), want);
        }
        let mut value = serde_json::json!({"a": ["${env:A}", 1, null]});
        expand_json(&mut value, "k", &ambient).unwrap();
        assert_eq!(value, serde_json::json!({"a": ["1", 1, null]}));
    }
}

//! The environment of a child: an allow-list of ours, then the pack's own words. Nothing else is inherited.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::Path;

use vance_shared::launch::Origin;
use vance_shared::secrets;

use crate::vault::Vault;

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
/// How a variable's reference starts.
const VARIABLE: &str = "${env:";
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
    /// A reference without its end, or with a name that is none.
    #[error(
        "'{}' has a malformed reference, expected ${{env:NAME}} or {{{{secret:NAME}}}}",
        vance_shared::show::plain(place)
    )]
    Malformed {
        /// The key.
        place: String,
    },
    /// `{{secret:NAME}}` that has no value.
    #[error("{why} (named by '{}')", vance_shared::show::plain(place))]
    Secret {
        /// Which, and what to do.
        why: String,
        /// The key that names it.
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

/// What the references in a pack's texts stand for.
#[derive(Debug, Clone, Copy)]
pub struct Words<'a> {
    variables: &'a BTreeMap<OsString, OsString>,
    vault: Option<&'a dyn Vault>,
}

impl<'a> Words<'a> {
    /// Variables, and secrets where there is a vault.
    pub fn new(variables: &'a BTreeMap<OsString, OsString>, vault: Option<&'a dyn Vault>) -> Self {
        Self { variables, vault }
    }

    fn variable(&self, name: &str, place: &str) -> Result<String, EnvError> {
        if name.starts_with(OWN_PREFIX) {
            return Err(EnvError::Own { name: name.to_owned(), place: place.to_owned() });
        }
        let value = self.variables.get(OsStr::new(name)).and_then(|value| value.to_str());
        let value = value.filter(|value| !value.is_empty());
        value.map(str::to_owned).ok_or_else(|| EnvError::Unset { name: name.to_owned(), place: place.to_owned() })
    }

    fn secret(&self, name: &str, place: &str) -> Result<String, EnvError> {
        let none = || format!("the secret {name} cannot be used: secrets are for the server packs of a Brain");
        let found = self.vault.map_or_else(|| Err(none()), |vault| vault.secret(name));
        found.map_err(|why| EnvError::Secret { why, place: place.to_owned() })
    }
}

impl<'a> From<&'a BTreeMap<OsString, OsString>> for Words<'a> {
    fn from(variables: &'a BTreeMap<OsString, OsString>) -> Self {
        Self::new(variables, None)
    }
}

/// The variables of this process.
pub fn ambient() -> BTreeMap<OsString, OsString> {
    std::env::vars_os().collect()
}

/// The allow-listed part of the variables, the project's folder, and the pack's `env` with its references expanded.
pub fn child_env<'a>(
    words: impl Into<Words<'a>>,
    origin: Origin,
    pack_env: &BTreeMap<String, String>,
    project_dir: Option<&Path>,
) -> Result<BTreeMap<OsString, OsString>, EnvError> {
    let words = words.into();
    let ambient = words.variables;
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
        env.insert(name.into(), expand(value, name, words)?.into());
    }
    Ok(env)
}

/// What every child sees anyway: no secret.
pub(crate) fn is_common(name: &str) -> bool {
    ALLOWED.contains(&name) || name.starts_with("LC_") || name == "PATH" || name == "PWD"
}

/// The variables that a text names.
pub(crate) fn variables(text: &str) -> Vec<&str> {
    let inside = text.split(VARIABLE).skip(1).filter_map(|rest| rest.split_once('}'));
    inside.map(|(name, _)| name).filter(|name| is_name(name)).collect()
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

/// Expands every `${env:NAME}` and `{{secret:NAME}}` of a text. `place` is the key that holds it, for the message. A variable that is empty counts as not set: an empty credential helps nobody.
pub fn expand<'a>(text: &str, place: &str, words: impl Into<Words<'a>>) -> Result<String, EnvError> {
    expand_with(text, place, words, str::to_owned)
}

/// Like [`expand`], with each value written as `write` says. What a value holds is never expanded again.
pub fn expand_with<'a>(
    text: &str,
    place: &str,
    words: impl Into<Words<'a>>,
    write: impl Fn(&str) -> String,
) -> Result<String, EnvError> {
    let words = words.into();
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    loop {
        let malformed = || EnvError::Malformed { place: place.to_owned() };
        let (variable, secret) = (rest.find(VARIABLE), rest.find(secrets::OPEN));
        let first = secret.filter(|at| variable.is_none_or(|other| *at < other));
        let (at, value, tail) = match (first, variable) {
            (None, None) => break,
            (None, Some(at)) => {
                let (name, tail) = rest[at + VARIABLE.len()..].split_once('}').ok_or_else(malformed)?;
                if !is_name(name) {
                    return Err(malformed());
                }
                (at, words.variable(name, place)?, tail)
            }
            (Some(at), _) => {
                let inside = &rest[at + secrets::OPEN.len()..];
                let (name, tail) = inside.split_once(secrets::CLOSE).ok_or_else(malformed)?;
                if !secrets::is_name(name) {
                    return Err(malformed());
                }
                (at, words.secret(name, place)?, tail)
            }
        };
        out.push_str(&rest[..at]);
        out.push_str(&write(&value));
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
            ("${env:A", "'k' has a malformed reference, expected ${env:NAME} or {{secret:NAME}}"),
            ("${env:a b}", "'k' has a malformed reference, expected ${env:NAME} or {{secret:NAME}}"),
        ] {
            assert_eq!(expand(text, "k", &ambient).unwrap_err().to_string(), want);
        }
        let secret = expand("{{secret:S}}", "k", &ambient).unwrap_err().to_string();
        assert_eq!(secret, "the secret S cannot be used: secrets are for the server packs of a Brain (named by 'k')");
        let mut value = serde_json::json!({"a": ["${env:A}", 1, null]});
        expand_json(&mut value, "k", &ambient).unwrap();
        assert_eq!(value, serde_json::json!({"a": ["1", 1, null]}));
    }

    /// Knows one secret, whose value looks like references.
    #[derive(Debug)]
    struct One;

    impl Vault for One {
        fn secret(&self, name: &str) -> Result<String, String> {
            match name {
                "S" => Ok("${env:A}{{secret:S}}".to_owned()),
                _ => Err(format!("the secret {name} is not set")),
            }
        }
        fn login(&self, _: &str) -> Result<Option<String>, String> {
            Ok(None)
        }
        fn keep_login(&self, _: &str, _: &str) -> Result<(), String> {
            Ok(())
        }
        fn forget_login(&self, _: &str) -> Result<bool, String> {
            Ok(false)
        }
        fn login_mark(&self, _: &str) -> u64 {
            0
        }
    }

    #[test]
    fn secrets_are_expanded_beside_variables_and_a_value_is_never_expanded_again() {
        let ambient = vars(&[("A", "1")]);
        let words = Words::new(&ambient, Some(&One));
        for (text, want) in [
            ("{{secret:S}}", Ok("${env:A}{{secret:S}}")),
            ("a${env:A}b{{secret:S}}c${env:A}", Ok("a1b${env:A}{{secret:S}}c1")),
            ("{{secret:S}}${env:A}", Ok("${env:A}{{secret:S}}1")),
            ("{{secret:T}}", Err("the secret T is not set (named by 'k')")),
            ("{{secret:S", Err("'k' has a malformed reference, expected ${env:NAME} or {{secret:NAME}}")),
            ("{{secret:}}", Err("'k' has a malformed reference, expected ${env:NAME} or {{secret:NAME}}")),
        ] {
            let got = expand(text, "k", words).map_err(|error| error.to_string());
            assert_eq!(got.as_deref().map_err(String::as_str), want, "{text}");
        }
    }
}

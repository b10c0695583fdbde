//! `<home>/access.yaml`: the Brain that this home is paired with, and the token for it. The token goes to that Brain and to no other.

use std::fs::DirBuilder;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use reqwest::Url;
use vance_shared::doc::{Fields, Problem, Problems, read_yaml};

use super::args::brain_url;
use crate::api::{Token, is_loopback};
use crate::paths::shown;

/// Name of the file in the home.
const FILE: &str = "access.yaml";
/// Longest file, in bytes: an address and a token.
const MAX_FILE_BYTES: u64 = 16 * 1024;

/// A Brain and the token for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Access {
    /// The Brain's address.
    pub(super) brain: Url,
    /// Its token.
    pub(super) token: Token,
    /// The token may travel unencrypted: the person said so.
    pub(super) allow_insecure: bool,
}

/// Why the file does not count.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoAccess {
    /// It cannot be read.
    #[error("{file}: {why}")]
    File {
        /// Which.
        file: String,
        /// Why.
        why: String,
    },
    /// Somebody else may have written it.
    #[error("{file} is not used: {why}")]
    Unsafe {
        /// Which.
        file: String,
        /// Why.
        why: String,
    },
    /// It has mistakes.
    #[error("{file} has mistakes")]
    Mistakes {
        /// Which.
        file: String,
        /// All of them.
        problems: Vec<Problem>,
    },
}

impl Access {
    /// The file's place.
    pub(super) fn file(home: &Path) -> PathBuf {
        home.join(FILE)
    }

    /// Reads the file, if there is one. One that others may read is made private, with a notice.
    pub(super) fn read(home: &Path) -> Result<Option<Self>, NoAccess> {
        let path = Self::file(home);
        let file = shown(&path);
        let fault = |error: io::Error| NoAccess::File { file: file.clone(), why: error.to_string() };
        let open = match vance_own_file::open_linked(&path) {
            Ok(open) => open,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(fault(error)),
        };
        let meta = open.metadata().map_err(fault)?;
        let me = nix::unistd::geteuid().as_raw();
        let unsafe_ = |why: &str| NoAccess::Unsafe { file: file.clone(), why: why.to_owned() };
        if meta.uid() != me {
            return Err(unsafe_("it belongs to another user"));
        }
        if meta.mode() & 0o022 != 0 {
            return Err(unsafe_("others may write it; look at what it says, then: chmod 600"));
        }
        if meta.mode() & 0o044 != 0 {
            open.set_permissions(std::fs::Permissions::from_mode(0o600)).map_err(fault)?;
            tracing::warn!("NOTICE: {file} could be read by others; it is private now. Consider a new token");
        }
        let mut text = String::new();
        open.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(fault)?;
        parse(&file, &text).map(Some).map_err(|problems| NoAccess::Mistakes { file, problems })
    }

    /// Writes the file, whole, for its owner alone.
    pub(super) fn write(&self, home: &Path) -> io::Result<PathBuf> {
        DirBuilder::new().recursive(true).mode(0o700).create(home)?;
        let path = Self::file(home);
        let text = |text: &str| serde_json::Value::from(text).to_string();
        // JSON's texts are YAML's.
        let mut lines = format!("brain: {}\ntoken: {}\n", text(self.brain.as_str()), text(self.token.reveal()));
        if self.allow_insecure {
            lines.push_str("allowInsecure: true\n");
        }
        vance_own_file::replace(&path, &lines).map(|()| path)
    }

    /// The token, if it is for this Brain and may travel there.
    pub(super) fn token_for(&self, brain: &Url) -> Option<Token> {
        let may = self.allow_insecure || is_encrypted_or_here(brain);
        (may && is_same(&self.brain, brain)).then(|| self.token.clone())
    }
}

/// True if nobody on the way can read along.
pub(super) fn is_encrypted_or_here(brain: &Url) -> bool {
    brain.scheme() == "https" || is_loopback(brain)
}

/// The same door: scheme, host, port and path.
fn is_same(one: &Url, other: &Url) -> bool {
    let door = |url: &Url| {
        let host = url.host_str().unwrap_or_default().to_owned();
        (url.scheme().to_owned(), host, url.port_or_known_default(), url.path().trim_end_matches('/').to_owned())
    };
    door(one) == door(other)
}

fn parse(file: &str, text: &str) -> Result<Access, Vec<Problem>> {
    let problems = Problems::new(file);
    let Some(node) = read_yaml(text, &problems) else { return Err(problems.into_list()) };
    let access = Fields::of(&node, "the file", &problems).and_then(|mut fields| {
        fields.require("brain", "the Brain's address");
        fields.require("token", "the token for it");
        let brain = fields.take_str("brain").and_then(|text| match brain_url(text) {
            Ok(url) => Some(url),
            Err(why) => {
                fields.add("brain", format!("`brain` is no address: {why}"));
                None
            }
        });
        let token = fields.take_str("token").map(Token::new);
        if token.as_ref().is_some_and(|token| token.reveal().is_empty()) {
            fields.add("token", "`token` is empty");
        }
        let allow_insecure = fields.take_bool("allowInsecure").unwrap_or(false);
        fields.finish();
        Some(Access { brain: brain?, token: token?, allow_insecure })
    });
    problems.into_result(access)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).unwrap()
    }

    #[test]
    fn what_is_written_is_read_again_by_its_owner_alone() {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().join("new");
        assert_eq!(Access::read(&home).unwrap(), None);
        for allow_insecure in [false, true] {
            let access = Access { brain: url("https://b.example/x"), token: Token::new("a\"b: #"), allow_insecure };
            let file = access.write(&home).unwrap();
            assert_eq!(Access::read(&home).unwrap(), Some(access));
            let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!((mode(&home), mode(&file)), (0o700, 0o600));
        }
        std::fs::set_permissions(Access::file(&home), std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(Access::read(&home).unwrap().is_some());
        assert_eq!(Access::file(&home).metadata().unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::set_permissions(Access::file(&home), std::fs::Permissions::from_mode(0o620)).unwrap();
        assert!(Access::read(&home).unwrap_err().to_string().contains("others may write it"));
        assert_eq!(std::fs::read_dir(&home).unwrap().count(), 1, "no temporary file stays");
        std::fs::remove_file(Access::file(&home)).unwrap();
        nix::unistd::mkfifo(&Access::file(&home), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(Access::read(&home).unwrap_err().to_string().contains("no regular file"), "a pipe holds up nobody");
    }

    #[test]
    fn a_token_goes_to_its_own_brain_and_no_other() {
        for (stored, asked, insecure, goes) in [
            ("https://b.example", "https://b.example/", false, true),
            ("https://b.example", "https://B.example:443", false, true),
            ("https://b.example/x", "https://b.example/x/", false, true),
            ("https://b.example", "https://b.example/x", false, false),
            ("https://b.example", "https://b.example:444", false, false),
            ("https://b.example", "http://b.example", true, false),
            ("https://b.example", "https://b.example.evil", false, false),
            ("http://b.example", "http://b.example", false, false),
            ("http://b.example", "http://b.example", true, true),
            ("http://127.0.0.1:9990", "http://127.0.0.1:9990", false, true),
            ("http://127.0.0.1:9990", "http://127.0.0.1:9991", false, false),
        ] {
            let access = Access { brain: url(stored), token: Token::new("t"), allow_insecure: insecure };
            assert_eq!(access.token_for(&url(asked)).is_some(), goes, "{stored} {asked} {insecure}");
        }
    }

    #[test]
    fn every_mistake_has_its_line() {
        for (text, line, why) in [
            ("", 1, "expected a mapping"),
            ("brain: https://b\n", 1, "no `token`"),
            ("token: x\nbrain: ftp://b\n", 2, "no address"),
            ("brain: https://b\ntoken: ''\n", 2, "empty"),
            ("brain: https://b\ntoken: x\ntokn: y\n", 3, "unknown field"),
        ] {
            let problems = parse("f", text).unwrap_err();
            assert!(problems.iter().any(|p| p.line == line && p.message.contains(why)), "{text}: {problems:?}");
        }
    }
}

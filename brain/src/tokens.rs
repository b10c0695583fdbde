//! Who may speak to the Brain: bearer tokens, known only by their hashes once they are loaded.
//!
//! The token of this machine is in a file of its own; named ones, with their scopes, are in [`book`]. Each name is a principal of its
//! own, and what a token opened ends with it ([`Principal::revoked`]).

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};
use tokio_util::sync::CancellationToken;
use vance_mcp_host::stamps::Stamps;
use vance_own_file::open_linked;

pub mod book;

use crate::random;
use book::{Record, TokenBook};

/// What every token begins with, so that a leaked one is recognised.
pub const TOKEN_PREFIX: &str = "vbt_";
/// Random bytes of a token: beyond guessing.
const TOKEN_BYTES: usize = 32;
/// Longest text that is looked at as a token.
const MAX_TOKEN_BYTES: usize = 256;
/// A revoked token ends within this time.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// After the file of named tokens could not be read, which is said each time.
const LOOK_AGAIN: Duration = Duration::from_secs(5);
/// The principal of the local token.
pub const LOCAL: &str = "local";

/// What a token lets its bearer do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Attach as a client over the wire.
    Foot,
    /// Use the HTTP API.
    Api,
    /// Use the MCP endpoint.
    Mcp,
    /// Administer.
    Admin,
}

impl Scope {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Foot, Self::Api, Self::Mcp, Self::Admin];

    /// The one with this word.
    pub fn parse(word: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|scope| scope.word() == word);
        found.ok_or_else(|| {
            format!("{} is no scope, expected one of: foot, api, mcp, admin", vance_shared::show::quoted(word, 40))
        })
    }

    /// Its word on the command line and in answers.
    pub fn word(self) -> &'static str {
        match self {
            Self::Foot => "foot",
            Self::Api => "api",
            Self::Mcp => "mcp",
            Self::Admin => "admin",
        }
    }
}

/// Who speaks. Sessions belong to its name.
#[derive(Debug, Clone)]
pub struct Principal {
    /// Unique name.
    pub name: Arc<str>,
    /// What it may do.
    pub scopes: Arc<[Scope]>,
    /// Cancelled when the token is revoked: what it opened ends then.
    pub revoked: CancellationToken,
}

impl Principal {
    /// One whose token is good.
    pub fn new(name: &str, scopes: &[Scope]) -> Self {
        Self { name: name.into(), scopes: scopes.into(), revoked: CancellationToken::new() }
    }

    /// Whether it may.
    pub fn may(&self, scope: Scope) -> bool {
        self.scopes.contains(&scope)
    }
}

/// Why a token could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file.
    #[error("cannot use {}: {source}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It holds something else.
    #[error("{} holds no token: remove it, and the next start makes a new one", .0.display())]
    Malformed(PathBuf),
    /// The operating system gave no randomness.
    #[error(transparent)]
    NoRandomness(#[from] random::NoRandomness),
    /// The file of named tokens is not believed, or cannot be used.
    #[error(transparent)]
    Distrust(#[from] vance_own_file::Distrust),
    /// No name for a token.
    #[error("a token's name is 1 to {max} of [A-Za-z0-9_.-] and not `{LOCAL}`, got {0}", max = book::MAX_NAME_BYTES)]
    BadName(String),
    /// The name is taken.
    #[error("there is a token named {0} already: choose another name, or `vance-brain token revoke {0}` first")]
    Taken(String),
    /// There is none of this name.
    #[error("there is no token named {0}; `vance-brain token list` shows what there is")]
    Unknown(String),
}

/// A token in clear: shows itself only when asked.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// A new one.
    pub fn generate() -> Result<Self, TokenError> {
        let mut bytes = [0u8; TOKEN_BYTES];
        random::fill(&mut bytes)?;
        Ok(Self(format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))))
    }

    /// The text, for the one who is to bear it.
    pub fn reveal(&self) -> &str {
        &self.0
    }

    /// Takes a text that has a token's form.
    fn parse(text: &str) -> Option<Self> {
        let random = URL_SAFE_NO_PAD.decode(text.strip_prefix(TOKEN_PREFIX)?).ok()?;
        (random.len() == TOKEN_BYTES).then(|| Self(text.to_owned()))
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(…)")
    }
}

/// Reads the local token, or makes it (0600) at the first start. A file that others may read is narrowed with a warning.
pub fn local_token(path: &Path) -> Result<Token, TokenError> {
    let io = |source| TokenError::Io { path: path.to_owned(), source };
    // Whatever lies in its place is an error at once: a pipe would hold the start for ever.
    match open_linked(path) {
        Ok(file) => read_token(path, file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let token = Token::generate()?;
            write_token(path, &token).map_err(io)?;
            // Whoever was first has made it: what is in the file counts.
            read_token(path, open_linked(path).map_err(io)?)
        }
        Err(error) => Err(io(error)),
    }
}

fn read_token(path: &Path, file: File) -> Result<Token, TokenError> {
    let io = |source| TokenError::Io { path: path.to_owned(), source };
    let mut permissions = file.metadata().map_err(io)?.permissions();
    if permissions.mode() & 0o077 != 0 {
        tracing::warn!(path = %path.display(), "others could read the local token, narrowed to its owner");
        permissions.set_mode(0o600);
        file.set_permissions(permissions).map_err(io)?;
    }
    let mut text = String::new();
    file.take(MAX_TOKEN_BYTES as u64).read_to_string(&mut text).map_err(io)?;
    Token::parse(text.trim()).ok_or_else(|| TokenError::Malformed(path.to_owned()))
}

/// Writes beside and links into place: the file is there as a whole or not at all, and is never replaced.
fn write_token(path: &Path, token: &Token) -> io::Result<()> {
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    let written = writeln!(file, "{}", token.reveal()).and_then(|()| file.sync_all());
    let linked = written.and_then(|()| match std::fs::hard_link(&beside, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    });
    std::fs::remove_file(&beside).and(linked)
}

/// One token that is good.
#[derive(Debug, Clone)]
struct Known {
    hash: [u8; 32],
    principal: Principal,
}

/// All principals, by the hash of their token. The named ones may change at any time: read by every request, written by whoever
/// follows the file.
#[derive(Debug, Default)]
pub struct Principals {
    fixed: Vec<Known>,
    named: ArcSwap<Vec<Known>>,
    followed: Option<Followed>,
}

/// The file of the named tokens, and how it looked when it was read. Locked while it is read, so that an older state never replaces a newer.
#[derive(Debug)]
struct Followed {
    book: TokenBook,
    seen: Mutex<Option<Stamps>>,
}

/// What a look at the file of the named tokens gave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looked {
    /// Nothing new.
    Same,
    /// It is another one, and is taken.
    Taken,
    /// It could not be read, which may pass.
    Failed,
}

impl Followed {
    fn seen(&self) -> MutexGuard<'_, Option<Stamps>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Principals {
    /// The one of the local token, who may do everything.
    pub fn local(token: &Token) -> Self {
        Self::default().and(token, LOCAL, &Scope::ALL)
    }

    /// One more, for good.
    pub fn and(mut self, token: &Token, name: &str, scopes: &[Scope]) -> Self {
        self.fixed.push(Known { hash: hash(token.reveal()), principal: Principal::new(name, scopes) });
        self
    }

    /// And those of a file: as it is now, and as it will be while somebody [follows](Self::follow) it.
    pub fn following(mut self, book: TokenBook) -> Self {
        self.followed = Some(Followed { book, seen: Mutex::default() });
        self.look();
        self
    }

    /// Looks at the file again and again. Never ends.
    pub async fn follow(self: Arc<Self>) {
        loop {
            match self.look() {
                Looked::Same | Looked::Taken => tokio::time::sleep(LOOK_EVERY).await,
                Looked::Failed => {
                    tokio::time::sleep(LOOK_AGAIN).await;
                    if let Some(followed) = &self.followed {
                        *followed.seen() = None;
                    }
                }
            }
        }
    }

    /// Whose token an `Authorization` header bears that was not known a moment ago: a token works from the moment in which it is made.
    pub fn known_by_now(&self, header: Option<&str>) -> Option<Principal> {
        // Whoever follows the file may have been faster: then there is nothing new to see, and the token is known all the same.
        self.look();
        self.authenticate_header(header)
    }

    fn look(&self) -> Looked {
        let Some(followed) = &self.followed else { return Looked::Same };
        let mut seen = followed.seen();
        let stamps = followed.book.stamps();
        if seen.as_ref() == Some(&stamps) {
            return Looked::Same;
        }
        *seen = Some(stamps);
        if followed.book.show(self) { Looked::Taken } else { Looked::Failed }
    }

    /// Takes the named tokens as they are now. Those that are gone, or have other scopes, are revoked; gives how many these were.
    pub fn take(&self, records: &[Record]) -> usize {
        let before = self.named.load();
        let next: Vec<Known> = records
            .iter()
            .map(|record| {
                let same = |known: &&Known| {
                    known.hash == record.hash
                        && *known.principal.name == *record.name
                        && *known.principal.scopes == *record.scopes
                };
                let kept = before.iter().find(same).cloned();
                kept.unwrap_or_else(|| Known {
                    hash: record.hash,
                    principal: Principal::new(&record.name, &record.scopes),
                })
            })
            .collect();
        let gone =
            |old: &&Known| !next.iter().any(|new| new.hash == old.hash && new.principal.scopes == old.principal.scopes);
        let gone: Vec<Principal> = before.iter().filter(gone).map(|old| old.principal.clone()).collect();
        // First nobody gets in any more, then those who are in are sent out.
        self.named.store(Arc::new(next));
        gone.iter().for_each(|principal| principal.revoked.cancel());
        gone.len()
    }

    /// Whose token it is. Hashes are compared, all of them and in constant time: how long it takes says nothing.
    pub fn authenticate(&self, bearer: &str) -> Option<Principal> {
        if bearer.len() > MAX_TOKEN_BYTES {
            return None;
        }
        let given = hash(bearer);
        let named = self.named.load();
        let mut found = None;
        for known in self.fixed.iter().chain(named.iter()) {
            let same: Choice = known.hash.ct_eq(&given);
            if bool::from(same) {
                found = Some(&known.principal);
            }
        }
        found.cloned()
    }

    /// Whose token an `Authorization` header bears.
    pub fn authenticate_header(&self, header: Option<&str>) -> Option<Principal> {
        let (scheme, token) = header?.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        self.authenticate(token.trim())
    }
}

fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_first_start_makes_the_token_and_later_ones_use_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("local.token");
        let token = local_token(&path).unwrap();
        assert!(token.reveal().starts_with("vbt_") && token.reveal().len() == 4 + 43, "its form");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{}\n", token.reveal()));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(local_token(&path).unwrap(), token);
        assert_ne!(Token::generate().unwrap(), token);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_readable_token_is_narrowed_and_a_broken_one_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("local.token");
        let token = local_token(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(local_token(&path).unwrap(), token);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        for bad in ["", "secret", "vbt_short", "vbt_!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!!"] {
            std::fs::write(&path, bad).unwrap();
            let error = local_token(&path).unwrap_err().to_string();
            assert!(error.contains("local.token holds no token"), "{error}");
            assert!(bad.is_empty() || !error.contains(bad), "{error}");
        }
    }

    #[test]
    fn many_first_starts_at_once_agree_on_one_token() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("local.token");
        let (one, two) = (Token::generate().unwrap(), Token::generate().unwrap());
        write_token(&path, &one).unwrap();
        write_token(&path, &two).unwrap();
        assert_eq!(local_token(&path).unwrap(), one);
    }

    #[test]
    fn a_token_that_left_the_file_is_revoked_and_the_others_do_not_notice() {
        let [one, two] = std::array::from_fn(|_| Token::generate().unwrap());
        let record = |token: &Token, name: &str, scopes: &[Scope]| Record {
            name: name.to_owned(),
            hash: hash(token.reveal()),
            scopes: scopes.to_owned(),
            created_at: String::new(),
        };
        let principals = Principals::local(&Token::generate().unwrap());
        let both = [record(&one, "one", &[Scope::Foot]), record(&two, "two", &[Scope::Api])];
        assert_eq!(principals.take(&both), 0);
        let [a, b] = [&one, &two].map(|token| principals.authenticate(token.reveal()).unwrap());
        assert_eq!(principals.take(&both), 0, "nothing changed");
        assert_eq!(principals.take(&both[1..]), 1);
        assert!(a.revoked.is_cancelled() && principals.authenticate(one.reveal()).is_none());
        assert!(!b.revoked.is_cancelled() && principals.authenticate(two.reveal()).is_some());
        let three = Token::generate().unwrap();
        assert_eq!(principals.take(&[both[1].clone(), record(&three, "one", &[Scope::Foot])]), 0);
        let new = principals.authenticate(three.reveal()).unwrap();
        assert!(&*new.name == "one" && !new.revoked.is_cancelled(), "the same name with a new token");
        assert_eq!(principals.take(&[record(&two, "two", &[Scope::Foot])]), 2);
        assert!(b.revoked.is_cancelled() && new.revoked.is_cancelled());
    }

    #[test]
    fn a_token_works_from_the_moment_in_which_it_is_made() {
        let dir = tempfile::tempdir().unwrap();
        let book = TokenBook::new(dir.path());
        let principals = Principals::local(&Token::generate().unwrap()).following(book.clone());
        let token = book.add("alice", &[Scope::Api], "").unwrap();
        let header = format!("Bearer {}", token.reveal());
        assert!(principals.authenticate_header(Some(&header)).is_none(), "nobody has looked yet");
        assert_eq!(&*principals.known_by_now(Some(&header)).unwrap().name, "alice");
        assert!(principals.authenticate_header(Some(&header)).is_some());
        assert!(principals.known_by_now(Some("Bearer nonsense")).is_none());
    }

    #[test]
    fn a_bearer_is_known_by_the_whole_token_only() {
        let (local, other) = (Token::generate().unwrap(), Token::generate().unwrap());
        let principals = Principals::local(&local).and(&other, "ci", &[Scope::Api]);
        let name = |header: &str| principals.authenticate_header(Some(header)).map(|p| p.name.to_string());
        for (header, want) in [
            (format!("Bearer {}", local.reveal()), Some("local")),
            (format!("bearer  {} ", local.reveal()), Some("local")),
            (format!("Bearer {}", other.reveal()), Some("ci")),
            (format!("Basic {}", local.reveal()), None),
            (format!("Bearer {}x", local.reveal()), None),
            (format!("Bearer {}", &local.reveal()[..20]), None),
            (local.reveal().to_owned(), None),
            ("Bearer ".to_owned(), None),
            (format!("Bearer {}", "x".repeat(10_000)), None),
        ] {
            assert_eq!(name(&header).as_deref(), want, "{header}");
        }
        assert!(principals.authenticate_header(None).is_none());
        let ci = principals.authenticate(other.reveal()).unwrap();
        assert!(ci.may(Scope::Api) && !ci.may(Scope::Admin));
        assert!(!format!("{local:?} {principals:?}").contains(&local.reveal()[4..]));
    }
}

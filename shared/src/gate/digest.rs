//! What consent covers, as one hash: the whole pack, its kind of working directory, and the content of every local file that its command names.

use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use crate::launch::{LaunchPlan, Transport};

/// Tells this hash from every other use of sha256; a new number asks everybody again.
const DOMAIN: &str = "vancetope trust gate 1";
/// The same for a pack with its document.
const LEADS_DOMAIN: &str = "vancetope trust gate document 1";
/// How a digest is written.
const PREFIX: &str = "sha256:";

/// A sha256 of something that somebody consented to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// A text that is no digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("a digest is sha256: and 64 of [0-9a-f], got {0}")]
pub struct BadDigest(String);

impl Digest {
    /// The hash of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Takes `sha256:` and 64 lower-case hex digits, all of them.
    pub fn parse(text: &str) -> Result<Self, BadDigest> {
        let bad = || BadDigest(crate::show::quoted(text, 80));
        let hex = text.strip_prefix(PREFIX).filter(|hex| hex.len() == 64).ok_or_else(bad)?.as_bytes();
        let digit = |b: u8| match b {
            b'0'..=b'9' => Some(b - b'0'),
            b'a'..=b'f' => Some(b - b'a' + 10),
            _ => None,
        };
        let mut out = [0; 32];
        for (byte, pair) in out.iter_mut().zip(hex.chunks_exact(2)) {
            *byte = match pair {
                [high, low] => (digit(*high).ok_or_else(bad)? << 4) | digit(*low).ok_or_else(bad)?,
                _ => return Err(bad()),
            };
        }
        Ok(Self(out))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A local file and what was in it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct FileHash {
    /// The path as [`super::files`] named it.
    pub path: PathBuf,
    /// Its content's hash.
    pub sha256: Digest,
}

impl FileHash {
    /// Hashes what a reader gives. More than [`super::MAX_HASHED_BYTES`] is an error: a file that cannot be hashed cannot be consented to.
    pub fn read(path: impl Into<PathBuf>, content: impl Read) -> io::Result<Self> {
        let mut content = content.take(super::MAX_HASHED_BYTES + 1);
        let (mut hasher, mut buffer, mut total) = (Sha256::new(), vec![0; 64 * 1024], 0);
        loop {
            match content.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => {
                    hasher.update(&buffer[..n]);
                    total += n as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if total > super::MAX_HASHED_BYTES {
            return Err(io::Error::other(format!("more than {} bytes", super::MAX_HASHED_BYTES)));
        }
        Ok(Self { path: path.into(), sha256: Digest(hasher.finalize().into()) })
    }
}

/// The digest of a plan and its files. The files' order does not matter.
pub fn digest(plan: &LaunchPlan, files: &[FileHash]) -> Digest {
    let mut hasher = Sha256::new();
    let mut field = |bytes: &[u8]| {
        hasher.update((bytes.len() as u64).to_be_bytes());
        hasher.update(bytes);
    };
    field(DOMAIN.as_bytes());
    field(plan.source.canonical.as_bytes());
    for word in working_dir(plan) {
        field(word.as_bytes());
    }
    let mut files: Vec<&FileHash> = files.iter().collect();
    files.sort();
    files.dedup();
    field(&(files.len() as u64).to_be_bytes());
    for FileHash { path, sha256 } in files {
        field(path_bytes(path).as_ref());
        field(&sha256.0);
    }
    Digest(hasher.finalize().into())
}

/// The digest of a pack (see [`digest`]) together with where its fetched document leads: another place is another digest.
pub(super) fn leading(pack: Digest, leads: &[&str]) -> Digest {
    let mut hasher = Sha256::new();
    let mut field = |bytes: &[u8]| {
        hasher.update((bytes.len() as u64).to_be_bytes());
        hasher.update(bytes);
    };
    field(LEADS_DOMAIN.as_bytes());
    field(&pack.0);
    leads.iter().for_each(|lead| field(lead.as_bytes()));
    Digest(hasher.finalize().into())
}

/// The kind of working directory, and which.
fn working_dir(plan: &LaunchPlan) -> [&str; 2] {
    match &plan.transport {
        Transport::Stdio { cwd: None, .. } => ["private", ""],
        Transport::Stdio { cwd: Some(cwd), .. } if cwd == "." => ["project", ""],
        Transport::Stdio { cwd: Some(cwd), .. } => ["path", cwd],
        Transport::Http { .. } | Transport::Rest(_) => ["none", ""],
    }
}

#[cfg(unix)]
fn path_bytes(path: &Path) -> std::borrow::Cow<'_, [u8]> {
    std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str()).into()
}

#[cfg(not(unix))]
fn path_bytes(path: &Path) -> std::borrow::Cow<'_, [u8]> {
    path.to_string_lossy().into_owned().into_bytes().into()
}

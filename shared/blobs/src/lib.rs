//! A folder of what is too large to travel, up to so many bytes. One file each: a line of JSON that says what it is, then the bytes.
//!
//! A file comes into being by a rename, so it is there as a whole or not at all; what a killed process left half written is
//! removed at the next start. When there is no room, the oldest that nobody waits for goes. Everything here waits for the
//! disk: not for a thread that must not.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use vance_shared::blob::Kept;
use vance_shared::call::{Fault, Outcome};
use vance_shared::ids::{BlobHandle, CallId, ClientId};

/// Longest first line: a handle, a call id, a media type and a digest, several times over.
const MAX_HEAD_BYTES: u64 = 4 * 1024;

/// What is half written is called so.
const HALF: &str = "half-";

/// Why something is not kept, or not found.
#[derive(Debug, thiserror::Error)]
pub enum BlobFault {
    /// Larger than the whole folder may be.
    #[error("{bytes} bytes are more than the {max_bytes} that are kept in all")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The folder's limit.
        max_bytes: u64,
    },
    /// All room is taken by results that have not been delivered.
    #[error("{max_bytes} bytes are kept already for results that have not been delivered")]
    Full {
        /// The folder's limit.
        max_bytes: u64,
    },
    /// Never kept here, or made room for another.
    #[error("there is no {0} here any more")]
    Gone(BlobHandle),
    /// The file system.
    #[error("{path}: {error}")]
    Io {
        /// The file or folder.
        path: String,
        /// What happened.
        error: io::Error,
    },
}

impl BlobFault {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |error| Self::Io { path: vance_shared::show::plain(&path.to_string_lossy()), error }
    }
}

/// First line of a file.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Head {
    #[serde(flatten)]
    kept: Kept,
    /// The call that gave it.
    call_id: CallId,
    /// The principal who may read it; none: whoever may read what the keeper keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
}

#[derive(Debug)]
struct Entry {
    head: Head,
    /// Of the file, its first line included.
    bytes: u64,
    head_bytes: u64,
    /// Its result is not delivered yet.
    waited_for: bool,
}

#[derive(Debug, Default)]
struct Table {
    /// By handle, which rises with time.
    entries: BTreeMap<BlobHandle, Entry>,
    /// Calls with something here and a result that is not delivered: most calls have nothing here.
    waited_for: HashSet<CallId>,
    bytes: u64,
}

/// A piece of something that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Of what.
    pub kept: Kept,
    /// The principal who may read it, if it is said.
    pub owner: Option<String>,
    /// From the offset that was asked for; shorter at the end.
    pub bytes: Vec<u8>,
}

/// The folder. A lock and not an actor: it is read by requests and written by calls, and none of them waits for another's disk.
#[derive(Debug)]
pub struct Blobs {
    dir: PathBuf,
    max_bytes: u64,
    /// In whose name handles are made; none: the server's.
    client: Option<ClientId>,
    table: Mutex<Table>,
}

impl Blobs {
    /// Opens (or makes) the folder. What is there counts as waited for until [`Blobs::settle`].
    pub fn open(dir: &Path, max_bytes: u64, client: Option<ClientId>) -> Result<Self, BlobFault> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(BlobFault::io(dir))?;
        let mut table = Table::default();
        for found in std::fs::read_dir(dir).map_err(BlobFault::io(dir))? {
            let path = found.map_err(BlobFault::io(dir))?.path();
            match read_head(&path) {
                Ok(Some(entry)) => {
                    table.bytes += entry.bytes;
                    table.waited_for.insert(entry.head.call_id.clone());
                    table.entries.insert(entry.head.kept.handle.clone(), entry);
                }
                Ok(None) => remove(&path),
                Err(error) => tracing::warn!("{}: {error}; it is left alone", path.display()),
            }
        }
        Ok(Self { dir: dir.to_owned(), max_bytes, client, table: Mutex::new(table) })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Of which calls the results are not delivered; those of all others may make room.
    pub fn settle(&self, is_open: impl Fn(&CallId) -> bool) {
        let mut table = self.table();
        for entry in table.entries.values_mut() {
            entry.waited_for = is_open(&entry.head.call_id);
        }
        let waited = table.entries.values().filter(|entry| entry.waited_for);
        table.waited_for = waited.map(|entry| entry.head.call_id.clone()).collect();
    }

    /// A call's result is delivered: what is kept of it may make room.
    pub fn delivered(&self, call_id: &CallId) {
        let mut table = self.table();
        if table.waited_for.remove(call_id) {
            for entry in table.entries.values_mut().filter(|entry| entry.head.call_id == *call_id) {
                entry.waited_for = false;
            }
        }
    }

    /// An outcome as it travels: what is too large of it is kept here. Waited for until [`Blobs::delivered`].
    pub fn within_limits(&self, call_id: &CallId, owner: Option<&str>, outcome: Outcome) -> Outcome {
        let mut kept = Vec::new();
        let small = vance_shared::blob::within_limits(outcome, &mut |bytes, media_type| {
            let new = self.keep(call_id, owner, bytes, media_type).map_err(|error| {
                let text = format!("the tool ran, but its result is too large to travel and is not kept: {error}; ask it for less at a time");
                Fault::new("result_too_large", text)
            })?;
            kept.push(new.handle.clone());
            Ok(new)
        });
        if matches!(small, Outcome::Failed { result: None, .. }) {
            // Of a result that is lost as a whole no part is of use.
            kept.iter().for_each(|handle| self.drop_one(handle));
        }
        small
    }

    /// Keeps bytes, on the disk when it comes back.
    pub fn keep(
        &self,
        call_id: &CallId,
        owner: Option<&str>,
        bytes: &[u8],
        media_type: &str,
    ) -> Result<Kept, BlobFault> {
        let handle = BlobHandle::on(self.client.as_ref());
        let mut sha256 = String::with_capacity(64);
        for byte in Sha256::digest(bytes) {
            // To a string: does not fail.
            write!(sha256, "{byte:02x}").ok();
        }
        let kept = Kept { handle: handle.clone(), size: bytes.len() as u64, media_type: media_type.to_owned(), sha256 };
        let head = Head { kept: kept.clone(), call_id: call_id.clone(), owner: owner.map(str::to_owned) };
        let mut line = serde_json::to_vec(&head).map_err(|e| BlobFault::io(&self.dir)(e.into()))?;
        line.push(b'\n');
        let (head_bytes, whole) = (line.len() as u64, (line.len() + bytes.len()) as u64);
        self.reserve(whole)?;
        let written = self.write(&handle, &line, bytes);
        let mut table = self.table();
        match written {
            Ok(()) => {
                table.waited_for.insert(call_id.clone());
                table.entries.insert(handle, Entry { head, bytes: whole, head_bytes, waited_for: true });
                Ok(kept)
            }
            Err(fault) => {
                table.bytes -= whole;
                Err(fault)
            }
        }
    }

    /// Makes room. What is reserved counts as used.
    fn reserve(&self, bytes: u64) -> Result<(), BlobFault> {
        let max_bytes = self.max_bytes;
        if bytes > max_bytes {
            return Err(BlobFault::TooLarge { bytes, max_bytes });
        }
        let mut table = self.table();
        let mut goes = Vec::new();
        let mut used = table.bytes;
        for (handle, entry) in table.entries.iter().filter(|(_, entry)| !entry.waited_for) {
            if used + bytes <= max_bytes {
                break;
            }
            used -= entry.bytes;
            goes.push(handle.clone());
        }
        if used + bytes > max_bytes {
            return Err(BlobFault::Full { max_bytes });
        }
        for handle in &goes {
            table.entries.remove(handle);
            remove(&self.dir.join(handle.as_str()));
        }
        table.bytes = used + bytes;
        Ok(())
    }

    fn write(&self, handle: &BlobHandle, head: &[u8], bytes: &[u8]) -> Result<(), BlobFault> {
        let (half, whole) = (self.dir.join(format!("{HALF}{handle}")), self.dir.join(handle.as_str()));
        let written = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&half).and_then(|mut file| {
            file.write_all(head)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            std::fs::rename(&half, &whole)?;
            File::open(&self.dir)?.sync_all()
        });
        written.map_err(|error| {
            remove(&half);
            BlobFault::io(&whole)(error)
        })
    }

    fn drop_one(&self, handle: &BlobHandle) {
        let mut table = self.table();
        if let Some(entry) = table.entries.remove(handle) {
            table.bytes -= entry.bytes;
            remove(&self.dir.join(handle.as_str()));
        }
    }

    /// Reads a piece. An offset beyond the end gives none.
    pub fn read(&self, handle: &BlobHandle, offset: u64, length: usize) -> Result<Piece, BlobFault> {
        let gone = || BlobFault::Gone(handle.clone());
        let (head, head_bytes) = {
            let table = self.table();
            let entry = table.entries.get(handle).ok_or_else(gone)?;
            (entry.head.clone(), entry.head_bytes)
        };
        let path = self.dir.join(handle.as_str());
        let left = head.kept.size.saturating_sub(offset);
        let mut bytes = Vec::with_capacity(length.min(usize::try_from(left).unwrap_or(usize::MAX)));
        let read = File::open(&path).and_then(|mut file| {
            file.seek(SeekFrom::Start(head_bytes + offset.min(head.kept.size)))?;
            file.take(length as u64).read_to_end(&mut bytes)
        });
        match read {
            Ok(_) => Ok(Piece { kept: head.kept, owner: head.owner, bytes }),
            // It made room between the two.
            Err(error) if error.kind() == ErrorKind::NotFound => Err(gone()),
            Err(error) => Err(BlobFault::io(&path)(error)),
        }
    }

    /// Bytes on the disk.
    pub fn bytes(&self) -> u64 {
        self.table().bytes
    }
}

/// `None`: half written, or no file of ours that is whole.
fn read_head(path: &Path) -> io::Result<Option<Entry>> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if name.starts_with(HALF) {
        return Ok(None);
    }
    let Ok(handle) = BlobHandle::parse(name) else { return Ok(None) };
    let file = File::open(path)?;
    let bytes = file.metadata()?.len();
    let mut line = Vec::new();
    BufReader::new(file.take(MAX_HEAD_BYTES)).read_until(b'\n', &mut line)?;
    let head_bytes = line.len() as u64;
    let head: Option<Head> = serde_json::from_slice(&line).ok();
    let whole = head.filter(|head| head.kept.handle == handle && head_bytes + head.kept.size == bytes);
    Ok(whole.map(|head| Entry { head, bytes, head_bytes, waited_for: true }))
}

fn remove(path: &Path) {
    if let Err(error) = std::fs::remove_file(path)
        && error.kind() != ErrorKind::NotFound
    {
        tracing::warn!("{}: {error}", path.display());
    }
}

#[cfg(test)]
mod tests;

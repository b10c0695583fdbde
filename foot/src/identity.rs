//! Who this process is: one home is one identity, and each further process of the home takes a numbered slot with an
//! identity and a journal of its own, so that two of them never supersede each other.
//!
//! ```text
//! <home>/state/            0700
//!   client-0/              the first process: lock, client_id, life, journal.db, private working directories
//!   client-1/              a second process beside it (`vancetope run` while a daemon runs)
//!   local-0/               a process without a Brain (`tools list`): never takes an identity away from a Foot
//! ```

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use nix::fcntl::{Flock, FlockArg};
use vance_shared::ids::{ClientId, MAX_ID_BYTES};

use crate::paths::shown;

/// Processes of one home at a time. More than this is a loop that starts them.
const MAX_SLOTS: usize = 64;

/// Longest count of lives, in bytes: a number.
const MAX_LIFE_BYTES: u64 = 64;

/// What a slot is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// A client of a Brain.
    Client,
    /// A run without a Brain.
    Local,
}

/// A held slot. The lock goes with this value, or with the process however it ends.
#[derive(Debug)]
pub struct Slot {
    dir: PathBuf,
    client_id: ClientId,
    is_new: bool,
    life: u64,
    _lock: Flock<File>,
}

/// Why no slot could be taken.
#[derive(Debug, thiserror::Error)]
pub enum NoSlot {
    /// A file or folder could not be made, read or written.
    #[error("{path}: {error}")]
    Io {
        /// Which one.
        path: String,
        /// Why.
        error: io::Error,
    },
    /// Every slot is held.
    #[error("{path}: {MAX_SLOTS} processes use this home already; stop some")]
    Full {
        /// The state folder.
        path: String,
    },
}

impl Slot {
    /// Takes the first free slot of a state folder, and the identity that lives in it.
    pub fn take(state: &Path, for_use: Use) -> Result<Self, NoSlot> {
        make_private(state)?;
        let prefix = match for_use {
            Use::Client => "client",
            Use::Local => "local",
        };
        for n in 0..MAX_SLOTS {
            let dir = state.join(format!("{prefix}-{n}"));
            make_private(&dir)?;
            let path = dir.join("lock");
            let file = vance_own_file::open_with(File::options().read(true).write(true).create(true), &path);
            match Flock::lock(file.map_err(io_at(&path))?, FlockArg::LockExclusiveNonblock) {
                Ok(lock) => {
                    let (client_id, is_new) = client_id(&dir.join("client_id"))?;
                    let life = match for_use {
                        Use::Client => next_life(&dir.join("life"), clock_ms())?,
                        Use::Local => 0,
                    };
                    return Ok(Self { dir, client_id, is_new, life, _lock: lock });
                }
                Err((_, nix::errno::Errno::EWOULDBLOCK)) => {}
                Err((_, errno)) => return Err(io_at(&path)(errno.into())),
            }
        }
        Err(NoSlot::Full { path: shown(state) })
    }

    /// The slot's folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// True if nobody had this identity before.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// Which life of the identity this process is: more than that of each process before it.
    pub fn life(&self) -> u64 {
        self.life
    }

    /// The identity, the same for each process that holds this slot.
    pub fn client_id(&self) -> &ClientId {
        &self.client_id
    }
}

/// The machine's name, for people.
pub fn machine() -> String {
    match nix::unistd::gethostname() {
        Ok(name) => vance_shared::show::plain(&name.to_string_lossy()),
        Err(error) => {
            tracing::debug!(%error, "no host name");
            "unknown".to_owned()
        }
    }
}

fn io_at(path: &Path) -> impl FnOnce(io::Error) -> NoSlot + '_ {
    move |error| NoSlot::Io { path: shown(path), error }
}

fn make_private(dir: &Path) -> Result<(), NoSlot> {
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(io_at(dir))?;
    let mode = dir.metadata().map_err(io_at(dir))?.permissions().mode();
    if mode & 0o077 != 0 {
        std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o700)).map_err(io_at(dir))?;
    }
    Ok(())
}

/// The identity of a slot, and whether it was made just now.
fn client_id(path: &Path) -> Result<(ClientId, bool), NoSlot> {
    let mut text = String::new();
    match vance_own_file::open_linked(path) {
        Ok(file) => {
            file.take(MAX_ID_BYTES as u64 + 1).read_to_string(&mut text).map_err(io_at(path))?;
            match ClientId::parse(text.trim()) {
                Ok(id) => return Ok((id, false)),
                Err(error) => {
                    tracing::warn!("{}: {error}; this Foot gets a new identity", shown(path));
                }
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(io_at(path)(error)),
    }
    let id = ClientId::generate();
    write(path, id.as_str())?;
    Ok((id, true))
}

/// Counts a start, on the disk. Not from one but from the clock: a home that was copied or restored from a backup, started later,
/// is the later life. A clock that went back does not count.
fn next_life(path: &Path, clock_ms: u64) -> Result<u64, NoSlot> {
    let mut text = String::new();
    let read = vance_own_file::open_linked(path).and_then(|file| file.take(MAX_LIFE_BYTES).read_to_string(&mut text));
    let before = match read {
        Ok(_) => text.trim().parse().unwrap_or(0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        // Not text: as good as none.
        Err(error) if error.kind() == io::ErrorKind::InvalidData => 0,
        Err(error) => return Err(io_at(path)(error)),
    };
    let life = clock_ms.max(u64::saturating_add(before, 1));
    write(path, &life.to_string())?;
    Ok(life)
}

fn clock_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// The whole file or the one before it, whenever the machine falls.
fn write(path: &Path, text: &str) -> Result<(), NoSlot> {
    let fresh = path.with_extension("new");
    let written = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh);
    let mut file = written.map_err(io_at(&fresh))?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(io_at(&fresh))?;
    std::fs::rename(&fresh, path).map_err(io_at(path))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_pipe_in_the_place_of_a_file_holds_up_nobody() {
        for name in ["lock", "client_id", "life"] {
            let home = tempfile::tempdir().unwrap();
            drop(Slot::take(home.path(), Use::Client).unwrap());
            let path = home.path().join("client-0").join(name);
            std::fs::remove_file(&path).unwrap();
            nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
            let why = Slot::take(home.path(), Use::Client).unwrap_err().to_string();
            assert!(why.ends_with(&format!("{name}: is no regular file")), "{why}");
        }
    }

    #[test]
    fn the_first_process_keeps_the_identity_and_a_second_one_has_its_own() {
        let home = tempfile::tempdir().unwrap();
        let state = home.path().join("state");
        let first = Slot::take(&state, Use::Client).unwrap();
        let second = Slot::take(&state, Use::Client).unwrap();
        let local = Slot::take(&state, Use::Local).unwrap();
        assert_ne!(first.client_id(), second.client_id());
        assert!(second.dir().ends_with("client-1") && local.dir().ends_with("local-0"));
        let (id, dir) = (first.client_id().clone(), first.dir().to_owned());
        drop(first);
        let again = Slot::take(&state, Use::Client).unwrap();
        assert_eq!((again.client_id(), again.dir()), (&id, dir.as_path()));
        assert_eq!(state.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn each_start_is_a_later_life_whatever_the_clock_says() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("life");
        assert_eq!(next_life(&file, 1_000).unwrap(), 1_000);
        assert_eq!(next_life(&file, 1_000).unwrap(), 1_001, "twice in a millisecond");
        assert_eq!(next_life(&file, 7).unwrap(), 1_002, "the clock went back");
        assert_eq!(next_life(&file, 5_000).unwrap(), 5_000);
        std::fs::write(&file, b"\xff no number").unwrap();
        assert_eq!(next_life(&file, 6_000).unwrap(), 6_000, "a damaged file is as good as none");
        let state = home.path().join("state");
        let first = Slot::take(&state, Use::Client).unwrap().life();
        assert!(Slot::take(&state, Use::Client).unwrap().life() > first);
    }

    #[test]
    fn a_damaged_identity_is_replaced() {
        let home = tempfile::tempdir().unwrap();
        let first = Slot::take(home.path(), Use::Client).unwrap();
        let file = first.dir().join("client_id");
        drop(first);
        std::fs::write(&file, "\u{1b}[2J no id").unwrap();
        let slot = Slot::take(home.path(), Use::Client).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), slot.client_id().as_str());
    }
}

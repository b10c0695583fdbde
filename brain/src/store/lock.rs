//! One Brain per data folder.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};

use super::OpenError;

/// Bytes read of a lock file: a process id and some room.
const PID_BYTES: u64 = 32;

/// Holds the folder until it is dropped, or its process ends in whatever way.
#[derive(Debug)]
pub(super) struct DirLock(#[allow(dead_code, reason = "held, not read")] Flock<File>);

/// Makes the folder (0700) and takes its lock.
pub(super) fn take(dir: &Path) -> Result<DirLock, OpenError> {
    crate::home::private_dir(dir).map_err(|source| OpenError::Io { path: dir.to_owned(), source })?;
    let path = dir.join("lock");
    let io = |source| OpenError::Io { path: path.clone(), source };
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path);
    match Flock::lock(file.map_err(io)?, FlockArg::LockExclusiveNonblock) {
        Ok(mut file) => {
            file.set_len(0).map_err(io)?;
            writeln!(file, "{}", std::process::id()).map_err(io)?;
            Ok(DirLock(file))
        }
        Err((mut file, Errno::EWOULDBLOCK)) => {
            let mut pid = String::new();
            file.rewind().and_then(|()| file.take(PID_BYTES).read_to_string(&mut pid)).map_err(io)?;
            let pid = vance_shared::show::plain(pid.trim());
            let pid = if pid.is_empty() { "unknown".to_owned() } else { pid };
            Err(OpenError::Locked { pid, dir: dir.to_owned() })
        }
        Err((_, errno)) => Err(io(io::Error::from(errno))),
    }
}

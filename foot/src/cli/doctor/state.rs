//! The state folder: room on its disk, and what a Foot that ended badly left there.

use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::statvfs::statvfs;
use rusqlite::{Connection, OpenFlags};

use super::Finding;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::paths::{Paths, shown};

/// Below this the journal cannot be sure to grow: it holds results until the Brain has them.
const LOW_DISK_BYTES: u64 = 100 * 1024 * 1024;
/// Files of a folder that are looked at; a Foot makes a few for each process.
const MAX_FILES: usize = 1000;

/// Looks.
pub(super) fn look(context: &Context) -> Result<Vec<Finding>, Failure> {
    let paths = Paths::new(&context.home()?, Path::new("."), None);
    let mut findings: Vec<Finding> = disk(&paths.state).into_iter().collect();
    let mut folders = vec![paths.home.clone(), paths.state.clone()];
    folders.extend(files(&paths.state).into_iter().filter(|path| path.is_dir()));
    for folder in folders {
        findings.extend(files(&folder).iter().filter_map(|path| socket(path)));
        if folder.join("journal.db").exists() {
            findings.extend(journal(&folder));
        }
        findings.extend(files(&folder).iter().filter_map(|path| set_aside(path)));
    }
    Ok(findings)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|e| e.path())).take(MAX_FILES).collect();
    files.sort();
    files
}

fn disk(state: &Path) -> Option<Finding> {
    let there = state.ancestors().find(|folder| folder.exists())?;
    let name = shown(there);
    let stat = match statvfs(there) {
        Ok(stat) => stat,
        Err(error) => return Some(Finding::note("disk", format!("{name}: {error}"))),
    };
    let free = stat.blocks_available().saturating_mul(stat.fragment_size());
    let inodes = stat.files_available();
    if free < LOW_DISK_BYTES || (stat.files() > 0 && inodes < 100) {
        let what = format!("{name}: {} MiB and {inodes} files are free", free / 1024 / 1024);
        return Some(Finding::fix("disk", what, format!("make room; what takes it: du -xh {name} | sort -h | tail")));
    }
    Some(Finding::ok("disk", format!("{name}: {} MiB free", free / 1024 / 1024)))
}

/// A socket that nobody listens on any more.
fn socket(path: &Path) -> Option<Finding> {
    let is_socket = path.symlink_metadata().is_ok_and(|meta| meta.file_type().is_socket());
    if !is_socket {
        return None;
    }
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => {
            let name = shown(path);
            Some(Finding::fix("state", format!("{name}: nobody listens on this socket any more"), format!("rm {name}")))
        }
        Ok(_) | Err(_) => None,
    }
}

fn journal(folder: &Path) -> Option<Finding> {
    let file = folder.join("journal.db");
    let name = shown(&file);
    let lock = std::fs::File::open(folder.join("lock")).ok()?;
    let Ok(_held) = Flock::lock(lock, FlockArg::LockSharedNonblock) else {
        return Some(Finding::ok("state", format!("{name}: in use by a Foot")));
    };
    let open = || -> rusqlite::Result<(String, i64)> {
        let journal = Connection::open_with_flags(&file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
        let well = journal.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
        let open = journal.query_row("SELECT count(*) FROM calls WHERE state < 2", [], |row| row.get(0))?;
        Ok((well, open))
    };
    match open() {
        Ok((well, _)) if well != "ok" => Some(damaged(&name, &well)),
        Ok((_, 0)) => None,
        Ok((_, open)) => {
            let what =
                format!("{name}: {open} call(s) of a Foot that has ended; the Brain hears of them when one runs again");
            Some(Finding::note("state", format!("{what}: vancetope --no-ui")))
        }
        Err(error) => Some(damaged(&name, &error.to_string())),
    }
}

fn damaged(name: &str, why: &str) -> Finding {
    let fix = "start the Foot: it sets a damaged journal aside and asks the Brain about its calls (vancetope --no-ui)";
    Finding::fix("state", format!("{name}: {why}"), fix)
}

/// A journal that was damaged once.
fn set_aside(path: &Path) -> Option<Finding> {
    let name = path.file_name()?.to_str()?;
    let is_aside = name.contains(".damaged-") && !name.ends_with("-wal") && !name.ends_with("-shm");
    is_aside.then(|| {
        let name = shown(path);
        Finding::note(
            "state",
            format!("{name}: a damaged journal, set aside; remove it if you do not need it: rm {name}*"),
        )
    })
}

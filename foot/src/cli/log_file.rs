//! Log lines into a file: appended, readable by its owner alone, of limited size, and followed when it is moved away.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Largest file, in bytes; then it becomes `FILE.1`, and the one before that goes.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// A log file; clones are the same one.
#[derive(Debug, Clone)]
pub(super) struct LogFile {
    path: PathBuf,
    limit: u64,
    // Lines come from any thread, and only one may turn the file over.
    file: Arc<Mutex<File>>,
}

impl LogFile {
    /// Opens or makes the file.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let file = Arc::new(Mutex::new(open(&path)?));
        Ok(Self { path, limit: MAX_BYTES, file })
    }

    /// Writes a line where the file is now: whoever moves it away (`logrotate`) needs to tell nobody.
    pub(super) fn line(&self, line: &[u8]) -> io::Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_at(&file, &self.path) {
            *file = open(&self.path)?;
        }
        if file.metadata()?.len() + line.len() as u64 > self.limit {
            self.turn_over(&mut file)?;
        }
        file.write_all(line)
    }

    /// Two processes may write the same file: the lock says who moves it, the other one finds it moved.
    fn turn_over(&self, file: &mut File) -> io::Result<()> {
        file.lock()?;
        if is_at(file, &self.path) {
            let mut old = self.path.clone().into_os_string();
            old.push(".1");
            std::fs::rename(&self.path, old)?;
        }
        *file = open(&self.path)?;
        Ok(())
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

fn is_at(file: &File, path: &Path) -> bool {
    let same = |a: std::fs::Metadata, b: std::fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    file.metadata().and_then(|a| Ok(same(a, path.metadata()?))).unwrap_or(false)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_private_turned_over_when_full_and_found_when_moved() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("foot.log");
        let text = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        let mut log = LogFile::open(&path).unwrap();
        log.limit = 14;
        let other = LogFile { file: Arc::new(Mutex::new(open(&path).unwrap())), ..log.clone() };
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        log.line(b"first\n").unwrap();
        other.line(b"second one\n").unwrap();
        log.line(b"3\n").unwrap();
        assert_eq!((text("foot.log.1"), text("foot.log")), ("first\n".to_owned(), "second one\n3\n".to_owned()));
        std::fs::rename(&path, folder.path().join("moved")).unwrap();
        log.line(b"fourth\n").unwrap();
        assert_eq!((text("moved"), text("foot.log")), ("second one\n3\n".to_owned(), "fourth\n".to_owned()));
    }
}

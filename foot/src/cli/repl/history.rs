//! The file of typed lines: the user's own, readable by nobody else, of limited size.

use std::fs::{OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

/// Largest file that is gone on with, in bytes: a thousand lines of a goal's length. A larger one begins anew.
const MAX_BYTES: u64 = 1024 * 1024;

/// Makes the file ready for whoever writes it. A line may hold a secret that somebody typed.
pub(super) fn prepare(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .mode(0o600)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK)
        .open(path)?;
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if about.permissions().mode() & 0o077 != 0 {
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    if about.len() > MAX_BYTES {
        file.set_len(0)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_file_is_private_and_small() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("state/history");
        prepare(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        std::fs::write(&path, "a\n").unwrap();
        prepare(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "a\n");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::write(&path, "x".repeat(2 * 1024 * 1024)).unwrap();
        prepare(&path).unwrap();
        assert_eq!(path.metadata().unwrap().len(), 0);
        std::os::unix::fs::symlink("/etc/hostname", home.path().join("link")).unwrap();
        assert!(prepare(&home.path().join("link")).is_err());
    }
}

//! Random words in files of this user's own, for those of its programs that may speak to a Foot.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::paths::shown;

/// Random bytes of a word.
const TOKEN_BYTES: usize = 32;
/// Longest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 4096;

/// The word of a file; without a file a new one.
pub(crate) fn read_or_make(path: &Path) -> io::Result<String> {
    match read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make(path)?;
            // Whoever was first has made it: what is in the file counts.
            read(path)
        }
        read => read,
    }
}

/// The word of a file.
pub(crate) fn read(path: &Path) -> io::Result<String> {
    let file = vance_own_file::open(path)?;
    if file.metadata()?.permissions().mode() & 0o077 != 0 {
        tracing::warn!("{}: others could read it, narrowed to its owner", shown(path));
        file.set_permissions(Permissions::from_mode(0o600))?;
    }
    let mut text = String::new();
    file.take(MAX_FILE_BYTES).read_to_string(&mut text)?;
    let token = text.trim();
    if token.len() < TOKEN_BYTES {
        return Err(io::Error::other("this is no key; remove the file, and the next start makes a new one"));
    }
    Ok(token.to_owned())
}

/// Writes beside and links into place: the file is there as a whole or not at all.
fn make(path: &Path) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let mut random = [0; TOKEN_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&beside)?;
    let linked = writeln!(file, "{}", URL_SAFE_NO_PAD.encode(random)).and_then(|()| std::fs::hard_link(&beside, path));
    let linked = linked.or_else(|error| if error.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) });
    std::fs::remove_file(&beside).and(linked)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_token_is_made_once_and_kept_private() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("state/rest-api.token");
        let token = read_or_make(&path).unwrap();
        assert!(token.len() > 40, "{}", token.len());
        std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(read_or_make(&path).unwrap(), token);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::write(&path, "\n").unwrap();
        assert!(read_or_make(&path).is_err(), "an empty token admits everybody");
        std::fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(read_or_make(&path).is_err(), "a pipe holds up nobody");
    }
}

//! Where the Brain of this home listens now: it leaves its address in the home, locked for as long as it runs.

use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use reqwest::Url;

use crate::cli::access::is_encrypted_or_here;
use crate::cli::args::brain_url;

/// Longest file that is read, in bytes: an address is a line.
const MAX_BYTES: u64 = 512;

/// The address, if a Brain of this home runs on this machine.
pub(super) fn of_running(home: &Path) -> Option<Url> {
    let path = home.join("brain").join("address");
    match read(&path) {
        Ok(text) => brain_url(text.trim()).ok().filter(is_encrypted_or_here),
        Err(error) => {
            if error.kind() != io::ErrorKind::NotFound {
                tracing::debug!("{}: {error}", path.display());
            }
            None
        }
    }
}

fn read(path: &Path) -> io::Result<String> {
    let file = vance_own_file::open(path)?;
    let meta = file.metadata()?;
    if meta.uid() != nix::unistd::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
        return Err(io::Error::other("others could have written it"));
    }
    let file = match Flock::lock(file, FlockArg::LockSharedNonblock) {
        Ok(_) => return Err(io::Error::other("left over from a Brain that has ended")),
        Err((file, Errno::EWOULDBLOCK)) => file,
        Err((_, errno)) => return Err(errno.into()),
    };
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs::File;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_what_a_running_brain_holds_and_nobody_else_could_have_written_counts() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(of_running(home.path()), None);
        std::fs::create_dir(home.path().join("brain")).unwrap();
        let path = home.path().join("brain/address");
        std::fs::write(&path, "http://127.0.0.1:4711\n").unwrap();
        assert_eq!(of_running(home.path()), None, "nobody holds it");
        let held = Flock::lock(File::options().write(true).open(&path).unwrap(), FlockArg::LockExclusive).unwrap();
        assert_eq!(of_running(home.path()).unwrap().as_str(), "http://127.0.0.1:4711/");
        std::fs::write(&path, "https://brain.example.org:4711\n").unwrap();
        assert_eq!(of_running(home.path()).unwrap().as_str(), "https://brain.example.org:4711/");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o622)).unwrap();
        assert_eq!(of_running(home.path()), None, "others could have written it");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        for text in ["", "nonsense", "http://brain.example.org", "http://10.0.0.1:1"] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(of_running(home.path()), None, "{text}");
        }
        drop(held);
        std::fs::remove_file(&path).unwrap();
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(of_running(home.path()), None, "a pipe holds up nobody");
    }
}

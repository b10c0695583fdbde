//! `<home>/brain/address`: where the Brain of this home listens now, for Feet of the same home. The file is locked for as long as the Brain
//! runs, so one that a `kill -9` left behind is known by its lock being free.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};

/// The file, until it is dropped.
#[derive(Debug)]
pub struct Address {
    path: PathBuf,
    _held: Flock<File>,
}

impl Address {
    /// Writes it beside and puts it into place locked: a reader sees all of it, and never unlocked while its Brain runs.
    pub fn write(path: &Path, bound: SocketAddr) -> io::Result<Self> {
        let beside = path.with_extension("new");
        // Left over from a Brain that fell in between; the store's lock says that there is no other one.
        match std::fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        let mut held =
            Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| io::Error::from(errno))?;
        writeln!(held, "http://{}", reachable(bound))?;
        std::fs::rename(&beside, path)?;
        Ok(Self { path: path.to_owned(), _held: held })
    }
}

impl Drop for Address {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_file(&self.path) {
            tracing::debug!("{}: {error}", self.path.display());
        }
    }
}

/// Who listens everywhere is reached from here over the loopback.
fn reachable(bound: SocketAddr) -> SocketAddr {
    let ip = match bound.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, bound.port())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn it_is_there_locked_and_private_while_the_brain_runs_and_gone_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("address");
        std::fs::write(&path, "http://127.0.0.1:1\n").unwrap();
        std::fs::write(dir.path().join("address.new"), "half").unwrap();
        let address = Address::write(&path, "0.0.0.0:4711".parse().unwrap()).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "http://127.0.0.1:4711\n");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(Flock::lock(File::open(&path).unwrap(), FlockArg::LockSharedNonblock).is_err());
        drop(address);
        assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none());
    }
}

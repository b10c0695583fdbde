//! `<home>/brain/address`: where the Brain of this home listens now, for Feet of the same home. The file is locked for as long as the Brain
//! runs, so one that a `kill -9` left behind is known by its lock being free.

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use rustls::client::verify_server_name;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use vance_shared::show::plain;

/// The one name that always means this machine.
const LOCALHOST: &str = "localhost";

/// The file, until it is dropped.
#[derive(Debug)]
pub struct Address {
    path: PathBuf,
    _held: Flock<File>,
}

impl Address {
    /// Writes it beside and puts it into place locked: a reader sees all of it, and never unlocked while its Brain runs.
    pub fn write(path: &Path, url: &str) -> io::Result<Self> {
        let beside = path.with_extension("new");
        // Left over from a Brain that fell in between; the store's lock says that there is no other one.
        match std::fs::remove_file(&beside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&beside)?;
        let mut held =
            Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|(_, errno)| io::Error::from(errno))?;
        writeln!(held, "{url}")?;
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

/// Where a Foot of this machine reaches the Brain. Behind TLS by a name that its certificate is made for: for another one no check would succeed.
pub fn url(bound: SocketAddr, certificate: Option<&Path>, allowed_hosts: &[String]) -> String {
    let here = reachable(bound);
    let Some(file) = certificate else { return format!("http://{here}") };
    let listed = allowed_hosts.iter().filter_map(|entry| host_at(entry, bound.port()));
    let mut hosts = [here.ip().to_string(), LOCALHOST.to_owned()].into_iter().chain(listed);
    let name = match hosts.find(|host| is_for(file, host)) {
        Some(name) => name,
        None => {
            tracing::warn!(
                "the certificate {} is made neither for {LOCALHOST} nor for a name of allowed_hosts: a Foot of this machine needs --brain",
                plain(&file.to_string_lossy())
            );
            LOCALHOST.to_owned()
        }
    };
    match name.parse::<IpAddr>() {
        Ok(ip) => format!("https://{}", SocketAddr::new(ip, bound.port())),
        Err(_) => format!("https://{name}:{}", bound.port()),
    }
}

/// The host of an entry of `allowed_hosts` that counts for this port.
fn host_at(entry: &str, port: u16) -> Option<String> {
    match entry.rsplit_once(':') {
        Some((host, at)) if at.parse() == Ok(port) => Some(host.to_owned()),
        Some(_) => None,
        None => Some(entry.to_owned()),
    }
}

/// Whether a certificate is made for a host.
fn is_for(file: &Path, host: &str) -> bool {
    let Some(Ok(first)) = CertificateDer::pem_file_iter(file).ok().and_then(|mut all| all.next()) else { return false };
    let (Ok(certificate), Ok(name)) = (ParsedCertificate::try_from(&first), ServerName::try_from(host)) else {
        return false;
    };
    verify_server_name(&certificate, &name).is_ok()
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
        let address = Address::write(&path, &url("0.0.0.0:4711".parse().unwrap(), None, &[])).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "http://127.0.0.1:4711\n");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        assert!(Flock::lock(File::open(&path).unwrap(), FlockArg::LockSharedNonblock).is_err());
        drop(address);
        assert!(std::fs::read_dir(dir.path()).unwrap().next().is_none());
    }

    #[test]
    fn behind_tls_it_is_named_as_its_certificate_is() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("cert.pem");
        let allowed = ["brain.example.org".to_owned(), "proxy.example:443".to_owned()];
        for (names, bound, want) in [
            (&["localhost"][..], "0.0.0.0:47", "https://localhost:47"),
            (&["localhost", "127.0.0.1"], "0.0.0.0:47", "https://127.0.0.1:47"),
            (&["brain.example.org"], "0.0.0.0:47", "https://brain.example.org:47"),
            (&["*.example.org", "proxy.example"], "127.0.0.1:47", "https://brain.example.org:47"),
            (&["proxy.example"], "0.0.0.0:443", "https://proxy.example:443"),
            (&["proxy.example"], "0.0.0.0:47", "https://localhost:47"),
            (&["::1"], "[::]:47", "https://[::1]:47"),
            (&["10.0.0.7"], "10.0.0.7:47", "https://10.0.0.7:47"),
        ] {
            let names = names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
            std::fs::write(&file, rcgen::generate_simple_self_signed(names.clone()).unwrap().cert.pem()).unwrap();
            assert_eq!(url(bound.parse().unwrap(), Some(&file), &allowed), want, "{names:?}");
        }
    }
}

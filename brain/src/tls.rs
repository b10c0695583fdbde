//! TLS at the Brain's own door: certificate and key from files, taken anew when they change. Connections keep what they were made with.

use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;
use vance_brain_core::config::TlsFiles;
use vance_mcp_host::stamps::Stamps;
use vance_own_file::open_linked;
use vance_shared::show::plain;
use zeroize::Zeroizing;

/// How often the files are looked at: certificates are renewed days before they end.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// The one protocol that is spoken behind it.
const PROTOCOL: &[u8] = b"http/1.1";
/// Largest file: a chain of a few certificates has 10 KiB.
const MAX_PEM_BYTES: u64 = 1024 * 1024;

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("tls: cannot read {file}: {source}")]
    Io {
        /// Which, safe to print.
        file: String,
        /// Why.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("tls: {file} holds no {what} in PEM")]
    Nothing {
        /// Which, safe to print.
        file: String,
        /// What was expected.
        what: &'static str,
    },
    /// Certificate and key are not usable together.
    #[error("tls: the certificate {cert} and the key {key} cannot be used: {why}")]
    Unusable {
        /// The certificate's file, safe to print.
        cert: String,
        /// The key's file, safe to print.
        key: String,
        /// Why.
        why: String,
    },
}

/// The door's certificate. Swapped as a whole: each connection reads it once.
pub struct Tls {
    cert: PathBuf,
    key: PathBuf,
    acceptor: ArcSwap<TlsAcceptor>,
}

impl Tls {
    /// Reads the files; relative paths begin in `folder`.
    pub fn load(files: &TlsFiles, folder: &Path) -> Result<Self, TlsError> {
        let (cert, key) = (folder.join(&files.cert), folder.join(&files.key));
        let acceptor = ArcSwap::from_pointee(acceptor(&cert, &key)?);
        Ok(Self { cert, key, acceptor })
    }

    /// What takes the next connection.
    pub fn acceptor(&self) -> Arc<TlsAcceptor> {
        self.acceptor.load_full()
    }

    /// Takes the files again whenever they change. What cannot be used is said, and the certificate before it stays. Never ends.
    pub async fn follow(self: Arc<Self>) {
        let look = || Stamps::of([self.cert.clone(), self.key.clone()]);
        let mut seen = look();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = look();
            // Of the two files one is written first: a pair that does not match is looked at again with the next change.
            if now != seen {
                seen = now;
                self.reload();
            }
        }
    }

    /// True: there is another certificate now.
    fn reload(&self) -> bool {
        match acceptor(&self.cert, &self.key) {
            Ok(acceptor) => {
                self.acceptor.store(Arc::new(acceptor));
                tracing::info!("the changed certificate is used from now on");
                true
            }
            Err(error) => {
                tracing::error!("{error}; the certificate before it is used further");
                false
            }
        }
    }
}

fn shown(path: &Path) -> String {
    plain(&path.to_string_lossy())
}

fn acceptor(cert: &Path, key: &Path) -> Result<TlsAcceptor, TlsError> {
    let text = read(cert)?;
    let certificates = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|error| of_file(cert, "certificate", error))?;
    if certificates.is_empty() {
        return Err(TlsError::Nothing { file: shown(cert), what: "certificate" });
    }
    let text = Zeroizing::new(read(key)?);
    let private = PrivateKeyDer::from_pem_slice(&text).map_err(|error| of_file(key, "private key", error))?;
    if key.metadata().is_ok_and(|meta| meta.permissions().mode() & 0o077 != 0) {
        tracing::warn!("others may read the key {}: chmod 600", shown(key));
    }
    let unusable = |error: rustls::Error| TlsError::Unusable {
        cert: shown(cert),
        key: shown(key),
        why: plain(&error.to_string()),
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(unusable)?.with_no_client_auth();
    let mut config = builder.with_single_cert(certificates, private).map_err(unusable)?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// A whole file, if it is one and not too large: whatever lies in its place must neither hold us up nor fill the memory.
fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let io = |source| TlsError::Io { file: shown(path), source };
    let mut bytes = Vec::new();
    open_linked(path).map_err(io)?.take(MAX_PEM_BYTES + 1).read_to_end(&mut bytes).map_err(io)?;
    match bytes.len() as u64 > MAX_PEM_BYTES {
        true => Err(io(io::Error::other(format!("it has more than {MAX_PEM_BYTES} bytes")))),
        false => Ok(bytes),
    }
}

/// Without the reader's own words: they could repeat parts of a key.
fn of_file(path: &Path, what: &'static str, error: pem::Error) -> TlsError {
    match error {
        pem::Error::Io(source) => TlsError::Io { file: shown(path), source },
        _ => TlsError::Nothing { file: shown(path), what },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn write(dir: &Path, name: &str) {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        std::fs::write(dir.join(format!("{name}.pem")), made.cert.pem()).unwrap();
        std::fs::write(dir.join(format!("{name}.key")), made.signing_key.serialize_pem()).unwrap();
    }

    #[test]
    fn a_pair_is_loaded_and_what_is_none_is_named() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "a");
        write(dir.path(), "b");
        std::fs::write(dir.path().join("empty"), "").unwrap();
        std::fs::write(dir.path().join("large"), vec![b'x'; 1024 * 1024 + 1]).unwrap();
        nix::unistd::mkfifo(&dir.path().join("pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        let load = |cert: &str, key: &str| {
            let files = TlsFiles { cert: cert.to_owned(), key: key.to_owned() };
            Tls::load(&files, dir.path()).map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(load("a.pem", "a.key"), Ok(()));
        assert_eq!(load(dir.path().join("a.pem").to_str().unwrap(), "a.key"), Ok(()));
        for (cert, key, want) in [
            ("none", "a.key", "cannot read"),
            ("a.pem", "none", "cannot read"),
            ("empty", "a.key", "empty holds no certificate in PEM"),
            ("large", "a.key", "more than 1048576 bytes"),
            ("pipe", "a.key", "is no regular file"),
            ("a.pem", "pipe", "is no regular file"),
            ("/dev/zero", "a.key", "is no regular file"),
            ("a.pem", "a.pem", "a.pem holds no private key in PEM"),
            ("a.pem", "b.key", "cannot be used"),
        ] {
            let error = load(cert, key).unwrap_err();
            assert!(error.starts_with("tls: ") && error.contains(want), "{cert} {key}: {error}");
        }
    }

    #[test]
    fn a_bad_change_leaves_the_certificate_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        write(dir.path(), "a");
        let files = TlsFiles { cert: "a.pem".to_owned(), key: "a.key".to_owned() };
        let tls = Tls::load(&files, dir.path()).unwrap();
        let first = tls.acceptor();
        std::fs::write(dir.path().join("a.key"), "nonsense").unwrap();
        assert!(!tls.reload() && Arc::ptr_eq(&first, &tls.acceptor()));
        write(dir.path(), "a");
        assert!(tls.reload() && !Arc::ptr_eq(&first, &tls.acceptor()));
    }
}

//! Tokens at rest: one file a pack and address, 0600, replaced as a whole; or in the vault where there is one. One writer at a time over all
//! processes.

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rmcp::transport::auth::StoredCredentials;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;
use vance_shared::names::PackName;

use super::AuthFault;
use crate::handle::HostEnv;
use crate::vault::Vault;

/// Another process may be renewing or keeping a token: a few requests, each of which a slow server may stretch. Nobody holds the lock while a person is
/// asked.
const LOCK_WAIT: Duration = Duration::from_secs(60);
const LOCK_POLL: Duration = Duration::from_millis(25);
/// A token and its client: more is no token file.
const MAX_FILE_BYTES: u64 = 256 * 1024;

/// What is kept of a login.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Kept {
    /// The server that the token is for.
    pub(crate) url: String,
    /// The registered client's secret, if it has one. A client that the pack names keeps its secret there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client_secret: Option<String>,
    /// The address that the browser came back to: a part of the registration.
    #[serde(default)]
    pub(crate) redirect_uri: String,
    /// The tokens, as the SDK keeps them.
    pub(crate) credentials: StoredCredentials,
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kept").field("url", &self.url).finish_non_exhaustive()
    }
}

/// Where the tokens of one pack at one address are.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    /// The file of the tokens, whose name is their key in the vault; and in any case where the lock is.
    file: PathBuf,
    key: String,
    url: String,
    vault: Option<Arc<dyn Vault>>,
}

/// While it lives, no other process writes.
#[derive(Debug)]
pub(crate) struct Held(#[allow(dead_code, reason = "closing it gives the lock back")] File);

impl Store {
    /// For a server's address; its query does not count.
    pub(crate) fn new(host: &HostEnv, pack: &PackName, url: &str) -> Self {
        Self::at(&host.logins_dir, host.vault.clone(), pack, url)
    }

    fn at(logins_dir: &Path, vault: Option<Arc<dyn Vault>>, pack: &PackName, url: &str) -> Self {
        let url = url.split(['?', '#']).next().unwrap_or(url);
        // Only a part of a file name: the address in the file decides.
        let hash =
            url.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
        let key = format!("{pack}-{hash:016x}");
        let file = logins_dir.join("oauth").join(format!("{key}.json"));
        Self { file, key, url: url.to_owned(), vault }
    }

    /// Waits until no other process writes.
    pub(crate) async fn lock(&self) -> Result<Held, AuthFault> {
        let folder = self.file.parent().unwrap_or(Path::new("."));
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|error| self.fault(&error))?;
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.file.with_extension("lock"))
            .map_err(|error| self.fault(&error))?;
        let deadline = Instant::now() + LOCK_WAIT;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(Held(lock)),
                Err(TryLockError::Error(error)) => return Err(self.fault(&error)),
                Err(TryLockError::WouldBlock) if Instant::now() >= deadline => return Err(AuthFault::Busy),
                Err(TryLockError::WouldBlock) => tokio::time::sleep(LOCK_POLL).await,
            }
        }
    }

    /// What is kept. A file of somebody else is not believed, one that others may read is closed to them, a broken one counts as none.
    pub(crate) fn load(&self) -> Result<Option<Kept>, AuthFault> {
        let text = match &self.vault {
            Some(vault) => vault.login(&self.key).map_err(AuthFault::Store)?,
            None => self.read_file()?,
        };
        let Some(text) = text else { return Ok(None) };
        match serde_json::from_str::<Kept>(&text) {
            Ok(kept) if kept.url == self.url => Ok(Some(kept)),
            Ok(_) => Ok(None),
            Err(_) => {
                tracing::warn!(file = %self.file.display(), "a token that cannot be read counts as none");
                Ok(None)
            }
        }
    }

    fn read_file(&self) -> Result<Option<String>, AuthFault> {
        let mut file = match OpenOptions::new().read(true).custom_flags(nix::libc::O_NOFOLLOW).open(&self.file) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.fault(&error)),
        };
        let meta = file.metadata().map_err(|error| self.fault(&error))?;
        if meta.uid() != nix::unistd::geteuid().as_raw() {
            return Err(AuthFault::Store(format!("{} belongs to somebody else", self.file.display())));
        }
        if meta.mode() & 0o077 != 0 {
            tracing::warn!(file = %self.file.display(), "a token was open to others; it is closed now");
            file.set_permissions(std::fs::Permissions::from_mode(0o600)).map_err(|error| self.fault(&error))?;
        }
        let mut text = String::new();
        (&mut file).take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(|error| self.fault(&error))?;
        Ok(Some(text))
    }

    /// Keeps a login: written aside, synced, renamed.
    pub(crate) fn save(&self, kept: &Kept) -> Result<(), AuthFault> {
        let text = serde_json::to_string_pretty(kept).map_err(|error| AuthFault::Store(error.to_string()))?;
        if let Some(vault) = &self.vault {
            return vault.keep_login(&self.key, &text).map_err(AuthFault::Store);
        }
        let aside = self.file.with_extension(format!("{}.new", std::process::id()));
        let written = (|| {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&aside)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&aside, &self.file)
        })();
        written.map_err(|error| {
            drop(std::fs::remove_file(&aside));
            self.fault(&error)
        })
    }

    /// Forgets it. False: there was nothing.
    pub(crate) fn remove(&self) -> Result<bool, AuthFault> {
        if let Some(vault) = &self.vault {
            return vault.forget_login(&self.key).map_err(AuthFault::Store);
        }
        match std::fs::remove_file(&self.file) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.fault(&error)),
        }
    }

    /// Another one whenever what is kept is another; 0 without a login. For whoever waits for one.
    pub(crate) fn mark(&self) -> u64 {
        if let Some(vault) = &self.vault {
            return vault.login_mark(&self.key);
        }
        let written = std::fs::metadata(&self.file).and_then(|meta| meta.modified()).ok();
        let since = written.and_then(|time| time.duration_since(UNIX_EPOCH).ok()).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    fn fault(&self, error: &std::io::Error) -> AuthFault {
        AuthFault::Store(format!("{}: {error}", self.file.display()))
    }
}

/// Seconds of this clock since 1970: what expiry is counted in.
pub(super) fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn kept(url: &str, client: &str) -> Kept {
        let credentials = StoredCredentials::new(client.to_owned(), None, Vec::new(), None);
        Kept { url: url.to_owned(), client_secret: None, redirect_uri: String::new(), credentials }
    }

    #[tokio::test]
    async fn a_token_is_for_one_address_and_for_its_owner_alone() {
        let dir = tempfile::tempdir().unwrap();
        let pack = PackName::parse("p").unwrap();
        let store = Store::at(dir.path(), None, &pack, "https://a/mcp");
        assert!(store.load().unwrap().is_none());
        let held = store.lock().await.unwrap();
        store.save(&kept("https://a/mcp", "c")).unwrap();
        drop(held);
        assert_eq!(store.load().unwrap().unwrap().credentials.client_id, "c");
        assert!(Store::at(dir.path(), None, &pack, "https://b/mcp").load().unwrap().is_none());
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&store.file), mode(store.file.parent().unwrap())), (0o600, 0o700));
        std::fs::set_permissions(&store.file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(store.load().unwrap().is_some());
        assert_eq!(mode(&store.file), 0o600, "closed again");
        std::fs::write(&store.file, "{").unwrap();
        assert!(store.load().unwrap().is_none(), "half a file is none");
        assert!(store.remove().unwrap() && !store.remove().unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn one_writer_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::at(dir.path(), None, &PackName::parse("p").unwrap(), "https://a");
        let held = store.lock().await.unwrap();
        assert_eq!(store.lock().await.unwrap_err(), AuthFault::Busy);
        drop(held);
        assert!(store.lock().await.is_ok());
    }
}

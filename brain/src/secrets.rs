//! What the Brain keeps for packs and settings, encrypted: secrets that people set, and logins.
//!
//! ```text
//! data/master.key     wraps ─▶ a random key of each record     wraps ─▶ its value
//! data/secrets.json   the records: name, version, both of the wrapped
//! ```
//!
//! Key and value are bound to the record's kind, name and version: a record in the place of another one does not open. Rotation wraps the records' keys anew and touches no value. Values appear in no log, error or answer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};
use vance_own_file::{Distrust, Own};
use vance_shared::secrets::{self as names, MAX_NAME_BYTES};
use vance_shared::show::quoted;
use zeroize::Zeroizing;

use crate::random::{self, NoRandomness};
use master::{Master, MasterFile};
use seal::{Key, Sealed};

mod master;
mod seal;
pub mod unset;

/// The file of the records in the Brain's data folder.
const FILE: &str = "secrets.json";
/// Largest file: a thousand secrets and logins.
const MAX_FILE_BYTES: usize = 4 * 1024 * 1024;
/// Largest value: a certificate chain with its key.
pub const MAX_VALUE_BYTES: usize = 64 * 1024;
/// What the purposes of seals begin with: they mean nothing elsewhere.
const DOMAIN: &str = "vancetope/vault/1";
/// Kinds of records.
const SECRET: &str = "secret";
const LOGIN: &str = "login";

/// Why a secret cannot be had or kept. Never holds a value.
#[derive(Debug, thiserror::Error)]
pub enum VaultError {
    /// A file is not believed, or cannot be used.
    #[error(transparent)]
    Distrust(#[from] Distrust),
    /// The operating system gave no randomness.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    /// Nobody set it.
    #[error("the secret {0} is not set: run `vance-brain secret set {0}`")]
    Unset(String),
    /// No name.
    #[error("a secret's name is 1 to {MAX_NAME_BYTES} of [A-Za-z0-9_.-], got {0}")]
    BadName(String),
    /// No value.
    #[error("a secret has 1 to {MAX_VALUE_BYTES} bytes, this one has {0}")]
    BadValue(usize),
    /// The key of the record is gone, or another one is in its place.
    #[error(
        "{file} does not hold the key that {record} was sealed with: put that file back as it was, or remove the record with `vance-brain secret \
         rm {name}` and make it anew"
    )]
    NoMaster {
        /// The file of the master keys.
        file: String,
        /// Which record, with its kind.
        record: String,
        /// Its name.
        name: String,
    },
    /// It does not open, though others under its key do.
    #[error(
        "{record} does not open: its record was changed by something else than `vance-brain`; remove it with `vance-brain secret rm {name}` and \
         make it anew"
    )]
    Broken {
        /// Which record, with its kind.
        record: String,
        /// Its name.
        name: String,
    },
}

/// One sealed value.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    version: u64,
    /// RFC 3339, for people.
    changed_at: String,
    /// The id of the master key that wraps `key`.
    master: String,
    key: Sealed,
    value: Sealed,
}

/// By kind, then by name.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Records(BTreeMap<String, BTreeMap<String, Record>>);

/// What is told of a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// How often it was set.
    pub version: u64,
    /// When it was set last, RFC 3339.
    pub changed_at: String,
    /// Why it cannot be opened.
    pub trouble: Option<String>,
}

/// The vault of a Brain. Holds nothing: each use reads the files.
#[derive(Debug, Clone)]
pub struct Vault {
    records: Own,
    master: MasterFile,
}

impl Vault {
    /// Below a Brain's data folder.
    pub fn new(data: &Path) -> Self {
        let records = Own::new(data.join(FILE), MAX_FILE_BYTES, "`vance-brain secret rm` removes what nobody uses");
        Self { records, master: MasterFile::new(data) }
    }

    /// The file that changes with each secret and login.
    pub fn file(&self) -> &Path {
        self.records.path()
    }

    /// Sets a secret, or sets it anew.
    pub fn set(&self, name: &str, value: &str, now: &str) -> Result<(), VaultError> {
        if !names::is_name(name) {
            return Err(VaultError::BadName(quoted(name, 80)));
        }
        if value.is_empty() || value.len() > MAX_VALUE_BYTES {
            return Err(VaultError::BadValue(value.len()));
        }
        self.put(SECRET, name, value, now)
    }

    /// A secret's value.
    pub fn get(&self, name: &str) -> Result<Zeroizing<String>, VaultError> {
        self.take(SECRET, name)?.ok_or_else(|| VaultError::Unset(name.to_owned()))
    }

    /// Removes a secret, or the login of this name if there is no such secret. False: there was none.
    pub fn remove(&self, name: &str) -> Result<bool, VaultError> {
        Ok(self.drop_record(SECRET, name)? || self.drop_record(LOGIN, name)?)
    }

    /// Whether its file can be read; nothing is opened.
    pub fn is_readable(&self) -> Result<(), VaultError> {
        self.read().map(drop)
    }

    /// The secrets, by name.
    pub fn list(&self) -> Result<Vec<Listed>, VaultError> {
        self.listed(SECRET)
    }

    /// The logins that are kept, by the name of their record.
    pub fn logins(&self) -> Result<Vec<Listed>, VaultError> {
        self.listed(LOGIN)
    }

    fn listed(&self, kind: &str) -> Result<Vec<Listed>, VaultError> {
        let (records, masters) = (self.read()?, self.master.read());
        let all = records.0.get(kind).into_iter().flatten();
        let listed = all.map(|(name, record)| Listed {
            name: name.clone(),
            version: record.version,
            changed_at: record.changed_at.clone(),
            trouble: match &masters {
                Ok(masters) => self.open(&records, masters, kind, name, record).err().map(|error| error.to_string()),
                Err(error) => Some(error.to_string()),
            },
        });
        Ok(listed.collect())
    }

    /// A number for each of these secrets, another one whenever its value was set anew; 0: not set. A file that cannot be read says nothing
    /// about them.
    pub fn marks(&self, names: &BTreeSet<String>) -> Result<BTreeMap<String, u64>, VaultError> {
        if names.is_empty() {
            return Ok(BTreeMap::new());
        }
        let records = self.read()?;
        Ok(names.iter().map(|name| (name.clone(), records.mark(SECRET, name))).collect())
    }

    /// A new master key; the keys of all records are wrapped with it. Gives how many these are. Cut off at any point, everything still opens.
    pub fn rotate(&self) -> Result<usize, VaultError> {
        let count = self.edit(|records| {
            let masters = self.master.read()?;
            let all = records
                .0
                .iter_mut()
                .flat_map(|(kind, of_kind)| of_kind.iter_mut().map(move |(name, record)| (kind, name, record)));
            let mut opened = Vec::new();
            for (kind, name, record) in all {
                let key = key_of(&masters, kind, name, record);
                let key = key.ok_or_else(|| self.no_master(kind, name))?;
                opened.push((purpose("key", kind, name, record.version), key, record));
            }
            // All of them open: now, and not before, there is another key.
            let (newest, count) = (self.master.add()?, opened.len());
            for (purpose, key, record) in opened {
                record.key = newest.key.seal(&purpose, key.bytes())?;
                record.master.clone_from(&newest.id);
            }
            Ok((true, count))
        })?;
        // Only now, and under the lock: nothing needs the old key any more.
        self.edit(|records| {
            let used: BTreeSet<String> =
                records.0.values().flat_map(BTreeMap::values).map(|record| record.master.clone()).collect();
            self.master.keep(&used.into_iter().collect::<Vec<_>>())?;
            Ok((false, ()))
        })?;
        Ok(count)
    }

    fn put(&self, kind: &str, name: &str, value: &str, now: &str) -> Result<(), VaultError> {
        self.edit(|records| {
            let master = self.newest(records)?;
            let of_kind = records.0.entry(kind.to_owned()).or_default();
            let version = of_kind.get(name).map_or(1, |record| record.version.saturating_add(1));
            let key = Key::generate()?;
            let record = Record {
                version,
                changed_at: now.to_owned(),
                key: master.key.seal(&purpose("key", kind, name, version), key.bytes())?,
                value: key.seal(&purpose("value", kind, name, version), value.as_bytes())?,
                master: master.id,
            };
            of_kind.insert(name.to_owned(), record);
            Ok((true, ()))
        })
    }

    fn take(&self, kind: &str, name: &str) -> Result<Option<Zeroizing<String>>, VaultError> {
        let records = self.read()?;
        let Some(record) = records.0.get(kind).and_then(|of_kind| of_kind.get(name)) else { return Ok(None) };
        self.open(&records, &self.master.read()?, kind, name, record).map(Some)
    }

    fn open(
        &self,
        records: &Records,
        masters: &[Master],
        kind: &str,
        name: &str,
        record: &Record,
    ) -> Result<Zeroizing<String>, VaultError> {
        let broken = || VaultError::Broken { record: format!("the {kind} {name}"), name: name.to_owned() };
        let Some(key) = key_of(masters, kind, name, record) else {
            // Where the master key opens another record, this one was touched; where it opens none, it is another key.
            let mut others = records.all().filter(|(_, _, other)| other.master == record.master);
            let is_right = others.any(|(kind, name, other)| key_of(masters, kind, name, other).is_some());
            return Err(if is_right { broken() } else { self.no_master(kind, name) });
        };
        let bytes = key.open(&purpose("value", kind, name, record.version), &record.value).map_err(|_| broken())?;
        let text = std::str::from_utf8(&bytes).map_err(|_| broken())?;
        Ok(Zeroizing::new(text.to_owned()))
    }

    fn no_master(&self, kind: &str, name: &str) -> VaultError {
        VaultError::NoMaster { file: self.master.shown(), record: format!("the {kind} {name}"), name: name.to_owned() }
    }

    fn drop_record(&self, kind: &str, name: &str) -> Result<bool, VaultError> {
        self.edit(|records| {
            let was = records.0.get_mut(kind).is_some_and(|of_kind| of_kind.remove(name).is_some());
            Ok((was, was))
        })
    }

    /// The master key for what is sealed now. The first secret makes it; one that went missing, or that another one is in the place of, is not
    /// replaced in silence while secrets wait for it. A login does not wait: people log in again.
    fn newest(&self, records: &Records) -> Result<Master, VaultError> {
        let mut masters = self.master.read()?;
        let Some(newest) = masters.pop() else {
            return match records.all().find(|(kind, ..)| *kind == SECRET) {
                Some((kind, name, _)) => Err(self.no_master(kind, name)),
                None => self.master.add(),
            };
        };
        let one = std::slice::from_ref(&newest);
        let mut under_it = records.all().filter(|(_, _, record)| record.master == newest.id).peekable();
        let is_new = under_it.peek().is_none();
        let mut secret = None;
        for (kind, name, record) in under_it {
            if key_of(one, kind, name, record).is_some() {
                return Ok(newest);
            }
            secret = secret.or_else(|| (kind == SECRET).then(|| name.to_owned()));
        }
        match secret {
            _ if is_new => Ok(newest),
            Some(name) => Err(self.no_master(SECRET, &name)),
            None => self.master.add(),
        }
    }

    fn read(&self) -> Result<Records, VaultError> {
        Ok(self.parse(self.records.read()?.text.as_deref())?)
    }

    /// Changes the records under their lock; written if the change says so and succeeds.
    fn edit<T>(&self, change: impl FnOnce(&mut Records) -> Result<(bool, T), VaultError>) -> Result<T, VaultError> {
        self.records.edit(|text| {
            let mut records = self.parse(text)?;
            match change(&mut records) {
                Ok((false, value)) => Ok((None, Ok(value))),
                Ok((true, value)) => {
                    let text = serde_json::to_string_pretty(&records);
                    let text = text.map_err(|error| Distrust::Corrupt(error.to_string()))?;
                    Ok((Some(text + "\n"), Ok(value)))
                }
                Err(error) => Ok((None, Err(error))),
            }
        })?
    }

    fn parse(&self, text: Option<&str>) -> Result<Records, Distrust> {
        let Some(text) = text else { return Ok(Records::default()) };
        serde_json::from_str(text).map_err(|error| {
            let (file, line) = (self.records.shown(), error.line());
            Distrust::Corrupt(format!("{file}:{line}: these are no secrets of a Brain; put back what was there"))
        })
    }
}

impl Records {
    fn mark(&self, kind: &str, name: &str) -> u64 {
        self.0.get(kind).and_then(|of_kind| of_kind.get(name)).map_or(0, |record| record.value.mark())
    }

    /// Kind, name and record of all.
    fn all(&self) -> impl Iterator<Item = (&str, &str, &Record)> {
        self.0.iter().flat_map(|(kind, of_kind)| {
            of_kind.iter().map(move |(name, record)| (kind.as_str(), name.as_str(), record))
        })
    }
}

/// A record's own key; none if these master keys do not open it.
fn key_of(masters: &[Master], kind: &str, name: &str, record: &Record) -> Option<Key> {
    let master = masters.iter().find(|master| master.id == record.master)?;
    let opened = master.key.open(&purpose("key", kind, name, record.version), &record.key);
    opened.ok().and_then(|bytes| Key::of(&bytes))
}

/// What a seal is for. Names hold no NUL, so no two purposes read the same.
fn purpose(part: &str, kind: &str, name: &str, version: u64) -> Vec<u8> {
    [DOMAIN, part, kind, name, &version.to_string()].join("\0").into_bytes()
}

fn random_id() -> Result<String, NoRandomness> {
    let mut bytes = [0u8; 8];
    random::fill(&mut bytes)?;
    Ok(format!("{:016x}", u64::from_be_bytes(bytes)))
}

impl vance_mcp_host::Vault for Vault {
    fn secret(&self, name: &str) -> Result<String, String> {
        self.get(name).map(|value| value.to_string()).map_err(|error| error.to_string())
    }

    fn login(&self, key: &str) -> Result<Option<String>, String> {
        match self.take(LOGIN, key) {
            Ok(text) => Ok(text.map(|text| text.to_string())),
            // It is of no use to anybody: the pack asks for another one.
            Err(error @ (VaultError::NoMaster { .. } | VaultError::Broken { .. })) => {
                tracing::warn!("{error}; it counts as none");
                Ok(None)
            }
            Err(error) => Err(error.to_string()),
        }
    }

    fn keep_login(&self, key: &str, text: &str) -> Result<(), String> {
        self.put(LOGIN, key, text, &crate::rows::time(crate::hub::now_ms())).map_err(|error| error.to_string())
    }

    fn forget_login(&self, key: &str) -> Result<bool, String> {
        self.drop_record(LOGIN, key).map_err(|error| error.to_string())
    }

    fn login_mark(&self, key: &str) -> u64 {
        self.read().unwrap_or_default().mark(LOGIN, key)
    }
}

#[cfg(test)]
mod tests;

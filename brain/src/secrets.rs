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
    /// The key of the record is gone.
    #[error(
        "{file} does not hold the key of {record}: put it back, or set the secret anew after `vance-brain secret rm`"
    )]
    NoMaster {
        /// The file of the master keys.
        file: String,
        /// Which record.
        record: String,
    },
    /// It does not open.
    #[error("{0} does not open: its record was changed by something else than `vance-brain`; set it anew")]
    Broken(String),
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

    /// A text with its `{{secret:NAME}}` in clear.
    pub fn resolve(&self, text: &str) -> Result<Zeroizing<String>, VaultError> {
        let named = names::names(text).map_err(|bad| VaultError::BadName(bad.to_string()))?;
        let mut out = Zeroizing::new(String::new());
        let mut rest = text;
        for name in named {
            let reference = format!("{}{name}{}", names::OPEN, names::CLOSE);
            let Some((before, after)) = rest.split_once(&reference) else { break };
            out.push_str(before);
            out.push_str(&self.get(name)?);
            rest = after;
        }
        out.push_str(rest);
        Ok(out)
    }

    /// Removes a secret. False: there was none.
    pub fn remove(&self, name: &str) -> Result<bool, VaultError> {
        self.drop_record(SECRET, name)
    }

    /// The secrets, by name.
    pub fn list(&self) -> Result<Vec<Listed>, VaultError> {
        let records = self.read()?;
        let listed = |(name, record): (&String, &Record)| Listed {
            name: name.clone(),
            version: record.version,
            changed_at: record.changed_at.clone(),
        };
        Ok(records.0.get(SECRET).into_iter().flatten().map(listed).collect())
    }

    /// A number for each of these secrets, another one whenever its value was set anew; 0: not set. A file that cannot be read counts as
    /// empty here: whoever needs a value hears why.
    pub fn marks(&self, names: &BTreeSet<String>) -> BTreeMap<String, u64> {
        if names.is_empty() {
            return BTreeMap::new();
        }
        let records = self.read().unwrap_or_default();
        names.iter().map(|name| (name.clone(), records.mark(SECRET, name))).collect()
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
                let key = self.key(&masters, kind, name, record)?;
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
        let key = self.key(&self.master.read()?, kind, name, record)?;
        let broken = || VaultError::Broken(format!("the {kind} {name}"));
        let bytes = key.open(&purpose("value", kind, name, record.version), &record.value).map_err(|_| broken())?;
        let text = std::str::from_utf8(&bytes).map_err(|_| broken())?;
        Ok(Some(Zeroizing::new(text.to_owned())))
    }

    fn drop_record(&self, kind: &str, name: &str) -> Result<bool, VaultError> {
        self.edit(|records| {
            let was = records.0.get_mut(kind).is_some_and(|of_kind| of_kind.remove(name).is_some());
            Ok((was, was))
        })
    }

    /// A record's own key.
    fn key(&self, masters: &[Master], kind: &str, name: &str, record: &Record) -> Result<Key, VaultError> {
        let master = masters
            .iter()
            .find(|master| master.id == record.master)
            .ok_or_else(|| VaultError::NoMaster { file: self.master.shown(), record: format!("the {kind} {name}") })?;
        let opened = master.key.open(&purpose("key", kind, name, record.version), &record.key);
        let key = opened.ok().and_then(|bytes| Key::of(&bytes));
        key.ok_or_else(|| VaultError::Broken(format!("the {kind} {name}")))
    }

    /// The master key for what is sealed now. The first secret makes it; one that went missing is not replaced in silence.
    fn newest(&self, records: &Records) -> Result<Master, VaultError> {
        match (self.master.read()?.pop(), records.first()) {
            (Some(newest), _) => Ok(newest),
            (None, None) => self.master.add(),
            (None, Some(record)) => Err(VaultError::NoMaster { file: self.master.shown(), record }),
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

    /// The name of any record.
    fn first(&self) -> Option<String> {
        self.0.iter().find_map(|(kind, of_kind)| of_kind.keys().next().map(|name| format!("the {kind} {name}")))
    }
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
        self.take(LOGIN, key).map(|text| text.map(|text| text.to_string())).map_err(|error| error.to_string())
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

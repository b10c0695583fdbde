//! `<home>/brain/data/master.key`: what wraps the keys of records. Usually one key; two while a rotation is under way, or after one that was
//! cut off: then both still open what they wrapped.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use vance_own_file::{Distrust, Own};
use zeroize::{Zeroize as _, Zeroizing};

use super::seal::Key;
use super::{VaultError, random_id};

/// The file in the Brain's data folder.
const FILE: &str = "master.key";
/// Largest file: a handful of keys.
const MAX_FILE_BYTES: usize = 16 * 1024;

/// One master key.
#[derive(Debug, Clone)]
pub(super) struct Master {
    pub(super) id: String,
    pub(super) key: Key,
}

#[derive(Default, Serialize, Deserialize)]
struct File {
    keys: Vec<Line>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    id: String,
    key: String,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

#[derive(Debug, Clone)]
pub(super) struct MasterFile(Own);

impl MasterFile {
    pub(super) fn new(data: &Path) -> Self {
        Self(Own::new(data.join(FILE), MAX_FILE_BYTES, "it holds more keys than any rotation leaves"))
    }

    pub(super) fn shown(&self) -> String {
        self.0.shown()
    }

    /// All keys, the newest last; none without a file.
    pub(super) fn read(&self) -> Result<Vec<Master>, VaultError> {
        let text = self.0.read()?.text.map(Zeroizing::new);
        Ok(self.parse(text.as_ref().map(|text| text.as_str()))?)
    }

    /// Makes one more key, the newest.
    pub(super) fn add(&self) -> Result<Master, VaultError> {
        let made = Master { id: random_id()?, key: Key::generate()? };
        self.edit(|keys| keys.push(made.clone()))?;
        Ok(made)
    }

    /// Forgets the keys that wrap nothing any more; the newest stays.
    pub(super) fn keep(&self, used: &[String]) -> Result<(), VaultError> {
        self.edit(|keys| {
            let newest = keys.last().map(|key| key.id.clone());
            keys.retain(|key| used.contains(&key.id) || Some(&key.id) == newest.as_ref());
        })
    }

    fn edit(&self, change: impl FnOnce(&mut Vec<Master>)) -> Result<(), VaultError> {
        Ok(self.0.edit(|text| {
            let mut keys = self.parse(text)?;
            change(&mut keys);
            let line = |key: &Master| Line { id: key.id.clone(), key: STANDARD.encode(key.key.bytes()) };
            let file = File { keys: keys.iter().map(line).collect() };
            let text = serde_json::to_string(&file).map_err(|error| Distrust::Corrupt(error.to_string()))?;
            Ok((Some(text + "\n"), ()))
        })?)
    }

    fn parse(&self, text: Option<&str>) -> Result<Vec<Master>, Distrust> {
        let Some(text) = text else { return Ok(Vec::new()) };
        let corrupt = || Distrust::Corrupt(format!("{} holds no keys; put back what was there", self.shown()));
        let file: File = serde_json::from_str(text).map_err(|_| corrupt())?;
        let key = |line: &Line| {
            let bytes = Zeroizing::new(STANDARD.decode(&line.key).ok()?);
            Some(Master { id: line.id.clone(), key: Key::of(&bytes)? })
        };
        file.keys.iter().map(|line| key(line).ok_or_else(corrupt)).collect()
    }
}

//! `<home>/brain/data/tokens.json`: the named tokens, by their hashes. Commands write it, a running Brain follows it.

use std::path::Path;

use serde::{Deserialize, Serialize};
use vance_mcp_host::stamps::Stamps;
use vance_own_file::{Distrust, Own};
use vance_shared::show::quoted;

use super::{LOCAL, Principals, Scope, Token, TokenError, hash};

/// The file in the Brain's data folder.
const FILE: &str = "tokens.json";
/// Longest name: it is a part of the id of the default session.
pub const MAX_NAME_BYTES: usize = 64;
/// Tokens of one Brain: each request is compared with all of them.
const MAX_TOKENS: usize = 256;
/// Largest file: so many records, several times over.
const MAX_FILE_BYTES: usize = 256 * 1024;
/// One named token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The principal.
    pub name: String,
    /// Of the token: SHA-256. A token is 256 random bits, so nothing slower is needed.
    #[serde(rename = "sha256", serialize_with = "to_hex", deserialize_with = "of_hex")]
    pub hash: [u8; 32],
    /// What it may do.
    #[serde(serialize_with = "to_words", deserialize_with = "of_words")]
    pub scopes: Vec<Scope>,
    /// RFC 3339.
    pub created_at: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct File {
    tokens: Vec<Record>,
}

/// The file.
#[derive(Debug, Clone)]
pub struct TokenBook(Own);

impl TokenBook {
    /// Below a Brain's data folder.
    pub fn new(data: &Path) -> Self {
        Self(Own::new(data.join(FILE), MAX_FILE_BYTES, "revoke tokens that nobody uses"))
    }

    /// What is there; nothing without a file.
    pub fn read(&self) -> Result<Vec<Record>, TokenError> {
        Ok(self.parse(self.0.read()?.text.as_deref())?.tokens)
    }

    /// Makes a token. Only its bearer will know it.
    pub fn add(&self, name: &str, scopes: &[Scope], now: &str) -> Result<Token, TokenError> {
        let good = |b: u8| b.is_ascii_alphanumeric() || b"_.-".contains(&b);
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(good) || name == LOCAL {
            return Err(TokenError::BadName(quoted(name, 80)));
        }
        let token = Token::generate()?;
        let hash = hash(token.reveal());
        let record = Record { name: name.to_owned(), hash, scopes: scopes.to_owned(), created_at: now.to_owned() };
        self.edit(|tokens| {
            if tokens.iter().any(|known| known.name == name) {
                return Err(TokenError::Taken(name.to_owned()));
            }
            if tokens.len() >= MAX_TOKENS {
                let advice = "revoke tokens that nobody uses";
                return Err(Distrust::Full { file: self.0.shown(), advice }.into());
            }
            tokens.push(record);
            Ok(())
        })?;
        Ok(token)
    }

    /// Ends a token.
    pub fn revoke(&self, name: &str) -> Result<(), TokenError> {
        self.edit(|tokens| {
            let before = tokens.len();
            tokens.retain(|known| known.name != name);
            if tokens.len() == before { Err(TokenError::Unknown(quoted(name, 80))) } else { Ok(()) }
        })
    }

    /// How the file looks.
    pub fn stamps(&self) -> Stamps {
        Stamps::of([self.0.path().to_owned()])
    }

    /// False: it could not be read, which may pass. A file that is not believed, or makes no sense, takes nobody in and revokes nobody: what it said
    /// before still counts, or a slip of the hand would throw every machine out.
    pub fn show(&self, principals: &Principals) -> bool {
        match self.read() {
            Ok(records) => {
                let gone = principals.take(&records);
                if gone > 0 {
                    tracing::info!(revoked = gone, "tokens were revoked");
                }
                true
            }
            Err(TokenError::Distrust(error @ Distrust::Io { .. })) => {
                tracing::warn!(%error, "the named tokens cannot be read; those known so far stay good");
                false
            }
            Err(error) => {
                tracing::error!(%error, "the named tokens stay as they were until this is mended: no new one is good, and none is revoked");
                true
            }
        }
    }

    fn edit(&self, change: impl FnOnce(&mut Vec<Record>) -> Result<(), TokenError>) -> Result<(), TokenError> {
        self.0.edit(|text| {
            let mut file = self.parse(text)?;
            let changed = change(&mut file.tokens);
            let text = changed.is_ok().then(|| serde_json::to_string_pretty(&file)).transpose();
            let text = text.map_err(|error| Distrust::Corrupt(error.to_string()))?;
            Ok((text.map(|text| text + "\n"), changed))
        })?
    }

    fn parse(&self, text: Option<&str>) -> Result<File, Distrust> {
        let Some(text) = text else { return Ok(File::default()) };
        // Without the reader's words: they could repeat what stands there.
        serde_json::from_str(text).map_err(|error| {
            Distrust::Corrupt(format!(
                "{}:{}: this is no list of tokens; mend or remove it",
                self.0.shown(),
                error.line()
            ))
        })
    }
}

fn to_hex<S: serde::Serializer>(hash: &[u8; 32], s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(&hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

fn of_hex<'de, D: serde::Deserializer<'de>>(d: D) -> Result<[u8; 32], D::Error> {
    let text = String::deserialize(d)?;
    let byte = |at: usize| text.get(2 * at..2 * at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
    let bytes: Option<Vec<u8>> = (0..32).map(byte).collect();
    let bytes = bytes.filter(|_| text.len() == 64).and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    bytes.ok_or_else(|| serde::de::Error::custom("expected 64 hexadecimal digits"))
}

fn to_words<S: serde::Serializer>(scopes: &[Scope], s: S) -> Result<S::Ok, S::Error> {
    s.collect_seq(scopes.iter().map(|scope| scope.word()))
}

fn of_words<'de, D: serde::Deserializer<'de>>(d: D) -> Result<Vec<Scope>, D::Error> {
    let words = Vec::<String>::deserialize(d)?;
    words.iter().map(|word| Scope::parse(word).map_err(serde::de::Error::custom)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_is_kept_as_a_hash_under_a_name_that_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let book = TokenBook::new(&dir.path().join("data"));
        assert_eq!(book.read().unwrap(), []);
        let token = book.add("alice", &[Scope::Foot, Scope::Api], "2026-01-01T00:00:00Z").unwrap();
        let text = std::fs::read_to_string(book.0.path()).unwrap();
        assert!(!text.contains(token.reveal()) && !text.contains(&token.reveal()[4..]), "{text}");
        assert_eq!(book.0.path().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let records = book.read().unwrap();
        assert_eq!((records[0].name.as_str(), records[0].scopes.as_slice()), ("alice", &[Scope::Foot, Scope::Api][..]));
        for (name, want) in [
            ("alice", "there is a token named alice already"),
            ("local", "and not `local`"),
            ("", "1 to 64"),
            ("a b", "1 to 64"),
            (&"x".repeat(65), "1 to 64"),
        ] {
            let error = book.add(name, &[Scope::Api], "").unwrap_err().to_string();
            assert!(error.contains(want), "{name}: {error}");
        }
        assert!(book.revoke("bob").unwrap_err().to_string().contains("no token named 'bob'"));
        book.revoke("alice").unwrap();
        assert_eq!(book.read().unwrap(), []);
    }

    #[test]
    fn a_file_that_is_not_believed_takes_nobody_in_revokes_nobody_and_is_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let book = TokenBook::new(dir.path());
        let token = book.add("alice", &[Scope::Api], "").unwrap();
        let principals = Principals::local(&Token::generate().unwrap());
        assert!(book.show(&principals));
        let alice = principals.authenticate(token.reveal()).unwrap();
        let eve = book.add("eve", &[Scope::Api], "").unwrap();
        std::fs::set_permissions(book.0.path(), std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(
            book.show(&principals) && principals.authenticate(eve.reveal()).is_none(),
            "anybody could have added her"
        );
        assert!(!alice.revoked.is_cancelled() && principals.authenticate(token.reveal()).is_some());
        let fresh = Principals::local(&Token::generate().unwrap()).following(book.clone());
        assert!(fresh.authenticate(token.reveal()).is_none(), "a start with such a file knows nobody");
        std::fs::set_permissions(book.0.path(), std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(book.show(&principals) && principals.authenticate(eve.reveal()).is_some());
        for corrupt in
            ["{", "[]", "{\"tokens\": [{\"name\": \"x\", \"sha256\": \"12\", \"scopes\": [], \"created_at\": \"\"}]}"]
        {
            std::fs::write(book.0.path(), corrupt).unwrap();
            assert!(book.add("bob", &[Scope::Api], "").is_err(), "{corrupt}");
            assert_eq!(std::fs::read_to_string(book.0.path()).unwrap(), corrupt);
            book.show(&principals);
            assert!(principals.authenticate(token.reveal()).is_some() && !alice.revoked.is_cancelled());
        }
        std::fs::write(book.0.path(), "{\"tokens\": []}").unwrap();
        assert!(book.show(&principals) && alice.revoked.is_cancelled());
    }
}

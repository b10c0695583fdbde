//! Keys, and what is sealed with them: XChaCha20-Poly1305 under a random nonce, bound to what it is the value of. Nothing here is ever shown.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chacha20poly1305::aead::{Aead as _, Payload};
use chacha20poly1305::{KeyInit as _, XChaCha20Poly1305};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::random::{self, NoRandomness};

/// Bytes of a key.
const KEY_BYTES: usize = 32;
/// Bytes of a nonce: so many that random ones never meet.
const NONCE_BYTES: usize = 24;

/// A key. Wiped when it is dropped.
#[derive(Clone)]
pub(super) struct Key(Zeroizing<[u8; KEY_BYTES]>);

/// Nonce and ciphertext, in base64.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct Sealed(String);

/// It was sealed with another key, for another purpose, or has been touched.
#[derive(Debug)]
pub(super) struct Broken;

impl Key {
    pub(super) fn generate() -> Result<Self, NoRandomness> {
        let mut bytes = Zeroizing::new([0u8; KEY_BYTES]);
        random::fill(bytes.as_mut())?;
        Ok(Self(bytes))
    }

    /// Takes a key's bytes.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        <[u8; KEY_BYTES]>::try_from(bytes).ok().map(|bytes| Self(Zeroizing::new(bytes)))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.0.as_ref()
    }

    /// Seals a text as the value of `purpose`.
    pub(super) fn seal(&self, purpose: &[u8], text: &[u8]) -> Result<Sealed, NoRandomness> {
        let mut nonce = [0u8; NONCE_BYTES];
        random::fill(&mut nonce)?;
        let payload = Payload { msg: text, aad: purpose };
        // Fails only for texts of more than 256 GiB.
        let sealed = self.cipher().encrypt(&nonce.into(), payload).map_err(|_| NoRandomness)?;
        Ok(Sealed(STANDARD.encode([&nonce[..], &sealed].concat())))
    }

    pub(super) fn open(&self, purpose: &[u8], sealed: &Sealed) -> Result<Zeroizing<Vec<u8>>, Broken> {
        let bytes = STANDARD.decode(&sealed.0).map_err(|_| Broken)?;
        let (nonce, text) = bytes.split_at_checked(NONCE_BYTES).ok_or(Broken)?;
        let nonce: [u8; NONCE_BYTES] = nonce.try_into().map_err(|_| Broken)?;
        let payload = Payload { msg: text, aad: purpose };
        self.cipher().decrypt(&nonce.into(), payload).map(Zeroizing::new).map_err(|_| Broken)
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new((&*self.0).into())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(…)")
    }
}

impl Sealed {
    /// Another number whenever it was sealed anew; never 0.
    pub(super) fn mark(&self) -> u64 {
        let bytes = STANDARD.decode(self.0.get(..16).unwrap_or_default()).unwrap_or_default();
        bytes.get(..8).and_then(|b| b.try_into().ok()).map_or(1, |b| u64::from_le_bytes(b) | 1)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn only_the_same_key_for_the_same_purpose_opens_what_nobody_touched() {
        let (key, other) = (Key::generate().unwrap(), Key::generate().unwrap());
        let sealed = key.seal(b"a", b"text").unwrap();
        assert_eq!(&**key.open(b"a", &sealed).unwrap(), b"text");
        assert!(other.open(b"a", &sealed).is_err() && key.open(b"b", &sealed).is_err());
        let again = key.seal(b"a", b"text").unwrap();
        assert!(again != sealed && again.mark() != sealed.mark(), "never twice the same");
        let mut bytes = STANDARD.decode(&sealed.0).unwrap();
        for at in [0, NONCE_BYTES, bytes.len() - 1] {
            bytes[at] ^= 1;
            assert!(key.open(b"a", &Sealed(STANDARD.encode(&bytes))).is_err(), "{at}");
            bytes[at] ^= 1;
        }
        for bad in ["", "AAAA", "not base64"] {
            assert!(key.open(b"a", &Sealed(bad.to_owned())).is_err(), "{bad}");
        }
        assert_eq!(format!("{key:?}"), "Key(…)");
    }
}

//! Ids, each its own type. A generated id is a UUIDv7 (sorts by time); ids from outside are any printable token of 1 to 128 bytes.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize};

/// Longest id that is accepted from outside, in bytes: room for a prefix and a UUID, small enough for every log line.
pub const MAX_ID_BYTES: usize = 128;

/// Why a text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("an id is 1 to {MAX_ID_BYTES} of [A-Za-z0-9_.:-], got {0}")]
pub struct BadId(pub String);

fn check(text: &str) -> Result<(), BadId> {
    let ok = !text.is_empty()
        && text.len() <= MAX_ID_BYTES
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.:-".contains(&b));
    if ok { Ok(()) } else { Err(BadId(crate::show::quoted(text, 40))) }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        pub struct $name(std::sync::Arc<str>);

        impl $name {
            /// Takes an id that came from outside.
            pub fn parse(text: &str) -> Result<Self, BadId> {
                check(text)?;
                Ok(Self(text.into()))
            }

            /// A new id, unique and later than all ids made before it on this machine. Shells call this, decisions take ids as input.
            pub fn generate() -> Self {
                Self(format!(concat!($prefix, "{}"), uuid::Uuid::now_v7().simple()).into())
            }

            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<str>::deserialize(d)?;
                Self::parse(&text).map_err(serde::de::Error::custom)
            }
        }
    };
}

id!(
    /// One call, for its whole life: the idempotency key on every hop.
    CallId, "call_"
);
id!(
    /// One task of one submitted tree (the file's own id is only unique within its tree).
    TaskId, "task_"
);
id!(
    /// One submitted task tree.
    TreeId, "tree_"
);
id!(
    /// A working context on the Brain; clients attach to it.
    SessionId, "sess_"
);
id!(
    /// One Foot (or another program that speaks the wire); survives its restarts.
    ClientId, "foot_"
);
id!(
    /// One question of a tool's server in the middle of a call.
    QuestionId, "question_"
);
id!(
    /// Something that is too large to travel and is kept where it was made.
    BlobHandle, "blob_"
);

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn generated_ids_parse_again_and_differ() {
        let (a, b) = (CallId::generate(), CallId::generate());
        assert_ne!(a, b);
        assert_eq!(CallId::parse(a.as_str()).unwrap(), a);
    }

    #[test]
    fn a_foreign_id_is_checked() {
        assert!(SessionId::parse("sess_123").is_ok());
        for bad in ["", "a b", "x\u{1b}[2J", &"x".repeat(200)] {
            assert!(SessionId::parse(bad).is_err(), "{bad:?}");
        }
    }
}

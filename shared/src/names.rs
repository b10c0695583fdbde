//! Names of tools and packs, parsed once at the border.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize};

/// Longest tool or pack name: what model providers accept as a tool name.
pub const MAX_NAME_BYTES: usize = 64;

/// Joins a pack's name and a sub-tool's name.
pub const SUBTOOL_SEPARATOR: &str = "__";

/// Why a text is not a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    /// Wrong characters or length.
    #[error("a {what} name is 1 to {MAX_NAME_BYTES} of [A-Za-z0-9_-], got {got}")]
    Shape {
        /// `tool` or `pack`.
        what: &'static str,
        /// The text, made safe to show.
        got: String,
    },
    /// A pack name would make `<pack>__<subtool>` ambiguous.
    #[error("a pack name has no `__` and no `_` at its ends, got {0}")]
    Separator(String),
}

fn shape(what: &'static str, text: &str) -> Result<(), BadName> {
    let ok = !text.is_empty()
        && text.len() <= MAX_NAME_BYTES
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    if ok { Ok(()) } else { Err(BadName::Shape { what, got: crate::show::quoted(text, 80) }) }
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $check:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Takes a name that came from outside.
            pub fn parse(text: &str) -> Result<Self, BadName> {
                $check(text)?;
                Ok(Self(text.into()))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
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

name!(
    /// A tool's full name, as tasks and models use it.
    ToolName,
    |t| shape("tool", t)
);
name!(
    /// A pack's name: the namespace prefix of its sub-tools.
    PackName,
    |t: &str| {
        shape("pack", t)?;
        if t.contains(SUBTOOL_SEPARATOR) || t.starts_with('_') || t.ends_with('_') {
            return Err(BadName::Separator(crate::show::quoted(t, 80)));
        }
        Ok(())
    }
);

impl ToolName {
    /// `<pack>__<subtool>`: every character outside `[A-Za-z0-9_-]` becomes `_`; a name over 64 characters is cut and ends in a short hash of the whole.
    pub fn of_subtool(pack: &PackName, subtool: &str) -> Self {
        let clean: String =
            subtool.chars().map(|c| if c.is_ascii_alphanumeric() || c == '_' || c == '-' { c } else { '_' }).collect();
        let full = format!("{pack}{SUBTOOL_SEPARATOR}{clean}");
        if full.len() <= MAX_NAME_BYTES {
            return Self(full.into());
        }
        let hash = fnv1a(format!("{pack}{SUBTOOL_SEPARATOR}{subtool}").as_bytes());
        Self(format!("{}_{:06x}", &full[..MAX_NAME_BYTES - 7], hash & 0xff_ffff).into())
    }

    /// True if this is the name of a sub-tool of the pack.
    pub fn is_of_pack(&self, pack: &str) -> bool {
        self.0.strip_prefix(pack).is_some_and(|rest| rest.starts_with(SUBTOOL_SEPARATOR))
    }
}

/// FNV-1a: a stable, tiny hash for name suffixes (not for security).
pub fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn pack_names_keep_the_separator_unambiguous() {
        for (text, ok) in [
            ("chrome", true),
            ("a-b_c", true),
            ("a__b", false),
            ("_a", false),
            ("a_", false),
            ("", false),
            ("a b", false),
        ] {
            assert_eq!(PackName::parse(text).is_ok(), ok, "{text:?}");
        }
    }

    #[test]
    fn a_subtool_is_mapped_and_never_longer_than_64() {
        let pack = PackName::parse("chrome").unwrap();
        assert_eq!(ToolName::of_subtool(&pack, "take.snapshot/x").as_str(), "chrome__take_snapshot_x");
        let (a, b) = ("x".repeat(100), format!("{}y", "x".repeat(99)));
        let (a, b) = (ToolName::of_subtool(&pack, &a), ToolName::of_subtool(&pack, &b));
        assert_eq!(a.as_str().len(), 64);
        assert_ne!(a, b);
        assert!(a.is_of_pack("chrome") && !a.is_of_pack("chrom"));
    }
}

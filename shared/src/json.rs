//! Raw JSON that is parsed once, where it is needed, and is cheap to clone on the way.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::mend;

/// One JSON value as its text. Clones share the text. A box within, because a text that comes in one would have to be copied
/// to be shared without it.
#[derive(Clone)]
pub struct Raw(Arc<Box<RawValue>>);

impl Raw {
    /// The text of any serialisable value.
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::value::to_raw_value(value).map(Self::from)
    }

    /// Checks and takes a text.
    pub fn parse(text: String) -> Result<Self, serde_json::Error> {
        RawValue::from_string(text).map(Self::from)
    }

    /// `{}`.
    pub fn empty_object() -> Self {
        Self::from(Value::Object(serde_json::Map::new()))
    }

    /// `null`.
    pub fn null() -> Self {
        Self::from(Value::Null)
    }

    /// The text.
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// Parses into a type.
    pub fn to<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.get())
    }

    /// Parses into a tree. A `Raw` is valid JSON by construction; half surrogate pairs become U+FFFD, and what serde_json cannot hold
    /// ([`mend::unreadable`]) becomes `null`.
    pub fn value(&self) -> Value {
        self.to().or_else(|_| serde_json::from_str(&mend::surrogates(self.get()))).unwrap_or(Value::Null)
    }
}

impl From<Box<RawValue>> for Raw {
    fn from(raw: Box<RawValue>) -> Self {
        Self(Arc::new(raw))
    }
}

impl From<Value> for Raw {
    fn from(value: Value) -> Self {
        match serde_json::value::to_raw_value(&value) {
            Ok(raw) => Self::from(raw),
            // A `Value` has only string keys, so it always serialises.
            Err(_) => Self::from(RawValue::NULL.to_owned()),
        }
    }
}

impl fmt::Debug for Raw {
    /// Only the size: payloads stay out of logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Raw({} bytes)", self.get().len())
    }
}

impl PartialEq for Raw {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get() || self.value() == other.value()
    }
}

impl Serialize for Raw {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(s)
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(d).map(Self::from)
    }
}

//! One OpenAPI document as a JSON value: read once, shared, never changed.

use std::sync::Arc;

use percent_encoding::percent_decode_str;
use serde_json::Value;
use url::Url;

mod bundle;
mod yaml;

/// Bytes of a document. The largest that is known has 40 MB.
pub const MAX_BYTES: usize = 64 * 1024 * 1024;
/// Deepest nesting.
pub const MAX_DEPTH: usize = 128;
/// Values in a document: each takes about 100 bytes, and a document of 64 MiB could hold thirty million. The largest that is known has 1.5 million.
pub const MAX_VALUES: usize = 4_000_000;
/// References that point at references.
const MAX_HOPS: usize = 32;

/// Why a document cannot be used at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// Too many bytes.
    #[error("the document has {0} bytes, expected at most {MAX_BYTES}")]
    TooLarge(usize),
    /// Too many values.
    #[error("the document holds too many values, expected at most {MAX_VALUES}")]
    TooMany,
    /// Not text.
    #[error("the document is not UTF-8 text")]
    NotText,
    /// Neither JSON nor YAML.
    #[error("the document is neither JSON nor YAML: {0}")]
    Syntax(String),
    /// Another kind of file.
    #[error("the document is no OpenAPI document: {0}")]
    NotOpenApi(String),
}

/// Which rules a document follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// Swagger 2.0.
    V2,
    /// OpenAPI 3.0: schemas are a dialect of their own.
    V30,
    /// OpenAPI 3.1: schemas are JSON Schema 2020-12.
    V31,
    /// OpenAPI 3.2 and whatever follows.
    V32,
}

/// Why a reference leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RefError {
    /// Into another document: nothing is fetched while loading.
    #[error("unresolved reference {0}")]
    External(String),
    /// To nothing.
    #[error("the reference {0} leads nowhere")]
    Broken(String),
    /// Back to itself.
    #[error("the reference {0} leads back to itself")]
    Circular(String),
}

/// A parsed document. Clones share it.
#[derive(Debug, Clone)]
pub struct Document {
    root: Arc<Value>,
    version: Version,
    address: Option<Url>,
}

impl Document {
    /// Reads JSON or YAML. `address`: where it came from, for servers that are relative to it.
    pub fn parse(bytes: &[u8], address: Option<Url>) -> Result<Self, DocumentError> {
        Self::from_value(parse_value(bytes)?, address)
    }

    /// Takes a document that is a value already.
    pub fn from_value(root: Value, address: Option<Url>) -> Result<Self, DocumentError> {
        let version = version(&root)?;
        Ok(Self { root: Arc::new(root), version, address })
    }

    /// Takes a document and the files beside it that it refers to (`./other.yaml#/…`), by the paths that
    /// [`missing_files`] gave. References into them are answered; those into anything else stay unresolved.
    pub fn with_files(root: Value, files: Vec<(String, Value)>, address: Option<Url>) -> Result<Self, DocumentError> {
        Self::from_value(bundle::bundle(root, files), address)
    }

    /// Which rules it follows.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Where it came from.
    pub fn address(&self) -> Option<&Url> {
        self.address.as_ref()
    }

    /// The whole.
    pub fn root(&self) -> &Value {
        &self.root
    }

    /// What `#/a/b` points at.
    pub fn resolve(&self, reference: &str) -> Result<&Value, RefError> {
        let Some(pointer) = reference.strip_prefix('#') else {
            return Err(RefError::External(shown(reference)));
        };
        let broken = || RefError::Broken(shown(reference));
        if pointer.contains('%') {
            let decoded = percent_decode_str(pointer).decode_utf8().map_err(|_| broken())?;
            return self.root.pointer(&decoded).or_else(|| self.root.pointer(pointer)).ok_or_else(broken);
        }
        self.root.pointer(pointer).ok_or_else(broken)
    }

    /// The value behind a chain of references; the value itself if it is none.
    pub fn follow<'a>(&'a self, value: &'a Value) -> Result<&'a Value, RefError> {
        let mut at = value;
        for _ in 0..MAX_HOPS {
            match at.get("$ref").and_then(Value::as_str) {
                Some(reference) => at = self.resolve(reference)?,
                None => return Ok(at),
            }
        }
        Err(RefError::Circular(at.get("$ref").and_then(Value::as_str).map(shown).unwrap_or_default()))
    }
}

/// Reads JSON or YAML of any kind, within the limits of a document.
pub fn parse_value(bytes: &[u8]) -> Result<Value, DocumentError> {
    if bytes.len() > MAX_BYTES {
        return Err(DocumentError::TooLarge(bytes.len()));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| DocumentError::NotText)?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if !text.trim_start().starts_with('{') {
        return yaml::read(text);
    }
    // Commas within texts are counted too: the sum is never too small.
    if text.bytes().filter(|b| matches!(b, b',' | b'[' | b'{')).count() > MAX_VALUES {
        return Err(DocumentError::TooMany);
    }
    serde_json::from_str(text).or_else(|error| {
        // A flow mapping is YAML, too; whatever else is wrong is told as JSON.
        yaml::read(text).map_err(|_| DocumentError::Syntax(vance_shared::show::plain(&error.to_string())))
    })
}

/// Files beside the document that it refers to and that `known` does not name: paths relative to the document's folder, below it.
pub fn missing_files(root: &Value, files: &[(String, Value)]) -> Vec<String> {
    bundle::missing(root, files)
}

fn version(root: &Value) -> Result<Version, DocumentError> {
    let text = |key: &str| match root.get(key) {
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Number(number)) => Some(number.to_string()),
        Some(_) | None => None,
    };
    match (text("swagger"), text("openapi")) {
        (_, Some(openapi)) if openapi.starts_with("3.0") => Ok(Version::V30),
        (_, Some(openapi)) if openapi.starts_with("3.1") => Ok(Version::V31),
        (_, Some(openapi)) if openapi.starts_with("3") => Ok(Version::V32),
        (Some(swagger), _) | (None, Some(swagger)) if swagger.starts_with('2') => Ok(Version::V2),
        (Some(other), _) | (None, Some(other)) => Err(DocumentError::NotOpenApi(format!(
            "its version is {}, expected 2.0 or 3.x",
            vance_shared::show::quoted(&other, 20)
        ))),
        (None, None) => Err(DocumentError::NotOpenApi("it has neither `openapi` nor `swagger`".to_owned())),
    }
}

/// A reference for a message or a schema's note.
pub(crate) fn shown(reference: &str) -> String {
    vance_shared::show::plain(&reference.chars().take(200).collect::<String>())
}

#[cfg(test)]
mod tests;

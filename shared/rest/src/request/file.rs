//! Files in arguments: `{path | base64 | text, filename, contentType}`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use vance_shared::call::Fault;

use super::{Data, Files, is_sendable};
use crate::error::Code;

/// Characters of a file's name.
const MAX_NAME: usize = 255;
/// What a name's ending says.
const ENDINGS: [(&str, &str); 22] = [
    ("txt", "text/plain"),
    ("md", "text/markdown"),
    ("csv", "text/csv"),
    ("html", "text/html"),
    ("htm", "text/html"),
    ("json", "application/json"),
    ("xml", "application/xml"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("pdf", "application/pdf"),
    ("zip", "application/zip"),
    ("gz", "application/gzip"),
    ("png", "image/png"),
    ("jpg", "image/jpeg"),
    ("jpeg", "image/jpeg"),
    ("gif", "image/gif"),
    ("webp", "image/webp"),
    ("svg", "image/svg+xml"),
    ("mp3", "audio/mpeg"),
    ("wav", "audio/wav"),
    ("mp4", "video/mp4"),
    ("docx", "application/vnd.openxmlformats-officedocument.wordprocessingml.document"),
];

/// One file, read from its argument.
pub(super) struct File {
    pub(super) data: Data,
    pub(super) filename: Option<String>,
    /// As the caller says, or as name and kind say.
    pub(super) content_type: Option<String>,
}

/// Whether a value is meant as a file.
pub(super) fn is_file(value: &Value) -> bool {
    value.as_object().is_some_and(|fields| ["path", "base64", "text"].iter().any(|key| fields.contains_key(*key)))
}

/// Reads a file's argument.
pub(super) fn read(place: &str, value: &Value, files: Files) -> Result<File, Fault> {
    let place = vance_shared::show::quoted(place, 64);
    let wrong = |why: &str| Code::InvalidArgument.fault(format!("the file {place} {why}"));
    let Some(fields) = value.as_object() else {
        return Err(wrong("is no object, expected one such as {\"text\": \"…\", \"filename\": \"a.txt\"}"));
    };
    let text = |key: &str| fields.get(key).and_then(Value::as_str);
    let data = match (text("path"), text("base64"), text("text")) {
        (Some(_), None, None) if files == Files::Refused => {
            return Err(Code::FileAccess
                .fault(format!("the file {place} is a path, and files are not read here; give base64 or text")));
        }
        (Some(path), None, None) => Data::Path(path.to_owned()),
        (None, Some(base64), None) => match STANDARD.decode(base64.trim()) {
            Ok(bytes) => Data::Bytes(bytes),
            Err(error) => return Err(wrong(&format!("has broken base64: {error}"))),
        },
        (None, None, Some(text)) => Data::Bytes(text.as_bytes().to_vec()),
        (..) => return Err(wrong("needs exactly one of path, base64 or text")),
    };
    let content_type = text("contentType");
    if content_type.is_some_and(|said| !is_sendable(said) || !said.contains('/')) {
        return Err(wrong("has a contentType that is none, expected one such as image/png"));
    }
    let filename = filename(fields, &data);
    let guessed = || guess(filename.as_deref().unwrap_or_default());
    let plain = || fields.contains_key("text").then_some("text/plain");
    let content_type = content_type.or_else(guessed).or_else(plain).map(str::to_owned);
    Ok(File { data, filename, content_type })
}

/// The name without folders and without what would end its header.
fn filename(fields: &Map<String, Value>, data: &Data) -> Option<String> {
    let path = match data {
        Data::Path(path) => Some(path.as_str()),
        Data::Bytes(_) => None,
    };
    let name = fields.get("filename").and_then(Value::as_str).or(path)?;
    let last = name.rsplit(['/', '\\']).next().unwrap_or_default();
    let clean: String = last.chars().filter(|c| !c.is_control()).take(MAX_NAME).collect();
    (!clean.is_empty()).then_some(clean)
}

fn guess(filename: &str) -> Option<&'static str> {
    let ending = filename.rsplit_once('.')?.1.to_ascii_lowercase();
    ENDINGS.iter().find(|(known, _)| *known == ending).map(|(_, media_type)| *media_type)
}

/// Base64, as results and dry runs show bytes.
pub(crate) fn encoded(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

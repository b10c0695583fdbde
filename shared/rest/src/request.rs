//! From an operation and its arguments to a request, or to a fault that says what is wrong with them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};
use url::Url;
use vance_shared::call::Fault;

use crate::api::Api;
use crate::error::Code;
use crate::operation::{IDEMPOTENCY, Key, Operation, Place};
use crate::settings::Settings;

mod arguments;
mod auth;
mod body;
mod file;
mod style;
mod target;
pub use auth::{TokenNeed, tokens};
pub(crate) use file::encoded as base64;

/// What a request is built with besides its arguments.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The pack's own words.
    pub settings: &'a Settings,
    /// OAuth tokens by [`TokenNeed::key`].
    pub tokens: &'a BTreeMap<String, String>,
    /// What becomes of `{"path": …}`.
    pub files: Files,
    /// Goes into `Idempotency-Key` where the operation has that header and the caller does not set it, or where the pack says so.
    pub call_id: Option<&'a str>,
}

/// What becomes of paths of this machine in arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Files {
    /// They are refused (`file_access`).
    Refused,
    /// They stay in the request, for the caller to read under its own rules.
    Planned,
}

/// A request that can be sent.
#[derive(Clone, PartialEq)]
pub struct Request {
    /// Upper case.
    pub method: String,
    /// Where to; origin and base path are those of the base.
    pub url: Url,
    /// Names in lower case; `multipart/form-data` without its boundary. Host, length and user agent are the client's.
    pub headers: Vec<(String, String)>,
    /// What is sent.
    pub body: Payload,
}

/// A request's body.
#[derive(Debug, Clone, PartialEq)]
pub enum Payload {
    /// None.
    None,
    /// JSON text.
    Json(String),
    /// Any other text.
    Text(String),
    /// Bytes, or a file's.
    Data(Data),
    /// Parts.
    Multipart(Vec<Part>),
}

/// One part of a multipart form.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// The field.
    pub name: String,
    /// For files.
    pub filename: Option<String>,
    /// Its type; none for plain texts.
    pub content_type: Option<String>,
    /// Its bytes.
    pub data: Data,
}

/// Bytes that are sent.
#[derive(Debug, Clone, PartialEq)]
pub enum Data {
    /// These.
    Bytes(Vec<u8>),
    /// Those of a file of this machine.
    Path(String),
}

impl std::fmt::Debug for Request {
    /// Method and host: queries and headers may hold credentials.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Request({} {})", self.method, self.url.host_str().unwrap_or_default())
    }
}

/// Builds the request of one call. Credentials are put in last: no argument overrides them.
pub fn build(api: &Api, operation: &Operation, arguments: &Value, context: Context<'_>) -> Result<Request, Fault> {
    let arguments = arguments::checked(api, operation, arguments)?;
    let base = target::base(api, operation, context.settings)?;
    let path = target::path(operation, &arguments)?;
    let mut query: Vec<String> = Vec::new();
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    let mut cookies: Vec<String> = Vec::new();
    headers.insert("accept".to_owned(), operation.accept.clone());
    for parameter in &operation.parameters {
        let value = arguments.get(&parameter.argument);
        match (value, parameter.place) {
            (_, Place::Path) => {}
            (Some(value), Place::Query) => style::query(parameter, value, &mut query),
            (Some(value), Place::QueryString) => style::whole_query(value, &mut query),
            (Some(value), Place::Cookie) => style::cookie(parameter, value, &mut cookies),
            (Some(value), Place::Header) => {
                if let Some(text) = style::header(parameter, value) {
                    check_header(&parameter.argument, &text)?;
                    headers.insert(parameter.wire.to_ascii_lowercase(), text);
                }
            }
            (None, Place::Header) if matches!(&operation.key, Key::Argument(name) if *name == parameter.argument) => {
                if let Some(id) = context.call_id {
                    headers.insert(parameter.wire.to_ascii_lowercase(), id.to_owned());
                }
            }
            (None, Place::Query | Place::QueryString | Place::Cookie | Place::Header) => {}
        }
    }
    if let (Key::Added, Some(id)) = (&operation.key, context.call_id) {
        headers.insert(IDEMPOTENCY.to_owned(), id.to_owned());
    }
    let body = match &operation.body {
        Some(body) => match arguments.get(&body.argument) {
            Some(value) => {
                let (payload, media_type) = body::payload(body, value, context.files)?;
                headers.insert("content-type".to_owned(), media_type);
                payload
            }
            None => Payload::None,
        },
        None => Payload::None,
    };
    for (name, value) in &context.settings.headers {
        let value = value.clone()?;
        check_secret(&value)?;
        headers.insert(name.clone(), value);
    }
    if let Some(own) = headers.remove("cookie") {
        // The pack's own cookies come first, and no argument takes their place.
        let own: Vec<String> = own.split(';').map(|pair| pair.trim().to_owned()).collect();
        for pair in &own {
            style::without(&mut cookies, pair.split('=').next().unwrap_or_default());
        }
        cookies.splice(0..0, own);
    }
    auth::apply(api, operation, &base, context, &mut query, &mut headers, &mut cookies)?;
    if !cookies.is_empty() {
        headers.insert("cookie".to_owned(), cookies.join("; "));
    }
    let url = target::url(&base, &path, &query)?;
    Ok(Request { method: operation.method.clone(), url, headers: headers.into_iter().collect(), body })
}

impl Request {
    /// The request as `--dry-run` shows it: `{"method", "url", "headers", "body"}`, with a JSON body as JSON, a form as its text,
    /// and parts as `{"name", "filename", "contentType", "data"}`.
    pub fn to_json(&self) -> Value {
        let headers: Map<String, Value> = self.headers.iter().map(|(n, v)| (n.clone(), v.as_str().into())).collect();
        let body = match &self.body {
            Payload::None => Value::Null,
            Payload::Json(text) => serde_json::from_str(text).unwrap_or_else(|_| text.as_str().into()),
            Payload::Text(text) => text.as_str().into(),
            Payload::Data(data) => data.to_json(),
            Payload::Multipart(parts) => parts.iter().map(Part::to_json).collect(),
        };
        json!({"method": self.method, "url": self.url.as_str(), "headers": headers, "body": body})
    }
}

impl Part {
    fn to_json(&self) -> Value {
        let mut part = Map::new();
        part.insert("name".to_owned(), self.name.as_str().into());
        if let Some(filename) = &self.filename {
            part.insert("filename".to_owned(), filename.as_str().into());
        }
        if let Some(content_type) = &self.content_type {
            part.insert("contentType".to_owned(), content_type.as_str().into());
        }
        part.insert("data".to_owned(), self.data.to_json());
        Value::Object(part)
    }
}

impl Data {
    fn to_json(&self) -> Value {
        match self {
            Self::Bytes(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => text.into(),
                Err(_) => json!({"base64": file::encoded(bytes)}),
            },
            Self::Path(path) => json!({"path": path}),
        }
    }
}

/// A header's value is printable: whatever else it held would end the header.
fn check_header(argument: &str, text: &str) -> Result<(), Fault> {
    if is_sendable(text) {
        return Ok(());
    }
    let shown = vance_shared::show::quoted(argument, 64);
    Err(Code::InvalidArgument.fault(format!("the argument {shown} holds characters that no header can carry")))
}

/// As [`check_header`], for what must not be shown.
fn check_secret(text: &str) -> Result<(), Fault> {
    if is_sendable(text) {
        return Ok(());
    }
    Err(Code::AuthFailed.fault("a header or credential of the pack holds characters that no header can carry"))
}

fn is_sendable(text: &str) -> bool {
    text.chars().all(|c| c == '\t' || c == ' ' || c.is_ascii_graphic())
}

#[cfg(test)]
mod tests;

//! `http_fetch`: one GET, to public addresses unless configured otherwise, within limits, along redirects of the same origin.

use std::sync::OnceLock;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::header::{CONTENT_TYPE, LOCATION};
use reqwest::{Client, Response, Url};
use serde::Deserialize;
use serde_json::{Value, json};
use vance_shared::call::{Fault, Outcome};
use vance_shared::json::Raw;
use vance_shared::show;
use vance_shared::tool::ToolResult;

use super::address::{self, PublicOnly, Refused};

pub(super) const USER_AGENT: &str = concat!("vance-brain/", env!("CARGO_PKG_VERSION"));
/// Bytes of a body unless the call says otherwise: a long page.
const DEFAULT_BYTES: usize = 1024 * 1024;
/// Most bytes of a body: as base64 it still fits a message of the wire.
const MAX_BYTES: usize = 4 * 1024 * 1024;
/// Longest address.
const MAX_URL_CHARS: usize = 8 * 1024;
/// Redirects that are followed: what browsers need in practice is one or two.
const MAX_REDIRECTS: usize = 5;
/// A host that cannot be reached in this time is down.
const CONNECT_WAIT: Duration = Duration::from_secs(10);

#[derive(Deserialize)]
pub(super) struct Wanted {
    url: String,
    max_bytes: Option<usize>,
}

pub(super) fn schemas() -> (Value, Value) {
    (
        json!({
            "type": "object",
            "properties": {
                "url": {"type": "string", "minLength": 1, "maxLength": MAX_URL_CHARS, "description": "An http or https address."},
                "max_bytes": {"type": "integer", "minimum": 1, "maximum": MAX_BYTES, "default": DEFAULT_BYTES, "description": "The body is cut here."}
            },
            "required": ["url"],
            "additionalProperties": false
        }),
        json!({
            "type": "object",
            "properties": {
                "url": {"type": "string", "description": "After redirects."},
                "status": {"type": "integer"},
                "content_type": {"type": ["string", "null"]},
                "bytes": {"type": "integer"},
                "truncated": {"type": "boolean"}
            },
            "required": ["url", "status", "bytes", "truncated"]
        }),
    )
}

pub(super) struct Fetch {
    allow_private: bool,
    /// Made at the first call: it reads the machine's certificates.
    client: OnceLock<Result<Client, String>>,
}

impl Fetch {
    pub(super) fn new(allow_private: bool) -> Self {
        Self { allow_private, client: OnceLock::new() }
    }

    pub(super) async fn run(&self, wanted: Wanted) -> Outcome {
        match self.fetch(wanted).await {
            Ok(outcome) => outcome,
            Err(error) => Outcome::Failed { error, result: None },
        }
    }

    async fn fetch(&self, wanted: Wanted) -> Result<Outcome, Fault> {
        let mut url = parse(&wanted.url)?;
        let limit = wanted.max_bytes.unwrap_or(DEFAULT_BYTES).min(MAX_BYTES);
        for _ in 0..=MAX_REDIRECTS {
            let response = self.get(&url).await?;
            match redirect(&url, &response)? {
                Some(next) => url = next,
                None => return answer(&url, response, limit).await,
            }
        }
        Err(Fault::new(
            "redirect_refused",
            format!("more than {MAX_REDIRECTS} redirects, the last one to {}", shown(&url)),
        ))
    }

    async fn get(&self, url: &Url) -> Result<Response, Fault> {
        if !self.allow_private {
            address::check_literal(url).map_err(|refused| refusal(&refused))?;
        }
        let client = self.client.get_or_init(|| self.client()).as_ref();
        let client = client.map_err(|error| Fault::new("internal", error.clone()))?;
        client.get(url.clone()).send().await.map_err(|error| match refused(&error) {
            Some(refused) => refusal(refused),
            None => Fault::new("upstream_error", format!("cannot fetch {}: {}", shown(url), super::causes(error))),
        })
    }

    fn client(&self) -> Result<Client, String> {
        let client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            // A proxy would resolve names itself, past the check.
            .no_proxy()
            .connect_timeout(CONNECT_WAIT)
            .user_agent(USER_AGENT);
        let client = if self.allow_private { client } else { client.dns_resolver(PublicOnly) };
        client.build().map_err(super::causes)
    }
}

fn parse(text: &str) -> Result<Url, Fault> {
    let bad = |why: String| Fault::new("invalid_argument", format!("arguments/url: {why}"));
    let url = Url::parse(text).map_err(|error| bad(format!("{error} in {}", show::quoted(text, 120))))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad(format!("http or https, got {}", show::quoted(url.scheme(), 40))));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(bad("an address with a user name or password is refused".to_owned()));
    }
    Ok(url)
}

/// Where a redirect goes, if it is one. Another origin is the caller's to decide: it gets the address.
fn redirect(from: &Url, response: &Response) -> Result<Option<Url>, Fault> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return Ok(None);
    }
    let Some(location) = response.headers().get(LOCATION) else { return Ok(None) };
    let location = String::from_utf8_lossy(location.as_bytes());
    let to = from.join(&location).ok().filter(|to| parse(to.as_str()).is_ok());
    match to {
        Some(to) if to.origin() == from.origin() => Ok(Some(to)),
        Some(to) => {
            let message = format!(
                "{} redirects to another origin: {}. Fetch that address if you want it.",
                shown(from),
                shown(&to)
            );
            Err(Fault::new("redirect_refused", message))
        }
        None => {
            let location = show::quoted(&location, 200);
            Err(Fault::new(
                "redirect_refused",
                format!("{} redirects to {location}, which is no address to fetch", shown(from)),
            ))
        }
    }
}

async fn answer(url: &Url, response: Response, limit: usize) -> Result<Outcome, Fault> {
    let status = response.status();
    let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let body = super::body(response, limit).await;
    let (bytes, truncated) = body.map_err(|error| {
        Fault::new("upstream_error", format!("the body of {} broke off: {}", shown(url), super::causes(error)))
    })?;
    let part = match text(content_type.as_deref(), &bytes, truncated) {
        Some(text) => json!({"type": "text", "text": text}),
        None => {
            let mime = content_type.as_deref().unwrap_or("application/octet-stream");
            let mime = mime.split(';').next().unwrap_or_default().trim();
            let blob = STANDARD.encode(&bytes);
            json!({"type": "resource", "resource": {"uri": url.as_str(), "mimeType": mime, "blob": blob}})
        }
    };
    let about = json!({
        "url": url.as_str(),
        "status": status.as_u16(),
        "content_type": content_type,
        "bytes": bytes.len(),
        "truncated": truncated
    });
    let result = ToolResult { content: Raw::from(json!([part])), structured: Some(Raw::from(about)), is_error: false };
    if status.is_success() {
        return Ok(Outcome::Done(result));
    }
    let error = Fault::new("http_status", format!("{} answered {status}", shown(url)));
    Ok(Outcome::Failed { error, result: Some(ToolResult { is_error: true, ..result }) })
}

/// The body as text, if it is text.
fn text(content_type: Option<&str>, bytes: &[u8], truncated: bool) -> Option<String> {
    let content_type = content_type.unwrap_or_default().to_ascii_lowercase();
    let mime = content_type.split(';').next().unwrap_or_default().trim();
    let textual = mime.starts_with("text/")
        || mime.ends_with("+json")
        || mime.ends_with("+xml")
        || [
            "application/json",
            "application/xml",
            "application/javascript",
            "application/yaml",
            "application/x-ndjson",
        ]
        .contains(&mime);
    if textual {
        let latin = ["iso-8859-1", "latin1", "windows-1252"].iter().any(|name| content_type.contains(name));
        if latin && std::str::from_utf8(bytes).is_err() {
            return Some(bytes.iter().map(|byte| char::from(*byte)).collect());
        }
        return Some(String::from_utf8_lossy(whole(bytes, truncated)).into_owned());
    }
    // Unsaid: text if it can be read as such.
    let sniffed = mime.is_empty() && !bytes.contains(&0);
    sniffed.then(|| std::str::from_utf8(whole(bytes, truncated)).ok().map(str::to_owned))?
}

/// Without the half character at which a body was cut.
fn whole(bytes: &[u8], truncated: bool) -> &[u8] {
    match std::str::from_utf8(bytes) {
        Err(error) if truncated && error.error_len().is_none() => &bytes[..error.valid_up_to()],
        Ok(_) | Err(_) => bytes,
    }
}

fn refusal(refused: &Refused) -> Fault {
    let how = "`http_fetch: {allow_private: true}` in brain.yaml changes that";
    Fault::new("address_refused", format!("{}; {how}", show::plain(&refused.to_string())))
}

/// The resolver's own refusal, deep inside the client's error.
fn refused(error: &reqwest::Error) -> Option<&Refused> {
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        if let Some(refused) = error.downcast_ref::<Refused>() {
            return Some(refused);
        }
        cause = error.source();
    }
    None
}

/// An address for a message: without its query, which may hold a secret.
fn shown(url: &Url) -> String {
    let mut url = url.clone();
    url.set_query(None);
    url.set_fragment(None);
    show::plain(url.as_str())
}

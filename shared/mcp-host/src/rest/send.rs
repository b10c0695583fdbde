//! One request and its answer, within limits: nowhere but where it may go, no more bytes than may come back.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use reqwest::Url;
use vance_shared::launch::Tls;
use vance_shared::show::quoted;

use crate::addresses::Addresses;
use crate::{fault, http as transport};

/// What is sent once.
#[derive(Clone)]
pub(crate) struct Outgoing {
    pub(crate) method: Method,
    pub(crate) url: Url,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Option<Vec<u8>>,
}

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Incoming {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    /// Decompressed.
    pub(crate) body: Vec<u8>,
}

impl Incoming {
    /// The same answer with a remark in the place of a body that nobody could read.
    pub(crate) fn without_body(mut self, remark: String) -> Self {
        self.headers.remove(http::header::CONTENT_TYPE);
        self.body = remark.into_bytes();
        self
    }

    /// A header as text.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// Why nothing came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lost {
    /// Nobody was reached: not a byte of the request was sent.
    Connect(String),
    /// Who answered cannot be trusted; nothing was sent either.
    Tls(String),
    /// Too late.
    Timeout,
    /// The answer is larger than may be read: here is it without its body.
    TooLarge(Box<Incoming>),
    /// The address may not be reached.
    Forbidden(String),
    /// The exchange broke off; the server may have acted.
    Broken(String),
}

/// How requests are sent.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    pub(crate) connect: Duration,
    /// One exchange, from the first byte to the last.
    pub(crate) exchange: Duration,
    /// Bytes of an answer, decompressed.
    pub(crate) body: usize,
}

/// Sends requests of one pack.
pub(crate) struct Sender {
    client: reqwest::Client,
    addresses: Addresses,
    limits: Limits,
}

impl Sender {
    /// Redirects are not followed: whoever asks decides.
    pub(crate) fn new(
        tls: &Tls,
        project_dir: Option<&std::path::Path>,
        addresses: Addresses,
        limits: Limits,
    ) -> Result<Self, String> {
        let builder = transport::client_builder(tls, project_dir)?
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(limits.connect)
            .dns_resolver(Arc::new(addresses.clone()));
        let client = builder.build().map_err(|error| fault::request(&error))?;
        Ok(Self { client, addresses, limits })
    }

    /// Sends a request once. Dropping the future ends the exchange.
    pub(crate) async fn send(&self, request: Outgoing) -> Result<Incoming, Lost> {
        if !self.addresses.allow(&request.url) {
            let host = quoted(request.url.host_str().unwrap_or_default(), 200);
            return Err(Lost::Forbidden(format!(
                "{host} is an address of this machine or its network, and the pack does not name it"
            )));
        }
        tokio::time::timeout(self.limits.exchange, self.exchange(request)).await.unwrap_or(Err(Lost::Timeout))
    }

    async fn exchange(&self, request: Outgoing) -> Result<Incoming, Lost> {
        let mut sending = self.client.request(request.method, request.url).headers(request.headers);
        if let Some(body) = request.body {
            sending = sending.body(body);
        }
        let response = sending.send().await.map_err(|error| lost(&error))?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let mut body = Vec::new();
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| lost(&error))?;
            if body.len() + chunk.len() > self.limits.body {
                return Err(Lost::TooLarge(Box::new(Incoming { status, headers, body: Vec::new() })));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Incoming { status, headers, body })
    }
}

fn lost(error: &reqwest::Error) -> Lost {
    let why = || fault::request(error);
    if is_tls(error) {
        Lost::Tls(why())
    } else if error.is_timeout() && !error.is_connect() {
        Lost::Timeout
    } else if error.is_connect() {
        Lost::Connect(why())
    } else {
        Lost::Broken(why())
    }
}

/// The cause is hidden below the HTTP library's own errors.
fn is_tls(error: &reqwest::Error) -> bool {
    let mut next: Option<&(dyn Error + 'static)> = error.source();
    while let Some(cause) = next {
        let inner = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if cause.is::<rustls::Error>() || inner.is_some_and(<dyn Error + Send + Sync>::is::<rustls::Error>) {
            return true;
        }
        next = cause.source();
    }
    false
}

/// A header whose value may be a credential.
pub(crate) fn header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let name = HeaderName::try_from(name).map_err(|_| format!("{} is no header name", quoted(name, 60)))?;
    let mut value = HeaderValue::try_from(value)
        .map_err(|_| format!("the value of header {name} has characters that no header may have"))?;
    value.set_sensitive(true);
    Ok((name, value))
}

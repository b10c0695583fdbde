//! The SDK's requests to authorization servers: bounded, encrypted, and only where they may go.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::Url;
use rmcp::transport::auth::{OAuthHttpClient, OAuthHttpClientFuture, OAuthHttpRedirectPolicy, OAuthHttpRequest};
use vance_shared::launch::Tls;

use crate::addresses::Addresses;
use crate::http;

/// One request: a slow authorization server is waited for, a dead one not.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Metadata and tokens have a few KiB.
const MAX_BODY_BYTES: usize = 1024 * 1024;

pub(super) struct Wire {
    follow: reqwest::Client,
    stop: reqwest::Client,
    addresses: Addresses,
}

impl Wire {
    /// The pack's own certificates are believed here too; its client certificate and its `insecure` are for its server alone.
    pub(super) fn new(addresses: Addresses, tls: &Tls, project_dir: Option<&std::path::Path>) -> Result<Self, String> {
        let trust = Tls { ca_file: tls.ca_file.clone(), ..Tls::default() };
        let builder = || {
            let resolver = Arc::new(addresses.clone());
            http::builder(&trust, project_dir).map(|builder| builder.timeout(TIMEOUT).dns_resolver(resolver))
        };
        let build = |builder: reqwest::ClientBuilder| builder.build().map_err(|error| crate::fault::request(&error));
        let stop = build(builder()?.redirect(reqwest::redirect::Policy::none()))?;
        Ok(Self { follow: build(builder()?)?, stop, addresses })
    }
}

impl OAuthHttpClient for Wire {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let client = match request.redirect_policy {
                OAuthHttpRedirectPolicy::Follow => &self.follow,
                // A new policy is a stricter one.
                _ => &self.stop,
            };
            self.send(client, reqwest::Request::try_from(request.request)?).await
        })
    }
}

type Failed = Box<dyn std::error::Error + Send + Sync>;

impl Wire {
    /// A form, as RFC 6749 sends them; gives status and body.
    pub(super) async fn form(&self, url: &str, fields: &[(&str, &str)]) -> Result<(u16, Vec<u8>), String> {
        let mut body = Url::parse("form:").map_err(|error| error.to_string())?;
        body.query_pairs_mut().extend_pairs(fields);
        self.post(url, "application/x-www-form-urlencoded", body.query().unwrap_or_default().to_owned()).await
    }

    /// A body; gives status and body. Redirects are not followed.
    pub(super) async fn post(&self, url: &str, kind: &'static str, body: String) -> Result<(u16, Vec<u8>), String> {
        let request = self.stop.post(url).header(::http::header::CONTENT_TYPE, kind);
        let request = request.header(::http::header::ACCEPT, "application/json").body(body);
        let request = request.build().map_err(|error| crate::fault::request(&error))?;
        let response = self.send(&self.stop, request).await.map_err(|error| error.to_string())?;
        Ok((response.status().as_u16(), response.into_body()))
    }

    async fn send(
        &self,
        client: &reqwest::Client,
        request: reqwest::Request,
    ) -> Result<::http::Response<Vec<u8>>, Failed> {
        if !self.addresses.allow(request.url()) {
            return Err(
                format!("{} is in a private network, and the pack does not name it", host(request.url())).into()
            );
        }
        if !is_safe(request.url()) {
            return Err(format!("{} is http: credentials would travel unencrypted", host(request.url())).into());
        }
        let response = client.execute(request).await.map_err(|error| crate::fault::request(&error))?;
        let mut builder = ::http::Response::builder().status(response.status());
        for (name, value) in response.headers() {
            builder = builder.header(name, value);
        }
        let mut body = Vec::new();
        let mut chunks = response.bytes_stream();
        while let Some(chunk) = chunks.next().await {
            let chunk = chunk.map_err(|error| crate::fault::request(&error))?;
            if body.len() + chunk.len() > MAX_BODY_BYTES {
                return Err(format!("an answer of more than {MAX_BODY_BYTES} bytes").into());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(builder.body(body)?)
    }
}

/// Encrypted, or on this machine.
pub(super) fn is_safe(url: &Url) -> bool {
    match url.scheme() {
        "https" => true,
        "http" => url.host_str().is_some_and(|host| {
            let host = host.trim_matches(['[', ']']);
            host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
        }),
        _ => false,
    }
}

fn host(url: &Url) -> String {
    super::shown(url.host_str().unwrap_or("the address"))
}

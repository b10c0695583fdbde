//! The SDK's requests to authorization servers: bounded, encrypted, and only where they may go.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use reqwest::Url;
use rmcp::transport::auth::{OAuthHttpClient, OAuthHttpClientFuture, OAuthHttpRedirectPolicy, OAuthHttpRequest};
use serde_json::Value;
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
    /// What was wrong with the last request, where the SDK does not say it. A lock, because clones of one request's errors ask for it.
    trouble: Mutex<Option<String>>,
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
        Ok(Self { follow: build(builder()?)?, stop, addresses, trouble: Mutex::default() })
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

    /// What was wrong with the last request, if something was.
    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn send(
        &self,
        client: &reqwest::Client,
        request: reqwest::Request,
    ) -> Result<::http::Response<Vec<u8>>, Failed> {
        let sent = self.exchange(client, request).await;
        let trouble = match &sent {
            Err(error) => Some(error.to_string()),
            Ok(answer) if answer.status().as_u16() >= 400 && !says_why(answer.body()) => {
                Some(format!("HTTP {}", answer.status().as_u16()))
            }
            Ok(_) => None,
        };
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = trouble;
        sent
    }

    async fn exchange(
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
        Ok(builder.body(lives_in_numbers(body))?)
    }
}

/// An error as OAuth tells it.
fn says_why(body: &[u8]) -> bool {
    serde_json::from_slice::<Value>(body).is_ok_and(|body| body.get("error").is_some_and(Value::is_string))
}

/// Some servers give the life of a token as text, or with a fraction; the SDK takes whole numbers only.
fn lives_in_numbers(body: Vec<u8>) -> Vec<u8> {
    let Ok(mut read) = serde_json::from_slice::<Value>(&body) else { return body };
    let Some(life) = read.get_mut("expires_in").filter(|life| !life.is_u64()) else { return body };
    let seconds = match &*life {
        Value::String(text) => text.trim().parse::<f64>().ok(),
        other => other.as_f64(),
    };
    // What is no number is left out: the server says when the token is over.
    *life = seconds.filter(|s| s.is_finite() && *s >= 0.0).map_or(Value::Null, |s| Value::from(s as u64));
    serde_json::to_vec(&read).unwrap_or(body)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_life_of_a_token_is_a_whole_number_whatever_the_server_wrote() {
        for (given, want) in [
            (r#"{"a":1,"expires_in":"3600"}"#, r#"{"a":1,"expires_in":3600}"#),
            (r#"{"expires_in":3599.9}"#, r#"{"expires_in":3599}"#),
            (r#"{"expires_in":"soon"}"#, r#"{"expires_in":null}"#),
            (r#"{"expires_in":-5}"#, r#"{"expires_in":null}"#),
            (r#"{"expires_in": 3600}"#, r#"{"expires_in": 3600}"#),
            ("{\"expires_in\"", "{\"expires_in\""),
        ] {
            assert_eq!(String::from_utf8_lossy(&lives_in_numbers(given.into())), want);
        }
    }
}

//! A server's address, headers and certificates, made of its plan when it is reached: here variables are expanded and files are read.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use http::{HeaderName, HeaderValue};
use vance_shared::launch::{Auth, Tls};
use vance_shared::show::quoted;

use crate::env::{self, Words};
use crate::fault;

/// To reach a server's port.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Redirects that stay on the same origin.
const MAX_REDIRECTS: usize = 3;
/// A file of certificates: the system's whole bundle has 220 KiB.
const MAX_PEM_BYTES: u64 = 1024 * 1024;

/// What goes to a server with every request.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) url: String,
    pub(crate) headers: HashMap<HeaderName, HeaderValue>,
}

/// Expands an address, its headers and constant credentials.
pub(crate) fn endpoint<'a>(
    url: &str,
    headers: &BTreeMap<String, String>,
    auth: &Auth,
    words: impl Into<Words<'a>>,
) -> Result<Endpoint, String> {
    let words = words.into();
    let mut out = HashMap::new();
    for (name, value) in headers {
        let value = env::expand(value, name, words).map_err(|error| error.to_string())?;
        let name =
            HeaderName::try_from(name.as_str()).map_err(|_| format!("{} is no header name", quoted(name, 60)))?;
        out.insert(name.clone(), header(&name, value)?);
    }
    if let Auth::Basic { user, password } = auth {
        let expand = |text: &str, place: &str| env::expand(text, place, words).map_err(|error| error.to_string());
        let (user, password) = (expand(user, "user")?, expand(password, "password")?);
        if user.contains(':') {
            return Err("the user of its basic authentication holds a colon".to_owned());
        }
        let pair = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
        out.insert(http::header::AUTHORIZATION, header(&http::header::AUTHORIZATION, format!("Basic {pair}"))?);
    }
    let url = env::expand_with(url, "url", words, encode_query).map_err(|error| error.to_string())?;
    Ok(Endpoint { url, headers: out })
}

fn header(name: &HeaderName, value: String) -> Result<HeaderValue, String> {
    let mut value = HeaderValue::try_from(value)
        .map_err(|_| format!("the value of header {name} has characters that no header may have"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// A variable's value as a part of a query.
pub(crate) fn encode_query(value: &str) -> String {
    let mut out = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            out.push(char::from(byte));
        } else {
            let written = write!(out, "%{byte:02X}");
            debug_assert!(written.is_ok(), "writing to a String cannot fail");
        }
    }
    out
}

/// The client of one server: nothing leaves its origin.
pub(crate) fn client(tls: &Tls, project_dir: Option<&Path>) -> Result<reqwest::Client, String> {
    client_builder(tls, project_dir)?.build().map_err(|error| fault::request(&error))
}

/// The same, not built yet.
pub(crate) fn client_builder(tls: &Tls, project_dir: Option<&Path>) -> Result<reqwest::ClientBuilder, String> {
    let mut builder = builder(tls, project_dir)?;
    if let Some(cert) = &tls.client_cert_file {
        let mut pem = read_pem(cert, project_dir)?;
        if let Some(key) = &tls.client_key_file {
            pem.push(b'\n');
            pem.extend(read_pem(key, project_dir)?);
        }
        let identity = reqwest::Identity::from_pem(&pem)
            .map_err(|_| format!("the client certificate {} has no certificate and key in PEM", quoted(cert, 200)))?;
        builder = builder.identity(identity);
    }
    if tls.insecure {
        builder = builder.tls_danger_accept_invalid_certs(true);
    }
    Ok(builder)
}

/// What every client of ours has: redirects on the same origin only, and the pack's certificates beside the system's.
pub(crate) fn builder(tls: &Tls, project_dir: Option<&Path>) -> Result<reqwest::ClientBuilder, String> {
    let same_origin = reqwest::redirect::Policy::custom(|attempt| {
        let stays = attempt.previous().last().is_some_and(|from| from.origin() == attempt.url().origin());
        if stays && attempt.previous().len() <= MAX_REDIRECTS { attempt.follow() } else { attempt.stop() }
    });
    let builder = reqwest::Client::builder().redirect(same_origin).connect_timeout(CONNECT_TIMEOUT).tcp_nodelay(true);
    let Some(file) = &tls.ca_file else { return Ok(builder) };
    let certificates = reqwest::Certificate::from_pem_bundle(&read_pem(file, project_dir)?)
        .ok()
        .filter(|certificates| !certificates.is_empty())
        .ok_or_else(|| format!("the file {} has no certificates in PEM", quoted(file, 200)))?;
    Ok(builder.tls_certs_merge(certificates))
}

fn read_pem(file: &str, project_dir: Option<&Path>) -> Result<Vec<u8>, String> {
    let path = match (file.strip_prefix("~/"), project_dir) {
        (Some(rest), _) => std::env::home_dir().ok_or("there is no home directory for ~/")?.join(rest),
        (None, Some(project)) => project.join(file),
        (None, None) => PathBuf::from(file),
    };
    let unreadable = |error: std::io::Error| format!("cannot read {}: {error}", quoted(&path.to_string_lossy(), 200));
    let mut pem = Vec::new();
    let opened = std::fs::File::open(&path).map_err(unreadable)?;
    opened.take(MAX_PEM_BYTES + 1).read_to_end(&mut pem).map_err(unreadable)?;
    if pem.len() as u64 > MAX_PEM_BYTES {
        return Err(format!("{} has more than {MAX_PEM_BYTES} bytes", quoted(&path.to_string_lossy(), 200)));
    }
    Ok(pem)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::ffi::OsString;

    use super::*;

    fn vars(pairs: &[(&str, &str)]) -> BTreeMap<OsString, OsString> {
        pairs.iter().map(|(name, value)| (name.into(), value.into())).collect()
    }

    #[test]
    fn credentials_are_expanded_before_they_are_encoded() {
        let ambient = vars(&[("U", "u"), ("P", "p:1"), ("K", "a&b=c")]);
        let basic = Auth::Basic { user: "${env:U}".into(), password: "${env:P}".into() };
        let made = endpoint("https://h/mcp?k=${env:K}", &BTreeMap::new(), &basic, &ambient).unwrap();
        assert_eq!(made.url, "https://h/mcp?k=a%26b%3Dc");
        let value = &made.headers[&http::header::AUTHORIZATION];
        assert_eq!((value.to_str().unwrap(), value.is_sensitive()), ("Basic dTpwOjE=", true));
    }

    #[test]
    fn what_cannot_be_sent_is_an_error_of_the_pack() {
        let ambient = vars(&[("COLON", "a:b"), ("LINE", "a\nb"), ("U", "u")]);
        let basic = |user: &str| Auth::Basic { user: user.into(), password: "p".into() };
        let headers = |value: &str| BTreeMap::from([("X".to_owned(), value.to_owned())]);
        for (headers, auth, want) in [
            (headers("${env:NOPE}"), Auth::Constant, "environment variable NOPE is not set (named by 'X')"),
            (headers("${env:LINE}"), Auth::Constant, "the value of header x has characters that no header may have"),
            (headers("x"), basic("${env:NOPE}"), "environment variable NOPE is not set (named by 'user')"),
            (headers("x"), basic("${env:COLON}"), "the user of its basic authentication holds a colon"),
        ] {
            assert_eq!(endpoint("https://h", &headers, &auth, &ambient).unwrap_err(), want);
        }
        let missing = Tls { ca_file: Some("/nowhere/ca.pem".into()), ..Tls::default() };
        assert!(builder(&missing, None).unwrap_err().starts_with("cannot read '/nowhere/ca.pem': "));
    }
}

//! A streamable-HTTP server: the address, constant headers and credentials.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::{Report, references};
use crate::doc::{Fields, ticked};
use crate::launch::{Auth, Transport};
use crate::secrets;

pub(super) mod auth;
mod tls;
pub(super) use tls::read as tls;

/// Headers that the protocol or the HTTP client sets; a constant would break the exchange.
const OWN_HEADERS: [&str; 11] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "last-event-id",
    "mcp-protocol-version",
    "mcp-session-id",
    "transfer-encoding",
    "upgrade",
];

/// Where most credentials go.
const AUTHORIZATION: &str = "Authorization";

/// Reads `url`, `headers`, `auth` and `tls`.
pub(super) fn http(fields: &mut Fields<'_>, report: &Report<'_>) -> Option<Transport> {
    fields.require("url", "the server's address such as https://example.com/mcp");
    let url = url(fields, report);
    let mut headers = headers(fields, &OWN_HEADERS, report);
    let credentials = fields.take("auth").and_then(|node| auth::read(node, report));
    let line = fields.line_of("auth");
    let tls = tls(fields, report);
    let mut url = url?;
    let auth = match credentials {
        Some(auth::Credentials::Header { name, value }) => {
            no_other(&headers, &name, line, report);
            headers.insert(name, value);
            Auth::Constant
        }
        Some(auth::Credentials::Query { name, value }) => {
            let separator = if url.contains('?') { '&' } else { '?' };
            url = format!("{url}{separator}{}={}", encode_query(&name), encode_query(&value));
            Auth::Constant
        }
        Some(auth::Credentials::Other(auth)) => {
            if auth != Auth::Constant {
                no_other(&headers, AUTHORIZATION, line, report);
            }
            auth
        }
        None if headers.keys().any(|name| name.eq_ignore_ascii_case(AUTHORIZATION)) => Auth::Constant,
        None => Auth::IfAsked,
    };
    Some(Transport::Http { url, headers, auth, tls })
}

pub(super) fn no_other(headers: &BTreeMap<String, String>, name: &str, line: u32, report: &Report<'_>) {
    if headers.keys().any(|h| h.eq_ignore_ascii_case(name)) {
        report.problems.add(line, format!("`auth` and `headers` both set {}, remove one", ticked(name)));
    }
}

fn url(fields: &mut Fields<'_>, report: &Report<'_>) -> Option<String> {
    let text = fields.take_str("url")?;
    let line = fields.line_of("url");
    references::check_literal(text, "`url`", line, report);
    match check_url(text) {
        Ok(Security::Plain) => {
            report.warnings.add(line, "`url` is http: everything travels unencrypted; use https");
            Some(text.to_owned())
        }
        Ok(Security::Encrypted | Security::Loopback) => Some(text.to_owned()),
        Err(message) => {
            report.problems.add(line, format!("`url` {message}"));
            None
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Security {
    Encrypted,
    Loopback,
    Plain,
}

/// Strict on purpose: whatever two URL readers could understand differently is refused.
pub(super) fn check_url(text: &str) -> Result<Security, String> {
    const EXPECTED: &str = "expected an address such as https://example.com/mcp";
    if text.chars().any(|c| !c.is_ascii_graphic() || c == '\\') {
        return Err("holds blanks, backslashes or characters outside ASCII; write a foreign host in its xn-- form and encode the rest with %".to_owned());
    }
    let Some((scheme, rest)) = text.split_once("://") else { return Err(format!("has no scheme, {EXPECTED}")) };
    let encrypted = match scheme.to_ascii_lowercase().as_str() {
        "https" => true,
        "http" => false,
        _ => return Err(format!("has the scheme {}, {EXPECTED}", crate::show::quoted(scheme, 20))),
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err("holds a user name or password; use `auth` or `headers`".to_owned());
    }
    if text.contains('#') {
        return Err("has a fragment (#...), remove it".to_owned());
    }
    let (host, port) = match authority.strip_prefix('[').map(|v6| v6.split_once(']')) {
        Some(Some((host, after))) => (host, after.strip_prefix(':').or(if after.is_empty() { None } else { Some("") })),
        Some(None) => return Err(format!("has a broken IPv6 host, {EXPECTED}")),
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if host.is_empty() {
        return Err(format!("has no host, {EXPECTED}"));
    }
    if port.is_some_and(|p| !p.bytes().all(|b| b.is_ascii_digit()) || !matches!(p.parse::<u16>(), Ok(1..))) {
        return Err("has a port that is no number from 1 to 65535".to_owned());
    }
    let v6 = authority.starts_with('[');
    let well_formed = match v6 {
        true => host.parse::<Ipv6Addr>().is_ok(),
        false => host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_')),
    };
    if !well_formed {
        return Err(format!("has the host {}, {EXPECTED}", crate::show::quoted(host, 80)));
    }
    if !v6 && reads_as_number(host) && host.parse::<Ipv4Addr>().is_err() {
        return Err(format!(
            "has the host {}, which programs read in different ways; write the address in full",
            crate::show::quoted(host, 80)
        ));
    }
    // Decided on the parsed address: `127.evil.com` is not loopback.
    let loopback = host.eq_ignore_ascii_case("localhost")
        || host.parse::<Ipv4Addr>().is_ok_and(|a| a.is_loopback())
        || host.parse::<Ipv6Addr>().is_ok_and(|a| a.is_loopback());
    Ok(match (encrypted, loopback) {
        (true, _) => Security::Encrypted,
        (false, true) => Security::Loopback,
        (false, false) => Security::Plain,
    })
}

/// Whether URL readers take a host for an IPv4 address: `127.1`, `0x7f000001` and `010.0.0.1` mean an address to some of them.
fn reads_as_number(host: &str) -> bool {
    let last = host.strip_suffix('.').unwrap_or(host).rsplit('.').next().unwrap_or_default();
    let hex = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    let digits = !last.is_empty() && last.bytes().all(|b| b.is_ascii_digit());
    digits || hex.is_some_and(|hex| hex.bytes().all(|b| b.is_ascii_hexdigit()))
}

/// Constant headers; `own` are those that a pack cannot set.
pub(super) fn headers(fields: &mut Fields<'_>, own: &[&str], report: &Report<'_>) -> BTreeMap<String, String> {
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    for (name, value, line) in fields.take_str_map("headers", "names and texts").unwrap_or_default() {
        let place = format!("{} in `headers`", ticked(name));
        if let Err(message) = check_header(name, value, own) {
            report.problems.add(line, format!("{place} {message}"));
        }
        if headers.keys().any(|h| h.eq_ignore_ascii_case(name)) {
            report.problems.add(line, format!("{place} is there twice, remove one"));
        }
        references::check_expanded(value, &place, line, report);
        headers.insert(name.to_owned(), value.to_owned());
    }
    headers
}

fn check_header(name: &str, value: &str, own: &[&str]) -> Result<(), &'static str> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(token) {
        return Err("is no header name");
    }
    if own.contains(&name.to_ascii_lowercase().as_str()) {
        return Err("is set by the protocol itself, remove it");
    }
    if !value.chars().all(|c| c == ' ' || c == '\t' || c.is_ascii_graphic()) {
        return Err("holds control characters or characters outside ASCII");
    }
    Ok(())
}

/// Percent-encodes a query part; `${env:NAME}` and `{{secret:NAME}}` stay, to be expanded at launch.
fn encode_query(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let closed = [("${env:", "}"), (secrets::OPEN, secrets::CLOSE)].into_iter().find_map(|(open, close)| {
            let inside = rest.strip_prefix(open)?;
            Some(open.len() + inside.find(close)? + close.len())
        });
        if let Some(end) = closed {
            out.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        }
        if c.is_ascii_alphanumeric() || "-._~".contains(c) {
            out.push(c);
        } else {
            for byte in c.to_string().bytes() {
                let written = write!(out, "%{byte:02X}");
                debug_assert!(written.is_ok(), "writing to a String cannot fail");
            }
        }
        rest = &rest[c.len_utf8()..];
    }
    out
}

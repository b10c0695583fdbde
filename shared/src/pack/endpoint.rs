//! A streamable-HTTP server: the address, constant headers and credentials.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use base64::Engine as _;

use super::{Report, references};
use crate::doc::{Fields, Node, ticked};
use crate::launch::Transport;

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

/// Reads `url`, `headers`, `auth` and `tls`.
pub(super) fn http(fields: &mut Fields<'_>, report: &Report<'_>) -> Option<Transport> {
    fields.require("url", "the server's address such as https://example.com/mcp");
    let url = url(fields, report);
    let mut headers = headers(fields, report);
    let auth = fields.take("auth").and_then(|node| auth(node, report));
    let line = fields.line_of("auth");
    if let Some(tls) = fields.take("tls")
        && !(tls.is_null() || tls.as_map().is_some_and(<[_]>::is_empty))
    {
        fields.add(
            "tls",
            "`tls` settings are not supported by this release, remove them; the system's certificates are used",
        );
    }
    let mut url = url?;
    match auth {
        Some(Auth::Header { name, value }) => {
            if headers.keys().any(|h| h.eq_ignore_ascii_case(&name)) {
                report.problems.add(line, format!("`auth` and `headers` both set {}, remove one", ticked(&name)));
            }
            headers.insert(name, value);
        }
        Some(Auth::Query { name, value }) => {
            let separator = if url.contains('?') { '&' } else { '?' };
            url = format!("{url}{separator}{}={}", encode_query(&name), encode_query(&value));
        }
        Some(Auth::None) | None => {}
    }
    Some(Transport::Http { url, headers })
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
enum Security {
    Encrypted,
    Loopback,
    Plain,
}

/// Strict on purpose: whatever two URL readers could understand differently is refused.
fn check_url(text: &str) -> Result<Security, String> {
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

fn headers(fields: &mut Fields<'_>, report: &Report<'_>) -> BTreeMap<String, String> {
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    for (name, value, line) in fields.take_str_map("headers", "names and texts").unwrap_or_default() {
        let place = format!("{} in `headers`", ticked(name));
        if let Err(message) = check_header(name, value) {
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

fn check_header(name: &str, value: &str) -> Result<(), &'static str> {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(token) {
        return Err("is no header name");
    }
    if OWN_HEADERS.contains(&name.to_ascii_lowercase().as_str()) {
        return Err("is set by the protocol itself, remove it");
    }
    if !value.chars().all(|c| c == ' ' || c == '\t' || c.is_ascii_graphic()) {
        return Err("holds control characters or characters outside ASCII");
    }
    Ok(())
}

enum Auth {
    None,
    Header { name: String, value: String },
    Query { name: String, value: String },
}

#[derive(Clone, Copy)]
enum AuthKind {
    None,
    Bearer,
    Basic,
    ApiKey,
    OAuth2,
}

const AUTH_KINDS: [(&str, AuthKind); 5] = [
    ("none", AuthKind::None),
    ("bearer", AuthKind::Bearer),
    ("basic", AuthKind::Basic),
    ("apiKey", AuthKind::ApiKey),
    ("oauth2", AuthKind::OAuth2),
];

/// `"none"`, `{"type": "bearer", "token": …}` or `{"bearer": {"token": …}}`.
fn auth(node: &Node, report: &Report<'_>) -> Option<Auth> {
    let expected = "expected none or one such as {\"type\": \"bearer\", \"token\": \"${env:TOKEN}\"}";
    let named = |word: &str| AUTH_KINDS.iter().find(|(name, _)| *name == word).map(|(_, kind)| *kind);
    if let Some(word) = node.as_str() {
        return match named(word) {
            Some(AuthKind::None) => Some(Auth::None),
            Some(AuthKind::OAuth2) => no_oauth(node.line, report),
            Some(AuthKind::Bearer | AuthKind::Basic | AuthKind::ApiKey) | None => {
                report.problems.add(node.line, format!("`auth` is {}, {expected}", node.describe()));
                None
            }
        };
    }
    let mut fields = Fields::of(node, "`auth`", report.problems)?;
    if fields.has("type") {
        let kind = fields.take_enum("type", &AUTH_KINDS)?;
        return credentials(kind, fields, report);
    }
    match node.as_map() {
        Some([only]) if named(&only.key).is_some() => match named(&only.key) {
            Some(AuthKind::OAuth2) => no_oauth(only.line, report),
            Some(AuthKind::None) => Some(Auth::None),
            Some(kind) => credentials(kind, Fields::of(&only.value, ticked(&only.key), report.problems)?, report),
            None => None,
        },
        _ => {
            report.problems.add(node.line, format!("`auth` has no `type`, {expected}"));
            None
        }
    }
}

fn no_oauth(line: u32, report: &Report<'_>) -> Option<Auth> {
    let message =
        "oauth2 is not supported by this release; use a token: {\"type\": \"bearer\", \"token\": \"${env:TOKEN}\"}";
    report.problems.add(line, message);
    None
}

fn credentials(kind: AuthKind, mut fields: Fields<'_>, report: &Report<'_>) -> Option<Auth> {
    let auth = match kind {
        AuthKind::None => Some(Auth::None),
        AuthKind::OAuth2 => return no_oauth(fields.line(), report),
        AuthKind::Bearer => secret(&mut fields, "token", report)
            .map(|token| Auth::Header { name: "Authorization".to_owned(), value: format!("Bearer {token}") }),
        AuthKind::Basic => basic(&mut fields, report),
        AuthKind::ApiKey => api_key(&mut fields, report),
    };
    report.finish(&fields);
    auth
}

fn secret(fields: &mut Fields<'_>, name: &'static str, report: &Report<'_>) -> Option<String> {
    fields.require(name, "text such as ${env:TOKEN}");
    let text = fields.take_str(name)?;
    references::check_expanded(text, &format!("`{name}`"), fields.line_of(name), report);
    if text.is_empty() || check_header("x", text).is_err() {
        fields.add(name, format!("`{name}` is empty or holds control characters or characters outside ASCII"));
        return None;
    }
    Some(text.to_owned())
}

fn basic(fields: &mut Fields<'_>, report: &Report<'_>) -> Option<Auth> {
    let (user, password) = (secret(fields, "user", report), secret(fields, "password", report));
    let (user, password) = (user?, password?);
    if user.contains(':') {
        fields.add("user", "`user` holds a colon, which basic authentication cannot carry");
        return None;
    }
    if format!("{user}{password}").contains("${env:") {
        // The pair is encoded together, before variables are known.
        fields.add("password", "${env:NAME} does not work in basic; set \"headers\": {\"Authorization\": \"Basic ${env:NAME}\"} with the encoded pair in the variable");
        return None;
    }
    let pair = base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
    Some(Auth::Header { name: "Authorization".to_owned(), value: format!("Basic {pair}") })
}

fn api_key(fields: &mut Fields<'_>, report: &Report<'_>) -> Option<Auth> {
    let value = secret(fields, "value", report);
    let header = fields.take_str("headerName");
    let query = fields.take_str("queryParamName");
    match (header, query) {
        (Some(name), None) => match check_header(name, "") {
            Ok(()) => Some(Auth::Header { name: name.to_owned(), value: value? }),
            Err(message) => {
                fields.add("headerName", format!("{} {message}", ticked(name)));
                None
            }
        },
        (None, Some(name)) if !name.is_empty() => Some(Auth::Query { name: name.to_owned(), value: value? }),
        (Some(_), Some(_)) => {
            fields.add("queryParamName", "`headerName` and `queryParamName` are both there, remove one");
            None
        }
        (None, Some(_) | None) => {
            report.problems.add(fields.line(), "apiKey has no `headerName` or `queryParamName`, expected one of them");
            None
        }
    }
}

/// Percent-encodes a query part; `${env:NAME}` stays, to be expanded at launch.
fn encode_query(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if rest.starts_with("${env:")
            && let Some(end) = rest.find('}')
        {
            out.push_str(&rest[..=end]);
            rest = &rest[end + 1..];
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

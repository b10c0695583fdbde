//! `auth`: who we are to a server.

use super::super::{Report, references};
use super::{AUTHORIZATION, OWN_HEADERS, check_header, check_url};
use crate::doc::{Fields, Node, ticked};
use crate::launch::{Auth, Grant, OAuth};
use crate::secrets;

/// Scopes of one pack: more is a mistake.
const MAX_SCOPES: usize = 64;

/// What `auth` says.
pub(in super::super) enum Credentials {
    /// One constant header.
    Header { name: String, value: String },
    /// One part of the query.
    Query { name: String, value: String },
    /// What cannot be said by a constant.
    Other(Auth),
}

#[derive(Clone, Copy)]
enum Kind {
    None,
    Bearer,
    Basic,
    ApiKey,
    OAuth2,
}

const KINDS: [(&str, Kind); 5] = [
    ("none", Kind::None),
    ("bearer", Kind::Bearer),
    ("basic", Kind::Basic),
    ("apiKey", Kind::ApiKey),
    ("oauth2", Kind::OAuth2),
];

/// `"none"`, `"oauth2"`, `{"type": "bearer", "token": …}` or `{"bearer": {"token": …}}`.
pub(in super::super) fn read(node: &Node, report: &Report<'_>) -> Option<Credentials> {
    let expected = "expected none or one such as {\"type\": \"bearer\", \"token\": \"${env:TOKEN}\"}";
    let named = |word: &str| KINDS.iter().find(|(name, _)| *name == word).map(|(_, kind)| *kind);
    if let Some(word) = node.as_str() {
        return match named(word) {
            Some(Kind::None) => Some(Credentials::Other(Auth::Constant)),
            Some(Kind::OAuth2) => Some(Credentials::Other(Auth::OAuth(OAuth::default()))),
            Some(Kind::Bearer | Kind::Basic | Kind::ApiKey) | None => {
                report.problems.add(node.line, format!("`auth` is {}, {expected}", node.describe()));
                None
            }
        };
    }
    let mut fields = Fields::of(node, "`auth`", report.problems)?;
    if fields.has("type") {
        let kind = fields.take_enum("type", &KINDS)?;
        return credentials(kind, fields, report);
    }
    match node.as_map() {
        Some([only]) if named(&only.key).is_some() => match named(&only.key) {
            Some(Kind::None) => Some(Credentials::Other(Auth::Constant)),
            Some(kind) => credentials(kind, Fields::of(&only.value, ticked(&only.key), report.problems)?, report),
            None => None,
        },
        _ => {
            report.problems.add(node.line, format!("`auth` has no `type`, {expected}"));
            None
        }
    }
}

fn credentials(kind: Kind, mut fields: Fields<'_>, report: &Report<'_>) -> Option<Credentials> {
    let credentials = match kind {
        Kind::None => Some(Credentials::Other(Auth::Constant)),
        Kind::OAuth2 => oauth(&mut fields, report).map(|oauth| Credentials::Other(Auth::OAuth(oauth))),
        Kind::Bearer => secret(&mut fields, "token", report)
            .map(|token| Credentials::Header { name: AUTHORIZATION.to_owned(), value: format!("Bearer {token}") }),
        Kind::Basic => basic(&mut fields, report),
        Kind::ApiKey => api_key(&mut fields, report),
    };
    report.finish(&fields);
    credentials
}

pub(in super::super) fn secret(fields: &mut Fields<'_>, name: &'static str, report: &Report<'_>) -> Option<String> {
    fields.require(name, "text such as ${env:TOKEN}");
    optional_secret(fields, name, report)
}

pub(in super::super) fn optional_secret(
    fields: &mut Fields<'_>,
    name: &'static str,
    report: &Report<'_>,
) -> Option<String> {
    let text = fields.take_str(name)?;
    references::check_expanded(text, &format!("`{name}`"), fields.line_of(name), report);
    if text.is_empty() || check_header("x", text, &OWN_HEADERS).is_err() {
        fields.add(name, format!("`{name}` is empty or holds control characters or characters outside ASCII"));
        return None;
    }
    Some(text.to_owned())
}

fn basic(fields: &mut Fields<'_>, report: &Report<'_>) -> Option<Credentials> {
    let (user, password) = (secret(fields, "user", report), secret(fields, "password", report));
    let (user, password) = (user?, password?);
    if without_references(&user).contains(':') {
        fields.add("user", "`user` holds a colon, which basic authentication cannot carry");
        return None;
    }
    Some(Credentials::Other(Auth::Basic { user, password }))
}

/// A text without its `${env:NAME}` and `{{secret:NAME}}`.
pub(in super::super) fn without_references(text: &str) -> String {
    let without = |text: &str, open: &str, close: &str| {
        let mut parts = text.split(open);
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |kept, part| kept + part.split_once(close).map_or("", |(_, rest)| rest))
    };
    without(&without(text, "${env:", "}"), secrets::OPEN, secrets::CLOSE)
}

fn api_key(fields: &mut Fields<'_>, report: &Report<'_>) -> Option<Credentials> {
    let value = secret(fields, "value", report);
    let mut header = fields.take_str("headerName");
    let mut query = fields.take_str("queryParamName");
    // OpenAPI's own words for the same.
    if fields.has("in") || fields.has("name") {
        fields.require("in", "header or query");
        fields.require("name", "the header's or parameter's name");
        let named = fields.take_str("name");
        match fields.take_enum("in", &[("header", true), ("query", false)])? {
            true => header = header.or(named),
            false => query = query.or(named),
        }
    }
    match (header, query) {
        (Some(name), None) => match check_header(name, "", &OWN_HEADERS) {
            Ok(()) => Some(Credentials::Header { name: name.to_owned(), value: value? }),
            Err(message) => {
                fields.add("headerName", format!("{} {message}", ticked(name)));
                None
            }
        },
        (None, Some(name)) if !name.is_empty() => Some(Credentials::Query { name: name.to_owned(), value: value? }),
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

fn oauth(fields: &mut Fields<'_>, report: &Report<'_>) -> Option<OAuth> {
    let client_id = optional_secret(fields, "clientId", report);
    let client_secret = optional_secret(fields, "clientSecret", report);
    if client_secret.is_some() {
        fields.require("clientId", "the client that the secret belongs to");
    }
    let words = [("authorization_code", Grant::AuthorizationCode), ("client_credentials", Grant::ClientCredentials)];
    let grant = match fields.has("grant") {
        true => fields.take_enum("grant", &words)?,
        // Whoever has a secret of its own mostly acts for itself.
        false if client_secret.is_some() => Grant::ClientCredentials,
        false => Grant::AuthorizationCode,
    };
    if grant == Grant::ClientCredentials {
        fields.require("clientId", "the client's id");
        fields.require("clientSecret", "the client's secret such as ${env:CLIENT_SECRET}");
    }
    let scopes = scopes(fields, report);
    let oauth = OAuth {
        grant,
        client_id,
        client_secret,
        client_metadata_url: address(fields, "clientMetadataUrl", report),
        scopes,
        issuer: address(fields, "issuer", report),
        token_url: address(fields, "tokenUrl", report),
        callback_port: fields.take_u64("callbackPort", 1..=65_535).and_then(|port| u16::try_from(port).ok()),
    };
    if oauth.token_url.is_some() && oauth.grant == Grant::AuthorizationCode {
        fields.add("tokenUrl", "`tokenUrl` works with client_credentials only; a login finds it by itself");
    }
    Some(oauth)
}

pub(in super::super) fn scopes(fields: &mut Fields<'_>, report: &Report<'_>) -> Vec<String> {
    let list = fields.take_strs("scopes", "a list such as [\"mcp:read\"]").unwrap_or_default();
    if list.len() > MAX_SCOPES {
        fields.add("scopes", format!("{} scopes, expected at most {MAX_SCOPES}", list.len()));
    }
    for (scope, line) in &list {
        references::check_literal(scope, "`scopes`", *line, report);
        // RFC 6749, appendix A.4.
        if scope.is_empty() || !scope.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\') {
            let shown = crate::show::quoted(scope, 60);
            report.problems.add(*line, format!("a scope is one word of printable ASCII, got {shown}"));
        }
    }
    list.into_iter().map(|(scope, _)| scope.to_owned()).collect()
}

/// Where credentials are sent: encrypted, or this machine.
pub(in super::super) fn address(fields: &mut Fields<'_>, name: &'static str, report: &Report<'_>) -> Option<String> {
    let text = fields.take_str(name)?;
    references::check_literal(text, &format!("`{name}`"), fields.line_of(name), report);
    match check_url(text) {
        Ok(super::Security::Encrypted | super::Security::Loopback) => Some(text.to_owned()),
        Ok(super::Security::Plain) => {
            fields.add(name, format!("`{name}` is http, and credentials would travel unencrypted; use https"));
            None
        }
        Err(message) => {
            fields.add(name, format!("`{name}` {message}"));
            None
        }
    }
}

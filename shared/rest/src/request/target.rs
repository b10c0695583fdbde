//! Where a request goes: the base, the path, and proof that nothing led away from it.

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};
use url::Url;
use vance_shared::call::Fault;
use vance_shared::show::quoted;

use super::style;
use crate::api::Api;
use crate::error::Code;
use crate::operation::{Base, Operation, Piece};
use crate::server;
use crate::settings::Settings;

/// How often a value is decoded in search of dot segments; one that can be decoded more often is refused.
const MAX_DECODINGS: usize = 8;

/// The pack's address, else the nearest of the document's.
pub(super) fn base(api: &Api, operation: &Operation, settings: &Settings) -> Result<Url, Fault> {
    let url = match (&settings.base, &operation.base) {
        (Some(base), _) => base.clone()?,
        (None, own) => {
            let url = match own {
                Base::Document => api.base.clone()?,
                Base::Own(own) => own.as_ref().clone()?,
            };
            api.hosts.check(&url)?;
            url
        }
    };
    if !server::is_usable(&url, settings.insecure_http) {
        let host = url.host_str().unwrap_or_default();
        return Err(Code::NoServer.fault(format!(
            "{host} is reached by http, and everything would travel unencrypted: set an https `baseUrl`, or `allowInsecureHttp`"
        )));
    }
    Ok(url)
}

/// The path with its values, and what the template has of a query.
pub(super) fn path(operation: &Operation, arguments: &Map<String, Value>) -> Result<String, Fault> {
    let mut out = String::with_capacity(operation.path.len() + 32);
    for piece in &operation.template {
        match piece {
            Piece::Text(text) => out.push_str(text),
            Piece::Value(at) => out.push_str(&segment(operation, *at, arguments)?),
            Piece::QueryValue(at) => {
                let parameter = &operation.parameters[*at];
                let value = arguments.get(&parameter.argument).unwrap_or(&Value::Null);
                out.push_str(&style::encoded(&style::scalar(value)));
            }
        }
    }
    let path = out.split('?').next().unwrap_or_default();
    if path.split('/').any(leads_away) {
        return Err(Code::InvalidArgument.fault("the values put together make a path that leads elsewhere"));
    }
    Ok(out)
}

/// One value of a path: it stays within its segment, however often somebody decodes it.
fn segment(operation: &Operation, at: usize, arguments: &Map<String, Value>) -> Result<String, Fault> {
    let parameter = &operation.parameters[at];
    let refused = |why: &str| {
        let name = quoted(&parameter.argument, 64);
        Err(Code::InvalidArgument.fault(format!("the argument {name} is part of the path: {why}")))
    };
    let value = arguments.get(&parameter.argument).unwrap_or(&Value::Null);
    let texts = style::texts(value);
    if texts.iter().all(String::is_empty) {
        return refused("it cannot be empty");
    }
    if texts.iter().any(|text| leads_away(text)) {
        return refused("it cannot hold the segments . or .., however they are written");
    }
    match style::path(parameter, value) {
        Some(text) => Ok(text),
        None => refused("it cannot be empty"),
    }
}

fn is_dots(part: &str) -> bool {
    // Some servers cut a segment at `;`.
    matches!(part.split(';').next(), Some("." | ".."))
}

/// Whether a text holds a dot segment at any depth of decoding; `\` separates like `/`.
fn leads_away(text: &str) -> bool {
    let mut text = text.to_owned();
    for _ in 0..MAX_DECODINGS {
        if text.split(['/', '\\']).any(is_dots) {
            return true;
        }
        let decoded = percent_decode_str(&text).decode_utf8_lossy().into_owned();
        if decoded == text {
            return false;
        }
        text = decoded;
    }
    true
}

/// Puts the address together and looks at what the client's own reader makes of it.
pub(super) fn url(base: &Url, path: &str, query: &[String]) -> Result<Url, Fault> {
    let (path, own) = path.split_once('?').map_or((path, None), |(path, own)| (path, Some(own)));
    let prefix = base.path().trim_end_matches('/');
    let mut text = format!("{}{prefix}{path}", &base[..url::Position::BeforePath]);
    let parts = base.query().into_iter().chain(own).filter(|part| !part.is_empty());
    let parts: Vec<&str> = parts.chain(query.iter().map(String::as_str)).collect();
    if !parts.is_empty() {
        text.push('?');
        text.push_str(&parts.join("&"));
    }
    let away = |why: String| Code::InvalidArgument.fault(format!("the request would lead away from its server: {why}"));
    let url = Url::parse(&text).map_err(|error| away(error.to_string()))?;
    if url.origin() != base.origin() || url.username() != base.username() || url.password() != base.password() {
        return Err(away("another host".to_owned()));
    }
    let rest = url.path().strip_prefix(prefix);
    let within = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let as_many = url.path().split('/').count() == prefix.split('/').count() + path.split('/').count() - 1;
    if !within || !as_many || url.fragment().is_some() {
        return Err(away("another path".to_owned()));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_segments_are_seen_at_any_depth_of_decoding() {
        for (text, want) in [
            ("a", false),
            ("a/b", false),
            ("...", false),
            ("a..b", false),
            ("100%", false),
            ("%zz", false),
            (".", true),
            ("..", true),
            ("a/../b", true),
            ("..\\x", true),
            ("%2e%2E", true),
            ("%252e%252e%252f", true),
            ("..;x/y", true),
            ("..%00", false),
            ("%2525252525252525252525252525252e", true),
        ] {
            assert_eq!(leads_away(text), want, "{text}");
        }
    }
}

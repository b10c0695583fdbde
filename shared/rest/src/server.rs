//! Which server an operation's requests go to.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use url::Url;
use vance_shared::call::Fault;

use crate::document::{Document, Version};
use crate::error::Code;
use crate::raw::RawOperation;

/// Variables of one server: more is a mistake.
const MAX_VARIABLES: usize = 64;

/// The document's own base.
pub(crate) fn of_document(doc: &Document, variables: &BTreeMap<String, String>) -> Result<Url, Fault> {
    if doc.version() == Version::V2 {
        return old(doc, doc.root().get("schemes"));
    }
    match first(doc.root().get("servers")) {
        Some(server) => read(doc, server, variables),
        // An absent list means `/`, seen from the document.
        None => relative(doc, "/"),
    }
}

/// The base of an operation that has one of its own, or whose path has.
pub(crate) fn of_operation(
    doc: &Document,
    raw: &RawOperation<'_>,
    variables: &BTreeMap<String, String>,
) -> Option<Result<Url, Fault>> {
    if doc.version() == Version::V2 {
        let schemes =
            raw.operation.get("schemes").filter(|schemes| schemes.as_array().is_some_and(|l| !l.is_empty()))?;
        return Some(old(doc, Some(schemes)));
    }
    let server = first(raw.operation.get("servers")).or_else(|| first(raw.item.get("servers")))?;
    Some(read(doc, server, variables))
}

/// Whether a server of the document, wherever it stands, has a variable of this name.
pub(crate) fn names(doc: &Document, variable: &str) -> bool {
    let placeholder = format!("{{{variable}}}");
    let has = |holder: &Value| {
        let servers = holder.get("servers").and_then(Value::as_array).into_iter().flatten();
        servers.filter_map(|server| server.get("url")?.as_str()).any(|url| url.contains(&placeholder))
    };
    let items = doc.root().get("paths").and_then(Value::as_object).into_iter().flat_map(|paths| paths.values());
    let mut items = items.filter_map(|item| doc.follow(item).ok());
    has(doc.root()) || items.any(|item| has(item) || item.as_object().is_some_and(|item| item.values().any(has)))
}

fn first(servers: Option<&Value>) -> Option<&Map<String, Value>> {
    servers?.as_array()?.first()?.as_object()
}

/// `host`, `basePath` and `schemes` of 2.0; encrypted if it can be.
fn old(doc: &Document, schemes: Option<&Value>) -> Result<Url, Fault> {
    let root = doc.root();
    let path = root.get("basePath").and_then(Value::as_str).unwrap_or("/");
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let Some(host) = root.get("host").and_then(Value::as_str).filter(|host| !host.is_empty()) else {
        return relative(doc, &path);
    };
    let schemes: Vec<&str> =
        schemes.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let scheme = match (schemes.contains(&"https"), schemes.contains(&"http"), doc.address()) {
        (true, _, _) => "https",
        (false, true, _) => "http",
        (false, false, Some(address)) if matches!(address.scheme(), "http" | "https") => address.scheme(),
        (false, false, Some(_) | None) => "https",
    };
    absolute(doc, &format!("{scheme}://{host}{path}"))
}

fn read(doc: &Document, server: &Map<String, Value>, variables: &BTreeMap<String, String>) -> Result<Url, Fault> {
    let template = server.get("url").and_then(Value::as_str).unwrap_or("/");
    let known = server.get("variables").and_then(Value::as_object);
    let mut url = String::with_capacity(template.len());
    let mut rest = template;
    let mut count = 0;
    while let Some((before, after)) = rest.split_once('{') {
        url.push_str(before);
        let Some((name, tail)) = after.split_once('}') else {
            return Err(unusable(template, "a { has no end"));
        };
        count += 1;
        if count > MAX_VARIABLES {
            return Err(unusable(template, "it has too many variables"));
        }
        url.push_str(&variable(template, name, known, variables)?);
        rest = tail;
    }
    url.push_str(rest);
    absolute(doc, &url)
}

fn variable(
    template: &str,
    name: &str,
    known: Option<&Map<String, Value>>,
    variables: &BTreeMap<String, String>,
) -> Result<String, Fault> {
    let declared = known.and_then(|known| known.get(name));
    let text = |value: &Value| match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    let default = || declared.and_then(|variable| variable.get("default")).and_then(text);
    let Some(value) = variables.get(name).cloned().or_else(default) else {
        let shown = vance_shared::show::quoted(name, 40);
        return Err(unusable(template, &format!("its variable {shown} has no value: set it in `serverVariables`")));
    };
    let allowed: Vec<String> = declared
        .and_then(|variable| variable.get("enum"))
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(text)
        .collect();
    if !allowed.is_empty() && !allowed.contains(&value) {
        let (shown, list) = (vance_shared::show::quoted(name, 40), allowed.join(", "));
        return Err(unusable(template, &format!("its variable {shown} must be one of: {list}")));
    }
    Ok(value)
}

fn absolute(doc: &Document, text: &str) -> Result<Url, Fault> {
    match Url::parse(text.trim()) {
        Ok(url) => check(url, text),
        Err(url::ParseError::RelativeUrlWithoutBase) => relative(doc, text.trim()),
        Err(error) => Err(unusable(text, &error.to_string())),
    }
}

fn relative(doc: &Document, text: &str) -> Result<Url, Fault> {
    let Some(address) = doc.address() else {
        return Err(Code::NoServer.fault("the document names no server: set `baseUrl` in the pack"));
    };
    match address.join(text) {
        Ok(url) => check(url, text),
        Err(error) => Err(unusable(text, &error.to_string())),
    }
}

/// An address that requests can go to.
pub(crate) fn check(url: Url, text: &str) -> Result<Url, Fault> {
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none_or(str::is_empty) {
        return Err(unusable(text, "expected an address such as https://api.example.com/v1"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(unusable(text, "it holds a user name or password"));
    }
    Ok(url)
}

fn unusable(url: &str, why: &str) -> Fault {
    let shown = vance_shared::show::quoted(url, 200);
    Code::NoServer.fault(vance_shared::show::plain(&format!("the server {shown} cannot be used: {why}")))
}

/// Whether requests may travel there: encrypted, or within this machine, or the pack wants it so.
pub(crate) fn is_usable(url: &Url, insecure_http: bool) -> bool {
    url.scheme() != "http" || insecure_http || is_loopback(url)
}

/// Whether an address is this machine's, said literally.
pub(crate) fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(url::Host::Domain(name)) => name.eq_ignore_ascii_case("localhost"),
        Some(url::Host::Ipv4(address)) => address.is_loopback(),
        Some(url::Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

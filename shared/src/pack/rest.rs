//! `parameters` of a `rest_api` pack.

use std::collections::BTreeMap;
use std::time::Duration;

use super::mcp::{Envelope, MAX_SECONDS};
use super::{Report, check_label, endpoint, pretends, references};
use crate::doc::{Fields, Kind, Node, ticked};
use crate::launch::Origin;
use crate::launch::rest::{Deprecated, Exposure, Refs, RestAuth, RestPlan, Retry, Spec};

mod auth;

/// Patterns, hosts or variables of one pack: more is a program.
const MAX_ENTRIES: usize = 1024;
/// More attempts than this is a loop.
const MAX_RETRIES: u64 = 10;
/// More requests at the same time is an attack.
const MAX_CONCURRENCY: u64 = 64;
/// A result has to travel: the largest message is 8 MiB, and a body is in it twice.
const MAX_RESULT_BYTES: u64 = 2 * 1024 * 1024;
/// An answer is held in memory as a whole.
const MAX_RESPONSE_BYTES: u64 = 256 * 1024 * 1024;
/// The largest schema that a tool list can carry.
const MAX_SCHEMA_BYTES: u64 = 1024 * 1024;
/// Headers that the HTTP client sets, or the body decides.
const OWN_HEADERS: [&str; 8] =
    ["connection", "content-length", "content-type", "expect", "host", "te", "transfer-encoding", "upgrade"];

/// Reads the parameters. `None` if no plan can be made of them; what is wrong is in the report.
pub(super) fn plan(node: &Node, envelope: Envelope, report: &Report<'_>) -> Option<RestPlan> {
    let mut fields = Fields::of(node, "`parameters`", report.problems)?;
    let spec = spec(&mut fields, report);
    let sha256 = sha256(&mut fields);
    if sha256.is_some() && matches!(spec, Some(Spec::Inline(_))) {
        let message = "`specSha256` has no meaning for `specInline`, remove it";
        let list = if report.origin == Origin::Project { report.problems } else { report.warnings };
        list.add(fields.line_of("specSha256"), message);
    }
    let insecure_http = fields.take_bool("allowInsecureHttp").unwrap_or(false);
    let base_url = base_url(&mut fields, insecure_http, report);
    let server_variables = texts(&mut fields, "serverVariables", report);
    let allowed_hosts = hosts(&mut fields);
    let auth = fields.take("auth").and_then(|node| auth::read(node, report)).unwrap_or_default();
    let headers = endpoint::headers(&mut fields, &OWN_HEADERS, report);
    if let RestAuth::Header { name, .. } = &auth {
        endpoint::no_other(&headers, name, fields.line_of("auth"), report);
    }
    let (include, exclude) = (patterns(&mut fields, "include"), patterns(&mut fields, "exclude"));
    let idempotency_key = patterns(&mut fields, "idempotencyKey");
    let method_labels = labels(&mut fields, "methodLabels", report);
    let label_overrides = labels(&mut fields, "labelOverrides", report);
    let deferred_overrides = flags(&mut fields, "deferredOverrides");
    let name_overrides = texts(&mut fields, "nameOverrides", report);
    let deprecated = fields.take_enum("deprecated", &[("label", Deprecated::Label), ("skip", Deprecated::Skip)]);
    let exposure = fields
        .take_enum("exposure", &[("auto", Exposure::Auto), ("tools", Exposure::Tools), ("search", Exposure::Search)]);
    let refs = fields.take_enum("refs", &[("defs", Refs::Defs), ("inline", Refs::Inline)]);
    let schema_bytes = bytes(&mut fields, "maxSchemaBytes", MAX_SCHEMA_BYTES);
    let response_bytes = bytes(&mut fields, "maxResponseBytes", MAX_RESPONSE_BYTES);
    let result_bytes = bytes(&mut fields, "maxResultBytes", MAX_RESULT_BYTES);
    let timeout = fields.take_u64("timeoutSeconds", 1..=MAX_SECONDS).map(Duration::from_secs);
    let connect_timeout = fields.take_u64("connectTimeoutSeconds", 1..=MAX_SECONDS).map(Duration::from_secs);
    let retry = retry(&mut fields, report);
    let concurrency = concurrency(&mut fields, report);
    let private = fields.take_bool("allowPrivateNetwork");
    let tls = endpoint::tls(&mut fields, report);
    report.finish(&fields);
    let mut plan = RestPlan::new(envelope.name?, report.origin, spec?);
    plan.spec_sha256 = sha256;
    plan.base_url = base_url;
    plan.server_variables = server_variables;
    plan.allowed_hosts = allowed_hosts;
    plan.auth = auth;
    plan.headers = headers;
    plan.include = include;
    plan.exclude = exclude;
    plan.idempotency_key = idempotency_key;
    plan.method_labels = method_labels.into_iter().map(|(key, list)| (key.to_ascii_uppercase(), list)).collect();
    plan.label_overrides = label_overrides;
    plan.deferred_overrides = deferred_overrides;
    plan.name_overrides = name_overrides;
    plan.deprecated = deprecated.unwrap_or_default();
    plan.exposure = exposure.unwrap_or_default();
    plan.refs = refs.unwrap_or_default();
    plan.max_schema_bytes = schema_bytes.unwrap_or(plan.max_schema_bytes);
    plan.max_response_bytes = response_bytes.unwrap_or(plan.max_response_bytes);
    plan.max_result_bytes = result_bytes.unwrap_or(plan.max_result_bytes);
    plan.timeout = timeout.unwrap_or(plan.timeout);
    plan.connect_timeout = connect_timeout.unwrap_or(plan.connect_timeout);
    plan.retry = retry;
    plan.concurrency = concurrency.unwrap_or(plan.concurrency);
    plan.tls = tls;
    plan.allow_insecure_http = insecure_http;
    plan.allow_private_network = private.unwrap_or(plan.allow_private_network);
    plan.labels = envelope.labels;
    plan.disabled_sub_tools = envelope.disabled_sub_tools;
    plan.source = envelope.source;
    Some(plan)
}

/// Exactly one of `specUrl`, `specFile`, `specInline`.
fn spec(fields: &mut Fields<'_>, report: &Report<'_>) -> Option<Spec> {
    const NAMES: [&str; 3] = ["specUrl", "specFile", "specInline"];
    let there: Vec<&str> = NAMES.into_iter().filter(|name| fields.has(name)).collect();
    let url = fields.take_str("specUrl").and_then(|text| spec_url(text, fields, report));
    let file = fields.take_str("specFile").and_then(|text| spec_file(text, fields, report));
    let inline = fields.take("specInline").and_then(|node| match &node.kind {
        Kind::Mapping(_) | Kind::String(_) => Some(node.to_value()),
        Kind::Null | Kind::Bool(_) | Kind::Number(_) | Kind::Sequence(_) => {
            let message = format!("`specInline` is {}, expected an OpenAPI document or its text", node.describe());
            report.problems.add(node.line, message);
            None
        }
    });
    match there.as_slice() {
        [_] => url.map(Spec::Url).or(file.map(Spec::File)).or(inline.map(Spec::Inline)),
        [] => {
            let message = "`parameters` has no document, expected one of `specUrl`, `specFile`, `specInline`";
            report.problems.add(fields.line(), message);
            None
        }
        [_, second, ..] => {
            fields.add(second, format!("`{}` are all there, expected one of them", there.join("`, `")));
            None
        }
    }
}

fn spec_url(text: &str, fields: &Fields<'_>, report: &Report<'_>) -> Option<String> {
    references::check_literal(text, "`specUrl`", fields.line_of("specUrl"), report);
    match endpoint::check_url(text) {
        Ok(endpoint::Security::Encrypted | endpoint::Security::Loopback) => Some(text.to_owned()),
        Ok(endpoint::Security::Plain) => {
            fields
                .add("specUrl", "`specUrl` is http: whoever is on the way could put in tools of their own; use https");
            None
        }
        Err(message) => {
            fields.add("specUrl", format!("`specUrl` {message}"));
            None
        }
    }
}

fn spec_file(text: &str, fields: &Fields<'_>, report: &Report<'_>) -> Option<String> {
    references::check_literal(text, "`specFile`", fields.line_of("specFile"), report);
    let leaves = text.starts_with(['/', '~']) || text.split(['/', '\\']).any(|part| part == "..");
    if text.is_empty() || text.contains('\0') {
        fields.add("specFile", "`specFile` is no path, expected one such as ./openapi.yaml");
        return None;
    }
    if report.origin == Origin::Project && leaves {
        fields.add("specFile", "`specFile` leaves the pack's folder; a pack of the working directory cannot do that");
        return None;
    }
    Some(text.to_owned())
}

fn sha256(fields: &mut Fields<'_>) -> Option<String> {
    let text = fields.take_str("specSha256")?;
    if text.len() != 64 || !text.bytes().all(|b| b.is_ascii_hexdigit()) {
        fields.add("specSha256", "`specSha256` is no SHA-256, expected 64 hexadecimal digits");
        return None;
    }
    Some(text.to_ascii_lowercase())
}

fn base_url(fields: &mut Fields<'_>, insecure: bool, report: &Report<'_>) -> Option<String> {
    let text = fields.take_str("baseUrl")?;
    let line = fields.line_of("baseUrl");
    references::check_expanded(text, "`baseUrl`", line, report);
    let authority = text.split_once("://").map_or(text, |(_, rest)| rest).split(['/', '?', '#']).next();
    let secret_host = authority.is_some_and(|authority| authority.contains("${env:"));
    if secret_host && report.origin == Origin::Project {
        fields.add("baseUrl", "`baseUrl` has ${env:NAME} in its host; a pack of the working directory cannot do that");
        return None;
    }
    if text.contains("${env:") {
        // What it means is only known after expansion; the request builder looks then.
        return Some(text.to_owned());
    }
    match endpoint::check_url(text) {
        Ok(endpoint::Security::Encrypted | endpoint::Security::Loopback) => Some(text.to_owned()),
        Ok(endpoint::Security::Plain) if insecure => {
            report.warnings.add(line, "`baseUrl` is http: everything travels unencrypted; use https");
            Some(text.to_owned())
        }
        Ok(endpoint::Security::Plain) => {
            fields.add("baseUrl", "`baseUrl` is http: use https, or say \"allowInsecureHttp\": true");
            None
        }
        Err(message) => {
            fields.add("baseUrl", format!("`baseUrl` {message}"));
            None
        }
    }
}

fn texts(fields: &mut Fields<'_>, name: &'static str, report: &Report<'_>) -> BTreeMap<String, String> {
    let entries = fields.take_str_map(name, "names and texts").unwrap_or_default();
    too_many(fields, name, entries.len());
    for (key, text, line) in &entries {
        references::check_literal(text, &format!("{} in `{name}`", ticked(key)), *line, report);
    }
    entries.into_iter().map(|(key, text, _)| (key.to_owned(), text.to_owned())).collect()
}

fn patterns(fields: &mut Fields<'_>, name: &'static str) -> Vec<String> {
    let expected = "a list such as [\"tag:issues\", \"repos/*\", \"GET /users/*\"]";
    let list = fields.take_strs(name, expected).unwrap_or_default();
    too_many(fields, name, list.len());
    for (text, line) in &list {
        if text.trim().is_empty() {
            fields.problems().add(*line, format!("`{name}` holds an empty pattern, remove it"));
        }
    }
    list.into_iter().map(|(text, _)| text.to_owned()).collect()
}

/// `host`, `host:port`, or an origin.
fn hosts(fields: &mut Fields<'_>) -> Option<Vec<String>> {
    let list = fields.take_strs("allowedHosts", "a list such as [\"uploads.example.com\"]")?;
    too_many(fields, "allowedHosts", list.len());
    for (text, line) in &list {
        let url = if text.contains("://") { (*text).to_owned() } else { format!("https://{text}") };
        let path = url.split_once("://").is_some_and(|(_, rest)| rest.contains(['/', '?']));
        if path || endpoint::check_url(&url).is_err() {
            let shown = crate::show::quoted(text, 80);
            fields.problems().add(*line, format!("{shown} in `allowedHosts` is no host, expected uploads.example.com"));
        }
    }
    Some(list.into_iter().map(|(text, _)| text.to_ascii_lowercase()).collect())
}

fn too_many(fields: &Fields<'_>, name: &'static str, count: usize) {
    if count > MAX_ENTRIES {
        fields.add(name, format!("`{name}` has {count} entries, expected at most {MAX_ENTRIES}"));
    }
}

fn labels(fields: &mut Fields<'_>, name: &'static str, report: &Report<'_>) -> BTreeMap<String, Vec<String>> {
    let entries = fields.take_map(name, "names and lists of labels").unwrap_or_default();
    too_many(fields, name, entries.len());
    let mut found = BTreeMap::new();
    for entry in entries {
        let Some(items) = entry.value.as_list() else {
            let place = ticked(&entry.key);
            let message =
                format!("{place} in `{name}` is {}, expected a list such as [\"write\"]", entry.value.describe());
            report.problems.add(entry.line, message);
            continue;
        };
        let mut list = Vec::with_capacity(items.len());
        for item in items {
            match item.as_str() {
                Some(label) if report.origin == Origin::Project && pretends(label, None) => report.warnings.add(
                    item.line,
                    format!("{} stays without effect: a pack of the working directory cannot say that", ticked(label)),
                ),
                Some(label) if check_label(label, item.line, report) => list.push(label.to_owned()),
                Some(_) => {}
                None => report.problems.add(item.line, format!("`{name}` holds {}, expected text", item.describe())),
            }
        }
        found.insert(entry.key.clone(), list);
    }
    found
}

fn flags(fields: &mut Fields<'_>, name: &'static str) -> BTreeMap<String, bool> {
    let entries = fields.take_map(name, "names and true or false").unwrap_or_default();
    too_many(fields, name, entries.len());
    let mut found = BTreeMap::new();
    for entry in entries {
        match entry.value.kind {
            Kind::Bool(value) => {
                found.insert(entry.key.clone(), value);
            }
            Kind::Null | Kind::Number(_) | Kind::String(_) | Kind::Sequence(_) | Kind::Mapping(_) => {
                let place = ticked(&entry.key);
                let message = format!("{place} in `{name}` is {}, expected true or false", entry.value.describe());
                fields.problems().add(entry.line, message);
            }
        }
    }
    found
}

fn bytes(fields: &mut Fields<'_>, name: &'static str, most: u64) -> Option<usize> {
    fields.take_u64(name, 1024..=most).and_then(|n| usize::try_from(n).ok())
}

fn retry(fields: &mut Fields<'_>, report: &Report<'_>) -> Retry {
    let default = Retry::default();
    if !fields.has("retry") {
        fields.take("retry");
        return default;
    }
    let Some(mut inner) = fields.take_fields("retry") else { return default };
    let max = inner.take_u64("max", 0..=MAX_RETRIES).and_then(|n| u32::try_from(n).ok());
    let max_wait = inner.take_u64("maxWaitSeconds", 0..=MAX_SECONDS).map(Duration::from_secs);
    report.finish(&inner);
    Retry { max: max.unwrap_or(default.max), max_wait: max_wait.unwrap_or(default.max_wait) }
}

fn concurrency(fields: &mut Fields<'_>, report: &Report<'_>) -> Option<usize> {
    let mut inner = fields.take_fields("rate")?;
    let concurrency = inner.take_u64("concurrency", 1..=MAX_CONCURRENCY).and_then(|n| usize::try_from(n).ok());
    report.finish(&inner);
    concurrency
}

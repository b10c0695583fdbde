//! A pack's document as tools: what is offered, what is not and why. Made once, shared, never changed.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, OnceLock};

use serde_json::Value;
use url::Url;
use vance_shared::call::Fault;
use vance_shared::json::Raw;
use vance_shared::launch::rest::{Deprecated, Exposure, RestAuth, RestPlan};
use vance_shared::schema::{Checker, Coercion};
use vance_shared::tool::{Annotations, Replay};

use crate::cut::{self, Cut};
use crate::document::Document;
use crate::filter::{self, Candidate};
use crate::leads::{Hosts, Leads};
use crate::names::{self, Named};
use crate::operation::{Base, Built, IDEMPOTENCY, Key, Operation, Place};
use crate::raw::{self, RawOperation, truth};
use crate::schema::{Rules, input_schema};
use crate::security::{Covered, Scheme, schemes};
use crate::server;
use crate::text;

/// An operation or path that is no tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Skipped {
    /// `GET /x`, or the path if nothing under it could be read.
    pub operation: String,
    /// Why, for people.
    pub reason: String,
}

/// A document and a pack's plan, as tools.
#[derive(Debug)]
pub struct Api {
    pub(crate) document: Document,
    pub(crate) rules: Rules,
    pub(crate) exposure: Exposure,
    pub(crate) base: Result<Url, Fault>,
    pub(crate) hosts: Hosts,
    pub(crate) schemes: BTreeMap<String, Scheme>,
    pub(crate) pack: String,
    pub(crate) pack_labels: Vec<String>,
    leads: Leads,
    operations: Vec<Operation>,
    by_name: HashMap<String, usize>,
    skipped: Vec<Skipped>,
    left_out: usize,
    warnings: Vec<String>,
}

impl Api {
    /// Turns a document into tools. Never fails as a whole: a fault in an operation costs that operation.
    pub fn load(document: Document, plan: &RestPlan) -> Self {
        let schemes = schemes(&document);
        let covered = Covered::new(&schemes, own_keys(plan));
        let (raws, bad) = raw::operations(&document);
        let mut skipped: Vec<Skipped> = Vec::with_capacity(bad.len());
        let mut bad = bad.into_iter().peekable();
        let methods: Vec<String> = raws.iter().map(|raw| raw.method.to_ascii_uppercase()).collect();
        let named: Vec<Named<'_>> = raws.iter().zip(&methods).map(|(raw, method)| named(raw, method, plan)).collect();
        let mut loader = Loader {
            document: &document,
            plan,
            covered,
            used: vec![false; plan.include.len() + plan.exclude.len() + plan.idempotency_key.len()],
            left_out: 0,
        };
        let mut operations = Vec::with_capacity(raws.len());
        let all = raws.iter().zip(&methods).zip(names::tool_names(&plan.pack, &named));
        for (at, ((raw, method), name)) in all.enumerate() {
            while let Some(bad) = bad.next_if(|bad| bad.after <= at) {
                skipped.push(Skipped { operation: bad.what, reason: text::clean(&bad.why, 300) });
            }
            let outcome = match name {
                Some(name) => loader.operation(raw, method.clone(), name),
                None => Err("its like exists under the same method and path".to_owned()),
            };
            match outcome {
                Ok(Some(operation)) => operations.push(operation),
                Ok(None) => loader.left_out += 1,
                Err(reason) => skipped.push(Skipped { operation: raw.title(), reason: text::clean(&reason, 300) }),
            }
        }
        skipped.extend(bad.map(|bad| Skipped { operation: bad.what, reason: text::clean(&bad.why, 300) }));
        let base = server::of_document(&document, &plan.server_variables);
        let hosts = Hosts::of(plan, base.as_ref().ok());
        let mut warnings = loader.warnings(&operations);
        let left_out = loader.left_out;
        let by_name = operations.iter().enumerate().map(|(at, op)| (op.name.to_string(), at)).collect();
        let mut pack_labels = plan.labels.clone();
        pack_labels.extend(["rest".to_owned(), format!("rest:{}", plan.pack)]);
        warnings.extend(strange(plan, &schemes, &document));
        let leads = Leads::of(&operations, &base, &hosts, plan);
        warnings.extend(leads.warning(plan));
        Self {
            base,
            hosts,
            leads,
            rules: Rules { most_bytes: plan.max_schema_bytes, refs: plan.refs },
            exposure: plan.exposure,
            pack: plan.pack.to_string(),
            pack_labels,
            document,
            schemes,
            operations,
            by_name,
            skipped,
            left_out,
            warnings,
        }
    }

    /// The operations that are tools, in the document's order.
    pub fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// The operation behind a tool's full name, its sub-tool's name, or its operation id.
    pub fn operation(&self, name: &str) -> Option<&Operation> {
        let at = self.by_name.get(name).or_else(|| self.by_name.get(&format!("{}__{name}", self.pack)));
        match at {
            Some(at) => self.operations.get(*at),
            None => self.operations.iter().find(|operation| operation.id.as_deref() == Some(name)),
        }
    }

    /// What is no tool because something is wrong with it.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// How many operations the pack itself leaves out.
    pub fn left_out(&self) -> usize {
        self.left_out
    }

    /// What is odd about the pack now that its document is known: patterns and names that mean nothing.
    pub fn warnings(&self) -> &[String] {
        &self.warnings
    }

    /// The document's own base, for the reach of the pack (`baseUrl` wins over it, see [`crate::settings::Settings`]).
    pub fn document_base(&self) -> Result<&Url, &Fault> {
        self.base.as_ref()
    }

    /// Where the document's servers lead that requests may not go to.
    pub fn leads(&self) -> &Leads {
        &self.leads
    }

    /// The JSON Schema of an operation's arguments. Made on first use.
    pub fn input_schema<'a>(&'a self, operation: &'a Operation) -> &'a Raw {
        &self.built(operation).schema
    }

    /// What checks an operation's arguments; none if its schema is broken.
    pub(crate) fn checker<'a>(&'a self, operation: &'a Operation) -> Option<&'a Checker> {
        let built = self.built(operation);
        built.checker.get_or_init(|| checker(built.schema.value())).as_ref()
    }

    pub(crate) fn built<'a>(&'a self, operation: &'a Operation) -> &'a Built {
        operation.built.get_or_init(|| {
            let schema = match self.raw(operation) {
                Some(raw) => input_schema(&self.document, &raw, operation, self.rules),
                None => serde_json::json!({"type": "object"}),
            };
            let coercion = Coercion::of(&schema);
            Built { schema: Raw::from(schema), checker: OnceLock::new(), coercion }
        })
    }

    /// The operation where it lies in the document.
    fn raw<'d>(&'d self, operation: &'d Operation) -> Option<RawOperation<'d>> {
        let item = self.document.root().get("paths")?.get(operation.path.as_str())?;
        let item = self.document.follow(item).ok()?.as_object()?;
        let lower = operation.method.to_ascii_lowercase();
        let more = item.get("additionalOperations").and_then(Value::as_object).into_iter().flatten();
        let plain = item.get_key_value(&lower);
        let named = more.filter(|(method, _)| method.to_ascii_uppercase() == operation.method);
        let (method, value) = plain.into_iter().chain(named).find(|(_, value)| value.is_object())?;
        Some(RawOperation { path: &operation.path, method, item, operation: value.as_object()? })
    }
}

/// A pattern that our regular expressions do not know must not let everything pass: the rest still holds.
fn checker(schema: Value) -> Option<Checker> {
    Checker::of(&schema).or_else(|| {
        let mut schema = schema;
        crate::schema::without_patterns(&mut schema);
        Checker::of(&schema)
    })
}

fn named<'a>(raw: &RawOperation<'a>, method: &'a str, plan: &'a RestPlan) -> Named<'a> {
    let id = raw.id();
    let own = id.and_then(|id| plan.name_overrides.get(id)).map(String::as_str);
    Named { method, path: raw.path, id: own.or(id) }
}

/// Names that the pack's credentials and constant headers take.
fn own_keys(plan: &RestPlan) -> Vec<(Place, String)> {
    let auth = match &plan.auth {
        RestAuth::Header { name, .. } => Some((Place::Header, name.clone())),
        RestAuth::Query { name, .. } => Some((Place::Query, name.clone())),
        RestAuth::None | RestAuth::Basic { .. } | RestAuth::OAuth(_) | RestAuth::Schemes(_) => None,
    };
    plan.headers.keys().map(|name| (Place::Header, name.clone())).chain(auth).collect()
}

/// The base that a document gives, if it gives one that can be used.
pub fn base_of(document: &Document, plan: &RestPlan) -> Option<Url> {
    server::of_document(document, &plan.server_variables).ok()
}

/// Names of the pack that its document does not have.
fn strange(plan: &RestPlan, schemes: &BTreeMap<String, Scheme>, document: &Document) -> Vec<String> {
    let quoted = |name: &str| vance_shared::show::quoted(name, 80);
    let given = match &plan.auth {
        RestAuth::Schemes(given) => given.keys().filter(|name| !schemes.contains_key(*name)).collect(),
        RestAuth::None
        | RestAuth::Header { .. }
        | RestAuth::Query { .. }
        | RestAuth::Basic { .. }
        | RestAuth::OAuth(_) => Vec::new(),
    };
    let known = schemes.keys().map(|name| quoted(name)).collect::<Vec<_>>().join(", ");
    let known = if known.is_empty() { "it has none".to_owned() } else { format!("it has {known}") };
    let unknown =
        given.into_iter().map(|name| format!("the document has no security scheme {}: {known}", quoted(name)));
    let variables = plan.server_variables.keys().filter(|name| !server::names(document, name));
    unknown
        .chain(variables.map(|name| format!("no server of the document has the variable {}", quoted(name))))
        .collect()
}

struct Loader<'a> {
    document: &'a Document,
    plan: &'a RestPlan,
    covered: Covered,
    /// By pattern: whether it meant an operation.
    used: Vec<bool>,
    left_out: usize,
}

impl Loader<'_> {
    /// None: the pack leaves it out.
    fn operation(
        &mut self,
        raw: &RawOperation<'_>,
        method: String,
        name: vance_shared::names::ToolName,
    ) -> Result<Option<Operation>, String> {
        let sub_tool = name.as_str().split_once("__").map_or("", |(_, sub)| sub).to_owned();
        let tags = raw.tags();
        let candidate = Candidate { method: &method, path: raw.path, id: raw.id(), sub_tool: &sub_tool, tags: &tags };
        let deprecated = truth(raw.operation.get("deprecated"));
        let off = self.plan.disabled_sub_tools.iter().any(|off| *off == sub_tool || Some(off.as_str()) == raw.id());
        if !self.wanted(&candidate) || off || (deprecated && self.plan.deprecated == Deprecated::Skip) {
            return Ok(None);
        }
        let keyed = self.keyed(&candidate);
        if method.is_empty() || method.len() > 32 || !method.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
            return Err("the method is no word that can be sent".to_owned());
        }
        let Cut { mut parameters, body, security, accept } = cut::cut(self.document, raw)?;
        let (mut template, placeholders) = cut::template(raw.path);
        cut::settle_path(&mut parameters, &placeholders);
        parameters.retain(|parameter| !self.covered.covers(parameter.place, &parameter.wire));
        cut::settle_headers(&mut parameters)?;
        let wires: Vec<names::Wire<'_>> =
            parameters.iter().map(|parameter| (parameter.wire.as_str(), parameter.place.word())).collect();
        let arguments = names::argument_names(&wires);
        for (parameter, argument) in parameters.iter_mut().zip(arguments) {
            parameter.argument = argument;
        }
        cut::number(&mut template, &placeholders, &parameters)?;
        let taken = |wanted: &str| parameters.iter().any(|parameter| parameter.argument == wanted);
        let body_name = ["body", "requestBody", "request_body_"].into_iter().find(|name| !taken(name));
        let body =
            body.map(|body| crate::operation::Body { argument: body_name.unwrap_or("_body").to_owned(), ..body });
        let declared = parameters.iter().find(|p| p.place == Place::Header && p.wire.eq_ignore_ascii_case(IDEMPOTENCY));
        let key = match declared {
            Some(parameter) => Key::Argument(parameter.argument.clone()),
            None if keyed => Key::Added,
            None => Key::None,
        };
        let id = raw.id().map(str::to_owned);
        let base = match server::of_operation(self.document, raw, &self.plan.server_variables) {
            Some(own) => Base::Own(Arc::new(own)),
            None => Base::Document,
        };
        let labels = self.labels(&method, id.as_deref(), &sub_tool, deprecated);
        let annotations = annotations(&method, labels.iter().any(|label| label == "read-only"));
        // A key makes repetitions within one call harmless. A call that somebody makes anew has another key.
        let replay = annotations.replay();
        let replay = if method == "DELETE" || method == "PUT" { Replay::Safe } else { replay };
        Ok(Some(Operation {
            description: description(raw, &method, deprecated),
            deferred: self.by_either(&self.plan.deferred_overrides, id.as_deref(), &sub_tool).copied(),
            tags: tags.iter().map(|tag| text::clean(tag, 100)).collect(),
            path: raw.path.to_owned(),
            built: OnceLock::new(),
            name,
            method,
            id,
            labels,
            annotations,
            replay,
            deprecated,
            template,
            parameters,
            body,
            base,
            security,
            accept,
            key,
        }))
    }

    fn wanted(&mut self, candidate: &Candidate<'_>) -> bool {
        let includes = self.plan.include.len();
        let mut included = includes == 0;
        let mut excluded = false;
        for (at, pattern) in self.plan.include.iter().chain(&self.plan.exclude).enumerate() {
            if filter::matches(pattern, candidate) {
                self.used[at] = true;
                if at < includes { included = true } else { excluded = true }
            }
        }
        included && !excluded
    }

    /// Whether the pack wants a key for it.
    fn keyed(&mut self, candidate: &Candidate) -> bool {
        let first = self.plan.include.len() + self.plan.exclude.len();
        let mut keyed = false;
        for (at, pattern) in self.plan.idempotency_key.iter().enumerate() {
            if filter::matches(pattern, candidate) {
                (self.used[first + at], keyed) = (true, true);
            }
        }
        keyed
    }

    fn by_either<'p, T>(&self, map: &'p BTreeMap<String, T>, id: Option<&str>, sub_tool: &str) -> Option<&'p T> {
        let full = || map.get(&format!("{}__{sub_tool}", self.plan.pack));
        id.and_then(|id| map.get(id)).or_else(|| map.get(sub_tool)).or_else(full)
    }

    fn labels(&self, method: &str, id: Option<&str>, sub_tool: &str, deprecated: bool) -> Vec<String> {
        let plan = self.plan;
        let mut labels = plan.labels.clone();
        labels.extend(["rest".to_owned(), format!("rest:{}", plan.pack)]);
        let own = self.by_either(&plan.label_overrides, id, sub_tool).or_else(|| plan.method_labels.get(method));
        match own {
            Some(own) => labels.extend(own.iter().cloned()),
            None if is_safe(method) => labels.push("read-only".to_owned()),
            None => labels.extend(["write".to_owned(), "side-effect".to_owned()]),
        }
        if deprecated {
            labels.push("deprecated".to_owned());
        }
        labels
    }

    fn warnings(&self, operations: &[Operation]) -> Vec<String> {
        let plan = self.plan;
        let mut warnings = Vec::new();
        let patterns = plan.include.iter().chain(&plan.exclude).chain(&plan.idempotency_key);
        for (pattern, used) in patterns.zip(&self.used) {
            if !used {
                warnings.push(format!("the pattern {} means no operation", vance_shared::show::quoted(pattern, 80)));
            }
        }
        let known = |name: &str| {
            operations
                .iter()
                .any(|op| op.id.as_deref() == Some(name) || op.sub_tool() == name || op.name.as_str() == name)
        };
        let names = plan.label_overrides.keys().chain(plan.deferred_overrides.keys()).chain(plan.name_overrides.keys());
        for name in names.filter(|name| !known(name)) {
            warnings.push(format!("{} is no operation that is offered", vance_shared::show::quoted(name, 80)));
        }
        warnings
    }
}

/// Methods that change nothing.
fn is_safe(method: &str) -> bool {
    matches!(method, "GET" | "HEAD" | "OPTIONS" | "TRACE" | "QUERY")
}

/// Methods whose repetition changes nothing more.
pub(crate) fn is_idempotent(method: &str) -> bool {
    is_safe(method) || matches!(method, "PUT" | "DELETE")
}

fn annotations(method: &str, read_only: bool) -> Annotations {
    Annotations {
        title: None,
        read_only_hint: Some(read_only),
        destructive_hint: match method {
            "PUT" | "PATCH" | "DELETE" => Some(!read_only),
            _ if read_only => Some(false),
            _ => None,
        },
        idempotent_hint: Some(is_idempotent(method)),
        open_world_hint: Some(true),
    }
}

fn description(raw: &RawOperation<'_>, method: &str, deprecated: bool) -> String {
    let text = |key: &str| raw.operation.get(key).and_then(Value::as_str);
    let mut said = text::joined(text("summary"), text("description"));
    if said.is_empty() {
        said = format!("{method} {}", raw.path);
    }
    if deprecated {
        said.insert_str(0, "[DEPRECATED] ");
    }
    text::clean(&said, text::TOOL_CHARS)
}

#[cfg(test)]
mod tests;

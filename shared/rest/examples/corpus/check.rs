//! One document, and what holds for it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;
use vance_rest::api::Api;
use vance_rest::document::Document;
use vance_rest::request::{self, Context, Files};
use vance_rest::settings::Settings;
use vance_shared::launch::Origin;
use vance_shared::launch::rest::{RestPlan, Spec};
use vance_shared::names::PackName;

#[path = "made_up.rs"]
mod made_up;

/// What was found, added up over all documents.
#[derive(Default)]
pub(crate) struct Total {
    pub(crate) files: usize,
    pub(crate) documents: usize,
    pub(crate) unreadable: Vec<String>,
    pub(crate) operations: usize,
    pub(crate) tools: usize,
    pub(crate) skipped: BTreeMap<String, usize>,
    pub(crate) without_server: usize,
    pub(crate) loose: usize,
    pub(crate) wrong: Vec<String>,
    pub(crate) unmade: Vec<String>,
    pub(crate) bytes: u64,
    pub(crate) schema_bytes: usize,
    pub(crate) largest_schema: usize,
    pub(crate) parse: Duration,
    pub(crate) load: Duration,
    pub(crate) schemas: Duration,
    pub(crate) calls: Duration,
    pub(crate) checks: Duration,
}

/// Reads every document below some folders. `slow`: seconds from which on a document is shown.
pub(crate) fn all(folders: &[PathBuf], meta: bool, slow: f64) -> Total {
    let mut files = Vec::new();
    folders.iter().for_each(|folder| find(folder, &mut files));
    files.sort();
    let (total, next) = (Mutex::new(Total::default()), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..workers() {
            scope.spawn(|| {
                while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
                    one(file, meta, slow, &total);
                }
            });
        }
    });
    total.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Threads that read.
pub(crate) fn workers() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

fn find(path: &Path, files: &mut Vec<PathBuf>) {
    if path.is_dir() {
        let Ok(entries) = std::fs::read_dir(path) else { return };
        entries.flatten().for_each(|entry| find(&entry.path(), files));
    } else if path.extension().is_some_and(|ending| ["json", "yaml", "yml"].iter().any(|known| ending == *known)) {
        files.push(path.to_owned());
    }
}

fn one(file: &Path, meta: bool, slow: f64, total: &Mutex<Total>) {
    let Ok(bytes) = std::fs::read(file) else { return };
    let mut own = Total { files: 1, ..Total::default() };
    // Packages hold other files, too; a document says what it is near its beginning or its end.
    let says = |word: &str| bytes.windows(word.len()).any(|window| window == word.as_bytes());
    if (says("openapi") || says("swagger")) && says("paths") {
        let started = Instant::now();
        match Document::parse(&bytes, "https://spec.example/folder/openapi.json".parse().ok()) {
            Ok(document) => {
                own.documents = 1;
                own.bytes = bytes.len() as u64;
                own.parse = started.elapsed();
                api(file, document, meta, &mut own);
                let seconds = started.elapsed().as_secs_f64();
                if seconds > slow {
                    println!(
                        "{seconds:.2}s {} ({} operations; parse {:?}, load {:?}, schemas {:?}, calls {:?}, checks {:?})",
                        file.display(),
                        own.operations,
                        own.parse,
                        own.load,
                        own.schemas,
                        own.calls,
                        own.checks
                    );
                }
            }
            Err(error) => own.unreadable.push(format!("{}: {error}", file.display())),
        }
    }
    add(&mut total.lock().unwrap_or_else(PoisonError::into_inner), own);
}

fn count(document: &Value) -> usize {
    const METHODS: [&str; 9] = ["get", "put", "post", "delete", "options", "head", "patch", "trace", "query"];
    let items = document.get("paths").and_then(Value::as_object).into_iter().flatten();
    let items = items.filter(|(path, item)| !path.starts_with("x-") && item.get("$ref").is_none());
    items
        .map(|(_, item)| METHODS.iter().filter(|method| item.get(**method).is_some_and(|op| !op.is_null())).count())
        .sum()
}

fn api(file: &Path, document: Document, meta: bool, own: &mut Total) {
    let mut plan = RestPlan::new(PackName::parse("p").unwrap(), Origin::Global, Spec::Inline(Value::Null));
    plan.allow_insecure_http = true;
    let name = file.display();
    own.operations = count(document.root());
    let (copy, mut loose) = (document.clone(), None);
    let started = Instant::now();
    let api = Api::load(document, &plan);
    own.load = started.elapsed();
    own.tools = api.operations().len();
    let lost = api.skipped().iter().filter(|skipped| skipped.operation.contains(' ')).count();
    if own.tools + lost < own.operations {
        own.wrong.push(format!("{name}: {} operations, {} tools and {lost} reasons", own.operations, own.tools));
    }
    for skipped in api.skipped() {
        *own.skipped.entry(skipped.reason.clone()).or_default() += 1;
    }
    let names: BTreeSet<&str> = api.operations().iter().map(|operation| operation.name.as_str()).collect();
    if names.len() != own.tools || names.iter().any(|name| name.len() > 64) {
        own.wrong.push(format!("{name}: names are not unique or too long"));
    }
    let started = Instant::now();
    for operation in api.operations() {
        let bytes = api.input_schema(operation).get().len();
        own.schema_bytes += bytes;
        own.largest_schema = own.largest_schema.max(bytes);
    }
    own.schemas = started.elapsed();
    let settings = Settings::of(&plan, &|text| Ok(text.to_owned()));
    let context = Context { settings: &settings, tokens: &BTreeMap::new(), files: Files::Planned, call_id: None };
    for operation in api.operations() {
        let schema = api.input_schema(operation).value();
        let started = Instant::now();
        if meta && let Err(error) = jsonschema::draft202012::meta::validate(&schema) {
            own.wrong.push(format!("{name}: {}: {error} at {}", operation.title(), error.instance_path()));
        }
        own.checks += started.elapsed();
        let mut built = Err(None);
        for attempt in 0..5 {
            // Where no fitting arguments are found, the request is built of some that fit once nothing but names is asked for.
            let (arguments, used) = match attempt {
                4 => {
                    own.loose += 1;
                    let loose = loose.get_or_insert_with(|| {
                        Api::load(copy.clone(), &RestPlan { max_schema_bytes: 0, ..plan.clone() })
                    });
                    let schema = loose.operation(operation.name.as_str()).map(|op| loose.input_schema(op).value());
                    (made_up::arguments(&schema.unwrap_or_default(), 0), &*loose)
                }
                _ => (made_up::arguments(&schema, attempt), &api),
            };
            let Some(operation) = used.operation(operation.name.as_str()) else { continue };
            let started = Instant::now();
            let request = request::build(used, operation, &arguments, context);
            own.calls += started.elapsed();
            match request {
                Ok(request) => {
                    built = Ok(request);
                    break;
                }
                Err(fault) => built = Err(Some((fault, arguments))),
            }
        }
        match built {
            Ok(request) => {
                let base = api.document_base().ok();
                let inside =
                    base.is_none_or(|base| base.origin() == request.url.origin() || operation.has_own_server());
                if !inside {
                    own.wrong.push(format!("{name}: {} leads to {}", operation.title(), request.url));
                }
            }
            Err(Some((fault, _))) if fault.code == "no_server" => own.without_server += 1,
            Err(Some((fault, arguments))) => {
                let arguments: String = arguments.to_string().chars().take(300).collect();
                own.unmade.push(format!(
                    "{name}: {}: {}: {} {arguments}",
                    operation.title(),
                    fault.code,
                    fault.message
                ));
            }
            Err(None) => {}
        }
    }
}

fn add(total: &mut Total, own: Total) {
    total.files += own.files;
    total.documents += own.documents;
    total.unreadable.extend(own.unreadable);
    total.operations += own.operations;
    total.tools += own.tools;
    own.skipped.into_iter().for_each(|(reason, count)| *total.skipped.entry(reason).or_default() += count);
    total.without_server += own.without_server;
    total.loose += own.loose;
    total.wrong.extend(own.wrong);
    total.unmade.extend(own.unmade);
    total.bytes += own.bytes;
    total.schema_bytes += own.schema_bytes;
    total.largest_schema = total.largest_schema.max(own.largest_schema);
    total.parse += own.parse;
    total.load += own.load;
    total.schemas += own.schemas;
    total.calls += own.calls;
    total.checks += own.checks;
}

/// Prints what was found; true if all that must hold holds.
pub(crate) fn report(total: &Total, took: Duration, workers: usize) -> bool {
    for line in total.unreadable.iter().take(20) {
        println!("unreadable: {line}");
    }
    for line in total.wrong.iter().take(40) {
        println!("WRONG: {line}");
    }
    for line in total.unmade.iter().take(40) {
        println!("no call: {line}");
    }
    let mut reasons: Vec<(&String, &usize)> = total.skipped.iter().collect();
    reasons.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    for (reason, count) in reasons.into_iter().take(30) {
        println!("skipped {count}: {reason}");
    }
    println!(
        "{} files, {} documents ({} MB), {} unreadable; {} operations, {} tools, {} skipped; {} without a server; {} wrong; {} calls of arguments that do not fit, {} not made",
        total.files,
        total.documents,
        total.bytes / 1_000_000,
        total.unreadable.len(),
        total.operations,
        total.tools,
        total.skipped.values().sum::<usize>(),
        total.without_server,
        total.wrong.len(),
        total.loose,
        total.unmade.len(),
    );
    println!(
        "{took:.1?} on {workers} threads; sums: parse {:.1?}, load {:.1?}, schemas {:.1?} ({} MB, largest {} KB), calls {:.1?}, meta-schema {:.1?}",
        total.parse,
        total.load,
        total.schemas,
        total.schema_bytes / 1_000_000,
        total.largest_schema / 1000,
        total.calls,
        total.checks,
    );
    total.wrong.is_empty() && total.unmade.is_empty() && total.documents > 0
}

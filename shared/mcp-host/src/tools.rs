//! From a server's `tools/list` pages to the tools that are offered: names, labels, replay classes. Pure.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use vance_shared::json::Raw;
use vance_shared::launch::LaunchPlan;
use vance_shared::names::ToolName;
use vance_shared::schema::Coercion;
use vance_shared::show::quoted;
use vance_shared::tool::{Annotations, Replay, ToolSpec};

use crate::reading::Reading;

/// Tools of one server: what the whole product is made for, so one server may not use up more.
pub const MAX_TOOLS: usize = 5_000;
/// Pages of one list: five tools a page still reach the limit above; an endless list ends here.
pub const MAX_PAGES: usize = 1_000;
/// Bytes of all descriptions and schemas of one server: 5,000 tools of 6 KiB.
pub const MAX_LIST_BYTES: usize = 32 * 1024 * 1024;
/// Longest tool name that is looked at.
const MAX_SUBTOOL_BYTES: usize = 1_024;

/// What a server offers, ready to be called.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) specs: Arc<[ToolSpec]>,
    pub(crate) routes: Arc<HashMap<ToolName, Route>>,
}

/// How one tool is called.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Route {
    /// The server's own name for it.
    pub(crate) subtool: String,
    /// Arguments to add where the caller gave none.
    pub(crate) defaults: Map<String, Value>,
    /// How arguments are put right; none where the schema leaves nothing to put right.
    pub(crate) coercion: Option<Arc<Coercion>>,
    /// What a call of it does.
    pub(crate) work: Work,
}

/// What stands behind a sub-tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Work {
    /// A tool of the server.
    #[default]
    Tool,
    /// Its resources and prompts, which MCP has beside its tools.
    Read(Reading),
}

impl Default for Table {
    fn default() -> Self {
        Self { specs: Arc::new([]), routes: Arc::default() }
    }
}

/// Collects pages until there is no more, or a limit is reached.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    tools: Vec<Listed>,
    cursors: HashSet<String>,
    pages: usize,
    bytes: usize,
    pub(crate) warnings: Vec<String>,
    readings: Vec<Listed>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page<'a> {
    #[serde(borrow, default)]
    tools: Vec<&'a RawValue>,
    #[serde(default)]
    next_cursor: Option<String>,
}

/// A tool as the server describes it.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    name: String,
    #[serde(default)]
    title: Option<String>,
    #[serde(default)]
    description: Option<String>,
    #[serde(default)]
    input_schema: Option<Raw>,
    #[serde(default)]
    output_schema: Option<Raw>,
    #[serde(default)]
    annotations: Option<Annotations>,
    #[serde(skip)]
    work: Work,
}

impl Listing {
    /// The server has resources or prompts: what reads them is offered as sub-tools, where no tool of the server has such a name.
    pub(crate) fn offer(&mut self, readings: &[Reading]) {
        self.readings.extend(readings.iter().map(|reading| Listed {
            name: reading.name().to_owned(),
            title: None,
            description: Some(reading.description().to_owned()),
            input_schema: Some(Raw::from(reading.input_schema())),
            output_schema: None,
            annotations: Some(Annotations {
                read_only_hint: Some(true),
                idempotent_hint: Some(true),
                ..Annotations::default()
            }),
            work: Work::Read(*reading),
        }));
    }

    /// Takes a page; gives the cursor of the next one that is to be read.
    pub(crate) fn take(&mut self, page: &str) -> Result<Option<String>, String> {
        if !page.starts_with('{') {
            return Err("its tools/list is no object".to_owned());
        }
        let page: Page<'_> =
            serde_json::from_str(page).map_err(|error| format!("its tools/list is malformed: {error}"))?;
        self.pages += 1;
        for tool in page.tools {
            self.bytes += tool.get().len();
            if self.tools.len() == MAX_TOOLS || self.bytes > MAX_LIST_BYTES {
                let mib = MAX_LIST_BYTES / (1024 * 1024);
                self.warnings.push(format!(
                    "only its first {} tools are offered (limit {MAX_TOOLS} tools, {mib} MiB)",
                    self.tools.len()
                ));
                return Ok(None);
            }
            match serde_json::from_str::<Listed>(tool.get()) {
                Ok(tool) if (1..=MAX_SUBTOOL_BYTES).contains(&tool.name.len()) => self.tools.push(tool),
                Ok(_) => self
                    .warnings
                    .push(format!("a tool without a usable name is left out (1 to {MAX_SUBTOOL_BYTES} bytes)")),
                Err(error) => self.warnings.push(format!("a malformed tool is left out: {error}")),
            }
        }
        let Some(cursor) = page.next_cursor else { return Ok(None) };
        if !self.cursors.insert(cursor.clone()) {
            self.warnings
                .push(format!("its tools/list loops: cursor {} came twice; reading stopped", quoted(&cursor, 40)));
            return Ok(None);
        }
        if self.pages == MAX_PAGES {
            self.warnings.push(format!("its tools/list has more than {MAX_PAGES} pages; reading stopped"));
            return Ok(None);
        }
        Ok(Some(cursor))
    }

    /// The tools that the pack offers. `defaults` are the pack's default arguments, expanded.
    pub(crate) fn finish(self, plan: &LaunchPlan, defaults: &Map<String, Value>) -> (Table, Vec<String>) {
        let mut warnings = self.warnings;
        let mut by_name: BTreeMap<ToolName, Vec<&Listed>> = BTreeMap::new();
        let mut order = Vec::new();
        let mut disabled_seen = HashSet::new();
        let own: HashSet<ToolName> =
            self.tools.iter().map(|tool| ToolName::of_subtool(&plan.pack, &tool.name)).collect();
        let readings =
            self.readings.iter().filter(|tool| !own.contains(ToolName::of_subtool(&plan.pack, &tool.name).as_str()));
        for tool in self.tools.iter().chain(readings) {
            let name = ToolName::of_subtool(&plan.pack, &tool.name);
            if let Some(word) =
                plan.disabled_sub_tools.iter().find(|word| **word == tool.name || word.as_str() == name.as_str())
            {
                disabled_seen.insert(word.as_str());
                continue;
            }
            let same = by_name.entry(name.clone()).or_default();
            if same.is_empty() {
                order.push(name);
            }
            same.push(tool);
        }
        for word in plan.disabled_sub_tools.iter().filter(|word| !disabled_seen.contains(word.as_str())) {
            warnings.push(format!("disabledSubTools names {}, which the server does not offer", quoted(word, 80)));
        }
        let (mut specs, mut routes) = (Vec::new(), HashMap::new());
        for name in order {
            match by_name.get(&name).map_or(&[][..], Vec::as_slice) {
                [tool] => match spec(plan, &name, tool) {
                    Ok(spec) => {
                        let route = Route {
                            subtool: tool.name.clone(),
                            defaults: applicable(defaults, &spec.input_schema),
                            coercion: Coercion::of(&spec.input_schema.value()).map(Arc::new),
                            work: tool.work,
                        };
                        routes.insert(name, route);
                        specs.push(spec);
                    }
                    Err(why) => warnings.push(why),
                },
                several => {
                    let names: Vec<String> = several.iter().map(|tool| quoted(&tool.name, 80)).collect();
                    warnings.push(format!("{} would all be called {name}: none of them is offered", names.join(", ")));
                }
            }
        }
        (Table { specs: specs.into(), routes: Arc::new(routes) }, warnings)
    }
}

fn spec(plan: &LaunchPlan, name: &ToolName, tool: &Listed) -> Result<ToolSpec, String> {
    let input_schema = tool.input_schema.clone().unwrap_or_else(|| Raw::from(serde_json::json!({"type": "object"})));
    if !input_schema.get().starts_with('{') {
        return Err(format!("tool {} is left out: its inputSchema is no object", quoted(&tool.name, 80)));
    }
    let annotations = tool.annotations.clone();
    let read_only =
        annotations.as_ref().is_some_and(|a| a.read_only_hint == Some(true) && a.destructive_hint != Some(true));
    let own = plan.replay.get(&tool.name).or_else(|| plan.replay.get(name.as_str())).copied();
    Ok(ToolSpec {
        name: name.clone(),
        description: tool.description.clone().or_else(|| tool.title.clone()).unwrap_or_default(),
        input_schema,
        output_schema: tool.output_schema.clone(),
        labels: labels(plan, read_only),
        replay: own.or_else(|| annotations.as_ref().map(Annotations::replay)).unwrap_or(Replay::Unsafe),
        annotations,
        pack: Some(plan.pack.to_string()),
    })
}

fn labels(plan: &LaunchPlan, read_only: bool) -> Vec<String> {
    let ours = ["mcp".to_owned(), format!("mcp:{}", plan.pack), "side-effect".to_owned()];
    let mut labels: Vec<String> = Vec::new();
    for label in plan.labels.iter().cloned().chain(ours).chain(read_only.then(|| "read-only".to_owned())) {
        if !labels.contains(&label) {
            labels.push(label);
        }
    }
    labels
}

/// The defaults whose keys the schema declares.
fn applicable(defaults: &Map<String, Value>, schema: &Raw) -> Map<String, Value> {
    #[derive(Deserialize)]
    struct Properties {
        #[serde(default)]
        properties: Map<String, Value>,
    }
    if defaults.is_empty() {
        return Map::new();
    }
    let declared = schema.to::<Properties>().map(|schema| schema.properties).unwrap_or_default();
    defaults
        .iter()
        .filter(|(key, _)| declared.contains_key(*key))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect()
}

/// Arguments with texts put right that can only mean something else.
pub(crate) fn put_right(arguments: Raw, coercion: Option<&Coercion>) -> Raw {
    let Some(coercion) = coercion else { return arguments };
    let mut value = arguments.value();
    if coercion.apply(&mut value) { Raw::from(value) } else { arguments }
}

/// The caller's arguments with the defaults for keys that it did not give. `Err` says what is wrong with them.
pub(crate) fn with_defaults(arguments: &Raw, defaults: &Map<String, Value>) -> Result<Raw, String> {
    if arguments.get() == "null" {
        return Ok(Raw::from(Value::Object(defaults.clone())));
    }
    if !arguments.get().starts_with('{') {
        return Err("arguments are a JSON object".to_owned());
    }
    if defaults.is_empty() {
        return Ok(arguments.clone());
    }
    let mut all: Map<String, Value> = arguments.to().map_err(|error| format!("arguments cannot be read: {error}"))?;
    for (key, value) in defaults {
        all.entry(key.clone()).or_insert_with(|| value.clone());
    }
    Ok(Raw::from(Value::Object(all)))
}

#[cfg(test)]
mod tests;

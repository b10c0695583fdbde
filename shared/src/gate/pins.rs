//! Tool pins: what a server said about each of its tools when it first started. A server whose tools say something else later has changed
//! behind the consent that was given to it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{Digest, Project};
use crate::doc::{Fields, Node, Problem, Problems, read_json};
use crate::json::Raw;
use crate::launch::Origin;
use crate::names::PackName;
use crate::pack::canonical;
use crate::tool::ToolSpec;

/// Largest file of pins: 64 packs of a thousand tools each.
pub const MAX_PINS_BYTES: usize = 16 * 1024 * 1024;
/// Tools of a pack that are remembered although they are not offered now. A server whose tools have new names at each start fills no file.
const MAX_ABSENT: usize = 1024;

/// One hash a tool, over its name, description, schemas and hints.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pins(BTreeMap<String, Digest>);

impl Pins {
    /// Pins of tools as they are offered.
    pub fn of<'a>(tools: impl IntoIterator<Item = &'a ToolSpec>) -> Self {
        Self(tools.into_iter().map(|tool| (tool.name.to_string(), Digest::of(said(tool).as_bytes()))).collect())
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is new or has changed since these were pinned. A tool that is not offered is neither: what a server offers depends on who asks it (some
    /// tools only for a client that can put questions to a person), and a pinned one that comes back is compared then.
    pub fn compare(&self, now: &Self) -> Drift {
        let mut drift = Drift::default();
        for (tool, digest) in &now.0 {
            match self.0.get(tool) {
                None => drift.added.insert(tool.clone()),
                Some(pinned) if pinned != digest => drift.changed.insert(tool.clone()),
                Some(_) => continue,
            };
        }
        drift
    }

    /// Pins these, too, in the place of those of the same names.
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Without those of these names that are not offered now, if they are too many.
    fn bounded(&mut self, now: &Self) {
        if self.0.keys().filter(|tool| !now.0.contains_key(*tool)).count() > MAX_ABSENT {
            self.0.retain(|tool, _| now.0.contains_key(tool));
        }
    }
}

/// What a pack's pins are after a start, and how its tools differ from what they were before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Met {
    /// The pins from now on.
    pub pinned: Pins,
    /// What waits for a review: it stays when another process, which is offered less, meets the server.
    pub waits: Pins,
    /// What is to be told now.
    pub drift: Drift,
}

impl Met {
    /// A pack offers its tools. The first time they are all pinned. Later a new tool of a project's pack waits for a review, one of the user's own is
    /// told once and pinned with that; a changed tool waits in either.
    pub fn of(origin: Origin, pinned: Option<&Pins>, waits: Option<&Pins>, now: &Pins) -> Self {
        let Some(pinned) = pinned else { return Self { pinned: now.clone(), ..Self::default() } };
        let (mut pinned, mut waits, drift) = (pinned.clone(), waits.cloned().unwrap_or_default(), pinned.compare(now));
        for (tool, digest) in &now.0 {
            let is_new = drift.added.contains(tool);
            match origin {
                Origin::Global | Origin::Server if is_new => pinned.0.insert(tool.clone(), *digest),
                _ if is_new || drift.changed.contains(tool) => waits.0.insert(tool.clone(), *digest),
                _ => None,
            };
        }
        waits.0.retain(|tool, digest| {
            pinned.0.get(tool) != Some(digest) && (!now.0.contains_key(tool) || now.0.get(tool) == Some(digest))
        });
        pinned.bounded(now);
        waits.bounded(now);
        Self { pinned, waits, drift }
    }
}

/// Everything that a model or a person is told about a tool, as one text. What the pack's own file adds (labels, replay) is no word of the server's.
fn said(tool: &ToolSpec) -> String {
    let ToolSpec { name, description, input_schema, output_schema, annotations, labels: _, replay: _, pack: _ } = tool;
    let schema = |raw: &Raw| raw.to::<Value>().unwrap_or_else(|_| Value::from(raw.get()));
    canonical(&serde_json::json!({
        "name": name,
        "description": description,
        "inputSchema": schema(input_schema),
        "outputSchema": output_schema.as_ref().map(schema),
        "annotations": annotations,
    }))
}

/// How tools differ from their pins.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Drift {
    /// New since then.
    pub added: BTreeSet<String>,
    /// The same name, something else behind it.
    pub changed: BTreeSet<String>,
}

impl Drift {
    /// Nothing to tell.
    pub fn is_empty(&self) -> bool {
        self.added.is_empty() && self.changed.is_empty()
    }

    /// Whether a tool is held back until somebody has looked at it: of a project's pack what is new or changed, of the user's own nothing.
    pub fn withholds(&self, origin: Origin, tool: &str) -> bool {
        match origin {
            Origin::Project => self.added.contains(tool) || self.changed.contains(tool),
            Origin::Global | Origin::Server => false,
        }
    }

    /// One line for the log: `new: a, b; changed: c`.
    pub fn summary(&self) -> String {
        let part = |what: &str, tools: &BTreeSet<String>| {
            let shown: Vec<String> = tools.iter().map(|tool| crate::show::ascii(tool)).collect();
            (!tools.is_empty()).then(|| format!("{what}: {}", shown.join(", ")))
        };
        let parts = [part("new", &self.added), part("changed", &self.changed)];
        parts.into_iter().flatten().collect::<Vec<_>>().join("; ")
    }
}

/// All pins of a Foot: one file, by project and pack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PinBook(BTreeMap<(String, String), Pins>);

impl PinBook {
    /// Reads the file.
    pub fn parse(file: &str, text: &str) -> Result<Self, Vec<Problem>> {
        let problems = Problems::new(file);
        if text.len() > MAX_PINS_BYTES {
            problems.add(1, format!("the file has {} bytes, expected at most {MAX_PINS_BYTES}", text.len()));
            return problems.into_result(None);
        }
        let book = read_json(text, &problems).and_then(|node| Self::of(&node, &problems));
        problems.into_result(book)
    }

    fn of(node: &Node, problems: &Problems) -> Option<Self> {
        let mut book = BTreeMap::new();
        let mut fields = Fields::of(node, "the file", problems)?;
        for project in fields.take_map("pins", "projects")? {
            for pack in project.value.as_map().unwrap_or_default() {
                let mut pins = BTreeMap::new();
                for tool in pack.value.as_map().unwrap_or_default() {
                    match tool.value.as_str().map(Digest::parse) {
                        Some(Ok(digest)) => {
                            pins.insert(tool.key.clone(), digest);
                        }
                        Some(Err(error)) => problems.add(tool.line, error.to_string()),
                        None => problems.add(tool.line, format!("a pin is {}, expected text", tool.value.describe())),
                    }
                }
                book.insert((project.key.clone(), pack.key.clone()), Pins(pins));
            }
        }
        Some(Self(book))
    }

    /// What was pinned; `None` at a pack's first start. Packs of the user's own have no project.
    pub fn get(&self, project: Option<&Project>, pack: &PackName) -> Option<&Pins> {
        self.0.get(&key(project, pack))
    }

    /// Pins a pack's tools anew.
    pub fn set(&mut self, project: Option<&Project>, pack: &PackName, pins: Pins) {
        self.0.insert(key(project, pack), pins);
    }

    /// Forgets a pack, as a revocation does.
    pub fn forget(&mut self, project: Option<&Project>, pack: &PackName) {
        self.0.remove(&key(project, pack));
    }

    /// Forgets all packs of a project.
    pub fn forget_project(&mut self, project: &Project) {
        self.0.retain(|(of, _), _| of != project.key());
    }

    /// Forgets the packs of all projects. Those of the user's own stay.
    pub fn forget_projects(&mut self) {
        self.0.retain(|(of, _), _| of.is_empty());
    }

    /// The file's text.
    pub fn to_json(&self) -> String {
        let mut projects = Map::new();
        for ((project, pack), pins) in &self.0 {
            let tools: Map<String, Value> = pins.0.iter().map(|(t, d)| (t.clone(), d.to_string().into())).collect();
            let packs = projects.entry(project.as_str()).or_insert_with(|| Value::Object(Map::new()));
            if let Some(packs) = packs.as_object_mut() {
                packs.insert(pack.clone(), Value::Object(tools));
            }
        }
        let mut root = Map::new();
        root.insert("pins".to_owned(), Value::Object(projects));
        format!("{:#}\n", Value::Object(root))
    }
}

fn key(project: Option<&Project>, pack: &PackName) -> (String, String) {
    (project.map(|project| project.key().to_owned()).unwrap_or_default(), pack.to_string())
}

#[cfg(test)]
mod tests;

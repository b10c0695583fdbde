//! `trusted-packs.yaml`: what was allowed for good, and what was denied for good. The shell locks, reads, edits through this and replaces the
//! file; a file with problems trusts nothing and is never written over.
//!
//! ```yaml
//! trustedPacks:
//!   /Users/me/src/repo:
//!     - name: chrome
//!       reach: npx -y chrome-devtools-mcp@latest
//! deniedPacks:
//!   /Users/me/src/repo:
//!     - name: jira
//! ```

use std::path::Path;

use serde_json::{Map, Value};

use super::facts::Facts;
use super::{Digest, Project};
use crate::doc::{Fields, Node, Problem, Problems, read_yaml};
use crate::names::PackName;

mod edit;
mod yaml;

/// Largest store: thousands of entries; more is not a store.
pub const MAX_STORE_BYTES: usize = 4 * 1024 * 1024;
const TRUSTED: &str = "trustedPacks";
const DENIED: &str = "deniedPacks";
const TRUSTED_BRAINS: &str = "trustedBrains";
const DENIED_BRAINS: &str = "deniedBrains";
/// The fields that are ours; others survive edits.
const FIELDS: [&str; 15] = [
    "name",
    "reach",
    "digest",
    "cwd",
    "env",
    "headers",
    "access",
    "sends",
    "files",
    "args",
    "replay",
    "labels",
    "leads",
    "documentDigest",
    "since",
];

/// One consent. Name, reach and digest decide; the rest is for the reader and for the difference in a later prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The pack.
    pub name: PackName,
    /// What it runs or reaches.
    pub reach: String,
    /// All of it. Without one the entry covers only a pack that has nothing beyond its command or address.
    pub digest: Option<Digest>,
    /// All of it together with where its fetched document leads, if that was allowed, too.
    pub document: Option<Digest>,
    /// When it was allowed: `2026-03-01`.
    pub since: Option<String>,
    facts: Facts,
}

/// A pack that is not even asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Denial {
    /// The pack.
    pub name: PackName,
    /// When it was denied.
    pub since: Option<String>,
}

/// What a book is about.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum About {
    #[default]
    Packs,
    Brains,
}

impl About {
    fn trusted(self) -> &'static str {
        match self {
            Self::Packs => TRUSTED,
            Self::Brains => TRUSTED_BRAINS,
        }
    }

    fn denied(self) -> &'static str {
        match self {
            Self::Packs => DENIED,
            Self::Brains => DENIED_BRAINS,
        }
    }
}

/// The store. Equal books may differ in comments.
#[derive(Debug, Clone, Default)]
pub struct Book {
    about: About,
    text: String,
    root: Map<String, Value>,
    trusted: Vec<(String, Entry)>,
    denied: Vec<(String, Denial)>,
}

impl PartialEq for Book {
    fn eq(&self, other: &Self) -> bool {
        self.root == other.root
    }
}

impl Book {
    /// Nothing is trusted, nothing denied.
    pub fn empty() -> Self {
        Self::default()
    }

    /// The same for `trusted-brains.yaml`: an entry of the one file never counts in the other.
    pub fn brains() -> Self {
        Self { about: About::Brains, ..Self::default() }
    }

    /// Reads the store. Any problem makes it trust nothing: half a store could be the wrong half.
    pub fn parse(file: &str, text: &str) -> Result<Self, Vec<Problem>> {
        Self::parse_as(About::Packs, file, text)
    }

    /// Reads `trusted-brains.yaml` in the same way.
    pub fn parse_brains(file: &str, text: &str) -> Result<Self, Vec<Problem>> {
        Self::parse_as(About::Brains, file, text)
    }

    fn parse_as(about: About, file: &str, text: &str) -> Result<Self, Vec<Problem>> {
        let problems = Problems::new(file);
        if text.len() > MAX_STORE_BYTES {
            problems.add(1, format!("the file has {} bytes, expected at most {MAX_STORE_BYTES}", text.len()));
            return problems.into_result(None);
        }
        let book = read_yaml(text, &problems).and_then(|node| Self::of(about, &node, text, &problems));
        problems.into_result(book)
    }

    fn of(about: About, node: &Node, text: &str, problems: &Problems) -> Option<Self> {
        let mut book = Self { about, text: text.to_owned(), ..Self::default() };
        if node.is_null() {
            return Some(book);
        }
        let mut fields = Fields::of(node, "the file", problems)?;
        for (project, item) in items(fields.take(about.trusted()), about.trusted(), problems) {
            if let Some(entry) = entry(item, problems) {
                if book.trusted.iter().any(|(p, e)| p == project && e.name == entry.name) {
                    problems.add(item.line, format!("'{}' is there twice in this project, remove one", entry.name));
                }
                book.trusted.push((project.to_owned(), entry));
            }
        }
        for (project, item) in items(fields.take(about.denied()), about.denied(), problems) {
            if let Some(denial) = denial(item, problems) {
                book.denied.push((project.to_owned(), denial));
            }
        }
        if let Value::Object(root) = node.to_value() {
            book.root = root;
        }
        Some(book)
    }

    /// The consent for a pack of a project, whatever it covers.
    pub fn find(&self, project: &Project, name: &PackName) -> Option<&Entry> {
        self.trusted.iter().find(|(p, entry)| p == project.key() && entry.name == *name).map(|(_, entry)| entry)
    }

    /// The denial of a pack of a project.
    pub fn denial(&self, project: &Project, name: &PackName) -> Option<&Denial> {
        self.denied.iter().find(|(p, denial)| p == project.key() && denial.name == *name).map(|(_, denial)| denial)
    }

    /// All consents with their project's directory, in the file's order.
    pub fn entries(&self) -> impl Iterator<Item = (&str, &Entry)> {
        self.trusted.iter().map(|(project, entry)| (project.as_str(), entry))
    }

    /// All denials with their project's directory, in the file's order.
    pub fn denials(&self) -> impl Iterator<Item = (&str, &Denial)> {
        self.denied.iter().map(|(project, denial)| (project.as_str(), denial))
    }

    /// Adds a consent, or puts it in the place of the one that the pack had. A denial of it ends.
    pub fn allow(&mut self, project: &Project, entry: &Entry) {
        self.remove(self.about.denied(), project.key(), Some(&entry.name));
        self.put(self.about.trusted(), project.key(), &entry.name, entry.fields());
    }

    /// Takes a consent back. False if there was none.
    pub fn revoke(&mut self, project: &Project, name: &PackName) -> bool {
        self.remove(self.about.trusted(), project.key(), Some(name)) > 0
    }

    /// Takes all consents of a project back; says how many there were.
    pub fn revoke_project(&mut self, project: &Project) -> usize {
        self.remove(self.about.trusted(), project.key(), None)
    }

    /// Takes all consents back; says how many there were.
    pub fn revoke_all(&mut self) -> usize {
        let projects: Vec<String> = distinct(self.trusted.iter().map(|(project, _)| project));
        projects.iter().map(|project| self.remove(self.about.trusted(), project, None)).sum()
    }

    /// Denies a pack of a project for good; a consent for it ends.
    pub fn deny(&mut self, project: &Project, name: &PackName, today: &str) {
        self.remove(self.about.trusted(), project.key(), Some(name));
        let mut fields = Map::new();
        fields.insert("name".to_owned(), name.as_str().into());
        fields.insert("since".to_owned(), today.into());
        self.put(self.about.denied(), project.key(), name, fields);
    }

    /// Ends a denial. False if there was none.
    pub fn undeny(&mut self, project: &Project, name: &PackName) -> bool {
        self.remove(self.about.denied(), project.key(), Some(name)) > 0
    }

    /// Removes what belongs to directories that are gone; says which directories these were.
    pub fn prune(&mut self, mut gone: impl FnMut(&Path) -> bool) -> Vec<String> {
        let all = self.trusted.iter().map(|(p, _)| p).chain(self.denied.iter().map(|(p, _)| p));
        let projects: Vec<String> = distinct(all).into_iter().filter(|project| gone(Path::new(project))).collect();
        for project in &projects {
            self.remove(self.about.trusted(), project, None);
            self.remove(self.about.denied(), project, None);
        }
        projects
    }

    /// The file's text. Comments stay wherever an edit can leave the lines around it alone.
    pub fn to_yaml(&self) -> &str {
        &self.text
    }

    fn put(&mut self, section: &str, project: &str, name: &PackName, fields: Map<String, Value>) {
        edit::put(self, section, project, name.as_str(), fields);
        self.reread();
    }

    /// Without a name: all of the project. Says how many it were.
    fn remove(&mut self, section: &str, project: &str, name: Option<&PackName>) -> usize {
        let removed = edit::remove(self, section, project, name.map(PackName::as_str));
        if removed > 0 {
            self.reread();
        }
        removed
    }

    /// The entries as the new text has them: what is in memory and what is written cannot drift apart.
    fn reread(&mut self) {
        match Self::parse_as(self.about, "", &self.text) {
            Ok(book) => *self = book,
            // Cannot be: an edit is only taken if it reads back. It would trust nothing.
            Err(_) => (self.trusted, self.denied) = (Vec::new(), Vec::new()),
        }
    }
}

impl Entry {
    pub(super) fn new(name: PackName, reach: String, digest: Digest, facts: &Facts, today: &str) -> Self {
        Self { name, reach, digest: Some(digest), document: None, since: Some(today.to_owned()), facts: facts.clone() }
    }

    pub(super) fn facts(&self) -> &Facts {
        &self.facts
    }

    /// What the entry remembers beyond its reach, one line each, safe to print.
    pub fn lines(&self) -> Vec<String> {
        self.facts.lines()
    }

    fn fields(&self) -> Map<String, Value> {
        let Self { name, reach, digest, document, since, facts } = self;
        let Facts { env, headers, access, sends, cwd, files, args, replay, labels, leads } = facts;
        let mut fields = Map::new();
        let mut set = |key: &str, value: Option<Value>| {
            if let Some(value) = value {
                fields.insert(key.to_owned(), value);
            }
        };
        let map = |map: &std::collections::BTreeMap<String, String>| {
            (!map.is_empty()).then(|| map.iter().map(|(k, v)| (k.clone(), Value::from(v.as_str()))).collect())
        };
        let list = |words: &std::collections::BTreeSet<String>| {
            (!words.is_empty()).then(|| words.iter().map(|word| Value::from(word.as_str())).collect())
        };
        set("name", Some(name.as_str().into()));
        set("reach", Some(reach.as_str().into()));
        set("digest", digest.map(|digest| digest.to_string().into()));
        set("cwd", cwd.as_deref().map(Value::from));
        set("env", map(env).map(Value::Object));
        set("headers", map(headers).map(Value::Object));
        set("access", map(access).map(Value::Object));
        set("sends", list(sends));
        set("files", map(files).map(Value::Object));
        set("args", map(args).map(Value::Object));
        set("replay", map(replay).map(Value::Object));
        set("labels", list(labels));
        set("leads", list(leads));
        set("documentDigest", document.map(|digest| digest.to_string().into()));
        set("since", since.as_deref().map(Value::from));
        fields
    }
}

fn distinct<'a>(projects: impl Iterator<Item = &'a String>) -> Vec<String> {
    projects.cloned().collect::<std::collections::BTreeSet<_>>().into_iter().collect()
}

/// The elements of all projects of a section.
fn items<'a>(section: Option<&'a Node>, name: &str, problems: &Problems) -> Vec<(&'a str, &'a Node)> {
    let Some(node) = section.filter(|node| !node.is_null()) else { return Vec::new() };
    let Some(projects) = node.as_map() else {
        problems.add(node.line, format!("`{name}` is {}, expected project directories with lists", node.describe()));
        return Vec::new();
    };
    let mut all = Vec::new();
    for project in projects {
        match project.value.as_list() {
            Some(items) => all.extend(items.iter().map(|item| (project.key.as_str(), item))),
            None if project.value.is_null() => {}
            None => problems.add(
                project.line,
                format!(
                    "{} is {}, expected a list of packs",
                    crate::doc::ticked(&project.key),
                    project.value.describe()
                ),
            ),
        }
    }
    all
}

fn entry(node: &Node, problems: &Problems) -> Option<Entry> {
    let mut fields = Fields::of(node, "an entry", problems)?;
    fields.require("name", "the pack's name");
    fields.require("reach", "what the pack runs or reaches");
    let name = fields.take_parsed("name", PackName::parse);
    let reach = fields.take_str("reach").map(str::to_owned);
    let has_digest = fields.has("digest");
    let digest = fields.take_parsed("digest", Digest::parse);
    if has_digest && digest.is_none() {
        return None;
    }
    let document = fields.take_parsed("documentDigest", Digest::parse);
    let since = node.get("since").and_then(Node::as_str).map(str::to_owned);
    Some(Entry { name: name?, reach: reach?, digest, document, since, facts: facts(node) })
}

fn denial(node: &Node, problems: &Problems) -> Option<Denial> {
    let mut fields = Fields::of(node, "an entry", problems)?;
    fields.require("name", "the pack's name");
    let since = node.get("since").and_then(Node::as_str).map(str::to_owned);
    Some(Denial { name: fields.take_parsed("name", PackName::parse)?, since })
}

/// Only shown, so what is not understood is left out.
fn facts(node: &Node) -> Facts {
    let map = |key: &str| {
        let entries = node.get(key).and_then(Node::as_map).unwrap_or_default();
        entries.iter().filter_map(|e| Some((e.key.clone(), e.value.as_str()?.to_owned()))).collect()
    };
    let list = |key: &str| {
        let words = node.get(key).and_then(Node::as_list).unwrap_or_default();
        words.iter().filter_map(Node::as_str).map(str::to_owned).collect()
    };
    Facts {
        env: map("env"),
        headers: map("headers"),
        access: map("access"),
        sends: list("sends"),
        cwd: node.get("cwd").and_then(Node::as_str).map(str::to_owned),
        files: map("files"),
        args: map("args"),
        replay: map("replay"),
        labels: list("labels"),
        leads: list("leads"),
    }
}

#[cfg(test)]
mod tests;

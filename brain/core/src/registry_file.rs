//! `tools.yaml`: where each tool can run (routing document §3 and §4). `tools: […]` or the list alone.

use std::collections::{BTreeMap, BTreeSet};

use vance_shared::doc::{Fields, Node, Problem, Problems, read_yaml};
use vance_shared::names::{PackName, ToolName};
use vance_shared::show::quoted;

use crate::engine::OFFLINE_WORDS;
use crate::spec::{Backing, Location, OfflineStrategy, RegistryEntry, RegistryFile, Side};

/// Fallbacks one after the other, as routing follows them.
pub const MAX_FALLBACK_HOPS: usize = 4;

const SIDES: [(&str, Side); 2] = [("server", Side::Server), ("client", Side::Client)];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Word {
    Server,
    Client,
    Both,
    PreferServer,
    PreferClient,
}

const LOCATIONS: [(&str, Word); 5] = [
    ("server", Word::Server),
    ("client", Word::Client),
    ("both", Word::Both),
    ("prefer_server", Word::PreferServer),
    ("prefer_client", Word::PreferClient),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Type {
    Mcp,
    Native,
    BuiltIn,
}

/// Reads the registry. An empty file is an empty registry.
pub fn parse_registry(file: &str, text: &str) -> Result<RegistryFile, Vec<Problem>> {
    let problems = Problems::new(file);
    let Some(node) = read_yaml(text, &problems) else { return Err(problems.into_list()) };
    if node.is_null() {
        return problems.into_result(Some(RegistryFile::new()));
    }
    let mut entries: BTreeMap<ToolName, (RegistryEntry, Lines)> = BTreeMap::new();
    // Also of entries with mistakes: all that is wrong is said at once.
    let mut named: BTreeMap<ToolName, u32> = BTreeMap::new();
    for item in items(&node, &problems) {
        let (name, entry) = entry(item, &problems);
        if let Some((name, line)) = name {
            if let Some(first) = named.get(&name) {
                problems.add(line, format!("the tool `{name}` is there twice, first on line {first}; remove one"));
                continue;
            }
            named.insert(name, line);
        }
        if let Some((entry, lines)) = entry {
            entries.insert(entry.name.clone(), (entry, lines));
        }
    }
    check_fallbacks(&entries, &problems);
    let registry = entries.into_iter().map(|(name, (entry, _))| (name, entry)).collect();
    problems.into_result(Some(registry))
}

/// The line of each entry's name: for what only shows beside other files.
pub fn entry_lines(text: &str) -> BTreeMap<String, u32> {
    let unsaid = Problems::new("");
    let Some(node) = read_yaml(text, &unsaid) else { return BTreeMap::new() };
    let names = items(&node, &unsaid).iter().filter_map(|item| item.get("name"));
    names.filter_map(|name| Some((name.as_str()?.to_owned(), name.line))).collect()
}

/// Where an entry says what, for problems between entries.
struct Lines {
    fallback: u32,
}

fn items<'a>(node: &'a Node, problems: &'a Problems) -> &'a [Node] {
    if let Some(items) = node.as_list() {
        return items;
    }
    let Some(mut fields) = Fields::of(node, "the registry", problems) else { return &[] };
    fields.require("tools", "a list of tools");
    let items = match fields.take("tools") {
        Some(node) => match node.as_list() {
            Some(items) => items,
            None => {
                fields.add("tools", format!("`tools` is {}, expected a list of tools (- name: ...)", node.describe()));
                &[]
            }
        },
        None => &[],
    };
    fields.finish();
    items
}

/// An entry's name with its line, also of one that has other mistakes.
type Named = Option<(ToolName, u32)>;

/// Its name with the line, and the entry if it has no mistakes.
fn entry(node: &Node, problems: &Problems) -> (Named, Option<(RegistryEntry, Lines)>) {
    let Some(mut fields) = Fields::of(node, "a tool", problems) else { return (None, None) };
    fields.require("name", "the tool's name");
    fields.require("location", "server, client, both, prefer_server or prefer_client");
    let name = fields.take_parsed("name", ToolName::parse);
    let location = location(&mut fields);
    let backing = backing(&mut fields, location);
    let description = fields.take_str("description").map(str::to_owned);
    let labels = fields.take_strs("labels", "a list such as [search]").unwrap_or_default();
    for (label, line) in &labels {
        if label.is_empty() || label.starts_with('@') || label.chars().any(char::is_whitespace) {
            let label = quoted(label, 80);
            problems.add(*line, format!("`labels`: a label is a name without blanks and without `@`, got {label}"));
        }
    }
    let labels = labels.into_iter().map(|(label, _)| label.to_owned()).collect();
    let offline_strategy = fields.take_enum("offline_strategy", &OFFLINE_WORDS);
    let fallback_tool = fields.take_parsed("fallback_tool", ToolName::parse);
    let needs_tool = matches!(location, Some(Location::Client)) && offline_strategy == Some(OfflineStrategy::Fallback);
    if needs_tool && !fields.has("fallback_tool") {
        fields.add(
            "offline_strategy",
            "`offline_strategy: fallback` of a client tool needs `fallback_tool`, the tool to use instead",
        );
    }
    let (name_line, lines) = (fields.line_of("name"), Lines { fallback: fields.line_of("fallback_tool") });
    fields.finish();
    let named = name.clone().map(|name| (name, name_line));
    let (Some(name), Some(location), Some(backing)) = (name, location, backing) else { return (named, None) };
    let entry = RegistryEntry { name, location, backing, description, labels, offline_strategy, fallback_tool };
    (named, Some((entry, lines)))
}

fn location(fields: &mut Fields<'_>) -> Option<Location> {
    let word = fields.take_enum("location", &LOCATIONS);
    let prefer = fields.take_enum("prefer", &SIDES);
    let word = word?;
    if word != Word::Both && fields.has("prefer") {
        fields.add("prefer", "`prefer` has a meaning only with `location: both`, remove it");
    }
    Some(match word {
        Word::Server => Location::Server,
        Word::Client => Location::Client,
        // Without a word of its own: the server, which is the more robust side.
        Word::Both => Location::Both { prefer: prefer.unwrap_or(Side::Server) },
        Word::PreferServer => Location::Both { prefer: Side::Server },
        Word::PreferClient => Location::Both { prefer: Side::Client },
    })
}

/// The outer `None` is a mistake, the inner one an entry without a backing.
fn backing(fields: &mut Fields<'_>, location: Option<Location>) -> Option<Option<Backing>> {
    let kind = fields.take_enum("type", &[("mcp", Type::Mcp), ("native", Type::Native), ("built_in", Type::BuiltIn)]);
    let pack = fields.take_parsed("mcp_server", PackName::parse);
    let tool = fields.take_str("tool").map(str::to_owned);
    if fields.has("tool") && !fields.has("mcp_server") {
        fields.add("tool", "`tool` has a meaning only with `mcp_server`: the server's own name of the tool");
    }
    match kind {
        None if fields.has("type") => None,
        Some(Type::Mcp) if !fields.has("mcp_server") => {
            fields.add("type", "`type: mcp` needs `mcp_server`, the name of its pack");
            None
        }
        Some(Type::Mcp) | None if fields.has("mcp_server") => {
            Some(Some(Backing::McpServer { pack: pack?.to_string(), tool }))
        }
        Some(Type::Mcp) | None => Some(None),
        Some(kind @ (Type::Native | Type::BuiltIn)) => {
            if fields.has("mcp_server") {
                fields.add("mcp_server", "`mcp_server` contradicts `type`, remove one");
            }
            match (kind, location) {
                (Type::Native, Some(Location::Server)) => {
                    fields.add("type", "`type: native` is a tool of the client itself, but `location` is server; expected built_in or another location");
                }
                (Type::BuiltIn, Some(Location::Client)) => {
                    fields.add("type", "`type: built_in` is a tool of the server itself, but `location` is client; expected native or another location");
                }
                (Type::Mcp | Type::Native | Type::BuiltIn, _) => {}
            }
            Some(Some(if kind == Type::Native { Backing::Native } else { Backing::BuiltIn }))
        }
    }
}

/// Chains of `fallback_tool` end, and soon. Each cycle is reported once.
fn check_fallbacks(entries: &BTreeMap<ToolName, (RegistryEntry, Lines)>, problems: &Problems) {
    let mut in_cycle: BTreeSet<&ToolName> = BTreeSet::new();
    for (start, (_, lines)) in entries {
        let mut path = vec![start];
        let mut at = start;
        while let Some(next) = entries.get(at).and_then(|(entry, _)| entry.fallback_tool.as_ref()) {
            if let Some(from) = path.iter().position(|seen| *seen == next) {
                // Reported from its first member only; what merely leads into it is not to blame.
                if from == 0 && !in_cycle.contains(start) {
                    path.push(next);
                    problems.add(lines.fallback, format!("`fallback_tool` runs in a circle: {}", shown(&path)));
                    in_cycle.extend(path);
                }
                path = Vec::new();
                break;
            }
            path.push(next);
            at = next;
        }
        if path.len() > MAX_FALLBACK_HOPS + 1 {
            let hops = path.len() - 1;
            problems.add(
                lines.fallback,
                format!("{hops} fallbacks one after the other, expected at most {MAX_FALLBACK_HOPS}: {}", shown(&path)),
            );
        }
    }
}

/// A path for people, cut where nobody reads on.
fn shown(path: &[&ToolName]) -> String {
    let names: Vec<&str> = path.iter().take(12).map(|name| name.as_str()).collect();
    let more = if path.len() > 12 { " -> ..." } else { "" };
    format!("{}{more}", names.join(" -> "))
}

#[cfg(test)]
mod tests;

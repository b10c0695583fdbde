//! `toolPacks:` of `config.yaml`: which of the packs that were found are wanted here. It defines none. The file's other fields belong to others.
//!
//! Each field is for itself: what is missing (or has nothing behind it) does not control anything. A file that cannot be understood selects
//! nothing: what it was meant to turn off must not run.

use vance_shared::doc::{Fields, Node, Problem, Problems, nearest, nearest_field, read_yaml, ticked};

/// Largest `config.yaml`.
pub const MAX_CONFIG_BYTES: usize = 256 * 1024;
const BLOCK: &str = "toolPacks";
const FIELDS: [&str; 3] = ["enabled", "packs", "disabledPacks"];

/// The selection. The default selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ToolPacks {
    file: String,
    /// The line of `enabled: false`.
    off: Option<u32>,
    /// Allow-list; empty: all.
    packs: Vec<Name>,
    /// Deny-list, after the allow-list.
    disabled: Vec<Name>,
    /// The file cannot be understood, and why.
    broken: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Name {
    text: String,
    line: u32,
}

/// What a `config.yaml` comes to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Config {
    /// Selects nothing if there are problems.
    pub tool_packs: ToolPacks,
    /// Why the file cannot be understood.
    pub problems: Vec<Problem>,
    /// What is odd but does no harm.
    pub warnings: Vec<Problem>,
}

/// Reads a `config.yaml`.
pub fn parse_config(file: &str, text: &str) -> Config {
    let (problems, warnings) = (Problems::new(file), Problems::new(file));
    let mut tool_packs = ToolPacks { file: file.to_owned(), ..ToolPacks::default() };
    if text.len() > MAX_CONFIG_BYTES {
        problems.add(1, format!("the file has {} bytes, expected at most {MAX_CONFIG_BYTES}", text.len()));
    } else if let Some(node) = read_yaml(text, &problems) {
        block(&node, &mut tool_packs, &problems, &warnings);
    }
    let problems = problems.into_list();
    if let Some(problem) = problems.first() {
        tool_packs = ToolPacks::unreadable(file, &format!("line {}: {}", problem.line, problem.message));
    }
    Config { tool_packs, problems, warnings: warnings.into_list() }
}

fn block(root: &Node, out: &mut ToolPacks, problems: &Problems, warnings: &Problems) {
    if root.is_null() {
        return;
    }
    let Some(mut fields) = Fields::of(root, "the file", problems) else { return };
    let Some(block) = fields.take(BLOCK).filter(|block| !block.is_null()) else {
        misspelt(root, warnings);
        return;
    };
    let Some(mut fields) = Fields::of(block, format!("`{BLOCK}`"), problems) else { return };
    let there = |name: &str| block.get(name).is_some_and(|node| !node.is_null());
    if there("enabled") && fields.take_bool("enabled") == Some(false) {
        out.off = Some(fields.line_of("enabled"));
    }
    let mut names = |name: &'static str| {
        let list = match there(name) {
            true => fields.take_strs(name, "a list such as [chrome, jira]").unwrap_or_default(),
            false => Vec::new(),
        };
        list.into_iter().map(|(text, line)| Name { text: text.to_owned(), line }).collect()
    };
    out.packs = names("packs");
    out.disabled = names("disabledPacks");
    for entry in block.as_map().unwrap_or_default().iter().filter(|entry| !FIELDS.contains(&entry.key.as_str())) {
        let hint = nearest_field(&entry.key, &FIELDS);
        warnings.add(entry.line, format!("unknown field {} in `{BLOCK}`{hint}", ticked(&entry.key)));
    }
}

/// `toolpacks:` and its like would be nobody's field, and so be ignored in silence.
fn misspelt(root: &Node, warnings: &Problems) {
    let bare = |key: &str| key.chars().filter(|c| c.is_alphanumeric()).collect::<String>().to_ascii_lowercase();
    for entry in root.as_map().unwrap_or_default() {
        if entry.key != BLOCK && matches!(bare(&entry.key).as_str(), "toolpacks" | "toolpack") {
            warnings.add(entry.line, format!("{} is not read, did you mean `{BLOCK}`?", ticked(&entry.key)));
        }
    }
}

impl ToolPacks {
    /// For a file that is there but cannot be read: selects nothing.
    pub fn unreadable(file: &str, why: &str) -> Self {
        Self { file: file.to_owned(), broken: Some(why.to_owned()), ..Self::default() }
    }

    /// Why a pack is not wanted; `None` if it is. Names are compared exactly.
    pub fn reason_against(&self, pack: &str) -> Option<String> {
        let Self { file, off, packs, disabled, broken } = self;
        let file = vance_shared::show::plain(file);
        let has = |list: &[Name]| list.iter().find(|name| name.text == pack).map(|name| name.line);
        if let Some(why) = broken {
            return Some(format!("{file} cannot be understood ({why}), so no pack is selected; mend it"));
        }
        if let Some(line) = off {
            return Some(format!("{file}:{line} turns all packs off (`{BLOCK}.enabled: false`)"));
        }
        if !packs.is_empty() && has(packs).is_none() {
            let line = packs.first().map_or(1, |name| name.line);
            return Some(format!("not in the list `{BLOCK}.packs` of {file}:{line}"));
        }
        has(disabled).map(|line| format!("{file}:{line} lists it in `{BLOCK}.disabledPacks`"))
    }

    /// A warning for each listed name that no pack has, with the nearest one that there is.
    pub fn unmatched(&self, known: &[&str]) -> Vec<Problem> {
        let lists = [("packs", &self.packs), ("disabledPacks", &self.disabled)];
        let mut warnings = Vec::new();
        for (list, names) in lists {
            for Name { text, line } in names.iter().filter(|name| !known.contains(&name.text.as_str())) {
                let shown = vance_shared::show::quoted(text, 80);
                let hint = nearest(text, known.iter().copied())
                    .map(|near| format!(", did you mean '{}'?", vance_shared::show::plain(near)))
                    .unwrap_or_default();
                let message = format!("{shown} in `{BLOCK}.{list}` is no pack that was found{hint}");
                warnings.push(Problem::new(self.file.clone(), *line, message));
            }
        }
        warnings
    }
}

#[cfg(test)]
mod tests;

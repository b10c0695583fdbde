//! Pack files: one JSON file that describes a tool family. The same format at every level; what is only odd in a file of
//! the user's own is an error in one that came with the working directory.

use crate::doc::{Fields, Node, Problem, Problems, read_json, ticked};
use crate::launch::{LaunchPlan, Origin, Source};
use crate::names::PackName;

mod canon;
mod command;
mod endpoint;
mod mcp;
mod references;
mod rest;
pub use canon::canonical;
pub(crate) use command::SCRIPT_ENDINGS;

/// Largest pack file: a pack is a command line or an endpoint, not a program.
pub const MAX_FILE_BYTES: usize = 256 * 1024;
/// Labels of one pack: a selector reads them all for each tool.
const MAX_LABELS: usize = 64;
/// Longest label.
const MAX_LABEL_BYTES: usize = 64;
/// Fields that belong under `parameters`, for the hint when they stand beside it.
const PARAMETER_FIELDS: [&str; 18] = [
    "transport",
    "command",
    "args",
    "cwd",
    "env",
    "url",
    "headers",
    "auth",
    "tls",
    "timeoutSeconds",
    "initTimeoutSeconds",
    "defaultArgs",
    "replay",
    "restart",
    "specUrl",
    "specFile",
    "specInline",
    "baseUrl",
];

/// What a pack file says, and what is wrong with it.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// The pack's name as far as it could be read, also of a broken pack.
    pub name: Option<PackName>,
    /// The pack; there exactly if there are no problems.
    pub pack: Option<Pack>,
    /// Why the pack cannot be loaded.
    pub problems: Vec<Problem>,
    /// What is odd but does no harm.
    pub warnings: Vec<Problem>,
}

/// One pack, valid as a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Pack {
    /// The namespace of its sub-tools.
    pub name: PackName,
    /// False: the pack only turns off another one of its name, or itself.
    pub enabled: bool,
    /// For people.
    pub description: Option<String>,
    /// The file's own labels.
    pub labels: Vec<String>,
    /// Sub-tools that are not offered, by their own names.
    pub disabled_sub_tools: Vec<String>,
    /// A global pack that no project may redirect or disable.
    pub project_override_forbidden: bool,
    /// What it offers.
    pub body: PackBody,
}

/// What stands behind a pack.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant)] // nearly every pack is the large one, and there are at most 64
pub enum PackBody {
    /// What is to be launched.
    Launch(LaunchPlan),
    /// A disabled pack whose parameters are absent or wrong.
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    McpServer,
    RestApi,
}

/// The two collectors of a file, and what its origin makes of an odd field.
struct Report<'a> {
    origin: Origin,
    problems: &'a Problems,
    warnings: &'a Problems,
}

impl Report<'_> {
    /// An unknown or unused field: an error in a file that somebody else wrote, a warning in one's own.
    fn odd(&self, line: u32, message: impl AsRef<str>) {
        match self.origin {
            Origin::Project => self.problems.add(line, message),
            Origin::Global | Origin::Server => self.warnings.add(line, message),
        }
    }

    /// Marks a field as known and reports it if it is there.
    fn unused(&self, fields: &mut Fields<'_>, name: &'static str, place: &str) {
        if fields.take(name).is_some() {
            self.odd(fields.line_of(name), format!("`{name}` has no meaning {place}, remove it"));
        }
    }

    fn finish(&self, fields: &Fields<'_>) {
        for (_, line, message) in fields.unknown() {
            self.odd(line, message);
        }
    }
}

/// Reads a pack file.
pub fn parse_pack(file: &str, text: &str, origin: Origin) -> Parsed {
    let (problems, warnings) = (Problems::new(file), Problems::new(file));
    let mut name = None;
    let mut pack = None;
    if text.len() > MAX_FILE_BYTES {
        problems.add(1, format!("the file has {} bytes, expected at most {MAX_FILE_BYTES}", text.len()));
    } else {
        pack =
            read_json(text, &problems).and_then(|node| envelope(file, &node, origin, &problems, &warnings, &mut name));
    }
    if !problems.is_empty() {
        pack = None;
    }
    Parsed { name, pack, problems: problems.into_list(), warnings: warnings.into_list() }
}

fn envelope(
    file: &str,
    node: &Node,
    origin: Origin,
    problems: &Problems,
    warnings: &Problems,
    name_out: &mut Option<PackName>,
) -> Option<Pack> {
    let report = Report { origin, problems, warnings };
    let mut fields = Fields::of(node, "the pack", problems)?;
    fields.require("name", "a name such as chrome");
    let name = fields.take_parsed("name", PackName::parse);
    name_out.clone_from(&name);
    let enabled = match fields.has("enabled") {
        true => fields.take_bool("enabled"),
        false => fields.take("enabled").is_none().then_some(true),
    };
    let description = fields.take_str("description").map(str::to_owned);
    let labels = labels(&mut fields, name.as_ref(), &report);
    let disabled_sub_tools = texts(&mut fields, "disabledSubTools", "a list such as [\"delete_page\"]");
    let project_override = match origin {
        Origin::Global => fields.take_enum("projectOverride", &[("allow", false), ("forbid", true)]),
        Origin::Server | Origin::Project => {
            report.unused(&mut fields, "projectOverride", "outside of the global packs");
            None
        }
    };
    let off = enabled == Some(false);
    if !off {
        fields.require("type", "mcp_server");
    }
    let kind = fields.take_enum("type", &[("mcp_server", Type::McpServer), ("rest_api", Type::RestApi)]);
    match kind {
        Some(Type::McpServer) if !off => {
            fields.require("parameters", "a mapping with `transport` and `command` or `url`")
        }
        Some(Type::RestApi) if !off => {
            fields.require("parameters", "a mapping with `specUrl`, `specFile` or `specInline`")
        }
        Some(Type::McpServer | Type::RestApi) | None => {}
    }
    let parameters = fields.take("parameters");
    for (key, line, message) in fields.unknown() {
        match PARAMETER_FIELDS.contains(&key) {
            true => report.odd(line, format!("{} belongs under `parameters`", ticked(key))),
            false => report.odd(line, message),
        }
    }
    let source = Source { file: file.to_owned(), canonical: canon::without_enabled(node), credential_in_query: false };
    let shell = mcp::Envelope {
        name: name.clone(),
        labels: labels.clone(),
        disabled_sub_tools: disabled_sub_tools.clone(),
        source,
    };
    let body = match (kind, parameters) {
        (Some(kind), Some(parameters)) if off => {
            // Turning a broken pack off must work; its mistakes are only mentioned.
            let (inner, odd) = (Problems::new(file), Problems::new(file));
            let body = read_body(kind, parameters, shell, &Report { origin, problems: &inner, warnings: &odd });
            let faultless = inner.is_empty();
            for problem in inner.into_list().into_iter().chain(odd.into_list()) {
                warnings.add(problem.line, problem.message);
            }
            body.filter(|_| faultless).unwrap_or(PackBody::Nothing)
        }
        (Some(kind), Some(parameters)) => read_body(kind, parameters, shell, &report)?,
        // The type is wrong; what else is wrong is said in the same breath, as far as the parameters show what was meant.
        (None, Some(parameters)) if !off => read_body(meant(parameters)?, parameters, shell, &report)?,
        (Some(_) | None, _) if off => PackBody::Nothing,
        (Some(_) | None, _) => return None,
    };
    Some(Pack {
        name: name?,
        enabled: enabled?,
        description,
        labels,
        disabled_sub_tools,
        project_override_forbidden: project_override.unwrap_or(false),
        body,
    })
}

/// The type that parameters belong to.
fn meant(parameters: &Node) -> Option<Type> {
    let has = |names: &[&str]| names.iter().any(|name| parameters.get(name).is_some());
    if has(&["specUrl", "specFile", "specInline"]) {
        return Some(Type::RestApi);
    }
    has(&["transport", "command", "url"]).then_some(Type::McpServer)
}

fn read_body(kind: Type, parameters: &Node, shell: mcp::Envelope, report: &Report<'_>) -> Option<PackBody> {
    match kind {
        Type::McpServer => mcp::plan(parameters, shell, report).map(PackBody::Launch),
        Type::RestApi => rest::plan(parameters, shell, report).map(|plan| PackBody::Launch(plan.launch())),
    }
}

fn texts(fields: &mut Fields<'_>, name: &'static str, expected: &str) -> Vec<String> {
    fields.take_strs(name, expected).unwrap_or_default().into_iter().map(|(text, _)| text.to_owned()).collect()
}

fn labels(fields: &mut Fields<'_>, pack: Option<&PackName>, report: &Report<'_>) -> Vec<String> {
    let list = fields.take_strs("labels", "a list such as [\"browser\"]").unwrap_or_default();
    if list.len() > MAX_LABELS {
        fields.add("labels", format!("{} labels, expected at most {MAX_LABELS}", list.len()));
    }
    let mut labels = Vec::with_capacity(list.len());
    for (label, line) in list {
        check_label(label, line, report);
        if report.origin == Origin::Project && pretends(label, pack) {
            report.warnings.add(
                line,
                format!(
                    "the label {} is left out: a pack of the working directory cannot give it to itself",
                    crate::show::quoted(label, 80)
                ),
            );
            continue;
        }
        labels.push(label.to_owned());
    }
    labels
}

/// Notes what is wrong with a label; true if nothing is.
fn check_label(label: &str, line: u32, report: &Report<'_>) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || "_-.:/".contains(c);
    let right = !label.is_empty() && label.len() <= MAX_LABEL_BYTES && label.chars().all(good);
    if !right {
        let shown = crate::show::quoted(label, 80);
        report.problems.add(line, format!("a label is 1 to {MAX_LABEL_BYTES} of [A-Za-z0-9_.:/-], got {shown}"));
    }
    right
}

/// Labels that say which pack a tool is of, or that it changes nothing: whoever selects by them relies on them.
fn pretends(label: &str, pack: Option<&PackName>) -> bool {
    let of_another =
        |kind: &str| label.strip_prefix(kind).is_some_and(|name| pack.is_none_or(|pack| pack.as_str() != name));
    label == "read-only" || of_another("mcp:") || of_another("rest:")
}

#[cfg(test)]
mod tests;

//! The table of native tools: name, words, labels, replay class, schemas.

use serde_json::Value;
use vance_shared::json::Raw;
use vance_shared::names::ToolName;
use vance_shared::tool::{Replay, ToolSpec};

mod schemas;

/// Which tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tool {
    Read,
    Write,
    Edit,
    List,
    Search,
    Shell,
    ProcessStart,
    ProcessStatus,
    ProcessOutput,
    ProcessStop,
    GitStatus,
    Pdf,
}

struct Entry {
    tool: Tool,
    name: &'static str,
    description: &'static str,
    topic: &'static str,
    replay: Replay,
    schemas: fn() -> (Value, Value),
}

/// Reads are safe to run again; what changes something is not.
const TABLE: &[Entry] = &[
    Entry {
        tool: Tool::Read,
        name: "read_local_file",
        description: "Reads a text file from the person's machine, whole or by lines. Other data on request as base64.",
        topic: "files",
        replay: Replay::Safe,
        schemas: schemas::read,
    },
    Entry {
        tool: Tool::Write,
        name: "write_local_file",
        description: "Writes a text file on the person's machine: replaces it as a whole (atomically), or appends to it.",
        topic: "files",
        replay: Replay::Unsafe,
        schemas: schemas::write,
    },
    Entry {
        tool: Tool::Edit,
        name: "edit_local_file",
        description: "Replaces one exact text in a file by another. The text must occur once, unless replace_all is set.",
        topic: "files",
        replay: Replay::Unsafe,
        schemas: schemas::edit,
    },
    Entry {
        tool: Tool::List,
        name: "list_local_files",
        description: "Lists a folder on the person's machine, or the tree below it (without what .gitignore leaves out).",
        topic: "files",
        replay: Replay::Safe,
        schemas: schemas::list,
    },
    Entry {
        tool: Tool::Search,
        name: "search_local_files",
        description: "Finds lines that match a regular expression (or a literal text) in the files below a folder.",
        topic: "files",
        replay: Replay::Safe,
        schemas: schemas::search,
    },
    Entry {
        tool: Tool::Shell,
        name: "shell_execute",
        description: "Runs a program on the person's machine to its end and gives its output. All it started ends with it; use process_start for what should go on.",
        topic: "shell",
        replay: Replay::Unsafe,
        schemas: schemas::shell,
    },
    Entry {
        tool: Tool::ProcessStart,
        name: "process_start",
        description: "Starts a program in the background. It runs until it ends, is stopped, or the Foot ends.",
        topic: "processes",
        replay: Replay::Unsafe,
        schemas: schemas::process_start,
    },
    Entry {
        tool: Tool::ProcessStatus,
        name: "process_status",
        description: "Tells the state of one background process, or of all that this Foot has started.",
        topic: "processes",
        replay: Replay::Safe,
        schemas: schemas::process_status,
    },
    Entry {
        tool: Tool::ProcessOutput,
        name: "process_output",
        description: "Reads what a background process has written, from a place on; can wait for something new.",
        topic: "processes",
        replay: Replay::Safe,
        schemas: schemas::process_output,
    },
    Entry {
        tool: Tool::ProcessStop,
        name: "process_stop",
        description: "Ends a background process and all that it started: SIGTERM, then SIGKILL after the grace.",
        topic: "processes",
        replay: Replay::Unsafe,
        schemas: schemas::process_stop,
    },
    Entry {
        tool: Tool::GitStatus,
        name: "git_status",
        description: "Tells branch and changed files of the git working tree below a folder, without running anything that the repository configures.",
        topic: "git",
        replay: Replay::Safe,
        schemas: schemas::git_status,
    },
    Entry {
        tool: Tool::Pdf,
        name: "pdf_extract_text",
        description: "Extracts the text of a PDF on the person's machine, page by page.",
        topic: "pdf",
        replay: Replay::Safe,
        schemas: schemas::pdf,
    },
];

/// The tool of this name.
pub(super) fn tool(name: &str) -> Option<Tool> {
    TABLE.iter().find(|e| e.name == name).map(|e| e.tool)
}

/// All tools as others see them.
pub(super) fn all() -> Vec<ToolSpec> {
    TABLE.iter().filter_map(spec).collect()
}

fn spec(entry: &Entry) -> Option<ToolSpec> {
    let (input, output) = (entry.schemas)();
    let effect = match entry.replay {
        Replay::Safe => "read-only",
        Replay::Unsafe => "side-effect",
    };
    Some(ToolSpec {
        // The names in the table are valid; a test holds it.
        name: ToolName::parse(entry.name).ok()?,
        description: entry.description.to_owned(),
        input_schema: Raw::from(input),
        output_schema: Some(Raw::from(output)),
        labels: ["native", effect, entry.topic].map(str::to_owned).into(),
        annotations: None,
        replay: entry.replay,
        pack: None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use vance_shared::tool::NATIVE_TOOLS;

    use super::*;

    #[test]
    fn the_table_holds_every_native_tool_and_its_replay_class() {
        let names: Vec<String> = all().iter().map(|s| s.name.to_string()).collect();
        assert_eq!(names, NATIVE_TOOLS);
        let safe: Vec<&str> = TABLE.iter().filter(|e| e.replay == Replay::Safe).map(|e| e.name).collect();
        assert_eq!(
            safe,
            [
                "read_local_file",
                "list_local_files",
                "search_local_files",
                "process_status",
                "process_output",
                "git_status",
                "pdf_extract_text"
            ]
        );
    }

    #[test]
    fn every_field_of_every_schema_is_described() {
        for spec in all() {
            for schema in [spec.input_schema.value(), spec.output_schema.map(|s| s.value()).unwrap_or_default()] {
                assert_eq!(schema["additionalProperties"], json!(false), "{}", spec.name);
                for (field, value) in schema["properties"].as_object().into_iter().flatten() {
                    let described = value.get("description").is_some()
                        || value.get("enum").is_some()
                        || value.get("items").is_some();
                    assert!(described, "{} {field}", spec.name);
                }
            }
        }
    }
}

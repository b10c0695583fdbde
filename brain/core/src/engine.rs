//! Tool sets of think processes: the `engine:` block of the routing document, as a file of `engines/` or inside a task tree.

use vance_shared::doc::{Fields, Node, Problem, Problems, read_yaml};
use vance_shared::names::ToolName;
use vance_shared::show::quoted;

use crate::spec::{EngineSpec, OfflineStrategy};

/// The words of `offline_strategy`.
pub(crate) const OFFLINE_WORDS: [(&str, OfflineStrategy); 4] = [
    ("block", OfflineStrategy::Block),
    ("skip", OfflineStrategy::Skip),
    ("fallback", OfflineStrategy::Fallback),
    ("queue", OfflineStrategy::Queue),
];

/// Longest id of an engine or a task.
const MAX_ID_BYTES: usize = 64;

/// Reads one file of `engines/`: `engine: {…}` or the block alone.
pub fn parse_engine(file: &str, text: &str) -> Result<EngineSpec, Vec<Problem>> {
    let problems = Problems::new(file);
    let Some(node) = read_yaml(text, &problems) else { return Err(problems.into_list()) };
    let spec = match node.get("engine") {
        Some(inner) => {
            if let Some(mut fields) = Fields::of(&node, "the file", &problems) {
                fields.take("engine");
                fields.finish();
            }
            engine_spec(inner, &problems)
        }
        None => engine_spec(&node, &problems),
    };
    problems.into_result(spec)
}

/// Reads the block itself.
pub(crate) fn engine_spec(node: &Node, problems: &Problems) -> Option<EngineSpec> {
    let mut fields = Fields::of(node, "the engine", problems)?;
    fields.require("id", "a name such as eng_literature_review");
    let id = fields.take_parsed("id", check_id);
    let mut spec =
        EngineSpec { id: String::new(), server: None, client: None, auto_fallback: false, offline_strategy: None };
    if let Some(mut tools) = fields.take_fields("tools") {
        spec.server = tool_list(&mut tools, "server");
        spec.client = tool_list(&mut tools, "client");
        if spec.server.is_some() || spec.client.is_some() {
            // A side that a given set does not mention has no tools; without any set nothing is restricted.
            spec.server.get_or_insert_default();
            spec.client.get_or_insert_default();
        }
        spec.auto_fallback = tools.take_bool("auto_fallback").unwrap_or(false);
        spec.offline_strategy = tools.take_enum("offline_strategy", &OFFLINE_WORDS);
        tools.finish();
    }
    fields.finish();
    Some(EngineSpec { id: id?, ..spec })
}

/// An id as other places name it.
pub(crate) fn check_id(text: &str) -> Result<String, String> {
    let good = !text.is_empty()
        && text.len() <= MAX_ID_BYTES
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    match good {
        true => Ok(text.to_owned()),
        false => Err(format!("an id is 1 to {MAX_ID_BYTES} of [A-Za-z0-9_-], got {}", quoted(text, 80))),
    }
}

/// A list of tool names and `@labels`; wrong ones are reported and left out.
pub(crate) fn tool_list(fields: &mut Fields<'_>, name: &'static str) -> Option<Vec<String>> {
    let list = fields.take_strs(name, "a list such as [web_search, \"@read-only\"]")?;
    let mut tools: Vec<String> = Vec::with_capacity(list.len());
    for (text, line) in list {
        match check_tool(text) {
            Ok(()) => tools.push(text.to_owned()),
            Err(message) => fields.problems().add(line, format!("`{name}`: {message}")),
        }
    }
    Some(tools)
}

fn check_tool(text: &str) -> Result<(), String> {
    match text.strip_prefix('@') {
        Some(label) if label.is_empty() || label.chars().any(char::is_whitespace) => {
            Err(format!("a label is `@` and its name, got {}", quoted(text, 80)))
        }
        Some(_) => Ok(()),
        None => ToolName::parse(text).map(|_| ()).map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used)]
    use super::*;

    const DOCUMENT: &str = "engine:
  id: eng_literature_review
  tools:
    server: [web_search, google_drive_search, gmail_send]
    client: [obsidian_read_note, read_local_file, zotero_search]
    auto_fallback: true    # Fall back to Server alternative if Client is offline
";

    #[test]
    fn the_documents_block_parses_with_and_without_its_key() {
        let bare = DOCUMENT.lines().skip(1).collect::<Vec<_>>().join("\n");
        for text in [DOCUMENT, &bare] {
            let spec = parse_engine("f", text).unwrap();
            assert_eq!(spec.id, "eng_literature_review");
            assert_eq!(spec.server.unwrap(), ["web_search", "google_drive_search", "gmail_send"]);
            assert_eq!(spec.client.unwrap().len(), 3);
            assert!(spec.auto_fallback && spec.offline_strategy.is_none());
        }
    }

    #[test]
    fn without_sets_nothing_is_restricted_and_one_set_empties_the_other() {
        for (text, server, client) in [
            ("id: a", None, None),
            ("id: a\ntools: {auto_fallback: true, offline_strategy: queue}", None, None),
            ("id: a\ntools: {server: [x]}", Some(1), Some(0)),
            ("id: a\ntools: {client: ['@mcp:chrome', x]}", Some(0), Some(2)),
        ] {
            let spec = parse_engine("f", text).unwrap();
            assert_eq!((spec.server.map(|s| s.len()), spec.client.map(|c| c.len())), (server, client), "{text}");
        }
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, want) in [
            ("", vec!["f:1: the engine is empty, expected a mapping (name: value)"]),
            ("tools: {}", vec!["f:1: the engine has no `id`, expected a name such as eng_literature_review"]),
            (
                "engine:\n  id: a b\nx: 1",
                vec![
                    "f:2: `id`: an id is 1 to 64 of [A-Za-z0-9_-], got 'a b'",
                    "f:3: unknown field `x` in the file, expected one of: engine",
                ],
            ),
            (
                "id: a\ntools:\n  servers: [a]\n  client: [a b, '@', 3]\n  auto_fallback: yes\n  offline_strategy: blok\n",
                vec![
                    "f:3: unknown field `servers` in `tools`, did you mean `server`?",
                    "f:4: `client` holds the number 3, expected text",
                    "f:4: `client`: a tool name is 1 to 64 of [A-Za-z0-9_-], got 'a b'",
                    "f:4: `client`: a label is `@` and its name, got '@'",
                    "f:5: `auto_fallback` is 'yes', expected true or false",
                    "f:6: `offline_strategy` is 'blok', did you mean `block`?",
                ],
            ),
        ] {
            let got: Vec<String> = parse_engine("f", text).unwrap_err().iter().map(ToString::to_string).collect();
            assert_eq!(got, want, "{text}");
        }
    }
}

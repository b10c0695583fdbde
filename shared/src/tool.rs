//! A tool: what it is called, what it takes and gives, and whether it may run twice.

use serde::{Deserialize, Serialize};

use crate::json::Raw;
use crate::names::ToolName;

/// Native tools that every Foot has: a task that needs one blocks while no Foot is there, it never fails as unknown.
pub const NATIVE_TOOLS: [&str; 12] = [
    "read_local_file",
    "write_local_file",
    "edit_local_file",
    "list_local_files",
    "search_local_files",
    "shell_execute",
    "process_start",
    "process_status",
    "process_output",
    "process_stop",
    "git_status",
    "pdf_extract_text",
];

/// Whether a call whose outcome is unknown may simply run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Replay {
    /// Read-only or idempotent: run again.
    Safe,
    /// Anything else: never run again blindly.
    #[default]
    Unsafe,
}

/// MCP's hints about a tool. Contradictory hints count as unsafe.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Annotations {
    /// A title for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Changes nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub read_only_hint: Option<bool>,
    /// May destroy something.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub destructive_hint: Option<bool>,
    /// The same call again changes nothing more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idempotent_hint: Option<bool>,
    /// Reaches beyond its own data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_world_hint: Option<bool>,
}

impl Annotations {
    /// The replay class that these hints justify, for a pack whose hints are trusted.
    pub fn replay(&self) -> Replay {
        let read_only = self.read_only_hint == Some(true);
        let idempotent = self.idempotent_hint == Some(true);
        let contradicts = read_only && self.destructive_hint == Some(true);
        if (read_only || idempotent) && !contradicts { Replay::Safe } else { Replay::Unsafe }
    }
}

/// One tool with everything that is known of it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// Full name.
    pub name: ToolName,
    /// For people and models.
    pub description: String,
    /// JSON Schema of the arguments (an object schema).
    pub input_schema: Raw,
    /// JSON Schema of the structured result.
    pub output_schema: Option<Raw>,
    /// Labels, for selection by capability.
    pub labels: Vec<String>,
    /// The MCP server's hints.
    pub annotations: Option<Annotations>,
    /// May it run twice?
    pub replay: Replay,
    /// Which pack (or other source) it comes from; `None` for native and built-in tools.
    pub pack: Option<String>,
}

/// What a tool gave back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// MCP content parts: a JSON array of `{"type": "text" | "image" | …}`.
    pub content: Raw,
    /// Structured content, if the tool gave any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<Raw>,
    /// The tool itself says that it failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

/// What a text part has that others have not.
#[derive(Deserialize)]
struct TextPart {
    #[serde(default)]
    text: Option<String>,
}

impl ToolResult {
    /// One text part.
    pub fn text(text: impl Into<String>) -> Self {
        let part = serde_json::json!([{"type": "text", "text": text.into()}]);
        Self { content: Raw::from(part), structured: None, is_error: false }
    }

    /// Structured content, with its JSON as the text part for clients that read only text.
    pub fn structured(value: serde_json::Value) -> Self {
        let text = value.to_string();
        Self { structured: Some(Raw::from(value)), ..Self::text(text) }
    }

    /// A failure that the tool reports, as text.
    pub fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::text(text) }
    }

    /// All text parts, joined by newlines.
    pub fn joined_text(&self) -> String {
        // Nearly always parts are what they should be, and there is one.
        if let Ok(mut parts) = self.content.to::<Vec<TextPart>>() {
            return match parts.as_mut_slice() {
                [TextPart { text: Some(text) }] => std::mem::take(text),
                parts => parts.iter().filter_map(|part| part.text.as_deref()).collect::<Vec<_>>().join("\n"),
            };
        }
        let parts: Vec<serde_json::Value> = self.content.to().unwrap_or_default();
        let texts: Vec<&str> = parts.iter().filter_map(|p| p.get("text").and_then(|t| t.as_str())).collect();
        texts.join("\n")
    }

    /// Size of the payload, in bytes of JSON.
    pub fn bytes(&self) -> usize {
        self.content.get().len() + self.structured.as_ref().map_or(0, |s| s.get().len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradictory_hints_count_as_unsafe() {
        let hints = |read_only, destructive, idempotent| Annotations {
            read_only_hint: read_only,
            destructive_hint: destructive,
            idempotent_hint: idempotent,
            ..Annotations::default()
        };
        for (annotations, want) in [
            (hints(None, None, None), Replay::Unsafe),
            (hints(Some(true), None, None), Replay::Safe),
            (hints(Some(true), Some(true), None), Replay::Unsafe),
            (hints(Some(false), Some(true), Some(true)), Replay::Safe),
            (hints(None, Some(false), None), Replay::Unsafe),
        ] {
            assert_eq!(annotations.replay(), want, "{annotations:?}");
        }
    }

    #[test]
    fn text_parts_are_joined() {
        let result = ToolResult {
            content: Raw::from(
                serde_json::json!([{"type":"text","text":"a"},{"type":"image","data":""},{"type":"text","text":"b"}]),
            ),
            structured: None,
            is_error: false,
        };
        assert_eq!(result.joined_text(), "a\nb");
    }
}

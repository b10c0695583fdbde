//! Resources and prompts of a server, offered as sub-tools: whoever calls tools can read them, too.

use rmcp::model::ServerCapabilities;
use serde_json::{Map, Value, json};
use tokio::time::Instant;
use vance_shared::call::Outcome;
use vance_shared::json::Raw;
use vance_shared::tool::ToolResult;

use crate::call::Deadline;
use crate::conn::Ask;
use crate::flights::Flight;
use crate::handle::{CallRequest, McpHandle};
use crate::shared::Mcp;

/// Pages of one list, and entries of it: what a reader can use, and an end for lists without one.
const MAX_PAGES: usize = 50;
const MAX_ENTRIES: usize = 2_000;

/// One way to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    ListResources,
    ReadResource,
    ListPrompts,
    GetPrompt,
}

/// What a server can have beside its tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readings {
    Resources,
    Prompts,
}

impl Readings {
    /// What a server announces.
    pub(crate) fn of(capabilities: &ServerCapabilities) -> Vec<Self> {
        let resources = capabilities.resources.as_ref().map(|_| Self::Resources);
        let prompts = capabilities.prompts.as_ref().map(|_| Self::Prompts);
        resources.into_iter().chain(prompts).collect()
    }

    /// The ways to read it.
    pub(crate) fn all(self) -> [Reading; 2] {
        match self {
            Self::Resources => [Reading::ListResources, Reading::ReadResource],
            Self::Prompts => [Reading::ListPrompts, Reading::GetPrompt],
        }
    }

    /// The lists that show whether there is any.
    pub(crate) fn proofs(self) -> &'static [&'static str] {
        match self {
            Self::Resources => &["resources/list", "resources/templates/list"],
            Self::Prompts => &["prompts/list"],
        }
    }

    /// A page of such a list shows that there is some.
    pub(crate) fn is_proof(self, page: &Raw) -> bool {
        let page = page.value();
        let keys: &[&str] = match self {
            Self::Resources => &["resources", "resourceTemplates"],
            Self::Prompts => &["prompts"],
        };
        keys.iter().any(|key| !array(&page, key).is_empty())
    }
}

impl Reading {
    /// The sub-tool's name.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ListResources => "list_resources",
            Self::ReadResource => "read_resource",
            Self::ListPrompts => "list_prompts",
            Self::GetPrompt => "get_prompt",
        }
    }

    pub(crate) fn description(self) -> &'static str {
        match self {
            Self::ListResources => {
                "Lists the resources of this MCP server, and its templates for addresses of resources."
            }
            Self::ReadResource => "Reads a resource of this MCP server by its URI.",
            Self::ListPrompts => "Lists the prompts of this MCP server with their arguments.",
            Self::GetPrompt => "Gets a prompt of this MCP server, filled in with arguments.",
        }
    }

    pub(crate) fn input_schema(self) -> Value {
        match self {
            Self::ListResources | Self::ListPrompts => {
                json!({"type": "object", "properties": {}, "additionalProperties": false})
            }
            Self::ReadResource => json!({
                "type": "object",
                "properties": {"uri": {"type": "string", "description": "the resource's URI, as list_resources gives it"}},
                "required": ["uri"],
                "additionalProperties": false
            }),
            Self::GetPrompt => json!({
                "type": "object",
                "properties": {
                    "name": {"type": "string", "description": "the prompt's name, as list_prompts gives it"},
                    "arguments": {
                        "type": "object",
                        "description": "the prompt's arguments",
                        "additionalProperties": {"type": "string"}
                    }
                },
                "required": ["name"],
                "additionalProperties": false
            }),
        }
    }

    /// Asks the server and puts its answer into the form of a tool's result.
    pub(crate) async fn run(
        self,
        handle: &McpHandle,
        mcp: &Mcp,
        request: &CallRequest,
        asks: &Flight,
        arguments: &Raw,
        traceparent: &str,
    ) -> Outcome {
        if let Err(fault) = vance_shared::schema::check_arguments(&Raw::from(self.input_schema()), &arguments.value()) {
            return Outcome::Failed { error: fault, result: None };
        }
        let mut asker = Asker {
            handle,
            mcp,
            request,
            asks,
            traceparent,
            deadline: Deadline::new(Instant::now(), request.timeout, request.cap),
        };
        let params = arguments.to().unwrap_or_default();
        let read = match self {
            Self::ListResources => asker.resources().await,
            Self::ReadResource => asker.ask("resources/read", params).await.map(|answer| contents(&answer)),
            Self::ListPrompts => asker.list("prompts/list", "prompts").await.map(|prompts| {
                let lines = prompts.iter().map(|prompt| line(prompt, "name")).collect::<Vec<_>>().join("\n");
                listed(lines, json!({ "prompts": prompts }))
            }),
            Self::GetPrompt => asker.ask("prompts/get", params).await.map(|answer| messages(&answer)),
        };
        read.map_or_else(|outcome| outcome, Outcome::Done)
    }
}

struct Asker<'a> {
    handle: &'a McpHandle,
    mcp: &'a Mcp,
    request: &'a CallRequest,
    asks: &'a Flight,
    traceparent: &'a str,
    /// For all requests together.
    deadline: Deadline,
}

impl Asker<'_> {
    async fn ask(&mut self, method: &'static str, params: Map<String, Value>) -> Result<Value, Outcome> {
        let ask = Ask {
            method,
            params,
            call: Some((self.traceparent.to_owned(), self.request.call_id.to_string())),
            input: None,
        };
        self.handle.ask(self.mcp, self.request, self.asks, &mut self.deadline, ask).await.map(|raw| raw.value())
    }

    /// All pages of a list.
    async fn list(&mut self, method: &'static str, key: &str) -> Result<Vec<Value>, Outcome> {
        let mut all = Vec::new();
        let mut cursor: Option<Value> = None;
        for _ in 0..MAX_PAGES {
            let params = cursor.take().map(|cursor| ("cursor".to_owned(), cursor)).into_iter().collect();
            let mut page = self.ask(method, params).await?;
            if let Some(Value::Array(entries)) = page.get_mut(key).map(Value::take) {
                all.extend(entries);
            }
            all.truncate(MAX_ENTRIES);
            match page.get_mut("nextCursor").map(Value::take) {
                Some(next @ Value::String(_)) if all.len() < MAX_ENTRIES => cursor = Some(next),
                _ => break,
            }
        }
        Ok(all)
    }

    async fn resources(&mut self) -> Result<ToolResult, Outcome> {
        let resources = self.list("resources/list", "resources").await?;
        // Many servers have none and do not know the question.
        let templates = match self.list("resources/templates/list", "resourceTemplates").await {
            Err(Outcome::Failed { error, .. }) if error.code == "mcp_error" => Vec::new(),
            other => other?,
        };
        let mut lines: Vec<String> = resources.iter().map(|resource| line(resource, "uri")).collect();
        lines.extend(templates.iter().map(|template| line(template, "uriTemplate")));
        Ok(listed(lines.join("\n"), json!({ "resources": resources, "resourceTemplates": templates })))
    }
}

/// One entry in words: `URI: name - description`.
fn line(entry: &Value, key: &str) -> String {
    let text = |key: &str| entry.get(key).and_then(Value::as_str).filter(|text| !text.is_empty());
    let mut line = text(key).unwrap_or("?").to_owned();
    let more: Vec<&str> = [text("name").filter(|_| key != "name"), text("description")].into_iter().flatten().collect();
    if !more.is_empty() {
        line = format!("{line}: {}", more.join(" - "));
    }
    line
}

fn listed(text: String, structured: Value) -> ToolResult {
    let text = if text.is_empty() { "(none)".to_owned() } else { text };
    ToolResult { structured: Some(Raw::from(structured)), ..ToolResult::text(text) }
}

/// A resource's contents: texts as text, the rest as embedded resources.
fn contents(answer: &Value) -> ToolResult {
    let parts: Vec<Value> = array(answer, "contents")
        .iter()
        .map(|content| match content.get("text") {
            Some(text @ Value::String(_)) => json!({ "type": "text", "text": text }),
            _ => json!({ "type": "resource", "resource": content }),
        })
        .collect();
    ToolResult { content: Raw::from(Value::from(parts)), structured: None, is_error: false }
}

/// A prompt's messages: its texts with their roles, and all of it as structured content.
fn messages(answer: &Value) -> ToolResult {
    let parts: Vec<Value> = array(answer, "messages")
        .iter()
        .filter_map(|message| {
            let content = message.get("content")?;
            let role = message.get("role").and_then(Value::as_str).unwrap_or("user");
            Some(match content.get("text").and_then(Value::as_str) {
                Some(text) => json!({ "type": "text", "text": format!("{role}: {text}") }),
                None => content.clone(),
            })
        })
        .collect();
    let structured = json!({ "description": answer.get("description"), "messages": answer.get("messages") });
    ToolResult { content: Raw::from(Value::from(parts)), structured: Some(Raw::from(structured)), is_error: false }
}

fn array<'a>(answer: &'a Value, key: &str) -> &'a [Value] {
    answer.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_and_a_prompt_become_results() {
        let read = contents(&json!({"contents": [{"uri": "a", "text": "one"}, {"uri": "b", "blob": "AA=="}]}));
        assert_eq!(read.joined_text(), "one");
        assert_eq!(read.content.value()[1], json!({"type": "resource", "resource": {"uri": "b", "blob": "AA=="}}));
        let said = [
            json!({"role": "user", "content": {"type": "text", "text": "hi"}}),
            json!({"role": "assistant", "content": {"type": "image", "data": "AA==", "mimeType": "image/png"}}),
        ];
        let prompt = messages(&json!({"description": "d", "messages": said}));
        assert_eq!(
            (prompt.joined_text().as_str(), prompt.content.value()[1]["type"].as_str()),
            ("user: hi", Some("image"))
        );
        assert_eq!(prompt.structured.map(|s| s.value()["messages"][0]["role"].clone()), Some(json!("user")));
        let entry = json!({"uri": "file:///x", "name": "x", "description": "a file"});
        assert_eq!(line(&entry, "uri"), "file:///x: x - a file");
        assert_eq!(listed(String::new(), json!({})).joined_text(), "(none)");
    }
}

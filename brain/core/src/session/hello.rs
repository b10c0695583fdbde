//! Tools that a client reports: each is taken or refused with a reason; a bad one never costs the others.

use std::collections::HashMap;
use std::sync::Arc;

use vance_shared::names::ToolName;
use vance_shared::show;
use vance_shared::tool::ToolSpec;
use vance_shared::wire::{Refused, WireTool};

use super::Tools;
use crate::registry::{Registry, any_object};

/// Tools that one client may offer: several times what fifty large packs have.
const MAX_TOOLS: usize = 10_000;

/// Longest description that is kept.
const MAX_DESCRIPTION_BYTES: usize = 16 * 1024;

/// Takes one tool.
pub fn take_tool(registry: &Registry, tool: WireTool) -> Result<ToolSpec, Refused> {
    let refused = |reason: String| Refused { name: show::plain(&tool.name), reason };
    let name = ToolName::parse(&tool.name).map_err(|e| refused(e.to_string()))?;
    if let Some(reason) = registry.refuses(&name) {
        return Err(refused(reason));
    }
    let input_schema = tool.input_schema.unwrap_or_else(any_object);
    if !input_schema.get().starts_with('{') {
        return Err(Refused { name: name.to_string(), reason: "its input_schema is not a JSON object".to_owned() });
    }
    let mut description = tool.description;
    if description.len() > MAX_DESCRIPTION_BYTES {
        let cut = (0..=MAX_DESCRIPTION_BYTES).rev().find(|at| description.is_char_boundary(*at)).unwrap_or(0);
        description.truncate(cut);
    }
    Ok(ToolSpec {
        name,
        description,
        input_schema,
        output_schema: tool.output_schema,
        labels: tool.labels,
        annotations: tool.annotations,
        replay: tool.replay,
        pack: tool.mcp_server,
    })
}

/// Takes what it can of `added`, on top of `before`.
pub fn take_tools(
    registry: &Registry,
    before: &Tools,
    removed: &[String],
    added: Vec<WireTool>,
) -> (Tools, Vec<Refused>) {
    let mut tools: HashMap<ToolName, Arc<ToolSpec>> = (**before).clone();
    tools.retain(|name, _| !removed.iter().any(|r| r == name.as_str()));
    let mut refused = Vec::new();
    for tool in added {
        if tools.len() >= MAX_TOOLS {
            refused.push(Refused { name: show::plain(&tool.name), reason: format!("more than {MAX_TOOLS} tools") });
            continue;
        }
        match take_tool(registry, tool) {
            Ok(spec) => {
                tools.insert(spec.name.clone(), Arc::new(spec));
            }
            Err(why) => refused.push(why),
        }
    }
    (Arc::new(tools), refused)
}

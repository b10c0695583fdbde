//! How a pack's operations are offered: one tool each, or three tools for all of them.
//!
//! A model that gets a thousand tools uses none of them well, and no client carries their schemas; so a pack that is too large
//! offers `search`, `describe` and `call` instead, and each operation is reached by its name all the same.

use serde_json::{Map, Value, json};
use vance_shared::call::Fault;
use vance_shared::doc::nearest;
use vance_shared::json::Raw;
use vance_shared::launch::rest::Exposure;
use vance_shared::names::{SUBTOOL_SEPARATOR, ToolName};
use vance_shared::schema::check_arguments;
use vance_shared::show::quoted;
use vance_shared::tool::{Annotations, Replay, ToolResult, ToolSpec};

use crate::api::Api;
use crate::error::Code;
use crate::operation::Operation;

mod search;

/// More tools than this are not offered one by one.
pub const MAX_TOOLS: usize = 128;
/// A list of tools with more bytes than this is not offered.
pub const MAX_LIST_BYTES: usize = 512 * 1024;
/// Operations of one `describe`: their schemas have to be read.
const MAX_DESCRIBED: u64 = 10;

/// How the operations are offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offered {
    /// One tool each.
    Tools,
    /// `search`, `describe` and `call`.
    Search,
}

/// What a call of a pack's tool means.
#[derive(Debug)]
pub enum Called<'a> {
    /// A request of this operation with these arguments.
    Operation(&'a Operation, Value),
    /// It is answered already.
    Answer(ToolResult),
}

/// The three tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meta {
    Search,
    Describe,
    Call,
}

impl Meta {
    const ALL: [Self; 3] = [Self::Search, Self::Describe, Self::Call];

    fn name(self) -> &'static str {
        match self {
            Self::Search => "search",
            Self::Describe => "describe",
            Self::Call => "call",
        }
    }
}

/// Decides how a pack's operations are offered. Reads the schemas only of packs that may be small enough.
pub fn offered(api: &Api) -> Offered {
    match api.exposure {
        Exposure::Tools => Offered::Tools,
        Exposure::Search => Offered::Search,
        Exposure::Auto if api.operations().len() > MAX_TOOLS => Offered::Search,
        Exposure::Auto => {
            let bytes = api.operations().iter().map(|op| api.input_schema(op).get().len() + op.description.len() + 200);
            if bytes.sum::<usize>() > MAX_LIST_BYTES { Offered::Search } else { Offered::Tools }
        }
    }
}

/// The tools that a pack offers. What the pack says of single operations wins: one that is deferred is only found by search, and
/// one that is not is offered in any case.
pub fn tools(api: &Api) -> Vec<ToolSpec> {
    let offered = offered(api);
    let mut specs: Vec<ToolSpec> =
        api.operations().iter().filter(|op| is_listed(op, offered)).map(|operation| spec(api, operation)).collect();
    if searches(api, offered) {
        let metas: Vec<ToolSpec> = Meta::ALL.iter().filter_map(|meta| meta_spec(api, *meta)).collect();
        specs.extend(
            metas
                .into_iter()
                .filter(|meta| api.operation(meta.name.as_str()).is_none_or(|op| !is_listed(op, offered)))
                .collect::<Vec<_>>(),
        );
    }
    specs
}

fn is_listed(operation: &Operation, offered: Offered) -> bool {
    !operation.deferred.unwrap_or(offered == Offered::Search)
}

fn searches(api: &Api, offered: Offered) -> bool {
    offered == Offered::Search || api.operations().iter().any(|operation| operation.deferred == Some(true))
}

/// One operation as a tool.
pub fn spec(api: &Api, operation: &Operation) -> ToolSpec {
    ToolSpec {
        name: operation.name.clone(),
        description: operation.description.clone(),
        input_schema: api.input_schema(operation).clone(),
        output_schema: None,
        labels: operation.labels.clone(),
        annotations: Some(operation.annotations.clone()),
        replay: operation.replay,
        pack: Some(api.pack.clone()),
    }
}

/// What a call of a sub-tool means. An operation's own name works whatever is offered.
pub fn called<'a>(api: &'a Api, sub_tool: &str, arguments: &Value) -> Result<Called<'a>, Fault> {
    let meta = Meta::ALL.into_iter().find(|meta| meta.name() == sub_tool).filter(|_| {
        let offered = offered(api);
        let own = api.operations().iter().find(|operation| operation.sub_tool() == sub_tool);
        searches(api, offered) && own.is_none_or(|own| !is_listed(own, offered))
    });
    match meta {
        None => Ok(Called::Operation(find(api, sub_tool)?, arguments.clone())),
        Some(meta) => {
            check_arguments(&Raw::from(schema(meta)), arguments)?;
            match meta {
                Meta::Search => Ok(Called::Answer(ToolResult::structured(search::search(api, arguments)))),
                Meta::Describe => describe(api, arguments).map(Called::Answer),
                Meta::Call => {
                    let name = arguments.get("name").and_then(Value::as_str).unwrap_or_default();
                    let inner = arguments.get("arguments").cloned().unwrap_or_else(|| Value::Object(Map::new()));
                    Ok(Called::Operation(find(api, name)?, inner))
                }
            }
        }
    }
}

fn find<'a>(api: &'a Api, name: &str) -> Result<&'a Operation, Fault> {
    api.operation(name).ok_or_else(|| {
        let near = nearest(name, api.operations().iter().map(Operation::sub_tool));
        let hint = near.map(|near| format!(", did you mean {near}?")).unwrap_or_default();
        Code::InvalidArgument.fault(format!("there is no operation {}{hint}", quoted(name, 64)))
    })
}

fn describe(api: &Api, arguments: &Value) -> Result<ToolResult, Fault> {
    let names = arguments.get("names").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let mut found = Vec::new();
    for name in names {
        let operation = find(api, name)?;
        found.push(json!({
            "name": operation.sub_tool(),
            "operation": operation.title(),
            "description": operation.description,
            "labels": operation.labels,
            "inputSchema": api.input_schema(operation).value(),
        }));
    }
    Ok(ToolResult::structured(json!({"operations": found})))
}

fn meta_spec(api: &Api, meta: Meta) -> Option<ToolSpec> {
    let (count, pack) = (api.operations().len(), &api.pack);
    let description = match meta {
        Meta::Search => format!(
            "Searches the {count} operations of the API {pack} by words, tag or method. Gives names for {pack}__describe and {pack}__call."
        ),
        Meta::Describe => format!(
            "Gives descriptions and argument schemas of operations of the API {pack}, by the names that {pack}__search gave."
        ),
        Meta::Call => format!("Calls one operation of the API {pack} with the arguments that {pack}__describe shows."),
    };
    let read_only = meta != Meta::Call;
    let mut labels = api.pack_labels.clone();
    match read_only {
        true => labels.push("read-only".to_owned()),
        false => labels.extend(["write".to_owned(), "side-effect".to_owned()]),
    }
    Some(ToolSpec {
        name: ToolName::parse(&format!("{pack}{SUBTOOL_SEPARATOR}{}", meta.name())).ok()?,
        description,
        input_schema: Raw::from(schema(meta)),
        output_schema: None,
        labels,
        annotations: Some(Annotations {
            read_only_hint: Some(read_only),
            idempotent_hint: Some(read_only),
            open_world_hint: Some(!read_only),
            ..Annotations::default()
        }),
        replay: if read_only { Replay::Safe } else { Replay::Unsafe },
        pack: Some(pack.clone()),
    })
}

fn schema(meta: Meta) -> Value {
    let text = |description: &str| json!({"type": "string", "description": description});
    match meta {
        Meta::Search => json!({
            "type": "object",
            "properties": {
                "query": text("Words that the operation's name, path, tags or description hold; empty: all operations."),
                "tag": text("Only operations with this tag."),
                "method": text("Only operations with this HTTP method."),
                "limit": {"type": "integer", "minimum": 1, "maximum": search::MAX_FOUND, "description": "Results at most (20)."},
                "offset": {"type": "integer", "minimum": 0, "description": "Results to pass over."},
            },
            "additionalProperties": false,
        }),
        Meta::Describe => json!({
            "type": "object",
            "properties": {
                "names": {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_DESCRIBED, "description": "Operations by name."},
            },
            "required": ["names"],
            "additionalProperties": false,
        }),
        Meta::Call => json!({
            "type": "object",
            "properties": {
                "name": text("The operation's name."),
                "arguments": {"type": "object", "description": "Its arguments."},
            },
            "required": ["name"],
            "additionalProperties": false,
        }),
    }
}

#[cfg(test)]
mod tests;

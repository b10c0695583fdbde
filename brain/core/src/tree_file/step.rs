//! One step of a task.

use vance_shared::doc::{Fields, Node, Problems, nearest_field};
use vance_shared::names::ToolName;
use vance_shared::show::quoted;

use super::{Draft, expressions};
use crate::spec::StepSpec;

/// Longest name of a result.
const MAX_NAME_BYTES: usize = 64;
/// Names that mean something else inside `{{ … }}`.
const RESERVED: [&str; 14] =
    ["tasks", "true", "false", "none", "not", "and", "or", "in", "is", "if", "else", "loop", "self", "range"];

/// Reads a step; its name and its texts go into the draft, also if other parts are wrong.
pub(super) fn read<'a>(node: &'a Node, draft: &mut Draft<'a>, problems: &'a Problems) -> Option<StepSpec> {
    let number = draft.names.len();
    draft.names.push(None);
    let mut fields = Fields::of(node, "a step", problems)?;
    fields.require("call", "the tool's name");
    let call = fields.take_parsed("call", ToolName::parse);
    let with = fields.take("with");
    if let Some(with) = with {
        expressions::collect(with, "with", number, &mut draft.texts);
    }
    let with = fields.take_object("with").unwrap_or_default();
    let name = fields.take_str("as");
    if let Some(name) = name {
        match check_name(name) {
            Err(message) => fields.add("as", message),
            Ok(()) if draft.names.contains(&Some(name)) => {
                fields.add("as", format!("`as: {name}` is there twice in this task, rename one"));
            }
            Ok(()) => {
                if let Some(slot) = draft.names.last_mut() {
                    *slot = Some(name);
                }
            }
        }
    }
    let timeout = fields.take_timeout("timeout");
    fields.finish();
    Some(StepSpec { call: call?, with, r#as: name.map(str::to_owned), timeout })
}

fn check_name(name: &str) -> Result<(), String> {
    let good = name.len() <= MAX_NAME_BYTES
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    if !good {
        return Err(format!("`as` is a name of [A-Za-z0-9_] that starts with a letter, got {}", quoted(name, 80)));
    }
    if RESERVED.contains(&name) {
        return Err(format!("`as: {name}` means something else inside {{{{ }}}}, expected another name"));
    }
    Ok(())
}

/// What a name that no earlier step gives could be.
pub(super) fn unknown_name(name: &str, earlier: &[&str]) -> String {
    let hint = nearest_field(name, earlier);
    match earlier.is_empty() {
        true => format!("`{name}` is no result of an earlier step, there is none with `as`"),
        false => format!("`{name}` is no result of an earlier step{hint}"),
    }
}

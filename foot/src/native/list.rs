//! `list_local_files`.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use serde::Deserialize;
use serde_json::{Value, json};
use vance_shared::json::Raw;
use vance_shared::tool::ToolResult;

use super::gate::{Call, Gate, blocking, blocking_result};
use super::text::{DEFAULT_TEXT_BYTES, fit};
use super::walk::{Found, Options, name_glob, walk};
use super::{Ended, failed};

/// Entries without a `limit`.
const DEFAULT_ENTRIES: usize = 1000;

#[derive(Debug, Deserialize)]
struct Arguments {
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    glob: Option<String>,
    #[serde(default)]
    recursive: bool,
    #[serde(default)]
    limit: Option<usize>,
    #[serde(default)]
    include_ignored: bool,
}

pub(super) async fn run(gate: &Arc<Gate>, call: Call) -> Ended {
    let args: Arguments = call.parse()?;
    let glob = args.glob.as_deref().map(name_glob).transpose()?;
    let (finder, path) = (Arc::clone(gate), args.path.clone().unwrap_or_else(|| ".".to_owned()));
    let at = blocking(move || finder.resolve(&path, false)).await?;
    gate.permit_read(&call, &at).await?;
    let (gate, halt) = (Arc::clone(gate), call.halt.clone());
    blocking_result(move || {
        if at.dir().is_err() && at.file().is_ok() {
            return Err(failed("not_a_folder", format!("{} is a file; read_local_file shows it", at.shown())));
        }
        let limit = args.limit.unwrap_or(DEFAULT_ENTRIES);
        let (mut entries, mut text) = (Vec::new(), String::new());
        // One folder is listed as it is; a tree without what git ignores.
        let options = Options { include_ignored: args.include_ignored || !args.recursive, recursive: args.recursive };
        let summary = walk(&gate, &at, &halt, options, &mut |found| {
            if glob.as_ref().is_some_and(|g| !g.is_match(found.rel)) {
                return Ok(true);
            }
            if entries.len() == limit {
                return Ok(false);
            }
            let (entry, line) = entry(&found);
            text.push_str(&line);
            entries.push(entry);
            Ok(true)
        })?;
        let structured = json!({
            "path": at.real.to_string_lossy(), "entries": entries, "truncated": summary.truncated, "denied": summary.denied,
        });
        Ok(ToolResult { structured: Some(Raw::from(structured)), ..ToolResult::text(fit(&text, DEFAULT_TEXT_BYTES)) })
    })
    .await
}

fn entry(found: &Found<'_>) -> (Value, String) {
    let (kind, mark) = match found.kind {
        k if k.is_dir() => ("directory", "/"),
        k if k.is_file() => ("file", ""),
        k if k.is_symlink() => ("link", "@"),
        _ => ("other", ""),
    };
    let meta = found.dir.symlink_metadata(found.name).ok();
    let modified =
        meta.as_ref().and_then(|m| m.modified().ok()).and_then(|t| t.into_std().duration_since(UNIX_EPOCH).ok());
    let size = meta.as_ref().filter(|_| found.kind.is_file()).map(cap_std::fs::Metadata::len);
    let path = found.rel.to_string_lossy();
    let line = format!("{path}{mark}\n");
    let entry =
        json!({"path": path, "kind": kind, "size": size, "modified_ms": modified.map(|d| d.as_millis() as u64)});
    (entry, line)
}

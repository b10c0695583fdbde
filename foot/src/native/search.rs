//! `search_local_files`: lines that match a pattern.

use std::collections::VecDeque;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::sync::Arc;

use cap_std::fs::{File, OpenOptions};
use regex::{Regex, RegexBuilder};
use serde::Deserialize;
use serde_json::{Value, json};
use vance_shared::call::Outcome;
use vance_shared::json::Raw;
use vance_shared::tool::ToolResult;

use super::gate::{Call, Gate, Halt, blocking, blocking_result};
use super::roots::{Resolved, open_file};
use super::text::{DEFAULT_TEXT_BYTES, cut, fit};
use super::walk::{Options, name_glob, walk};
use super::{Ended, failed};

/// Matches without a `limit`.
const DEFAULT_MATCHES: usize = 200;
/// Files beyond this size are data, not text that a person searches; they are counted as skipped.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;
/// Of a line that is shown: enough to see the match, small enough for minified files.
const MAX_LINE_BYTES: usize = 500;
/// All matches together, as JSON.
const MAX_RESULT_BYTES: usize = 2 * 1024 * 1024;
/// A compiled pattern's memory.
const MAX_PATTERN_BYTES: usize = 4 * 1024 * 1024;
/// Lines between two looks at the clock.
const LINES_A_LOOK: usize = 10_000;

#[derive(Debug, Deserialize)]
struct Arguments {
    pattern: String,
    #[serde(default)]
    literal: bool,
    #[serde(default)]
    ignore_case: bool,
    #[serde(default)]
    path: Option<String>,
    #[serde(default)]
    glob: Option<String>,
    #[serde(default)]
    limit: Option<usize>,
    #[serde(default)]
    context: usize,
    #[serde(default)]
    include_ignored: bool,
}

pub(super) async fn run(gate: &Arc<Gate>, call: Call) -> Ended {
    let args: Arguments = call.parse()?;
    let glob = args.glob.as_deref().map(name_glob).transpose()?;
    let regex = pattern(&args)?;
    let (finder, path) = (Arc::clone(gate), args.path.clone().unwrap_or_else(|| ".".to_owned()));
    let at = blocking(move || finder.resolve(&path, false)).await?;
    gate.permit_read(&call, &at).await?;
    let gate = Arc::clone(gate);
    blocking_result(move || {
        let halt = call.halt.clone();
        let mut hits = Hits { regex, context: args.context, limit: args.limit.unwrap_or(DEFAULT_MATCHES), ..Hits::default() };
        let mut truncated = false;
        if at.dir().is_err() {
            let (file, _) = at.file()?;
            truncated = !hits.search(file, &name_of(&at), &halt)?;
        } else {
            let options = Options { include_ignored: args.include_ignored, recursive: true };
            let summary = walk(&gate, &at, &halt, options, &mut |found| {
                if !found.kind.is_file() || glob.as_ref().is_some_and(|g| !g.is_match(found.rel)) {
                    return Ok(true);
                }
                // A file that vanished, or that this user may not read, holds no match.
                let Ok(file) = open_file(found.dir, found.name, OpenOptions::new().read(true)) else {
                    hits.skipped += 1;
                    return Ok(true);
                };
                let go_on = hits.search(file, &found.rel.to_string_lossy(), &halt)?;
                if hits.searched.is_multiple_of(500) {
                    call.report(None, format!("{} files searched, {} matches", hits.searched, hits.found.len()));
                }
                Ok(go_on)
            })?;
            truncated |= summary.truncated;
            hits.skipped += summary.denied;
        }
        let structured = json!({
            "path": at.real.to_string_lossy(), "matches": hits.found, "files_searched": hits.searched, "files_skipped": hits.skipped,
            "truncated": truncated,
        });
        Ok(ToolResult { structured: Some(Raw::from(structured)), ..ToolResult::text(fit(&hits.text, DEFAULT_TEXT_BYTES)) })
    })
    .await
}

fn pattern(args: &Arguments) -> Result<Option<Regex>, Box<Outcome>> {
    let source = if args.literal { regex::escape(&args.pattern) } else { args.pattern.clone() };
    RegexBuilder::new(&source)
        .case_insensitive(args.ignore_case)
        .size_limit(MAX_PATTERN_BYTES)
        .build()
        .map(Some)
        .map_err(|e| {
            // The parser draws a picture of several lines; its last one says what is wrong.
            let whole = e.to_string();
            let last = whole.lines().last().unwrap_or_default();
            let why = vance_shared::show::plain(last.strip_prefix("error: ").unwrap_or(last));
            failed("invalid_argument", format!("pattern: {why}; pass `literal: true` to search for the text as it is"))
        })
}

fn name_of(at: &Resolved) -> String {
    at.lexical.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default()
}

#[derive(Default)]
struct Hits {
    regex: Option<Regex>,
    context: usize,
    limit: usize,
    found: Vec<Value>,
    text: String,
    bytes: usize,
    searched: usize,
    skipped: usize,
}

impl Hits {
    /// Searches one file; gives false when there is no room for more.
    fn search(&mut self, mut file: File, name: &str, halt: &Halt) -> Result<bool, Box<Outcome>> {
        let small = file.metadata().is_ok_and(|m| m.is_file() && m.len() <= MAX_FILE_BYTES);
        let mut start = [0; 1024];
        let is_text = small
            && file.read(&mut start).is_ok_and(|n| !start[..n].contains(&0))
            && file.seek(SeekFrom::Start(0)).is_ok();
        let mut bytes = Vec::new();
        if !is_text || file.take(MAX_FILE_BYTES).read_to_end(&mut bytes).is_err() || bytes.contains(&0) {
            self.skipped += 1;
            return Ok(true);
        }
        self.searched += 1;
        self.scan(&String::from_utf8_lossy(&bytes), name, halt)
    }

    fn scan(&mut self, text: &str, name: &str, halt: &Halt) -> Result<bool, Box<Outcome>> {
        let Some(regex) = self.regex.clone() else { return Ok(false) };
        let mut before: VecDeque<&str> = VecDeque::new();
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            if at % LINES_A_LOOK == 0 {
                halt.check()?;
            }
            if regex.is_match(line) {
                if self.found.len() == self.limit || self.bytes > MAX_RESULT_BYTES {
                    return Ok(false);
                }
                let after = lines[at + 1..].iter().take(self.context).map(|l| shown(l));
                let before: Vec<&str> = before.iter().map(|l| shown(l)).collect();
                let hit = json!({"path": name, "line": at + 1, "text": shown(line), "before": before, "after": after.collect::<Vec<_>>()});
                self.bytes += hit.to_string().len();
                self.found.push(hit);
                self.text.push_str(&format!("{name}:{}:{}\n", at + 1, shown(line)));
            }
            if self.context > 0 {
                if before.len() == self.context {
                    before.pop_front();
                }
                before.push_back(line);
            }
        }
        Ok(true)
    }
}

fn shown(line: &str) -> &str {
    cut(line, MAX_LINE_BYTES)
}

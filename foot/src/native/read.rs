//! `read_local_file`: a text by lines, or bytes as base64 on request.

use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;

use base64::Engine as _;
use serde::Deserialize;
use serde_json::json;
use vance_shared::call::Outcome;
use vance_shared::json::Raw;
use vance_shared::tool::ToolResult;

use super::gate::{Call, Gate, Halt, blocking, blocking_result};
use super::roots::Resolved;
use super::text::{DEFAULT_TEXT_BYTES, MAX_JSON_BYTES, MAX_TEXT_BYTES, cut, fit};
use super::{Ended, failed};

/// A file that goes out with a request is held in memory.
const MAX_SENT_BYTES: u64 = 32 * 1024 * 1024;
/// Read at a time.
const CHUNK_BYTES: usize = 64 * 1024;
/// Looked at to tell a text from other data.
const SNIFF_BYTES: usize = 8 * 1024;

#[derive(Debug, Deserialize)]
struct Arguments {
    path: String,
    #[serde(default)]
    offset: Option<u64>,
    #[serde(default)]
    limit: Option<u64>,
    #[serde(default)]
    max_bytes: Option<usize>,
    #[serde(default)]
    encoding: Encoding,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
enum Encoding {
    #[default]
    #[serde(rename = "utf-8")]
    Utf8,
    #[serde(rename = "base64")]
    Base64,
}

pub(super) async fn run(gate: &Arc<Gate>, call: Call) -> Ended {
    let args: Arguments = call.parse()?;
    let (finder, path) = (Arc::clone(gate), args.path.clone());
    let at = blocking(move || finder.resolve(&path, false)).await?;
    gate.permit_read(&call, &at).await?;
    let halt = call.halt.clone();
    blocking_result(move || match args.encoding {
        Encoding::Utf8 => text(&at, &args, &halt),
        Encoding::Base64 => base64(&at, &args),
    })
    .await
}

/// A whole file, for a request that sends it.
pub(super) async fn whole(gate: &Arc<Gate>, call: &Call, path: String) -> Result<Vec<u8>, Box<Outcome>> {
    let finder = Arc::clone(gate);
    let at = blocking(move || finder.resolve(&path, false)).await?;
    gate.permit_read(call, &at).await?;
    blocking(move || {
        let (file, _) = at.file()?;
        let mut bytes = Vec::new();
        file.take(MAX_SENT_BYTES + 1).read_to_end(&mut bytes).map_err(|e| at.failure("read", &e))?;
        match bytes.len() as u64 > MAX_SENT_BYTES {
            true => {
                Err(failed("too_large", format!("the file has more than the {MAX_SENT_BYTES} bytes that are sent")))
            }
            false => Ok(bytes),
        }
    })
    .await
}

fn text(at: &Resolved, args: &Arguments, halt: &Halt) -> Ended {
    let (mut file, meta) = at.file()?;
    let max = args.max_bytes.unwrap_or(DEFAULT_TEXT_BYTES).min(MAX_TEXT_BYTES);
    let first = args.offset.unwrap_or(1).max(1);
    let limit = args.limit.unwrap_or(u64::MAX);
    let mut lines = Lines { skip: first - 1, limit, max, taken: Vec::new(), ended: 0, full: false };
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut sniffed = 0;
    while !lines.full {
        halt.check()?;
        let n = file.read(&mut chunk).map_err(|e| at.failure("read", &e))?;
        if n == 0 {
            break;
        }
        let sniff = &chunk[..n.min(SNIFF_BYTES.saturating_sub(sniffed))];
        if sniff.contains(&0) {
            return Err(binary(at, sniff, sniffed == 0));
        }
        sniffed += n;
        lines.take(&chunk[..n]);
    }
    if lines.taken.contains(&0) {
        return Err(binary(at, &[], false));
    }
    let (text, encoding) = match String::from_utf8(lines.taken) {
        Ok(text) => (text, "utf-8"),
        Err(e) if e.utf8_error().error_len().is_none() => {
            // Only the last character is cut.
            let valid = e.utf8_error().valid_up_to();
            (String::from_utf8_lossy(&e.into_bytes()[..valid]).into_owned(), "utf-8")
        }
        Err(e) => (String::from_utf8_lossy(e.as_bytes()).into_owned(), "unknown-8bit"),
    };
    let shown = fit(cut(&text, max), MAX_JSON_BYTES);
    let truncated = lines.full || shown.len() < text.len();
    // Whole lines only, if there is one: the next read goes on where this one ended.
    let shown = match shown.rfind('\n') {
        Some(end) if truncated && !shown.ends_with('\n') => &shown[..=end],
        _ => shown,
    };
    let count = shown.matches('\n').count() as u64 + u64::from(!shown.is_empty() && !shown.ends_with('\n'));
    let next = (truncated && shown.ends_with('\n')).then_some(first + count);
    let structured = json!({
        "path": at.real.to_string_lossy(), "size": meta.len(), "truncated": truncated, "encoding": encoding,
        "first_line": first, "lines": count, "next_offset": next,
    });
    Ok(ToolResult { structured: Some(Raw::from(structured)), ..ToolResult::text(shown) })
}

/// Takes the wanted lines out of a stream of bytes.
struct Lines {
    skip: u64,
    limit: u64,
    max: usize,
    taken: Vec<u8>,
    ended: u64,
    full: bool,
}

impl Lines {
    fn take(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.full {
            let end = bytes.iter().position(|b| *b == b'\n').map_or(bytes.len(), |at| at + 1);
            let (line, rest) = bytes.split_at(end);
            let complete = line.ends_with(b"\n");
            if self.skip > 0 {
                self.skip -= u64::from(complete);
            } else if self.ended >= self.limit || self.taken.len() > self.max {
                self.full = true;
            } else {
                self.taken.extend_from_slice(line);
                self.ended += u64::from(complete);
            }
            bytes = rest;
        }
    }
}

fn binary(at: &Resolved, start: &[u8], at_start: bool) -> Box<vance_shared::call::Outcome> {
    let kind = if !at_start {
        "it holds zero bytes"
    } else if start.starts_with(b"%PDF-") {
        "it is a PDF: use pdf_extract_text"
    } else if start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff]) {
        "it looks like UTF-16"
    } else {
        "it holds zero bytes"
    };
    failed("binary_file", format!("{} is not a text ({kind}); pass `encoding: base64` to get its bytes", at.shown()))
}

fn base64(at: &Resolved, args: &Arguments) -> Ended {
    let (mut file, meta) = at.file()?;
    let max = args.max_bytes.unwrap_or(DEFAULT_TEXT_BYTES).min(MAX_TEXT_BYTES);
    let offset = args.offset.unwrap_or(0);
    let wanted = args.limit.unwrap_or(u64::MAX).min(max as u64);
    file.seek(SeekFrom::Start(offset)).map_err(|e| at.failure("read", &e))?;
    let mut bytes = Vec::new();
    file.take(wanted).read_to_end(&mut bytes).map_err(|e| at.failure("read", &e))?;
    let end = offset + bytes.len() as u64;
    let truncated = end < meta.len();
    let structured = json!({
        "path": at.real.to_string_lossy(), "size": meta.len(), "truncated": truncated, "encoding": "base64",
        "first_line": null, "lines": null, "next_offset": truncated.then_some(end),
    });
    let text = base64::engine::general_purpose::STANDARD.encode(bytes);
    Ok(ToolResult { structured: Some(Raw::from(structured)), ..ToolResult::text(text) })
}

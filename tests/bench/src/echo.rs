//! The tool server of the bench: the least that an MCP server over stdio costs. Each read is answered with one write.

use std::io::{BufRead as _, Write as _};

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Bytes of the text that the tool `big` gives.
pub(crate) const BIG_BYTES: usize = 64 * 1024;

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    method: &'a str,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Params<'a> {
    name: &'a str,
    #[serde(borrow)]
    arguments: Option<Arguments<'a>>,
}

#[derive(Deserialize)]
struct Arguments<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
}

const INITIALIZED: &str =
    r#"{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"echo","version":"1"}}"#;

/// Serves standard input until it ends; with so many tools, or with its own three.
pub(crate) fn serve(tools: usize) -> anyhow::Result<()> {
    let tools = list(tools);
    let mut input = std::io::BufReader::with_capacity(128 * 1024, std::io::stdin().lock());
    let mut output = std::io::stdout().lock();
    let big = format!(r#"{{"content":[{{"type":"text","text":"{}"}}]}}"#, "x".repeat(BIG_BYTES));
    let mut rest = Vec::new();
    let mut answers = Vec::new();
    loop {
        let ready = input.fill_buf()?;
        if ready.is_empty() {
            return Ok(());
        }
        let taken = ready.len();
        let mut lines = ready;
        while let Some(end) = lines.iter().position(|b| *b == b'\n') {
            let (line, after) = lines.split_at(end);
            lines = after.get(1..).unwrap_or_default();
            if rest.is_empty() {
                answer(line, &tools, &big, &mut answers)?;
            } else {
                rest.extend_from_slice(line);
                answer(&std::mem::take(&mut rest), &tools, &big, &mut answers)?;
            }
        }
        rest.extend_from_slice(lines);
        input.consume(taken);
        // As it is: standard output would look for line ends.
        if !answers.is_empty() {
            output.write_all(&answers)?;
            output.flush()?;
            answers.clear();
        }
    }
}

fn answer(line: &[u8], tools: &str, big: &str, out: &mut Vec<u8>) -> anyhow::Result<()> {
    let request: Request<'_> = serde_json::from_slice(line).context("a line that is no request")?;
    let Some(id) = request.id else { return Ok(()) };
    write!(out, r#"{{"jsonrpc":"2.0","id":{},"#, id.get())?;
    match request.method {
        "initialize" => write!(out, r#""result":{INITIALIZED}}}"#)?,
        "ping" => write!(out, r#""result":{{}}}}"#)?,
        "tools/list" => write!(out, r#""result":{tools}}}"#)?,
        "tools/call" => {
            let params: Params<'_> = serde_json::from_str(request.params.context("no params")?.get())?;
            if params.name == "big" {
                write!(out, r#""result":{big}}}"#)?;
            } else {
                let text = params.arguments.and_then(|a| a.text).map_or("\"\"", RawValue::get);
                write!(out, r#""result":{{"content":[{{"type":"text","text":{text}}}]}}}}"#)?;
            }
        }
        _ => write!(out, r#""error":{{"code":-32601,"message":"no such method"}}}}"#)?,
    }
    out.push(b'\n');
    Ok(())
}

fn list(count: usize) -> String {
    let tool = |name: &str, safe: bool| {
        serde_json::json!({
            "name": name, "description": "Gives back its text",
            "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
            "annotations": {"readOnlyHint": safe},
        })
    };
    let tools: Vec<serde_json::Value> = match count {
        0 => vec![tool("echo", true), tool("write", false), tool("big", true)],
        count => (0..count).map(|n| tool(&format!("tool_{n}"), false)).collect(),
    };
    serde_json::json!({"tools": tools}).to_string()
}

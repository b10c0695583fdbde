//! The command's side.

use std::io;
use std::path::Path;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

use super::{Answer, MAX_LINE_BYTES, Request, socket};
use crate::paths::shown;

/// A running Foot and what it answered, or why not.
pub(crate) struct Reached {
    /// Its slot: `client-0`.
    pub(crate) slot: String,
    pub(crate) answer: io::Result<Answer>,
}

/// Asks every running Foot of a home. Waits for as long as they take: a reload may ask a person.
pub(crate) async fn every_foot(state: &Path, request: &Request) -> Vec<Reached> {
    let mut reached = Vec::new();
    let Ok(slots) = std::fs::read_dir(state) else { return reached };
    let mut slots: Vec<_> = slots.filter_map(Result::ok).map(|entry| entry.path()).collect();
    slots.sort();
    for slot in slots {
        // No socket, or one that a killed Foot left behind: no Foot.
        let Ok(stream) = UnixStream::connect(socket(&slot)).await else { continue };
        let name = slot.file_name().map_or_else(String::new, |name| shown(name.as_ref()));
        reached.push(Reached { slot: name, answer: ask(stream, request).await });
    }
    reached
}

async fn ask(stream: UnixStream, request: &Request) -> io::Result<Answer> {
    let (input, mut output) = stream.into_split();
    let mut line = serde_json::to_string(request)?;
    line.push('\n');
    output.write_all(line.as_bytes()).await?;
    let mut answer = String::new();
    if BufReader::new(input.take(MAX_LINE_BYTES)).read_line(&mut answer).await? == 0 {
        return Err(io::Error::other("it ended before it answered"));
    }
    Ok(serde_json::from_str(&answer)?)
}

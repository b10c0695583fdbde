//! `audit/trust.jsonl`: every decision on one line of JSON, each with the hash of the line before it. Nobody can take a line out of the middle
//! or change one without a trace. The shell appends; what a line says and whether the chain holds is decided here.

use serde::{Deserialize, Serialize};

use super::Digest;

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A person said `1`.
    AllowedOnce,
    /// A person said `2`.
    AllowedAlways,
    /// Allowed by its digest, without a terminal.
    AllowedByDigest,
    /// A person said no.
    Refused,
    /// Nobody answered in time.
    TimedOut,
    /// There was nobody to ask, or the pack cannot be asked about.
    NotAsked,
    /// A consented file changed between the question and the start.
    Changed,
    /// Consent was taken back.
    Revoked,
    /// Denied for good.
    Denied,
    /// The denial ended.
    Undenied,
    /// Its directory is gone.
    Pruned,
    /// Its changed tools were looked at and accepted.
    ToolsAccepted,
}

/// One decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// When, in UTC: `2026-03-01T12:00:00Z`.
    pub at: String,
    /// What was decided.
    pub event: Event,
    /// The project's directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The pack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pack: Option<String>,
    /// What it runs or reaches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach: Option<String>,
    /// What was consented to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The reason where there is one to give.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A line with its link to the one before.
#[derive(Serialize, Deserialize)]
struct Linked {
    #[serde(flatten)]
    line: Line,
    /// Hash of the line before, without its newline; none for the first.
    prev: Option<String>,
}

/// Where the chain breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the trust log {why}")]
pub struct Broken {
    /// 1-based.
    pub line: usize,
    /// What is wrong.
    pub why: &'static str,
}

/// The text to append, with its newline. `last`: the file's last line without its newline, if there is one.
pub fn append(last: Option<&str>, line: Line) -> Result<String, serde_json::Error> {
    let prev = last.map(|last| Digest::of(last.as_bytes()).to_string());
    serde_json::to_string(&Linked { line, prev }).map(|text| format!("{text}\n"))
}

/// Reads a whole log and checks its chain.
pub fn read(text: &str) -> Result<Vec<Line>, Broken> {
    let mut lines = Vec::new();
    let mut last: Option<&str> = None;
    for (at, text) in text.lines().enumerate() {
        let broken = |why| Broken { line: at + 1, why };
        let Linked { line, prev } = serde_json::from_str(text).map_err(|_| broken("is no entry"))?;
        if prev != last.map(|last| Digest::of(last.as_bytes()).to_string()) {
            return Err(broken("does not follow from the line before it"));
        }
        lines.push(line);
        last = Some(text);
    }
    Ok(lines)
}

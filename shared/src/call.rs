//! How a call ends.

use serde::{Deserialize, Serialize};

use crate::tool::ToolResult;

/// A fault with a stable code (for programs) and a message (for people: what is wrong, what to do).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// Stable, snake_case.
    pub code: String,
    /// What is wrong and what to do about it.
    pub message: String,
}

impl Fault {
    /// A fault.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into() }
    }
}

/// The verdict on a call. A tool's own failure is a failed call with its payload kept, not a success.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The tool ran and gave a result.
    Done(ToolResult),
    /// The tool ran and failed, or could not be run.
    Failed {
        /// Why.
        error: Fault,
        /// What the tool gave besides, if it ran.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        result: Option<ToolResult>,
    },
    /// It was cancelled before it gave a result.
    Cancelled {
        /// By whom or what.
        reason: String,
    },
    /// It may or may not have run: the process that ran it is gone. Never run again blindly.
    Unknown {
        /// What is known.
        reason: String,
    },
}

impl Outcome {
    /// A tool's own answer: `is_error` makes it a failure whose message is the tool's text.
    pub fn of(result: ToolResult) -> Self {
        if !result.is_error {
            return Self::Done(result);
        }
        let text = result.joined_text();
        let message = if text.is_empty() { "the tool reported a failure without a text".to_owned() } else { text };
        Self::Failed { error: Fault::new("tool_failed", message), result: Some(result) }
    }

    /// A failure without a result.
    pub fn failed(code: &str, message: impl Into<String>) -> Self {
        Self::Failed { error: Fault::new(code, message), result: None }
    }

    /// Size of the payload, in bytes.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Done(result) => result.bytes(),
            Self::Failed { error, result } => error.message.len() + result.as_ref().map_or(0, ToolResult::bytes),
            Self::Cancelled { reason } | Self::Unknown { reason } => reason.len(),
        }
    }

    /// The contract's word: `done`, `failed`, `cancelled`, `unknown`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Done(_) => "done",
            Self::Failed { .. } => "failed",
            Self::Cancelled { .. } => "cancelled",
            Self::Unknown { .. } => "unknown",
        }
    }
}

//! How a command ends when it does not end well.

use serde_json::{Value, json};
use vance_shared::doc::Problem;

use crate::api::ApiError;

/// Exit code: done.
pub(super) const EXIT_OK: u8 = 0;
/// Exit code: it was tried, and failed.
pub(super) const EXIT_FAILED: u8 = 1;
/// Exit code: wrong usage, or a file with mistakes.
pub(super) const EXIT_USAGE: u8 = 2;
/// Exit code of `run`: something waits.
pub(super) const EXIT_WAITS: u8 = 3;
/// Exit code of a Foot that the Brain does not take.
pub(super) const EXIT_REFUSED: u8 = 4;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The arguments do not make sense, together or here.
    #[error("{0}")]
    Usage(String),
    /// A file cannot be read.
    #[error("{file}: {why}")]
    File {
        /// As the caller named it.
        file: String,
        /// What happened.
        why: String,
    },
    /// A file has mistakes.
    #[error("{file} has mistakes")]
    Mistakes {
        /// As the caller named it.
        file: String,
        /// All of them.
        problems: Vec<Problem>,
    },
    /// The Brain, or the way to it.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// This machine's Foot.
    #[error("{0}")]
    Foot(String),
    /// The Brain does not take this Foot.
    #[error("the Brain refuses this Foot: {0}")]
    Refused(String),
    /// A tool's own failure, or a call that could not be made.
    #[error("{message}")]
    Call {
        /// Stable, snake_case.
        code: String,
        /// The tool's text.
        message: String,
    },
    /// Standard output is closed or broken.
    #[error("cannot write the result: {0}")]
    Output(#[from] std::io::Error),
}

impl Failure {
    /// The process's exit code.
    pub(super) fn exit(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::File { .. } | Self::Mistakes { .. } => EXIT_USAGE,
            Self::Refused(_) => EXIT_REFUSED,
            Self::Output(_) if self.is_closed_reader() => EXIT_OK,
            Self::Api(_) | Self::Foot(_) | Self::Call { .. } | Self::Output(_) => EXIT_FAILED,
        }
    }

    /// A reader such as `head` that has seen enough: no failure of ours.
    pub(super) fn is_closed_reader(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == std::io::ErrorKind::BrokenPipe)
    }

    /// Stable, snake_case.
    pub(super) fn code(&self) -> &str {
        match self {
            Self::Usage(_) => "usage",
            Self::File { .. } => "file",
            Self::Mistakes { .. } => "mistakes",
            Self::Api(error) => error.code(),
            Self::Foot(_) => "foot",
            Self::Refused(_) => "refused",
            Self::Call { code, .. } => code,
            Self::Output(_) => "output",
        }
    }

    /// `{"error": {"code", "message", …}}`; what the Brain said besides is kept.
    pub(super) fn to_json(&self) -> Value {
        let mut error = match self {
            Self::Api(ApiError::Refused { detail, .. }) => detail.to().unwrap_or_default(),
            _ => serde_json::Map::new(),
        };
        error.insert("code".to_owned(), json!(self.code()));
        error.insert("message".to_owned(), json!(self.to_string()));
        if let Self::Mistakes { problems, .. } = self {
            error.insert("problems".to_owned(), json!(problems));
        }
        json!({ "error": error })
    }
}

//! What the API does, without HTTP: requests come in parsed, answers go out as values.

use serde_json::{Value, json};
use vance_shared::call::Fault;

use crate::store::StoreError;

pub mod commands;
pub mod direct;
pub mod queries;
pub mod questions;
pub mod submit;

/// An answer that is an error: `{"error": {"code", "message", …}}`.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError {
    /// HTTP status.
    pub status: u16,
    /// What is wrong and what to do.
    pub fault: Fault,
    /// Further fields of the error object, such as `problems`. Boxed, because most errors have none.
    pub extra: Option<Box<serde_json::Map<String, Value>>>,
}

impl ApiError {
    /// An error.
    pub fn new(status: u16, code: &str, message: impl Into<String>) -> Self {
        Self { status, fault: Fault::new(code, message), extra: None }
    }

    /// With one more field.
    pub fn with(mut self, key: &str, value: Value) -> Self {
        self.extra.get_or_insert_default().insert(key.to_owned(), value);
        self
    }

    /// The body.
    pub fn body(&self) -> Value {
        let mut error = self.extra.as_deref().cloned().unwrap_or_default();
        error.insert("code".to_owned(), json!(self.fault.code));
        error.insert("message".to_owned(), json!(self.fault.message));
        json!({ "error": error })
    }
}

impl From<Fault> for ApiError {
    /// The status that belongs to a fault's code.
    fn from(fault: Fault) -> Self {
        let status = match fault.code.as_str() {
            "forbidden" => 403,
            "session_not_found" | "task_not_found" | "unknown_tool" => 404,
            "not_live" | "not_retryable" | "not_unknown" | "client_absent" | "answered" | "no_question" => 409,
            "arguments_too_large" => 413,
            "busy" => 429,
            "restarting" | "unavailable" | "store_unavailable" | "server_unavailable" => 503,
            "internal" | "store_corrupt" => 500,
            _ => 400,
        };
        Self { status, fault, extra: None }
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::TooLarge { .. } => Self::new(413, "too_large", error.to_string()),
            StoreError::Full { .. } => Self::new(503, "store_full", format!("{error}; make room, then try again")),
            StoreError::Corrupt { .. } => Self::new(500, "store_corrupt", error.to_string()),
            StoreError::Conflict { .. } | StoreError::Exists { .. } | StoreError::Unavailable { .. } => {
                Self::new(503, "store_unavailable", format!("{error}; try again"))
            }
        }
    }
}

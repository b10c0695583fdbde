//! The answer to a call as its caller sees it: written in one pass, with what the tool gave as it came.

use serde::Serialize;
use vance_shared::call::{Fault, Outcome};
use vance_shared::ids::{CallId, ClientId};
use vance_shared::json::Raw;
use vance_shared::names::ToolName;
use vance_shared::tool::ToolResult;

/// `{"call": …, "result": …, "error": …}`.
#[derive(Serialize)]
struct Answer<'a> {
    call: Call<'a>,
    result: Option<Shown<'a>>,
    error: Option<Fault>,
}

/// The call itself.
#[derive(Serialize)]
pub(super) struct Call<'a> {
    pub(super) call_id: &'a CallId,
    pub(super) tool: &'a ToolName,
    pub(super) route: &'static str,
    pub(super) client_id: Option<&'a ClientId>,
    pub(super) machine: Option<&'a str>,
    pub(super) attempts: u32,
    pub(super) outcome: &'static str,
    pub(super) trace_id: String,
    pub(super) started_at: String,
    pub(super) ended_at: String,
}

/// The shape of `vance_brain_core::task::shown_result`, without its values.
#[derive(Serialize)]
struct Shown<'a> {
    text: String,
    structured: Option<&'a Raw>,
    content: &'a Raw,
}

impl<'a> Shown<'a> {
    fn of(result: &'a ToolResult) -> Self {
        Self { text: result.joined_text(), structured: result.structured.as_ref(), content: &result.content }
    }
}

/// The body.
pub(super) fn answer(call: Call<'_>, outcome: &Outcome) -> String {
    let (result, error) = match outcome {
        Outcome::Done(result) => (Some(Shown::of(result)), None),
        Outcome::Failed { error, result } => (result.as_ref().map(Shown::of), Some(error.clone())),
        Outcome::Cancelled { reason } => (None, Some(Fault::new("cancelled", reason.clone()))),
        Outcome::Unknown { reason } => (None, Some(Fault::new("outcome_unknown", reason.clone()))),
    };
    // The text stands there twice, and once escaped.
    let bytes = result.as_ref().map_or(0, |shown| shown.content.get().len() * 2);
    let mut body = Vec::with_capacity(bytes + 512);
    // Texts, numbers and raw JSON: this does not fail.
    match serde_json::to_writer(&mut body, &Answer { call, result, error }) {
        Ok(()) => String::from_utf8(body).unwrap_or_default(),
        Err(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use serde_json::Value;
    use vance_brain_core::task::shown_result;

    use super::*;

    #[test]
    fn a_result_is_shown_to_callers_and_to_expressions_alike() {
        let parts =
            serde_json::json!([{"type": "text", "text": "a\n\"b\""}, {"type": "image"}, {"text": 7}, {"text": "c"}, 8]);
        let structured = Some(Raw::from(serde_json::json!({"n": [1, null]})));
        for structured in [None, structured] {
            let result = ToolResult { content: Raw::from(parts.clone()), structured, is_error: false };
            let shown: Value = serde_json::from_str(&serde_json::to_string(&Shown::of(&result)).unwrap()).unwrap();
            assert_eq!(shown, shown_result(&result));
        }
    }
}

//! The answer to a call as its caller sees it: written in one pass, with what the tool gave as it came.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
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
    /// Questions of its server that were declined because nobody waited for them.
    #[serde(skip_serializing_if = "is_none")]
    pub(super) declined_questions: u32,
    pub(super) trace_id: String,
    pub(super) started_at: String,
    pub(super) ended_at: String,
}

// The signature is serde's.
#[allow(clippy::trivially_copy_pass_by_ref)]
fn is_none(count: &u32) -> bool {
    *count == 0
}

/// The shape of `vance_brain_core::task::shown_result`, without its values.
#[derive(Serialize)]
struct Shown<'a> {
    text: Text<'a>,
    structured: Option<&'a Raw>,
    content: &'a Raw,
}

impl<'a> Shown<'a> {
    fn of(result: &'a ToolResult) -> Self {
        Self { text: Text::of(result), structured: result.structured.as_ref(), content: &result.content }
    }
}

/// The text of a result.
#[derive(Serialize)]
#[serde(untagged)]
enum Text<'a> {
    /// As it stands in the content.
    AsItCame(&'a RawValue),
    /// Put together.
    Joined(String),
}

impl<'a> Text<'a> {
    /// Nearly always there is one part: then its text is not read and written again, only found.
    fn of(result: &'a ToolResult) -> Self {
        #[derive(Deserialize)]
        struct Part<'a> {
            #[serde(borrow, default)]
            text: Option<&'a RawValue>,
        }
        match result.content.to::<[Part<'_>; 1]>() {
            // Half a character cannot be read, and is not handed on.
            Ok([Part { text: Some(text) }]) if text.get().starts_with('"') && !text.get().contains("\\u") => {
                Self::AsItCame(text)
            }
            _ => Self::Joined(result.joined_text()),
        }
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
    // The text stands there twice.
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
        let raw = |text: &str| Raw::parse(text.to_owned()).unwrap();
        for (content, structured) in [
            (Raw::from(parts.clone()), None),
            (Raw::from(parts), structured),
            (raw("[]"), None),
            (raw(r#"[{"type":"text","text":"a\n\"b\""}]"#), None),
            (raw(r#"[{"text" : "\u00e9\ud83d\ude00", "type":"text"}]"#), None),
            (raw(r#"[{"text":null}]"#), None),
            (raw(r#"[{"text":7}]"#), None),
            (raw(r#"[{"text":"a","text":"b"}]"#), None),
        ] {
            let result = ToolResult { content, structured, is_error: false };
            let shown: Value = serde_json::from_str(&serde_json::to_string(&Shown::of(&result)).unwrap()).unwrap();
            assert_eq!(shown, shown_result(&result));
        }
        let half = ToolResult { content: raw(r#"[{"text":"half \ud83d"}]"#), structured: None, is_error: false };
        assert!(matches!(Text::of(&half), Text::Joined(_)), "not handed on as it came");
    }
}

//! Large results travel as parts: pieces of the `result` frame's text, in order.

use std::collections::HashMap;

use super::codec::encode_within;
use super::{CallResult, Decoded, ResultPart, ToBrain, decode_to_brain, encode};
use crate::call::Fault;
use crate::ids::CallId;
use crate::json::Raw;
use crate::limits::{FRAME_BYTES, MESSAGE_BYTES, PART_BYTES};

/// Assemblies that one client may have open at once: it sends one after the other, and may be cut in the middle of some.
const MAX_OPEN: usize = 16;

/// What all of them may have: the largest result, and what is left of others.
const MAX_OPEN_BYTES: usize = 2 * MESSAGE_BYTES;

/// What a `call` frame may have besides its arguments.
const CALL_BYTES: usize = 4 * 1024;

/// What a `result` frame has besides its outcome, at most nearly always.
const ENVELOPE_BYTES: usize = 512;

/// Says that a call's arguments do not fit into the one frame in which a call travels.
pub fn too_large_to_send(arguments: &Raw) -> Option<Fault> {
    let (bytes, room) = (arguments.get().len(), FRAME_BYTES - CALL_BYTES);
    (bytes > room).then(|| {
        let message = format!(
            "the arguments have {bytes} bytes, a call to a client at most {room}; pass the name of a file instead of what is in it, \
             or cut it into several calls"
        );
        Fault::new("arguments_too_large", message)
    })
}

/// The frames that carry a result: one `result`, or its parts if the text is larger than a frame.
pub fn split(result: CallResult) -> Vec<String> {
    let (call_id, traceparent) = (result.call_id.clone(), result.traceparent);
    let bytes = result.outcome.bytes() + ENVELOPE_BYTES;
    let text = encode_within(&ToBrain::Result(result), bytes);
    if text.len() <= FRAME_BYTES {
        return vec![text];
    }
    let mut frames = Vec::with_capacity(text.len() / PART_BYTES + 1);
    let mut rest = text.as_str();
    let mut seq = 0u32;
    while !rest.is_empty() {
        let cut = (0..=PART_BYTES.min(rest.len())).rev().find(|at| rest.is_char_boundary(*at)).unwrap_or(rest.len());
        let (data, tail) = rest.split_at(cut);
        let part =
            ResultPart { call_id: call_id.clone(), seq, last: tail.is_empty(), data: data.to_owned(), traceparent };
        frames.push(encode(&ToBrain::ResultPart(part)));
        rest = tail;
        seq += 1;
    }
    frames
}

/// Why parts do not make a result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PartError {
    /// A part is missing or came twice.
    #[error("part {got} of call {call_id} came where part {expected} was expected")]
    Order {
        /// The call.
        call_id: CallId,
        /// What came.
        got: u32,
        /// What should have come.
        expected: u32,
    },
    /// All parts together are over the limit.
    #[error("the result of call {0} is larger than {MESSAGE_BYTES} bytes")]
    TooLarge(CallId),
    /// Too many results at once.
    #[error("more than {MAX_OPEN} results in parts at once, or more than {MAX_OPEN_BYTES} bytes of them")]
    TooMany,
    /// The joined text is not a result of that call.
    #[error("the parts of call {0} do not make a result")]
    NotAResult(CallId),
}

/// Parts that have come so far, by call.
#[derive(Debug, Default)]
pub struct Assembly {
    open: HashMap<CallId, (u32, String)>,
}

impl Assembly {
    /// Takes a part; gives the result with the last one.
    pub fn take(&mut self, part: ResultPart) -> Result<Option<CallResult>, PartError> {
        if !self.open.contains_key(&part.call_id) && self.open.len() >= MAX_OPEN {
            return Err(PartError::TooMany);
        }
        let (next, mut text) = self.open.remove(&part.call_id).unwrap_or_default();
        if part.seq != next {
            // A sender that starts over (after a reconnect) is welcome to.
            if part.seq != 0 {
                return Err(PartError::Order { call_id: part.call_id, got: part.seq, expected: next });
            }
            text.clear();
        }
        if text.len() + part.data.len() > MESSAGE_BYTES {
            return Err(PartError::TooLarge(part.call_id));
        }
        let others: usize = self.open.values().map(|(_, text)| text.len()).sum();
        if others + text.len() + part.data.len() > MAX_OPEN_BYTES {
            return Err(PartError::TooMany);
        }
        text.push_str(&part.data);
        if !part.last {
            self.open.insert(part.call_id, (part.seq + 1, text));
            return Ok(None);
        }
        match decode_to_brain(&text) {
            Decoded::Frame(ToBrain::Result(result)) if result.call_id == part.call_id => Ok(Some(result)),
            _ => Err(PartError::NotAResult(part.call_id)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::call::Outcome;
    use crate::tool::ToolResult;

    fn result(text: &str) -> CallResult {
        CallResult {
            call_id: CallId::parse("c1").unwrap(),
            attempt: 1,
            outcome: Outcome::Done(ToolResult::text(text)),
            traceparent: None,
        }
    }

    fn parts(frames: &[String]) -> Vec<ResultPart> {
        frames
            .iter()
            .map(|f| match decode_to_brain(f) {
                Decoded::Frame(ToBrain::ResultPart(part)) => part,
                other => panic!("{other:?}"),
            })
            .collect()
    }

    #[test]
    fn the_largest_arguments_make_a_frame_that_is_read_and_larger_ones_are_refused_with_both_sizes() {
        let of = |bytes: usize| Raw::from(serde_json::json!({ "a": "x".repeat(bytes - 8) }));
        let largest = of(FRAME_BYTES - CALL_BYTES);
        assert_eq!(too_large_to_send(&largest), None);
        let call = crate::wire::Call {
            call_id: CallId::generate(),
            attempt: u32::MAX,
            tool: "t".repeat(64),
            arguments: largest,
            timeout_ms: u64::MAX,
            cap_ms: u64::MAX,
            answer_ms: Some(u64::MAX),
            traceparent: crate::trace::TraceContext::root(),
        };
        assert!(encode(&crate::wire::ToFoot::Call(call)).len() <= FRAME_BYTES);
        let fault = too_large_to_send(&of(FRAME_BYTES - CALL_BYTES + 1)).unwrap();
        assert!(fault.message.contains("1044481 bytes") && fault.message.contains("1044480"), "{}", fault.message);
    }

    #[test]
    fn a_large_result_survives_in_parts_within_the_frame_limit() {
        let sent = result(&"ü\"\\\n\u{1}".repeat(400_000));
        let frames = split(sent.clone());
        assert!(frames.len() > 1 && frames.iter().all(|f| f.len() <= FRAME_BYTES));
        let mut assembly = Assembly::default();
        let mut got = None;
        for part in parts(&frames) {
            got = assembly.take(part).unwrap();
        }
        assert_eq!(got, Some(sent));
    }

    #[test]
    fn what_is_never_finished_takes_no_more_than_its_room() {
        let mut assembly = Assembly::default();
        let part = |n: usize, seq: u32| ResultPart {
            call_id: CallId::parse(&format!("c{n}")).unwrap(),
            seq,
            last: false,
            data: "x".repeat(MESSAGE_BYTES / 2),
            traceparent: None,
        };
        for n in 0..4 {
            assembly.take(part(n, 0)).unwrap();
        }
        assert_eq!(assembly.take(part(4, 0)), Err(PartError::TooMany));
        assert_eq!(assembly.take(part(0, 1)), Err(PartError::TooMany));
        // What was refused has given its room back: three are open.
        for n in 10..60 {
            let small = ResultPart { data: "x".to_owned(), ..part(n, 0) };
            assert_eq!(assembly.take(small).is_ok(), n < 23, "{n}");
        }
    }

    #[test]
    fn a_missing_part_is_named_and_a_new_start_is_welcome() {
        let parts = parts(&split(result(&"x".repeat(2_000_000))));
        let mut assembly = Assembly::default();
        assembly.take(parts[0].clone()).unwrap();
        assert!(matches!(assembly.take(parts[2].clone()), Err(PartError::Order { got: 2, expected: 1, .. })));
        let mut last = None;
        for part in parts {
            last = assembly.take(part).unwrap();
        }
        assert!(last.is_some());
    }
}

//! What one line (or event) from a server is. Pure, and lenient where servers are known to be sloppy: ids as strings or floats, half a character, batches.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use vance_shared::mend;

use crate::handle::Progress;

/// One message.
#[derive(Debug)]
pub(crate) enum Inbound<'a> {
    /// An answer to a request of ours.
    Reply {
        /// The request's id, if it can be read as one of ours.
        id: Option<u64>,
        /// Result or error object.
        body: Result<&'a RawValue, &'a RawValue>,
    },
    /// `notifications/progress` with a token that can be read.
    Progress {
        /// The request's progress token.
        token: u64,
        /// What it says.
        progress: Progress,
    },
    /// Another notification or request: the whole message.
    Other(&'a RawValue),
}

#[derive(Default, Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ProgressParams<'a> {
    #[serde(borrow)]
    progress_token: &'a RawValue,
    #[serde(default)]
    progress: Option<f64>,
    #[serde(default)]
    total: Option<f64>,
    #[serde(default)]
    message: Option<String>,
}

/// The text of a line: half a character and half a surrogate pair become U+FFFD, so that the rest of an answer survives.
pub(crate) fn text_of(line: &[u8]) -> Cow<'_, str> {
    let line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
    let line = line.trim_ascii();
    // Checked at many times the speed of the lossy way, which hardly any line needs.
    match std::str::from_utf8(line) {
        Ok(text) => mend::surrogates(text),
        Err(_) => Cow::Owned(mend::surrogates(&String::from_utf8_lossy(line)).into_owned()),
    }
}

/// Reads a line. `None`: it holds no message.
pub(crate) fn read(text: &str) -> Option<Vec<Inbound<'_>>> {
    if text.starts_with('[') {
        let parts: Vec<&RawValue> = serde_json::from_str(text).ok()?;
        let messages: Vec<Inbound<'_>> = parts.into_iter().filter_map(|part| message(part.get())).collect();
        return (!messages.is_empty()).then_some(messages);
    }
    if !text.starts_with('{') {
        return None;
    }
    message(text).map(|message| vec![message])
}

fn message(whole: &str) -> Option<Inbound<'_>> {
    let envelope: Envelope<'_> = serde_json::from_str(whole).ok()?;
    match (envelope.method.as_deref(), envelope.id) {
        (Some("notifications/progress"), None) => {
            let params: ProgressParams<'_> = serde_json::from_str(envelope.params?.get()).ok()?;
            let token = lenient_id(params.progress_token.get())?;
            let fraction = match (params.progress, params.total) {
                (Some(done), Some(total)) if total > 0.0 => Some((done / total).clamp(0.0, 1.0)),
                _ => None,
            };
            Some(Inbound::Progress { token, progress: Progress { fraction, message: params.message } })
        }
        (Some(_), _) => Some(Inbound::Other(serde_json::from_str(whole).ok()?)),
        (None, Some(id)) => {
            let body = match (envelope.error, envelope.result) {
                (Some(error), _) => Err(error),
                (None, Some(result)) => Ok(result),
                (None, None) => Ok(RawValue::NULL),
            };
            Some(Inbound::Reply { id: lenient_id(id.get()), body })
        }
        (None, None) => envelope.error.map(|error| Inbound::Reply { id: None, body: Err(error) }),
    }
}

/// Whom a message answers that was too long to be kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Addressee {
    /// The request of this id.
    Request(u64),
    /// One of ours, as far as can be seen.
    Unknown,
    /// It is no answer.
    Nobody,
}

/// What begin and end of a message tell: libraries write `id` before the result or behind it.
pub(crate) fn addressee(begin: &[u8], end: &[u8]) -> Addressee {
    let begin = text_of(begin);
    if begin.starts_with('[') {
        return Addressee::Unknown;
    }
    let Some(members) = begin.strip_prefix('{') else { return Addressee::Nobody };
    let of_begin = first_members(members);
    let end = String::from_utf8_lossy(end);
    let end = end.rfind("\"id\"").map(|at| format!("{{{}", &end[at..])).unwrap_or_default();
    let of_end: Envelope<'_> = serde_json::from_str(&end).unwrap_or_default();
    if of_begin.method.is_some() || of_end.method.is_some() {
        return Addressee::Nobody;
    }
    let id = of_begin.id.or(of_end.id).and_then(|id| lenient_id(id.get()));
    id.map_or(Addressee::Unknown, Addressee::Request)
}

/// The members of an object up to the first one that does not end here.
fn first_members(mut rest: &str) -> Envelope<'_> {
    fn next<'a, T: Deserialize<'a>>(rest: &mut &'a str) -> Option<T> {
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<T>();
        let value = values.next()?.ok()?;
        *rest = rest[values.byte_offset()..].trim_start();
        Some(value)
    }
    let mut found = Envelope::default();
    while let Some(key) = next::<Cow<'_, str>>(&mut rest)
        && let Some(value) = rest.strip_prefix(':')
    {
        rest = value;
        match key.as_ref() {
            "method" => {
                found.method = Some(key);
                return found;
            }
            "id" => found.id = next(&mut rest),
            _ if next::<serde::de::IgnoredAny>(&mut rest).is_none() => return found,
            _ => {}
        }
        rest = rest.strip_prefix(',').unwrap_or_default();
    }
    found
}

/// `7`, `7.0` and `"7"` are all 7.
fn lenient_id(text: &str) -> Option<u64> {
    let text = text.trim_matches('"');
    if let Ok(id) = text.parse() {
        return Some(id);
    }
    let number: f64 = text.parse().ok()?;
    // Up to 2^53 a float holds every integer.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    (number.fract() == 0.0 && (0.0..9_007_199_254_740_992.0).contains(&number)).then_some(number as u64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn shape(line: &[u8]) -> String {
        let text = text_of(line);
        let Some(messages) = read(&text) else { return "garbage".into() };
        let shapes = messages.iter().map(|message| match message {
            Inbound::Reply { id, body: Ok(result) } => format!("result {id:?} {}", result.get()),
            Inbound::Reply { id, body: Err(error) } => format!("error {id:?} {}", error.get()),
            Inbound::Progress { token, progress } => format!("progress {token} {:?}", progress.fraction),
            Inbound::Other(whole) => format!("other {}", whole.get().len()),
        });
        shapes.collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn begin_and_end_of_a_long_message_tell_whom_it_answers() {
        use Addressee::{Nobody, Request, Unknown};
        let long = "x".repeat(100);
        for (begin, end, want) in [
            (r#"{"jsonrpc":"2.0","id":7,"result":{"a":"xx"#, "xx", Request(7)),
            (r#" { "id" : "7" , "result" : {"id": 8, "a":"#, "xx", Request(7)),
            (r#"{"result":{"id":8,"a":"xx"#, r#"xx"},"id":7,"jsonrpc":"2.0"}"#, Request(7)),
            (r#"{"jsonrpc":"2.0","result":{"a":"xx"#, "xx\"},\"id\": 7.0} \r", Request(7)),
            // Ids of something else.
            (r#"{"jsonrpc":"2.0","result":{"a":"xx"#, r#"xx","id":8}}"#, Unknown),
            (r#"{"jsonrpc":"2.0","result":{"a":"xx"#, r#"xx \"id\":8}"}}"#, Unknown),
            (r#"{"result":"xx"#, r#"xx"id"}"#, Unknown),
            (r#"{"jsonrpc":"2.0","id":7,"method":"m","params":"xx"#, "xx", Nobody),
            (r#"{"method":"m","params":"xx"#, "xx", Nobody),
            (r#"{"params":"xx"#, r#"xx","id":7,"method":"m"}"#, Nobody),
            (r#"[{"id":7,"result":"xx"#, "xx", Unknown),
            (&long, &long, Nobody),
        ] {
            assert_eq!(addressee(begin.as_bytes(), end.as_bytes()), want, "{begin} ... {end}");
        }
    }

    #[test]
    fn lines_are_told_apart() {
        for (line, want) in [
            (&br#"{"jsonrpc":"2.0","id":7,"result":{"a":1}}"#[..], r#"result Some(7) {"a":1}"#),
            (br#"{"id":"7","result":1}"#, "result Some(7) 1"),
            (br#"{"id":7.0,"result":null}"#, "result Some(7) null"),
            (br#"{"id":7.5,"result":1}"#, "result None 1"),
            (br#"{"id":-7,"error":{"code":1}}"#, r#"error None {"code":1}"#),
            (br#"{"id":null,"error":{"code":1}}"#, r#"error None {"code":1}"#),
            (b"  {\"id\":1,\"result\":\"\xc3\"}\r", "result Some(1) \"\u{fffd}\""),
            (br#"{"id":1,"result":"\ud83d"}"#, r#"result Some(1) "\ufffd""#),
            (b"\xEF\xBB\xBF{\"id\":1,\"result\":2}", "result Some(1) 2"),
            (br#"{"id":3,"method":"ping"}"#, "other 24"),
            (
                br#"{"method":"notifications/progress","params":{"progressToken":"9","progress":1,"total":4}}"#,
                "progress 9 Some(0.25)",
            ),
            (br#"{"method":"notifications/progress","params":{"progressToken":9,"progress":1}}"#, "progress 9 None"),
            (br#"[{"id":1,"result":1},{"id":2,"result":2}]"#, "result Some(1) 1; result Some(2) 2"),
            (b"Server listening on stdio", "garbage"),
            (br#"{"level":"info","msg":"hi"}"#, "garbage"),
            (br#"{"id":1,"result":"#, "garbage"),
            (b"", "garbage"),
        ] {
            assert_eq!(shape(line), want, "{}", String::from_utf8_lossy(line));
        }
    }
}

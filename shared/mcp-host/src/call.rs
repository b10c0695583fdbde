//! One call: its deadline, its cancel, its progress, and the verdict.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use vance_shared::call::Outcome;
use vance_shared::json::Raw;
use vance_shared::mend;
use vance_shared::tool::ToolResult;

use crate::flights::WAITS;
use crate::handle::Progress;
use crate::lane::{InFlight, Reply};
use crate::people::Asking;
use crate::stdio::MAX_LINE_BYTES;

/// Receives a call's progress.
pub type ProgressSink = Arc<dyn Fn(Progress) + Send + Sync>;

/// A deadline that is noticed this much too late was slept through: the process stood still (a suspended machine, a debugger), and the
/// answer may lie in the pipe.
const SLEPT: Duration = Duration::from_secs(2);
/// Then the answer has this long to be read.
const AFTER_SLEEP: Duration = Duration::from_secs(5);
/// While a person is asked, the deadline is looked at this often at most.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// When a call has taken too long: `timeout` after its last sign of life, and `cap` after its start whatever it says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deadline {
    timeout: Duration,
    last: Instant,
    at: Instant,
    /// Of the time that a person was asked: what has been added already.
    added: Duration,
}

impl Deadline {
    pub(crate) fn new(now: Instant, timeout: Duration, cap: Duration) -> Self {
        let last = later(now, cap.max(timeout));
        Self { timeout, last, at: later(now, timeout).min(last), added: Duration::ZERO }
    }

    /// No sign of life makes it later.
    pub(crate) fn is_last(&self) -> bool {
        self.at >= self.last
    }

    /// Whether the deadline passed while nobody could have seen an answer; it is then moved a little.
    fn was_slept_through(&mut self, now: Instant) -> bool {
        let slept = now.saturating_duration_since(self.at) >= SLEPT;
        if slept {
            self.at = now + AFTER_SLEEP;
        }
        slept
    }

    /// Adds the time in which a person was asked for this call. True if there was some.
    fn stood_still(&mut self, asked: &Asking, now: Instant) -> bool {
        let more = asked.more(&mut self.added);
        if more.is_zero() {
            return false;
        }
        (self.at, self.last) = (later(self.at, more), later(self.last, more));
        if asked.is_open() {
            self.at = self.at.max(later(now, LOOK_AGAIN));
            self.last = self.last.max(self.at);
        }
        true
    }

    /// After a question: the time of the person is added, and the server has its own anew.
    pub(crate) fn asked(&mut self, asked: &Asking) {
        let now = Instant::now();
        self.stood_still(asked, now);
        self.progressed(now);
    }

    pub(crate) fn progressed(&mut self, now: Instant) {
        self.at = later(now, self.timeout).min(self.last);
    }
}

/// A deadline beyond what the clock can hold is thirty years away, like tokio's own.
fn later(now: Instant, time: Duration) -> Instant {
    now.checked_add(time).unwrap_or_else(|| now + Duration::from_secs(30 * 365 * 86_400))
}

/// How waiting for a request ended.
#[derive(Debug)]
pub(crate) enum Ended {
    Reply(Reply),
    Deadline,
    Cancelled,
}

/// Waits for a request's end. A deadline or a cancel is passed on to the server. `asked`: the person, for this request; `asking`: any
/// person, for any request of its server.
pub(crate) async fn wait(
    mut flight: InFlight,
    deadline: &mut Deadline,
    cancel: &CancellationToken,
    progress: Option<&ProgressSink>,
    asked: &Asking,
    asking: &Asking,
) -> Ended {
    loop {
        tokio::select! {
            biased;
            reply = &mut flight.reply => {
                flight.done();
                // What was said before the answer is heard before it.
                while let (Ok(report), Some(sink)) = (flight.progress.try_recv(), progress) {
                    sink(*report);
                }
                return Ended::Reply(reply);
            }
            () = cancel.cancelled() => {
                flight.cancel("cancelled");
                return Ended::Cancelled;
            }
            Some(report) = flight.progress.recv() => {
                deadline.stood_still(asked, Instant::now());
                deadline.progressed(Instant::now());
                if let Some(sink) = progress {
                    sink(*report);
                }
            }
            () = tokio::time::sleep_until(deadline.at) => {
                // A person's time is not the server's.
                if deadline.stood_still(asked, Instant::now()) || deadline.was_slept_through(Instant::now()) {
                    continue;
                }
                if asking.is_open() && !deadline.is_last() {
                    deadline.progressed(Instant::now());
                    if let Some(sink) = progress {
                        sink(Progress { fraction: None, message: Some(WAITS.to_owned()) });
                    }
                    continue;
                }
                let unsent = flight.unsent();
                flight.cancel("it took too long");
                return match unsent {
                    Some(what) => Ended::Reply(Reply::Lost { why: format!("{what} when its time was over"), began: false }),
                    None => Ended::Deadline,
                };
            }
        }
    }
}

/// What a `tools/call` answered.
#[derive(Debug)]
pub(crate) enum Answer {
    Finished(Outcome),
    /// The server wants something of us first.
    Input(InputRequired),
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InputRequired {
    #[serde(default)]
    pub(crate) input_requests: std::collections::BTreeMap<String, InputRequest>,
    #[serde(default)]
    pub(crate) request_state: Option<Raw>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct InputRequest {
    #[serde(default)]
    pub(crate) method: String,
    #[serde(default)]
    pub(crate) params: serde_json::Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CallResult {
    #[serde(default)]
    content: Option<Raw>,
    #[serde(default)]
    structured_content: Option<Raw>,
    #[serde(default)]
    is_error: Option<bool>,
    #[serde(default)]
    result_type: Option<String>,
}

/// Bytes of a failure's message that are kept: tasks, lists and the store carry it, and nobody reads more of it. Results have the blob store.
const MAX_MESSAGE_BYTES: usize = 8 * 1024;

/// An outcome with a message of bounded length.
pub(crate) fn bounded(mut outcome: Outcome) -> Outcome {
    let text = match &mut outcome {
        Outcome::Done(_) => return outcome,
        Outcome::Failed { error, .. } => &mut error.message,
        Outcome::Cancelled { reason } | Outcome::Unknown { reason } => reason,
    };
    if text.len() > MAX_MESSAGE_BYTES {
        let bytes = text.len();
        text.truncate(text.floor_char_boundary(MAX_MESSAGE_BYTES));
        text.push_str(&format!(" … (the first {} KiB of {bytes} bytes)", MAX_MESSAGE_BYTES / 1024));
    }
    outcome
}

/// The verdict on a reply to a call.
pub(crate) fn judge(reply: Reply) -> Answer {
    match settle(reply) {
        Ok(raw) => result(&raw),
        Err(outcome) => Answer::Finished(outcome),
    }
}

/// A reply's result, or the verdict on what came instead.
pub(crate) fn settle(reply: Reply) -> Result<Raw, Outcome> {
    Err(match reply {
        Reply::Result(raw) => return Ok(raw),
        Reply::Error { code, message } => Outcome::failed("mcp_error", format!("{message} (JSON-RPC error {code})")),
        Reply::Lost { why, began: false } => Outcome::failed("unavailable", format!("{why}; nothing ran")),
        Reply::Lost { why, began: true } => {
            Outcome::Unknown { reason: format!("the server was lost during the call: {why}") }
        }
        // Unlike what is unavailable, it does not become better by waiting.
        Reply::Refused(why) => Outcome::failed("unauthorized", format!("{why}; nothing ran")),
        Reply::TooLarge { bytes } => Outcome::failed(
            "result_too_large",
            format!(
                "the tool ran, and its result has {bytes} bytes in one line, of which at most {MAX_LINE_BYTES} are read; ask it for less, or for a file"
            ),
        ),
        Reply::Busy => Outcome::failed("busy", "the server does not take more calls at the moment; nothing ran"),
    })
}

/// What a server wants before it gives the result, if this is no result yet.
pub(crate) fn input_of(raw: &Raw) -> Option<InputRequired> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Kind {
        #[serde(default)]
        result_type: Option<String>,
    }
    let kind: Kind = raw.to().ok()?;
    kind.result_type.filter(|word| word == "input_required").and_then(|_| raw.to().ok())
}

fn result(raw: &Raw) -> Answer {
    let unreadable = |why: String| {
        Answer::Finished(Outcome::failed("mcp_error", format!("the server's result is unreadable: {why}")))
    };
    let result: CallResult = match raw.to() {
        Ok(result) => result,
        Err(error) => return unreadable(error.to_string()),
    };
    match result.result_type.as_deref() {
        None | Some("" | "complete") => {}
        Some("input_required") => {
            return raw.to().map_or_else(|error| unreadable(error.to_string()), Answer::Input);
        }
        Some(other) => return unreadable(format!("result type {}", vance_shared::show::quoted(other, 40))),
    }
    let content = result.content.unwrap_or_else(|| Raw::from(serde_json::json!([])));
    if !content.get().starts_with('[') {
        return unreadable("its content is no array".to_owned());
    }
    let structured = result.structured_content;
    let is_error = result.is_error.unwrap_or(false);
    Answer::Finished(Outcome::of(readable(ToolResult { content, structured, is_error })))
}

/// A result in which a part that no reader can hold as a tree is a text that says so.
fn readable(mut result: ToolResult) -> ToolResult {
    let text = |text: String| serde_json::json!({ "type": "text", "text": text });
    if let Some(why) = mend::unreadable(result.content.get()) {
        let note = format!("[the content of this result is shown as it was sent: {why}]");
        result.content = Raw::from(Value::from(vec![text(note), text(result.content.get().to_owned())]));
    }
    if let Some(why) = result.structured.as_ref().and_then(|raw| mend::unreadable(raw.get()))
        && let Some(raw) = result.structured.take()
    {
        let mut parts: Vec<Value> = result.content.to().unwrap_or_default();
        parts.push(text(format!("[the structured content of this result is shown as it was sent: {why}]")));
        parts.push(text(raw.get().to_owned()));
        result.content = Raw::from(Value::from(parts));
    }
    result
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::Mutex;

    use tokio::sync::mpsc;

    use super::*;

    #[test]
    fn progress_extends_a_deadline_up_to_its_cap() {
        let start = Instant::now();
        let seconds = Duration::from_secs;
        let mut deadline = Deadline::new(start, seconds(10), seconds(25));
        for (progress_at, want) in [(5, 15), (14, 24), (20, 25), (24, 25)] {
            deadline.progressed(start + seconds(progress_at));
            assert_eq!(deadline.at - start, seconds(want), "progress at {progress_at}");
        }
        assert_eq!(
            Deadline::new(start, seconds(10), seconds(1)).at - start,
            seconds(10),
            "a cap below the timeout is the timeout"
        );
        assert!(Deadline::new(start, Duration::MAX, Duration::MAX).at > start);
    }

    #[test]
    fn a_deadline_that_was_slept_through_waits_for_what_lies_in_the_pipe() {
        let start = Instant::now();
        let seconds = Duration::from_secs;
        let mut deadline = Deadline::new(start, seconds(10), seconds(25));
        assert!(!deadline.was_slept_through(start + seconds(11)), "a busy machine is no sleep");
        assert!(deadline.was_slept_through(start + seconds(600)));
        assert_eq!(deadline.at - start, seconds(605));
        assert!(!deadline.was_slept_through(start + seconds(605)), "then it is over");
    }

    #[test]
    fn replies_become_verdicts() {
        let of = |text: &str| judge(Reply::Result(Raw::parse(text.to_owned()).unwrap()));
        for (text, word) in [
            (r#"{"content":[{"type":"text","text":"x"}]}"#, "done"),
            (r#"{"content":[],"resultType":"complete","structuredContent":{"a":1}}"#, "done"),
            (r#"{}"#, "done"),
            (r#"{"content":[{"type":"text","text":"no"}],"isError":true}"#, "failed"),
            (r#"{"content":"text"}"#, "failed"),
            (r#"{"resultType":"task"}"#, "failed"),
            ("null", "failed"),
        ] {
            let Answer::Finished(outcome) = of(text) else { panic!("{text}") };
            assert_eq!(outcome.word(), word, "{text}");
        }
        let Answer::Input(input) =
            of(r#"{"resultType":"input_required","inputRequests":{"r":{"method":"roots/list"}},"requestState":"s"}"#)
        else {
            panic!("input")
        };
        assert_eq!(
            (input.input_requests["r"].method.as_str(), input.request_state.unwrap().get()),
            ("roots/list", "\"s\"")
        );
        for (reply, word) in [
            (Reply::Error { code: -32602, message: "bad".into() }, "failed"),
            (Reply::Lost { why: "w".into(), began: false }, "failed"),
            (Reply::Lost { why: "w".into(), began: true }, "unknown"),
            (Reply::Busy, "failed"),
            (Reply::TooLarge { bytes: 1 }, "failed"),
        ] {
            let Answer::Finished(outcome) = judge(reply) else { panic!("{word}") };
            assert_eq!(outcome.word(), word);
        }
    }

    #[test]
    fn a_message_of_megabytes_is_cut_between_characters() {
        let Outcome::Failed { error, .. } =
            bounded(Outcome::failed("mcp_error", format!("x{}", "ä".repeat(1_000_000))))
        else {
            panic!()
        };
        assert!(error.message.len() < MAX_MESSAGE_BYTES + 100, "{}", error.message.len());
        assert!(error.message.ends_with("ä … (the first 8 KiB of 2000001 bytes)"));
        let short = Outcome::failed("mcp_error", "short");
        assert_eq!(bounded(short.clone()), short);
    }

    #[test]
    fn what_cannot_be_read_of_a_result_is_shown_as_it_came() {
        let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
        for (text, want) in [
            (r#"{"content":[{"type":"text","text":"x"}],"structuredContent":{"a":1e999}}"#.to_owned(), "x\n[the structured content of this result is shown as it was sent: the number '1e999' is too large]\n{\"a\":1e999}".to_owned()),
            (format!(r#"{{"content":[],"structuredContent":{deep}}}"#), format!("[the structured content of this result is shown as it was sent: it is nested 200 levels deep, expected at most 127]\n{deep}")),
            (format!(r#"{{"content":{deep}}}"#), format!("[the content of this result is shown as it was sent: it is nested 200 levels deep, expected at most 127]\n{deep}")),
        ] {
            let Answer::Finished(Outcome::Done(result)) = judge(Reply::Result(Raw::parse(text).unwrap())) else {
                panic!("{want}")
            };
            assert_eq!((result.joined_text(), result.structured), (want, None));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_without_progress_expires_and_the_cancel_goes_upstream() {
        let told = Arc::new(Mutex::new(String::new()));
        let (reports, progress) = mpsc::channel(4);
        let ear = Arc::clone(&told);
        let flight = InFlight::new(std::future::pending(), progress, move |why| *ear.lock().unwrap() = why.to_owned());
        let begin = Instant::now();
        let mut deadline = Deadline::new(begin, Duration::from_secs(10), Duration::from_secs(100));
        let speak = async {
            tokio::time::sleep(Duration::from_secs(8)).await;
            reports.send(Box::new(Progress { fraction: None, message: None })).await.unwrap();
        };
        let cancel = CancellationToken::new();
        let nobody = Asking::default();
        let (ended, ()) = tokio::join!(wait(flight, &mut deadline, &cancel, None, &nobody, &nobody), speak);
        assert!(matches!(ended, Ended::Deadline));
        assert_eq!(begin.elapsed().as_secs(), 18);
        assert_eq!(*told.lock().unwrap(), "it took too long");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_was_not_sent_yet_when_its_time_was_over_has_not_run() {
        let flight = InFlight::new(std::future::pending(), mpsc::channel(1).1, |_| {});
        let held = Arc::new(Mutex::new(Some("it waited")));
        let mut deadline = Deadline::new(Instant::now(), Duration::from_secs(10), Duration::from_secs(10));
        let (cancel, nobody) = (CancellationToken::new(), Asking::default());
        let ended = wait(flight.held_by(held), &mut deadline, &cancel, None, &nobody, &nobody).await;
        let Ended::Reply(reply) = ended else { panic!("{ended:?}") };
        let Answer::Finished(Outcome::Failed { error, .. }) = judge(reply) else { panic!("failed") };
        assert_eq!(
            (error.code.as_str(), error.message.as_str()),
            ("unavailable", "it waited when its time was over; nothing ran")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn while_a_person_is_asked_a_call_does_not_expire() {
        let seconds = Duration::from_secs;
        // For this very call its time stands still; for another one it waits too, up to its cap.
        for (mine, question, ends) in [(true, 100_000, 100_010), (false, 35, 40), (false, 500, 100)] {
            let (_reports, progress) = mpsc::channel(4);
            let flight = InFlight::new(std::future::pending(), progress, |_| {});
            let begin = Instant::now();
            let mut deadline = Deadline::new(begin, seconds(10), seconds(100));
            let (asked, asking) = (Asking::default(), Asking::default());
            let person = async {
                let question_open = (asking.begin(), mine.then(|| asked.begin()));
                tokio::time::sleep(seconds(question)).await;
                drop(question_open);
            };
            let cancel = CancellationToken::new();
            let expired = async {
                let ended = wait(flight, &mut deadline, &cancel, None, &asked, &asking).await;
                (ended, begin.elapsed().as_secs())
            };
            let ((ended, at), ()) = tokio::join!(expired, person);
            assert!(matches!(ended, Ended::Deadline));
            assert!((ends..=ends + 2).contains(&at), "{mine} {question}: {at}");
        }
    }
}

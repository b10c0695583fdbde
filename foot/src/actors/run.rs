//! One run of one tool, from its start to its outcome, whatever the tool does: deadline, progress, cancel, panic.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use vance_blobs::Blobs;
use vance_mcp_host::Person;
use vance_observability::names::{CALL_ID, SPAN_TOOL_RUN, TOOL, TRACE_ID};
use vance_observability::spans::{Kind, Span};
use vance_shared::blob;
use vance_shared::call::{Fault, Outcome};
use vance_shared::ids::CallId;
use vance_shared::json::Raw;
use vance_shared::trace::TraceContext;

use super::catalogue::{Tool, ToolCall};

/// Hosts keep their own deadlines; this one is for a host that does not, so it comes a little later.
const SLACK: Duration = Duration::from_secs(1);
/// A deadline that is noticed this much too late was slept through, and the outcome may be there in a moment…
const SLEPT: Duration = Duration::from_secs(2);
/// …which is this long, beyond what its host gives it.
const AFTER_SLEEP: Duration = Duration::from_secs(7);
/// While a person is asked, the deadline is looked at this often at most.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long a tool may take to obey a cancel.
const CANCEL_WITHIN: Duration = Duration::from_secs(10);
/// Between two progress reports of one call. A person reads no faster; the last one always comes.
const PROGRESS_EVERY: Duration = Duration::from_millis(250);

/// What to run.
pub(crate) struct Job {
    pub(crate) call_id: CallId,
    pub(crate) tool: Arc<Tool>,
    pub(crate) arguments: Raw,
    pub(crate) timeout: Duration,
    pub(crate) cap: Duration,
    /// The span that asks for it; none for a call from here.
    pub(crate) trace: Option<TraceContext>,
    pub(crate) cancel: CancellationToken,
    /// Who is asked what the tool's server wants to know.
    pub(crate) person: Person,
    /// Where large results stay; without it they fail.
    pub(crate) keep: Option<Arc<Blobs>>,
}

type Report = (Option<f64>, Option<String>);

/// Runs to the end, as one span. `report` hears progress, at most every quarter of a second.
pub(crate) async fn run(job: Job, report: impl Fn(Report)) -> Outcome {
    let kind = if job.trace.is_some() { Kind::Server } else { Kind::Internal };
    let span = Span::root(SPAN_TOOL_RUN, kind, job.trace).with(CALL_ID, &job.call_id).with(TOOL, &job.tool.spec.name);
    let (call_id, trace) = (job.call_id.clone(), span.context());
    let outcome = to_the_end(job, trace, report).await;
    tracing::debug!(%call_id, outcome = outcome.word(), { TRACE_ID } = trace.trace_id(), "a tool ran");
    span.end_as(&outcome);
    outcome
}

async fn to_the_end(job: Job, trace: TraceContext, report: impl Fn(Report)) -> Outcome {
    let Job { call_id, tool, arguments, timeout, cap, cancel, person, keep, trace: _ } = job;
    let (asked, mut asked_for) = (person.asked.clone(), Duration::ZERO);
    let (beat, mut beats) = watch::channel::<Report>((None, None));
    let started = Instant::now();
    let call = ToolCall {
        call_id: call_id.clone(),
        tool: tool.spec.name.clone(),
        arguments,
        timeout,
        cap,
        trace,
        cancel: cancel.clone(),
        progress: Arc::new(move |fraction, message| {
            beat.send_replace((fraction, message));
        }),
        person,
    };
    // The call itself within the future: a host may panic before it gives one.
    let mut work = std::pin::pin!(AssertUnwindSafe(async move { tool.host.call(call).await }).catch_unwind());
    let mut hard = started + cap.max(timeout) + SLACK;
    let mut deadline = (started + timeout + SLACK).min(hard);
    let mut timed_out = false;
    let mut give_up: Option<Instant> = None;
    let mut report_at: Option<Instant> = None;
    let mut reported = started - PROGRESS_EVERY.min(started.elapsed());
    loop {
        tokio::select! {
            biased;
            ended = &mut work => return within_limits(settle(ended, timed_out, timeout), call_id, keep).await,
            () = cancel.cancelled(), if give_up.is_none() => give_up = Some(Instant::now() + CANCEL_WITHIN),
            Ok(()) = beats.changed(), if report_at.is_none() => {
                hard += asked.more(&mut asked_for);
                deadline = (Instant::now() + timeout + SLACK).min(hard);
                report_at = Some(reported + PROGRESS_EVERY);
            }
            () = sleep_until(report_at.unwrap_or(hard)), if report_at.is_some() => {
                let latest = beats.borrow_and_update().clone();
                report(latest);
                reported = Instant::now();
                report_at = None;
            }
            () = sleep_until(deadline), if give_up.is_none() => {
                // A person's time is not the tool's.
                let more = asked.more(&mut asked_for);
                if !more.is_zero() {
                    hard += more;
                    deadline = (deadline + more).max(Instant::now() + LOOK_AGAIN);
                    continue;
                }
                if deadline.elapsed() >= SLEPT {
                    deadline = Instant::now() + AFTER_SLEEP;
                    continue;
                }
                timed_out = true;
                cancel.cancel();
            }
            () = sleep_until(give_up.unwrap_or(hard)), if give_up.is_some() => {
                let why = format!("the tool was cancelled and did not end within {} s; it may still run", CANCEL_WITHIN.as_secs());
                return Outcome::Unknown { reason: why };
            }
        }
    }
}

fn settle(ended: Result<Outcome, Box<dyn std::any::Any + Send>>, timed_out: bool, timeout: Duration) -> Outcome {
    match ended {
        Err(_) => Outcome::Unknown {
            reason: "the code that ran the tool panicked; it may or may not have had its effect".to_owned(),
        },
        Ok(Outcome::Cancelled { .. }) if timed_out => {
            Outcome::failed("timeout", format!("no result within {} s; the tool was stopped", timeout.as_secs_f64()))
        }
        Ok(outcome) => outcome,
    }
}

/// What is too large of an outcome is kept, beside: that waits for the disk.
async fn within_limits(outcome: Outcome, call_id: CallId, keep: Option<Arc<Blobs>>) -> Outcome {
    let bytes = outcome.bytes();
    match keep.filter(|_| blob::is_too_large(&outcome)) {
        None => blob::within_limits(outcome, &mut |_, _| {
            let why = format!(
                "the tool ran, but its result has {bytes} bytes, at most {} travel; ask it for less at a time",
                blob::WHOLE_BYTES
            );
            Err(Fault::new("result_too_large", why))
        }),
        Some(blobs) => {
            let work = vance_supervise::beside(async move { blobs.within_limits(&call_id, None, outcome) });
            let lost = "the tool ran, but its large result is lost: what keeps it panicked";
            work.await.unwrap_or_else(|_| Outcome::failed("internal", lost))
        }
    }
}

#[cfg(test)]
mod tests;

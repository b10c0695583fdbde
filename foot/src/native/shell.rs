//! `shell_execute`: one program to its end, its output bounded, its whole tree ended with it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use vance_mcp_host::guard::{Exit, GuardedChild};
use vance_shared::call::{Fault, Outcome};
use vance_shared::json::Raw;
use vance_shared::tool::ToolResult;

use super::Ended;
use super::gate::{Call, Gate, Halt};
use super::launch::{Launcher, Wanted};
use super::output::HeadTail;

/// Kept of each stream without `max_output_bytes`.
const DEFAULT_STREAM_BYTES: usize = 512 * 1024;
/// Each stream as JSON: standard output is in the result twice, and all of it has to travel.
const MAX_STREAM_JSON_BYTES: usize = 2 * 1024 * 1024;
/// Between SIGTERM and SIGKILL when a call ends early: time to remove a lock file, too short to notice.
const GRACE: Duration = Duration::from_millis(250);
/// Until the pipes are empty after everything that could write is gone.
const DRAIN: Duration = Duration::from_secs(2);
/// Of standard error in a failure's message.
const MAX_MESSAGE_BYTES: usize = 2000;

#[derive(Debug, Deserialize)]
struct Arguments {
    #[serde(flatten)]
    wanted: Wanted,
    #[serde(default)]
    timeout_ms: Option<u64>,
    #[serde(default)]
    max_output_bytes: Option<usize>,
}

pub(super) async fn run(gate: &Arc<Gate>, launcher: &Launcher, call: Call) -> Ended {
    let args: Arguments = call.parse()?;
    let permitted = args.wanted.permit(gate, &call).await?;
    let halt = args.timeout_ms.map_or_else(|| call.halt.clone(), |ms| call.halt.within(Duration::from_millis(ms)));
    let started = Instant::now();
    let mut child = launcher.start(&permitted).await?;
    let ran = drive(&mut child, args.max_output_bytes.unwrap_or(DEFAULT_STREAM_BYTES), &halt).await;
    finish(ran, started.elapsed())
}

/// What came of a program.
pub(super) struct Ran {
    pub(super) exit: std::io::Result<Exit>,
    /// It was ended by us, for this reason.
    pub(super) halted: Option<Outcome>,
    pub(super) stdout: HeadTail,
    pub(super) stderr: HeadTail,
}

/// Reads both streams until the tree is gone, and ends the tree when the call has to end.
pub(super) async fn drive(child: &mut GuardedChild, stream_bytes: usize, halt: &Halt) -> Ran {
    let (mut stdout, mut stderr) = (HeadTail::new(stream_bytes), HeadTail::new(stream_bytes));
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let mut halted = None;
    let exit;
    {
        let reading = async { tokio::join!(collect(out, |b| stdout.push(b)), collect(err, |b| stderr.push(b))) };
        tokio::pin!(reading);
        let mut empty = false;
        exit = loop {
            tokio::select! {
                biased;
                outcome = halt.reached(), if halted.is_none() => {
                    halted = Some(outcome);
                    // The tree may be blocked on a full pipe: go on reading while it ends.
                    let ending = child.kill(GRACE);
                    tokio::pin!(ending);
                    break loop {
                        tokio::select! {
                            exit = &mut ending => break exit,
                            _ = &mut reading, if !empty => empty = true,
                        }
                    };
                }
                exit = child.wait() => break exit,
                _ = &mut reading, if !empty => empty = true,
            }
        };
        if !empty && tokio::time::timeout(DRAIN, &mut reading).await.is_err() {
            tracing::warn!("a pipe of an ended program stays open; its last output may be missing");
        }
    }
    Ran { exit, halted, stdout, stderr }
}

/// Reads a stream to its end.
pub(super) async fn collect<R: AsyncRead + Unpin>(stream: Option<R>, mut push: impl FnMut(&[u8])) {
    let Some(mut stream) = stream else { return };
    let mut chunk = vec![0; 64 * 1024];
    loop {
        match stream.read(&mut chunk).await {
            Ok(0) => return,
            Ok(n) => push(&chunk[..n]),
            Err(error) => {
                tracing::debug!(%error, "the output of a program could not be read to its end");
                return;
            }
        }
    }
}

fn finish(ran: Ran, took: Duration) -> Ended {
    let (stdout, cut_out) = ran.stdout.text(MAX_STREAM_JSON_BYTES);
    let (stderr, cut_err) = ran.stderr.text(MAX_STREAM_JSON_BYTES);
    let (exit_code, signal) = match ran.exit {
        Ok(Exit::Code(code)) => (Some(code), None),
        Ok(Exit::Signal(signal)) => (None, Some(signal)),
        Ok(Exit::Lost) | Err(_) => (None, None),
    };
    let said = message(&stderr, &stdout);
    let structured = json!({
        "exit_code": exit_code, "signal": signal, "stdout": stdout, "stderr": stderr, "truncated": cut_out || cut_err,
        "duration_ms": took.as_millis() as u64,
    });
    let mut result = ToolResult { structured: Some(Raw::from(structured)), ..ToolResult::text(stdout) };
    let failure = |code: &str, message: String, result| {
        Err(Box::new(Outcome::Failed { error: Fault::new(code, message), result: Some(result) }))
    };
    match (ran.halted, exit_code, signal) {
        (Some(Outcome::Failed { error, .. }), _, _) => {
            result.is_error = true;
            failure(&error.code, format!("{}; the program and all it started were ended{said}", error.message), result)
        }
        (Some(outcome), _, _) => Err(Box::new(outcome)),
        (None, Some(0), _) => Ok(result),
        (None, Some(code), _) => {
            result.is_error = true;
            failure("exit_code", format!("exit code {code}{said}"), result)
        }
        (None, None, Some(signal)) => {
            result.is_error = true;
            failure("signal", format!("ended by signal {signal}{said}"), result)
        }
        (None, None, None) => Err(Box::new(Outcome::Unknown {
            reason: "the program's guard was killed; whether the program did its work is not known".to_owned(),
        })),
    }
}

/// The end of what the program said, for the failure's message.
fn message(stderr: &str, stdout: &str) -> String {
    let said = if stderr.trim().is_empty() { stdout.trim() } else { stderr.trim() };
    if said.is_empty() {
        return String::new();
    }
    let mut start = said.len().saturating_sub(MAX_MESSAGE_BYTES);
    while !said.is_char_boundary(start) {
        start += 1;
    }
    format!(": {}", &said[start..])
}

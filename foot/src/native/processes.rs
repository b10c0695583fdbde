//! Background processes: started by one call, looked at and stopped by others, gone when the Foot ends.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use vance_mcp_host::guard::{Exit, GuardedChild};
use vance_shared::call::Outcome;
use vance_shared::json::Raw;
use vance_shared::tool::ToolResult;

use super::gate::{Call, Gate};
use super::launch::{Launcher, Wanted};
use super::output::Ring;
use super::shell::collect;
use super::text::{MAX_JSON_BYTES, fit};
use super::{Ended, failed};

/// Processes that are kept, running or ended: together their output takes at most 32 MiB.
const MAX_PROCESSES: usize = 32;
/// Kept of each stream.
const STREAM_BYTES: usize = 512 * 1024;
/// Between SIGTERM and SIGKILL unless the call says otherwise.
const DEFAULT_GRACE: Duration = Duration::from_secs(5);
/// The same when the Foot itself ends.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);
/// Output of one call without `max_bytes`.
const DEFAULT_OUTPUT_BYTES: usize = 64 * 1024;
/// Words of a command line in a list.
const MAX_SHOWN_BYTES: usize = 500;

/// The started processes.
#[derive(Default)]
pub(super) struct Processes {
    // Calls run side by side; the lock is held for a look-up, never over an await.
    table: Mutex<Table>,
    tasks: TaskTracker,
}

#[derive(Default)]
struct Table {
    next: u64,
    /// By order of start.
    all: BTreeMap<u64, Arc<Process>>,
    closed: bool,
}

struct Process {
    id: String,
    line: String,
    name: Option<String>,
    pid: u32,
    started: Instant,
    stdout: Mutex<Ring>,
    stderr: Mutex<Ring>,
    /// Ends it; carries the grace.
    stop: watch::Sender<Option<Duration>>,
    stop_asked: CancellationToken,
    /// Changes with each output and at the end.
    news: watch::Sender<u64>,
    end: Mutex<Option<End>>,
    gone: CancellationToken,
}

#[derive(Clone, Copy)]
struct End {
    exit: Exit,
    after: Duration,
}

/// A panic while a lock is held cannot leave these values half-changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Deserialize)]
struct Start {
    #[serde(flatten)]
    wanted: Wanted,
    #[serde(default)]
    name: Option<String>,
}

pub(super) async fn start(gate: &Arc<Gate>, launcher: &Launcher, processes: &Processes, call: Call) -> Ended {
    let args: Start = call.parse()?;
    processes.check_room()?;
    let permitted = args.wanted.permit(gate, &call).await?;
    let child = launcher.start(&permitted).await?;
    let process = processes.keep(child, permitted.argv.join(" "), args.name).await?;
    Ok(ToolResult::structured(process.describe()))
}

#[derive(Debug, Deserialize)]
struct Status {
    #[serde(default)]
    process_id: Option<String>,
}

pub(super) async fn status(gate: &Gate, processes: &Processes, call: Call) -> Ended {
    let args: Status = call.parse()?;
    gate.permit_use(&call).await?;
    let wanted = match &args.process_id {
        Some(id) => vec![processes.find(id)?],
        None => lock(&processes.table).all.values().cloned().collect(),
    };
    let all: Vec<Value> = wanted.iter().map(|p| p.describe()).collect();
    Ok(ToolResult::structured(json!({"processes": all})))
}

#[derive(Debug, Deserialize)]
struct Output {
    process_id: String,
    #[serde(default)]
    stream: Stream,
    #[serde(default)]
    after: u64,
    #[serde(default)]
    max_bytes: Option<usize>,
    #[serde(default)]
    wait_ms: u64,
}

#[derive(Debug, Default, Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Stream {
    #[default]
    Stdout,
    Stderr,
}

pub(super) async fn output(gate: &Gate, processes: &Processes, call: Call) -> Ended {
    let args: Output = call.parse()?;
    gate.permit_use(&call).await?;
    let process = processes.find(&args.process_id)?;
    let ring = match args.stream {
        Stream::Stdout => &process.stdout,
        Stream::Stderr => &process.stderr,
    };
    let mut news = process.news.subscribe();
    let arrived = async {
        while lock(ring).total() <= args.after && lock(&process.end).is_none() {
            if news.changed().await.is_err() {
                return;
            }
        }
    };
    // Nothing new in time is an answer, too.
    if args.wait_ms > 0 && tokio::time::timeout(Duration::from_millis(args.wait_ms), arrived).await.is_err() {
        tracing::trace!("no new output in time");
    }
    let end = *lock(&process.end);
    let part = lock(ring).after(args.after, args.max_bytes.unwrap_or(DEFAULT_OUTPUT_BYTES), end.is_some());
    let text = fit(&part.text, MAX_JSON_BYTES).to_owned();
    let stream = match args.stream {
        Stream::Stdout => "stdout",
        Stream::Stderr => "stderr",
    };
    let (exit_code, signal) = codes(end);
    let structured = json!({
        "process_id": process.id, "stream": stream, "next_after": part.next, "lost_bytes": part.lost, "more": part.more,
        "running": end.is_none(), "exit_code": exit_code, "signal": signal,
    });
    Ok(ToolResult { structured: Some(Raw::from(structured)), ..ToolResult::text(text) })
}

#[derive(Debug, Deserialize)]
struct Stop {
    process_id: String,
    #[serde(default)]
    grace_ms: Option<u64>,
}

pub(super) async fn stop(gate: &Gate, processes: &Processes, call: Call) -> Ended {
    let args: Stop = call.parse()?;
    gate.permit_use(&call).await?;
    let process = processes.find(&args.process_id)?;
    process.end_within(args.grace_ms.map_or(DEFAULT_GRACE, Duration::from_millis));
    // It ends in any case; a call that is over before does not wait for it.
    tokio::select! {
        () = process.gone.cancelled() => Ok(ToolResult::structured(process.describe())),
        outcome = call.halt.reached() => Err(Box::new(outcome)),
    }
}

impl Processes {
    fn check_room(&self) -> Result<(), Box<Outcome>> {
        let table = lock(&self.table);
        if table.closed {
            return Err(failed("shutting_down", "this Foot is ending and starts nothing more"));
        }
        let running = table.all.values().filter(|p| lock(&p.end).is_none()).count();
        if running < MAX_PROCESSES {
            return Ok(());
        }
        Err(failed(
            "busy",
            format!(
                "{running} processes are running, at most {MAX_PROCESSES}; stop one with process_stop (process_status lists them)"
            ),
        ))
    }

    /// Takes a started child into the table, or ends it if there is no place any more.
    async fn keep(
        &self,
        mut child: GuardedChild,
        line: String,
        name: Option<String>,
    ) -> Result<Arc<Process>, Box<Outcome>> {
        let process = {
            let mut table = lock(&self.table);
            let ended: Vec<u64> = table.all.iter().filter(|(_, p)| lock(&p.end).is_some()).map(|(at, _)| *at).collect();
            let over = (table.all.len() + 1).saturating_sub(MAX_PROCESSES);
            for at in ended.into_iter().take(over) {
                table.all.remove(&at);
            }
            if table.closed || table.all.len() >= MAX_PROCESSES {
                None
            } else {
                table.next += 1;
                let at = table.next;
                let process = Arc::new(Process::new(&child, line, name));
                table.all.insert(at, Arc::clone(&process));
                Some(process)
            }
        };
        let Some(process) = process else {
            if let Err(error) = child.kill(Duration::ZERO).await {
                tracing::warn!(%error, "a process that found no place could not be ended");
            }
            self.check_room()?;
            return Err(failed("busy", "too many processes were started at once; try again"));
        };
        self.tasks.spawn(Arc::clone(&process).watch(child));
        Ok(process)
    }

    fn find(&self, id: &str) -> Result<Arc<Process>, Box<Outcome>> {
        lock(&self.table).all.values().find(|p| p.id == id).cloned().ok_or_else(|| {
            let id = vance_shared::show::quoted(id, 80);
            failed(
                "not_found",
                format!(
                    "there is no process {id}; process_status lists those that this Foot has started (they end with it)"
                ),
            )
        })
    }

    pub(super) async fn shutdown(&self) {
        {
            let mut table = lock(&self.table);
            table.closed = true;
            for process in table.all.values() {
                process.end_within(SHUTDOWN_GRACE);
            }
        }
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Process {
    fn new(child: &GuardedChild, line: String, name: Option<String>) -> Self {
        Self {
            // Not a plain number: an id from an earlier run of the Foot must not mean another process.
            id: format!("proc_{:08x}", fastrand::u32(..)),
            line: fit(&line, MAX_SHOWN_BYTES).to_owned(),
            name,
            pid: child.pid(),
            started: Instant::now(),
            stdout: Mutex::new(Ring::new(STREAM_BYTES)),
            stderr: Mutex::new(Ring::new(STREAM_BYTES)),
            stop: watch::Sender::new(None),
            stop_asked: CancellationToken::new(),
            news: watch::Sender::new(0),
            end: Mutex::new(None),
            gone: CancellationToken::new(),
        }
    }

    fn end_within(&self, grace: Duration) {
        self.stop.send_replace(Some(grace));
        self.stop_asked.cancel();
    }

    /// Reads its output and waits for its end.
    async fn watch(self: Arc<Self>, mut child: GuardedChild) {
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let take = |ring: &Mutex<Ring>, bytes: &[u8]| {
            lock(ring).push(bytes);
            self.news.send_modify(|n| *n += 1);
        };
        let reading =
            async { tokio::join!(collect(out, |b| take(&self.stdout, b)), collect(err, |b| take(&self.stderr, b))) };
        let ending = async {
            let exit = tokio::select! {
                exit = child.wait() => exit,
                () = self.stop_asked.cancelled() => {
                    let grace = self.stop.borrow().unwrap_or(DEFAULT_GRACE);
                    child.kill(grace).await
                }
            };
            exit.unwrap_or_else(|error| {
                tracing::warn!(%error, "the end of a process could not be seen");
                Exit::Lost
            })
        };
        tokio::pin!(reading);
        tokio::pin!(ending);
        let exit = tokio::select! {
            exit = &mut ending => {
                // Everything that could write is gone; what is in the pipes is read at once.
                if tokio::time::timeout(Duration::from_secs(2), &mut reading).await.is_err() {
                    tracing::warn!("a pipe of an ended process stays open");
                }
                exit
            }
            _ = &mut reading => ending.await,
        };
        *lock(&self.end) = Some(End { exit, after: self.started.elapsed() });
        self.news.send_modify(|n| *n += 1);
        self.gone.cancel();
    }

    fn describe(&self) -> Value {
        let end = *lock(&self.end);
        let (exit_code, signal) = codes(end);
        let ran = end.map_or_else(|| self.started.elapsed(), |e| e.after);
        json!({
            "process_id": self.id, "name": self.name, "command": self.line, "pid": self.pid, "running": end.is_none(),
            "exit_code": exit_code, "signal": signal, "duration_ms": ran.as_millis() as u64,
            "stdout_bytes": lock(&self.stdout).total(), "stderr_bytes": lock(&self.stderr).total(),
        })
    }
}

fn codes(end: Option<End>) -> (Option<i32>, Option<i32>) {
    match end.map(|e| e.exit) {
        Some(Exit::Code(code)) => (Some(code), None),
        Some(Exit::Signal(signal)) => (None, Some(signal)),
        Some(Exit::Lost) | None => (None, None),
    }
}

//! The Foot's side.

use std::collections::VecDeque;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::Duration;

use subtle::ConstantTimeEq as _;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, oneshot};
use tokio::task::AbortHandle;
use vance_shared::names::PackName;

use super::{Answer, Left, MAX_REQUEST_BYTES, Request, Shown, Waits, address, key, socket};
use crate::actors::loader::PackDesk;
use crate::paths::shown;
use crate::secret;

/// Commands that are served at once; a reload may wait for a person, so there are more than one makes by hand. Another one is told.
const MAX_AT_ONCE: usize = 16;
/// Connections that have not said anything yet. Beyond this the one that is silent for longest is told and ends: a command speaks at once.
const MAX_SILENT: usize = 32;
/// A command that has connected asks at once.
const ASK_WITHIN: Duration = Duration::from_secs(2);
/// Between two lines that say that an answer takes long. A command takes a Foot that says nothing for much longer for stopped.
const STILL_THERE: Duration = Duration::from_secs(2);
/// After an accept that failed (no descriptors left, say).
const PAUSE: Duration = Duration::from_secs(1);
/// Who does not show the key: a program behind the sandbox, which hides it, or another version of us.
const NO_KEY: &str = "this command does not show the Foot's key, which lies beside its socket: programs in a sandbox cannot tell a Foot what to do, and a command has to be of the Foot's own version. If its control.key is gone or was replaced, restart that Foot: it makes a new one";

/// A bound socket, or why there is none: a Foot without it works all the same.
pub(crate) struct Control {
    slot: PathBuf,
    bound: Option<(UnixListener, String)>,
}

/// Serves until it is dropped; then the files are gone.
pub(crate) struct Serving {
    slot: PathBuf,
    task: Option<AbortHandle>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            // Gone already: what we want.
            drop(std::fs::remove_file(socket(&self.slot)));
            drop(std::fs::remove_file(key(&self.slot)));
        }
    }
}

impl Control {
    /// In a slot that this process holds: what lies there is left over from a process that is gone.
    pub(crate) fn open(slot: &Path) -> Self {
        let path = socket(slot);
        let bind = || {
            for left_over in [&path, &key(slot)] {
                match std::fs::remove_file(left_over) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    Ok(()) | Err(_) => {}
                }
            }
            // Before the socket: who reaches that finds it.
            let key = secret::read_or_make(&key(slot))?;
            // The folder is 0700, so nobody reaches the socket before its own mode is set.
            let (address, _folder) = address(slot)?;
            let listener = UnixListener::bind(address)?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
            Ok((listener, key))
        };
        let bound = bind()
            .inspect_err(|error| {
                tracing::warn!(
                    "{}: {error}; `vancetope tools reload` and `vancetope trust revoke` do not reach this Foot",
                    shown(&path)
                );
            })
            .ok();
        Self { slot: slot.to_owned(), bound }
    }

    /// Serves on the current actor thread.
    pub(crate) fn serve(self, packs: PackDesk) -> Serving {
        let Self { slot, bound } = self;
        let task = bound.map(|(listener, key)| {
            let gate = packs.gate.clone();
            let does = Rc::new(async move |request| answer(request, &packs).await);
            let served = accept(listener, key, does, Rc::new(async move || gate.is_asking().await));
            tokio::task::spawn_local(served).abort_handle()
        });
        Serving { slot, task }
    }
}

/// `asks`: whether a question stands at the terminal.
async fn accept(
    listener: UnixListener,
    key: String,
    does: Rc<impl AsyncFn(Request) -> Answer + 'static>,
    asks: Rc<impl AsyncFn() -> bool + 'static>,
) {
    let (key, places) = (Rc::new(key), Rc::new(Semaphore::new(MAX_AT_ONCE)));
    let mut silent: VecDeque<oneshot::Sender<()>> = VecDeque::new();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                silent.retain(|one| !one.is_closed());
                if silent.len() >= MAX_SILENT
                    && let Some(longest) = silent.pop_front()
                    && longest.send(()).is_err()
                {
                    tracing::trace!("it has spoken meanwhile");
                }
                let (tell, told) = oneshot::channel();
                silent.push_back(tell);
                let (key, places, does) = (Rc::clone(&key), Rc::clone(&places), Rc::clone(&does));
                let asks = Rc::clone(&asks);
                tokio::task::spawn_local(async move {
                    if let Err(error) = one(stream, told, &key, &places, &*does, &*asks).await {
                        tracing::debug!("a command of this home was not answered: {error}");
                    }
                });
            }
            Err(error) => {
                tracing::warn!("the control socket: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// One connection. It takes a place only once its command was read and has shown the key.
async fn one(
    stream: UnixStream,
    told: oneshot::Receiver<()>,
    key: &str,
    places: &Semaphore,
    does: &impl AsyncFn(Request) -> Answer,
    asks: &impl AsyncFn() -> bool,
) -> io::Result<()> {
    let me = nix::unistd::geteuid().as_raw();
    if stream.peer_cred()?.uid() != me {
        return Err(io::Error::other("it is of another user"));
    }
    let (input, mut output) = stream.into_split();
    let mut line = String::new();
    let mut input = BufReader::new(input.take(MAX_REQUEST_BYTES));
    let read = tokio::select! {
        biased;
        read = tokio::time::timeout(ASK_WITHIN, input.read_line(&mut line)) => match read {
            Ok(read) => read.map(|_| None)?,
            Err(_) => Some(format!("there was no command within {} s", ASK_WITHIN.as_secs())),
        },
        told = told => match told {
            Ok(()) => Some(format!("more than {MAX_SILENT} connections say nothing; try again")),
            Err(_) => return Ok(()),
        },
    };
    let answer = match read {
        Some(why) => refused(why),
        None => {
            let mut served = std::pin::pin!(served(&line, key, places, does));
            loop {
                match tokio::time::timeout(STILL_THERE, &mut served).await {
                    Ok(answer) => break answer,
                    Err(_) => {
                        let waits = Some(if asks().await { Waits::Person } else { Waits::Work });
                        send(&mut output, &Answer { ok: true, waits, ..Answer::default() }).await?;
                    }
                }
            }
        }
    };
    send(&mut output, &answer).await
}

async fn send(output: &mut (impl AsyncWrite + Unpin), answer: &Answer) -> io::Result<()> {
    let mut text = serde_json::to_string(answer).map_err(io::Error::other)?;
    text.push('\n');
    output.write_all(text.as_bytes()).await
}

async fn served(line: &str, key: &str, places: &Semaphore, does: &impl AsyncFn(Request) -> Answer) -> Answer {
    let given = serde_json::from_str::<Shown>(line).map(|shown| shown.key).unwrap_or_default();
    if !bool::from(given.as_bytes().ct_eq(key.as_bytes())) {
        return refused(NO_KEY);
    }
    let Ok(_place) = places.try_acquire() else {
        return refused(format!("{MAX_AT_ONCE} other commands are under way; try again"));
    };
    match serde_json::from_str(line) {
        Ok(request) => does(request).await,
        Err(error) => refused(format!("not a request: {error}")),
    }
}

fn refused(why: impl Into<String>) -> Answer {
    Answer { error: Some(why.into()), ..Answer::default() }
}

async fn answer(request: Request, packs: &PackDesk) -> Answer {
    let ok = Answer { ok: true, ..Answer::default() };
    match request {
        Request::Reload => {
            let summary = packs.reload().await;
            let left_out = summary.skipped.iter().chain(&summary.failed).map(Left::from).collect();
            Answer { summary: Some(summary.to_string()), left_out, ..ok }
        }
        Request::Packs => Answer { packs: packs.list().await, ..ok },
        Request::Stop { pack } => match PackName::parse(&pack) {
            Ok(pack) => Answer { stopped: Some(packs.stop(pack).await), ..ok },
            Err(error) => refused(error.to_string()),
        },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::cell::Cell;

    use super::*;
    use crate::control::one_foot;
    use crate::identity::{Slot, Use};

    /// Answers in a slot, or hangs; counts what was asked of it.
    fn foot(slot: &Path, busy: bool) -> Rc<Cell<usize>> {
        let (listener, key) = Control::open(slot).bound.unwrap();
        let done = Rc::new(Cell::new(0));
        let counts = Rc::clone(&done);
        let does = Rc::new(async move |_| {
            counts.set(counts.get() + 1);
            if busy {
                std::future::pending::<()>().await;
            }
            Answer { ok: true, ..Answer::default() }
        });
        tokio::task::spawn_local(accept(listener, key, does, Rc::new(async || true)));
        done
    }

    async fn says(stream: UnixStream, line: &str) -> Answer {
        let (input, mut output) = stream.into_split();
        output.write_all(line.as_bytes()).await.unwrap();
        let mut answer = String::new();
        BufReader::new(input).read_line(&mut answer).await.unwrap();
        serde_json::from_str(&answer).unwrap()
    }

    fn story(tell: impl AsyncFnOnce(&Path)) {
        let home = tempfile::tempdir().unwrap();
        let slot = Slot::take(&home.path().join("state"), Use::Client).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            tokio::time::timeout(Duration::from_secs(60), tell(slot.dir())).await.unwrap();
        });
    }

    #[test]
    fn a_command_without_the_key_is_refused_and_does_nothing() {
        story(async |slot| {
            let done = foot(slot, false);
            let mode = std::fs::metadata(key(slot)).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600);
            for line in ["{\"do\":\"reload\"}\n", "{\"do\":\"reload\",\"key\":\"\"}\n", "{\"key\":\"x\"}\n", "x\n"] {
                let answer = says(UnixStream::connect(socket(slot)).await.unwrap(), line).await;
                assert!(!answer.ok && answer.error.as_deref() == Some(NO_KEY), "{line} {answer:?}");
            }
            assert_eq!(done.get(), 0);
            assert!(one_foot(slot, &Request::Reload).await.unwrap().unwrap().ok);
            assert_eq!(done.get(), 1);
            // Each start has a key of its own.
            let before = std::fs::read_to_string(key(slot)).unwrap();
            drop(Control::open(slot));
            assert_ne!(std::fs::read_to_string(key(slot)).unwrap(), before);
        });
    }

    #[test]
    fn connections_that_say_nothing_hold_up_nobody_and_are_answered() {
        story(async |slot| {
            foot(slot, false);
            let mut idle = Vec::new();
            for _ in 0..100 {
                idle.push(UnixStream::connect(socket(slot)).await.unwrap());
            }
            let asked = std::time::Instant::now();
            assert!(one_foot(slot, &Request::Reload).await.unwrap().unwrap().ok);
            assert!(asked.elapsed() < ASK_WITHIN, "before the deadline of those that say nothing");
            let last = idle.pop().unwrap();
            for (stream, why) in [(idle.remove(0), "connections say nothing"), (last, "no command within 2 s")] {
                let mut answer = String::new();
                BufReader::new(stream).read_line(&mut answer).await.unwrap();
                assert!(answer.contains(why), "{answer}");
            }
        });
    }

    #[test]
    fn more_commands_than_there_are_places_for_are_told() {
        story(async |slot| {
            let done = foot(slot, true);
            let many: Vec<_> = (0..MAX_AT_ONCE)
                .map(|_| {
                    let slot = slot.to_owned();
                    tokio::task::spawn_local(async move { one_foot(&slot, &Request::Reload).await.is_some() })
                })
                .collect();
            while done.get() < MAX_AT_ONCE {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            let answer = one_foot(slot, &Request::Reload).await.unwrap().unwrap();
            assert!(answer.error.as_deref().is_some_and(|why| why.contains("are under way")), "{answer:?}");
            many.iter().for_each(tokio::task::JoinHandle::abort);
        });
    }

    /// What is of another version, or took the socket's place, says what it likes.
    #[test]
    fn a_foot_that_asks_somebody_is_waited_for_and_what_it_says_is_safe_to_print() {
        story(async |slot| {
            let (listener, key) = Control::open(slot).bound.unwrap();
            let does = Rc::new(async move |_| {
                tokio::time::sleep(STILL_THERE * 2).await;
                let evil = "\u{1b}[2J\u{202e}".to_owned();
                let left = Left { pack: evil.clone(), file: evil.clone(), reason: evil.clone() };
                let (summary, error) = (Some(format!("1 \u{2192} {evil}")), Some(evil));
                Answer { ok: true, summary, error, left_out: vec![left], ..Answer::default() }
            });
            tokio::task::spawn_local(accept(listener, key.clone(), does, Rc::new(async || true)));
            let asked = serde_json::json!({"key": key, "do": "reload"}).to_string() + "\n";
            let first = says(UnixStream::connect(socket(slot)).await.unwrap(), &asked).await;
            assert_eq!((first.ok, first.waits), (true, Some(Waits::Person)));
            let answer = one_foot(slot, &Request::Reload).await.unwrap().unwrap();
            let text = format!("{:?}{:?}{:?}", answer.summary, answer.error, answer.left_out);
            assert!(text.contains('\u{2192}') && answer.left_out[0].reason.is_ascii(), "{text}");
            assert!(answer.summary.unwrap().chars().all(|c| c == '\u{2192}' || (' '..='~').contains(&c)));
        });
    }

    #[test]
    fn a_key_that_is_gone_or_replaced_under_a_running_foot_has_a_way_out() {
        story(async |slot| {
            foot(slot, false);
            for text in [None, Some("x".repeat(50)), Some(String::new())] {
                std::fs::remove_file(key(slot)).unwrap_or_default();
                if let Some(text) = &text {
                    std::fs::write(key(slot), text).unwrap();
                }
                let said = match one_foot(slot, &Request::Reload).await.unwrap() {
                    Ok(answer) => answer.error.unwrap(),
                    Err(why) => why.to_string(),
                };
                assert!(said.contains("restart that Foot"), "{text:?}: {said}");
            }
        });
    }
}

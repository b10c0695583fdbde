//! The command's side.

use std::io;
use std::path::Path;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;
use tokio::time::{Instant, sleep, timeout};

use vance_shared::show::plain;

use super::{Answer, Asked, MAX_ANSWER_BYTES, Request, Waits, address, key};
use crate::paths::shown;
use crate::secret;

/// What asks nobody is answered at once, and a Foot that needs longer says so all the time; one that is silent for longer hangs or is stopped.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// A Foot that starts has no socket yet, and one that ends has none any more.
const REACHED_WITHIN: Duration = Duration::from_secs(2);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(50);
/// Slots without a Brain have no socket: they end with their one command.
const WITH_SOCKET: &str = "client-";

/// A running Foot and what it answered, or why not.
pub(crate) struct Reached {
    /// Its slot: `client-0`.
    pub(crate) slot: String,
    pub(crate) answer: Result<Answer, Unanswered>,
}

/// Why there is no answer, said of the Foot.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unanswered {
    /// Its slot is held, and its socket does not answer.
    #[error("is running but cannot be reached ({0})")]
    Unreachable(io::Error),
    #[error("is running but did not answer within {} s: it hangs or is stopped", ANSWER_WITHIN.as_secs())]
    Late,
    #[error("could not be asked ({0})")]
    Failed(#[from] io::Error),
}

/// Asks every running Foot of a home. A reload may ask a person and is waited for as long as that takes.
pub(crate) async fn every_foot(state: &Path, request: &Request) -> Vec<Reached> {
    let mut reached = Vec::new();
    let Ok(slots) = std::fs::read_dir(state) else { return reached };
    let mut slots: Vec<_> = slots.filter_map(Result::ok).map(|entry| shown(entry.file_name().as_ref())).collect();
    slots.sort();
    for slot in slots {
        if let Some(answer) = one_foot(&state.join(&slot), request).await {
            reached.push(Reached { slot, answer });
        }
    }
    reached
}

/// Asks the Foot of a slot; none if there is none.
pub(crate) async fn one_foot(slot: &Path, request: &Request) -> Option<Result<Answer, Unanswered>> {
    let stream = match connected(slot).await? {
        Ok(stream) => stream,
        Err(error) => return Some(Err(Unanswered::Unreachable(error))),
    };
    let answer = match request {
        Request::Reload => ask(stream, slot, request).await,
        Request::Packs | Request::Stop { .. } => {
            timeout(ANSWER_WITHIN, ask(stream, slot, request)).await.unwrap_or(Err(Unanswered::Late))
        }
    };
    Some(answer)
}

/// No socket, or one that a killed Foot left behind, is no Foot, unless somebody holds the slot.
async fn connected(slot: &Path) -> Option<io::Result<UnixStream>> {
    let until = Instant::now() + REACHED_WITHIN;
    loop {
        // The folder stays open until the socket is reached through it.
        let connected = match address(slot) {
            Ok((address, _folder)) => UnixStream::connect(address).await,
            Err(error) => Err(error),
        };
        match connected {
            Ok(stream) => return Some(Ok(stream)),
            Err(_) if !is_held(slot) => return None,
            Err(error) if Instant::now() >= until => return Some(Err(error)),
            Err(_) => sleep(PAUSE).await,
        }
    }
}

fn is_held(slot: &Path) -> bool {
    if !slot.file_name().is_some_and(|name| name.to_string_lossy().starts_with(WITH_SOCKET)) {
        return false;
    }
    let Ok(file) = vance_own_file::open(&slot.join("lock")) else { return false };
    matches!(Flock::lock(file, FlockArg::LockSharedNonblock), Err((_, Errno::EWOULDBLOCK)))
}

async fn ask(stream: UnixStream, slot: &Path, request: &Request) -> Result<Answer, Unanswered> {
    let key = match secret::read(&key(slot)) {
        Ok(key) => key,
        // A Foot of a version without one; any other says that it wants one.
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => {
            let why = format!("its key cannot be used: {error}; restart that Foot, which makes a new one");
            return Err(io::Error::other(why).into());
        }
    };
    let (input, mut output) = stream.into_split();
    let mut line = serde_json::to_string(&Asked { key: &key, request }).map_err(io::Error::from)?;
    line.push('\n');
    output.write_all(line.as_bytes()).await?;
    let (mut input, mut told) = (BufReader::new(input.take(MAX_ANSWER_BYTES)), None);
    loop {
        let mut answer = String::new();
        let Ok(read) = timeout(ANSWER_WITHIN, input.read_line(&mut answer)).await else {
            return Err(Unanswered::Late);
        };
        if read? == 0 {
            return Err(io::Error::other("it ended before it answered").into());
        }
        let answer: Answer =
            serde_json::from_str(&answer).map_err(|error| io::Error::other(plain(&error.to_string())))?;
        let Some(waits) = answer.waits else { return Ok(answer.made_plain()) };
        if told.replace(waits) != Some(waits) {
            let slot = slot.file_name().map(|name| plain(&name.to_string_lossy())).unwrap_or_default();
            match waits {
                Waits::Person => tracing::warn!("{slot}: a question waits for an answer at that Foot's own terminal"),
                Waits::Work => tracing::info!("{slot}: packs are still starting"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::control::socket;
    use crate::identity::{Slot, Use};

    #[tokio::test]
    async fn a_slot_that_is_held_is_a_foot_also_if_nobody_answers_in_it() {
        let home = tempfile::tempdir().unwrap();
        // Too long for a socket's own address.
        let state = home.path().join("x".repeat(120)).join("state");
        let slot = Slot::take(&state, Use::Client).unwrap();
        let local = Slot::take(&state, Use::Local).unwrap();
        let reached = every_foot(&state, &Request::Packs).await;
        let said: Vec<_> =
            reached.iter().map(|r| (r.slot.as_str(), r.answer.as_ref().unwrap_err().to_string())).collect();
        assert!(
            matches!(&said[..], [("client-0", why)] if why.starts_with("is running but cannot be reached")),
            "{said:?}"
        );
        let (address, folder) = address(slot.dir()).unwrap();
        let listener = tokio::net::UnixListener::bind(address).unwrap();
        drop(folder);
        assert!(socket(slot.dir()).exists());
        tokio::time::pause();
        let (asked, accepted) = tokio::join!(one_foot(slot.dir(), &Request::Packs), listener.accept());
        assert!(matches!(asked, Some(Err(Unanswered::Late))));
        let (asked, reload) = tokio::join!(one_foot(slot.dir(), &Request::Reload), listener.accept());
        assert!(matches!(asked, Some(Err(Unanswered::Late))), "a reload that nobody hears has an end, too");
        drop((reload, accepted, listener, slot, local));
        assert!(one_foot(&state.join("client-0"), &Request::Packs).await.is_none());
    }
}

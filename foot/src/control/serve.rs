//! The Foot's side.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use vance_shared::names::PackName;

use super::{Answer, Left, MAX_LINE_BYTES, Request, address, socket};
use crate::actors::loader::PackDesk;
use crate::paths::shown;

/// Commands that are served at once; more wait in the socket's queue.
const MAX_AT_ONCE: usize = 8;
/// A command that has connected asks at once.
const ASK_WITHIN: Duration = Duration::from_secs(5);
/// After an accept that failed (no descriptors left, say).
const PAUSE: Duration = Duration::from_secs(1);

/// A bound socket, or why there is none: a Foot without it works all the same.
pub(crate) struct Control {
    path: PathBuf,
    listener: Option<UnixListener>,
}

/// Serves until it is dropped; then the file is gone.
pub(crate) struct Serving {
    path: PathBuf,
    task: Option<AbortHandle>,
}

impl Drop for Serving {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
            // Gone already: what we want.
            drop(std::fs::remove_file(&self.path));
        }
    }
}

impl Control {
    /// In a slot that this process holds: what lies there is left over from a process that is gone.
    pub(crate) fn open(slot: &Path) -> Self {
        let path = socket(slot);
        let bind = || {
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                Ok(()) | Err(_) => {}
            }
            // The folder is 0700, so nobody reaches the socket before its own mode is set.
            let (address, _folder) = address(slot)?;
            let listener = UnixListener::bind(address)?;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600))?;
            Ok(listener)
        };
        let listener = bind()
            .inspect_err(|error| {
                tracing::warn!(
                    "{}: {error}; `vancetope tools reload` and `vancetope trust revoke` do not reach this Foot",
                    shown(&path)
                );
            })
            .ok();
        Self { path, listener }
    }

    /// Serves on the current actor thread.
    pub(crate) fn serve(self, packs: PackDesk) -> Serving {
        let Self { path, listener } = self;
        let task = listener.map(|listener| tokio::task::spawn_local(accept(listener, packs)).abort_handle());
        Serving { path, task }
    }
}

async fn accept(listener: UnixListener, packs: PackDesk) {
    let places = Arc::new(Semaphore::new(MAX_AT_ONCE));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let packs = packs.clone();
                tokio::task::spawn_local(async move {
                    if let Err(error) = one(stream, packs).await {
                        tracing::debug!("a command of this home was not answered: {error}");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!("the control socket: {error}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn one(stream: UnixStream, packs: PackDesk) -> io::Result<()> {
    let me = nix::unistd::geteuid().as_raw();
    if stream.peer_cred()?.uid() != me {
        return Err(io::Error::other("it is of another user"));
    }
    let (input, mut output) = stream.into_split();
    let mut line = String::new();
    let mut input = BufReader::new(input.take(MAX_LINE_BYTES));
    tokio::time::timeout(ASK_WITHIN, input.read_line(&mut line)).await.map_err(io::Error::other)??;
    let answer = match serde_json::from_str(&line) {
        Ok(request) => answer(request, &packs).await,
        Err(error) => Answer { error: Some(format!("not a request: {error}")), ..Answer::default() },
    };
    let mut text = serde_json::to_string(&answer).map_err(io::Error::other)?;
    text.push('\n');
    output.write_all(text.as_bytes()).await
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
            Err(error) => Answer { error: Some(error.to_string()), ..Answer::default() },
        },
    }
}

//! Ctrl-C and SIGTERM as values, so that a loop can wait for them beside everything else.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// A wish of the person or of the service manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupt {
    /// Ctrl-C.
    CtrlC,
    /// SIGTERM, or the terminal is gone.
    Terminate,
}

/// Wishes that nobody heard yet; a person who presses more often than this means the same.
const WAITING: usize = 8;

/// The process's signals from here on; the default (sudden death) is off.
#[derive(Debug)]
pub struct Interrupts(mpsc::Receiver<Interrupt>);

impl Interrupts {
    /// Starts to listen. Needs a tokio runtime.
    pub fn listen() -> std::io::Result<Self> {
        let (tell, wishes) = mpsc::channel(WAITING);
        for (kind, interrupt) in [
            (SignalKind::interrupt(), Interrupt::CtrlC),
            (SignalKind::terminate(), Interrupt::Terminate),
            (SignalKind::hangup(), Interrupt::Terminate),
        ] {
            let mut signals = signal(kind)?;
            let tell = tell.clone();
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    if tell.send(interrupt).await.is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Self(wishes))
    }

    /// From a channel: for a caller that has no signals of its own.
    pub fn from_channel(wishes: mpsc::Receiver<Interrupt>) -> Self {
        Self(wishes)
    }

    /// The next wish. Waits for ever when nobody can wish any more. Safe to drop and call again.
    pub(super) async fn next(&mut self) -> Interrupt {
        match self.0.recv().await {
            Some(interrupt) => interrupt,
            None => std::future::pending().await,
        }
    }
}

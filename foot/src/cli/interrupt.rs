//! Ctrl-C and SIGTERM as values, so that a loop can wait for them beside everything else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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
pub struct Interrupts {
    wishes: mpsc::Receiver<Interrupt>,
    /// Counts them, for a question that is open: it ends with the first one, whoever takes the wish itself.
    pressed: Arc<AtomicU64>,
}

impl Interrupts {
    /// Starts to listen. Needs a tokio runtime.
    pub fn listen() -> std::io::Result<Self> {
        let (tell, wishes) = mpsc::channel(WAITING);
        let pressed = Arc::new(AtomicU64::new(0));
        for (kind, interrupt) in [
            (SignalKind::interrupt(), Interrupt::CtrlC),
            (SignalKind::terminate(), Interrupt::Terminate),
            (SignalKind::hangup(), Interrupt::Terminate),
        ] {
            let mut signals = signal(kind)?;
            let (tell, pressed) = (tell.clone(), Arc::clone(&pressed));
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    pressed.fetch_add(1, Ordering::Relaxed);
                    if tell.send(interrupt).await.is_err() {
                        return;
                    }
                }
            });
        }
        Ok(Self { wishes, pressed })
    }

    /// From a channel: for a caller that has no signals of its own.
    pub fn from_channel(wishes: mpsc::Receiver<Interrupt>) -> Self {
        Self { wishes, pressed: Arc::default() }
    }

    /// Wishes that reach a command of the prompt, which hands them on. A question in it ends with Ctrl-C all the same.
    pub(super) fn handed_on(wishes: mpsc::Receiver<Interrupt>, pressed: Arc<AtomicU64>) -> Self {
        Self { wishes, pressed }
    }

    /// How many there were.
    pub(super) fn pressed(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.pressed)
    }

    /// The next wish. Waits for ever when nobody can wish any more. Safe to drop and call again.
    pub(super) async fn next(&mut self) -> Interrupt {
        match self.wishes.recv().await {
            Some(interrupt) => interrupt,
            None => std::future::pending().await,
        }
    }
}

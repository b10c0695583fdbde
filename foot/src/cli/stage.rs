//! The terminal as all threads of a command write on it: lines above, the live view or the line editor below, and at times a
//! question, which nothing may run into. While one is open the live view and the editor are away and lines wait until it is
//! answered.

use std::io::{self, IsTerminal as _, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use indicatif::{MultiProgress, ProgressDrawTarget};

mod editor;
mod typing;
pub(super) use editor::Bell;
use editor::Keyboard;
pub(super) use typing::KeysWait;
use typing::Modes;

/// Bytes that wait for the end of a question: a minute of a talkative log. Beyond it they are written into the question rather than lost.
const MAX_HELD_BYTES: usize = 256 * 1024;

/// The two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Out,
    Err,
}

/// One for the process; clones are the same stage.
#[derive(Debug, Clone)]
pub struct Stage {
    live: MultiProgress,
    floor: Arc<Floor>,
    /// A question may be asked here: the streams are the process's own.
    own: bool,
    /// Standard output is the terminal, too.
    out_is_terminal: bool,
}

/// Who may write now, and the way to wait for one's turn.
#[derive(Debug, Default)]
struct Floor {
    // Log lines come from any thread, so a lock: it also keeps a question or the editor from beginning in the middle of a line.
    now: Mutex<Now>,
    turn: Condvar,
}

#[derive(Debug, Default)]
struct Now {
    question: Option<Held>,
    keyboard: Keyboard,
    /// While the prompt runs.
    modes: Option<Modes>,
}

/// What waits for the end of a question.
#[derive(Debug, Default)]
struct Held {
    lines: Vec<(Stream, Vec<u8>)>,
    bytes: usize,
}

impl Floor {
    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stage {
    /// The process's own.
    pub fn of_process() -> Self {
        let out_is_terminal = io::stdout().is_terminal();
        Self { live: MultiProgress::new(), floor: Arc::default(), own: true, out_is_terminal }
    }

    /// Where nobody looks on and nobody is asked.
    pub(super) fn hidden() -> Self {
        let live = MultiProgress::with_draw_target(ProgressDrawTarget::hidden());
        Self { live, floor: Arc::default(), own: false, out_is_terminal: false }
    }

    /// True if these are the process's own streams.
    pub(super) fn is_own(&self) -> bool {
        self.own
    }

    /// The live view.
    pub(super) fn live(&self) -> &MultiProgress {
        &self.live
    }

    /// Writes whole lines above the live view or the editor, or keeps them while a question is open.
    pub(super) fn write(&self, to: Stream, text: &[u8], writer: &mut dyn Write) -> io::Result<()> {
        let mut now = self.floor.now();
        if let Some(held) = now.question.as_mut().filter(|held| held.bytes + text.len() <= MAX_HELD_BYTES) {
            held.bytes += text.len();
            held.lines.push((to, text.to_owned()));
            return Ok(());
        }
        let on_terminal = to == Stream::Err || self.out_is_terminal;
        if on_terminal && now.keyboard.shows_above(text) {
            return Ok(());
        }
        self.live.suspend(|| writer.write_all(text).and_then(|()| writer.flush()))
    }

    /// Says something to the person, whatever is logged.
    pub(super) fn remark(&self, text: &str) {
        if let Err(error) = self.write(Stream::Err, format!("vancetope: {text}\n").as_bytes(), &mut io::stderr()) {
            tracing::debug!("a remark was not written: {error}");
        }
    }

    /// Begins a question, once there is no other one and the editor has left the keyboard. It ends when what this gives is dropped. Not
    /// for the editor's own thread.
    pub(super) fn question(&self) -> Quiet {
        let mut now = self.floor.now();
        // Whoever asks, there is one keyboard: an answer must not be heard by another question.
        while now.question.is_some() {
            now = self.floor.turn.wait(now).unwrap_or_else(PoisonError::into_inner);
        }
        now.question = Some(Held::default());
        if let Err(error) = self.live.clear() {
            tracing::debug!("the live view was not cleared: {error}");
        }
        // Not `suspend`: it would hold up everybody who reports progress, for as long as the person thinks.
        self.live.set_draw_target(ProgressDrawTarget::hidden());
        self.until_keyboard_is_free(now);
        if let Some(modes) = &self.floor.now().modes {
            modes.before();
        }
        Quiet(self.clone())
    }

    /// True while a question is open.
    pub(super) fn is_asking(&self) -> bool {
        self.floor.now().question.is_some()
    }

    /// Ends a question, if one is open: what waited is written. The last words of a command must not wait for an answer.
    pub(super) fn release(&self) {
        let mut now = self.floor.now();
        let Some(Held { lines, .. }) = now.question.take() else { return };
        if let Some(modes) = &now.modes {
            modes.between();
        }
        for (to, text) in lines {
            let written = match to {
                Stream::Out => io::stdout().write_all(&text).and_then(|()| io::stdout().flush()),
                Stream::Err => io::stderr().write_all(&text),
            };
            if written.is_err() {
                // The reader is gone; whoever writes the next result finds out and says so.
                break;
            }
        }
        self.live.set_draw_target(ProgressDrawTarget::stderr());
        // Draws it at once: what only waits has no tick that would.
        self.live.suspend(|| {});
        self.floor.turn.notify_all();
    }
}

/// A question is open.
#[derive(Debug)]
pub(super) struct Quiet(Stage);

impl Drop for Quiet {
    fn drop(&mut self) {
        self.0.release();
    }
}

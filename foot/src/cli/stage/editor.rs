//! The line editor on the stage: while it reads it owns the terminal, so lines of others are handed to it, and a question first
//! makes it step aside.
//!
//! | keyboard | a line of somebody        | a question begins        | the end begins       |
//! |----------|---------------------------|--------------------------|----------------------|
//! | Free     | is written                | is asked                 | nothing reads again  |
//! | Reading  | is kept, the bell is rung | bell: stop, until `Free` | bell: stop           |

use std::io::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use super::{MAX_HELD_BYTES, Now, Stage};

/// Until a question is asked although the editor still reads: it looks many times a second. Who types an answer then types it
/// into the editor, so it counts as none.
const STEP_ASIDE_WITHIN: Duration = Duration::from_secs(5);

/// How an editor that reads is reached from other threads.
#[derive(Clone)]
pub(in crate::cli) struct Bell {
    /// Stop reading, keep what is typed.
    pub(in crate::cli) stop: Arc<AtomicBool>,
    /// There are lines to be shown above. One token is enough for any number of them.
    pub(in crate::cli) above: SyncSender<String>,
    /// What the editor's channel of lines is sent.
    pub(in crate::cli) token: &'static str,
    /// Paint the prompt again.
    pub(in crate::cli) repaint: Arc<dyn Fn() + Send + Sync>,
}

impl std::fmt::Debug for Bell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Bell")
    }
}

/// Who reads the keyboard, and what waits to be shown above the line that is typed.
#[derive(Debug, Default)]
pub(super) struct Keyboard {
    reading: Option<Bell>,
    above: Vec<u8>,
    /// Lines beyond what is kept.
    lost: usize,
    closed: bool,
}

impl Keyboard {
    /// Takes lines for an editor that reads; false if none does.
    pub(super) fn shows_above(&mut self, text: &[u8]) -> bool {
        let Some(bell) = &self.reading else { return false };
        if self.above.len() + text.len() > MAX_HELD_BYTES && !self.above.is_empty() {
            self.lost += text.split(|b| *b == b'\n').count().saturating_sub(1);
            return true;
        }
        self.above.extend_from_slice(text);
        // A full channel: a token is on its way already. A closed one: the editor takes them when it leaves.
        drop(bell.above.try_send(bell.token.to_owned()));
        true
    }

    fn take(&mut self) -> Vec<u8> {
        let mut text = std::mem::take(&mut self.above);
        let lost = std::mem::take(&mut self.lost);
        if lost > 0 {
            text.extend_from_slice(format!("vancetope: {lost} line(s) came too fast to be shown\n").as_bytes());
        }
        text
    }
}

/// For the editor's own thread.
impl Stage {
    /// Takes the keyboard, after a question that is open. False once the end has begun.
    pub(in crate::cli) fn takes_keyboard(&self, bell: Bell) -> bool {
        let mut now = self.floor.now();
        while now.question.is_some() && !now.keyboard.closed {
            now = self.floor.turn.wait(now).unwrap_or_else(PoisonError::into_inner);
        }
        if !now.keyboard.closed {
            now.keyboard.reading = Some(bell);
        }
        !now.keyboard.closed
    }

    /// The lines that are to be shown above what is typed.
    pub(in crate::cli) fn lines_above(&self) -> Vec<u8> {
        self.floor.now().keyboard.take()
    }

    /// Gives the keyboard back; what was not shown so far is written now.
    pub(in crate::cli) fn leaves_keyboard(&self) {
        let mut now = self.floor.now();
        now.keyboard.reading = None;
        let rest = now.keyboard.take();
        if let Err(error) = io::stderr().write_all(&rest) {
            tracing::debug!("the terminal was not written: {error}");
        }
        self.floor.turn.notify_all();
    }
}

/// For everybody else.
impl Stage {
    /// Paints the prompt again, if there is one.
    pub(in crate::cli) fn repaint(&self) {
        if let Some(bell) = &self.floor.now().keyboard.reading {
            (bell.repaint)();
        }
    }

    /// Lets no editor read from here on; one that reads stops.
    pub(in crate::cli) fn closes_keyboard(&self) {
        let mut now = self.floor.now();
        now.keyboard.closed = true;
        if let Some(bell) = &now.keyboard.reading {
            bell.stop.store(true, Ordering::Relaxed);
        }
        self.floor.turn.notify_all();
    }

    /// Makes an editor that reads step aside.
    pub(super) fn until_keyboard_is_free(&self, now: MutexGuard<'_, Now>) {
        let Some(bell) = &now.keyboard.reading else { return };
        bell.stop.store(true, Ordering::Relaxed);
        let waited = self.floor.turn.wait_timeout_while(now, STEP_ASIDE_WITHIN, |now| now.keyboard.reading.is_some());
        if waited.is_ok_and(|(_, waited)| waited.timed_out()) {
            tracing::warn!("the line editor did not step aside for a question");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::sync::mpsc::{Receiver, sync_channel};

    use super::super::Stream;
    use super::*;

    fn bell() -> (Bell, Receiver<String>) {
        let (above, rung) = sync_channel(1);
        (Bell { stop: Arc::default(), above, token: "!", repaint: Arc::new(|| {}) }, rung)
    }

    #[test]
    fn lines_go_to_the_editor_while_it_reads_and_to_the_terminal_otherwise() {
        let stage = Stage::hidden();
        let (bell, rung) = bell();
        let mut direct = Vec::new();
        stage.write(Stream::Err, b"before\n", &mut direct).unwrap();
        assert!(stage.takes_keyboard(bell));
        for line in ["one\n", "two\n"] {
            stage.write(Stream::Err, line.as_bytes(), &mut direct).unwrap();
        }
        assert_eq!((rung.try_iter().count(), stage.lines_above()), (1, b"one\ntwo\n".to_vec()));
        stage.write(Stream::Out, b"a pipe\n", &mut direct).unwrap();
        stage.leaves_keyboard();
        stage.write(Stream::Err, b"after\n", &mut direct).unwrap();
        assert_eq!(direct, b"before\na pipe\nafter\n");
    }

    #[test]
    fn what_comes_too_fast_is_counted() {
        let stage = Stage::hidden();
        assert!(stage.takes_keyboard(bell().0));
        let long = [b"x".repeat(MAX_HELD_BYTES - 1), b"\n".to_vec()].concat();
        for text in [long.as_slice(), b"a\nb\n", b"c\n"] {
            stage.write(Stream::Err, text, &mut Vec::new()).unwrap();
        }
        let shown = String::from_utf8(stage.lines_above()).unwrap();
        assert!(shown.ends_with("x\nvancetope: 3 line(s) came too fast to be shown\n"));
    }

    #[test]
    fn a_question_waits_for_the_one_before_it() {
        let stage = Stage::hidden();
        let first = stage.question();
        let second = {
            let stage = stage.clone();
            std::thread::spawn(move || stage.question())
        };
        std::thread::sleep(Duration::from_millis(20));
        assert!(!second.is_finished() && stage.is_asking());
        drop(first);
        drop(second.join().unwrap());
        assert!(!stage.is_asking());
    }

    #[test]
    fn a_question_waits_for_the_editor_and_the_editor_for_the_question() {
        let stage = Stage::hidden();
        let (bell, _rung) = bell();
        assert!(stage.takes_keyboard(bell.clone()));
        let asking = {
            let stage = stage.clone();
            std::thread::spawn(move || stage.question())
        };
        while !bell.stop.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        assert!(!asking.is_finished());
        stage.leaves_keyboard();
        let quiet = asking.join().unwrap();
        let again = {
            let (stage, bell) = (stage.clone(), bell.clone());
            std::thread::spawn(move || stage.takes_keyboard(bell))
        };
        drop(quiet);
        assert!(again.join().unwrap());
        stage.closes_keyboard();
        stage.leaves_keyboard();
        assert!(!stage.takes_keyboard(bell), "after the end nobody reads");
    }
}

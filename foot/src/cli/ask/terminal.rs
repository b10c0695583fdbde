//! A terminal as a place to ask: prints, drops what was typed before, and waits for one whole line.

use std::io::Write;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::termios::{FlushArg, tcflush};
use nix::unistd::{getpgrp, read, tcgetpgrp};

/// Between two looks at whether the question still stands.
const LOOK_MS: u16 = 50;
/// Longest line that is looked at, in bytes: an answer is a character or a value.
pub(super) const MAX_LINE_BYTES: usize = 1024;

/// How asking went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Heard {
    /// A whole line, typed after the question stood there.
    Line(String),
    /// More than a line may be.
    TooLong,
    /// Nothing in time.
    Silence,
    /// The input has ended.
    End,
    /// Ctrl-C.
    Interrupted,
    /// Whoever wanted to know does not any more.
    TakenBack,
    /// The terminal failed.
    Fault(String),
}

/// A terminal.
pub(super) struct Terminal {
    input: OwnedFd,
    output: Box<dyn Write + Send>,
    /// Counts Ctrl-C.
    pressed: Arc<AtomicU64>,
    patience: Duration,
}

impl Terminal {
    pub(super) fn new(
        input: OwnedFd,
        output: Box<dyn Write + Send>,
        pressed: Arc<AtomicU64>,
        patience: Duration,
    ) -> Self {
        Self { input, output, pressed, patience }
    }

    /// Until silence is an answer.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    /// False for a background job: reading would stop the whole program.
    pub(super) fn is_ours(&self) -> bool {
        // A terminal without job control has no foreground to be in.
        tcgetpgrp(self.input.as_fd()).map_or(true, |group| group == getpgrp())
    }

    /// Says a line. If the terminal is gone, so is who would read it.
    pub(super) fn say(&mut self, text: &str) {
        if let Err(error) = writeln!(self.output, "{text}").and_then(|()| self.output.flush()) {
            tracing::debug!("the terminal was not written: {error}");
        }
    }

    /// Asks. `taken_back` is looked at again and again.
    pub(super) fn ask(&mut self, text: &str, choices: &str, taken_back: &mut dyn FnMut() -> bool) -> Heard {
        self.ask_within(self.patience, text, choices, taken_back)
    }

    /// The same with a patience of its own.
    pub(super) fn ask_within(
        &mut self,
        patience: Duration,
        text: &str,
        choices: &str,
        taken_back: &mut dyn FnMut() -> bool,
    ) -> Heard {
        let pressed = self.pressed.load(Ordering::Relaxed);
        let asked = write!(self.output, "{text}")
            .and_then(|()| self.output.flush())
            .and_then(|()| Ok(tcflush(self.input.as_fd(), FlushArg::TCIFLUSH)?))
            .and_then(|()| write!(self.output, "{choices}"))
            .and_then(|()| self.output.flush());
        if let Err(error) = asked {
            return Heard::Fault(error.to_string());
        }
        let heard = self.listen(pressed, Instant::now() + patience, taken_back);
        if !matches!(heard, Heard::Line(_)) {
            // Half an answer must not become a command of the shell, or the answer to the next question.
            if let Err(error) = tcflush(self.input.as_fd(), FlushArg::TCIFLUSH) {
                tracing::debug!("the terminal's input was not dropped: {error}");
            }
        }
        heard
    }

    fn listen(&self, pressed: u64, until: Instant, taken_back: &mut dyn FnMut() -> bool) -> Heard {
        let mut line = Vec::new();
        loop {
            if self.pressed.load(Ordering::Relaxed) != pressed {
                return Heard::Interrupted;
            }
            if taken_back() {
                return Heard::TakenBack;
            }
            if Instant::now() >= until {
                return Heard::Silence;
            }
            let mut ready = [PollFd::new(self.input.as_fd(), PollFlags::POLLIN)];
            match poll(&mut ready, PollTimeout::from(LOOK_MS)) {
                Ok(0) | Err(Errno::EINTR) => continue,
                Ok(_) => {}
                Err(error) => return Heard::Fault(error.to_string()),
            }
            let mut chunk = [0; MAX_LINE_BYTES];
            match read(self.input.as_fd(), &mut chunk) {
                Ok(0) => return Heard::End,
                Ok(n) => line.extend_from_slice(&chunk[..n]),
                Err(Errno::EINTR | Errno::EAGAIN) => continue,
                // The other end has hung up.
                Err(Errno::EIO) => return Heard::End,
                Err(error) => return Heard::Fault(error.to_string()),
            }
            if let Some(end) = line.iter().position(|b| *b == b'\n') {
                return Heard::Line(String::from_utf8_lossy(&line[..end]).into_owned());
            }
            if line.len() > MAX_LINE_BYTES {
                return Heard::TooLong;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::fs::File;
    use std::io::Read as _;

    use nix::pty::{OpenptyResult, openpty};

    use super::*;

    /// Generous: no test waits so long unless something is wrong.
    const LONG: Duration = Duration::from_secs(30);

    struct Desk {
        terminal: Terminal,
        master: File,
        pressed: Arc<AtomicU64>,
    }

    fn desk(patience: Duration) -> Desk {
        let OpenptyResult { master, slave } = openpty(None, None).unwrap();
        let (output, pressed) = (File::from(slave.try_clone().unwrap()), Arc::new(AtomicU64::new(0)));
        let terminal = Terminal::new(slave, Box::new(output), Arc::clone(&pressed), patience);
        Desk { terminal, master: File::from(master), pressed }
    }

    /// Reads until the choices stand there.
    fn until_asked(master: &mut File) {
        let (mut seen, mut byte) = (Vec::new(), [0]);
        while !seen.ends_with(b"?> ") {
            assert_eq!(master.read(&mut byte).unwrap(), 1);
            seen.push(byte[0]);
        }
    }

    /// Asks on a thread, types once the question stands there, and gives what was heard.
    fn typed(before: &str, after: &str) -> Heard {
        let Desk { mut terminal, mut master, .. } = desk(LONG);
        master.write_all(before.as_bytes()).unwrap();
        let asking = std::thread::spawn(move || terminal.ask("may I\n", "?> ", &mut || false));
        until_asked(&mut master);
        master.write_all(after.as_bytes()).unwrap();
        asking.join().unwrap()
    }

    #[test]
    fn one_whole_line_typed_after_the_question_is_the_answer() {
        for (before, after, want) in [
            ("", "1\n", Heard::Line("1".to_owned())),
            ("", "3\n1\n", Heard::Line("3".to_owned())),
            ("", "rubbish\n", Heard::Line("rubbish".to_owned())),
            ("", "\n", Heard::Line(String::new())),
            ("1\n", "3\n", Heard::Line("3".to_owned())),
            ("1", "\n", Heard::Line(String::new())),
            ("1\n1\n1\n", "\u{4}", Heard::End),
            ("", "\u{4}", Heard::End),
        ] {
            assert_eq!(typed(before, after), want, "before {before:?}, after {after:?}");
        }
    }

    #[test]
    fn silence_half_a_line_and_a_terminal_that_hangs_up_are_no_answer() {
        let Desk { mut terminal, mut master, .. } = desk(Duration::from_millis(200));
        assert_eq!(terminal.ask("", "?> ", &mut || false), Heard::Silence);
        let asking = std::thread::spawn(move || terminal.ask("", "?> ", &mut || false));
        until_asked(&mut master);
        until_asked(&mut master);
        master.write_all(b"1").unwrap();
        assert_eq!(asking.join().unwrap(), Heard::Silence);

        let Desk { mut terminal, mut master, .. } = desk(LONG);
        let asking = std::thread::spawn(move || terminal.ask("", "?> ", &mut || false));
        until_asked(&mut master);
        drop(master);
        assert_eq!(asking.join().unwrap(), Heard::End);
    }

    #[test]
    fn ctrl_c_and_a_question_taken_back_end_it_at_once() {
        let Desk { mut terminal, mut master, pressed } = self::desk(LONG);
        let asking = std::thread::spawn(move || terminal.ask("", "?> ", &mut || false));
        until_asked(&mut master);
        pressed.fetch_add(1, Ordering::Relaxed);
        assert_eq!(asking.join().unwrap(), Heard::Interrupted);
        let mut desk = desk(LONG);
        assert_eq!(desk.terminal.ask("", "?> ", &mut || true), Heard::TakenBack);
    }
}

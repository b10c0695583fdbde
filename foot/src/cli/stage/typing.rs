//! The terminal's own modes while the prompt runs but its editor does not read. As a shell finds it, a terminal would show what is typed
//! in the middle of a command's output, and would turn the Enter of a line that is typed ahead into another key than the editor knows;
//! what stands behind that is lost. So between two lines nothing shows and every key waits as it is; Ctrl-C stays a signal. For a question
//! the terminal is as it was.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use nix::sys::termios::{InputFlags, LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use nix::unistd::{getpgrp, tcgetpgrp};

use super::Stage;

/// Both modes of a terminal.
#[derive(Debug)]
pub(super) struct Modes {
    input: OwnedFd,
    before: Termios,
    between: Termios,
}

impl Modes {
    fn of(input: OwnedFd) -> io::Result<Self> {
        let before = tcgetattr(&input)?;
        let mut between = before.clone();
        between.local_flags.remove(LocalFlags::ECHO | LocalFlags::ICANON);
        between.input_flags.remove(InputFlags::ICRNL);
        Ok(Self { input, before, between })
    }

    /// As it was found.
    pub(super) fn before(&self) {
        self.set(&self.before);
    }

    /// As it is between two lines.
    pub(super) fn between(&self) {
        self.set(&self.between);
    }

    fn set(&self, modes: &Termios) {
        // In the background it is another program's, and whoever sets it is stopped.
        if tcgetpgrp(self.input.as_fd()).is_ok_and(|group| group != getpgrp()) {
            return;
        }
        if let Err(error) = tcsetattr(&self.input, SetArg::TCSANOW, modes) {
            tracing::debug!("the terminal's modes were not set: {error}");
        }
    }
}

/// Until it is dropped keys wait as they are; then the terminal is as it was.
pub(in crate::cli) struct KeysWait(Stage);

impl Drop for KeysWait {
    fn drop(&mut self) {
        if let Some(modes) = self.0.floor.now().modes.take() {
            modes.before();
        }
    }
}

impl Stage {
    /// Lets keys of the terminal behind `input` wait for the editor, unless a question is open.
    pub(in crate::cli) fn lets_keys_wait(&self, input: OwnedFd) -> io::Result<KeysWait> {
        let modes = Modes::of(input)?;
        let mut now = self.floor.now();
        if now.question.is_none() {
            modes.between();
        }
        now.modes = Some(modes);
        Ok(KeysWait(self.clone()))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use nix::pty::openpty;

    use super::*;

    #[test]
    fn keys_wait_between_two_lines_and_a_question_finds_the_terminal_as_it_was() {
        let pty = openpty(None, None).unwrap();
        let stage = Stage::hidden();
        let shows = || tcgetattr(&pty.slave).unwrap().local_flags.contains(LocalFlags::ECHO | LocalFlags::ICANON);
        let signals = || tcgetattr(&pty.slave).unwrap().local_flags.contains(LocalFlags::ISIG);
        assert!(shows());
        let keys = stage.lets_keys_wait(pty.slave.try_clone().unwrap()).unwrap();
        assert!(!shows() && signals());
        let question = stage.question();
        assert!(shows());
        drop(question);
        assert!(!shows());
        drop(keys);
        assert!(shows());
    }
}

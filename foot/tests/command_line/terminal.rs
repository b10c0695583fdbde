//! A terminal with a person at it: the real program on a pseudo-terminal, its output as a screen, the terminal's own answers.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::pty::{Winsize, openpty};

/// No wait for an event lasts so long on a machine that works.
const LIMIT: Duration = Duration::from_secs(20);
/// A program asks with this where the cursor is.
const WHERE: &[u8] = b"\x1b[6n";

pub struct Terminal {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<vt100::Parser>>,
    raw: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

fn size(rows: u16, columns: u16) -> Winsize {
    Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }
}

impl Terminal {
    pub fn start(mut command: Command) -> Self {
        let pty = openpty(Some(&size(24, 80)), None).unwrap();
        let stream = || Stdio::from(pty.slave.try_clone().unwrap());
        command.stdin(stream()).stdout(stream()).stderr(stream());
        // SAFETY: between fork and exec only two system calls are made; neither allocates nor takes a lock.
        #[allow(unsafe_code)]
        unsafe {
            command.pre_exec(|| {
                nix::unistd::setsid()?;
                nix::errno::Errno::result(nix::libc::ioctl(0, nix::libc::TIOCSCTTY, 0))?;
                Ok(())
            });
        }
        let child = command.spawn().unwrap();
        drop((command, pty.slave));
        let keyboard = File::from(pty.master);
        let screen = Arc::new(Mutex::new(vt100::Parser::new(24, 80, 1000)));
        let raw = Arc::<Mutex<Vec<u8>>>::default();
        let reader = {
            let (line, screen, raw) = (keyboard.try_clone().unwrap(), Arc::clone(&screen), Arc::clone(&raw));
            std::thread::spawn(move || show(line, &screen, &raw))
        };
        Self { child, keyboard, screen, raw, reader }
    }

    /// The rows of the screen, without the empty ones at its end.
    pub fn rows(&self) -> Vec<String> {
        let parser = self.screen.lock().unwrap();
        let (_, columns) = parser.screen().size();
        let mut rows: Vec<String> = parser.screen().rows(0, columns).map(|row| row.trim_end().to_owned()).collect();
        while rows.last().is_some_and(String::is_empty) {
            rows.pop();
        }
        rows
    }

    /// All bytes so far.
    pub fn raw(&self) -> String {
        String::from_utf8_lossy(&self.raw.lock().unwrap()).into_owned()
    }

    pub fn until(&self, what: &str, mut holds: impl FnMut(&[String]) -> bool) {
        let until = Instant::now() + LIMIT;
        while !holds(&self.rows()) {
            assert!(Instant::now() < until, "{what} never came:\n{}", self.rows().join("\n"));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until a row holds a text.
    pub fn shows(&self, text: &str) {
        self.until(text, |rows| rows.iter().any(|row| row.contains(text)));
    }

    /// Waits until the last row is this.
    pub fn ends_with(&self, row: &str) {
        self.until(row, |rows| rows.last().is_some_and(|last| last == row));
    }

    pub fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    pub fn resize(&mut self, rows: u16, columns: u16) {
        self.screen.lock().unwrap().screen_mut().set_size(rows, columns);
        let size = size(rows, columns);
        // SAFETY: the descriptor is open and the size outlives the call.
        #[allow(unsafe_code)]
        let done = unsafe { nix::libc::ioctl(self.keyboard.as_raw_fd(), nix::libc::TIOCSWINSZ, &size) };
        assert_eq!(done, 0);
    }

    /// True if what is typed shows by itself and lines are the terminal's again.
    pub fn is_as_before(&self) -> bool {
        use nix::sys::termios::{LocalFlags, tcgetattr};
        let flags = tcgetattr(&self.keyboard).unwrap().local_flags;
        flags.contains(LocalFlags::ECHO | LocalFlags::ICANON | LocalFlags::ISIG)
    }

    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
    }

    /// Waits for its end; gives the exit code and the screen.
    pub fn leaves(mut self) -> (i32, Vec<String>) {
        let until = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                while !self.reader.is_finished() && Instant::now() < until {
                    std::thread::sleep(Duration::from_millis(5));
                }
                return (status.code().unwrap(), self.rows());
            }
            assert!(Instant::now() < until, "never left:\n{}", self.rows().join("\n"));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // Gone already, or a failed test's.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// Shows what comes, and answers as a terminal does.
fn show(mut line: File, screen: &Mutex<vt100::Parser>, raw: &Mutex<Vec<u8>>) {
    let (mut chunk, mut rest) = ([0; 4096], Vec::new());
    // The end of a terminal is an error: nobody has it open any more.
    while let Ok(n @ 1..) = line.read(&mut chunk) {
        raw.lock().unwrap().extend_from_slice(&chunk[..n]);
        rest.extend_from_slice(&chunk[..n]);
        while let Some(at) = rest.windows(WHERE.len()).position(|window| window == WHERE) {
            let after = rest.split_off(at + WHERE.len());
            let answer = {
                let mut parser = screen.lock().unwrap();
                parser.process(&rest[..at]);
                let (row, column) = parser.screen().cursor_position();
                format!("\x1b[{};{}R", row + 1, column + 1)
            };
            rest = after;
            if line.write_all(answer.as_bytes()).is_err() {
                return;
            }
        }
        // The beginning of a question may be at the end.
        let keep = (1..WHERE.len()).rev().find(|n| rest.ends_with(&WHERE[..*n])).unwrap_or(0);
        let begun = rest.split_off(rest.len() - keep);
        screen.lock().unwrap().process(&rest);
        rest = begun;
    }
}

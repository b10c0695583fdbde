//! Questions of the permissions, with the real program on a pseudo-terminal of its own.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::pty::openpty;

/// No wait for an event lasts so long on a machine that works; shorter than what the program itself waits for an answer.
const LIMIT: Duration = Duration::from_secs(20);

/// A program that believes a person looks on.
pub struct Seat {
    child: Child,
    keyboard: File,
    seen: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

fn program(home: &Path, words: &[&str]) -> Command {
    // The test is the person who starts the program from a shell.
    #[allow(clippy::disallowed_methods)]
    let mut command = Command::new(env!("CARGO_BIN_EXE_vancetope"));
    command.args(words).current_dir(home.join("project")).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
    command.env("HOME", home).env("VANCE_HOME", home.join("vance")).env("TERM", "xterm");
    command
}

fn home() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(home.path().join("project")).unwrap();
    home
}

pub fn sit_down(mut command: Command) -> Seat {
    let pty = openpty(None, None).unwrap();
    let stream = || Stdio::from(pty.slave.try_clone().unwrap());
    command.stdin(stream()).stdout(stream()).stderr(stream());
    // SAFETY: between fork and exec only two system calls are made; neither allocates nor takes a lock.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(|| {
            nix::unistd::setsid()?;
            nix::errno::Errno::result(libc::ioctl(0, libc::TIOCSCTTY, 0))?;
            Ok(())
        });
    }
    let child = command.spawn().unwrap();
    drop((command, pty.slave));
    let (keyboard, seen) = (File::from(pty.master), Arc::<Mutex<Vec<u8>>>::default());
    let (mut screen, text) = (keyboard.try_clone().unwrap(), Arc::clone(&seen));
    let reader = std::thread::spawn(move || {
        let mut chunk = [0; 4096];
        // The end of a terminal is an error: nobody has it open any more.
        while let Ok(n @ 1..) = screen.read(&mut chunk) {
            text.lock().unwrap().extend_from_slice(&chunk[..n]);
        }
    });
    Seat { child, keyboard, seen, reader }
}

impl Seat {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).into_owned()
    }

    pub fn until(&self, mut holds: impl FnMut(&str) -> bool) {
        let until = Instant::now() + LIMIT;
        while !holds(&self.text()) {
            assert!(Instant::now() < until, "never came: {}", self.text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the question, answers, and gives the exit code and all that was shown.
    pub fn answers(mut self, keys: &str) -> (i32, String) {
        self.until(|text| text.contains('\u{203a}'));
        self.types(keys);
        self.leaves()
    }

    pub fn leaves(mut self) -> (i32, String) {
        let until = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                // What it said last may still be on its way.
                self.until(|_| self.reader.is_finished());
                return (status.code().unwrap(), self.text());
            }
            assert!(Instant::now() < until, "never left: {}", self.text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

const WRITE: &[&str] = &["tools", "call", "write_local_file", r#"{"path": "a.txt", "content": "hi"}"#];

#[test]
fn only_a_clear_yes_lets_a_tool_write() {
    for (keys, exit, said) in [
        ("1\n", 0, "bytes_written"),
        ("3\n", 1, "the answer was no"),
        ("yes\n", 1, "that is not one of 1, 2, 3: no"),
        ("\n", 1, "that is not one of 1, 2, 3: no"),
        ("\u{4}", 1, "end of input: no"),
        ("\u{3}", 1, "vancetope: "),
    ] {
        let home = home();
        let (got, text) = sit_down(program(home.path(), WRITE)).answers(keys);
        assert!(got == exit && text.contains(said), "{keys:?}: exit {got}: {text}");
        assert_eq!(home.path().join("project/a.txt").exists(), exit == 0, "{keys:?}: {text}");
        assert!(text.contains("Tool 'write_local_file' needs your yes") && text.contains("/project/a.txt"), "{text}");
        assert!(!home.path().join("vance/permissions.yaml").exists(), "{keys:?}");
    }
}

#[test]
fn what_was_typed_before_the_question_is_no_answer() {
    let home = home();
    let mut seat = sit_down(program(home.path(), WRITE));
    seat.types("1\n1\n1");
    let (exit, text) = seat.answers("\n");
    assert!(exit == 1 && text.contains("that is not one of"), "{exit}: {text}");
    assert!(!home.path().join("project/a.txt").exists());
}

#[test]
fn always_is_a_rule_in_the_file_and_asks_no_more() {
    let home = home();
    let file = home.path().join("vance/permissions.yaml");
    std::fs::create_dir(home.path().join("vance")).unwrap();
    std::fs::write(&file, "# mine\nallow:\n- {exec: [git]}  # safe\n").unwrap();
    let (exit, text) = sit_down(program(home.path(), WRITE)).answers("2\n");
    assert!(exit == 0 && text.contains("added `- {write: "), "{exit}: {text}");
    let rules = std::fs::read_to_string(&file).unwrap();
    assert!(
        rules.starts_with("# mine\nallow:\n- {write: /") && rules.ends_with("a.txt}\n- {exec: [git]}  # safe\n"),
        "{rules}"
    );
    let (exit, text) = sit_down(program(home.path(), WRITE)).leaves();
    assert!(exit == 0 && !text.contains("needs your yes"), "{exit}: {text}");
    let elsewhere = ["tools", "call", "write_local_file", r#"{"path": "b.txt", "content": "hi"}"#];
    let (exit, _) = sit_down(program(home.path(), &elsewhere)).answers("3\n");
    assert_eq!(exit, 1, "the rule is for that file alone");
}

#[test]
fn where_nobody_looks_nobody_is_asked() {
    let home = home();
    let mut piped = program(home.path(), WRITE);
    piped.stdin(Stdio::null());
    let ended = piped.output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.code() == Some(1) && said.contains("nobody can be asked here"), "{said}");
    let mut json = WRITE.to_vec();
    json.push("--json");
    let mut dumb = program(home.path(), WRITE);
    dumb.env("TERM", "dumb");
    for command in [program(home.path(), &json), dumb] {
        let (exit, text) = sit_down(command).leaves();
        assert!(exit == 1 && text.contains("nobody can be asked here") && !text.contains("needs your yes"), "{text}");
    }
}

#[test]
fn a_question_too_large_to_be_shown_is_refused() {
    let home = home();
    let arguments = format!(r#"{{"argv": ["echo", "{}"]}}"#, "x".repeat(5000));
    let call = ["tools", "call", "shell_execute", &arguments];
    let (exit, text) = sit_down(program(home.path(), &call)).leaves();
    assert!(exit == 1 && text.contains("at most 4096 are asked: no"), "{exit}: {text}");
}

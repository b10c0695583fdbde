//! A home, a cloned repository, and the program between them, with or without somebody at a terminal.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::pty::openpty;
use serde_json::{Value, json};

/// No wait for an event lasts so long on a machine that works; shorter than what the program itself waits for an answer.
const LIMIT: Duration = Duration::from_secs(20);

/// The last line of every question.
pub(crate) const CHOICES: &str = "Load it? [1] once  [2] always for this project  [3] no \u{203a}";

pub(crate) struct Desk {
    dir: tempfile::TempDir,
}

/// What a run left.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) exit: i32,
    /// All that was shown, lines ending in `\n`.
    pub(crate) text: String,
}

impl Desk {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["user", "home/foot-tools", "repo/.vancetope/foot-tools"] {
            std::fs::create_dir_all(dir.path().join(folder)).unwrap();
        }
        for folder in ["home", "home/foot-tools"] {
            std::fs::set_permissions(dir.path().join(folder), std::fs::Permissions::from_mode(0o700)).unwrap();
        }
        Self { dir }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join(name)
    }

    pub(crate) fn repo(&self, name: &str) -> PathBuf {
        self.path("repo").join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    pub(crate) fn put(&self, name: &str, text: &str) {
        std::fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        std::fs::write(self.path(name), text).unwrap();
    }

    pub(crate) fn program(&self, name: &str, text: &str) -> String {
        self.put(name, text);
        std::fs::set_permissions(self.path(name), std::fs::Permissions::from_mode(0o755)).unwrap();
        self.text(name)
    }

    /// A program outside the repository that leaves a marker and is an MCP server.
    pub(crate) fn server(&self, marker: &str) -> String {
        let (marker_file, ledger) = (self.text(marker), self.text("ledger"));
        let line = format!("#!/bin/sh\ntouch {marker_file}\nexec python3 {} {ledger}\n", fake().display());
        self.program(&format!("server-{marker}"), &line)
    }

    /// A line for `sh -c` that becomes [`Desk::server`]. What the server writes is not named in it: that would be a file of the command's.
    pub(crate) fn line(&self, marker: &str) -> String {
        format!("exec {}", self.server(marker))
    }

    /// A pack of the repository.
    pub(crate) fn pack(&self, name: &str, parameters: &Value) {
        self.put(&format!("repo/.vancetope/foot-tools/{name}.json"), &pack(name, parameters));
    }

    /// A pack of the user's own.
    pub(crate) fn own_pack(&self, name: &str, parameters: &Value) {
        self.put(&format!("home/foot-tools/{name}.json"), &pack(name, parameters));
    }

    pub(crate) fn has(&self, marker: &str) -> bool {
        self.path(marker).exists()
    }

    pub(crate) fn store(&self) -> String {
        std::fs::read_to_string(self.path("home/trusted-packs.yaml")).unwrap_or_default()
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        // The test is the person who starts the program from a shell.
        #[allow(clippy::disallowed_methods)]
        let mut command = Command::new(env!("CARGO_BIN_EXE_vancetope"));
        command.args(words).current_dir(self.path("repo")).env_clear().env("PATH", std::env::var_os("PATH").unwrap());
        command.env("HOME", self.path("user")).env("VANCE_HOME", self.path("home")).env("TERM", "xterm");
        command
    }

    /// Where nobody looks on.
    pub(crate) fn alone(&self, words: &[&str]) -> Output {
        self.command(words).stdin(Stdio::null()).output().unwrap()
    }

    /// The same, with its result as JSON.
    pub(crate) fn json(&self, words: &[&str]) -> Value {
        let mut all = words.to_vec();
        all.push("--json");
        let ended = self.alone(&all);
        let out = String::from_utf8(ended.stdout).unwrap();
        serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out} {}", String::from_utf8_lossy(&ended.stderr)))
    }

    /// What `tools list` says of a pack without a terminal: `up`, or why it is not there.
    pub(crate) fn loads(&self, pack: &str) -> String {
        let list = self.json(&["tools", "list"]);
        if list["tools"].as_array().unwrap().iter().any(|tool| tool["pack"] == pack) {
            return "up".to_owned();
        }
        let skipped = list["skipped"].as_array().unwrap();
        let reasons = skipped.iter().filter(|skip| skip["pack"] == pack).map(|skip| skip["reason"].as_str().unwrap());
        reasons.collect::<Vec<_>>().join("; ")
    }

    /// Somebody at a terminal starts it.
    pub(crate) fn seat(&self, words: &[&str]) -> Seat {
        Seat::take(self.command(words))
    }

    /// `tools list` at a terminal, one answer.
    pub(crate) fn answered(&self, keys: &str) -> Ended {
        self.seat(&["tools", "list"]).answers(keys)
    }
}

fn pack(name: &str, parameters: &Value) -> String {
    json!({"name": name, "type": "mcp_server", "parameters": parameters}).to_string()
}

pub(crate) fn stdio<T: AsRef<str>>(command: &[T]) -> Value {
    let command: Vec<&str> = command.iter().map(AsRef::as_ref).collect();
    json!({"transport": "stdio", "command": command})
}

fn fake() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("shared/mcp-host/tests/support/fake.py")
}

/// The address of an endpoint that answers nobody, and how many came.
pub(crate) fn endpoint() -> (String, impl Fn() -> usize) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let came = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&came);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            count.fetch_add(1, Ordering::SeqCst);
            drop(stream);
        }
    });
    (url, move || came.load(Ordering::SeqCst))
}

/// A program that believes a person looks on.
pub(crate) struct Seat {
    child: Child,
    keyboard: File,
    seen: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Seat {
    pub(crate) fn take(mut command: Command) -> Self {
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
        Self { child, keyboard, seen, reader }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().unwrap()).replace("\r\n", "\n")
    }

    pub(crate) fn until(&self, mut holds: impl FnMut(&str) -> bool) {
        let until = Instant::now() + LIMIT;
        while !holds(&self.text()) {
            assert!(Instant::now() < until, "never came: {}", self.text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until so many questions stand there.
    pub(crate) fn asked(&self, times: usize) {
        self.until(|text| text.matches('\u{203a}').count() >= times);
    }

    pub(crate) fn types(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for the question, answers, and waits for the end.
    pub(crate) fn answers(mut self, keys: &str) -> Ended {
        self.asked(1);
        self.types(keys);
        self.leaves()
    }

    pub(crate) fn leaves(mut self) -> Ended {
        let until = Instant::now() + LIMIT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                // What it said last may still be on its way.
                self.until(|_| self.reader.is_finished());
                return Ended { exit: status.code().unwrap_or(-1), text: self.text() };
            }
            assert!(Instant::now() < until, "never left: {}", self.text());
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // A test that failed leaves nothing behind; one that did not has nothing left.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

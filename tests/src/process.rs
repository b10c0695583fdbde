//! Brain and Foot as real processes. Dropping one kills it.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use anyhow::Context as _;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt as _, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::home::Home;
use crate::wait::PATIENCE;

/// Log lines that are kept of a process, for the message of a failing test.
const LOG_LINES: usize = 200;

/// Output lines that wait to be read by the test.
const OUTPUT_LINES: usize = 10_000;

/// A built program of this workspace.
pub fn program(name: &str) -> anyhow::Result<PathBuf> {
    let exe = std::env::current_exe()?;
    let dir = exe.parent().and_then(Path::parent).context("a test runs from target/PROFILE/deps")?;
    let path = dir.join(name);
    anyhow::ensure!(path.exists(), "{} is not built: run `cargo build --workspace` first", path.display());
    Ok(path)
}

/// A running program.
pub struct Process {
    child: Child,
    lines: mpsc::Receiver<String>,
    log: Arc<Mutex<VecDeque<String>>>,
    name: String,
}

impl Process {
    /// Starts a program of this workspace in a home.
    pub fn start(name: &str, home: &Home, args: &[&str]) -> anyhow::Result<Self> {
        Self::start_with(name, home, args, &[])
    }

    /// The same, with further environment variables.
    pub fn start_with(name: &str, home: &Home, args: &[&str], env: &[(&str, &str)]) -> anyhow::Result<Self> {
        #[allow(clippy::disallowed_methods)] // the test is the owner here, and kills what it starts
        let mut command = Command::new(program(name)?);
        command
            .args(args)
            .env_remove("VANCE_BRAIN")
            .env_remove("VANCE_TOKEN")
            .env("VANCE_HOME", home.path())
            .env("NO_COLOR", "1")
            .envs(env.iter().copied())
            .current_dir(home.project())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let log = Arc::new(Mutex::new(VecDeque::new()));
        let (sender, lines) = mpsc::channel(OUTPUT_LINES);
        let (out, err) = (child.stdout.take().context("stdout")?, child.stderr.take().context("stderr")?);
        tokio::spawn(collect(out, log.clone(), Some(sender)));
        tokio::spawn(collect(err, log.clone(), None));
        Ok(Self { child, lines, log, name: name.to_owned() })
    }

    /// The process id.
    pub fn pid(&self) -> anyhow::Result<i32> {
        Ok(i32::try_from(self.child.id().context("the process has ended")?)?)
    }

    /// Waits for a line on stdout that begins so; gives the rest of it.
    pub async fn line(&mut self, prefix: &str) -> anyhow::Result<String> {
        loop {
            let line = timeout(PATIENCE, self.lines.recv()).await;
            let line = line.map_err(|_| anyhow::anyhow!("no line '{prefix}…' from {}:\n{}", self.name, self.log()))?;
            let line = line.with_context(|| format!("{} ended before '{prefix}…':\n{}", self.name, self.log()))?;
            if let Some(rest) = line.strip_prefix(prefix) {
                return Ok(rest.trim().to_owned());
            }
        }
    }

    /// The last lines of stdout and stderr.
    pub fn log(&self) -> String {
        self.log.lock().map(|log| log.iter().cloned().collect::<Vec<_>>().join("\n")).unwrap_or_default()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(kill(Pid::from_raw(self.pid()?), signal)?)
    }

    /// `kill -9`, and waits until it is gone.
    pub async fn kill9(&mut self) -> anyhow::Result<()> {
        self.child.start_kill()?;
        self.child.wait().await?;
        Ok(())
    }

    /// SIGTERM; gives the exit code.
    pub async fn stop(&mut self) -> anyhow::Result<i32> {
        self.signal(Signal::SIGTERM)?;
        self.exit_code().await
    }

    /// Waits for its end; gives the exit code.
    pub async fn exit_code(&mut self) -> anyhow::Result<i32> {
        let status = timeout(PATIENCE, self.child.wait()).await;
        let status = status.map_err(|_| anyhow::anyhow!("{} does not end:\n{}", self.name, self.log()))??;
        status.code().with_context(|| format!("{} was ended by a signal: {status}", self.name))
    }
}

async fn collect(out: impl AsyncRead + Unpin, log: Arc<Mutex<VecDeque<String>>>, lines: Option<mpsc::Sender<String>>) {
    let mut reader = BufReader::new(out).lines();
    while let Ok(Some(line)) = reader.next_line().await {
        if let Ok(mut log) = log.lock() {
            log.push_back(line.clone());
            if log.len() > LOG_LINES {
                log.pop_front();
            }
        }
        if let Some(lines) = &lines {
            // A test that does not read has enough in the log.
            lines.try_send(line).ok();
        }
    }
}

/// A finished program.
pub struct Finished {
    /// Exit code.
    pub code: i32,
    /// All of stdout.
    pub stdout: String,
    /// All of stderr.
    pub stderr: String,
}

/// Runs a program of this workspace to its end.
pub async fn run(name: &str, home: &Home, args: &[&str]) -> anyhow::Result<Finished> {
    #[allow(clippy::disallowed_methods)] // the test waits for it
    let output = Command::new(program(name)?)
        .args(args)
        .env_remove("VANCE_BRAIN")
        .env_remove("VANCE_TOKEN")
        .env("VANCE_HOME", home.path())
        .env("NO_COLOR", "1")
        .current_dir(home.project())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = timeout(PATIENCE, output).await.with_context(|| format!("{name} {args:?} does not end"))??;
    Ok(Finished {
        code: output.status.code().with_context(|| format!("{name} was ended by a signal"))?,
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// A Brain that serves.
pub struct Brain {
    /// The process.
    pub process: Process,
    /// `http://HOST:PORT`.
    pub url: String,
}

impl Brain {
    /// Starts one on a free port.
    pub async fn start(home: &Home) -> anyhow::Result<Self> {
        Self::start_on(home, "127.0.0.1:0").await
    }

    /// Starts one on an address.
    pub async fn start_on(home: &Home, listen: &str) -> anyhow::Result<Self> {
        let mut process = Process::start("vance-brain", home, &["serve", "--listen", listen])?;
        let url = process.line("brain ready ").await?;
        Ok(Self { process, url })
    }

    /// `HOST:PORT`.
    pub fn addr(&self) -> &str {
        self.url.trim_start_matches("http://")
    }

    /// Kills it and starts it again on the same address.
    pub async fn kill9_and_restart(&mut self, home: &Home) -> anyhow::Result<()> {
        self.process.kill9().await?;
        let addr = self.addr().to_owned();
        *self = Self::start_on(home, &addr).await?;
        Ok(())
    }
}

/// Starts a Foot that runs in the foreground, and waits until it is ready.
pub async fn foot(home: &Home, brain_url: &str, args: &[&str]) -> anyhow::Result<Process> {
    let mut all = vec!["--daemon", "--brain", brain_url];
    all.extend_from_slice(args);
    let mut process = Process::start("vancetope", home, &all)?;
    process.line("foot ready").await?;
    Ok(process)
}

/// Processes whose command line or environment holds a text: to look for orphans.
pub fn processes_with(text: &str) -> anyhow::Result<Vec<i32>> {
    let own = i32::try_from(std::process::id())?;
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        // A process may end while we look, and another user's environment is not ours to read.
        let holds = |file: &str| {
            let bytes = std::fs::read(entry.path().join(file)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).replace('\0', " ").contains(text)
        };
        if pid != own && (holds("cmdline") || holds("environ")) {
            found.push(pid);
        }
    }
    Ok(found)
}

/// Children of these processes that ended and were not waited for.
pub fn zombies_of(parents: &[i32]) -> anyhow::Result<Vec<i32>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse::<i32>().ok()) else { continue };
        let Ok(stat) = std::fs::read_to_string(entry.path().join("stat")) else { continue };
        // `PID (NAME) STATE PPID …`, and the name may hold anything.
        let Some((_, rest)) = stat.rsplit_once(") ") else { continue };
        let mut fields = rest.split(' ');
        let (state, parent) = (fields.next(), fields.next().and_then(|p| p.parse::<i32>().ok()));
        if state == Some("Z") && parent.is_some_and(|p| parents.contains(&p)) {
            found.push(pid);
        }
    }
    Ok(found)
}

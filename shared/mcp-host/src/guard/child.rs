//! The host's side of a guarded child.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::{GUARD_WORD, find_program};
use crate::sandbox::Sandbox;

/// A guard only has to start and start another: half a minute covers a machine that swaps.
const START_LIMIT: Duration = Duration::from_secs(30);
/// What the guard may take beyond the grace: it repeats SIGKILL for ten seconds.
const BEYOND_GRACE: Duration = Duration::from_secs(15);

/// What to start.
#[derive(Debug, Clone)]
pub struct Spawn {
    /// Program and arguments; the program is looked up in `env`'s own `PATH` unless it is written as a path.
    pub argv: Vec<String>,
    /// Working directory; must exist.
    pub cwd: PathBuf,
    /// The complete environment: nothing is inherited.
    pub env: BTreeMap<OsString, OsString>,
    /// True: a pipe; false: end of input at once.
    pub stdin: bool,
    /// A program whose `main` begins with [`super::enter_if_asked`]; usually `std::env::current_exe()`.
    pub guard_program: PathBuf,
    /// What it may reach; none is everything.
    pub sandbox: Option<Sandbox>,
}

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// No program was named.
    #[error("the command is empty")]
    EmptyCommand,
    /// A bare word that no absolute entry of PATH holds.
    #[error("program '{}' not found in PATH", vance_shared::show::plain(program))]
    NotFound {
        /// The word.
        program: String,
    },
    /// A path that is no executable file.
    #[error("'{}' is not an executable file", vance_shared::show::plain(file))]
    NotAProgram {
        /// The path as written.
        file: String,
    },
    /// No such folder.
    #[error("the working directory '{}' does not exist", cwd.display())]
    NoFolder {
        /// The folder.
        cwd: PathBuf,
    },
    /// The operating system refused.
    #[error("cannot start '{}': {why}", vance_shared::show::plain(program))]
    Refused {
        /// What was to be started.
        program: String,
        /// The system's words.
        why: String,
    },
    /// The guard itself did not start.
    #[error("cannot start the guard '{}': {why}", guard.display())]
    Guard {
        /// The guard's program.
        guard: PathBuf,
        /// The system's words.
        why: String,
    },
}

/// How the leader ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// By itself.
    Code(i32),
    /// By a signal.
    Signal(i32),
    /// The guard was killed before it could tell.
    Lost,
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(code) => write!(f, "exit code {code}"),
            Self::Signal(signal) => write!(f, "signal {signal}"),
            Self::Lost => f.write_str("its guard was killed"),
        }
    }
}

/// A running child and, through its guard, all its descendants. Dropping it ends them.
#[derive(Debug)]
pub struct GuardedChild {
    /// The leader's input, if it was asked for.
    pub stdin: Option<ChildStdin>,
    /// The leader's output.
    pub stdout: Option<ChildStdout>,
    /// The leader's diagnostics.
    pub stderr: Option<ChildStderr>,
    leader: u32,
    guard: Child,
    lease: BufReader<UnixStream>,
    exit: Option<Exit>,
}

/// Starts a program under a guard and waits until it runs.
pub async fn spawn(spawn: Spawn) -> Result<GuardedChild, SpawnError> {
    let Some((program, args)) = spawn.argv.split_first() else { return Err(SpawnError::EmptyCommand) };
    if !spawn.cwd.is_dir() {
        return Err(SpawnError::NoFolder { cwd: spawn.cwd });
    }
    let path = spawn.env.get(std::ffi::OsStr::new("PATH")).cloned();
    let file = find_program(program, path.as_deref(), &spawn.cwd)?;
    let guard_fault = |why: String| SpawnError::Guard { guard: spawn.guard_program.clone(), why };
    let (mut guard, lease) = start_guard(&spawn, &file, args).map_err(|error| guard_fault(error.to_string()))?;
    let mut lease = BufReader::new(lease);
    let mut line = String::new();
    match tokio::time::timeout(START_LIMIT, lease.read_line(&mut line)).await {
        Ok(Ok(n)) if n > 0 => {}
        Ok(Ok(_)) => return Err(guard_fault("it ended at once: is it a program that can be a guard?".to_owned())),
        Ok(Err(error)) => return Err(guard_fault(error.to_string())),
        Err(_) => return Err(guard_fault(format!("no answer within {} s", START_LIMIT.as_secs()))),
    }
    let line = line.trim_end();
    let Some(leader) = line.strip_prefix("pid ").and_then(|pid| pid.parse().ok()) else {
        let why = line.strip_prefix("fail ").unwrap_or(line).to_owned();
        return Err(SpawnError::Refused { program: program.clone(), why });
    };
    Ok(GuardedChild {
        stdin: guard.stdin.take(),
        stdout: guard.stdout.take(),
        stderr: guard.stderr.take(),
        leader,
        guard,
        lease,
        exit: None,
    })
}

/// One spawn at a time: between the moment the lease's far end may be inherited and the moment our copy of it is closed, no other child may be started.
static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn start_guard(spawn: &Spawn, file: &std::path::Path, args: &[String]) -> std::io::Result<(Child, UnixStream)> {
    use std::os::fd::AsRawFd;
    let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    let ours = UnixStream::from_std(ours)?;
    #[allow(clippy::disallowed_methods)] // this is the one spawner
    let mut command = Command::new(&spawn.guard_program);
    command.arg(GUARD_WORD).arg(theirs.as_raw_fd().to_string());
    command.args(spawn.sandbox.iter().flat_map(Sandbox::to_args)).arg("--").arg(file).args(args);
    command.env_clear().envs(&spawn.env).current_dir(&spawn.cwd);
    command
        .stdin(if spawn.stdin { Stdio::piped() } else { Stdio::null() })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    nix::fcntl::fcntl(&theirs, nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::empty()))?;
    let guard = command.spawn();
    drop(theirs);
    drop(one);
    Ok((guard?, ours))
}

impl GuardedChild {
    /// Process id of the leader (the program that was asked for, not its guard); also the id of its process group.
    pub fn pid(&self) -> u32 {
        self.leader
    }

    /// Waits until the leader and all its descendants are gone. May be dropped and called again.
    pub async fn wait(&mut self) -> std::io::Result<Exit> {
        if let Some(exit) = self.exit {
            return Ok(exit);
        }
        self.guard.wait().await?;
        // The guard is gone: what it said is in the buffer.
        let mut exit = Exit::Lost;
        let mut line = String::new();
        while let Ok(Ok(n)) = tokio::time::timeout(Duration::from_secs(1), self.lease.read_line(&mut line)).await
            && n > 0
        {
            exit = parse_exit(line.trim_end()).unwrap_or(exit);
            line.clear();
        }
        if exit == Exit::Lost {
            self.kill_group();
        }
        self.exit = Some(exit);
        Ok(exit)
    }

    /// Ends the whole tree: SIGTERM, SIGKILL after the grace (a grace of zero is SIGKILL at once). Returns when it is gone.
    pub async fn kill(&mut self, grace: Duration) -> std::io::Result<Exit> {
        if let Some(exit) = self.exit {
            return Ok(exit);
        }
        self.stdin = None;
        self.wake();
        let words = format!("end {}\n", grace.as_millis());
        // A guard that ends at this moment does not listen any more; the wait tells.
        if self.lease.get_mut().write_all(words.as_bytes()).await.is_err() {
            tracing::debug!(pid = self.leader, "the guard is already ending");
        }
        match tokio::time::timeout(grace + BEYOND_GRACE, self.wait()).await {
            Ok(exit) => exit,
            Err(_) => {
                self.guard.start_kill()?;
                self.wait().await
            }
        }
    }

    /// A guard that somebody stopped (SIGSTOP) hears neither a word nor that we are gone, and would stay for ever.
    fn wake(&self) {
        if let Some(pid) = self.guard.id().and_then(|pid| i32::try_from(pid).ok())
            && let Err(error) =
                nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGCONT)
        {
            tracing::debug!(pid, %error, "the guard is already gone");
        }
    }

    /// What is left to do when the guard itself was killed.
    fn kill_group(&self) {
        if let Ok(leader) = i32::try_from(self.leader)
            && nix::sys::signal::killpg(nix::unistd::Pid::from_raw(leader), nix::sys::signal::Signal::SIGKILL).is_ok()
        {
            tracing::warn!(pid = leader, "a guard was killed; its process group was killed after it");
        }
    }
}

impl Drop for GuardedChild {
    fn drop(&mut self) {
        if self.exit.is_none() {
            self.wake();
        }
    }
}

fn parse_exit(line: &str) -> Option<Exit> {
    let (word, number) = line.split_once(' ')?;
    let number = number.parse().ok()?;
    match word {
        "exit" => Some(Exit::Code(number)),
        "signal" => Some(Exit::Signal(number)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guards_words_are_read() {
        for (line, want) in
            [("exit 3", Some(Exit::Code(3))), ("signal 9", Some(Exit::Signal(9))), ("pid 4", None), ("", None)]
        {
            assert_eq!(parse_exit(line), want, "{line}");
        }
    }
}

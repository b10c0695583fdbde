//! The guard process itself: no threads, no async, a few system calls.

use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, killpg, sigprocmask};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::{DEFAULT_GRACE, fence, tree};
use crate::sandbox::Sandbox;

/// How long SIGKILL is repeated. A process in an uninterruptible system call can outlast it; then init inherits it.
const KILL_FOR: Duration = Duration::from_secs(10);
/// Between two looks for survivors of SIGKILL: new ones can appear only from a fork that was under way.
const KILL_EVERY: Duration = Duration::from_millis(5);
/// Exit codes of a guard that could not do its work, as shells use them.
const USAGE: i32 = 2;
const CANNOT_RUN: i32 = 126;

/// Runs as the guard: `FD [--sandbox [--read PATH]… [--write PATH]…] -- PROGRAM ARG…`. Gives the exit code.
pub(super) fn run(args: Vec<OsString>) -> i32 {
    let Some((lease, sandbox, argv)) = parse(args) else {
        eprintln!("{} is an internal command: it guards a child process of this program", super::GUARD_WORD);
        return USAGE;
    };
    Keeper::start(lease, sandbox.as_ref(), &argv).map_or(CANNOT_RUN, Keeper::watch)
}

fn parse(args: Vec<OsString>) -> Option<(UnixStream, Option<Sandbox>, Vec<OsString>)> {
    let mut args = args.into_iter();
    let fd: RawFd = args.next()?.to_str()?.parse().ok().filter(|fd| *fd > 2)?;
    let sandbox = Sandbox::from_args(&mut args)?;
    let argv: Vec<OsString> = args.collect();
    if argv.is_empty()
        || nix::fcntl::fcntl(borrowed(fd), nix::fcntl::FcntlArg::F_SETFD(nix::fcntl::FdFlag::FD_CLOEXEC)).is_err()
    {
        return None;
    }
    Some((UnixStream::from(owned(fd)), sandbox, argv))
}

#[allow(unsafe_code)]
fn borrowed(fd: RawFd) -> std::os::fd::BorrowedFd<'static> {
    // SAFETY: the number is above 2, so it is no stream of the standard library's, and this process has opened nothing yet: it can only be what the host
    // left open, or closed, which the first use reports. Nothing closes it before `owned` takes it.
    unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) }
}

#[allow(unsafe_code)]
fn owned(fd: RawFd) -> OwnedFd {
    // SAFETY: it is open (a system call on it succeeded) and nobody else in this process knows it.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

struct Keeper {
    lease: UnixStream,
    signals: Signals,
    leader: Pid,
    exit_code: Option<i32>,
}

/// Why the tree is to end, and with how much grace.
struct End {
    grace: Duration,
}

impl Keeper {
    fn start(mut lease: UnixStream, sandbox: Option<&Sandbox>, argv: &[OsString]) -> Option<Self> {
        // A session of its own: no terminal to read or write, no Ctrl-C from it. A group leader cannot make one; if it is not the session's, too, its
        // children would have the terminal of a person.
        if let Err(error) = nix::unistd::setsid()
            && nix::unistd::getsid(None) != Ok(Pid::this())
        {
            return Self::refuse(&mut lease, &format!("the guard cannot leave the terminal: {error}"));
        }
        #[cfg(target_os = "linux")]
        if let Err(error) = nix::sys::prctl::set_child_subreaper(true) {
            return Self::refuse(&mut lease, &format!("the guard cannot become a subreaper: {error}"));
        }
        // The guard itself stays behind the fence, too: it needs no more than its children, and nothing can slip out between the two.
        if let Some(why) = sandbox.and_then(|sandbox| fence::enter(sandbox).err()) {
            return Self::refuse(&mut lease, &why);
        }
        let (program, args) = argv.split_first()?;
        #[allow(clippy::disallowed_methods)] // this is the one spawner
        let mut command = Command::new(program);
        command.args(args).process_group(0);
        die_with_guard(&mut command);
        let spawned = command.spawn();
        let leader = match spawned {
            Ok(child) => Pid::from_raw(i32::try_from(child.id()).ok()?),
            Err(error) => return Self::refuse(&mut lease, &error.to_string()),
        };
        // After the leader was started: it would inherit the mask, and a child that cannot hear SIGTERM is no good child.
        let signals = Signals::block();
        release_streams();
        let mut keeper = Self { lease, signals: signals?, leader, exit_code: None };
        keeper.say(&format!("pid {leader}"));
        Some(keeper)
    }

    fn refuse(lease: &mut UnixStream, why: &str) -> Option<Self> {
        // Nobody to tell if the host is gone, and nothing runs.
        drop(lease.write_all(format!("fail {why}\n").as_bytes()));
        None
    }

    /// Tells the host. A host that is gone closes the lease, which the next look at it shows.
    fn say(&mut self, line: &str) {
        drop(self.lease.write_all(format!("{line}\n").as_bytes()));
    }

    /// Waits for a reason to end the tree, ends it, and gives the leader's exit code.
    fn watch(mut self) -> i32 {
        // A leader that ended before the signals were blocked left no signal behind: the first look is without one.
        let mut first = true;
        let end = loop {
            let (signal, lease) = if std::mem::take(&mut first) { (true, false) } else { self.wait_for(None) };
            if signal {
                let asked = self.signals.take();
                self.reap();
                if asked || self.exit_code.is_some() {
                    break End { grace: DEFAULT_GRACE };
                }
            }
            if lease && let Some(end) = self.hear() {
                break end;
            }
        };
        self.end_tree(&end);
        self.exit_code.unwrap_or(128 + Signal::SIGKILL as i32)
    }

    /// Blocks until a signal or the lease has something, or the time is over.
    fn wait_for(&self, time: Option<Duration>) -> (bool, bool) {
        let time = time.map_or(self.signals.longest_wait(), |t| PollTimeout::try_from(t).unwrap_or(PollTimeout::MAX));
        let mut fds = vec![PollFd::new(self.lease.as_fd(), PollFlags::POLLIN)];
        if let Some(fd) = self.signals.fd() {
            fds.push(PollFd::new(fd, PollFlags::POLLIN));
        }
        let failed = poll(&mut fds, time).is_err_and(|error| error != Errno::EINTR);
        let ready = |fd: &PollFd| failed || fd.revents().is_some_and(|events| !events.is_empty());
        // Without a signal descriptor every wake-up is a reason to look.
        (fds.get(1).is_none_or(ready), fds.first().is_some_and(ready))
    }

    /// Reads the lease: closed, or `end MS`.
    fn hear(&mut self) -> Option<End> {
        let mut buffer = [0_u8; 64];
        match self.lease.read(&mut buffer) {
            Ok(0) => Some(End { grace: DEFAULT_GRACE }),
            Ok(n) => {
                let text = String::from_utf8_lossy(buffer.get(..n).unwrap_or_default()).into_owned();
                let ms = text.trim().strip_prefix("end ").and_then(|ms| ms.parse().ok());
                Some(End { grace: ms.map_or(DEFAULT_GRACE, Duration::from_millis) })
            }
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::WouldBlock) => None,
            Err(_) => Some(End { grace: DEFAULT_GRACE }),
        }
    }

    /// Collects whatever has ended. True while children are left.
    fn reap(&mut self) -> bool {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) => return true,
                Ok(WaitStatus::Exited(pid, code)) => self.note(pid, "exit", code, code),
                Ok(WaitStatus::Signaled(pid, signal, _)) => {
                    self.note(pid, "signal", signal as i32, 128 + signal as i32)
                }
                Ok(_) | Err(Errno::EINTR) => {}
                Err(_) => return false,
            }
        }
    }

    fn note(&mut self, pid: Pid, word: &str, number: i32, code: i32) {
        if pid == self.leader && self.exit_code.is_none() {
            self.exit_code = Some(code);
            self.say(&format!("{word} {number}"));
        }
    }

    fn end_tree(&mut self, end: &End) {
        let deadline = Instant::now() + end.grace;
        if !end.grace.is_zero() {
            self.signal_all(Signal::SIGTERM);
            // A stopped process hears SIGTERM only once it goes on.
            self.signal_all(Signal::SIGCONT);
        }
        while self.reap() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return self.kill_tree();
            }
            if self.wait_for_signal(left) {
                self.signals.take();
            }
        }
    }

    fn kill_tree(&mut self) {
        let deadline = Instant::now() + KILL_FOR;
        loop {
            self.signal_all(Signal::SIGKILL);
            if !self.reap() || Instant::now() > deadline {
                return;
            }
            std::thread::sleep(KILL_EVERY);
        }
    }

    /// Like `wait_for`, without the lease: it may be closed and would always be ready.
    fn wait_for_signal(&self, time: Duration) -> bool {
        let Some(fd) = self.signals.fd() else {
            std::thread::sleep(time.min(KILL_EVERY));
            return true;
        };
        let time = PollTimeout::try_from(time + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        poll(&mut [PollFd::new(fd, PollFlags::POLLIN)], time).is_ok_and(|ready| ready > 0)
    }

    /// To the leader's group and to every descendant, whatever group or session it is in. One that ended meanwhile is no fault.
    fn signal_all(&self, signal: Signal) {
        if self.exit_code.is_none() {
            tolerate(killpg(self.leader, signal));
        }
        for pid in tree::descendants_of(Pid::this()) {
            tolerate(kill(pid, signal));
        }
    }
}

/// A guard that is killed (by the kernel where memory is short, say) can end nobody: then at least the leader ends with it.
#[cfg(target_os = "linux")]
#[allow(unsafe_code)]
fn die_with_guard(command: &mut Command) {
    let guard = Pid::this();
    let tie = move || {
        nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
        // The guard may have ended before.
        if nix::unistd::getppid() != guard { Err(Errno::ESRCH.into()) } else { Ok(()) }
    };
    // SAFETY: between fork and exec it makes two system calls and allocates nothing; errors are made of bare numbers.
    unsafe {
        command.pre_exec(tie);
    }
}

#[cfg(not(target_os = "linux"))]
fn die_with_guard(_: &mut Command) {}

/// For what cannot be helped here: a process that ended meanwhile, or one of another user, which the loops meet again.
fn tolerate<T>(result: nix::Result<T>) {
    if let Err(error) = result {
        debug_assert!(error != Errno::EINVAL, "{error}");
    }
}

/// The leader holds its pipes; the guard must not keep them open for it.
fn release_streams() {
    if let Ok(null) = File::options().read(true).write(true).open("/dev/null") {
        tolerate(nix::unistd::dup2_stdin(&null));
        tolerate(nix::unistd::dup2_stdout(&null));
        tolerate(nix::unistd::dup2_stderr(&null));
    }
    // Nor a folder that its owner may want to remove.
    drop(std::env::set_current_dir("/"));
}

/// Signals as something to poll.
struct Signals {
    #[cfg(target_os = "linux")]
    fd: nix::sys::signalfd::SignalFd,
}

impl Signals {
    fn block() -> Option<Self> {
        let mut set = SigSet::empty();
        for signal in [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP] {
            set.add(signal);
        }
        #[cfg(target_os = "linux")]
        {
            use nix::sys::signalfd::{SfdFlags, SignalFd};
            sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None).ok()?;
            Some(Self { fd: SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK).ok()? })
        }
        #[cfg(not(target_os = "linux"))]
        {
            set.remove(Signal::SIGTERM);
            sigprocmask(SigmaskHow::SIG_BLOCK, Some(&set), None).ok()?;
            Some(Self {})
        }
    }

    /// Takes all that came. True if one of them asks to end.
    #[cfg(target_os = "linux")]
    fn take(&mut self) -> bool {
        let mut asked = false;
        while let Ok(Some(info)) = self.fd.read_signal() {
            asked |= info.ssi_signo != Signal::SIGCHLD as u32;
        }
        asked
    }

    #[cfg(not(target_os = "linux"))]
    fn take(&mut self) -> bool {
        false
    }

    #[cfg(target_os = "linux")]
    fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }

    #[cfg(not(target_os = "linux"))]
    fn fd(&self) -> Option<std::os::fd::BorrowedFd<'_>> {
        None
    }

    /// Where signals cannot be polled, children are looked after twenty times a second.
    fn longest_wait(&self) -> PollTimeout {
        if self.fd().is_some() { PollTimeout::NONE } else { PollTimeout::from(50_u8) }
    }
}

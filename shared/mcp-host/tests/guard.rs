//! The guard with real processes: whatever a child does, nothing of it outlives its owner.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;
use vance_mcp_host::guard::{Exit, GuardedChild, Spawn, SpawnError, spawn};
use vance_mcp_host::sandbox::Sandbox;

const PROBE: &str = env!("CARGO_BIN_EXE_mcp-host-probe");

/// A tree that does all it can to survive: ignores SIGTERM, forks a grandchild that called setsid twice over, and writes every pid into a file.
const STUBBORN: &str = r#"
import os, signal, sys, time
out = sys.argv[1]
signal.signal(signal.SIGTERM, signal.SIG_IGN)
signal.signal(signal.SIGHUP, signal.SIG_IGN)
def note():
    with open(out, "a") as f: f.write("%d\n" % os.getpid())
note()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.setsid()
        note()
        time.sleep(600)
    note()
    time.sleep(600)
time.sleep(600)
"#;

fn what(argv: &[&str], cwd: &Path) -> Spawn {
    Spawn {
        argv: argv.iter().map(|word| (*word).to_owned()).collect(),
        cwd: cwd.to_owned(),
        env: BTreeMap::from([
            ("PATH".into(), std::env::var_os("PATH").unwrap()),
            ("ONLY".into(), OsString::from("this")),
        ]),
        stdin: true,
        guard_program: PROBE.into(),
        sandbox: None,
    }
}

async fn output_of(child: &mut GuardedChild) -> String {
    let mut text = String::new();
    child.stdout.take().unwrap().read_to_string(&mut text).await.unwrap();
    text
}

/// Waits until the file holds `count` pids.
async fn pids_in(file: &Path, count: usize) -> Vec<i32> {
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let pids: Vec<i32> = text.lines().filter_map(|line| line.parse().ok()).collect();
        if pids.len() >= count {
            return pids;
        }
        assert!(Instant::now() < deadline, "only {pids:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A zombie whose parent is init is init's to collect, and gone for us; any other zombie is ours and counts.
fn lives(pid: i32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    !stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" Z 1 "))
}

async fn assert_gone(pids: &[i32]) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while pids.iter().any(|pid| lives(*pid)) {
        assert!(
            Instant::now() < deadline,
            "survivors: {:?}",
            pids.iter().filter(|pid| lives(**pid)).collect::<Vec<_>>()
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

fn stubborn(dir: &Path) -> (PathBuf, PathBuf) {
    let script = dir.join("stubborn.py");
    std::fs::write(&script, STUBBORN).unwrap();
    (script, dir.join("pids"))
}

#[tokio::test]
async fn the_exit_of_the_leader_is_forwarded() {
    let dir = tempfile::tempdir().unwrap();
    for (script, want) in [("exit 3", Exit::Code(3)), ("kill -9 $$", Exit::Signal(9)), ("true", Exit::Code(0))] {
        let mut child = spawn(what(&["sh", "-c", script], dir.path())).await.unwrap();
        assert_eq!(child.wait().await.unwrap(), want, "{script}");
        assert_eq!(child.wait().await.unwrap(), want, "{script}, asked again");
    }
}

#[tokio::test]
async fn a_child_has_its_own_group_folder_environment_and_a_clean_signal_mask() {
    let dir = tempfile::tempdir().unwrap();
    let script = "pwd; env | grep -v -e ^PWD= -e ^_= -e ^OLDPWD= -e ^SHLVL= -e ^PATH=; grep -e SigBlk /proc/self/status; ps -o pgid= -p $$; ls -l /proc/self/fd | grep socket";
    let mut child = spawn(what(&["sh", "-c", script], dir.path())).await.unwrap();
    let text = output_of(&mut child).await;
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let want = [
        dir.path().canonicalize().unwrap().to_str().unwrap().to_owned(),
        "ONLY=this".to_owned(),
        "SigBlk:\t0000000000000000".to_owned(),
        child.pid().to_string(),
    ];
    assert_eq!(lines, want);
}

#[tokio::test]
async fn the_leader_alone_holds_its_pipes() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = spawn(what(&["sh", "-c", "exec >&-; exec sleep 600"], dir.path())).await.unwrap();
    assert_eq!(tokio::time::timeout(Duration::from_secs(10), output_of(&mut child)).await.unwrap(), "");
    child.kill(Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn what_cannot_be_started_is_said() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("broken"), "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(dir.path().join("broken"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for (argv, want) in [
        (&["no-such-program-here"][..], "program 'no-such-program-here' not found in PATH"),
        (&["./nothing"][..], "'./nothing' is not an executable file"),
        (&["./broken"][..], "cannot start './broken': No such file or directory (os error 2)"),
        (&[][..], "the command is empty"),
    ] {
        assert_eq!(spawn(what(argv, dir.path())).await.unwrap_err().to_string(), want);
    }
    let nowhere = spawn(what(&["true"], Path::new("/no/such/folder"))).await.unwrap_err();
    assert!(matches!(nowhere, SpawnError::NoFolder { .. }), "{nowhere}");
    let no_guard = spawn(Spawn { guard_program: "/bin/true".into(), ..what(&["true"], dir.path()) }).await.unwrap_err();
    assert!(matches!(no_guard, SpawnError::Guard { .. }), "{no_guard}");
}

#[tokio::test]
async fn kill_ends_a_stubborn_tree_and_waits_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let (script, file) = stubborn(dir.path());
    let mut child =
        spawn(what(&["python3", script.to_str().unwrap(), file.to_str().unwrap()], dir.path())).await.unwrap();
    let pids = pids_in(&file, 3).await;
    let begin = Instant::now();
    assert_eq!(child.kill(Duration::from_millis(200)).await.unwrap(), Exit::Signal(9));
    assert!(begin.elapsed() >= Duration::from_millis(200), "the grace was not kept");
    assert!(pids.iter().all(|pid| !lives(*pid)), "gone when kill returns");
}

#[tokio::test]
async fn a_child_that_hears_sigterm_may_finish_within_the_grace() {
    let dir = tempfile::tempdir().unwrap();
    let script = "trap 'echo bye; exit 7' TERM; echo up; while :; do sleep 0.05; done";
    let mut child = spawn(what(&["sh", "-c", script], dir.path())).await.unwrap();
    let mut out = child.stdout.take().unwrap();
    let mut seen = [0_u8; 3];
    out.read_exact(&mut seen).await.unwrap();
    assert_eq!(child.kill(Duration::from_secs(20)).await.unwrap(), Exit::Code(7));
    let mut rest = String::new();
    out.read_to_string(&mut rest).await.unwrap();
    assert_eq!(rest, "bye\n");
}

#[tokio::test]
async fn dropping_the_child_ends_its_tree() {
    let dir = tempfile::tempdir().unwrap();
    let (script, file) = stubborn(dir.path());
    let child = spawn(what(&["python3", script.to_str().unwrap(), file.to_str().unwrap()], dir.path())).await.unwrap();
    let pids = pids_in(&file, 3).await;
    drop(child);
    assert_gone(&pids).await;
}

#[tokio::test]
async fn a_guard_that_was_stopped_ends_with_its_child_all_the_same() {
    for dropped in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let (script, out) = stubborn(dir.path());
        let argv = ["python3", script.to_str().unwrap(), out.to_str().unwrap()];
        let mut child = spawn(what(&argv, dir.path())).await.unwrap();
        let mut pids = pids_in(&out, 3).await;
        let guard = parent_of(pids[0]);
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(guard), nix::sys::signal::Signal::SIGSTOP).unwrap();
        pids.push(guard);
        if dropped {
            drop(child);
        } else {
            child.kill(Duration::ZERO).await.unwrap();
        }
        assert_gone(&pids).await;
    }
}

#[tokio::test]
async fn what_a_leader_leaves_behind_ends_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("pids");
    let script = format!(
        "setsid sh -c 'echo $$ >> {0}; exec sleep 600' & while [ ! -s {0} ]; do sleep 0.02; done; exit 5",
        file.display()
    );
    let mut child = spawn(what(&["sh", "-c", &script], dir.path())).await.unwrap();
    assert_eq!(child.wait().await.unwrap(), Exit::Code(5));
    assert!(!lives(pids_in(&file, 1).await[0]));
}

#[tokio::test]
async fn a_host_that_is_killed_leaves_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let (script, file) = stubborn(dir.path());
    for round in 1..=3_usize {
        let mut host = tokio::process::Command::new(PROBE)
            .args(["hold", "python3", script.to_str().unwrap(), file.to_str().unwrap()])
            .stdin(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let mut pids = pids_in(&file, 3 * round).await;
        pids.extend(guards_of(i32::try_from(host.id().unwrap()).unwrap()));
        assert_eq!(pids.len(), 3 * round + 1);
        host.start_kill().unwrap();
        host.wait().await.unwrap();
        assert_gone(&pids).await;
    }
}

#[tokio::test]
async fn a_guard_that_gets_sigterm_ends_its_tree() {
    let dir = tempfile::tempdir().unwrap();
    let (script, file) = stubborn(dir.path());
    let mut child =
        spawn(what(&["python3", script.to_str().unwrap(), file.to_str().unwrap()], dir.path())).await.unwrap();
    let pids = pids_in(&file, 3).await;
    let guard = parent_of(i32::try_from(child.pid()).unwrap());
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(guard), nix::sys::signal::Signal::SIGTERM).unwrap();
    assert_eq!(child.wait().await.unwrap(), Exit::Signal(9));
    assert!(pids.iter().all(|pid| !lives(*pid)));
}

#[tokio::test]
async fn a_leader_dies_with_its_guard_though_nobody_sees_to_it() {
    let dir = tempfile::tempdir().unwrap();
    let mut child = spawn(what(&["sleep", "600"], dir.path())).await.unwrap();
    let leader = i32::try_from(child.pid()).unwrap();
    let guard = nix::unistd::Pid::from_raw(parent_of(leader));
    nix::sys::signal::kill(guard, nix::sys::signal::Signal::SIGKILL).unwrap();
    // Without a look at the child: that would kill its group.
    assert_gone(&[leader]).await;
    assert_eq!(child.wait().await.unwrap(), Exit::Lost);
}

/// Opens each device that is named, as a program that is up to something would, and says what came of it.
const OPENS: &str = r#"
import errno, os, sys
for path in sys.argv[1:]:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NOCTTY))
        print("opened")
    except OSError as error:
        print(errno.errorcode[error.errno])
"#;

#[tokio::test]
async fn a_sandboxed_child_opens_no_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let pty = nix::pty::openpty(None, None).unwrap();
    let terminal = nix::unistd::ttyname(&pty.slave).unwrap();
    let by_fd = format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(&pty.slave));
    let argv = ["python3", "-c", OPENS, terminal.to_str().unwrap(), &by_fd, "/dev/ptmx", "/dev/tty", "/dev/null"];
    for (is_fenced, want) in
        [(false, "opened opened opened ENXIO opened"), (true, "EACCES EACCES EACCES EACCES opened")]
    {
        let mut child = what(&argv, dir.path());
        child.sandbox = is_fenced.then(|| Sandbox::of_machine(&child.env));
        let mut child = spawn(child).await.unwrap();
        let text = output_of(&mut child).await;
        assert_eq!(text.split_whitespace().collect::<Vec<_>>().join(" "), want, "fenced: {is_fenced}");
    }
}

/// A host at a terminal, as a person starts one.
const AT_A_TERMINAL: &str = r#"
import os, pty, sys
pid, terminal = pty.fork()
if pid == 0:
    os.close(os.open("/dev/tty", os.O_RDWR))
    os.execv(sys.argv[1], sys.argv[1:])
try:
    while os.read(terminal, 4096): pass
except OSError: pass
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"#;

#[tokio::test]
async fn no_child_has_the_terminal_of_its_host() {
    let dir = tempfile::tempdir().unwrap();
    let said = dir.path().join("said");
    let line = "(: < /dev/tty) 2>&1 && echo has it; cut -d' ' -f7 /proc/self/stat; for n in 0 1 2; do test -t $n && echo terminal; done; true";
    let line = format!("({line}) > {0}.part; mv {0}.part {0}", said.display());
    let host = tokio::process::Command::new("python3")
        .args(["-c", AT_A_TERMINAL, PROBE, "hold", "sh", "-c", &line])
        .stdin(std::process::Stdio::null())
        .status();
    assert!(host.await.unwrap().success());
    let said = std::fs::read_to_string(said).unwrap();
    // The system's word for the missing device, then the terminal's number: none.
    assert!(said.ends_with("\n0\n") && said.contains("No such device"), "{said}");
}

fn parent_of(pid: i32) -> i32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn guards_of(host: i32) -> Vec<i32> {
    let all =
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    all.filter(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok() && parent_of(*pid) == host).collect()
}

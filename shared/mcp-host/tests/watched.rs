//! The files that a yes covers are looked at before the start, after it, once the server has said what it offers, and before each restart.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(unix)]

#[path = "support/host.rs"]
mod host;

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};

use host::{Host, plan, run};
use vance_mcp_host::{HostEvent, files};
use vance_shared::gate::{Answer, Book, Known, Once, Project, TrustedLaunch, Verdict, judge};
use vance_shared::launch::{Origin, Transport};

/// A server that answers `tools/list` only after it has written into a file.
const LATE: &str = r#"
import json, os, sys
open(sys.argv[2], "a").write("start %d\n" % os.getpid())
for line in sys.stdin:
    asked = json.loads(line)
    answer = {"jsonrpc": "2.0", "id": asked.get("id")}
    if asked["method"] == "initialize":
        info = {"name": "late", "version": "1"}
        answer["result"] = {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
    elif asked["method"] == "tools/list":
        if sys.argv[1] != "-": open(sys.argv[1], "a").write('# other')
        answer["result"] = {"tools": [{"name": "t", "inputSchema": {"type": "object"}}]}
    else:
        answer["error"] = {"code": -32601, "message": "unknown"}
    if "id" in asked: print(json.dumps(answer), flush=True)
"#;

struct Repo {
    dir: tempfile::TempDir,
    project: PathBuf,
}

impl Repo {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let project = dir.path().canonicalize().unwrap().join("the project");
        std::fs::create_dir(&project).unwrap();
        std::fs::write(dir.path().join("late.py"), LATE).unwrap();
        Self { dir, project }
    }

    /// `x.sh`, which becomes the late server that writes into the file.
    fn script(&self, below: &str, file: &str) {
        let root = self.dir.path().display();
        let folder = self.project.join(below);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("x.sh"), format!("exec python3 {root}/late.py {file} {root}/ledger\n")).unwrap();
    }

    /// What a person said yes to.
    fn allowed(&self, words: &[&str], cwd: &str) -> TrustedLaunch {
        let argv = words.iter().map(|word| (*word).to_owned()).collect();
        let mut plan = plan(Transport::Stdio { argv, cwd: Some(cwd.to_owned()), env: BTreeMap::new() });
        plan.origin = Origin::Project;
        let project = Project::new(&self.project).unwrap();
        let files = files::hash(&files::named(&plan, &project), &project).unwrap();
        let (book, once) = (Book::empty(), Once::default());
        let Verdict::Ask(question) = judge(plan, &project, files, Known { book: &book, once: &once, replaces: None })
        else {
            panic!("not asked")
        };
        question.answered(Answer::Once, "2026-03-01").unwrap().0
    }

    fn start(self, launch: TrustedLaunch, guard: Option<&Path>) -> Host {
        Host::start_trusted(launch, self.dir, Default::default(), guard)
    }
}

/// Waits until it is given up, and says why. Nothing of it is left then.
async fn refused(host: &Host) -> String {
    let failed = |host: &Host| {
        host.events().into_iter().find_map(|event| match event {
            HostEvent::Failed { reason } => Some(reason),
            _ => None,
        })
    };
    host.until("a refusal", |host| failed(host).is_some()).await;
    for pid in host.pids() {
        assert!(!Path::new(&format!("/proc/{pid}")).exists(), "{pid} lives");
    }
    failed(host).unwrap()
}

const OTHER: &str = "x.sh is not what was allowed: it changed since; /tools reload asks again";

#[test]
fn a_script_that_changes_while_its_server_starts_gets_it_killed() {
    run(async {
        let clone = Repo::new();
        // It never says a word, so that only the look after the start can find it.
        std::fs::write(clone.project.join("x.sh"), "exec sleep 600\n").unwrap();
        let launch = clone.allowed(&["sh", "./x.sh"], ".");
        // Between the first look and the program stands the guard: here one that changes the script.
        let guard = clone.dir.path().join("guard");
        let (probe, script) = (env!("CARGO_BIN_EXE_mcp-host-probe"), clone.project.join("x.sh"));
        let line = format!("#!/bin/sh\necho '# other' >> '{}'\nexec {probe} \"$@\"\n", script.display());
        std::fs::write(&guard, line).unwrap();
        std::fs::set_permissions(&guard, std::fs::Permissions::from_mode(0o755)).unwrap();
        let host = clone.start(launch, Some(&guard));
        assert_eq!(refused(&host).await, format!("{OTHER}; it was killed"));
        host.end_failed().await;
    });
}

#[test]
fn a_script_that_changed_by_the_time_its_server_answers_gets_it_killed_and_data_may_change() {
    run(async {
        for (file, is_code) in [("./x.sh", true), ("./work.db", false)] {
            let clone = Repo::new();
            clone.script("", file);
            std::fs::write(clone.project.join("work.db"), "").unwrap();
            let launch = clone.allowed(&["sh", "./x.sh", "./work.db"], ".");
            assert_eq!(launch.files().len(), 2);
            let host = clone.start(launch, None);
            if is_code {
                assert_eq!(refused(&host).await, format!("{OTHER}; it was killed"));
                assert!(!host.pids().is_empty());
                host.end_failed().await;
            } else {
                host.up().await;
                host.end().await;
            }
        }
    });
}

#[test]
fn a_script_that_changes_before_a_restart_does_not_run() {
    run(async {
        let clone = Repo::new();
        clone.script("", "-");
        let (launch, script) = (clone.allowed(&["sh", "./x.sh"], "."), clone.project.join("x.sh"));
        let host = clone.start(launch, None);
        host.up().await;
        std::fs::write(&script, format!("touch '{}'\n", script.with_file_name("evil").display())).unwrap();
        let pid = nix::unistd::Pid::from_raw(host.pids()[0]);
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL).unwrap();
        assert_eq!(refused(&host).await, OTHER);
        assert!(!script.with_file_name("evil").exists());
        host.end_failed().await;
    });
}

#[test]
fn a_directory_that_is_a_link_counts_by_what_lies_behind_it() {
    run(async {
        let clone = Repo::new();
        clone.script("one", "-");
        std::fs::create_dir(clone.project.join("two")).unwrap();
        let evil = clone.project.join("evil");
        std::fs::write(clone.project.join("two/x.sh"), format!("touch '{}'\n", evil.display())).unwrap();
        let link = clone.project.join("work");
        symlink("one", &link).unwrap();
        let launch = clone.allowed(&["sh", "./x.sh"], "work");
        std::fs::remove_file(&link).unwrap();
        symlink("two", &link).unwrap();
        let host = clone.start(launch, None);
        assert_eq!(refused(&host).await, format!("work/{OTHER}"));
        assert!(!evil.exists());
        host.end_failed().await;
    });
}

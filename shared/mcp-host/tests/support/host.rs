//! Hosts one server for a test, on the real threads and the real supervisor.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use vance_mcp_host::{CallRequest, HostEnv, HostEvent, HostState, McpHandle, People, Vault, server_with_people};
use vance_shared::call::Outcome;
use vance_shared::ids::CallId;
use vance_shared::json::Raw;
use vance_shared::launch::{LaunchPlan, Origin, RestartBudget, Transport, TrustedLaunch};
use vance_shared::names::{PackName, ToolName};
use vance_shared::trace::TraceContext;
use vance_supervise::SupervisorRef;

/// Long enough for a loaded machine; a test that waits this long has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Host {
    pub(crate) handle: McpHandle,
    pub(crate) supervisor: SupervisorRef,
    events: Arc<Mutex<Vec<HostEvent>>>,
    pub(crate) dir: tempfile::TempDir,
}

/// Runs a test on the threads of a program.
pub(crate) fn run(test: impl Future<Output = ()>) {
    // The second of two tests in one process finds it installed.
    drop(rustls::crypto::ring::default_provider().install_default());
    if let Ok(filter) = std::env::var("TEST_LOG") {
        println!("log: {filter}");
    }
    vance_supervise::run(2, test).unwrap();
}

pub(crate) fn fake(dir: &Path, words: &[&str]) -> Transport {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/support/fake.py");
    let ledger = dir.join("ledger");
    let mut argv = vec!["python3".to_owned(), script.to_str().unwrap().to_owned(), ledger.to_str().unwrap().to_owned()];
    argv.extend(words.iter().map(|word| (*word).to_owned()));
    Transport::Stdio { argv, cwd: None, env: BTreeMap::new() }
}

pub(crate) fn plan(transport: Transport) -> LaunchPlan {
    LaunchPlan {
        pack: PackName::parse("fake").unwrap(),
        origin: Origin::Global,
        transport,
        init_timeout: PATIENCE,
        call_timeout: PATIENCE,
        labels: vec!["test".into()],
        disabled_sub_tools: Vec::new(),
        default_args: Map::new(),
        replay: BTreeMap::new(),
        restart: RestartBudget { max_restarts: 2, within: Duration::from_secs(60) },
        source: vance_shared::launch::Source::default(),
    }
}

impl Host {
    /// A fake server with these words.
    pub(crate) fn of_fake(words: &[&str]) -> Host {
        Self::with(words, |plan| plan)
    }

    /// And with a changed plan.
    pub(crate) fn with(words: &[&str], change: impl FnOnce(LaunchPlan) -> LaunchPlan) -> Host {
        let dir = tempfile::tempdir().unwrap();
        let plan = change(plan(fake(dir.path(), words)));
        Self::start(plan, dir)
    }

    pub(crate) fn start(plan: LaunchPlan, dir: tempfile::TempDir) -> Host {
        Self::start_with(plan, dir, People::default())
    }

    pub(crate) fn start_with(plan: LaunchPlan, dir: tempfile::TempDir, people: People) -> Host {
        Self::start_trusted(TrustedLaunch::own_home(plan).unwrap(), dir, people, None)
    }

    /// What somebody said yes to, and with another guard.
    pub(crate) fn start_trusted(
        launch: TrustedLaunch,
        dir: tempfile::TempDir,
        people: People,
        guard: Option<&Path>,
    ) -> Host {
        Self::start_whole(launch, dir, people, guard, None)
    }

    /// Of a Brain, with its vault.
    pub(crate) fn with_vault(plan: LaunchPlan, vault: Arc<dyn Vault>) -> Host {
        let (launch, dir) = (TrustedLaunch::own_home(plan).unwrap(), tempfile::tempdir().unwrap());
        Self::start_whole(launch, dir, People::default(), None, Some(vault))
    }

    fn start_whole(
        launch: TrustedLaunch,
        dir: tempfile::TempDir,
        people: People,
        guard: Option<&Path>,
        vault: Option<Arc<dyn Vault>>,
    ) -> Host {
        let env = HostEnv {
            state_dir: dir.path().join("state"),
            logins_dir: dir.path().join("state"),
            packs_dir: Default::default(),
            read_file: None,
            vault,
            project_dir: Some(dir.path().join("the project")),
            guard_program: guard.unwrap_or(Path::new(env!("CARGO_BIN_EXE_mcp-host-probe"))).to_owned(),
            client_name: "vancetope".into(),
            sandbox: None,
        };
        let events: Arc<Mutex<Vec<HostEvent>>> = Arc::default();
        let ear = Arc::clone(&events);
        let (handle, spec) =
            server_with_people(launch, env, Arc::new(move |event| ear.lock().unwrap().push(event)), people);
        Host { handle, supervisor: SupervisorRef::start(spec), events, dir }
    }

    pub(crate) fn events(&self) -> Vec<HostEvent> {
        self.events.lock().unwrap().clone()
    }

    pub(crate) async fn until(&self, what: &str, condition: impl Fn(&Host) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !condition(self) {
            assert!(
                Instant::now() < deadline,
                "waited in vain for {what}; state {}, events {:#?}",
                self.handle.state(),
                self.events()
            );
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) async fn up(&self) {
        self.until("up", |host| host.handle.state() == HostState::Up).await;
    }

    /// Ends everything, as a program does, and shows that nobody is left.
    pub(crate) async fn end(self) {
        let pids = self.pids();
        self.supervisor.shutdown().await;
        assert_eq!(self.handle.state(), HostState::Stopped);
        let alive: Vec<&i32> = pids.iter().filter(|pid| lives(**pid)).collect();
        assert!(alive.is_empty(), "survivors: {alive:?}");
    }

    /// The same for one that was given up before.
    pub(crate) async fn end_failed(self) {
        self.supervisor.shutdown().await;
    }

    /// What the server did, by its own ledger.
    pub(crate) fn ledger(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("ledger")).unwrap_or_default()
    }

    pub(crate) fn pids(&self) -> Vec<i32> {
        self.ledger().lines().filter_map(|line| line.strip_prefix("start ")?.parse().ok()).collect()
    }

    pub(crate) fn count(&self, line: &str) -> usize {
        self.ledger().lines().filter(|l| *l == line).count()
    }

    pub(crate) fn request(&self, subtool: &str, arguments: Value) -> CallRequest {
        CallRequest {
            call_id: CallId::generate(),
            tool: ToolName::of_subtool(&PackName::parse("fake").unwrap(), subtool),
            arguments: Raw::from(arguments),
            timeout: PATIENCE,
            cap: PATIENCE,
            trace: TraceContext::root(),
            cancel: CancellationToken::new(),
            progress: None,
            person: vance_mcp_host::Person::default(),
        }
    }

    pub(crate) async fn call(&self, subtool: &str, arguments: Value) -> Outcome {
        self.handle.call(self.request(subtool, arguments)).await
    }

    pub(crate) fn tool_names(&self) -> Vec<String> {
        self.handle.tools().iter().map(|tool| tool.name.to_string()).collect()
    }
}

pub(crate) fn text_of(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done(result) => result.joined_text(),
        other => panic!("expected a result, got {other:?}"),
    }
}

pub(crate) fn json_of(outcome: &Outcome) -> Value {
    serde_json::from_str(&text_of(outcome)).unwrap()
}

pub(crate) fn code_of(outcome: &Outcome) -> &str {
    match outcome {
        Outcome::Failed { error, .. } => &error.code,
        other => panic!("expected a failure, got {other:?}"),
    }
}

/// A zombie whose parent is init is init's to collect, and gone for us; any other zombie is ours and counts.
pub(crate) fn lives(pid: i32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    !stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" Z 1 "))
}

/// Where the real servers are installed.
pub(crate) fn cache() -> PathBuf {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    std::env::var_os("VANCE_TEST_CACHE").map_or_else(|| home.join(".cache/vancetope-test"), PathBuf::from)
}

/// A file of a real server. One that is missing fails the test.
pub(crate) fn installed(path: &str) -> String {
    let file = cache().join(path);
    assert!(file.exists(), "{} is missing: run tests/install-components.sh", file.display());
    file.to_str().unwrap().to_owned()
}

pub(crate) fn stdio(argv: &[&str]) -> Transport {
    Transport::Stdio { argv: argv.iter().map(|word| (*word).to_owned()).collect(), cwd: None, env: BTreeMap::new() }
}

pub(crate) fn message(text: &str) -> Value {
    json!({"message": text})
}

//! A home, a project and the tools over them.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::Value;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use vance_foot::native::{Asker, NativeCall, NativeEnv, NativeTools, Question};
use vance_foot_core::permissions::parse_permissions;
use vance_shared::call::Outcome;
use vance_shared::ids::CallId;
use vance_shared::json::Raw;
use vance_shared::names::ToolName;
use vance_shared::schema::check_arguments;
use vance_shared::tool::ToolResult;

/// Everything that a machine under load may need.
pub(crate) const GENEROUS: Duration = Duration::from_secs(60);

pub(crate) struct World {
    pub(crate) tools: Arc<NativeTools>,
    /// The working directory.
    pub(crate) project: PathBuf,
    /// Beside the project, outside every root.
    pub(crate) outside: PathBuf,
    pub(crate) home: PathBuf,
    _dir: TempDir,
}

/// Answers every question the same way, or never.
pub(crate) struct Person {
    pub(crate) answer: Option<bool>,
    pub(crate) asked: Mutex<Vec<Question>>,
}

impl Person {
    pub(crate) fn who_says(answer: Option<bool>) -> Arc<Self> {
        Arc::new(Self { answer, asked: Mutex::new(Vec::new()) })
    }
}

impl Asker for Person {
    fn ask(&self, question: Question) -> BoxFuture<'static, bool> {
        self.asked.lock().unwrap().push(question);
        match self.answer {
            Some(answer) => std::future::ready(answer).boxed(),
            None => std::future::pending().boxed(),
        }
    }
}

impl World {
    /// With these rules and nobody to ask.
    pub(crate) fn new(permissions: &str) -> Self {
        Self::with(permissions, None)
    }

    /// Everything is allowed that can be.
    pub(crate) fn open() -> Self {
        Self::new("allow: [{write: '**'}, {tool: shell_execute}, {tool: process_start}, {exec: [sh]}]")
    }

    pub(crate) fn with(permissions: &str, asker: Option<Arc<dyn Asker>>) -> Self {
        Self::below(std::env::temp_dir(), permissions, asker)
    }

    /// With all its folders below this one.
    pub(crate) fn below(folder: impl AsRef<Path>, permissions: &str, asker: Option<Arc<dyn Asker>>) -> Self {
        let dir = tempfile::tempdir_in(folder).unwrap();
        let base = dir.path().canonicalize().unwrap();
        let [project, outside, home] = ["project", "outside", "home"].map(|name| base.join(name));
        for folder in [&project, &outside, &home] {
            std::fs::create_dir(folder).unwrap();
        }
        let rules = parse_permissions(&home.join("permissions.yaml").to_string_lossy(), permissions).unwrap();
        let tools = NativeTools::new(NativeEnv {
            home: home.clone(),
            project_dir: project.clone(),
            state_dir: home.join("state"),
            guard_program: env!("CARGO_BIN_EXE_vancetope").into(),
            rules,
            asker,
        });
        Self { tools: Arc::new(tools), project, outside, home, _dir: dir }
    }

    pub(crate) fn put(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.project.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }

    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Outcome {
        self.call_with(tool, arguments, GENEROUS, CancellationToken::new()).await
    }

    /// Every structured result is checked against the tool's own output schema on the way.
    pub(crate) async fn call_with(
        &self,
        tool: &str,
        arguments: Value,
        timeout: Duration,
        cancel: CancellationToken,
    ) -> Outcome {
        let outcome = self
            .tools
            .call(NativeCall {
                call_id: CallId::generate(),
                tool: ToolName::parse(tool).unwrap(),
                arguments: Raw::from(arguments),
                timeout,
                cancel,
                progress: None,
            })
            .await;
        let result = match &outcome {
            Outcome::Done(result) => Some(result),
            Outcome::Failed { result, .. } => result.as_ref(),
            Outcome::Cancelled { .. } | Outcome::Unknown { .. } => None,
        };
        if let Some(structured) = result.and_then(|r| r.structured.as_ref()) {
            let spec = self.tools.specs().into_iter().find(|s| s.name.as_str() == tool).unwrap();
            check_arguments(&spec.output_schema.unwrap(), &structured.value()).unwrap();
        }
        outcome
    }

    pub(crate) async fn done(&self, tool: &str, arguments: Value) -> (String, Value) {
        taken(self.call(tool, arguments).await)
    }

    pub(crate) async fn fails(&self, tool: &str, arguments: Value, code: &str) -> String {
        failure(self.call(tool, arguments).await, code).0
    }
}

/// Text and structured content of a good result.
pub(crate) fn taken(outcome: Outcome) -> (String, Value) {
    match outcome {
        Outcome::Done(result) => (result.joined_text(), result.structured.map(|s| s.value()).unwrap_or_default()),
        other => panic!("expected a result, got {other:?}"),
    }
}

/// Message and payload of a failure with this code.
pub(crate) fn failure(outcome: Outcome, code: &str) -> (String, Option<ToolResult>) {
    match outcome {
        Outcome::Failed { error, result } if error.code == code => (error.message, result),
        other => panic!("expected a failure with code {code}, got {other:?}"),
    }
}

/// Waits for something that happens in another process.
pub(crate) async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < GENEROUS, "never came true: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Whether a process still runs (a zombie does not).
pub(crate) fn is_alive(pid: i32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => !stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('Z')),
        Err(_) => {
            !Path::new("/proc/self").exists() && nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None).is_ok()
        }
    }
}

//! The Foot's own tools: files, shell, processes, git, PDF text. No MCP server, no pack.
//!
//! ```text
//! call → find → check arguments → resolve paths → permit (policy, then the person) → do → bounded result
//! ```
//!
//! Nothing that a tool starts outlives the Foot; nothing that it opens lies outside the roots; no result is larger than what travels.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;
use vance_foot_core::permissions::{Line, Rules};
use vance_mcp_host::sandbox::Sandbox;
use vance_mcp_host::{Elicit, Elicited};
use vance_shared::call::{Fault, Outcome};
use vance_shared::ids::CallId;
use vance_shared::json::Raw;
use vance_shared::names::ToolName;
use vance_shared::schema::check_arguments;
use vance_shared::tool::{ToolResult, ToolSpec};

use crate::trust::Consent;

mod edit;
mod gate;
mod git;
mod git_status;
mod launch;
mod list;
mod output;
mod pdf;
mod processes;
mod read;
mod roots;
mod sandbox;
mod search;
mod shell;
mod specs;
mod text;
mod walk;
mod write;

use gate::{Gate, Halt};
use launch::Launcher;
use processes::Processes;
use specs::Tool;

/// Largest result, in bytes of JSON: below what one message may carry, with room for its envelope.
const MAX_RESULT_BYTES: usize = 7 * 1024 * 1024;

/// What the native tools stand on.
pub struct NativeEnv {
    /// The product's home in use; protected from the tools.
    pub home: PathBuf,
    /// The working directory: relative paths start here, and without `roots:` it is the only root.
    pub project_dir: PathBuf,
    /// The Foot's own state; protected from the tools.
    pub state_dir: PathBuf,
    /// A program whose `main` begins with [`enter_if_asked`]; usually `std::env::current_exe()`.
    pub guard_program: PathBuf,
    /// `permissions.yaml`.
    pub rules: Rules,
    /// Who answers questions. Without one, every question is answered with no.
    pub asker: Option<Arc<dyn Asker>>,
}

/// Somebody who can answer: a terminal.
pub trait Asker: Send + Sync {
    /// True is yes. Dropping the future takes the question back.
    fn ask(&self, question: Question) -> BoxFuture<'static, bool>;

    /// The same person, for what came with the working directory; none if they are not asked about that.
    fn consent(&self) -> Option<Arc<dyn Consent>> {
        None
    }

    /// The same person, for what a server asks in the middle of a call; none if they are not asked that.
    fn elicit(&self) -> Option<Elicit> {
        None
    }

    /// The same person, for what is asked in a call that another client runs; none if they are not asked that.
    fn elsewhere(&self) -> Option<AskElsewhere> {
        None
    }
}

/// A question of a call that another client (or the Brain) runs.
#[derive(Debug, Clone)]
pub struct Elsewhere {
    /// What is asked: foreign text.
    pub elicit: vance_shared::wire::Elicit,
    /// Why it is taken back, once it is. Safe to print.
    pub over: Arc<OnceLock<String>>,
}

/// Asks the person. Dropping the future takes the question back; whoever does not answer leaves it open.
pub type AskElsewhere = Arc<dyn Fn(Elsewhere) -> BoxFuture<'static, Elicited> + Send + Sync>;

/// A question to the person. Its texts are safe to print.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    /// The call that waits for the answer.
    pub call_id: CallId,
    /// The tool that wants it.
    pub tool: ToolName,
    /// What is wanted and why it asks: `writing 'notes/a.txt' needs a yes`.
    pub what: String,
    /// How to never be asked again, if there is a way.
    pub remedy: String,
    /// All of what is wanted, nothing cut: `("wants to run", "git status")`.
    pub lines: Vec<Line>,
    /// The entry under `allow:` that answers exactly this for ever, as YAML (not yet safe to print), if there is one.
    pub rule: Option<String>,
}

/// Reports progress: a fraction of the whole if known, and a message.
pub type Progress = Arc<dyn Fn(Option<f64>, Option<String>) + Send + Sync>;

/// One call of a native tool.
pub struct NativeCall {
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub tool: ToolName,
    /// Its arguments; checked here.
    pub arguments: Raw,
    /// Until the call counts as failed.
    pub timeout: Duration,
    /// Ends it before that.
    pub cancel: CancellationToken,
    /// Who wants to know how far it is.
    pub progress: Option<Progress>,
}

/// A call of a pack's tool, before it is made.
#[derive(Debug)]
pub struct UseOfTool {
    /// The call.
    pub call_id: CallId,
    /// The tool.
    pub tool: ToolName,
    /// Its arguments, for whoever is asked.
    pub arguments: Raw,
    /// Until the call counts as failed, the question included.
    pub timeout: Duration,
    /// Ends it before that.
    pub cancel: CancellationToken,
}

/// The tools. Built once; calls run side by side.
pub struct NativeTools {
    specs: Vec<ToolSpec>,
    gate: Arc<Gate>,
    launcher: Launcher,
    processes: Processes,
    pdf: pdf::Extractor,
}

/// A file for a request is read within this time, a question about it included.
const READ_WAIT: Duration = Duration::from_secs(60);

/// Becomes a helper process, and never returns, if the program was started as one (a process guard, or a PDF reader). The
/// first line of `main`, before any thread or runtime.
pub fn enter_if_asked() {
    vance_mcp_host::guard::enter_if_asked();
    pdf::enter_if_asked();
}

impl NativeTools {
    /// Opens the roots that exist. A root that does not is opened when it is first used.
    pub fn new(env: NativeEnv) -> Self {
        let gate = Gate::new(env.rules, &env.home, &env.project_dir, &env.state_dir, env.asker);
        let launcher = Launcher::new(env.guard_program, env.project_dir.clone(), gate.sandbox().cloned());
        Self {
            specs: specs::all(),
            gate: Arc::new(gate),
            processes: Processes::default(),
            pdf: pdf::Extractor::new(launcher.clone()),
            launcher,
        }
    }

    /// All native tools.
    pub fn specs(&self) -> Vec<ToolSpec> {
        self.specs.clone()
    }

    /// What programs may reach, also those of packs, if `permissions.yaml` wants that limited.
    pub fn sandbox(&self) -> Option<Sandbox> {
        self.gate.sandbox().cloned()
    }

    /// Asks whether a tool of a pack may be used: `None` is yes. The same rules and the same person answer as for native tools.
    pub async fn refusal(&self, wanted: UseOfTool) -> Option<Outcome> {
        let UseOfTool { call_id, tool, arguments, timeout, cancel } = wanted;
        let halt = Halt::new(cancel, timeout);
        let call = gate::Call { id: call_id, tool, arguments, halt, progress: None };
        self.gate.permit_use(&call).await.err().map(|refused| *refused)
    }

    /// Reads a whole file that a pack's request is to send: under the rules and by the person that decide for `read_local_file`.
    pub async fn read_whole(&self, path: String) -> Result<Vec<u8>, Fault> {
        let tool = ToolName::parse("read_local_file").map_err(|error| Fault::new("file_access", error.to_string()))?;
        let arguments = Raw::from(serde_json::json!({"path": path}));
        let halt = Halt::new(CancellationToken::new(), READ_WAIT);
        let call = gate::Call { id: CallId::generate(), tool, arguments, halt: halt.clone(), progress: None };
        let read = halt.or(read::whole(&self.gate, &call, path)).await;
        read.map_err(|outcome| match *outcome {
            Outcome::Failed { error, .. } => Fault::new("file_access", error.message),
            Outcome::Cancelled { reason } | Outcome::Unknown { reason } => Fault::new("file_access", reason),
            Outcome::Done(_) => Fault::new("file_access", "there was no answer"),
        })
    }

    /// Runs a call to its end.
    pub async fn call(&self, req: NativeCall) -> Outcome {
        let found = self.specs.iter().find(|s| s.name == req.tool).zip(specs::tool(req.tool.as_str()));
        let Some((spec, tool)) = found else {
            return Outcome::failed("unknown_tool", format!("there is no native tool {}", req.tool));
        };
        if let Err(fault) = check_arguments(&spec.input_schema, &req.arguments.value()) {
            return Outcome::Failed { error: fault, result: None };
        }
        let halt = Halt::new(req.cancel.clone(), req.timeout);
        if let Some(reason) = halt.stopped() {
            return reason;
        }
        let call =
            gate::Call { id: req.call_id, tool: req.tool, arguments: req.arguments, halt, progress: req.progress };
        match self.run(tool, call).await {
            Ok(result) if result.bytes() > MAX_RESULT_BYTES => Outcome::failed(
                "result_too_large",
                format!(
                    "the result has {} bytes as JSON, at most {MAX_RESULT_BYTES} travel; ask for less at a time",
                    result.bytes()
                ),
            ),
            Ok(result) => Outcome::of(result),
            Err(outcome) => *outcome,
        }
    }

    async fn run(&self, tool: Tool, call: gate::Call) -> Ended {
        // What only reads is left behind at the end of its time; what changes something looks at the clock itself and is waited for.
        let halt = call.halt.clone();
        match tool {
            Tool::Read => halt.or(read::run(&self.gate, call)).await,
            Tool::Write => write::run(&self.gate, call).await,
            Tool::Edit => edit::run(&self.gate, call).await,
            Tool::List => halt.or(list::run(&self.gate, call)).await,
            Tool::Search => halt.or(search::run(&self.gate, call)).await,
            Tool::Shell => shell::run(&self.gate, &self.launcher, call).await,
            Tool::ProcessStart => processes::start(&self.gate, &self.launcher, &self.processes, call).await,
            Tool::ProcessStatus => processes::status(&self.gate, &self.processes, call).await,
            Tool::ProcessOutput => halt.or(processes::output(&self.gate, &self.processes, call)).await,
            Tool::ProcessStop => processes::stop(&self.gate, &self.processes, call).await,
            Tool::GitStatus => halt.or(git_status::run(&self.gate, &self.launcher, call)).await,
            Tool::Pdf => halt.or(pdf::run(&self.gate, &self.pdf, call)).await,
        }
    }

    /// Ends all started processes and waits until they are gone.
    pub async fn shutdown(&self) {
        self.processes.shutdown().await;
    }
}

/// How a tool's run ends: a result, or another outcome. Boxed, because it is rare and large.
type Ended = Result<ToolResult, Box<Outcome>>;

/// A failure of a native tool.
fn failed(code: &str, message: impl Into<String>) -> Box<Outcome> {
    Box::new(Outcome::failed(code, message))
}

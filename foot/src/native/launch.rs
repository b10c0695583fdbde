//! Starting programs for tools: the one guarded way, with the allow-listed environment.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;
use vance_foot_core::permissions::{Action, Program};
use vance_mcp_host::env;
use vance_mcp_host::guard::{self, GuardedChild, Spawn, SpawnError};
use vance_mcp_host::sandbox::Sandbox;
use vance_shared::call::Outcome;
use vance_shared::launch::Origin;
use vance_shared::show::quoted;

use super::failed;
use super::gate::{Call, Gate, blocking};

/// The product's own variables: a program gets none of them from a call.
const OWN_PREFIX: &str = "VANCE_";

/// Starts programs.
#[derive(Debug, Clone)]
pub(super) struct Launcher {
    guard_program: PathBuf,
    project_dir: PathBuf,
    sandbox: Option<Sandbox>,
}

/// What `shell_execute` and `process_start` take to name a program.
#[derive(Debug, Deserialize)]
pub(super) struct Wanted {
    #[serde(default)]
    argv: Option<Vec<String>>,
    #[serde(default)]
    command: Option<String>,
    #[serde(default)]
    cwd: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

/// A permitted program.
#[derive(Debug)]
pub(super) struct Permitted {
    pub(super) argv: Vec<String>,
    cwd: PathBuf,
    env: BTreeMap<String, String>,
}

impl Wanted {
    /// Checks and asks.
    pub(super) async fn permit(self, gate: &Arc<Gate>, call: &Call) -> Result<Permitted, Box<Outcome>> {
        let argv = match (&self.argv, &self.command) {
            (Some(argv), None) => argv.clone(),
            (None, Some(command)) => vec!["sh".to_owned(), "-c".to_owned(), command.clone()],
            (Some(_), Some(_)) | (None, None) => {
                return Err(failed(
                    "invalid_argument",
                    "arguments: give either `argv` (a list, no shell) or `command` (a line for `sh -c`)",
                ));
            }
        };
        check_words(&argv, &self.env)?;
        let cwd = self.folder(gate).await?;
        let what = match &self.command {
            Some(command) => Program::Command(command),
            None => Program::Argv(&argv),
        };
        let env: Vec<(&str, &str)> = self.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        gate.permit_exec(call, Action::Exec { what, cwd: &cwd, env: &env }).await?;
        call.halt.check()?;
        Ok(Permitted { argv, cwd, env: self.env })
    }

    async fn folder(&self, gate: &Arc<Gate>) -> Result<PathBuf, Box<Outcome>> {
        let Some(text) = self.cwd.clone() else { return Ok(gate.working_dir().to_owned()) };
        let gate = Arc::clone(gate);
        blocking(move || {
            let at = gate.resolve(&text, false)?;
            if !gate.is_open(&at.real) {
                return Err(failed(
                    "permission_denied",
                    format!("{} cannot be a working directory: a rule keeps it closed", at.shown()),
                ));
            }
            at.dir()?;
            Ok(at.real)
        })
        .await
    }
}

fn check_words(argv: &[String], env: &BTreeMap<String, String>) -> Result<(), Box<Outcome>> {
    let bad = |what: &str| Err(failed("invalid_argument", format!("arguments: {what}")));
    if argv.first().is_none_or(String::is_empty) {
        return bad("the program is empty");
    }
    if argv.iter().chain(env.keys()).chain(env.values()).any(|w| w.contains('\0')) {
        return bad("a zero byte cannot be passed to a program");
    }
    for name in env.keys() {
        if name.is_empty() || name.contains('=') || name.starts_with(OWN_PREFIX) {
            return bad(&format!("env: {} cannot be set", quoted(name, 80)));
        }
    }
    Ok(())
}

impl Launcher {
    pub(super) fn new(guard_program: PathBuf, project_dir: PathBuf, sandbox: Option<Sandbox>) -> Self {
        Self { guard_program, project_dir, sandbox }
    }

    /// The program that is also the guard.
    pub(super) fn own_program(&self) -> &Path {
        &self.guard_program
    }

    /// Starts what was permitted.
    pub(super) async fn start(&self, permitted: &Permitted) -> Result<GuardedChild, Box<Outcome>> {
        let added = permitted.env.iter().map(|(name, value)| (name.into(), value.into()));
        let sandbox = self.sandbox.clone();
        self.guarded(permitted.argv.clone(), permitted.cwd.clone(), added.collect(), false, sandbox).await
    }

    /// Starts a program of our own choice, which no call can bend: without a sandbox.
    pub(super) async fn spawn(
        &self,
        argv: Vec<String>,
        cwd: PathBuf,
        added: BTreeMap<OsString, OsString>,
        stdin: bool,
    ) -> Result<GuardedChild, Box<Outcome>> {
        self.guarded(argv, cwd, added, stdin, None).await
    }

    async fn guarded(
        &self,
        argv: Vec<String>,
        cwd: PathBuf,
        added: BTreeMap<OsString, OsString>,
        stdin: bool,
        sandbox: Option<Sandbox>,
    ) -> Result<GuardedChild, Box<Outcome>> {
        // No words of a pack: nothing is expanded, so nothing can fail.
        let mut env = env::child_env(&env::ambient(), Origin::Global, &BTreeMap::new(), Some(&self.project_dir))
            .unwrap_or_default();
        env.extend(added);
        let spawn = Spawn { argv, cwd, env, stdin, guard_program: self.guard_program.clone(), sandbox };
        guard::spawn(spawn).await.map_err(|e| match &e {
            SpawnError::NotFound { .. } | SpawnError::NotAProgram { .. } | SpawnError::NoFolder { .. } => {
                failed("not_found", e.to_string())
            }
            SpawnError::EmptyCommand | SpawnError::Refused { .. } | SpawnError::Guard { .. } => {
                failed("cannot_start", e.to_string())
            }
        })
    }
}

//! The way from a call to permission: what stops it, what the rules say, what the person says.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use vance_foot_core::permissions::{Action, Places, Policy, Rules, Verdict};
use vance_mcp_host::sandbox::Sandbox;
use vance_shared::call::Outcome;
use vance_shared::ids::CallId;
use vance_shared::json::Raw;
use vance_shared::names::ToolName;
use vance_shared::show::ascii;

use super::roots::{Resolved, Roots};
use super::{Asker, Ended, Progress, Question, failed, sandbox};

/// When a call has to end.
#[derive(Debug, Clone)]
pub(super) struct Halt {
    cancel: CancellationToken,
    deadline: Instant,
    timeout: Duration,
}

impl Halt {
    pub(super) fn new(cancel: CancellationToken, timeout: Duration) -> Self {
        // A timeout beyond what a clock can hold means none; thirty years are as good.
        let deadline =
            Instant::now().checked_add(timeout).unwrap_or_else(|| Instant::now() + Duration::from_secs(1_000_000_000));
        Self { cancel, deadline, timeout }
    }

    /// The same with a nearer deadline.
    pub(super) fn within(&self, timeout: Duration) -> Self {
        let nearer = Self::new(self.cancel.clone(), timeout);
        if nearer.deadline < self.deadline { nearer } else { self.clone() }
    }

    /// The outcome, if it has to end now. Long loops look here.
    pub(super) fn stopped(&self) -> Option<Outcome> {
        if self.cancel.is_cancelled() {
            return Some(Outcome::Cancelled { reason: "the call was cancelled".to_owned() });
        }
        (Instant::now() >= self.deadline).then(|| self.timed_out())
    }

    /// The same as an error.
    pub(super) fn check(&self) -> Result<(), Box<Outcome>> {
        self.stopped().map_or(Ok(()), |outcome| Err(Box::new(outcome)))
    }

    /// Resolves when it has to end.
    pub(super) async fn reached(&self) -> Outcome {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Outcome::Cancelled { reason: "the call was cancelled".to_owned() },
            () = tokio::time::sleep_until(self.deadline) => self.timed_out(),
        }
    }

    /// Runs something that can be left at any point.
    pub(super) async fn or<T>(&self, work: impl Future<Output = Result<T, Box<Outcome>>>) -> Result<T, Box<Outcome>> {
        tokio::select! {
            biased;
            ended = work => ended,
            outcome = self.reached() => Err(Box::new(outcome)),
        }
    }

    fn timed_out(&self) -> Outcome {
        Outcome::failed(
            "timeout",
            format!("no result within {} ms; give the call more time or less to do", self.timeout.as_millis()),
        )
    }
}

/// A checked call on its way through a tool.
pub(super) struct Call {
    pub(super) id: CallId,
    pub(super) tool: ToolName,
    pub(super) arguments: Raw,
    pub(super) halt: Halt,
    pub(super) progress: Option<Progress>,
}

impl Call {
    /// The arguments as a type. The schema has been checked: what still does not fit (a number too large) is the caller's to mend.
    pub(super) fn parse<T: DeserializeOwned>(&self) -> Result<T, Box<Outcome>> {
        self.arguments.to().map_err(|e| failed("invalid_argument", format!("arguments: {e}")))
    }

    pub(super) fn report(&self, fraction: Option<f64>, message: impl Into<String>) {
        if let Some(progress) = &self.progress {
            progress(fraction, Some(message.into()));
        }
    }
}

/// Rules, roots and the person.
pub(super) struct Gate {
    pub(super) policy: Policy,
    pub(super) roots: Roots,
    asker: Option<Arc<dyn Asker>>,
    sandbox: Option<Sandbox>,
}

impl Gate {
    pub(super) fn new(
        rules: Rules,
        home: &Path,
        project_dir: &Path,
        state_dir: &Path,
        asker: Option<Arc<dyn Asker>>,
    ) -> Self {
        let user_home = std::env::home_dir().filter(|h| h.is_absolute());
        let places = places(user_home, home, project_dir, state_dir);
        let spelled = rules.root_paths(&places);
        let roots = Roots::open(&spelled);
        let fence = rules.fence().cloned();
        let policy = Policy::new(rules, places, roots.spellings());
        let sandbox = fence.map(|fence| sandbox::of(&fence, &policy, &roots.spellings()));
        Self { policy, roots, asker, sandbox }
    }

    /// What programs may reach, if the rules want that limited.
    pub(super) fn sandbox(&self) -> Option<&Sandbox> {
        self.sandbox.as_ref()
    }

    /// The working directory.
    pub(super) fn working_dir(&self) -> &Path {
        &self.policy.places().working_dir
    }

    /// Finds what a path means. Touches the disk: call it where blocking is fine.
    pub(super) fn resolve(&self, text: &str, writing: bool) -> Result<Resolved, Box<Outcome>> {
        let lexical = self.policy.places().absolute(text);
        // The rules first: a path outside the roots, or a protected one, is not even looked at.
        let action = if writing { Action::Write(&lexical) } else { Action::Read(&lexical) };
        if let Verdict::Deny(reason) = self.policy.decide("", action) {
            return Err(failed("permission_denied", reason.sentence()));
        }
        self.roots.resolve(&lexical)
    }

    /// True if the path can be read without a question; for what a folder holds, where nobody can be asked for each.
    pub(super) fn is_open(&self, path: &Path) -> bool {
        self.policy.decide("", Action::Read(path)) == Verdict::Allow
    }

    /// Reading a resolved path, by its name and by what it leads to.
    pub(super) async fn permit_read(&self, call: &Call, at: &Resolved) -> Result<(), Box<Outcome>> {
        let verdict = both(at, |path| self.policy.decide(call.tool.as_str(), Action::Read(path)));
        self.settle(&call.id, &call.tool, &call.halt, verdict).await
    }

    /// Writing it.
    pub(super) async fn permit_write(&self, call: &Call, at: &Resolved) -> Result<(), Box<Outcome>> {
        let verdict = both(at, |path| self.policy.decide(call.tool.as_str(), Action::Write(path)));
        self.settle(&call.id, &call.tool, &call.halt, verdict).await
    }

    /// Starting a program.
    pub(super) async fn permit_exec(&self, call: &Call, action: Action<'_>) -> Result<(), Box<Outcome>> {
        let verdict = self.policy.decide(call.tool.as_str(), action);
        self.settle(&call.id, &call.tool, &call.halt, verdict).await
    }

    /// Using a tool of which there is no more to judge. Whoever is asked sees the arguments.
    pub(super) async fn permit_use(&self, call: &Call) -> Result<(), Box<Outcome>> {
        let mut verdict = self.policy.decide(call.tool.as_str(), Action::Use);
        if let Verdict::Ask(reason) = &mut verdict {
            reason.lines.insert(0, ("wants to run", format!("{} {}", call.tool, ascii(call.arguments.get()))));
        }
        self.settle(&call.id, &call.tool, &call.halt, verdict).await
    }

    async fn settle(
        &self,
        call_id: &CallId,
        tool: &ToolName,
        halt: &Halt,
        verdict: Verdict,
    ) -> Result<(), Box<Outcome>> {
        let reason = match verdict {
            Verdict::Allow => return Ok(()),
            Verdict::Deny(reason) => return Err(failed("permission_denied", reason.sentence())),
            Verdict::Ask(reason) => reason,
        };
        let Some(asker) = &self.asker else {
            let message = format!("{}, and nobody can be asked here; {}", reason.why, reason.remedy);
            return Err(failed("permission_denied", message));
        };
        let question = Question {
            call_id: call_id.clone(),
            tool: tool.clone(),
            what: reason.why.clone(),
            remedy: reason.remedy.clone(),
            lines: reason.lines.clone(),
            rule: reason.rule.clone(),
        };
        let answer = asker.ask(question);
        tokio::select! {
            biased;
            outcome = halt.reached() => Err(Box::new(outcome)),
            yes = answer => if yes { Ok(()) } else { Err(failed("permission_denied", format!("{}, and the answer was no; {}", reason.why, reason.remedy))) },
        }
    }
}

/// A path by its name and by what it leads to. Whoever is asked sees both, and no rule covers a link for ever.
fn both(at: &Resolved, judge: impl Fn(&Path) -> Verdict) -> Verdict {
    let mut verdict = judge(&at.lexical).and(judge(&at.real));
    if let Verdict::Ask(reason) = &mut verdict
        && at.lexical != at.real
    {
        reason.lines.push(("by a link to", ascii(&at.real.to_string_lossy())));
        reason.rule = None;
    }
    verdict
}

/// Runs file work where blocking is fine.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Box<Outcome>> + Send + 'static,
) -> Result<T, Box<Outcome>> {
    match tokio::task::spawn_blocking(work).await {
        Ok(ended) => ended,
        Err(e) => Err(failed("internal", format!("the tool stopped unexpectedly: {}", ascii(&e.to_string())))),
    }
}

/// The same for work that ends in a tool's result.
pub(super) async fn blocking_result(work: impl FnOnce() -> Ended + Send + 'static) -> Ended {
    blocking(work).await
}

fn places(user_home: Option<PathBuf>, home: &Path, project_dir: &Path, state_dir: &Path) -> Places {
    let real = |path: &Path| std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mut aliases = Vec::new();
    let mut settle = |path: &Path| {
        let found = real(path);
        if found != path {
            aliases.push((path.to_owned(), found.clone()));
        }
        found
    };
    let user_home = user_home.map(|h| settle(&h));
    let mut places = Places {
        user_home,
        home: settle(home),
        working_dir: settle(project_dir),
        aliases: Vec::new(),
        protected: vec![home.to_owned(), state_dir.to_owned(), real(state_dir)],
    };
    // A protected folder may itself be a link: then what it leads to is protected.
    let led_to: Vec<PathBuf> = places.floor_folders().iter().map(|folder| real(folder)).collect();
    places.protected.extend(led_to);
    places.aliases = aliases;
    places
}

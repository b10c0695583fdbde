//! What people are told about packs.

use std::fmt;

use serde::{Deserialize, Serialize};
use vance_foot_core::merge::LeftOut;
use vance_shared::launch::{Origin, TrustedLaunch};

use super::Loader;
use super::pack::State;

/// What a load came to. Packs that come up later register by themselves.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoadSummary {
    /// Packs that are up.
    pub loaded: Vec<String>,
    /// How many tools these offer.
    pub tools: usize,
    /// Not wanted, each with its reason.
    pub skipped: Vec<LeftOut>,
    /// Wanted but not up, each with its reason.
    pub failed: Vec<LeftOut>,
    /// What a person should know although nothing is wrong: tools that are withheld, packs of theirs that the project turns off.
    pub notes: Vec<String>,
}

impl fmt::Display for LoadSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { loaded, tools, skipped, failed, notes: _ } = self;
        write!(
            f,
            "loaded {} pack(s) → {tools} tool(s); {} skipped, {} failed",
            loaded.len(),
            skipped.len(),
            failed.len()
        )
    }
}

/// How a pack is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PackState {
    /// Starting, or starting again.
    Starting,
    /// Its tools can be called.
    Up,
    /// It did not start, or ended too often.
    Failed,
    /// Its server ends.
    Ending,
    /// Not wanted, or without consent.
    Skipped,
}

/// One pack of a running Foot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackStatus {
    /// Its name.
    pub pack: String,
    /// Its file.
    pub file: String,
    /// The working directory that it came with; none for the user's own, and for what does not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// How it is.
    pub state: PackState,
    /// Why it is not up, or which of its tools are withheld.
    pub reason: Option<String>,
    /// How many tools it offers.
    pub tools: usize,
}

impl Loader {
    pub(super) fn summary(&self) -> LoadSummary {
        let (skipped, failed) = (self.skipped.clone(), self.failed.clone());
        let mut summary = LoadSummary { skipped, failed, notes: self.notices.clone(), ..LoadSummary::default() };
        for (name, pack) in &self.packs {
            summary.notes.extend(pack.note.clone());
            let reason = match &pack.state {
                State::Up => {
                    summary.loaded.push(name.clone());
                    summary.tools += pack.tools.len();
                    continue;
                }
                State::Failed(reason) => reason.clone(),
                State::Loading(Some(reason)) => format!("{reason}; it is started again"),
                State::Loading(None) => "it has not answered yet; it registers when it does".to_owned(),
            };
            summary.failed.push(LeftOut { pack: name.clone(), file: pack.launch.plan().source.file.clone(), reason });
        }
        summary
    }

    pub(super) fn statuses(&self) -> Vec<PackStatus> {
        let left_out = |left: &LeftOut, state| PackStatus {
            pack: left.pack.clone(),
            file: left.file.clone(),
            project: None,
            state,
            reason: Some(left.reason.clone()),
            tools: 0,
        };
        let running = self.packs.iter().map(|(name, pack)| {
            let (state, reason) = match &pack.state {
                State::Up => (PackState::Up, pack.note.clone()),
                State::Failed(reason) => (PackState::Failed, Some(reason.clone())),
                State::Loading(reason) => (PackState::Starting, reason.clone()),
            };
            let file = pack.launch.plan().source.file.clone();
            let project = self.project_of(&pack.launch);
            PackStatus { pack: name.clone(), file, project, state, reason, tools: pack.tools.len() }
        });
        let ending = self.ending.iter().map(|(name, after)| PackStatus {
            pack: name.clone(),
            file: String::new(),
            project: after.as_ref().and_then(|after| self.project_of(after)),
            state: PackState::Ending,
            reason: None,
            tools: 0,
        });
        let skipped = self.skipped.iter().map(|left| left_out(left, PackState::Skipped));
        let failed = self.failed.iter().map(|left| left_out(left, PackState::Failed));
        running.chain(ending).chain(skipped).chain(failed).collect()
    }

    fn project_of(&self, launch: &TrustedLaunch) -> Option<String> {
        let project = self.shared.trust.project().ok().filter(|_| launch.plan().origin == Origin::Project)?;
        Some(project.key().to_owned())
    }
}

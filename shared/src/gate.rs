//! The Trust Gate: nothing that came with a working directory is started or reached before a person has said yes to exactly that.
//!
//! A pack file becomes a [`LaunchPlan`] once; what the prompt shows ([`reach`]), what consent covers ([`Digest`]) and what is
//! started all come from that value. Only this module makes a [`TrustedLaunch`], and whoever starts, connects or fetches something takes one by
//! value: a path that forgets the gate does not compile.
//!
//! Pure: the shell reads the store and the files, asks the person and writes down what they said.
//!
//! ```text
//! plan ── files(plan) ─▶ shell hashes them ─▶ judge ─┬─▶ Trusted(launch)
//!                                                    ├─▶ Ask(question) ── answered ─▶ launch, and what to write down
//!                                                    └─▶ Denied(reason)
//! ```
//!
//! A launch cannot be made by hand:
//!
//! ```compile_fail,E0451
//! use vance_shared::gate::TrustedLaunch;
//! use vance_shared::launch::LaunchPlan;
//! fn forge(plan: LaunchPlan) -> TrustedLaunch {
//!     TrustedLaunch { plan, digest: None, files: Vec::new() }
//! }
//! ```
//!
//! Nor can a plan be passed where a launch is wanted:
//!
//! ```compile_fail,E0308
//! use vance_shared::gate::TrustedLaunch;
//! use vance_shared::launch::LaunchPlan;
//! fn spawn(_: TrustedLaunch) {}
//! fn forget(plan: LaunchPlan) {
//!     spawn(plan);
//! }
//! ```
//!
//! What both have in common compiles:
//!
//! ```
//! use vance_shared::gate::TrustedLaunch;
//! use vance_shared::launch::LaunchPlan;
//! fn spawn(_: TrustedLaunch) {}
//! fn with_consent(launch: TrustedLaunch) {
//!     let _plan: &LaunchPlan = launch.plan();
//!     spawn(launch);
//! }
//! ```

use std::path::{Component, Path, PathBuf};

use crate::launch::{LaunchPlan, Origin};

pub mod audit;
mod book;
mod brain;
mod digest;
mod facts;
mod files;
mod judge;
pub mod pins;
mod question;
mod reach;
mod unwatched;
pub use book::{Book, Denial, Entry, MAX_STORE_BYTES};
pub use brain::{Binding, MAX_BINDING_BYTES};
pub use digest::{BadDigest, Digest, FileHash, digest};
pub use facts::{changes_what_runs, sends};
pub use files::{MAX_HASHED_BYTES, check_program, files, is_data};
pub use judge::{Known, Once, Verdict, denied_meanwhile, judge};
pub use question::{Answer, Nobody, Patience, Question, Unasked, WrongDigest};
pub use reach::{MAX_ARGS, MAX_SHOWN_BYTES, quote, reach};

/// The working directory whose packs are judged.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Project(String);

/// A directory that no consent can be written down for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the working directory {0} is no absolute path of UTF-8 text, so no consent can be kept for it")]
pub struct NotAProject(String);

impl Project {
    /// `canonical`: absolute, links resolved. The caller asks the file system.
    pub fn new(canonical: &Path) -> Result<Self, NotAProject> {
        match canonical.to_str() {
            Some(text) if canonical.is_absolute() => Ok(Self(text.to_owned())),
            Some(_) | None => Err(NotAProject(crate::show::ascii(&canonical.to_string_lossy()))),
        }
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        Path::new(&self.0)
    }

    /// The directory as the store's key.
    pub fn key(&self) -> &str {
        &self.0
    }

    /// Whether a path lies in the project by its words alone, `..` taken into account.
    pub fn holds(&self, path: &Path) -> bool {
        tidy(path).starts_with(self.dir())
    }

    /// A home inside the project came with the project: it is no home, its packs ask like any other of the project.
    pub fn owns_home(&self, canonical_home: &Path) -> bool {
        self.holds(canonical_home)
    }
}

/// Without `.` and, as far as words tell, without `..`.
fn tidy(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => {
                out.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => out.push(component),
        }
    }
    out
}

/// A plan that may be carried out. Whoever starts or connects something takes this by value.
#[derive(Debug, Clone, PartialEq)]
pub struct TrustedLaunch {
    plan: LaunchPlan,
    /// What consent was given to; none for a pack that needs none.
    digest: Option<Digest>,
    files: Vec<FileHash>,
}

/// A project's pack needs consent.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("pack '{}' comes with the working directory and needs consent", .0.pack)]
pub struct NeedsConsent(pub LaunchPlan);

impl TrustedLaunch {
    /// A pack from the user's (or the Brain's) own home needs no question; a project's does.
    pub fn own_home(plan: LaunchPlan) -> Result<Self, Box<NeedsConsent>> {
        match plan.origin {
            Origin::Global | Origin::Server => Ok(Self { plan, digest: None, files: Vec::new() }),
            Origin::Project => Err(Box::new(NeedsConsent(plan))),
        }
    }

    /// What was trusted.
    pub fn plan(&self) -> &LaunchPlan {
        &self.plan
    }

    /// What was consented to; `None` for a pack of the user's own.
    pub fn digest(&self) -> Option<Digest> {
        self.digest
    }

    /// Files whose content was consented to: hashed again right before and right after the start; a mismatch ends it.
    pub fn files(&self) -> &[FileHash] {
        &self.files
    }
}

#[cfg(test)]
mod tests;

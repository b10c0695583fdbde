//! Consent on this machine: the files that remember it, and what is looked at before a person is asked. What follows from them is
//! [`vance_shared::gate`]'s to say.
//!
//! ```text
//! <home>/trusted-packs.yaml      what was allowed and denied for good, by project
//! <home>/trusted-brains.yaml     Brains and sessions that projects name, and that were allowed for good
//! <home>/tool-pins.json          what servers said about their tools when they first started
//! <home>/audit/trust.jsonl       every decision, each line with the hash of the one before it
//! ```
//!
//! None of them counts unless its user alone could have written it, and none that lies in the working directory.

use std::path::{Path, PathBuf};

use futures_util::future::BoxFuture;
use vance_mcp_host::files;
use vance_shared::doc::Problem;
use vance_shared::gate::audit::{Event, Line};
use vance_shared::gate::{self, Binding, Entry, Known, MAX_BINDING_BYTES, Once, Project, Verdict, reach};
use vance_shared::launch::{LaunchPlan, Origin, Transport};

mod clock;
mod log;
mod pins;
mod store;
mod theirs;
pub use log::Log;
pub use pins::{PinStore, Waiting};
pub use store::{Reading, Store};
pub(crate) use theirs::read_theirs;
pub use vance_own_file::Distrust;

/// The store of consents.
pub const STORE: &str = "trusted-packs.yaml";
/// The store of Brains.
const BRAINS: &str = "trusted-brains.yaml";
/// What makes room in these files.
const WHEN_FULL: &str = "`vancetope trust prune` drops what belongs to folders that are gone";
/// What a project says about its Brain.
const BINDING: &str = "project.eddie.yaml";
/// Files that only count in the home: in a project's `.vancetope` they would let it speak for its user.
const NEVER_FROM_A_PROJECT: [&str; 12] = [
    STORE,
    BRAINS,
    "tool-pins.json",
    "tool-pins-seen.json",
    "access.yaml",
    "local.token",
    "secrets",
    "secrets.yaml",
    "policy.yaml",
    "audit",
    "state",
    "brain",
];

/// What came back when a person was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// A whole line, typed after the question stood there.
    Line(String),
    /// Nothing in time.
    Silence,
    /// The input has ended, Ctrl-C, or the terminal failed.
    Broken,
    /// There is nobody to ask.
    Nobody,
}

/// A yes to a pack.
#[derive(Debug, Clone, Copy)]
pub struct Yes<'a> {
    /// How it was given.
    pub event: Event,
    /// To what.
    pub plan: &'a LaunchPlan,
    /// To all of what.
    pub digest: gate::Digest,
    /// What is to last of it; nothing if it is for once.
    pub entry: Option<&'a Entry>,
}

/// Whether a yes counts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Counts {
    /// It does.
    Yes,
    /// It does not, and the reason.
    No(String),
}

/// A question about something that came with the working directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// All of it, the choices last, without an end of line. Safe to print.
    pub text: String,
    /// What it is about, for remarks: `pack 'chrome'`.
    pub about: String,
}

/// Somebody who may be asked for consent: only ever a terminal.
pub trait Consent: Send + Sync {
    /// Asks. Dropping the future takes the question back.
    fn consent(&self, prompt: Prompt) -> BoxFuture<'static, Reply>;

    /// Says something to the person.
    fn remark(&self, text: &str);
}

/// The files of consent, seen from one working directory.
#[derive(Debug, Clone)]
pub struct Trust {
    home: PathBuf,
    /// The directory whose packs are judged, or why nothing can be remembered for it.
    project: Result<Project, String>,
    store: Store,
    brains: Store,
    log: Log,
    pins: PinStore,
}

/// Whether a home is its user's own. One that lies in the working directory came with it, and a `.vancetope` of a clone came with that, unless it
/// is where a home belongs anyway: who works in their own home directory has not cloned that.
pub fn is_own_home(home: &Path, project_dir: &Path) -> bool {
    let (home, project_dir) = (real(home), real(project_dir));
    let usual = users_home().is_some_and(|user| user.join(".vancetope") == home);
    usual || !(home.starts_with(&project_dir) || is_of_a_clone(&home))
}

/// Whether a folder is, or lies in, a `.vancetope` in a work tree, so that it came with what was cloned. Version control is told by the names that it
/// leaves; nothing of it is read or started. A work tree that is the user's home directory, or lies around it, holds what is theirs.
pub(crate) fn is_of_a_clone(folder: &Path) -> bool {
    let user = users_home();
    let folder = real(folder);
    let mut whose = vancetopes(&folder);
    whose.any(|dir| trees(dir, user.as_deref()).next().is_some())
}

/// The work trees that a directory is in.
fn trees<'a>(dir: &'a Path, user: Option<&'a Path>) -> impl Iterator<Item = &'a Path> {
    let is_tree = |dir: &&Path| [".git", ".hg", ".jj"].iter().any(|name| dir.join(name).symlink_metadata().is_ok());
    dir.ancestors().take_while(move |dir| user != Some(*dir)).filter(is_tree)
}

/// Whether a home is the `.vancetope` of a directory around the working directory, without a work tree, or lies in the work tree around it under another
/// name: a project that was unpacked looks like that, and so does a place that somebody made for a service. Only a person can tell.
pub(crate) fn may_be_a_projects(home: &Path, project_dir: &Path) -> bool {
    let (home, project_dir, user) = (real(home), real(project_dir), users_home());
    let is_theirs = |dir: &Path| user.as_deref() != Some(dir) && dir != project_dir && project_dir.starts_with(dir);
    let is_in_tree = trees(&project_dir, user.as_deref()).any(|tree| home.starts_with(tree));
    is_in_tree || vancetopes(&home).any(is_theirs)
}

/// The directories whose `.vancetope` a folder is or lies in.
fn vancetopes(folder: &Path) -> impl Iterator<Item = &Path> {
    let all = folder.ancestors().filter(|folder| folder.file_name().is_some_and(|name| name == ".vancetope"));
    all.filter_map(Path::parent)
}

fn real(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Links resolved.
fn users_home() -> Option<PathBuf> {
    std::env::home_dir().filter(|user| user.is_absolute()).map(|user| real(&user))
}

impl Trust {
    /// Nothing is opened yet.
    pub fn new(home: &Path, project_dir: &Path) -> Self {
        let dir = project_dir.canonicalize().map_err(|error| format!("{}: {error}", crate::paths::shown(project_dir)));
        let project = dir.and_then(|dir| Project::new(&dir).map_err(|error| error.to_string()));
        let real_home = real(home);
        let not_in = match (&project, is_own_home(home, project_dir)) {
            // In one's own home directory everything is one's own.
            (Ok(project), true) if !project.owns_home(&real_home) => Some(project.dir()),
            (Ok(project), false) if project.owns_home(&real_home) => Some(project.dir()),
            // It came with another project, or with more of this one than the working directory.
            (_, false) => Some(real_home.as_path()),
            (Ok(_), true) | (Err(_), true) => None,
        };
        Self {
            home: home.to_owned(),
            store: Store::packs(home, not_in),
            brains: Store::brains(home, not_in),
            log: Log::new(home),
            pins: PinStore::new(home, project.as_ref().ok(), not_in),
            project,
        }
    }

    /// The directory whose packs are judged.
    pub fn project(&self) -> Result<&Project, &str> {
        self.project.as_ref().map_err(String::as_str)
    }

    /// The store of consents.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The store of Brains that projects name.
    pub fn brains(&self) -> &Store {
        &self.brains
    }

    /// What the project says about its Brain, with what is odd about that; or why it cannot be read.
    pub fn binding(&self) -> Result<Option<(Binding, Vec<Problem>)>, String> {
        let Ok(project) = &self.project else { return Ok(None) };
        let shown = crate::paths::shown(&project.dir().join(".vancetope").join(BINDING));
        let text = read_theirs(project.dir(), &[".vancetope", BINDING], MAX_BINDING_BYTES);
        let Some(text) = text.map_err(|error| format!("{shown}: {error}"))? else { return Ok(None) };
        let said = |problems: Vec<Problem>| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        let (binding, odd) = Binding::parse(&shown, &text).map_err(said)?;
        Ok(binding.map(|binding| (binding, odd)))
    }

    /// The log of decisions.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// The tool pins.
    pub fn pins(&self) -> &PinStore {
        &self.pins
    }

    /// The home.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Files of the project's `.vancetope` that would speak for the user, and are ignored. Touches the disk.
    pub fn pretenders(&self) -> Vec<String> {
        let Ok(project) = &self.project else { return Vec::new() };
        let folder = project.dir().join(".vancetope");
        if self.home.canonicalize().is_ok_and(|home| folder.canonicalize().is_ok_and(|folder| folder == home))
            && is_own_home(&self.home, project.dir())
        {
            return Vec::new();
        }
        let files = NEVER_FROM_A_PROJECT.iter().map(|name| folder.join(name));
        files.filter(|file| file.symlink_metadata().is_ok()).map(|file| crate::paths::shown(&file)).collect()
    }

    /// Judges a pack. Touches the disk: the store and the files that the pack names are read, nothing is started and nothing is reached.
    pub fn judge(&self, plan: LaunchPlan, once: &Once, replaces: Option<&LaunchPlan>) -> (Verdict, Reading) {
        let denied = |why: String| (Verdict::Denied(why), Reading::default());
        let project = match &self.project {
            Ok(project) => project,
            Err(why) => return denied(why.clone()),
        };
        if let Err(why) = files::check_program(&plan, project) {
            return denied(why);
        }
        if let Some(why) = moved_folder(&plan, project) {
            return denied(why);
        }
        let plan = files::shown(plan, Some(project.dir()), project.dir());
        let files = match files::hash(&files::named(&plan, project), project) {
            Ok(files) => files,
            Err(why) => return denied(format!("{why}, so nobody could say yes to it")),
        };
        let reading = self.store.read();
        let known = Known { book: &reading.book, once, replaces };
        (gate::judge(plan, project, files, known), reading)
    }

    /// Writes a yes down: into the log first, then, if it is to last, into the store. Under the store's lock, so that a denial which was given while the
    /// question stood there is seen, and the yes does not count. An error means that nothing lasts; the log then says so, as `instead`.
    pub fn remember(&self, yes: &Yes<'_>, instead: Event) -> Result<Counts, Distrust> {
        let Yes { event, plan, digest, entry } = *yes;
        let project = self.project.as_ref().map_err(|why| Distrust::Unsafe(why.clone()));
        let written = project.and_then(|project| {
            self.store.edit(|book| {
                if book.denial(project, &plan.pack).is_some() {
                    let why = gate::denied_meanwhile(&plan.pack);
                    self.record(Event::Refused, Some(plan), Some(digest), Some(&why));
                    return Counts::No(why);
                }
                self.record(event, Some(plan), Some(digest), None);
                if let Some(entry) = entry {
                    book.allow(project, entry);
                }
                Counts::Yes
            })
        });
        if let Err(why) = &written {
            self.record(instead, Some(plan), Some(digest), Some(&format!("not remembered: {why}")));
        }
        written
    }

    /// Writes a decision into the log. A log that cannot be written is said and is no reason to decide otherwise.
    pub fn record(&self, event: Event, plan: Option<&LaunchPlan>, digest: Option<gate::Digest>, reason: Option<&str>) {
        self.record_line(Line {
            at: clock::instant(),
            event,
            project: self.project.as_ref().ok().map(|project| project.key().to_owned()),
            pack: plan.map(|plan| plan.pack.to_string()),
            reach: plan.map(reach),
            digest: digest.map(|digest| digest.to_string()),
            reason: reason.map(str::to_owned),
        });
    }

    /// The same for what is not about a pack that is there.
    pub fn record_name(&self, event: Event, project: Option<&str>, pack: Option<&str>) {
        let (project, pack) = (project.map(str::to_owned), pack.map(str::to_owned));
        self.record_line(Line { at: clock::instant(), event, project, pack, reach: None, digest: None, reason: None });
    }

    /// The same for the Brain that the project names.
    pub fn record_binding(&self, event: Event, binding: &Binding) {
        let project = self.project.as_ref().ok().map(|project| project.key().to_owned());
        let (reach, digest) = (Some(binding.reach()), Some(binding.digest().to_string()));
        let reason = Some("the Brain that the project names".to_owned());
        self.record_line(Line { at: clock::instant(), event, project, pack: None, reach, digest, reason });
    }

    fn record_line(&self, line: Line) {
        if !is_own_home(&self.home, self.project.as_ref().map_or(Path::new("/nowhere"), Project::dir)) {
            return;
        }
        if let Err(error) = self.log.append(line) {
            tracing::warn!("{}: the decision was not logged: {error}", crate::paths::shown(self.log.file()));
        }
    }
}

/// Why a pack's working directory may not be: what a link in the project leads to can change without a trace.
fn moved_folder(plan: &LaunchPlan, project: &Project) -> Option<String> {
    let Transport::Stdio { cwd: Some(cwd), .. } = &plan.transport else { return None };
    let folder = project.dir().join(cwd);
    let is_link = plan.origin == Origin::Project
        && project.holds(&folder)
        && folder.canonicalize().is_ok_and(|real| real != vance_foot_core::permissions::normal(&folder));
    is_link.then(|| {
        format!("its working directory {} goes through a link; name the folder itself", crate::paths::shown(&folder))
    })
}

/// Today, for entries: `2026-03-01`.
pub fn today() -> String {
    clock::today()
}

#[cfg(test)]
mod tests;

//! The judgement of one pack: trusted, to be asked, or denied.

use std::collections::BTreeSet;

use super::facts::Facts;
use super::files::names_project;
use super::{Book, Digest, Entry, FileHash, Project, Question, TrustedLaunch, digest, reach};
use crate::launch::{LaunchPlan, Origin, Transport};
use crate::names::PackName;

/// What is known when a pack is judged.
#[derive(Debug, Clone, Copy)]
pub struct Known<'a> {
    /// The store; empty if it could not be read or may not be believed.
    pub book: &'a Book,
    /// What was allowed once in this run.
    pub once: &'a Once,
    /// The user's own pack of the same name, which this one would replace.
    pub replaces: Option<&'a LaunchPlan>,
}

/// What is to be done with a pack.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant)] // one at a time, and taken apart at once
pub enum Verdict {
    /// It may be started.
    Trusted(TrustedLaunch),
    /// A person has to be asked.
    Ask(Box<Question>),
    /// It is not started, and nobody is asked; the reason says why and what to do.
    Denied(String),
}

/// What was allowed once: it holds for this run, and for exactly what was shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Once(BTreeSet<(PackName, Digest)>);

impl Once {
    /// Remembers a launch that was allowed once.
    pub fn add(&mut self, launch: &TrustedLaunch) {
        if let Some(digest) = launch.digest() {
            self.0.insert((launch.plan().pack.clone(), digest));
        }
    }

    /// Forgets a pack, as a revocation does.
    pub fn forget(&mut self, pack: &PackName) {
        self.0.retain(|(name, _)| name != pack);
    }

    /// Whether a launch was allowed once and not forgotten since.
    pub fn has(&self, launch: &TrustedLaunch) -> bool {
        launch.digest().is_some_and(|digest| self.holds(&launch.plan().pack, digest))
    }

    fn holds(&self, pack: &PackName, digest: Digest) -> bool {
        self.0.contains(&(pack.clone(), digest))
    }
}

/// The way out of a denial.
fn undeny(pack: &PackName) -> String {
    format!("`vancetope trust undeny {pack}` lets it ask again")
}

/// The reason for a pack that was denied while its question stood there: a yes that was given then does not count.
pub fn denied_meanwhile(pack: &PackName) -> String {
    format!("it was denied for this project while the question stood there; {}", undeny(pack))
}

/// Judges a pack. `files`: of the paths that [`super::files`] names those that are files, hashed.
pub fn judge(plan: LaunchPlan, project: &Project, files: Vec<FileHash>, known: Known<'_>) -> Verdict {
    let plan = match plan.origin {
        Origin::Global | Origin::Server => {
            return Verdict::Trusted(TrustedLaunch { plan, digest: None, files: Vec::new() });
        }
        Origin::Project => plan,
    };
    if known.book.denial(project, &plan.pack).is_some() {
        return Verdict::Denied(format!("you denied it for this project; {}", undeny(&plan.pack)));
    }
    let digest = digest(&plan, &files);
    let led = leads(&plan).map(|leads| super::digest::leading(digest, &leads));
    let facts = Facts::of(&plan, project, &files);
    let entry = known.book.find(project, &plan.pack);
    let plain = facts.is_plain() && !names_project(&plan, project) && !says_more(&plan);
    let allowed = entry.is_some_and(|entry| match led {
        None => covers(entry, &reach(&plan), digest, plain),
        // The pack's own digest is in it.
        Some(led) => entry.document == Some(led),
    });
    if let Some(reason) = super::reach::too_much(&plan) {
        return Verdict::Denied(reason);
    }
    let covered = led.unwrap_or(digest);
    let allowed = allowed || known.once.holds(&plan.pack, covered);
    let launch = TrustedLaunch { plan, digest: Some(covered), files };
    if allowed {
        return Verdict::Trusted(launch);
    }
    // What was said about the pack itself stands: a document is compared with a document only.
    let before = entry.filter(|entry| led.is_none() || entry.document.is_some()).cloned();
    Question::new(launch, project, digest, facts, before, known.replaces)
        .map_or_else(Verdict::Denied, |question| Verdict::Ask(Box::new(question)))
}

/// Where the fetched document of a pack leads beyond what the pack names; none for a pack that is judged without it.
fn leads(plan: &LaunchPlan) -> Option<Vec<&str>> {
    let Transport::Rest(rest) = &plan.transport else { return None };
    Some(rest.leads()).filter(|leads| !leads.is_empty())
}

/// Same reach, and the same digest; an entry without one covers only what its reach says in full.
fn covers(entry: &Entry, reach: &str, digest: Digest, plain: bool) -> bool {
    let same_reach = entry.reach == reach || super::reach::address_of(&entry.reach) == reach;
    same_reach
        && match entry.digest {
            Some(consented) => consented == digest,
            None => plain,
        }
}

/// Whether the file says something that a person would have to see and a plan may not show, such as `"auth": "none"` beside a credential in the url.
fn says_more(plan: &LaunchPlan) -> bool {
    let parameters = serde_json::from_str::<serde_json::Value>(&plan.source.canonical)
        .ok()
        .and_then(|pack| pack.get("parameters").and_then(|p| p.as_object().cloned()));
    let Some(parameters) = parameters else { return true };
    let fields: &[&str] = match plan.transport {
        Transport::Stdio { .. } => &["env", "cwd"],
        Transport::Http { .. } => &["headers", "auth", "tls"],
        Transport::Rest(_) => &["headers", "auth", "tls", "allowedHosts", "serverVariables"],
    };
    let empty = |value: &serde_json::Value| {
        value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty) || value == "none"
    };
    plan.source.credential_in_query || fields.iter().any(|field| parameters.get(*field).is_some_and(|v| !empty(v)))
}

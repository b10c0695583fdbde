//! What every command of `vancetope trust` looks at: the files of consent, and the packs of the working directory.

use std::io;

use vance_mcp_host::files;
use vance_shared::gate::{Book, Digest, Once, Project, Verdict, digest, judge};
use vance_shared::launch::{LaunchPlan, Origin};
use vance_shared::names::PackName;
use vance_shared::show::plain;

use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::packs;
use crate::paths::Paths;
use crate::trust::{Distrust, Reading, Trust};

/// A pack of the working directory that needs consent.
pub(super) struct Candidate {
    pub(super) plan: LaunchPlan,
    /// The user's own pack that it would replace.
    pub(super) replaces: Option<LaunchPlan>,
}

/// The files and the packs.
pub(super) struct Desk {
    pub(super) trust: Trust,
    pub(super) candidates: Vec<Candidate>,
    /// The user's own packs, also those that a candidate would replace.
    pub(super) own: Vec<PackName>,
    /// Packs that are not candidates, with the reason.
    left_out: Vec<(String, String)>,
}

impl Desk {
    pub(super) fn new(context: &Context) -> Result<Self, Failure> {
        let place = |why: io::Error| Failure::Foot(format!("the working directory cannot be told: {why}"));
        let project = std::env::current_dir().map_err(place)?;
        let home = context.home()?;
        let paths = Paths::new(&home, &project, context.environment.foot_tools_dir.as_deref());
        let read = packs::read(&paths, !context.general.no_local);
        let left_out = read.skipped.iter().chain(&read.failed);
        let left_out = left_out.map(|left| (left.pack.clone(), format!("{}: {}", left.file, left.reason))).collect();
        let plans = read.wanted.iter().flat_map(|wanted| [Some(&wanted.plan), wanted.fallback.as_ref()]).flatten();
        let own = plans.filter(|plan| plan.origin != Origin::Project).map(|plan| plan.pack.clone()).collect();
        let candidates = read.wanted.into_iter().filter(|wanted| wanted.plan.origin == Origin::Project);
        Ok(Self {
            trust: Trust::new(&home, &project),
            own,
            candidates: candidates.map(|wanted| Candidate { plan: wanted.plan, replaces: wanted.fallback }).collect(),
            left_out,
        })
    }

    /// The working directory.
    pub(super) fn project(&self) -> Result<&Project, Failure> {
        self.trust.project().map_err(|why| Failure::Foot(why.to_owned()))
    }

    /// A pack of the working directory, or why it is none.
    pub(super) fn candidate(&self, name: &PackName) -> Result<&Candidate, Failure> {
        if let Some(found) = self.candidates.iter().find(|candidate| candidate.plan.pack == *name) {
            return Ok(found);
        }
        let why = self.left_out.iter().find(|(pack, _)| pack == name.as_str()).map(|(_, why)| plain(why));
        let why = why.unwrap_or_else(|| {
            "there is no pack of that name that came with this folder; `vancetope trust` lists what is here".to_owned()
        });
        Err(Failure::Foot(format!("pack '{name}': {why}")))
    }

    /// The verdict as a load would get it.
    pub(super) fn judge(&self, candidate: &Candidate) -> (Verdict, Reading) {
        self.trust.judge(candidate.plan.clone(), &Once::default(), candidate.replaces.as_ref())
    }

    /// What a pack would be asked with if nothing were known of it, and what consent would cover; or why it cannot be asked about.
    pub(super) fn as_new(&self, candidate: &Candidate) -> Result<(String, Digest), String> {
        let project = self.trust.project()?;
        // As a judgement looks at it: with the document of an HTTP API.
        let plan = files::shown(candidate.plan.clone(), Some(project.dir()), project.dir());
        let found = files::hash(&files::named(&plan, project), project).map_err(|e| e.to_string())?;
        let covers = digest(&plan, &found);
        let (book, once) = (Book::empty(), Once::default());
        let known = vance_shared::gate::Known { book: &book, once: &once, replaces: candidate.replaces.as_ref() };
        match judge(plan, project, found, known) {
            Verdict::Ask(question) => {
                let text = question.text();
                Ok((text.rsplit_once('\n').map_or(text, |(lines, _)| lines).to_owned(), covers))
            }
            Verdict::Denied(why) => Err(why),
            Verdict::Trusted(_) => Err("it needs no consent".to_owned()),
        }
    }
}

/// A store that was not changed.
pub(super) fn unchanged(distrust: Distrust) -> Failure {
    Failure::Foot(format!("nothing was changed: {distrust}"))
}

/// What is odd about the store, for people.
pub(super) fn tell(context: &mut Context, reading: &Reading) {
    for notice in &reading.notices {
        context.screen.remark(&format!("NOTICE: {notice}"));
    }
    if let Some(why) = &reading.distrust {
        context.screen.remark(&format!("vancetope: {why}"));
    }
}

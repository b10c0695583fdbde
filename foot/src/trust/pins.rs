//! The file of tool pins: what each server said about its tools when it first started, and what it says now where that is something else.

use std::path::Path;

use vance_own_file::{Distrust, Found, Own};
use vance_shared::gate::Project;
use vance_shared::gate::pins::{Drift, Met, PinBook, Pins};
use vance_shared::launch::Origin;
use vance_shared::names::PackName;
use vance_shared::tool::ToolSpec;

/// What the reader of the pins takes.
const MAX_BYTES: usize = 16 * 1024 * 1024;
const PINS: &str = "tool-pins.json";
/// The same for what waits for a review.
const SEEN: &str = "tool-pins-seen.json";

/// What waits for a review, as it was when it was read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Waiting {
    /// How the tools differ from their pins.
    pub drift: Drift,
    /// What they say: names are not all that may change between the question and the answer.
    seen: Pins,
}

/// The pins of a home, for one working directory.
#[derive(Debug, Clone)]
pub struct PinStore {
    pins: Own,
    seen: Own,
    project: Option<Project>,
}

impl PinStore {
    /// `not_in`: the folder in which no such file counts.
    pub(super) fn new(home: &Path, project: Option<&Project>, not_in: Option<&Path>) -> Self {
        let own = |file: &str| Own::new(home.join(file), MAX_BYTES, super::WHEN_FULL).not_in(not_in);
        Self { pins: own(PINS), seen: own(SEEN), project: project.cloned() }
    }

    /// Pins a pack's tools at its first start; later says how they differ, and keeps what they say now for a review. Touches the disk.
    pub fn check(&self, origin: Origin, pack: &PackName, tools: &[ToolSpec]) -> Result<Drift, Distrust> {
        let (now, of) = (Pins::of(tools), self.of(origin));
        let meet = |pins: &PinBook, seen: &PinBook| Met::of(origin, pins.get(of, pack), seen.get(of, pack), &now);
        let (pins, seen) = (read(&self.pins)?, read(&self.seen)?);
        let met = meet(&pins, &seen);
        // Nearly always nothing has changed, and nobody has to wait for a lock.
        let waits = seen.get(of, pack).cloned().unwrap_or_default();
        if pins.get(of, pack) == Some(&met.pinned) && waits == met.waits {
            return Ok(met.drift);
        }
        edit(&self.pins, |pins| {
            edit(&self.seen, |seen| {
                let Met { pinned, waits, drift } = meet(pins, seen);
                pins.set(of, pack, pinned);
                match waits.is_empty() {
                    true => seen.forget(of, pack),
                    false => seen.set(of, pack, waits),
                }
                drift
            })
        })?
    }

    /// How a pack's tools differ from their pins, as far as they were seen. Nothing differs if nothing waits.
    pub fn waiting(&self, origin: Origin, pack: &PackName) -> Result<Waiting, Distrust> {
        let (pins, seen) = (read(&self.pins)?, read(&self.seen)?);
        let pair = pins.get(self.of(origin), pack).zip(seen.get(self.of(origin), pack));
        Ok(pair.map(|(pinned, seen)| Waiting { drift: pinned.compare(seen), seen: seen.clone() }).unwrap_or_default())
    }

    /// Accepts what a pack's tools said when somebody was shown it. False, and nothing is accepted, if they say something else by now. `note` writes it
    /// into the log, before it counts.
    pub fn accept(
        &self,
        origin: Origin,
        pack: &PackName,
        shown: &Waiting,
        note: impl FnOnce(),
    ) -> Result<bool, Distrust> {
        let of = self.of(origin);
        edit(&self.pins, |pins| {
            edit(&self.seen, |seen| {
                let is_as_shown = seen.get(of, pack) == Some(&shown.seen);
                if is_as_shown {
                    note();
                    let pinned = pins.get(of, pack).cloned().unwrap_or_default();
                    pins.set(of, pack, pinned.with(shown.seen.clone()));
                    seen.forget(of, pack);
                }
                is_as_shown
            })
        })?
    }

    /// Forgets a pack: its next start is its first one.
    pub fn forget(&self, origin: Origin, pack: &PackName) -> Result<(), Distrust> {
        for file in [&self.pins, &self.seen] {
            edit(file, |book| book.forget(self.of(origin), pack))?;
        }
        Ok(())
    }

    /// Forgets all packs of the working directory.
    pub fn forget_project(&self) -> Result<(), Distrust> {
        let Some(project) = &self.project else { return Ok(()) };
        [&self.pins, &self.seen].into_iter().try_for_each(|file| edit(file, |book| book.forget_project(project)))
    }

    /// Forgets the packs of all directories, but not the user's own.
    pub fn forget_projects(&self) -> Result<(), Distrust> {
        [&self.pins, &self.seen].into_iter().try_for_each(|file| edit(file, PinBook::forget_projects))
    }

    /// The project whose pack it is; none for the user's own.
    fn of(&self, origin: Origin) -> Option<&Project> {
        match origin {
            Origin::Project => self.project.as_ref(),
            Origin::Global | Origin::Server => None,
        }
    }
}

fn read(file: &Own) -> Result<PinBook, Distrust> {
    let Found { text, notices } = file.read()?;
    notices.iter().for_each(|notice| tracing::warn!("NOTICE: {notice}"));
    parse(file, text.as_deref())
}

fn edit<T>(file: &Own, change: impl FnOnce(&mut PinBook) -> T) -> Result<T, Distrust> {
    file.edit(|text| {
        let before = parse(file, text)?;
        let mut book = before.clone();
        let result = change(&mut book);
        Ok(((book != before).then(|| book.to_json()), result))
    })
}

fn parse(file: &Own, text: Option<&str>) -> Result<PinBook, Distrust> {
    let Some(text) = text else { return Ok(PinBook::default()) };
    PinBook::parse(&file.shown(), text)
        .map_err(|problems| Distrust::Corrupt(problems.first().map(ToString::to_string).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use vance_shared::json::Raw;
    use vance_shared::names::ToolName;
    use vance_shared::tool::Replay;

    use super::*;

    fn tool(name: &str, description: &str) -> ToolSpec {
        ToolSpec {
            name: ToolName::parse(name).unwrap(),
            description: description.to_owned(),
            input_schema: Raw::from(serde_json::json!({"type": "object"})),
            output_schema: None,
            annotations: Default::default(),
            labels: Vec::new(),
            replay: Replay::Unsafe,
            pack: None,
        }
    }

    #[test]
    fn tools_that_change_wait_until_somebody_accepts_them() {
        let (home, project) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let of = Project::new(&project.path().canonicalize().unwrap()).unwrap();
        let store = PinStore::new(home.path(), Some(&of), Some(of.dir()));
        let pack = PackName::parse("p").unwrap();
        let check = |tools: &[ToolSpec]| store.check(Origin::Project, &pack, tools).unwrap();
        assert!(check(&[tool("p__a", "reads"), tool("p__b", "b")]).is_empty(), "the first start pins");
        let accept = |shown: &Waiting| store.accept(Origin::Project, &pack, shown, || ()).unwrap();
        assert!(!accept(&Waiting::default()));
        let changed = [tool("p__a", "reads and sends away"), tool("p__c", "c")];
        let drift = check(&changed);
        assert_eq!(drift.summary(), "new: p__c; changed: p__a");
        let shown = store.waiting(Origin::Project, &pack).unwrap();
        assert_eq!(shown.drift, drift);
        assert!(drift.withholds(Origin::Project, "p__a") && !drift.withholds(Origin::Global, "p__a"));
        // The same names, something else behind one of them, while the question stands there.
        assert_eq!(check(&[tool("p__a", "reads and deletes"), tool("p__c", "c")]), drift);
        assert!(!accept(&shown), "nobody was shown that");
        assert_eq!(store.waiting(Origin::Project, &pack).unwrap().drift, drift);
        check(&changed);
        assert!(check(&[]).is_empty(), "another process is offered nothing");
        assert_eq!(store.waiting(Origin::Project, &pack).unwrap(), shown, "and what waits still waits");
        assert!(accept(&shown));
        assert!(check(&changed).is_empty());
        assert!(check(&[tool("p__b", "b")]).is_empty(), "what was pinned stays so while it is not offered");
        assert!(
            check(&[tool("p__b", "something else")]).changed.contains("p__b"),
            "and is compared when it comes back"
        );
        check(&[tool("p__b", "b")]);
        assert!(check(&[tool("p__a", "reads")]).changed.contains("p__a"));
        assert!(
            !check(&changed).changed.contains("p__a")
                && store.waiting(Origin::Project, &pack).unwrap().drift.is_empty()
        );
        store.forget(Origin::Project, &pack).unwrap();
        assert!(check(&[tool("p__z", "z")]).is_empty());
        assert!(
            store.check(Origin::Global, &pack, &[tool("p__y", "y")]).unwrap().is_empty(),
            "another pack of this name"
        );
        // Of all projects, and not the user's own.
        let elsewhere = Project::new(&home.path().canonicalize().unwrap().join("elsewhere")).unwrap();
        let other = PinStore::new(home.path(), Some(&elsewhere), None);
        let differs = |store: &PinStore, origin| !store.check(origin, &pack, &[tool("p__new", "")]).unwrap().is_empty();
        other.check(Origin::Project, &pack, &[tool("p__a", "a")]).unwrap();
        assert!(differs(&store, Origin::Project) && differs(&other, Origin::Project));
        store.forget_project().unwrap();
        assert!(!differs(&store, Origin::Project) && differs(&other, Origin::Project));
        check(&[tool("p__a", "a")]);
        store.forget_projects().unwrap();
        assert!(!differs(&store, Origin::Project) && !differs(&other, Origin::Project));
        assert!(differs(&store, Origin::Global));
    }
}

//! Reads the pack folders of both levels and the selection. What follows from them is the core's to say.
//!
//! The order is part of the gate: the home, then the bytes of the project's files, and nothing else is opened, resolved or reached.

use std::path::{Path, PathBuf};

use vance_foot_core::config::{Config, MAX_CONFIG_BYTES, ToolPacks, parse_config};
use vance_foot_core::levels::levels;
use vance_foot_core::merge::{LeftOut, Merged, PackFile, merge};
use vance_foot_core::select::{Wanted, select};
use vance_shared::doc::Problem;
use vance_shared::launch::Origin;
use vance_shared::pack::MAX_FILE_BYTES;

use crate::paths::{Paths, shown};
use crate::trust::{is_of_a_clone, is_own_home, may_be_a_projects};

mod folder;
use folder::Unread;
pub(crate) use folder::{Folder, Read, text};

/// The selection, in the home and in a project's `.vancetope`.
const CONFIG: &str = "config.yaml";

/// What the folders come to.
#[derive(Debug, Clone, Default)]
pub struct Packs {
    /// What to start, given consent; the file is `plan.source.file`.
    pub wanted: Vec<Wanted>,
    /// Not wanted, each with its reason.
    pub skipped: Vec<LeftOut>,
    /// Wanted but wrong, each with its reason.
    pub failed: Vec<LeftOut>,
    /// What is wrong, line by line.
    pub problems: Vec<Problem>,
    /// What is odd in packs that load.
    pub warnings: Vec<Problem>,
    /// Names in the selection that no pack has.
    pub unselected: Vec<Problem>,
    /// What the user should know although nothing is wrong.
    pub notices: Vec<String>,
}

impl Packs {
    /// Leaves only what bears this name. What is wrong with other files does not matter then.
    pub(crate) fn keep_only(&mut self, name: &str) {
        self.wanted.retain(|wanted| wanted.plan.pack.as_str() == name);
        for left_out in [&mut self.skipped, &mut self.failed] {
            left_out.retain(|left_out| left_out.pack == name);
        }
        self.problems.retain(|problem| self.failed.iter().any(|left_out| left_out.file == problem.file));
        self.warnings.clear();
        self.unselected.clear();
        self.notices.clear();
    }
}

/// Reads the packs. `local`: whether the working directory's `.vancetope` counts at all. Starts nothing.
pub fn read(paths: &Paths, local: bool) -> Packs {
    let Levels { own, project } = Levels::of(paths, local);
    let (global, mut failed) = files(&own);
    let (theirs, unread) = project.as_ref().map(files).unwrap_or_default();
    failed.extend(unread);
    let theirs = if theirs.is_empty() { Merged::default() } else { merge(theirs) };
    let levels = levels(merge(global), theirs);
    failed.extend(levels.failed);

    let Config { tool_packs, problems, warnings } = selection(paths, project.is_some());
    let selected = select(levels.packs, &tool_packs, &failed);
    let all = |one: Vec<Problem>, other: Vec<Problem>| one.into_iter().chain(other).collect::<Vec<_>>();
    Packs {
        wanted: selected.wanted,
        skipped: levels.skipped.into_iter().chain(selected.skipped).collect(),
        failed,
        problems: all(levels.problems, problems),
        warnings: all(levels.warnings, warnings),
        unselected: selected.warnings,
        notices: levels.notices.into_iter().chain(odd_home(paths, own.origin)).collect(),
    }
}

/// The files whose change offers a new load: those of the folders that count, and the selections. Their names and times only.
pub(crate) fn watched(paths: &Paths, local: bool) -> Vec<PathBuf> {
    let Levels { own, project } = Levels::of(paths, local);
    let mut files: Vec<PathBuf> =
        [Some(&own), project.as_ref()].into_iter().flatten().flat_map(Folder::names).collect();
    files.push(paths.home.join(CONFIG));
    files.extend(project.map(|_| project_config(paths)));
    files
}

/// What only a person can tell of their home.
fn odd_home(paths: &Paths, origin: Origin) -> Option<String> {
    let is_odd = origin == Origin::Global && may_be_a_projects(&paths.home, &paths.project);
    let home = shown(&paths.home);
    is_odd.then(|| format!("VANCE_HOME is {home}, in a folder or a work tree around the working directory: packs in it are taken for yours and do not ask; if it came with a project, set VANCE_HOME to a folder of your own"))
}

/// Where packs of the user's own belong, for the way out of a question: not into a folder that came with the project.
pub(crate) fn own_place(paths: &Paths) -> String {
    match Levels::of(paths, true).own.origin {
        Origin::Global | Origin::Server => shown(&paths.global_packs),
        Origin::Project if is_own_home(&paths.home, &paths.project) => {
            let own = shown(&paths.home.join("foot-tools"));
            format!("{own} (without VANCE_FOOT_TOOLS_DIR, which names a folder of the project)")
        }
        Origin::Project => "the foot-tools of a home of your own (set VANCE_HOME)".to_owned(),
    }
}

/// The folders that count, the user's own first.
pub(crate) fn folders(paths: &Paths, local: bool) -> Vec<Folder> {
    let Levels { own, project } = Levels::of(paths, local);
    std::iter::once(own).chain(project).collect()
}

/// The folders that count.
struct Levels {
    own: Folder,
    /// None with `--no-local`, and where it is the same folder.
    project: Option<Folder>,
}

impl Levels {
    fn of(paths: &Paths, local: bool) -> Self {
        let real = |path: &Path| path.canonicalize().ok();
        let (own, theirs, project) = (real(&paths.global_packs), real(&paths.project_packs), real(&paths.project));
        // A folder of "the user's own" packs that lies in a project came with the project, unless the home itself is the user's.
        let in_project = own.as_ref().zip(project.as_ref()).is_some_and(|(own, project)| own.starts_with(project));
        let in_home = own.as_ref().zip(real(&paths.home)).is_some_and(|(own, home)| own.starts_with(home));
        let is_own = match in_home {
            true => is_own_home(&paths.home, &paths.project),
            false => !in_project && !is_of_a_clone(&paths.global_packs),
        };
        let origin = if is_own { Origin::Global } else { Origin::Project };
        let is_same = own.is_some() && own == theirs;
        let project = (local && !is_same).then(|| Folder::of_project(&paths.project));
        let own = match origin {
            Origin::Project if is_same => Folder::of_project(&paths.project),
            _ => Folder::own(&paths.global_packs, origin),
        };
        Self { own, project }
    }
}

fn files(folder: &Folder) -> (Vec<PackFile>, Vec<LeftOut>) {
    let (mut files, mut failed) = (Vec::new(), Vec::new());
    for (path, read) in folder.read(MAX_FILE_BYTES) {
        match read {
            Ok(text) => files.push(PackFile { file: shown(&path), text, origin: folder.origin }),
            Err(Unread(reason)) => failed.push(left_out(&path, reason)),
        }
    }
    (files, failed)
}

/// The project's selection instead of the home's, if it has one.
fn selection(paths: &Paths, local: bool) -> Config {
    let theirs = local.then(|| Folder::settings_of_project(&paths.project, CONFIG, MAX_CONFIG_BYTES)).flatten();
    let own = || folder::optional(&paths.home.join(CONFIG), MAX_CONFIG_BYTES);
    let (file, read) = match theirs {
        Some(read) => (shown(&project_config(paths)), read),
        None => match own() {
            Some(read) => (shown(&paths.home.join(CONFIG)), read),
            None => return Config::default(),
        },
    };
    match read {
        Ok(text) => parse_config(&file, &text),
        Err(Unread(why)) => Config {
            tool_packs: ToolPacks::unreadable(&file, &why),
            problems: vec![Problem::new(file, 1, &why)],
            warnings: Vec::new(),
        },
    }
}

fn project_config(paths: &Paths) -> PathBuf {
    paths.project.join(".vancetope").join(CONFIG)
}

fn left_out(path: &Path, reason: String) -> LeftOut {
    let pack = path.file_stem().map_or_else(String::new, |stem| shown(Path::new(stem)));
    LeftOut { pack, file: shown(path), reason }
}

#[cfg(test)]
mod tests;

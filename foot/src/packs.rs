//! Reads the pack folders. What is in the files is the core's to say.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use vance_foot_core::config::ToolPacks;
use vance_foot_core::levels::levels;
use vance_foot_core::merge::{LeftOut, Merged, PackFile, merge, needs_consent};
use vance_foot_core::select::select;
use vance_shared::doc::Problem;
use vance_shared::launch::{LaunchPlan, Origin};
use vance_shared::pack::MAX_FILE_BYTES;

use crate::paths::{Paths, shown};

/// Pack files of one folder. More is not a toolbox but an accident.
const MAX_FILES: usize = 64;

/// What the folders come to.
#[derive(Debug, Clone, Default)]
pub struct Packs {
    /// What to start, with the file that says so.
    pub plans: Vec<(String, LaunchPlan)>,
    /// Not wanted, each with its reason.
    pub skipped: Vec<LeftOut>,
    /// Wanted but wrong, each with its reason.
    pub failed: Vec<LeftOut>,
    /// What is wrong, line by line.
    pub problems: Vec<Problem>,
    /// What is odd in packs that load.
    pub warnings: Vec<Problem>,
}

/// Reads the packs. `local`: whether the working directory's packs count at all. Starts nothing.
pub fn read(paths: &Paths, local: bool) -> Packs {
    let (global, mut failed) = list(&paths.global_packs);
    let mut files = Vec::new();
    for path in global {
        let file = shown(&path);
        match text(&path) {
            Ok(text) => files.push(PackFile { file, text, origin: Origin::Global }),
            Err(error) => failed.push(left_out(&path, format!("cannot be read: {error}"))),
        }
    }
    let levels = levels(merge(files), Merged::default());
    let selected = select(levels.packs, &ToolPacks::default(), &levels.failed);
    let plans = selected.wanted.into_iter().map(|wanted| (wanted.plan.source.file.clone(), wanted.plan)).collect();
    let mut skipped = selected.skipped;
    if local {
        let global_dir = shown(&paths.global_packs);
        let (project, unreadable) = list(&paths.project_packs);
        failed.extend(unreadable);
        skipped.extend(project.iter().map(|path| needs_consent(&shown(path), &global_dir)));
    }
    failed.extend(levels.failed);
    Packs { plans, skipped, failed, problems: levels.problems, warnings: levels.warnings }
}

/// `*.json` of a folder, sorted. A folder that is not there is empty.
fn list(dir: &Path) -> (Vec<PathBuf>, Vec<LeftOut>) {
    let entries = match std::fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return (Vec::new(), Vec::new()),
        Err(error) => return (Vec::new(), vec![left_out(dir, format!("cannot be read: {error}"))]),
    };
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "json") && !path.is_dir())
        .collect();
    files.sort();
    let beyond = files.split_off(files.len().min(MAX_FILES));
    let reason = format!("{} holds more than {MAX_FILES} pack files; remove some", shown(dir));
    (files, beyond.iter().map(|path| left_out(path, reason.clone())).collect())
}

/// One byte over the limit is enough for the parser to say so. A pipe or device is refused: reading it might never end.
pub(crate) fn text(path: &Path) -> io::Result<String> {
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut text = String::new();
    File::open(path)?.take(MAX_FILE_BYTES as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

fn left_out(path: &Path, reason: String) -> LeftOut {
    let pack = path.file_stem().map_or_else(String::new, |stem| shown(Path::new(stem)));
    LeftOut { pack, file: shown(path), reason }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const PACK: &str = r#"{"name":"NAME","type":"mcp_server","parameters":{"transport":"stdio","command":["true"]}}"#;

    fn put(dir: &Path, file: &str, text: &str) {
        std::fs::create_dir_all(dir).unwrap();
        std::fs::write(dir.join(file), text).unwrap();
    }

    #[test]
    fn the_home_loads_the_project_waits_for_consent_and_a_broken_file_harms_no_other() {
        let (home, project) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let paths = Paths::new(home.path(), project.path(), None);
        put(&paths.global_packs, "a.json", &PACK.replace("NAME", "a"));
        put(&paths.global_packs, "b.json", "{");
        put(&paths.global_packs, "c.json.disabled", &PACK.replace("NAME", "c"));
        put(&paths.global_packs, "d.json", "\u{0}");
        std::fs::write(paths.global_packs.join("e.json"), [0xff, 0xfe]).unwrap();
        put(&paths.project_packs, "chrome.json", &PACK.replace("NAME", "chrome"));
        let packs = read(&paths, true);
        let names = |list: &[LeftOut]| list.iter().map(|l| l.pack.clone()).collect::<Vec<_>>();
        assert_eq!(packs.plans.iter().map(|(_, p)| p.pack.as_str()).collect::<Vec<_>>(), ["a"]);
        assert_eq!(names(&packs.failed), ["e", "b", "d"]);
        assert_eq!(names(&packs.skipped), ["chrome"]);
        assert!(packs.skipped[0].reason.contains("needs consent"));
        assert!(read(&paths, false).skipped.is_empty(), "--no-local silences");
    }

    #[test]
    fn without_folders_there_is_nothing_and_nothing_is_wrong() {
        let packs = read(&Paths::new(Path::new("/nowhere"), Path::new("/nowhere"), None), true);
        assert!(packs.plans.is_empty() && packs.failed.is_empty() && packs.skipped.is_empty());
    }
}

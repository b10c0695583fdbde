//! Reads `permissions.yaml`: the home's rules, tightened by the project's. A mistake stops the command: a rule that was meant to
//! deny must not get lost.

use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use vance_foot_core::permissions::{Rules, parse_permissions};
use vance_shared::show::plain;

use super::failure::Failure;
use crate::trust;

mod add;
pub(super) use add::add;

/// Name of the file, in the home and in a project's `.vancetope`.
const FILE: &str = "permissions.yaml";
/// Largest file that is read, in bytes: a thousand rules fit.
const MAX_FILE_BYTES: u64 = 256 * 1024;

/// The home's file.
pub(super) fn file(home: &Path) -> PathBuf {
    home.join(FILE)
}

/// The rules for a run in `project`; without `project` the home's alone.
pub(super) fn rules(home: &Path, project: Option<&Path>) -> Result<Rules, Failure> {
    let (rules, warnings) = both(home, project)?;
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    Ok(rules)
}

/// What of a project's rules has no effect, with its place and what to do. Nothing if there are mistakes: they are said elsewhere.
pub(super) fn ignored(home: &Path, project: &Path) -> Vec<String> {
    both(home, Some(project)).map(|(_, warnings)| warnings).unwrap_or_default()
}

/// The rules, and what has no effect.
fn both(home: &Path, project: Option<&Path>) -> Result<(Rules, Vec<String>), Failure> {
    let file = file(home);
    let own = match read(&file)? {
        Some(rules) if is_ours(home) => rules,
        // It came with the working directory: like that one's own it may only tighten.
        Some(theirs) => Rules::none(&file.to_string_lossy()).tightened_by(theirs).0,
        None => Rules::none(&file.to_string_lossy()),
    };
    // Who works in their own home directory has one folder that is both.
    let is_same = |project: &&Path| same(home, &project.join(".vancetope"));
    let theirs = project.filter(|project| !is_same(project)).map(read_theirs);
    let Some(theirs) = theirs.transpose()?.flatten() else { return Ok((own, Vec::new())) };
    Ok(own.tightened_by(theirs))
}

/// A project's file: no link is followed, so that a mistake in it shows nothing of another file.
fn read_theirs(project: &Path) -> Result<Option<Rules>, Failure> {
    let path = project.join(".vancetope").join(FILE);
    let fault = |why: String| Failure::File { file: plain(&path.to_string_lossy()), why };
    let read = trust::read_theirs(project, &[".vancetope", FILE], MAX_FILE_BYTES as usize);
    match read.map_err(|error| fault(error.to_string()))? {
        Some(text) if text.len() as u64 > MAX_FILE_BYTES => Err(fault(too_large())),
        Some(text) => parse(&path, &text).map(Some),
        None => Ok(None),
    }
}

fn same(one: &Path, other: &Path) -> bool {
    one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

fn is_ours(home: &Path) -> bool {
    std::env::current_dir().is_ok_and(|here| trust::is_own_home(home, &here))
}

fn read(path: &Path) -> Result<Option<Rules>, Failure> {
    read_text(path)?.map(|text| parse(path, &text)).transpose()
}

fn parse(path: &Path, text: &str) -> Result<Rules, Failure> {
    let name = path.to_string_lossy().into_owned();
    parse_permissions(&name, text).map_err(|problems| Failure::Mistakes { file: name, problems })
}

fn too_large() -> String {
    format!("larger than {MAX_FILE_BYTES} bytes, expected a list of rules")
}

/// The file's text, if there is one.
fn read_text(path: &Path) -> Result<Option<String>, Failure> {
    let fault = |why: String| Failure::File { file: plain(&path.to_string_lossy()), why };
    let mut text = String::new();
    match std::fs::metadata(path) {
        Ok(meta) if !meta.is_file() => return Err(fault("expected a regular file".to_owned())),
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fault(error.to_string())),
    }
    let file = std::fs::File::open(path).map_err(|e| fault(e.to_string()))?;
    file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text).map_err(|e| fault(e.to_string()))?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(fault(too_large()));
    }
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn without_files_the_defaults_hold_and_a_mistake_stops_the_command() {
        let home = tempfile::tempdir().unwrap();
        let none = rules(home.path(), Some(Path::new("/nowhere"))).unwrap();
        assert!(none.file().ends_with("permissions.yaml"));
        std::fs::write(home.path().join(FILE), "allow: []\ndney: []\n").unwrap();
        let Failure::Mistakes { problems, .. } = rules(home.path(), None).unwrap_err() else { panic!("mistakes") };
        assert_eq!(problems[0].line, 2);
        let project = tempfile::tempdir().unwrap();
        std::fs::create_dir(project.path().join(".vancetope")).unwrap();
        std::os::unix::fs::symlink(home.path().join(FILE), project.path().join(".vancetope").join(FILE)).unwrap();
        std::fs::write(home.path().join(FILE), "allow: []\n").unwrap();
        let linked = rules(home.path(), Some(project.path())).unwrap_err().to_string();
        assert!(linked.contains("is a link"), "{linked}");
        assert!(rules(home.path(), None).is_ok());
        std::fs::remove_file(home.path().join(FILE)).unwrap();
        std::fs::create_dir(home.path().join(FILE)).unwrap();
        assert_eq!(rules(home.path(), None).unwrap_err().exit(), 2);
    }
}

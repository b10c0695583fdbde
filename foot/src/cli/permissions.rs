//! Reads `permissions.yaml`: the home's rules, tightened by the project's. A mistake stops the command: a rule that was meant to
//! deny must not get lost.

use std::io::{ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use vance_foot_core::permissions::{Rules, parse_permissions};
use vance_shared::show::plain;

use super::failure::Failure;

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
    let file = file(home);
    let own = match read(&file)? {
        Some(rules) if is_ours(home) => rules,
        // It came with the working directory: like that one's own it may only tighten.
        Some(theirs) => Rules::none(&file.to_string_lossy()).tightened_by(theirs).0,
        None => Rules::none(&file.to_string_lossy()),
    };
    let Some(theirs) = project.map(|p| read(&p.join(".vancetope").join(FILE))).transpose()?.flatten() else {
        return Ok(own);
    };
    let (rules, warnings) = own.tightened_by(theirs);
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    Ok(rules)
}

fn is_ours(home: &Path) -> bool {
    std::env::current_dir().is_ok_and(|here| crate::trust::is_own_home(home, &here))
}

fn read(path: &Path) -> Result<Option<Rules>, Failure> {
    let Some(text) = read_text(path)? else { return Ok(None) };
    let name = path.to_string_lossy().into_owned();
    parse_permissions(&name, &text).map(Some).map_err(|problems| Failure::Mistakes { file: name, problems })
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
        return Err(fault(format!("larger than {MAX_FILE_BYTES} bytes, expected a list of rules")));
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
        std::fs::remove_file(home.path().join(FILE)).unwrap();
        std::fs::create_dir(home.path().join(FILE)).unwrap();
        assert_eq!(rules(home.path(), None).unwrap_err().exit(), 2);
    }
}

//! Which file a command's first word means: our own look-up, because the working directory is not ours to trust.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::SpawnError;

/// Resolves a program. A word with a slash is a path (relative ones below `cwd`); a bare word is looked up in `path`, whose empty and relative entries
/// do not count: they would mean "wherever we happen to be".
pub fn find_program(program: &str, path: Option<&OsStr>, cwd: &Path) -> Result<PathBuf, SpawnError> {
    if program.is_empty() {
        return Err(SpawnError::EmptyCommand);
    }
    if program.contains('/') {
        let file = cwd.join(program);
        return if is_program(&file) { Ok(file) } else { Err(SpawnError::NotAProgram { file: program.to_owned() }) };
    }
    std::env::split_paths(path.unwrap_or_default())
        .filter(|folder| folder.is_absolute())
        .map(|folder| folder.join(program))
        .find(|file| is_program(file))
        .ok_or_else(|| SpawnError::NotFound { program: program.to_owned() })
}

#[cfg(unix)]
fn is_program(file: &Path) -> bool {
    file.is_file() && nix::unistd::access(file, nix::unistd::AccessFlags::X_OK).is_ok()
}

#[cfg(not(unix))]
fn is_program(file: &Path) -> bool {
    file.is_file()
}

#[cfg(all(test, unix))]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::ffi::OsString;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_program_is_looked_up_in_absolute_entries_only() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("tool");
        std::fs::write(&file, "#!/bin/sh\n").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        std::fs::write(dir.path().join("text"), "").unwrap();
        let here = dir.path().to_str().unwrap();
        for (program, path, found) in [
            ("tool", here.to_owned(), true),
            ("tool", format!("/nowhere:{here}"), true),
            ("tool", ":.".to_owned(), false),
            ("tool", String::new(), false),
            ("text", here.to_owned(), false),
            ("./tool", String::new(), true),
            ("./text", String::new(), false),
            ("", here.to_owned(), false),
        ] {
            let path = OsString::from(path);
            assert_eq!(find_program(program, Some(&path), dir.path()).is_ok(), found, "{program:?} in {path:?}");
        }
        let missing = find_program("nope", Some(OsStr::new(here)), dir.path()).unwrap_err();
        assert_eq!(missing.to_string(), "program 'nope' not found in PATH");
    }
}

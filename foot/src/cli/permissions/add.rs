//! Adds a rule to `permissions.yaml` for a person who said "always": lock, read again, edit the text, temporary file, fsync, rename.
//! Comments and everything else in the file stay; what the edit means is checked before it is written, and a file that was not
//! understood is left alone.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use serde_json::{Value, json};
use vance_foot_core::permissions::parse_permissions;
use vance_shared::doc::{Entry, parse_yaml};

use super::{FILE, read_text};
use crate::cli::failure::Failure;

/// Beside the file, because the file itself is replaced.
const LOCK: &str = ".permissions.lock";

/// Why a rule was not written. Safe to print.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum AddError {
    #[error("{0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Read(String),
    #[error("the file has mistakes ({0})")]
    Mistakes(String),
    #[error("the file is written in a way that only a person can extend; add it under `allow:`")]
    Form,
}

/// Adds `{write: a.txt}` or the like to the home's `allow` list. There already: nothing changes.
pub(in crate::cli) fn add(home: &Path, rule: &str) -> Result<(), AddError> {
    DirBuilder::new().recursive(true).mode(0o700).create(home)?;
    let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(home.join(LOCK))?;
    // Held until the end of this function; the other holder only writes a small file.
    let _lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, errno)| io::Error::from(errno))?;
    // Where dotfiles are links, the link stays one.
    let path = match std::fs::canonicalize(home.join(FILE)) {
        Ok(path) => path,
        Err(error) if error.kind() == ErrorKind::NotFound => home.join(FILE),
        Err(error) => return Err(error.into()),
    };
    let before = read_text(&path).map_err(|failure: Failure| AddError::Read(failure.to_string()))?;
    let text = before.as_deref().unwrap_or_default();
    let name = path.to_string_lossy();
    if let Err(problems) = parse_permissions(&name, text) {
        return Err(AddError::Mistakes(problems.first().map(ToString::to_string).unwrap_or_default()));
    }
    match edited(text, rule).ok_or(AddError::Form)? {
        Some(after) => replace(&path, &after),
        None => Ok(()),
    }
}

/// The text with the rule: `Some(None)` if it has it already, `None` if this function cannot extend it.
fn edited(text: &str, rule: &str) -> Option<Option<String>> {
    let before = value(text)?;
    let rule_value = value(rule)?;
    let mut wanted = if before.is_null() { json!({}) } else { before };
    let fields = wanted.as_object_mut()?;
    let allow = fields.entry("allow").or_insert(Value::Null);
    if allow.is_null() {
        *allow = json!([]);
    }
    let list = allow.as_array_mut()?;
    if list.contains(&rule_value) {
        return Some(None);
    }
    list.insert(0, rule_value);
    let after = inserted(text, rule)?;
    // The one judge of an edit is the reader: the same file and one rule more, or nothing is written.
    (value(&after)? == wanted).then_some(Some(after))
}

/// The text with a line more, before the first entry of `allow`.
fn inserted(text: &str, rule: &str) -> Option<String> {
    let node = parse_yaml(FILE, text).ok()?;
    let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
    let mut allow = node.as_map().unwrap_or_default().iter().filter(|entry| entry.key == "allow");
    let Some(Entry { line, value, .. }) = allow.next() else {
        if let Some(last) = lines.last_mut().filter(|last| !last.ends_with('\n')) {
            last.push('\n');
        }
        lines.push(format!("allow:\n- {rule}\n"));
        return Some(lines.concat());
    };
    let key = usize::try_from(*line).ok()?.checked_sub(1)?;
    match value.as_list().and_then(|items| items.first()) {
        // `allow:` with nothing behind it.
        None if value.is_null() => {
            let line = lines.get_mut(key)?;
            if !line.ends_with('\n') {
                line.push('\n');
            }
            lines.insert(key + 1, format!("- {rule}\n"));
        }
        // A list in brackets.
        first if first.is_none_or(|item| !starts_entry(&lines, item.line)) => {
            let at = lines.iter().skip(key).position(|line| line.contains('['))? + key;
            let comma = if first.is_some() { ", " } else { "" };
            let line = lines.get_mut(at)?;
            *line = line.replacen('[', &format!("[{rule}{comma}"), 1);
        }
        // One entry a line.
        Some(item) => {
            let at = usize::try_from(item.line).ok()?.checked_sub(1)?;
            let indent: String = lines.get(at)?.chars().take_while(|c| *c == ' ').collect();
            lines.insert(at, format!("{indent}- {rule}\n"));
        }
        None => return None,
    }
    Some(lines.concat())
}

fn starts_entry(lines: &[String], line: u32) -> bool {
    let at = usize::try_from(line).ok().and_then(|line| line.checked_sub(1));
    at.and_then(|at| lines.get(at)).is_some_and(|line| line.trim_start().starts_with("- "))
}

fn value(text: &str) -> Option<Value> {
    parse_yaml(FILE, text).ok().map(|node| node.to_value())
}

/// Readers see the old text or the new one, a crash leaves one of them.
fn replace(path: &Path, text: &str) -> Result<(), AddError> {
    let mode = std::fs::metadata(path).map_or(0o600, |meta| meta.permissions().mode() & 0o777);
    let folder: PathBuf = path.parent().map(Path::to_owned).unwrap_or_default();
    let temporary = folder.join(format!(".{FILE}.{:016x}.tmp", fastrand::u64(..)));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        File::open(&folder)?.sync_all()
    })();
    if written.is_err()
        && let Err(left) = std::fs::remove_file(&temporary)
        && left.kind() != ErrorKind::NotFound
    {
        tracing::warn!("a temporary file stays: {}: {left}", temporary.display());
    }
    Ok(written?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const RULE: &str = "{write: /w/a.txt}";

    #[test]
    fn the_rule_comes_in_and_everything_else_stays() {
        for (before, after) in [
            ("", "allow:\n- {write: /w/a.txt}\n"),
            ("# mine\n", "# mine\nallow:\n- {write: /w/a.txt}\n"),
            ("deny:\n- {exec: [rm]}  # never", "deny:\n- {exec: [rm]}  # never\nallow:\n- {write: /w/a.txt}\n"),
            (
                "allow:  # yes\n  # the first\n  - {exec: [git]}  # all of it\n  - tool: x\ndeny: []\n",
                "allow:  # yes\n  # the first\n  - {write: /w/a.txt}\n  - {exec: [git]}  # all of it\n  - tool: x\ndeny: []\n",
            ),
            ("allow:\n- tool: x\n", "allow:\n- {write: /w/a.txt}\n- tool: x\n"),
            ("allow:\ndeny:\n- {tool: y}\n", "allow:\n- {write: /w/a.txt}\ndeny:\n- {tool: y}\n"),
            ("allow:", "allow:\n- {write: /w/a.txt}\n"),
            ("allow: []\n", "allow: [{write: /w/a.txt}]\n"),
            ("allow: [{tool: x}]  # [1]\n", "allow: [{write: /w/a.txt}, {tool: x}]  # [1]\n"),
            (
                "allow: [\n  {tool: x},\n]\nask: [{tool: z}]\n",
                "allow: [{write: /w/a.txt}, \n  {tool: x},\n]\nask: [{tool: z}]\n",
            ),
            ("{allow: [{tool: x}]}\n", "{allow: [{write: /w/a.txt}, {tool: x}]}\n"),
        ] {
            assert_eq!(edited(before, RULE), Some(Some(after.to_owned())), "{before:?}");
            assert!(parse_permissions("p", after).is_ok(), "{after:?}");
            assert_eq!(edited(after, RULE), Some(None), "twice is once");
        }
    }

    #[test]
    fn what_is_not_understood_stays_as_it_is() {
        for before in
            ["{deny: [{tool: x}]}\n", "allow: null\n", "--- # [\nallow: !!seq []\n...\n", "allow: &a\n- tool: x\n"]
        {
            assert!(matches!(edited(before, RULE), None | Some(Some(_))), "{before:?}");
            if let Some(Some(after)) = edited(before, RULE) {
                assert!(parse_permissions("p", &after).is_ok(), "{before:?} became {after:?}");
            }
        }
        assert_eq!(edited("{deny: [{tool: x}]}\n", RULE), None);
        let home = tempfile::tempdir().unwrap();
        std::fs::write(home.path().join(FILE), "alow: []\n").unwrap();
        let error = add(home.path(), RULE).unwrap_err().to_string();
        assert!(error.contains("permissions.yaml:1: ") && error.contains("did you mean `allow`"), "{error}");
        assert_eq!(std::fs::read_to_string(home.path().join(FILE)).unwrap(), "alow: []\n");
    }

    #[test]
    fn many_at_once_lose_no_rule_and_the_file_is_the_owners_alone() {
        let base = tempfile::tempdir().unwrap();
        let home = base.path().join("home");
        std::thread::scope(|scope| {
            for writer in 0..8 {
                let home = &home;
                scope.spawn(move || {
                    for n in 0..5 {
                        add(home, &format!("{{write: /w/{writer}-{n}}}")).unwrap();
                        add(home, RULE).unwrap();
                    }
                });
            }
        });
        let text = std::fs::read_to_string(home.join(FILE)).unwrap();
        assert_eq!(value(&text).unwrap()["allow"].as_array().unwrap().len(), 41, "{text}");
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&home), mode(&home.join(FILE))), (0o700, 0o600));
        let left: Vec<_> = std::fs::read_dir(&home).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(left.len(), 2, "the file and its lock: {left:?}");
    }

    #[test]
    fn a_link_stays_a_link() {
        let base = tempfile::tempdir().unwrap();
        let (home, real) = (base.path().join("home"), base.path().join("dotfiles.yaml"));
        std::fs::create_dir(&home).unwrap();
        std::fs::write(&real, "# mine\n").unwrap();
        std::os::unix::fs::symlink(&real, home.join(FILE)).unwrap();
        add(&home, RULE).unwrap();
        assert!(home.join(FILE).symlink_metadata().unwrap().is_symlink());
        assert_eq!(std::fs::read_to_string(&real).unwrap(), "# mine\nallow:\n- {write: /w/a.txt}\n");
    }
}

//! What files looked like, to see that they changed.
//!
//! By looking again and again instead of by the kernel's notices: a few dozen files cost nothing, a folder that is made later or replaced as
//! a whole is seen too, and it works on network mounts.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use vance_shared::show::plain;

/// Names in one line.
const MAX_NAMED: usize = 5;

/// What tells one state of a file from another: where it is, how long it is, when it was written and when it was put there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    inode: (u64, u64),
    len: u64,
    written: (i64, i64),
    changed: (i64, i64),
}

impl Mark {
    fn of(meta: &std::fs::Metadata) -> Self {
        Self {
            inode: (meta.dev(), meta.ino()),
            len: meta.len(),
            written: (meta.mtime(), meta.mtime_nsec()),
            changed: (meta.ctime(), meta.ctime_nsec()),
        }
    }
}

/// How some files looked at one moment: each itself, and what it leads to if it is a link.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stamps(Vec<(PathBuf, Option<[Option<Mark>; 2]>)>);

impl Stamps {
    /// Looks now. A path that leads nowhere is remembered as such.
    pub fn of(paths: impl IntoIterator<Item = PathBuf>) -> Self {
        let look = |path: &Path| {
            let own = path.symlink_metadata().ok()?;
            Some([Some(Mark::of(&own)), path.metadata().ok().as_ref().map(Mark::of)])
        };
        let mut stamps: Vec<_> = paths
            .into_iter()
            .map(|path| {
                let seen = look(&path);
                (path, seen)
            })
            .collect();
        stamps.sort_by(|a, b| a.0.cmp(&b.0));
        Self(stamps)
    }

    /// What came, changed or went since then.
    pub fn changed_since(&self, before: &Self) -> Vec<PathBuf> {
        let was = |path: &Path| before.0.iter().find(|(p, _)| p == path).and_then(|(_, seen)| *seen);
        let came = self.0.iter().filter(|(path, seen)| was(path) != *seen).map(|(path, _)| path);
        let is_gone = |path: &PathBuf| !self.0.iter().any(|(p, _)| p == path);
        let went = before.0.iter().filter(|(path, seen)| seen.is_some() && is_gone(path)).map(|(path, _)| path);
        came.chain(went).cloned().collect()
    }
}

/// File names for a line of a log; beyond a few only how many.
pub fn named(paths: &[PathBuf]) -> String {
    let name = |path: &PathBuf| {
        let last = path.file_name().unwrap_or_else(|| path.as_os_str());
        plain(&last.to_string_lossy())
    };
    let mut names: Vec<String> = paths.iter().take(MAX_NAMED).map(name).collect();
    if paths.len() > MAX_NAMED {
        names.push(format!("{} more", paths.len() - MAX_NAMED));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_came_changed_or_went_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let look = |names: &[&str]| Stamps::of(names.iter().map(|name| path(name)));
        std::fs::write(path("a"), "1").unwrap();
        std::fs::write(path("b"), "1").unwrap();
        std::os::unix::fs::symlink(path("b"), path("link")).unwrap();
        let before = look(&["a", "b", "config", "link"]);
        assert_eq!(named(&look(&["link", "b", "config", "a"]).changed_since(&before)), "");
        // Of the same length and put in its place as a whole, as editors do, and seen through a link.
        std::fs::write(path("new"), "2").unwrap();
        std::fs::rename(path("new"), path("b")).unwrap();
        assert_eq!(named(&look(&["a", "b", "config", "link"]).changed_since(&before)), "b, link");
        std::fs::write(path("config"), "1").unwrap();
        std::fs::write(path("c"), "1").unwrap();
        assert_eq!(named(&look(&["b", "c", "config", "link"]).changed_since(&before)), "b, c, config, link, a");
        std::fs::remove_file(path("a")).unwrap();
        assert_eq!(named(&look(&["a"]).changed_since(&look(&["a"]))), "");
        let many: Vec<PathBuf> = (0..7).map(|n| PathBuf::from(n.to_string())).collect();
        assert_eq!(named(&many), "0, 1, 2, 3, 4, 2 more");
    }
}

//! The pack files of both levels, one by one, also those that do not count; and how one is written.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use vance_shared::launch::Origin;
use vance_shared::names::PackName;
use vance_shared::pack::{MAX_FILE_BYTES, Parsed, parse_pack};

use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::packs::{Folder, Read, folders};
use crate::paths::{Paths, shown};

/// How a pack file that is turned off ends.
const OFF: &str = ".disabled";

/// A pack file.
pub(in crate::cli) struct PackFile {
    /// Where it is.
    pub(in crate::cli) path: PathBuf,
    /// Whose it is.
    pub(in crate::cli) origin: Origin,
    /// What it holds, or why it cannot be read.
    pub(in crate::cli) text: Result<String, String>,
}

impl PackFile {
    /// The file as people see it.
    pub(in crate::cli) fn shown(&self) -> String {
        shown(&self.path)
    }

    /// What it says; nothing if it cannot be read.
    pub(in crate::cli) fn parsed(&self) -> Option<Parsed> {
        self.text.as_ref().ok().map(|text| parse_pack(&self.shown(), text, self.origin))
    }

    /// The name inside, else the file's.
    pub(in crate::cli) fn name(&self) -> String {
        let stem = || self.path.file_stem().map_or_else(String::new, |stem| shown(Path::new(stem)));
        self.parsed().and_then(|p| p.name).map_or_else(stem, |name| name.to_string())
    }
}

/// Where this run's packs are.
pub(in crate::cli) fn paths(context: &Context) -> Result<Paths, Failure> {
    let place = |why: io::Error| Failure::Foot(format!("the working directory cannot be told: {why}"));
    let project = std::env::current_dir().map_err(place)?;
    Ok(Paths::new(&context.home()?, &project, context.environment.foot_tools_dir.as_deref()))
}

/// The files of the folders that count, the user's own first.
pub(in crate::cli) fn both(paths: &Paths, local: bool) -> Vec<PackFile> {
    folders(paths, local).iter().flat_map(files).collect()
}

fn files(folder: &Folder) -> Vec<PackFile> {
    let origin = folder.origin;
    let one = |(path, text): Read| PackFile { path, origin, text: text.map_err(|unread| unread.0) };
    folder.read(MAX_FILE_BYTES).into_iter().map(one).collect()
}

/// Where a pack of this name is, or would be.
pub(in crate::cli) struct Place {
    /// The file.
    pub(in crate::cli) path: PathBuf,
    /// What stands there now.
    pub(in crate::cli) now: Now,
}

/// What stands in the way of a new file.
pub(in crate::cli) enum Now {
    /// Nothing.
    Free,
    /// A pack of this name, with its text.
    Same(String),
    /// A pack of this name that its owner has turned off.
    Off(PathBuf),
    /// Something else.
    Other(String),
}

/// Finds the place for a pack.
pub(in crate::cli) fn place(paths: &Paths, origin: Origin, name: &PackName) -> Place {
    let (dir, folder) = match origin {
        Origin::Project => (&paths.project_packs, Folder::of_project(&paths.project)),
        Origin::Global | Origin::Server => (&paths.global_packs, Folder::own(&paths.global_packs, origin)),
    };
    let files = files(&folder);
    if let Some(file) = files.iter().find(|file| file.name() == name.as_str())
        && let Ok(text) = &file.text
    {
        return Place { path: file.path.clone(), now: Now::Same(text.clone()) };
    }
    let path = dir.join(format!("{name}.json"));
    let off = dir.join(format!("{name}.json{OFF}"));
    let now = if path.symlink_metadata().is_ok() {
        let other = files.iter().find(|file| file.path == path).map_or_else(String::new, PackFile::name);
        Now::Other(match other {
            other if other.is_empty() || other == name.as_str() => "cannot be read".to_owned(),
            other => format!("holds the pack '{other}'"),
        })
    } else if off.symlink_metadata().is_ok() {
        Now::Off(off)
    } else {
        Now::Free
    };
    Place { path, now }
}

/// Writes a pack file whole or not at all, for its owner's eyes alone: it may hold credentials. Without `replace` a file that
/// came there meanwhile stays.
pub(in crate::cli) fn write(path: &Path, text: &str, replace: bool) -> io::Result<()> {
    // Where dotfiles are links, the link stays one.
    let path = if replace { path.canonicalize().unwrap_or_else(|_| path.to_owned()) } else { path.to_owned() };
    let folder = path.parent().map(Path::to_owned).unwrap_or_default();
    DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
    let temporary = folder.join(format!(".pack.{:016x}.tmp", fastrand::u64(..)));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        match replace {
            true => std::fs::rename(&temporary, &path)?,
            false => {
                std::fs::hard_link(&temporary, &path)?;
                std::fs::remove_file(&temporary)?;
            }
        }
        File::open(&folder)?.sync_all()
    })();
    if written.is_err()
        && let Err(left) = std::fs::remove_file(&temporary)
        && left.kind() != ErrorKind::NotFound
    {
        tracing::warn!("a temporary file stays: {}: {left}", shown(&temporary));
    }
    written
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_written_whole_for_its_owner_and_never_over_another_one_by_accident() {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("a/foot-tools");
        let file = dir.join("x.json");
        write(&file, "1", false).unwrap();
        assert_eq!(write(&file, "2", false).unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "1");
        write(&file, "3", true).unwrap();
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "3");
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&dir), mode(&file)), (0o700, 0o600));
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 1, "no temporary file stays");
    }

    #[test]
    fn a_place_is_known_by_the_name_inside_whatever_the_file_is_called() {
        let home = tempfile::tempdir().unwrap();
        let paths = Paths::new(home.path(), Path::new("/nowhere"), Some(home.path()));
        let pack = |name: &str| {
            format!(
                r#"{{"name":"{name}","type":"mcp_server","parameters":{{"transport":"stdio","command":["true"]}}}}"#
            )
        };
        std::fs::write(home.path().join("browser.json"), pack("chrome")).unwrap();
        std::fs::write(home.path().join("jira.json"), pack("other")).unwrap();
        std::fs::write(home.path().join("old.json.disabled"), pack("old")).unwrap();
        std::fs::write(home.path().join("bad.json"), [0xff]).unwrap();
        let at = |name: &str| {
            let place = place(&paths, Origin::Global, &PackName::parse(name).unwrap());
            let now = match place.now {
                Now::Free => "free".to_owned(),
                Now::Same(_) => "same".to_owned(),
                Now::Off(_) => "off".to_owned(),
                Now::Other(why) => why,
            };
            (place.path.file_name().unwrap().to_str().unwrap().to_owned(), now)
        };
        for (name, file, now) in [
            ("chrome", "browser.json", "same"),
            ("jira", "jira.json", "holds the pack 'other'"),
            ("old", "old.json", "off"),
            ("bad", "bad.json", "cannot be read"),
            ("new", "new.json", "free"),
        ] {
            assert_eq!(at(name), (file.to_owned(), now.to_owned()));
        }
    }
}

//! Folders of files that people write. The user's own are read as they are; a project's without following any link, and only files that are
//! regular and the user's: what came with a clone must not make us read something else.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use vance_shared::launch::Origin;
use vance_shared::pack::MAX_FILE_BYTES;

use crate::paths::shown;

/// Pack files of one folder. More is not a toolbox but an accident.
const MAX_FILES: usize = 64;
/// Entries of a folder that are looked at, of whatever name.
const MAX_ENTRIES: usize = 4096;
/// A project's folder, and the packs in it.
const PROJECT: [&str; 2] = [".vancetope", "foot-tools"];

/// Why a file was not read. Safe to print.
#[derive(Debug)]
pub(crate) struct Unread(pub(crate) String);

/// A folder of pack files.
pub(crate) struct Folder {
    dir: PathBuf,
    /// Whose the files are.
    pub(crate) origin: Origin,
    /// The project that it came with; links in it are not followed.
    strict_below: Option<PathBuf>,
}

/// A file and its text, or why it was not read.
pub(crate) type Read = (PathBuf, Result<String, Unread>);

impl Folder {
    /// A folder that the user names.
    pub(crate) fn own(dir: &Path, origin: Origin) -> Self {
        Self { dir: dir.to_owned(), origin, strict_below: None }
    }

    /// The one of a working directory.
    pub(crate) fn of_project(project: &Path) -> Self {
        let dir = PROJECT.iter().fold(project.to_owned(), |dir, name| dir.join(name));
        Self { dir, origin: Origin::Project, strict_below: Some(project.to_owned()) }
    }

    /// `*.json`, sorted. A folder that is not there is empty.
    pub(crate) fn read(&self, limit: usize) -> Vec<Read> {
        let folder = match self.strict_below.as_deref().map(|project| below(project, &PROJECT)).transpose() {
            Ok(folder) => folder,
            Err(error) if error.kind() == ErrorKind::NotFound => return Vec::new(),
            Err(error) => return vec![(self.dir.clone(), Err(unread(&error)))],
        };
        let mut names = match self.list() {
            Ok(names) => names,
            Err(error) if error.kind() == ErrorKind::NotFound => return Vec::new(),
            Err(error) => return vec![(self.dir.clone(), Err(unread(&error)))],
        };
        let beyond = names.split_off(names.len().min(MAX_FILES));
        let full = format!("{} holds more than {MAX_FILES} pack files; remove some", shown(&self.dir));
        let one = |name: OsString| {
            let path = self.dir.join(&name);
            let read = match &folder {
                Some(folder) => strictly(folder, &name, limit),
                None => text_within(&path, limit),
            };
            (path, read.map_err(|error| unread(&error)))
        };
        let beyond = beyond.into_iter().map(|name| (self.dir.join(name), Err(Unread(full.clone()))));
        names.into_iter().map(one).chain(beyond).collect()
    }

    /// The files' paths.
    pub(crate) fn names(&self) -> Vec<PathBuf> {
        let names = self.list().unwrap_or_default();
        names.into_iter().take(MAX_FILES).map(|name| self.dir.join(name)).collect()
    }

    fn list(&self) -> io::Result<Vec<OsString>> {
        let entries = std::fs::read_dir(&self.dir)?.take(MAX_ENTRIES).filter_map(Result::ok);
        let is_pack = |path: &Path| path.extension() == Some(OsStr::new("json")) && !path.is_dir();
        let mut names: Vec<OsString> =
            entries.filter(|entry| is_pack(&entry.path())).map(|entry| entry.file_name()).collect();
        names.sort();
        Ok(names)
    }

    /// Another file of a working directory's `.vancetope`; `None` if there is none.
    pub(super) fn settings_of_project(project: &Path, name: &str, limit: usize) -> Option<Result<String, Unread>> {
        let read = below(project, &PROJECT[..1]).and_then(|folder| strictly(&folder, OsStr::new(name), limit));
        there(read)
    }
}

/// A file of the user's own; `None` if there is none.
pub(super) fn optional(path: &Path, limit: usize) -> Option<Result<String, Unread>> {
    there(text_within(path, limit))
}

fn there(read: io::Result<String>) -> Option<Result<String, Unread>> {
    match read {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        read => Some(read.map_err(|error| unread(&error))),
    }
}

/// A pack file's text, of a path that the user named.
pub(crate) fn text(path: &Path) -> io::Result<String> {
    text_within(path, MAX_FILE_BYTES)
}

/// One byte over the limit is enough for the reader to say so. A pipe or device is refused: reading it might never end.
fn text_within(path: &Path, limit: usize) -> io::Result<String> {
    if !path.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    take(File::open(path)?, limit)
}

fn take(file: File, limit: usize) -> io::Result<String> {
    let mut text = String::new();
    file.take(limit as u64 + 1).read_to_string(&mut text)?;
    Ok(text)
}

/// Opens folders below a project, one by one, none of them a link.
fn below(project: &Path, names: &[&str]) -> io::Result<OwnedFd> {
    let flags = OFlag::O_DIRECTORY | OFlag::O_RDONLY | OFlag::O_CLOEXEC;
    let mut folder = open(project, flags, Mode::empty())?;
    for name in names {
        folder = openat(&folder, *name, flags | OFlag::O_NOFOLLOW, Mode::empty()).map_err(no_link)?;
    }
    Ok(folder)
}

fn strictly(folder: &OwnedFd, name: &OsStr, limit: usize) -> io::Result<String> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = File::from(openat(folder, name, flags, Mode::empty()).map_err(no_link)?);
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if meta.uid() != nix::unistd::geteuid().as_raw() {
        return Err(io::Error::other(
            "it belongs to another user, and files of the working directory have to be yours",
        ));
    }
    take(file, limit)
}

fn no_link(errno: nix::Error) -> io::Error {
    match errno {
        nix::Error::ELOOP | nix::Error::ENOTDIR => io::Error::other(
            "it is a link or no folder, and links are not followed in the working directory's .vancetope",
        ),
        errno => errno.into(),
    }
}

fn unread(error: &io::Error) -> Unread {
    Unread(format!("cannot be read: {}", vance_shared::show::plain(&error.to_string())))
}

//! Opening files below the roots. A path is resolved once, judged, and then walked from the root's open descriptor without
//! following any link: what was judged is what is opened, whatever happens to the tree in between.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, File, OpenOptions, OpenOptionsExt};
use vance_foot_core::permissions::normal;
use vance_shared::call::Outcome;
use vance_shared::show::quoted;

use super::failed;

/// Bytes of a path in a message.
const MAX_SHOWN: usize = 300;

/// A folder that file tools may use.
pub(super) struct Root {
    spelled: PathBuf,
    real: OnceLock<(PathBuf, Dir)>,
}

impl Root {
    fn new(spelled: &Path) -> Self {
        let root = Self { spelled: spelled.to_owned(), real: OnceLock::new() };
        // A root that is not there yet is opened when it is used.
        if let Err(error) = root.opened() {
            tracing::warn!(root = %quoted(&spelled.to_string_lossy(), MAX_SHOWN), %error, "a root of the file tools cannot be opened");
        }
        root
    }

    fn opened(&self) -> io::Result<&(PathBuf, Dir)> {
        if let Some(opened) = self.real.get() {
            return Ok(opened);
        }
        let real = std::fs::canonicalize(&self.spelled)?;
        let dir = Dir::open_ambient_dir(&real, ambient_authority())?;
        Ok(self.real.get_or_init(|| (real, dir)))
    }
}

/// All roots.
pub(super) struct Roots(Vec<Arc<Root>>);

/// A path below a root: what it is called, what it is, and the way there.
#[derive(Clone)]
pub(super) struct Resolved {
    root: Arc<Root>,
    /// As named, without `.` and `..`.
    pub(super) lexical: PathBuf,
    /// With all links resolved. The last parts may not exist.
    pub(super) real: PathBuf,
    /// `real` below its root.
    pub(super) rel: PathBuf,
}

impl Roots {
    pub(super) fn open(paths: &[PathBuf]) -> Self {
        Self(paths.iter().map(|path| Arc::new(Root::new(path))).collect())
    }

    /// As written and, for those that exist, with links resolved.
    pub(super) fn spellings(&self) -> Vec<PathBuf> {
        let real = self.0.iter().filter_map(|r| r.opened().ok()).map(|(real, _)| real.clone());
        let mut all: Vec<PathBuf> = self.0.iter().map(|r| r.spelled.clone()).chain(real).collect();
        all.dedup();
        all
    }

    /// Resolves the links of an absolute, normal path and finds the root that holds the outcome.
    pub(super) fn resolve(&self, lexical: &Path) -> Result<Resolved, Box<Outcome>> {
        let real = real_path(lexical)?;
        let holds = |root: &&Arc<Root>| root.opened().is_ok_and(|(base, _)| real.starts_with(base));
        let depth = |root: &&Arc<Root>| root.opened().map_or(0, |(base, _)| base.components().count());
        let Some(root) = self.0.iter().filter(holds).max_by_key(depth) else {
            return Err(self.not_held(lexical));
        };
        let rel =
            root.opened().ok().and_then(|(base, _)| real.strip_prefix(base).ok()).unwrap_or(Path::new("")).to_owned();
        Ok(Resolved { root: Arc::clone(root), lexical: lexical.to_owned(), real, rel })
    }

    fn not_held(&self, lexical: &Path) -> Box<Outcome> {
        for root in self.0.iter().filter(|root| lexical.starts_with(&root.spelled)) {
            if let Err(error) = root.opened() {
                let root = quoted(&root.spelled.to_string_lossy(), MAX_SHOWN);
                return failed(
                    "not_found",
                    format!("the root {root} cannot be opened: {error}; create the folder or mend `roots:`"),
                );
            }
        }
        let message = format!(
            "{} is a link that leads outside the folders that file tools may use; add its target's folder under `roots:`",
            show(lexical)
        );
        failed("permission_denied", message)
    }
}

/// Like `canonicalize`, for paths whose last parts do not exist yet.
fn real_path(lexical: &Path) -> Result<PathBuf, Box<Outcome>> {
    let mut missing: Vec<&OsStr> = Vec::new();
    let mut at = lexical;
    loop {
        match std::fs::canonicalize(at) {
            Ok(mut real) => {
                real.extend(missing.iter().rev());
                return Ok(normal(&real));
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                if at.symlink_metadata().is_ok() {
                    return Err(failed("not_found", format!("{} is a link that leads nowhere", show(at))));
                }
                let (Some(parent), Some(name)) = (at.parent(), at.file_name()) else {
                    return Err(io_failure("open", lexical, &e));
                };
                missing.push(name);
                at = parent;
            }
            Err(e) => return Err(io_failure("open", lexical, &e)),
        }
    }
}

impl Resolved {
    /// The folder that holds it, and its name there. With `create`, missing folders are made.
    pub(super) fn parent(&self, create: bool) -> Result<(Dir, OsString), Box<Outcome>> {
        let Some(name) = self.rel.file_name() else {
            return Err(failed("not_a_file", format!("{} is a folder, expected a file", self.shown())));
        };
        let folder = self.rel.parent().unwrap_or(Path::new(""));
        let dir = self.walk(folder, create).map_err(|e| {
            if e.kind() == io::ErrorKind::NotFound {
                failed("not_found", format!("the folder of {} does not exist; create it, or pass `create_dirs: true` to the tool that writes", self.shown()))
            } else {
                self.failure("open", &e)
            }
        })?;
        Ok((dir, name.to_owned()))
    }

    /// Opens it as a folder.
    pub(super) fn dir(&self) -> Result<Dir, Box<Outcome>> {
        self.walk(&self.rel, false).map_err(|e| self.failure("open the folder", &e))
    }

    /// The folders from the root down to it, the root first.
    pub(super) fn chain(&self) -> io::Result<Vec<(PathBuf, Dir)>> {
        let (base, root) = self.root.opened()?;
        let mut all = vec![(base.clone(), root.try_clone()?)];
        for part in self.rel.components() {
            let Some((path, dir)) = all.last() else { break };
            let next = (path.join(part), open_dir(dir, part.as_os_str())?);
            all.push(next);
        }
        Ok(all)
    }

    /// Opens it as a regular file for reading.
    pub(super) fn file(&self) -> Result<(File, cap_std::fs::Metadata), Box<Outcome>> {
        if self.rel.as_os_str().is_empty() {
            return Err(failed(
                "not_a_file",
                format!("{} is a folder; list_local_files shows what it holds", self.shown()),
            ));
        }
        let (folder, name) = (self.rel.parent().unwrap_or(Path::new("")), self.rel.file_name().unwrap_or_default());
        let dir = self.walk(folder, false).map_err(|e| self.failure("open", &e))?;
        let file = open_file(&dir, name, OpenOptions::new().read(true)).map_err(|e| self.failure("open", &e))?;
        let meta = file.metadata().map_err(|e| self.failure("open", &e))?;
        self.check_regular(&meta)?;
        Ok((file, meta))
    }

    /// Fails with what to do unless it is a regular file: a pipe or a device would block or never end.
    pub(super) fn check_regular(&self, meta: &cap_std::fs::Metadata) -> Result<(), Box<Outcome>> {
        if meta.is_file() {
            return Ok(());
        }
        let what = if meta.is_dir() {
            "a folder; list_local_files shows what it holds"
        } else {
            "neither a file nor a folder (a pipe, socket or device)"
        };
        Err(failed("not_a_file", format!("{} is {what}", self.shown())))
    }

    /// The path for messages.
    pub(super) fn shown(&self) -> String {
        show(&self.lexical)
    }

    /// A file system's error as a failure that says what to do.
    pub(super) fn failure(&self, verb: &str, error: &io::Error) -> Box<Outcome> {
        io_failure(verb, &self.lexical, error)
    }

    fn walk(&self, rel: &Path, create: bool) -> io::Result<Dir> {
        let (_, root) = self.root.opened()?;
        let mut dir = root.try_clone()?;
        for part in rel.components() {
            let Component::Normal(name) = part else {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path is not normal"));
            };
            dir = match open_dir(&dir, name) {
                Err(e) if create && e.kind() == io::ErrorKind::NotFound => {
                    match dir.create_dir(name) {
                        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
                        Ok(()) | Err(_) => {}
                    }
                    open_dir(&dir, name)?
                }
                other => other?,
            };
        }
        Ok(dir)
    }
}

/// Opens a folder's entry as a folder, if it is one and no link.
pub(super) fn open_dir(dir: &Dir, name: &OsStr) -> io::Result<Dir> {
    let flags = libc::O_NOFOLLOW | libc::O_DIRECTORY;
    let file = dir.open_with(name, OpenOptions::new().read(true).custom_flags(flags))?;
    Ok(Dir::from_std_file(file.into_std()))
}

/// Opens a folder's entry as a file, if it is no link; never blocks on a pipe.
pub(super) fn open_file(dir: &Dir, name: &OsStr, options: &mut OpenOptions) -> io::Result<File> {
    dir.open_with(name, options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK))
}

fn show(path: &Path) -> String {
    quoted(&path.to_string_lossy(), MAX_SHOWN)
}

fn io_failure(verb: &str, path: &Path, error: &io::Error) -> Box<Outcome> {
    let path = show(path);
    match error.kind() {
        io::ErrorKind::NotFound => {
            failed("not_found", format!("{path} does not exist; list_local_files shows what its folder holds"))
        }
        io::ErrorKind::PermissionDenied => {
            failed("io_error", format!("cannot {verb} {path}: the operating system denies it to this user"))
        }
        io::ErrorKind::StorageFull => failed("io_error", format!("cannot {verb} {path}: the disk is full")),
        _ if error.raw_os_error() == Some(libc::ELOOP) => failed(
            "permission_denied",
            format!("cannot {verb} {path}: it became a link while it was opened, or its links form a loop"),
        ),
        _ if error.raw_os_error() == Some(libc::ENOTDIR) => {
            failed("not_found", format!("cannot {verb} {path}: a part of the path is not a folder"))
        }
        _ => failed("io_error", format!("cannot {verb} {path}: {}", vance_shared::show::plain(&error.to_string()))),
    }
}

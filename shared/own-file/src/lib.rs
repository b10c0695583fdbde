//! Small files that are believed: each has to be its user's own, written by nobody else, and no part of the project that it judges. Changed under a
//! lock, replaced as a whole, private.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg, OFlag};

/// Others may write.
const WRITABLE: u32 = 0o022;
/// Others may do anything.
const OTHERS: u32 = 0o077;

/// The end of a name while its file is written.
const TEMPORARY: &str = ".tmp";
/// A write takes milliseconds. Only what has no owner to ask for waits as long: the owner may be in another container.
const LEFT_OVER: Duration = Duration::from_secs(60);

/// Why a file is not believed, or not written. Safe to print.
#[derive(Debug, thiserror::Error)]
pub enum Distrust {
    /// Somebody else could have written it.
    #[error("{0}")]
    Unsafe(String),
    /// It does not say anything that can be read.
    #[error("{0}")]
    Corrupt(String),
    /// It would become larger than it may be.
    #[error("{file} is full; {advice}")]
    Full {
        /// The file, safe to print.
        file: String,
        /// What makes room.
        advice: &'static str,
    },
    /// The file system.
    #[error("{file}: {error}")]
    Io {
        /// The file, safe to print.
        file: String,
        /// What happened.
        error: io::Error,
    },
}

impl Distrust {
    fn io(path: &Path) -> impl FnOnce(io::Error) -> Self + '_ {
        move |error| Self::Io { file: shown(path), error }
    }
}

/// A file of the home that only its user may have written.
#[derive(Debug, Clone)]
pub struct Own {
    path: PathBuf,
    /// What came with this folder is not believed.
    not_in: Option<PathBuf>,
    max_bytes: usize,
    when_full: &'static str,
}

/// What was read.
#[derive(Debug, Default)]
pub struct Found {
    /// The text; none if there is no file.
    pub text: Option<String>,
    /// What was mended on the way.
    pub notices: Vec<String>,
}

impl Own {
    /// `when_full`: what makes room in a file that has `max_bytes`.
    pub fn new(path: PathBuf, max_bytes: usize, when_full: &'static str) -> Self {
        Self { path, not_in: None, max_bytes, when_full }
    }

    /// What lies in this folder (canonical: a project) is not believed.
    pub fn not_in(self, project: Option<&Path>) -> Self {
        Self { not_in: project.map(Path::to_owned), ..self }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file as people see it.
    pub fn shown(&self) -> String {
        shown(&self.path)
    }

    /// Reads it, if it may be believed.
    pub fn read(&self) -> Result<Found, Distrust> {
        let mut found = Found::default();
        let Some(path) = self.real()? else { return Ok(found) };
        for folder in self.folders(&path) {
            let folder_file = self.open(&folder, OFlag::O_DIRECTORY)?;
            found.notices.extend(self.check(&folder_file, &folder, 0o700)?);
        }
        let file = self.open(&path, OFlag::empty())?;
        if !file.metadata().map_err(Distrust::io(&path))?.is_file() {
            return Err(Distrust::Unsafe(format!("{} is no regular file", shown(&path))));
        }
        found.notices.extend(self.check(&file, &path, 0o600)?);
        let mut bytes = Vec::new();
        let limit = self.max_bytes as u64 + 1;
        file.take(limit).read_to_end(&mut bytes).map_err(Distrust::io(&path))?;
        match String::from_utf8(bytes) {
            Ok(text) => found.text = Some(text),
            Err(_) => return Err(Distrust::Corrupt(format!("{} is no UTF-8 text", shown(&path)))),
        }
        Ok(found)
    }

    /// Takes the lock, reads, lets `edit` make the new text, and puts that in the file's place. Readers see the old text or the new one, a crash
    /// leaves one of them, and of two writers none is lost.
    pub fn edit<T>(
        &self,
        edit: impl FnOnce(Option<&str>) -> Result<(Option<String>, T), Distrust>,
    ) -> Result<T, Distrust> {
        let folder = self.path.parent().unwrap_or(Path::new("/")).to_owned();
        DirBuilder::new().recursive(true).mode(0o700).create(&folder).map_err(Distrust::io(&folder))?;
        let folder_file = self.open(&folder.canonicalize().map_err(Distrust::io(&folder))?, OFlag::O_DIRECTORY)?;
        if let Some(notice) = self.check(&folder_file, &folder, 0o700)? {
            say(&notice);
        }
        // Beside the file, because the file itself is replaced.
        let lock = folder.join(format!(".{}.lock", self.name()));
        let opened =
            open_with(File::options().read(true).write(true).create(true), &lock).map_err(Distrust::io(&lock))?;
        // Held until the end of this function; whoever else holds it only writes a small file.
        let _lock = Flock::lock(opened, FlockArg::LockExclusive)
            .map_err(|(_, errno)| Distrust::Io { file: shown(&lock), error: errno.into() })?;
        let Found { text, notices } = self.read()?;
        notices.iter().for_each(|notice| say(notice));
        let (after, result) = edit(text.as_deref())?;
        if let Some(after) = after {
            if after.len() > self.max_bytes {
                return Err(Distrust::Full { file: self.shown(), advice: self.when_full });
            }
            // Where dotfiles are links, the link stays one.
            let path = self.real()?.unwrap_or_else(|| self.path.clone());
            replace(&path, &after).map_err(Distrust::io(&path))?;
        }
        Ok(result)
    }

    fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Where the file is, links resolved; none if there is none.
    fn real(&self) -> Result<Option<PathBuf>, Distrust> {
        match self.path.canonicalize() {
            Ok(path) => Ok(Some(path)),
            // A link that leads nowhere is not the same as no file: writing would make what it names.
            Err(error) if error.kind() == ErrorKind::NotFound && self.path.symlink_metadata().is_err() => Ok(None),
            Err(error) => Err(Distrust::io(&self.path)(error)),
        }
    }

    /// The home's folder, and the file's own if a link leads elsewhere.
    fn folders(&self, real: &Path) -> Vec<PathBuf> {
        let home = self.path.parent().and_then(|folder| folder.canonicalize().ok());
        let mut folders: Vec<PathBuf> = home.into_iter().chain(real.parent().map(Path::to_owned)).collect();
        folders.dedup();
        folders
    }

    fn open(&self, path: &Path, flag: OFlag) -> Result<File, Distrust> {
        if self.not_in.as_ref().is_some_and(|project| path.starts_with(project)) {
            return Err(Distrust::Unsafe(format!(
                "{} lies inside the working directory or a project's .vancetope; set VANCE_HOME to a folder of your own",
                shown(path)
            )));
        }
        // Not blocking: a pipe in its place must not hold us up.
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | flag;
        OpenOptions::new().read(true).custom_flags(flags.bits()).open(path).map_err(Distrust::io(path))
    }

    /// Refuses what others could have written; what others can only read is tightened.
    fn check(&self, file: &File, path: &Path, tight: u32) -> Result<Option<String>, Distrust> {
        let meta = file.metadata().map_err(Distrust::io(path))?;
        let (mode, me) = (meta.mode() & 0o7777, nix::unistd::geteuid().as_raw());
        if meta.uid() != me {
            let owner = meta.uid();
            return Err(Distrust::Unsafe(format!("{} belongs to another user ({owner}, not {me})", shown(path))));
        }
        if mode & WRITABLE != 0 {
            let advice = format!("chmod {tight:o} {}", vance_shared::gate::quote(&path.to_string_lossy()));
            return Err(Distrust::Unsafe(format!(
                "others may write {} (mode {mode:04o}); look at what it says, then: {advice}",
                shown(path)
            )));
        }
        if mode & OTHERS == 0 {
            return Ok(None);
        }
        file.set_permissions(Permissions::from_mode(tight)).map_err(Distrust::io(path))?;
        Ok(Some(format!("others could read {} (mode {mode:04o}); it is {tight:04o} now", shown(path))))
    }
}

/// Opens a regular file to read it, without following a last link.
///
/// Every file of a home is opened like this: whatever lies in its place (a pipe, a device, a folder) is an error at once and never holds us up.
pub fn open(path: &Path) -> io::Result<File> {
    open_with(File::options().read(true), path)
}

/// The same with other options. What is made is private.
pub fn open_with(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    opened(options, path, OFlag::O_NOFOLLOW)
}

/// The same where a last link is followed: people keep their own configuration behind links.
pub fn open_linked(path: &Path) -> io::Result<File> {
    opened(File::options().read(true), path, OFlag::empty())
}

fn opened(options: &mut OpenOptions, path: &Path, flag: OFlag) -> io::Result<File> {
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOCTTY | flag;
    let file = options.mode(0o600).custom_flags(flags.bits()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::other("is no regular file")),
    }
}

/// What was mended is said in every command: it is rare, and somebody may have read what was private.
fn say(notice: &str) {
    tracing::warn!("NOTICE: {notice}");
}

/// A path for people: what would steer a terminal is escaped.
fn shown(path: &Path) -> String {
    vance_shared::show::plain(&path.to_string_lossy())
}

/// Puts a text in a file's place. The caller holds the file's lock.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let start = format!(".{name}.");
    sweep(folder, &start);
    let temporary = folder.join(format!("{start}{}-{:08x}{TEMPORARY}", std::process::id(), fastrand::u32(..)));
    let written = (|| {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        File::open(folder)?.sync_all()
    })();
    if written.is_err()
        && let Err(left) = std::fs::remove_file(&temporary)
        && left.kind() != ErrorKind::NotFound
    {
        tracing::warn!("a temporary file stays: {}: {left}", shown(&temporary));
    }
    written
}

/// Removes what writers left behind that were killed. Nobody else writes under this lock; but a link may have brought us to a folder with another one, so
/// only what is old goes, and what belongs to a process that is gone. What cannot be removed stays.
fn sweep(folder: &Path, start: &str) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    // `PID-RANDOM`, and as it was before the owner was in the name.
    let mark = |name: &str| name.strip_prefix(start)?.strip_suffix(TEMPORARY).map(str::to_owned);
    let is_ours = |name: &str| {
        let random = mark(name).map(|mark| mark.rsplit('-').next().unwrap_or_default().to_owned());
        random.is_some_and(|random| matches!(random.len(), 8 | 16) && random.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    let is_orphan = |name: &str| {
        let owner = mark(name).and_then(|mark| mark.split_once('-').and_then(|(owner, _)| owner.parse::<i32>().ok()));
        owner.is_some_and(|pid| pid > 0 && is_gone(pid))
    };
    let me = nix::unistd::geteuid().as_raw();
    for entry in entries.filter_map(Result::ok).filter(|entry| entry.file_name().to_str().is_some_and(is_ours)) {
        let Ok(meta) = entry.path().symlink_metadata() else { continue };
        let is_old = meta.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age >= LEFT_OVER));
        if meta.is_file()
            && meta.uid() == me
            && (is_old || entry.file_name().to_str().is_some_and(is_orphan))
            && let Err(error) = std::fs::remove_file(entry.path())
        {
            tracing::debug!("{}: {error}", shown(&entry.path()));
        }
    }
}

fn is_gone(pid: i32) -> bool {
    nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), None) == Err(nix::errno::Errno::ESRCH)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn file(dir: &tempfile::TempDir) -> Own {
        Own::new(dir.path().join("home/own.json"), 64, "remove something")
    }

    #[test]
    fn what_is_written_is_read_again_and_private() {
        let dir = tempfile::tempdir().unwrap();
        let own = file(&dir);
        assert_eq!(own.read().unwrap().text, None);
        own.edit(|text| Ok((Some(format!("{}a", text.unwrap_or_default())), ()))).unwrap();
        own.edit(|text| Ok((Some(format!("{}b", text.unwrap_or_default())), ()))).unwrap();
        assert_eq!(own.read().unwrap().text.as_deref(), Some("ab"));
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(own.path()), mode(own.path().parent().unwrap())), (0o600, 0o700));
        let full = own.edit(|_| Ok((Some("x".repeat(65)), ()))).unwrap_err().to_string();
        assert!(full.ends_with("own.json is full; remove something"), "{full}");
        assert_eq!(own.read().unwrap().text.as_deref(), Some("ab"));
    }

    #[test]
    fn what_others_may_write_is_not_believed_and_what_they_may_read_is_closed() {
        let dir = tempfile::tempdir().unwrap();
        let own = file(&dir);
        own.edit(|_| Ok((Some("a".to_owned()), ()))).unwrap();
        for (mode, believed) in [(0o644, true), (0o660, false), (0o602, false)] {
            std::fs::set_permissions(own.path(), Permissions::from_mode(mode)).unwrap();
            let read = own.read();
            assert_eq!(read.is_ok(), believed, "{mode:o}: {read:?}");
            if believed {
                assert_eq!(own.path().metadata().unwrap().permissions().mode() & 0o777, 0o600);
            }
        }
        std::fs::remove_file(own.path()).unwrap();
        std::os::unix::fs::symlink(dir.path().join("nowhere"), own.path()).unwrap();
        assert!(own.edit(|_| Ok((Some("a".to_owned()), ()))).is_err(), "a link that leads nowhere is no file");
    }

    #[test]
    fn what_is_no_regular_file_is_an_error_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        for name in ["pipe", ".own.json.lock", "own.json"] {
            nix::unistd::mkfifo(&path(name), nix::sys::stat::Mode::S_IRWXU).unwrap();
        }
        std::fs::create_dir(path("folder")).unwrap();
        std::fs::write(path("file"), "x").unwrap();
        std::os::unix::fs::symlink("file", path("link")).unwrap();
        for (name, plain, linked) in
            [("pipe", false, false), ("folder", false, false), ("file", true, true), ("link", false, true)]
        {
            assert_eq!((open(&path(name)).is_ok(), open_linked(&path(name)).is_ok()), (plain, linked), "{name}");
        }
        assert!(open_with(File::options().append(true).create(true), &path("pipe")).is_err());
        let own = Own::new(path("own.json"), 64, "");
        assert!(own.read().is_err() && own.edit(|_| Ok((None, ()))).is_err());
        std::fs::remove_file(path("own.json")).unwrap();
        let said = own.edit(|_| Ok((None, ()))).unwrap_err().to_string();
        assert!(said.ends_with(".own.json.lock: is no regular file"), "{said}");
    }

    #[test]
    fn what_killed_writers_left_behind_goes_with_the_next_write() {
        let dir = tempfile::tempdir().unwrap();
        // Beyond every number that a kernel gives.
        let me = std::process::id();
        let (dead, live) = (".own.json.2000000000-0123abcd.tmp", format!(".own.json.{me}-0123abcd.tmp"));
        let (old, other) = (".own.json.0123456789abcdef.tmp", ".own.json.notes.tmp");
        for name in [dead, &live, old, other] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        let past = std::time::SystemTime::now() - LEFT_OVER;
        File::options().write(true).open(dir.path().join(old)).unwrap().set_modified(past).unwrap();
        replace(&dir.path().join("own.json"), "text").unwrap();
        let left = |name: &str| dir.path().join(name).exists();
        assert_eq!((left(dead), left(old), left(&live), left(other)), (false, false, true, true));
    }
}

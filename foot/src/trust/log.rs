//! `audit/trust.jsonl`: every decision, appended under a lock, each line with the hash of the one before it.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg, OFlag};
use vance_shared::gate::audit::{self, Line};

/// Beyond this the log begins anew, and the one before it is kept as `trust.jsonl.1`: a hundred thousand decisions are more than a person makes.
const MAX_BYTES: u64 = 32 * 1024 * 1024;
/// Longest line: a prompt is 4 KiB, and escapes make it longer.
const MAX_LINE_BYTES: u64 = 256 * 1024;

/// The log of a home.
#[derive(Debug, Clone)]
pub struct Log {
    file: PathBuf,
}

impl Log {
    /// Below the home.
    pub fn new(home: &Path) -> Self {
        Self { file: home.join("audit").join("trust.jsonl") }
    }

    /// The file.
    pub fn file(&self) -> &Path {
        &self.file
    }

    /// Appends a line.
    pub fn append(&self, line: Line) -> io::Result<()> {
        let folder = self.file.parent().unwrap_or(Path::new("/"));
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let mut file = self.lock()?;
        if file.metadata()?.len() > MAX_BYTES {
            std::fs::rename(&self.file, self.file.with_extension("jsonl.1"))?;
            file = self.lock()?;
        }
        let last = last_line(&mut file)?;
        let text = audit::append(last.as_deref(), line).map_err(io::Error::other)?;
        // A line that a crash cut short ends here; the chain shows it.
        let cut = last.is_some() && !ends_a_line(&mut file)?;
        let text = if cut { format!("\n{text}") } else { text };
        file.write_all(text.as_bytes())?;
        file.sync_all()
    }

    /// The whole log.
    pub fn read(&self) -> io::Result<String> {
        let mut text = String::new();
        match File::open(&self.file) {
            Ok(file) => file.take(MAX_BYTES + MAX_LINE_BYTES).read_to_string(&mut text)?,
            Err(error) if error.kind() == ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        Ok(text)
    }

    /// Opens the log as its only writer.
    fn lock(&self) -> io::Result<Flock<File>> {
        loop {
            let file = OpenOptions::new()
                .read(true)
                .append(true)
                .create(true)
                .mode(0o600)
                .custom_flags(OFlag::O_NOFOLLOW.bits())
                .open(&self.file)?;
            let locked = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, errno)| io::Error::from(errno))?;
            // Another writer may have begun a new log while we waited.
            if same_file(&locked, &self.file)? {
                return Ok(locked);
            }
        }
    }
}

fn same_file(open: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt as _;
    let is = open.metadata()?;
    match std::fs::metadata(path) {
        Ok(named) => Ok((named.dev(), named.ino()) == (is.dev(), is.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The last line without its newline.
fn last_line(file: &mut File) -> io::Result<Option<String>> {
    let len = file.metadata()?.len();
    file.seek(SeekFrom::Start(len.saturating_sub(MAX_LINE_BYTES)))?;
    let mut tail = Vec::new();
    file.take(MAX_LINE_BYTES).read_to_end(&mut tail)?;
    let tail = tail.strip_suffix(b"\n").unwrap_or(&tail);
    let start = tail.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
    Ok((len > 0).then(|| String::from_utf8_lossy(&tail[start..]).into_owned()))
}

fn ends_a_line(file: &mut File) -> io::Result<bool> {
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::os::unix::fs::PermissionsExt as _;

    use vance_shared::gate::audit::{Event, read};

    use super::*;

    fn line(pack: &str) -> Line {
        Line {
            at: "2026-03-01T12:00:00Z".to_owned(),
            event: Event::AllowedOnce,
            project: None,
            pack: Some(pack.to_owned()),
            reach: None,
            digest: None,
            reason: None,
        }
    }

    #[test]
    fn many_writers_make_one_chain_for_the_owners_eyes_alone() {
        let home = tempfile::tempdir().unwrap();
        let log = Log::new(home.path());
        assert_eq!(log.read().unwrap(), "");
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let log = &log;
                scope.spawn(move || (0..10).for_each(|n| log.append(line(&format!("p{writer}-{n}"))).unwrap()));
            }
        });
        let text = log.read().unwrap();
        assert_eq!(read(&text).unwrap().len(), 40);
        assert_eq!(log.file().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let without_one: Vec<&str> = text.lines().enumerate().filter(|(at, _)| *at != 7).map(|(_, l)| l).collect();
        assert_eq!(read(&without_one.join("\n")).unwrap_err().line, 8);
    }

    #[test]
    fn a_line_that_was_cut_short_spoils_no_other() {
        let home = tempfile::tempdir().unwrap();
        let log = Log::new(home.path());
        log.append(line("a")).unwrap();
        let text = log.read().unwrap();
        std::fs::write(log.file(), &text[..text.len() - 10]).unwrap();
        log.append(line("b")).unwrap();
        let text = log.read().unwrap();
        assert_eq!((text.lines().count(), read(&text).unwrap_err().line), (2, 1));
    }
}

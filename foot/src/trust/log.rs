//! `audit/trust.jsonl`: every decision, appended under a lock, each line with the hash of the one before it; and `audit/trust.end`, which says how far
//! it went.

use std::fs::{DirBuilder, File};
use std::io::{self, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use nix::fcntl::{Flock, FlockArg};
use vance_shared::gate::audit::{self, End, Line};

use crate::paths::shown;
use vance_own_file::{open, open_with, replace};

/// Beyond this the log begins anew, and the one before it is kept as `trust.jsonl.1`: a hundred thousand decisions are more than a person makes.
const MAX_BYTES: u64 = 32 * 1024 * 1024;
/// Longest record of the end: two numbers and a hash.
const MAX_END_BYTES: u64 = 4 * 1024;
/// What the last entry lies in: a prompt is 4 KiB, and escapes make it longer.
const TAIL_BYTES: u64 = 256 * 1024;

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

    /// Appends a line, and before it what is to be noted about the log itself.
    pub fn append(&self, line: Line) -> io::Result<()> {
        let folder = self.file.parent().unwrap_or(Path::new("/"));
        DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let mut file = self.lock()?;
        if file.metadata()?.len() > MAX_BYTES {
            self.write_end(&End::default());
            std::fs::rename(&self.file, self.file.with_extension("jsonl.1"))?;
            file = self.lock()?;
        }
        let before = file.metadata()?.len();
        let tail = tail(&mut file, before)?;
        let (end, cut) = match self.read_end() {
            Ok(Some(end)) => (end.clone(), end.continues(before, &tail).err()),
            // So that a first line without it is never one that a crash left.
            Ok(None) if before == 0 => {
                self.write_end(&End::default());
                (End::default(), None)
            }
            Ok(None) => (End::default(), Some(self.unknown("is gone"))),
            Err(why) => (End::default(), Some(why)),
        };
        // What was cut off is no part of what follows.
        let end = if cut.is_some() { End::default() } else { end };
        let since = text_from(&mut file, end.bytes)?;
        let text = audit::append(&tail, cut.as_deref(), line).map_err(io::Error::other)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        self.write_end(&end.and(&(since + &text), before + text.len() as u64));
        Ok(())
    }

    /// The whole log.
    pub fn read(&self) -> io::Result<String> {
        match open(&self.file) {
            Ok(mut file) => text_from(&mut file, 0),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(error),
        }
    }

    /// How far the log went when something was last written to it; none if the record is not there. The error says why nothing tells how far: what is in
    /// the record's place is none, so that decisions may be missing. It never stops the log.
    pub fn read_end(&self) -> Result<Option<End>, String> {
        let mut text = String::new();
        match open(&self.end()).and_then(|file| file.take(MAX_END_BYTES).read_to_string(&mut text)) {
            Ok(_) => End::parse(&text).map(Some).ok_or_else(|| self.unknown("is no record of that")),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.unknown(&format!("cannot be read ({error})"))),
        }
    }

    /// Why the log's length proves nothing.
    fn unknown(&self, why: &str) -> String {
        format!("nothing says how far the log went: {} {why}", shown(&self.end()))
    }

    /// Under the log's lock. Without it the next line notes that nothing says how far the log went.
    fn write_end(&self, end: &End) {
        let written = serde_json::to_string(end).map_err(io::Error::other).and_then(|text| replace(&self.end(), &text));
        if let Err(error) = written {
            tracing::warn!("{}: {error}; move away what is in its place", shown(&self.end()));
        }
    }

    fn end(&self) -> PathBuf {
        self.file.with_extension("end")
    }

    /// Opens the log as its only writer.
    fn lock(&self) -> io::Result<Flock<File>> {
        loop {
            let file = open_with(File::options().read(true).append(true).create(true), &self.file)?;
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

/// The log's end, from the beginning of a line on.
fn tail(file: &mut File, len: u64) -> io::Result<String> {
    let from = len.saturating_sub(TAIL_BYTES);
    let text = text_from(file, from)?;
    match text.split_once('\n') {
        Some((_, whole)) if from > 0 => Ok(whole.to_owned()),
        Some(_) | None => Ok(text),
    }
}

/// What a crash left may end within a character.
fn text_from(file: &mut File, from: u64) -> io::Result<String> {
    file.seek(SeekFrom::Start(from))?;
    let mut bytes = Vec::new();
    file.take(MAX_BYTES + TAIL_BYTES).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
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

    fn events(log: &Log) -> Vec<Event> {
        read(&log.read().unwrap()).unwrap().iter().map(|line| line.event).collect()
    }

    #[test]
    fn a_line_that_a_crash_cut_short_is_noted_and_spoils_no_other() {
        let home = tempfile::tempdir().unwrap();
        let log = Log::new(home.path());
        log.append(line("a")).unwrap();
        let (text, end) = (log.read().unwrap(), log.read_end().unwrap().unwrap());
        log.append(line("é")).unwrap();
        // Within a character.
        let torn = std::fs::read(log.file()).unwrap();
        let at = torn.iter().position(|b| *b == 0xc3).unwrap();
        std::fs::write(log.file(), &torn[..=at]).unwrap();
        std::fs::write(log.end(), serde_json::to_string(&end).unwrap()).unwrap();
        assert_eq!(events(&log), [Event::AllowedOnce, Event::Torn]);
        end.check(&log.read().unwrap()).unwrap();
        log.append(line("b")).unwrap();
        assert_eq!(events(&log), [Event::AllowedOnce, Event::Torn, Event::AllowedOnce]);
        let end = log.read_end().unwrap().unwrap();
        assert_eq!((end.lines, end.bytes), (4, log.file().metadata().unwrap().len()));
        end.check(&log.read().unwrap()).unwrap();
        assert_eq!(log.end().metadata().unwrap().permissions().mode() & 0o777, 0o600);
        // A crash before the second file was written.
        std::fs::write(log.file(), text).unwrap();
        std::fs::write(log.end(), serde_json::to_string(&End::default()).unwrap()).unwrap();
        log.append(line("b")).unwrap();
        assert_eq!(events(&log), [Event::AllowedOnce; 2]);
        assert_eq!(log.read_end().unwrap().unwrap().lines, 2);
    }

    #[test]
    fn whatever_is_in_the_place_of_the_record_of_the_end_the_log_goes_on_and_says_so() {
        type Put = fn(&Path) -> io::Result<()>;
        let cases: [(&str, Put, bool); 7] = [
            ("no text", |end| std::fs::write(end, [0xff; 9]), true),
            ("huge numbers", |end| std::fs::write(end, r#"{"lines":18446744073709551615,"bytes":0}"#), true),
            (
                "huge numbers of both",
                |end| std::fs::write(end, r#"{"lines":18446744073709551615,"bytes":18446744073709551615}"#),
                true,
            ),
            ("too long", |end| std::fs::write(end, " ".repeat(9000)), true),
            ("a link", |end| std::os::unix::fs::symlink(end, end), true),
            ("a pipe", |end| nix::unistd::mkfifo(end, nix::sys::stat::Mode::S_IRWXU).map_err(io::Error::from), true),
            ("a folder", |end| std::fs::create_dir(end), false),
        ];
        for (what, put, heals) in cases {
            let home = tempfile::tempdir().unwrap();
            let log = Log::new(home.path());
            ["a", "b"].iter().for_each(|pack| log.append(line(pack)).unwrap());
            std::fs::remove_file(log.end()).unwrap();
            put(&log.end()).unwrap();
            ["c", "d"].iter().for_each(|pack| log.append(line(pack)).unwrap());
            let events = events(&log);
            let (cuts, lines) = (events.iter().filter(|event| **event == Event::Cut).count(), events.len());
            assert_eq!((cuts, lines), if heals { (1, 5) } else { (2, 6) }, "{what}: {events:?}");
            assert_eq!(log.read_end().is_ok(), heals, "{what}");
        }
    }

    #[test]
    fn a_pipe_in_the_place_of_the_log_holds_up_nobody() {
        let home = tempfile::tempdir().unwrap();
        let log = Log::new(home.path());
        std::fs::create_dir(log.file().parent().unwrap()).unwrap();
        nix::unistd::mkfifo(log.file(), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert!(log.append(line("a")).is_err() && log.read().is_err());
    }

    #[test]
    fn an_end_that_is_gone_is_noticed_and_noted_once() {
        for (what, gone) in [("lines", 1), ("the record of the end", 0)] {
            let home = tempfile::tempdir().unwrap();
            let log = Log::new(home.path());
            ["a", "b", "c"].iter().for_each(|pack| log.append(line(pack)).unwrap());
            let text = log.read().unwrap();
            if gone == 0 {
                std::fs::remove_file(log.end()).unwrap();
            } else {
                let short: String = text.split_inclusive('\n').take(3 - gone).collect();
                std::fs::write(log.file(), short).unwrap();
                assert_eq!(log.read_end().unwrap().unwrap().check(&log.read().unwrap()).unwrap_err().line, 3);
            }
            ["d", "e"].iter().for_each(|pack| log.append(line(pack)).unwrap());
            let events = events(&log);
            assert_eq!(events.iter().filter(|event| **event == Event::Cut).count(), 1, "{what}: {events:?}");
            assert_eq!(events[3 - gone], Event::Cut, "{what}: {events:?}");
            log.read_end().unwrap().unwrap().check(&log.read().unwrap()).unwrap();
        }
    }
}

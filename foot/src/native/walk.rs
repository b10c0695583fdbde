//! Walking a folder from its open descriptor: no link is followed, protected and denied entries are left out, every walk has an end.

use std::ffi::{OsStr, OsString};
use std::io::Read as _;
use std::path::{Path, PathBuf};

use cap_std::fs::{Dir, FileType, OpenOptions};
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use vance_shared::call::Outcome;

use super::failed;
use super::gate::{Gate, Halt};
use super::roots::{Resolved, open_dir, open_file};

/// Deepest folder below the start: each level holds an open descriptor.
const MAX_DEPTH: usize = 64;
/// Entries that one walk looks at, wanted or not: a second or two of work.
const MAX_ENTRIES: usize = 200_000;
/// Largest `.gitignore` that is read.
const MAX_IGNORE_BYTES: u64 = 256 * 1024;

/// How to walk.
#[derive(Debug, Clone, Copy)]
pub(super) struct Options {
    /// Also what `.gitignore` files leave out, and `.git`.
    pub(super) include_ignored: bool,
    /// Into folders below.
    pub(super) recursive: bool,
}

/// One entry.
pub(super) struct Found<'a> {
    pub(super) dir: &'a Dir,
    pub(super) name: &'a OsStr,
    /// Below the start.
    pub(super) rel: &'a Path,
    pub(super) kind: FileType,
}

/// What came of it.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Summary {
    /// Stopped at a limit.
    pub(super) truncated: bool,
    /// Entries that rules keep closed.
    pub(super) denied: usize,
    visited: usize,
}

/// Walks in the order of names, folders before what they hold. `visit` says whether to go on.
pub(super) fn walk(
    gate: &Gate,
    start: &Resolved,
    halt: &Halt,
    options: Options,
    visit: &mut dyn FnMut(Found<'_>) -> Result<bool, Box<Outcome>>,
) -> Result<Summary, Box<Outcome>> {
    let chain = start.chain().map_err(|e| start.failure("open the folder", &e))?;
    let mut walker = Walker { gate, halt, options, visit, summary: Summary::default(), ignores: Vec::new() };
    if !options.include_ignored {
        // What lies above the start speaks about it, too; the start's own file is read on the way in.
        for (path, dir) in &chain[..chain.len() - 1] {
            walker.ignores.extend(ignore_file(path, dir));
        }
    }
    if let Some((path, dir)) = chain.last() {
        walker.folder(dir, path, Path::new(""), 0)?;
    }
    Ok(walker.summary)
}

struct Walker<'a, 'v> {
    gate: &'a Gate,
    halt: &'a Halt,
    options: Options,
    visit: &'v mut dyn FnMut(Found<'_>) -> Result<bool, Box<Outcome>>,
    summary: Summary,
    ignores: Vec<Gitignore>,
}

impl Walker<'_, '_> {
    /// Gives false when the walk is over.
    fn folder(&mut self, dir: &Dir, path: &Path, rel: &Path, depth: usize) -> Result<bool, Box<Outcome>> {
        let outer = self.ignores.len();
        if !self.options.include_ignored {
            self.ignores.extend(ignore_file(path, dir));
        }
        let mut names: Vec<(OsString, FileType)> = Vec::new();
        let entries = dir.entries().map_err(|e| {
            failed("io_error", format!("cannot list a folder: {}", vance_shared::show::plain(&e.to_string())))
        })?;
        for entry in entries {
            self.summary.visited += 1;
            if self.summary.visited > MAX_ENTRIES {
                self.summary.truncated = true;
                break;
            }
            // An entry that vanishes while the folder is listed is simply not there.
            if let Ok(entry) = entry
                && let Ok(kind) = entry.file_type()
            {
                names.push((entry.file_name(), kind));
            }
        }
        names.sort_by(|a, b| a.0.cmp(&b.0));
        let mut go_on = true;
        for (name, kind) in &names {
            go_on = self.entry(dir, path, rel, (name, *kind), depth)?;
            if !go_on {
                break;
            }
        }
        self.ignores.truncate(outer);
        Ok(go_on && self.summary.visited <= MAX_ENTRIES)
    }

    fn entry(
        &mut self,
        dir: &Dir,
        path: &Path,
        rel: &Path,
        (name, kind): (&OsStr, FileType),
        depth: usize,
    ) -> Result<bool, Box<Outcome>> {
        self.halt.check()?;
        let (path, rel) = (path.join(name), rel.join(name));
        if !self.options.include_ignored && self.is_ignored(&path, name, kind.is_dir()) {
            return Ok(true);
        }
        if !self.gate.is_open(&path) {
            self.summary.denied += 1;
            return Ok(true);
        }
        if !(self.visit)(Found { dir, name, rel: &rel, kind })? {
            self.summary.truncated = true;
            return Ok(false);
        }
        if !kind.is_dir() || !self.options.recursive {
            return Ok(true);
        }
        if depth == MAX_DEPTH {
            self.summary.truncated = true;
            return Ok(true);
        }
        match open_dir(dir, name) {
            Ok(below) => self.folder(&below, &path, &rel, depth + 1),
            // Became something else, or this user may not look into it.
            Err(_) => Ok(true),
        }
    }

    fn is_ignored(&self, path: &Path, name: &OsStr, is_dir: bool) -> bool {
        if name == ".git" {
            return true;
        }
        for ignore in self.ignores.iter().rev() {
            match ignore.matched(path, is_dir) {
                Match::Ignore(_) => return true,
                Match::Whitelist(_) => return false,
                Match::None => {}
            }
        }
        false
    }
}

fn ignore_file(path: &Path, dir: &Dir) -> Option<Gitignore> {
    let file = open_file(dir, OsStr::new(".gitignore"), OpenOptions::new().read(true)).ok()?;
    let meta = file.metadata().ok()?;
    if !meta.is_file() || meta.len() > MAX_IGNORE_BYTES {
        return None;
    }
    let mut text = String::new();
    file.take(MAX_IGNORE_BYTES).read_to_string(&mut text).ok()?;
    let mut builder = GitignoreBuilder::new(path);
    for line in text.lines() {
        // A line that git could not read ignores nothing.
        if let Err(error) = builder.add_line(None::<PathBuf>, line) {
            tracing::debug!(%error, "a line of a .gitignore is not valid");
        }
    }
    builder.build().ok().filter(|found| !found.is_empty())
}

/// A glob for names: without a `/` it matches a name at any depth, as in `.gitignore` and ripgrep.
pub(super) fn name_glob(glob: &str) -> Result<globset::GlobMatcher, Box<Outcome>> {
    let full = if glob.contains('/') { glob.trim_start_matches("./").to_owned() } else { format!("**/{glob}") };
    globset::GlobBuilder::new(&full)
        .literal_separator(true)
        .build()
        .map(|glob| glob.compile_matcher())
        .map_err(|e| failed("invalid_argument", format!("glob: {}", vance_shared::show::plain(&e.to_string()))))
}

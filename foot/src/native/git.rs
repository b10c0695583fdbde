//! Git without its surprises: how it is called, and how its answer is read. Pure.
//!
//! A repository's own configuration can name programs that git runs during a mere look: an fsmonitor, hooks, content filters,
//! a pager, a transport for objects that a partial clone lacks. All of them are off here.

use std::collections::BTreeMap;
use std::ffi::OsString;

use serde::Serialize;

/// Entries of one answer.
const MAX_ENTRIES: usize = 5000;

/// Options that come before git's own word, for every call.
const QUIET: &[&str] = &[
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "status.submoduleSummary=false",
    "--no-optional-locks",
    "--no-pager",
];

/// `git status` of the folder where it runs.
pub(super) fn status_argv() -> Vec<String> {
    // Submodules have a configuration of their own, which could name programs, too: only their commit is compared.
    words(&[
        "status",
        "--porcelain=v2",
        "--branch",
        "-z",
        "--untracked-files=normal",
        "--ignore-submodules=dirty",
        "--",
        ".",
    ])
}

/// Names of the content filters that are configured, with where.
pub(super) fn filters_argv() -> Vec<String> {
    words(&[
        "config",
        "--null",
        "--show-scope",
        "--name-only",
        "--get-regexp",
        r"^filter\..*\.(clean|smudge|process|required)$",
    ])
}

fn words(rest: &[&str]) -> Vec<String> {
    ["git"].iter().chain(QUIET).chain(rest).map(|w| (*w).to_owned()).collect()
}

/// Variables for git: no questions, no transport, and these filters off.
pub(super) fn environment(filters: &[String]) -> BTreeMap<OsString, OsString> {
    let mut env: BTreeMap<OsString, OsString> = [
        ("GIT_TERMINAL_PROMPT", "0"),
        ("GIT_OPTIONAL_LOCKS", "0"),
        ("GIT_NO_LAZY_FETCH", "1"),
        ("GIT_ALLOW_PROTOCOL", "none"),
        ("GIT_PAGER", "cat"),
        ("LC_ALL", "C"),
    ]
    .map(|(name, value)| (name.into(), value.into()))
    .into();
    let settings = filters.iter().flat_map(|f| {
        [
            (format!("{f}.clean"), ""),
            (format!("{f}.smudge"), ""),
            (format!("{f}.process"), ""),
            (format!("{f}.required"), "false"),
        ]
    });
    let mut count = 0;
    for (key, value) in settings {
        env.insert(format!("GIT_CONFIG_KEY_{count}").into(), key.into());
        env.insert(format!("GIT_CONFIG_VALUE_{count}").into(), value.into());
        count += 1;
    }
    env.insert("GIT_CONFIG_COUNT".into(), count.to_string().into());
    env
}

/// Reads the answer to [`filters_argv`]: the filters (`filter.NAME`) that the repository itself configures. The person's own
/// configuration is trusted.
pub(super) fn repository_filters(answer: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(answer);
    let mut fields = text.split('\0');
    let mut found: Vec<String> = Vec::new();
    while let (Some(scope), Some(key)) = (fields.next(), fields.next()) {
        if scope != "system"
            && scope != "global"
            && let Some((filter, _)) = key.rsplit_once('.')
            && !found.iter().any(|f| f == filter)
        {
            found.push(filter.to_owned());
        }
    }
    found
}

/// The state of a working tree.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Status {
    /// `None` if HEAD is detached.
    pub(super) branch: Option<String>,
    /// `None` before the first commit.
    pub(super) head: Option<String>,
    pub(super) upstream: Option<String>,
    pub(super) ahead: Option<u64>,
    pub(super) behind: Option<u64>,
    pub(super) clean: bool,
    pub(super) entries: Vec<Entry>,
    pub(super) truncated: bool,
}

/// One changed path.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct Entry {
    /// From the top of the repository.
    pub(super) path: String,
    /// The change between HEAD and index.
    pub(super) index: &'static str,
    /// The change between index and working tree.
    pub(super) worktree: &'static str,
    /// Where a renamed or copied path was.
    pub(super) from: Option<String>,
}

/// Reads `--porcelain=v2 --branch -z`. What it does not know it leaves out.
pub(super) fn parse_status(answer: &[u8]) -> Status {
    let text = String::from_utf8_lossy(answer);
    let mut records = text.split('\0').filter(|r| !r.is_empty());
    let mut status = Status::default();
    while let Some(record) = records.next() {
        let Some((kind, rest)) = record.split_once(' ') else { continue };
        if kind == "#" {
            header(&mut status, rest);
            continue;
        }
        let from = if kind == "2" { records.next().map(str::to_owned) } else { None };
        let Some(entry) = entry(kind, rest, from) else { continue };
        if status.entries.len() == MAX_ENTRIES {
            status.truncated = true;
            break;
        }
        status.entries.push(entry);
    }
    status.clean = status.entries.is_empty();
    status
}

fn header(status: &mut Status, text: &str) {
    match text.split_once(' ') {
        Some(("branch.oid", oid)) if oid != "(initial)" => status.head = Some(oid.to_owned()),
        Some(("branch.head", name)) if name != "(detached)" => status.branch = Some(name.to_owned()),
        Some(("branch.upstream", name)) => status.upstream = Some(name.to_owned()),
        Some(("branch.ab", counts)) => {
            let mut counts = counts.split(' ').map(|n| n.trim_start_matches(['+', '-']).parse().ok());
            status.ahead = counts.next().flatten();
            status.behind = counts.next().flatten();
        }
        _ => {}
    }
}

fn entry(kind: &str, rest: &str, from: Option<String>) -> Option<Entry> {
    // Fields before the path: `XY sub mH mI mW hH hI`, with a score for renames, with three stages for conflicts.
    let fields = match kind {
        "1" => 7,
        "2" => 8,
        "u" => 9,
        "?" => return Some(Entry { path: rest.to_owned(), index: "untracked", worktree: "untracked", from }),
        _ => return None,
    };
    let mut parts = rest.splitn(fields + 1, ' ');
    let states = parts.next()?;
    let path = parts.nth(fields - 1)?.to_owned();
    if kind == "u" {
        return Some(Entry { path, index: "conflict", worktree: "conflict", from });
    }
    let mut states = states.chars();
    Some(Entry { path, index: change(states.next()?), worktree: change(states.next()?), from })
}

fn change(letter: char) -> &'static str {
    match letter {
        '.' => "unchanged",
        'M' => "modified",
        'T' => "type_changed",
        'A' => "added",
        'D' => "deleted",
        'R' => "renamed",
        'C' => "copied",
        'U' => "conflict",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn each_kind_of_record_is_read() {
        let answer = "# branch.oid abc\0# branch.head main\0# branch.upstream origin/main\0# branch.ab +1 -2\0\
            1 .M N... 100644 100644 100644 aa bb a file.txt\0\
            2 R. N... 100644 100644 100644 aa bb R100 new.txt\0old.txt\0\
            u UU N... 100644 100644 100644 100644 aa bb cc both.txt\0? new dir/\0";
        let status = parse_status(answer.as_bytes());
        assert_eq!(
            (status.branch.as_deref(), status.head.as_deref(), status.ahead, status.behind),
            (Some("main"), Some("abc"), Some(1), Some(2))
        );
        let entries: Vec<(&str, &str, &str, Option<&str>)> =
            status.entries.iter().map(|e| (e.path.as_str(), e.index, e.worktree, e.from.as_deref())).collect();
        assert_eq!(
            entries,
            [
                ("a file.txt", "unchanged", "modified", None),
                ("new.txt", "renamed", "unchanged", Some("old.txt")),
                ("both.txt", "conflict", "conflict", None),
                ("new dir/", "untracked", "untracked", None),
            ]
        );
        assert!(!status.clean);
    }

    #[test]
    fn an_empty_or_odd_answer_is_no_panic() {
        for answer in ["", "\0\0", "1 \0", "2 R.\0", "# \0", "u\0", "1 .M N...\0x y z"] {
            parse_status(answer.as_bytes());
        }
        assert_eq!(
            parse_status(b"# branch.oid (initial)\0# branch.head (detached)\0"),
            Status { clean: true, ..Status::default() }
        );
    }

    #[test]
    fn filters_of_the_repository_are_turned_off_and_the_persons_own_stay() {
        let answer = b"global\0filter.lfs.clean\0local\0filter.evil.clean\0local\0filter.evil.process\0worktree\0filter.a=b.smudge\0";
        let filters = repository_filters(answer);
        assert_eq!(filters, ["filter.evil", "filter.a=b"]);
        let env = environment(&filters);
        assert_eq!(env.get(&OsString::from("GIT_CONFIG_COUNT")), Some(&OsString::from("8")));
        assert_eq!(env.get(&OsString::from("GIT_CONFIG_KEY_4")), Some(&OsString::from("filter.a=b.clean")));
    }
}

//! Completion: commands, their words, names of tools, ids of tasks and sessions, files after `/run`. Pure up to one folder's list.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use reedline::{Completer, CompletionResult, Span, Suggestion};

use super::words::{Name, TABLE, quoted};

/// Suggestions at once: more than a screenful helps nobody.
const MAX_SUGGESTIONS: usize = 100;
/// Entries of one folder that are looked at.
const MAX_ENTRIES: usize = 2000;

/// What changes while the program runs; clones share it.
#[derive(Debug, Clone, Default)]
pub(super) struct Words(Arc<Mutex<Known>>);

/// Names that can be typed.
#[derive(Debug, Clone, Default)]
pub(super) struct Known {
    pub(super) tools: Vec<String>,
    pub(super) tasks: Vec<String>,
    pub(super) sessions: Vec<String>,
}

impl Words {
    pub(super) fn set(&self, change: impl FnOnce(&mut Known)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn now(&self) -> Known {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// For the editor.
pub(super) struct Completions(pub(super) Words);

impl Completer for Completions {
    fn complete(&mut self, line: &str, at: usize) -> CompletionResult {
        let before = line.get(..at).unwrap_or(line);
        let (start, found) = suggestions(before, &self.0.now(), Path::new("."));
        let suggestions: Vec<Suggestion> = found
            .into_iter()
            .take(MAX_SUGGESTIONS)
            .map(|(value, about)| Suggestion {
                // After a folder goes on what is in it.
                append_whitespace: !value.ends_with('/'),
                value,
                description: about.map(str::to_owned),
                span: Span::new(start, at),
                ..Suggestion::default()
            })
            .collect();
        CompletionResult::fresh(suggestions)
    }
}

type Found = Vec<(String, Option<&'static str>)>;

/// Where the word begins that is completed, and what it can become.
fn suggestions(before: &str, known: &Known, folder: &Path) -> (usize, Found) {
    let start = word_start(before);
    let (earlier, word) = (&before[..start], &before[start..]);
    let earlier: Vec<&str> = earlier.split_whitespace().collect();
    let of =
        |names: &[&str]| names.iter().filter(|name| name.starts_with(word)).map(|n| ((*n).to_owned(), None)).collect();
    let all = |names: &[String]| of(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let Some(first) = earlier.first() else {
        let commands = TABLE.iter().filter(|row| word.starts_with('/') && row.word.starts_with(word));
        return (start, commands.map(|row| (row.word.to_owned(), Some(row.about))).collect());
    };
    let name = TABLE.iter().find(|row| row.word == *first).map(|row| row.name);
    let found: Found = match (name, &earlier[1..]) {
        (Some(Name::Run), []) => files(word, folder),
        (Some(Name::Run), _) => of(&["--no-wait"]),
        (Some(Name::Packs), ["check", ..]) => files(word, folder),
        (Some(Name::Packs), []) => of(&["list", "check", "diff"]),
        (Some(Name::Tools), []) => {
            let mut found = of(&["reload", "call"]);
            found.extend(all(&known.tools));
            found
        }
        (Some(Name::Tools), ["call"]) => all(&known.tools),
        (Some(Name::Tasks), []) => of(&["list", "show", "cancel", "retry", "resolve", "answer", "--watch", "--state"]),
        (Some(Name::Tasks), ["show" | "cancel" | "retry" | "resolve" | "answer"]) => all(&known.tasks),
        (Some(Name::Trust), []) => of(&["list", "show", "review", "revoke", "deny", "undeny", "prune", "log"]),
        (Some(Name::Session), []) => {
            let mut found = of(&["list", "new"]);
            found.extend(all(&known.sessions));
            found
        }
        // A goal may name a tool.
        (None, _) if !first.starts_with('/') && !word.is_empty() => all(&known.tools),
        (_, _) => Vec::new(),
    };
    (start, found)
}

/// Where the last word begins: after the last blank outside of quotation marks.
fn word_start(before: &str) -> usize {
    let (mut start, mut quote) = (0, None);
    for (at, c) in before.char_indices() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None if c == '\'' || c == '"' => quote = Some(c),
            None if c.is_whitespace() => start = at + c.len_utf8(),
            None => {}
        }
    }
    start
}

/// Files and folders that begin as the word does. A name with blanks comes in quotation marks.
fn files(word: &str, folder: &Path) -> Found {
    let word = word.trim_start_matches(['\'', '"']);
    let (typed, begin) = word.rfind('/').map_or(("", word), |at| word.split_at(at + 1));
    let path = match typed.strip_prefix("~/") {
        Some(rest) => std::env::home_dir().map_or_else(|| PathBuf::from(typed), |home| home.join(rest)),
        None => folder.join(typed),
    };
    let Ok(entries) = std::fs::read_dir(path) else { return Vec::new() };
    let mut names: Vec<String> = entries
        .take(MAX_ENTRIES)
        .flatten()
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let hidden = name.starts_with('.') && !begin.starts_with('.');
            let shown = name.starts_with(begin) && !hidden && !name.chars().any(char::is_control);
            // A link to a folder is a folder for who types on.
            shown.then(|| if entry.path().is_dir() { format!("{typed}{name}/") } else { format!("{typed}{name}") })
        })
        .collect();
    names.sort();
    names.into_iter().map(|name| (if name.ends_with('/') { name } else { quoted(&name) }, None)).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_can_follow() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("plans")).unwrap();
        for file in ["plan.yaml", "my plan.yaml", ".hidden", "plans/deep.yaml"] {
            std::fs::write(folder.path().join(file), "").unwrap();
        }
        let known = Known {
            tools: vec!["chrome__click".to_owned(), "read_local_file".to_owned()],
            tasks: vec!["task_1".to_owned(), "task_2".to_owned()],
            sessions: vec!["sess_9".to_owned()],
        };
        for (before, start, want) in [
            ("/to", 0, &["/tools", "/tools-reload"][..]),
            ("/ru", 0, &["/run"]),
            ("go", 0, &[]),
            ("/run pl", 5, &["plan.yaml", "plans/"]),
            ("/run plans/", 5, &["plans/deep.yaml"]),
            ("/run m", 5, &["'my plan.yaml'"]),
            ("/run 'my pl", 5, &["'my plan.yaml'"]),
            ("/run .", 5, &[".hidden"]),
            ("/run plan.yaml --", 15, &["--no-wait"]),
            ("/tools re", 7, &["reload", "read_local_file"]),
            ("/tools call chr", 12, &["chrome__click"]),
            ("/tasks show task_", 12, &["task_1", "task_2"]),
            ("/session s", 9, &["sess_9"]),
            ("look with chr", 10, &["chrome__click"]),
            ("/quit x", 6, &[]),
        ] {
            let (at, found) = suggestions(before, &known, folder.path());
            let found: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
            assert_eq!((at, found.as_slice()), (start, want), "{before:?}");
        }
    }
}

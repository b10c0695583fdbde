//! Paths as values: where rules apply, and the floor. No file is touched here.

use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use globset::{GlobBuilder, GlobMatcher};

/// The folders that permissions speak of. All absolute, with links resolved where the folder exists.
#[derive(Debug, Clone, Default)]
pub struct Places {
    /// The person's home (`~`), if known.
    pub user_home: Option<PathBuf>,
    /// The product's home in use.
    pub home: PathBuf,
    /// Relative paths and globs start here.
    pub working_dir: PathBuf,
    /// Other spellings of folders: `(as somebody may write it, with links resolved)`.
    pub aliases: Vec<(PathBuf, PathBuf)>,
    /// More folders that no rule opens: what links in protected places lead to.
    pub protected: Vec<PathBuf>,
}

impl Places {
    /// An absolute, normal path from what a person or a model wrote: `~/x`, relative to the working directory, or absolute.
    pub fn absolute(&self, text: &str) -> PathBuf {
        self.absolute_from(&self.working_dir, text)
    }

    /// The same, relative to another folder.
    pub fn absolute_from(&self, base: &Path, text: &str) -> PathBuf {
        let expanded = match (&self.user_home, text.strip_prefix('~')) {
            (Some(home), Some("")) => home.clone(),
            (Some(home), Some(rest)) if rest.starts_with('/') => home.join(rest.trim_start_matches('/')),
            _ => base.join(text),
        };
        normal(&expanded)
    }

    /// Folders under the floor, wherever they are on this machine.
    pub fn floor_folders(&self) -> Vec<PathBuf> {
        let mut folders = vec![self.home.clone(), self.working_dir.join(".vancetope")];
        if let Some(home) = &self.user_home {
            folders.extend([".ssh", ".aws", ".gnupg", ".vancetope"].map(|name| home.join(name)));
        }
        folders
    }

    /// True if no rule can open the path: keys, the product's own folders (also of other projects), and what makes git run
    /// programs. Compared without case, because some file systems do; whether the path exists does not matter.
    pub fn is_floor(&self, path: &Path, writing: bool) -> bool {
        let inside = |folder: &PathBuf| starts_with_any_case(path, folder);
        if self.protected.iter().any(inside)
            || self.spellings(path).iter().any(|p| self.floor_folders().iter().any(|f| starts_with_any_case(p, f)))
        {
            return true;
        }
        let names: Vec<String> = path
            .components()
            .filter_map(|c| match c {
                Component::Normal(name) => Some(name.to_string_lossy().to_ascii_lowercase()),
                _ => None,
            })
            .collect();
        if names.iter().any(|n| n == ".vancetope") {
            return true;
        }
        let Some(git) = names.iter().position(|n| n == ".git") else { return false };
        let below = &names[git + 1..];
        // A `.git` file and these files inside redirect git to another folder with other hooks.
        let redirects = below.is_empty() || below.iter().any(|n| n == "commondir" || n == "gitdir");
        below.iter().any(|n| n == "hooks" || n == "config" || n == "config.worktree") || (writing && redirects)
    }

    /// The path and its other spellings.
    pub fn spellings(&self, path: &Path) -> Vec<PathBuf> {
        let mut all = vec![path.to_owned()];
        for (spelled, real) in &self.aliases {
            for (from, to) in [(real, spelled), (spelled, real)] {
                if let Ok(rest) = path.strip_prefix(from) {
                    let other = if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) };
                    if !all.contains(&other) {
                        all.push(other);
                    }
                }
            }
        }
        all
    }
}

/// A glob, quoted for YAML, that matches exactly this absolute path, whatever the working directory.
pub(super) fn exact_glob(path: &str) -> String {
    yaml_word(&globset::escape(path))
}

/// A word for YAML's flow style, quoted where it must be.
pub(super) fn yaml_word(text: &str) -> String {
    let bare = text.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '/' | '.' | '_'))
        && text.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '-' | '+'))
        && !["true", "false", "yes", "no", "on", "off", "null", "y", "n"].contains(&text.to_ascii_lowercase().as_str());
    if bare { text.to_owned() } else { serde_json::Value::from(text).to_string() }
}

/// Without `.` and `..`, as far as the text alone says it. Links are not looked at: whoever opens the path resolves them and
/// judges the outcome again.
pub fn normal(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                // `/..` is `/`.
                out.pop();
            }
            Component::Prefix(_) | Component::RootDir | Component::Normal(_) => out.push(part),
        }
    }
    out
}

fn starts_with_any_case(path: &Path, base: &Path) -> bool {
    let same = |a: &OsStr, b: &OsStr| a.eq_ignore_ascii_case(b);
    let (mut path, mut found) = (path.components(), false);
    for part in base.components() {
        found = true;
        match path.next() {
            Some(other) if same(part.as_os_str(), other.as_os_str()) => {}
            _ => return false,
        }
    }
    found
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Anchor {
    Absolute,
    UserHome,
    WorkingDir,
    Anywhere,
}

/// A rule's glob and where it starts: `/…`, `~/…`, `**…` (anywhere), else the working directory. `*` stays within a folder.
#[derive(Debug, Clone)]
pub(super) struct PathGlob {
    anchor: Anchor,
    matcher: GlobMatcher,
}

impl PathGlob {
    /// Reads a glob; the error says what is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let (anchor, rest) = if text == "~" {
            (Anchor::UserHome, "**")
        } else if let Some(rest) = text.strip_prefix("~/") {
            (Anchor::UserHome, rest)
        } else if text.starts_with('/') {
            (Anchor::Absolute, text)
        } else if text.starts_with("**") {
            (Anchor::Anywhere, text)
        } else {
            (Anchor::WorkingDir, text.trim_start_matches("./"))
        };
        if rest.split('/').any(|part| part == "..") {
            return Err("`..` has no meaning in a glob; write the folder itself".to_owned());
        }
        let mut rest = if rest.is_empty() || rest == "." { "**".to_owned() } else { rest.to_owned() };
        if rest.ends_with('/') {
            rest.push_str("**");
        }
        let glob = GlobBuilder::new(&rest)
            .literal_separator(true)
            .backslash_escape(true)
            .case_insensitive(cfg!(any(target_os = "macos", windows)))
            .build()
            .map_err(|e| e.kind().to_string())?;
        Ok(Self { anchor, matcher: glob.compile_matcher() })
    }

    /// True if one spelling of the path matches; with `below`, also if a folder above it does.
    pub(super) fn covers(&self, spellings: &[PathBuf], places: &Places, below: bool) -> bool {
        spellings.iter().filter_map(|path| self.subject(path, places)).any(|subject| {
            if below {
                subject.ancestors().any(|p| !p.as_os_str().is_empty() && self.matcher.is_match(p))
            } else {
                self.matcher.is_match(subject)
            }
        })
    }

    fn subject<'a>(&self, path: &'a Path, places: &Places) -> Option<&'a Path> {
        match self.anchor {
            Anchor::Absolute | Anchor::Anywhere => Some(path),
            Anchor::UserHome => path.strip_prefix(places.user_home.as_ref()?).ok(),
            Anchor::WorkingDir => path.strip_prefix(&places.working_dir).ok(),
        }
    }
}

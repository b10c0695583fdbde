//! Which local files a project's pack hands to the program that it starts. Words are only words here: the shell looks which of them are
//! files and hashes those.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Project, changes_what_runs, tidy};
use crate::launch::{LaunchPlan, Origin, Transport};
use crate::pack::SCRIPT_ENDINGS;

/// Largest file that is hashed: a bundled server is a few MiB, a data set is no program.
pub const MAX_HASHED_BYTES: u64 = 64 * 1024 * 1024;
/// What an interpreter adds to a name that is no file by itself.
const IMPLIED: [&str; 8] =
    [".js", ".cjs", ".mjs", ".json", "/package.json", "/index.js", "/__main__.py", "/__init__.py"];

/// Paths that the command may mean: each is to be hashed if it is a file, sorted, none twice. Empty for packs that need no consent.
///
/// A relative word is looked up in the pack's working directory, and in the project if it has none of its own.
pub fn files(plan: &LaunchPlan, project: &Project) -> Vec<PathBuf> {
    let Transport::Stdio { argv, cwd, env } = &plan.transport else { return Vec::new() };
    if plan.origin != Origin::Project || super::reach::too_much(plan).is_some() {
        return Vec::new();
    }
    let base = match cwd {
        Some(cwd) => project.dir().join(cwd),
        None => project.dir().to_owned(),
    };
    let mut found = BTreeSet::new();
    let Some((program, arguments)) = argv.split_first() else { return Vec::new() };
    // A bare word is looked up in PATH; of programs elsewhere an update is no change of the pack.
    if program.contains('/') && project.holds(&base.join(program)) {
        found.insert(without_dots(&base.join(program)));
    }
    let anywhere = cwd.is_some();
    // In the private directory a bare word is no file.
    let mut add = |word: &str| {
        if anywhere || word.contains('/') || SCRIPT_ENDINGS.iter().any(|ending| word.ends_with(ending)) {
            add(word, &base, &mut found);
        }
    };
    for (at, argument) in arguments.iter().enumerate() {
        words(argument, &mut add);
        // `python -m a.b`, with the project as its directory.
        if at > 0 && arguments[at - 1] == "-m" && argument.contains('.') {
            add(&argument.replace('.', "/"));
            add(&format!("{}.py", argument.replace('.', "/")));
        } else if at > 0 && arguments[at - 1] == "-m" {
            add(&format!("{argument}.py"));
        }
    }
    env.iter().filter(|(name, _)| changes_what_runs(name)).for_each(|(_, value)| words(value, &mut add));
    found.into_iter().collect()
}

/// The word, what stands behind its `=`, what stands behind a short option's letter, and each of its parts if it is a line or a list.
fn words(word: &str, add: &mut impl FnMut(&str)) {
    add(word);
    if let Some((_, value)) = word.split_once('=') {
        add(value);
    }
    if let Some(value) = word.strip_prefix('-').and_then(|rest| rest.get(1..)).filter(|_| !word.starts_with("--")) {
        add(value);
    }
    if let Some(path) = word.strip_prefix("file://").or_else(|| word.split_once("=file://").map(|(_, path)| path)) {
        add(path);
    }
    let between = |c: char| c.is_whitespace() || ";|&<>()'\"`,:".contains(c);
    if word.contains(between) {
        for part in word.split(between).filter(|part| !part.is_empty()) {
            add(part);
            if let Some((_, value)) = part.split_once('=') {
                add(value);
            }
        }
    }
}

fn add(word: &str, base: &Path, found: &mut BTreeSet<PathBuf>) {
    if word.is_empty() || word == "/" || word.contains("://") {
        return;
    }
    let path = without_dots(&base.join(word));
    let name = path.as_os_str();
    for implied in IMPLIED {
        let mut longer = name.to_owned();
        longer.push(implied);
        found.insert(PathBuf::from(longer));
    }
    found.insert(path);
}

/// One spelling for `./x` and `x`; `..` stays, since links decide what it means.
fn without_dots(path: &Path) -> PathBuf {
    path.components().collect()
}

/// Why a program that was found may not be used: one inside the project counts only if the pack wrote it as a path.
pub fn check_program(plan: &LaunchPlan, resolved: &Path, project: &Project) -> Result<(), String> {
    let Transport::Stdio { argv, .. } = &plan.transport else { return Ok(()) };
    let Some(program) = argv.first().filter(|program| !program.contains('/')) else { return Ok(()) };
    match project.holds(resolved) {
        true => Err(format!(
            "'{}' would be {}, which came with the project; write it as a path to have it shown and hashed",
            crate::show::plain(program),
            crate::show::plain(&resolved.to_string_lossy())
        )),
        false => Ok(()),
    }
}

/// Whether the command names something inside the project, by its words alone. The project itself is where a server works, not what it runs.
pub(super) fn names_project(plan: &LaunchPlan, project: &Project) -> bool {
    let Transport::Stdio { argv, .. } = &plan.transport else { return false };
    argv.iter().any(|word| {
        let value = word.split_once('=').map_or(word.as_str(), |(_, value)| value);
        [word.as_str(), value].into_iter().any(|word| {
            let word = word.strip_prefix("file://").unwrap_or(word);
            let path = tidy(Path::new(word));
            let inside = path.starts_with(project.dir()) && path != project.dir();
            word.starts_with("./") || word.starts_with("../") || (word.starts_with('/') && inside)
        })
    })
}

//! Which local files a project's pack hands to the program that it starts. Words are only words here: the shell looks which of them are
//! files and hashes those.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Project, changes_what_runs, tidy};
use crate::launch::{LaunchPlan, Origin, Transport};
use crate::pack::SCRIPT_ENDINGS;

/// Largest file that is hashed: a bundled server is a few MiB, a data set is no program.
pub const MAX_HASHED_BYTES: u64 = 64 * 1024 * 1024;
/// What an interpreter adds to a name that is no file by itself.
const IMPLIED: [&str; 17] = [
    ".js",
    ".cjs",
    ".mjs",
    ".json",
    ".ts",
    ".tsx",
    ".mts",
    ".cts",
    ".rb",
    ".pm",
    ".pl",
    ".lua",
    "/package.json",
    "/index.js",
    "/index.ts",
    "/__main__.py",
    "/__init__.py",
];
/// What servers write while they work. A variable may name such a file without its content being part of consent, and once a server has begun,
/// such a file is expected to change.
const DATA: [&str; 9] = [".db", ".db3", ".sqlite", ".sqlite3", ".log", ".pid", ".sock", ".lock", ".jsonl"];

/// Whether a name is one of data that a program writes, and not of code.
pub fn is_data(path: &Path) -> bool {
    let name = path.to_string_lossy();
    DATA.iter().any(|ending| name.ends_with(ending))
}

/// Folders that a shell line goes to, and whose files are looked for: a line with more is nothing that a person reads.
const MAX_FOLDERS: usize = 8;
/// Variables of a shell line whose value is known: ours in the environment of each child, and the directory that it starts in.
pub(super) const PLACES: [&str; 4] = ["${VANCE_PROJECT_DIR}", "$VANCE_PROJECT_DIR", "${PWD}", "$PWD"];
/// Where a module of Python may lie, behind its name.
const MODULE: [&str; 4] = [".py", ".pyc", "/__main__.py", "/__init__.py"];
/// Options of Python without a value, which may stand before the `m` of a word such as `-um`.
const PYTHON_FLAGS: &str = "bBdEhiIOPqRsStuvVx";
/// What Python runs by itself if it lies in `PYTHONPATH`.
const CUSTOMIZE: [&str; 2] = ["sitecustomize.py", "usercustomize.py"];

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
    let python_path = env.get("PYTHONPATH").map(String::as_str).unwrap_or_default();
    let python_path = python_path.split(':').filter(|folder| !folder.is_empty());
    let python_path: Vec<PathBuf> =
        python_path.map(|folder| base.join(placed(folder, project.dir(), &base).as_ref())).collect();
    found.extend(python_path.iter().flat_map(|folder| CUSTOMIZE.iter().map(|file| without_dots(&folder.join(file)))));
    for module in modules(arguments) {
        for folder in python_path.iter().chain([&base]) {
            found.extend(module_files(module).iter().map(|file| without_dots(&folder.join(file))));
        }
    }
    let anywhere = cwd.is_some();
    // In the private directory a bare word is no file.
    let mut add = |word: &str| {
        let word = placed(word, project.dir(), &base);
        if anywhere || word.contains('/') || SCRIPT_ENDINGS.iter().any(|ending| word.ends_with(ending)) {
            add(&word, &base, &mut found);
        }
    };
    arguments.iter().for_each(|argument| words(argument, &mut add));
    for (name, value) in env {
        // `production` is no file, though there may be a `production.js`.
        let may_be = |word: &str| word.contains(['/', '.']) && !is_data(Path::new(word));
        let decides = changes_what_runs(name);
        words(value, &mut |word| {
            if decides || may_be(word) {
                add(word);
            }
        });
    }
    found.into_iter().collect()
}

/// A word with the places that are known.
fn placed<'a>(word: &'a str, project: &Path, base: &Path) -> Cow<'a, str> {
    if !word.contains('$') {
        return Cow::Borrowed(word);
    }
    let (project, base) = (project.to_string_lossy(), base.to_string_lossy());
    let values = [&project, &project, &base, &base];
    Cow::Owned(PLACES.iter().zip(values).fold(word.to_owned(), |word, (name, value)| word.replace(name, value)))
}

/// The modules of `python -m mod`, `-mmod`, `-um mod`, also within a shell line.
fn modules(arguments: &[String]) -> Vec<&str> {
    let words: Vec<&str> =
        arguments.iter().flat_map(|argument| argument.split(between)).filter(|part| !part.is_empty()).collect();
    let module = |at: usize| {
        let (flags, name) = words[at].strip_prefix('-')?.split_once('m')?;
        let name = if name.is_empty() { words.get(at + 1).copied()? } else { name };
        let is_module = !name.starts_with(['-', '.']) && !name.contains('/');
        (is_module && flags.chars().all(|flag| PYTHON_FLAGS.contains(flag))).then_some(name)
    };
    (0..words.len()).filter_map(module).collect()
}

/// The files that a module's name may mean, and those of the packages around it.
fn module_files(name: &str) -> Vec<String> {
    let path = name.replace('.', "/");
    let around = path.match_indices('/').map(|(at, _)| format!("{}/__init__.py", &path[..at]));
    MODULE.iter().map(|end| format!("{path}{end}")).chain(around).collect()
}

/// What separates words in a line or a list.
fn between(c: char) -> bool {
    c.is_whitespace() || ";|&<>()'\"`,:".contains(c)
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
    if word.contains(between) {
        // Between quotes a path may have blanks.
        let quoted = word.split(['\'', '"']).filter(|part| *part != word);
        let parts: Vec<&str> = word.split(between).chain(quoted).filter(|part| !part.is_empty()).collect();
        // Where a shell line goes, its other words may lie.
        let folders = parts.windows(2).filter(|pair| pair[0] == "cd").map(|pair| pair[1]);
        let folders: Vec<&str> = folders.take(MAX_FOLDERS).collect();
        for part in &parts {
            add(part);
            if let Some((_, value)) = part.split_once('=') {
                add(value);
            }
            folders.iter().for_each(|folder| add(&format!("{folder}/{part}")));
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
            crate::show::ascii(program),
            crate::show::ascii(&resolved.to_string_lossy())
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
            PLACES[..2].iter().any(|place| word.contains(place))
                || word.starts_with("./")
                || word.starts_with("../")
                || (word.starts_with('/') && inside)
        })
    })
}

#[cfg(test)]
mod tests;

//! The home and what lies in it: whose it is, who may read and write it, and whether it can be understood.

use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use vance_foot_core::config::parse_config;
use vance_foot_core::permissions::{Places, parse_permissions};
use vance_shared::doc::Problem;
use vance_shared::gate::Book;
use vance_shared::launch::Origin;

use super::Finding;
use crate::cli::access::{Access, NoAccess};
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::packs::list::{foreign_home, notes};
use crate::cli::packs::shelf;
use crate::packs::Folder;
use crate::paths::shown;
use crate::trust::Trust;

/// Who may do what with a file or folder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rule {
    /// Its owner alone: it holds secrets.
    Private,
    /// Others may read: what it says decides what runs.
    Shielded,
}

/// What is wrong in a file, by its name and text.
type Reader = fn(&str, &str) -> Vec<Problem>;

/// Looks at the home's files and the project's.
pub(super) fn look(context: &Context) -> Result<Vec<Finding>, Failure> {
    let (home, paths) = (context.home()?, shelf::paths(context)?);
    let mut findings = Vec::new();
    if home.exists() {
        let before = findings.len();
        for (path, rule) in [
            (home.clone(), Rule::Private),
            (home.join("access.yaml"), Rule::Private),
            (home.join("trusted-packs.yaml"), Rule::Private),
            (home.join("trusted-brains.yaml"), Rule::Private),
            (home.join("brain/local.token"), Rule::Private),
            (home.join("state"), Rule::Private),
            (home.join("audit"), Rule::Private),
            (home.join("permissions.yaml"), Rule::Shielded),
            (home.join("config.yaml"), Rule::Shielded),
            (paths.global_packs.clone(), Rule::Shielded),
        ] {
            findings.extend(modes(&path, rule));
        }
        for file in Folder::own(&paths.global_packs, Origin::Global).names() {
            findings.extend(modes(&file, Rule::Shielded));
        }
        if let Some((what, fix)) = foreign_home(&paths) {
            findings.push(Finding::fix("home", what, fix));
        }
        if findings.len() == before {
            findings.push(Finding::ok("home", format!("{}: yours alone", shown(&home))));
        }
    } else {
        findings
            .push(Finding::note("home", format!("{} is not there yet; it is made when it is needed", shown(&home))));
    }
    findings.extend(readable(context, &home, &paths.project));
    findings.extend(packs(context, &paths)?);
    let odd = notes(&paths, !context.general.no_local).into_iter();
    findings.extend(odd.map(|note| Finding::note("file", format!("no effect: {note}"))));
    Ok(findings)
}

fn modes(path: &Path, rule: Rule) -> Option<Finding> {
    let name = shown(path);
    let meta = match path.metadata() {
        Ok(meta) => meta,
        Err(error) if error.kind() == ErrorKind::NotFound => return None,
        Err(error) => return Some(Finding::fix("home", format!("{name}: {error}"), format!("ls -ld {name}"))),
    };
    let me = nix::unistd::geteuid().as_raw();
    judge(rule, meta.is_dir(), meta.permissions().mode(), meta.uid() == me)
        .map(|(what, fix)| Finding::fix("home", format!("{name} {what}"), format!("{fix} {name}")))
}

/// What is wrong with it, and what to type before its name.
fn judge(rule: Rule, is_dir: bool, mode: u32, is_mine: bool) -> Option<(&'static str, &'static str)> {
    let private = if is_dir { "chmod 700" } else { "chmod 600" };
    match (rule, is_mine, mode & 0o022 != 0, mode & 0o055 != 0) {
        (_, false, ..) => Some(("belongs to another user", "sudo chown \"$(id -un)\"")),
        (Rule::Private, true, true, _) => {
            Some(("can be written by others: look whether it still says what you wrote", private))
        }
        (Rule::Private, true, false, true) => Some(("can be read by others", private)),
        (Rule::Shielded, true, true, _) => {
            Some(("can be written by others: look whether it still says what you wrote", "chmod go-w"))
        }
        (Rule::Private | Rule::Shielded, true, false, _) => None,
    }
}

/// Files that are read strictly: each mistake with its line.
fn readable(context: &Context, home: &Path, project: &Path) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut files: Vec<(PathBuf, Reader)> = vec![
        (home.join("permissions.yaml"), permissions),
        (home.join("trusted-packs.yaml"), trusted),
        (home.join("config.yaml"), selection),
    ];
    if !context.general.no_local {
        files.push((project.join(".vancetope/permissions.yaml"), permissions));
        files.push((project.join(".vancetope/config.yaml"), selection));
    }
    for (path, read) in files {
        let name = shown(&path);
        match std::fs::read_to_string(&path) {
            Ok(text) => {
                let problems = read(&name, &text);
                let problems = match problems.is_empty() && path.ends_with("permissions.yaml") {
                    true => roots(context, &name, &text, project),
                    false => problems,
                };
                if problems.is_empty() {
                    findings.push(Finding::ok("file", name));
                }
                findings.extend(problems.into_iter().map(|problem| Finding::mistake("file", problem)));
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => findings.push(Finding::fix("file", format!("{name}: {error}"), format!("ls -l {name}"))),
        }
    }
    match Access::read(home) {
        Ok(_) => {}
        Err(NoAccess::Mistakes { problems, .. }) => {
            findings.extend(problems.into_iter().map(|problem| Finding::mistake("file", problem)));
        }
        Err(error @ (NoAccess::File { .. } | NoAccess::Unsafe { .. })) => {
            findings.push(Finding::fix("file", error.to_string(), "vancetope login URL writes it anew"));
        }
    }
    let stray = Trust::new(home, project).pretenders().into_iter();
    findings
        .extend(stray.map(|file| Finding::note("file", format!("{file} has no effect: a project cannot decide this"))));
    findings
}

fn permissions(name: &str, text: &str) -> Vec<Problem> {
    parse_permissions(name, text).err().unwrap_or_default()
}

/// Entries of `roots:` that are no folder: file tools find nothing there, and say so only when they are used.
fn roots(context: &Context, name: &str, text: &str, project: &Path) -> Vec<Problem> {
    let Ok(rules) = parse_permissions(name, text) else { return Vec::new() };
    let (roots, Some(line)) = rules.roots() else { return Vec::new() };
    let places = Places {
        user_home: context.environment.user_home.clone(),
        home: context.environment.home().unwrap_or_default(),
        working_dir: project.to_owned(),
        aliases: Vec::new(),
        protected: Vec::new(),
    };
    let first = usize::try_from(line).unwrap_or(1);
    let at = |root: &str| {
        let found = text.lines().enumerate().skip(first - 1).find(|(_, line)| line.contains(root));
        found.map_or(line, |(at, _)| u32::try_from(at + 1).unwrap_or(line))
    };
    let wrong = |root: &String| {
        let path = places.absolute(root);
        let why = match path.metadata() {
            Ok(meta) if meta.is_dir() => return None,
            Ok(_) => "is no folder".to_owned(),
            Err(error) if error.kind() == ErrorKind::NotFound => "does not exist".to_owned(),
            Err(error) => error.to_string(),
        };
        Some(Problem::new(name, at(root), format!("`roots`: {} {why}; file tools find nothing there", shown(&path))))
    };
    roots.iter().filter_map(wrong).collect()
}

fn selection(name: &str, text: &str) -> Vec<Problem> {
    let config = parse_config(name, text);
    config.problems.into_iter().chain(config.warnings).collect()
}

fn trusted(name: &str, text: &str) -> Vec<Problem> {
    Book::parse(name, text).err().unwrap_or_default()
}

fn packs(context: &Context, paths: &crate::paths::Paths) -> Result<Vec<Finding>, Failure> {
    let mut findings = Vec::new();
    for file in shelf::both(paths, !context.general.no_local) {
        if let Err(why) = &file.text {
            findings.push(Finding::fix("pack", format!("{}: {why}", file.shown()), format!("ls -l {}", file.shown())));
        }
        let Some(parsed) = file.parsed() else { continue };
        findings.extend(parsed.problems.into_iter().map(|problem| Finding::mistake("pack", problem)));
        findings.extend(parsed.warnings.into_iter().map(|odd| Finding::note("pack", odd.to_string())));
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_may_read_or_write_is_said_with_what_to_type() {
        for (rule, is_dir, mode, is_mine, want) in [
            (Rule::Private, true, 0o700, true, None),
            (Rule::Private, true, 0o755, true, Some("chmod 700")),
            (Rule::Private, true, 0o711, true, Some("chmod 700")),
            (Rule::Private, false, 0o600, true, None),
            (Rule::Private, false, 0o640, true, Some("chmod 600")),
            (Rule::Private, false, 0o602, true, Some("chmod 600")),
            (Rule::Shielded, false, 0o644, true, None),
            (Rule::Shielded, false, 0o664, true, Some("chmod go-w")),
            (Rule::Shielded, true, 0o777, true, Some("chmod go-w")),
            (Rule::Shielded, false, 0o644, false, Some("sudo chown \"$(id -un)\"")),
        ] {
            assert_eq!(judge(rule, is_dir, mode, is_mine).map(|(_, fix)| fix), want, "{rule:?} {mode:o} {is_mine}");
        }
    }
}

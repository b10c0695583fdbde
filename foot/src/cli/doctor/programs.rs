//! PATH, and what the packs need of this machine: programs, their versions, variables.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use vance_mcp_host::env::{ambient, child_env, clean_path};
use vance_mcp_host::guard::{Spawn, find_program, spawn};
use vance_shared::gate::sends;
use vance_shared::launch::{LaunchPlan, Origin, Transport};
use vance_shared::pack::PackBody;
use vance_shared::show::plain;

use super::Finding;
use crate::cli::context::Context;
use crate::cli::failure::Failure;
use crate::cli::packs::shelf;
use crate::paths::shown;

/// A program says its version at once, or something is wrong with it; `npx` takes a second on a slow machine.
const VERSION_WAIT: Duration = Duration::from_secs(15);
/// How much of what it says is read.
const VERSION_BYTES: u64 = 4096;
/// Between asking a program to end and ending it.
const END_WAIT: Duration = Duration::from_millis(200);

/// What a program must be at least, and why.
const OLDEST: [(&str, [u32; 2], &str); 3] = [
    ("node", [20, 0], "MCP servers from npm need it; see https://nodejs.org, or: nvm install 22"),
    ("npx", [7, 0], "older ones ask before they install, and nobody answers; update npm: npm install -g npm"),
    ("python3", [3, 10], "MCP servers from PyPI need it; install a newer one, or use uvx, which brings its own"),
];

/// Looks.
pub(super) async fn look(context: &Context) -> Result<Vec<Finding>, Failure> {
    let paths = shelf::paths(context)?;
    let ambient = ambient();
    let mut findings = path(ambient.get(OsStr::new("PATH")).map(OsString::as_os_str));
    let clean = clean_path(ambient.get(OsStr::new("PATH")).map(OsString::as_os_str));
    let mut used = BTreeMap::new();
    for file in shelf::both(&paths, !context.general.no_local) {
        let Some(pack) = file.parsed().and_then(|parsed| parsed.pack).filter(|pack| pack.enabled) else { continue };
        let PackBody::Launch(plan) = pack.body else { continue };
        let before = findings.len();
        findings.extend(program(&plan, &clean, &paths.project, &mut used));
        // What a project's pack would send is nobody's business before it has consent.
        if file.origin != Origin::Project {
            findings.extend(variables(&plan, &ambient));
        }
        if findings.len() == before {
            findings.push(Finding::ok("pack", format!("{} ({})", plan.pack, file.shown())));
        }
    }
    // `npx` is a program of Node's.
    if used.contains_key("npx")
        && let Ok(node) = find_program("node", Some(&clean), Path::new("/"))
    {
        used.entry("node").or_insert(node);
    }
    for (name, oldest, why) in OLDEST {
        // A program of the project is not started by looking at it.
        if let Some(program) = used.get(name).filter(|program| !program.starts_with(&paths.project)) {
            findings.push(version(context, program, oldest, why, &ambient).await);
        }
    }
    Ok(findings)
}

fn path(path: Option<&OsStr>) -> Vec<Finding> {
    let Some(path) = path.filter(|path| !path.is_empty()) else {
        return vec![Finding::note(
            "path",
            format!("PATH is not set; programs are looked for in {}", shown(Path::new(&clean_path(None)))),
        )];
    };
    let entries: Vec<PathBuf> = std::env::split_paths(path).collect();
    let bad: Vec<String> = entries
        .iter()
        .filter(|entry| !entry.is_absolute())
        .map(
            |entry| {
                if entry.as_os_str().is_empty() { "an empty entry".to_owned() } else { format!("'{}'", shown(entry)) }
            },
        )
        .collect();
    if bad.is_empty() {
        return vec![Finding::ok("path", format!("{} folders", entries.len()))];
    }
    let what = format!(
        "PATH holds {}, which means whatever folder you are in; programs are not looked for there",
        bad.join(" and ")
    );
    vec![Finding::fix("path", what, format!("export PATH='{}'", shown(Path::new(&clean_path(Some(path))))))]
}

/// Is the program of a stdio pack there? Notes those whose version matters.
fn program(
    plan: &LaunchPlan,
    path: &OsStr,
    project: &Path,
    used: &mut BTreeMap<&'static str, PathBuf>,
) -> Option<Finding> {
    let Transport::Stdio { argv, cwd, .. } = &plan.transport else { return None };
    let word = argv.first()?;
    let folder = cwd.as_deref().map_or_else(|| PathBuf::from("/"), |cwd| project.join(cwd));
    match find_program(word, Some(path), &folder) {
        Ok(found) => {
            for (name, ..) in OLDEST {
                if word.rsplit('/').next() == Some(name) || (name == "python3" && word == "python") {
                    used.insert(name, found.clone());
                }
            }
            None
        }
        Err(error) => {
            let advice = install(word.rsplit('/').next().unwrap_or(word));
            Some(Finding::fix("pack", format!("{}: {error}", plan.pack), advice))
        }
    }
}

/// How a program comes onto the machine.
fn install(program: &str) -> String {
    match program {
        "npx" | "node" | "npm" => {
            "install Node.js 20 or newer: https://nodejs.org, or: sudo apt install nodejs npm".to_owned()
        }
        "uvx" | "uv" => "install uv: curl -LsSf https://astral.sh/uv/install.sh | sh".to_owned(),
        "python" => "write python3 in the pack, or: sudo apt install python-is-python3".to_owned(),
        "python3" => "sudo apt install python3".to_owned(),
        "docker" => "install Docker: https://docs.docker.com/engine/install".to_owned(),
        "bunx" | "bun" => "install Bun: https://bun.sh".to_owned(),
        "deno" => "install Deno: https://deno.com".to_owned(),
        other => format!("install {}, or write its full path in the pack's `command`", plain(other)),
    }
}

fn variables(plan: &LaunchPlan, ambient: &BTreeMap<OsString, OsString>) -> Option<Finding> {
    let unset: BTreeSet<String> =
        sends(plan).into_iter().filter(|name| ambient.get(OsStr::new(name)).is_none_or(|v| v.is_empty())).collect();
    let names: Vec<&str> = unset.iter().map(String::as_str).collect();
    let all: Vec<String> = names.iter().map(|name| format!("export {name}=VALUE")).collect();
    (!names.is_empty()).then(|| {
        let what = format!("{}: not set here: {}", plan.pack, names.join(", "));
        Finding::fix("pack", what, format!("{}   (where your Foot starts)", all.join("; ")))
    })
}

async fn version(
    context: &Context,
    program: &Path,
    oldest: [u32; 2],
    why: &str,
    ambient: &BTreeMap<OsString, OsString>,
) -> Finding {
    let name = shown(program);
    match said(context, program, ambient).await {
        Err(error) => Finding::fix("program", format!("{name} does not run: {error}"), format!("{name} --version")),
        Ok(text) => match number(&text) {
            Some(found) if found < oldest => {
                let what = format!(
                    "{name} is version {}.{}, at least {}.{} is needed",
                    found[0], found[1], oldest[0], oldest[1]
                );
                Finding::fix("program", what, why)
            }
            Some([major, minor]) => Finding::ok("program", format!("{name} {major}.{minor}")),
            None => Finding::note(
                "program",
                format!("{name} says no version: {}", vance_shared::show::quoted(text.trim(), 80)),
            ),
        },
    }
}

/// What `PROGRAM --version` says.
async fn said(context: &Context, program: &Path, ambient: &BTreeMap<OsString, OsString>) -> Result<String, String> {
    let text = |error: &dyn std::fmt::Display| plain(&error.to_string());
    let guard_program = context.environment.program.clone().map_or_else(std::env::current_exe, Ok);
    let mut child = spawn(Spawn {
        argv: vec![program.to_str().ok_or("its path is no UTF-8 text")?.to_owned(), "--version".to_owned()],
        cwd: PathBuf::from("/"),
        env: child_env(ambient, Origin::Global, &BTreeMap::new(), None).map_err(|e| text(&e))?,
        stdin: false,
        guard_program: guard_program.map_err(|e| text(&e))?,
        sandbox: None,
    })
    .await
    .map_err(|e| text(&e))?;
    let mut out = Vec::new();
    let stdout = child.stdout.take().ok_or("its output cannot be read")?;
    let mut limited = stdout.take(VERSION_BYTES);
    let read = tokio::time::timeout(VERSION_WAIT, limited.read_to_end(&mut out)).await;
    if let Err(error) = child.kill(END_WAIT).await {
        tracing::debug!("a program that was asked for its version: {error}");
    }
    match read {
        Ok(Ok(_)) => Ok(String::from_utf8_lossy(&out).into_owned()),
        Ok(Err(error)) => Err(text(&error)),
        Err(_) => Err(format!("it says nothing within {} s", VERSION_WAIT.as_secs())),
    }
}

/// The first `N.M` of a text.
fn number(text: &str) -> Option<[u32; 2]> {
    let start = text.find(|c: char| c.is_ascii_digit())?;
    let mut parts = text[start..].split(|c: char| !c.is_ascii_digit());
    Some([parts.next()?.parse().ok()?, parts.next().and_then(|minor| minor.parse().ok()).unwrap_or(0)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_programs_say_them() {
        for (text, want) in [
            ("v20.20.2\n", Some([20, 20])),
            ("10.8.2", Some([10, 8])),
            ("Python 3.9.1", Some([3, 9])),
            ("7", Some([7, 0])),
            ("none", None),
            ("", None),
            ("99999999999.1", None),
        ] {
            assert_eq!(number(text), want, "{text}");
        }
    }

    #[test]
    fn an_entry_of_path_that_means_here_is_said_with_the_path_without_it() {
        for (text, fix) in
            [("/a:/b", None), ("/a::/b", Some("export PATH='/a:/b'")), (".:/a:bin", Some("export PATH='/a'"))]
        {
            let found = path(Some(OsStr::new(text)));
            assert_eq!(found[0].fix.as_deref(), fix, "{text}");
        }
        assert!(path(None)[0].message.contains("not set"));
    }
}

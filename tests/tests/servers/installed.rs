//! A pack of the page with the installed program in place of `npx -y PACKAGE` or `uvx PACKAGE`.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::{Value, json};

use crate::page::Server;

/// Debian's browser, as the packs name it.
pub(crate) const CHROMIUM: &str = "/usr/bin/chromium";

/// Where `tests/install-components.sh` puts things.
pub(crate) fn cache() -> anyhow::Result<PathBuf> {
    let own = std::env::var_os("VANCE_TEST_CACHE").map(PathBuf::from);
    let usual = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/vancetope-test"));
    own.or_else(usual).context("HOME")
}

/// Whether there is a browser. Where there is none, this says so: `make test` says it, too.
pub(crate) fn chromium(what: &str) -> bool {
    let there = Path::new(CHROMIUM).exists();
    if !there {
        eprintln!("!! {CHROMIUM} is not there: NOT tested: {what}");
    }
    there
}

/// The pack file.
pub(crate) fn pack(server: &Server) -> anyhow::Result<Value> {
    let mut pack = server.pack.clone();
    let words = pack["parameters"]["command"].as_array().context("command")?;
    let words: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
    let (program, rest) = match words.as_slice() {
        ["npx", "-y", named, rest @ ..] => (npm(server, named)?, rest),
        ["uvx", "--with", _, named, rest @ ..] | ["uvx", named, rest @ ..] => (pypi(server, named)?, rest),
        other => anyhow::bail!("neither npx nor uvx: {other:?}"),
    };
    let program = program.to_str().context("a path in UTF-8")?;
    pack["parameters"]["command"] = json!([&[program], rest].concat());
    Ok(pack)
}

fn missing(server: &Server) -> String {
    format!("{} {} is not installed: run `tests/install-components.sh all`", server.package, server.version)
}

fn npm(server: &Server, named: &str) -> anyhow::Result<PathBuf> {
    let name = named.rsplit_once('@').map_or(named, |(name, _)| name);
    anyhow::ensure!(name == server.package, "the pack starts {named}");
    agree(server, named, '@')?;
    let folders = ["npm", "npm-more"].map(|folder| Ok(cache()?.join(folder).join("node_modules")));
    for folder in folders.into_iter().collect::<anyhow::Result<Vec<_>>>()? {
        let Ok(text) = std::fs::read_to_string(folder.join(name).join("package.json")) else { continue };
        let manifest: Value = serde_json::from_str(&text)?;
        anyhow::ensure!(manifest["version"] == server.version.as_str(), "{name} {} is installed", manifest["version"]);
        let short = name.rsplit('/').next().unwrap_or(name);
        let program = match &manifest["bin"] {
            Value::Object(programs) if !programs.contains_key(short) => programs.keys().next().context("bin")?,
            _ => short,
        };
        return Ok(folder.join(".bin").join(program));
    }
    anyhow::bail!(missing(server))
}

fn pypi(server: &Server, named: &str) -> anyhow::Result<PathBuf> {
    let name = named.split("==").next().unwrap_or(named);
    anyhow::ensure!(name == server.package, "the pack starts {named}");
    agree(server, named, '=')?;
    let info = format!("{}-{}.dist-info", name.replace('-', "_"), server.version);
    for venv in ["venv", "venv-more", "venv-sqlite"] {
        let venv = cache()?.join(venv);
        let program = venv.join("bin").join(name);
        if !program.exists() {
            continue;
        }
        for python in std::fs::read_dir(venv.join("lib"))? {
            if python?.path().join("site-packages").join(&info).exists() {
                return Ok(program);
            }
        }
    }
    anyhow::bail!(missing(server))
}

/// A version in the pack is that of the table, or the newest.
fn agree(server: &Server, named: &str, before: char) -> anyhow::Result<()> {
    let (_, version) = named.rsplit_once(before).context("the pack names a version")?;
    anyhow::ensure!(version == server.version || version == "latest", "the table says {}", server.version);
    Ok(())
}

//! Compiles attempts with the compiler itself, on the libraries that a test is built with.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Libraries that fit each other, by name.
#[derive(Debug)]
pub(crate) struct Libraries(Vec<(&'static str, PathBuf)>);

impl Libraries {
    /// The newest ones beside the test with which `control` compiles: what fails with them fails for its own reason and for no other.
    pub(crate) fn find(names: &[&'static str], control: &str) -> Self {
        let test = std::env::current_exe().unwrap();
        let folder = test.parent().unwrap();
        let mut all = vec![Self(Vec::new())];
        for name in names {
            let with = |one: &Self| {
                let more = |path| Self(one.0.iter().cloned().chain([(*name, path)]).collect());
                named(folder, name).into_iter().map(more).collect::<Vec<_>>()
            };
            all = all.iter().flat_map(with).collect();
        }
        let mut said = String::new();
        for libraries in all {
            let (good, why) = libraries.compile(control);
            if good {
                return libraries;
            }
            said = why;
        }
        panic!("no {names:?} in {} compile the control: {said}", folder.display());
    }

    /// Success, and what the compiler said.
    pub(crate) fn compile(&self, code: &str) -> (bool, String) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lib.rs");
        std::fs::write(&file, format!("{code}\n")).unwrap();
        let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
        let mut command = Command::new(compiler);
        command.args(["--edition", "2024", "--crate-type", "lib", "--crate-name", "attempt", "--emit", "metadata"]);
        command.args(["-A", "warnings"]).arg("--out-dir").arg(dir.path());
        for (name, path) in &self.0 {
            command.arg("-L").arg(format!("dependency={}", path.parent().unwrap().display()));
            command.arg("--extern").arg(format!("{name}={}", path.display()));
        }
        let output = command.arg(&file).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// The libraries of this name, the newest first.
fn named(folder: &Path, name: &str) -> Vec<PathBuf> {
    let prefix = format!("lib{name}-");
    let mut found: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let file = entry.file_name().into_string().ok()?;
            let ours = file.starts_with(&prefix) && file.ends_with(".rlib");
            ours.then(|| entry.metadata().and_then(|data| data.modified()).map(|time| (time, entry.path())).ok())?
        })
        .collect();
    found.sort();
    found.into_iter().rev().map(|(_, path)| path).collect()
}

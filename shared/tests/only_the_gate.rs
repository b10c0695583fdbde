//! A load path that forgets the gate does not compile: shown with the compiler itself, on the library that this test is built with.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::disallowed_methods)] // the compiler is a child of this test

use std::path::{Path, PathBuf};
use std::process::Command;

const USES: &str =
    "use vance_shared::gate::{Digest, FileHash, TrustedLaunch};\nuse vance_shared::launch::LaunchPlan;\n";
/// Compiles: what follows fails for its own reason and for no other.
const CONTROL: &str =
    "pub fn f(launch: TrustedLaunch, _: Option<(Digest, FileHash)>) -> LaunchPlan { launch.plan().clone() }";

/// The libraries of this name beside the test, the newest first.
fn libraries(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let name = entry.file_name().into_string().ok()?;
            let ours = name.starts_with("libvance_shared-") && name.ends_with(".rlib");
            ours.then(|| entry.metadata().and_then(|data| data.modified()).map(|time| (time, entry.path())).ok())?
        })
        .collect();
    found.sort();
    found.into_iter().rev().map(|(_, path)| path).collect()
}

/// Success, and what the compiler said.
fn compiles(library: &Path, code: &str) -> (bool, String) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("lib.rs");
    std::fs::write(&file, format!("{USES}{code}\n")).unwrap();
    let compiler = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(compiler)
        .args([
            "--edition",
            "2024",
            "--crate-type",
            "lib",
            "--crate-name",
            "attempt",
            "--emit",
            "metadata",
            "-A",
            "warnings",
        ])
        .arg("--out-dir")
        .arg(dir.path())
        .arg("-L")
        .arg(format!("dependency={}", library.parent().unwrap().display()))
        .arg("--extern")
        .arg(format!("vance_shared={}", library.display()))
        .arg(&file)
        .output()
        .unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
}

#[test]
fn a_launch_cannot_be_made_outside_of_the_gate() {
    let test = std::env::current_exe().unwrap();
    let all = libraries(test.parent().unwrap());
    let tried: Vec<_> = all.iter().map(|library| (library, compiles(library, CONTROL))).collect();
    let Some((library, _)) = tried.iter().find(|(_, (good, _))| *good) else { panic!("{tried:#?}") };
    for (why, code, error) in [
        (
            "its fields are the gate's own",
            "pub fn f(plan: LaunchPlan) -> TrustedLaunch { TrustedLaunch { plan, digest: None, files: Vec::new() } }",
            "E0451",
        ),
        ("a plan is no launch", "fn spawn(_: TrustedLaunch) {}\npub fn f(plan: LaunchPlan) { spawn(plan) }", "E0308"),
        ("there is no conversion", "pub fn f(plan: LaunchPlan) -> TrustedLaunch { plan.into() }", "E0277"),
        ("there is no default", "pub fn f() -> TrustedLaunch { Default::default() }", "E0277"),
        (
            "what was trusted cannot be changed afterwards",
            "pub fn f(launch: &mut TrustedLaunch, plan: LaunchPlan) { *launch.plan() = plan; }",
            "E0594",
        ),
        (
            "nor through its field",
            "pub fn f(launch: &mut TrustedLaunch, plan: LaunchPlan) { launch.plan = plan; }",
            "E0616",
        ),
    ] {
        let (good, said) = compiles(library, code);
        assert!(!good && said.contains(error), "{why}: {said}");
    }
}

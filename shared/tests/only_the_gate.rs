//! A load path that forgets the gate does not compile: shown with the compiler itself, on the library that this test is built with.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::disallowed_methods)] // the compiler is a child of this test

#[path = "compiler/attempt.rs"]
mod attempt;
use attempt::Libraries;

const USES: &str =
    "use vance_shared::gate::{Digest, FileHash, TrustedLaunch};\nuse vance_shared::launch::LaunchPlan;\n";
/// Compiles: what follows fails for its own reason and for no other.
const CONTROL: &str =
    "pub fn f(launch: TrustedLaunch, _: Option<(Digest, FileHash)>) -> LaunchPlan { launch.plan().clone() }";

#[test]
fn a_launch_cannot_be_made_outside_of_the_gate() {
    let libraries = Libraries::find(&["vance_shared"], &format!("{USES}{CONTROL}"));
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
        let (good, said) = libraries.compile(&format!("{USES}{code}"));
        assert!(!good && said.contains(error), "{why}: {said}");
    }
}

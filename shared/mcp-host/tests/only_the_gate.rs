//! What starts a server, logs in or sends a request takes what the gate let through, and no plan: shown with the compiler itself.
#![allow(missing_docs, clippy::unwrap_used, clippy::panic)]
#![allow(clippy::disallowed_methods)] // the compiler is a child of this test

#[path = "../../tests/compiler/attempt.rs"]
mod attempt;
use attempt::Libraries;

const USES: &str = "use vance_mcp_host::{EventSink, HostEnv, People, auth, rest, server, server_with_people};\n\
    use vance_shared::gate::TrustedLaunch;\nuse vance_shared::launch::LaunchPlan;\n";

/// The ways to reach what a pack names, each with `LAUNCH` for what it is given.
const WAYS: [(&str, &str); 7] = [
    ("server", "pub fn f(launch: LAUNCH, env: HostEnv, events: EventSink) { drop(server(launch, env, events)); }"),
    (
        "server_with_people",
        "pub fn f(launch: LAUNCH, env: HostEnv, events: EventSink, people: People) { drop(server_with_people(launch, env, events, people)); }",
    ),
    (
        "auth::login",
        "pub async fn f(launch: &LAUNCH, env: &HostEnv, open: auth::OnAuthorize) { drop(auth::login(launch, env, open).await); }",
    ),
    ("auth::logout", "pub async fn f(launch: &LAUNCH, env: &HostEnv) { drop(auth::logout(launch, env).await); }"),
    (
        "auth::login_by_device",
        "pub async fn f(launch: &LAUNCH, env: &HostEnv, show: auth::OnDeviceCode) { drop(auth::login_by_device(launch, env, show).await); }",
    ),
    ("rest::leads", "pub async fn f(launch: &LAUNCH, env: &HostEnv) { drop(rest::leads(launch, env).await); }"),
    (
        "rest::dry_run",
        "pub async fn f(launch: &LAUNCH, env: &HostEnv) { drop(rest::dry_run(launch, env, \"p__t\", &Default::default()).await); }",
    ),
];

#[test]
fn a_plan_that_passed_no_gate_starts_and_reaches_nothing() {
    let attempt = |way: &str, launch: &str| format!("{USES}{}", way.replace("LAUNCH", launch));
    let libraries = Libraries::find(&["vance_mcp_host", "vance_shared"], &attempt(WAYS[0].1, "TrustedLaunch"));
    for (name, way) in WAYS {
        let (good, said) = libraries.compile(&attempt(way, "TrustedLaunch"));
        assert!(good, "{name}: {said}");
        let (good, said) = libraries.compile(&attempt(way, "LaunchPlan"));
        assert!(!good && said.contains("E0308"), "{name}: {said}");
        assert!(said.contains("TrustedLaunch"), "{name}: {said}");
    }
}

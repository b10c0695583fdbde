//! A toolbox of fifty packs with a thousand tools: is the Foot usable at once, and is all listed soon after the slowest one is there?

use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde_json::{Value, json};

use super::programs::{Brain, Home};
use super::system::median;
use super::table::{Goal, Table};

const PACKS: usize = 50;
/// Tools of each pack.
const TOOLS: usize = 20;
/// How long the slowest server takes until it answers, in milliseconds: as an `npx` whose package is there already.
const SLOWEST_MS: u64 = 700;
/// Runs; the first one is not counted.
const RUNS: usize = 4;

/// A Foot whose native tools cannot be called by then is broken.
const PATIENCE: Duration = Duration::from_secs(30);
/// Between two tries of a call.
const LOOK: Duration = Duration::from_millis(2);

/// Measures.
pub(crate) fn measure(table: &mut Table) -> anyhow::Result<()> {
    let (alone, all) = (home(1)?, home(PACKS)?);
    let (mut base, mut ours, mut native) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        base.push(list(&alone, 1)?);
        ours.push(list(&all, PACKS)?);
        native.push(at_once(&all)?);
    }
    anyhow::ensure!(leftovers(&all)? == 0, "servers outlived their Foot");
    let warm = |mut all: Vec<f64>| median(all.split_off(1));
    table.value(
        "50 packs, 1,000 tools: from the Foot's start to a native call's result, while they load",
        "ms",
        warm(native),
        Goal::Most(300.0),
    );
    table.ratio(
        "50 packs, 1,000 tools: all listed (base: the slowest alone)",
        "ms",
        warm(base),
        warm(ours),
        Goal::Most(1.5),
    );
    Ok(())
}

/// A home with packs, the first of them slow.
fn home(packs: usize) -> anyhow::Result<Home> {
    let home = Home::new()?;
    let program = std::env::current_exe()?;
    for n in 0..packs {
        let slow = if n == 0 { SLOWEST_MS } else { 0 };
        let command =
            [program.to_string_lossy().as_ref(), "echo", &TOOLS.to_string(), &slow.to_string()].map(str::to_owned);
        let parameters = json!({"transport": "stdio", "command": command});
        let pack = json!({"name": format!("p{n}"), "type": "mcp_server", "parameters": parameters});
        home.write(&format!("foot-tools/p{n}.json"), &pack.to_string())?;
    }
    Ok(home)
}

/// Lists all tools, each of which must be there. In milliseconds.
fn list(home: &Home, packs: usize) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let output = home.output("vancetope", &["tools", "list", "--json"])?;
    let took = begun.elapsed().as_secs_f64() * 1e3;
    let listed: Value = serde_json::from_str(&output)?;
    let tools = listed["tools"].as_array().context("tools")?;
    let of_packs = tools.iter().filter(|tool| !tool["pack"].is_null()).count();
    anyhow::ensure!(of_packs == packs * TOOLS, "{of_packs} tools instead of {}", packs * TOOLS);
    Ok(took)
}

/// Calls a native tool of a Foot that has just been started and is still loading its packs: from its start to the result. In milliseconds.
fn at_once(home: &Home) -> anyhow::Result<f64> {
    let brain = Brain::start(home)?;
    let begun = Instant::now();
    let foot = brain.young_foot(home)?;
    // Until the Foot is there the call has nowhere to go.
    let call = r#"{"arguments": {"path": "."}}"#;
    let done = || {
        let answer = brain.post("/api/v1/tools/list_local_files/call", call).ok()?;
        let answer: Value = serde_json::from_str(&answer).ok()?;
        (answer["call"]["outcome"] == "done").then_some(())
    };
    while done().is_none() {
        anyhow::ensure!(begun.elapsed() < PATIENCE, "no native tool of the Foot can be called");
        std::thread::sleep(LOOK);
    }
    let took = begun.elapsed().as_secs_f64() * 1e3;
    // A Foot that has loaded all by now would show nothing.
    let tools: Value = serde_json::from_str(&brain.get("/api/v1/sessions/default.local/tools")?)?;
    let loaded = tools["tools"].as_array().is_some_and(|tools| tools.iter().any(|tool| tool["name"] == "p0__tool_0"));
    anyhow::ensure!(!loaded, "the slowest pack was there after {took:.0} ms already");
    foot.stop()?;
    brain.program.stop()?;
    Ok(took)
}

/// Processes that still know this home.
fn leftovers(home: &Home) -> anyhow::Result<usize> {
    let path = home.path();
    let mut left = 0;
    for entry in std::fs::read_dir("/proc")? {
        let environment = std::fs::read(entry?.path().join("environ")).unwrap_or_default();
        left += usize::from(String::from_utf8_lossy(&environment).contains(path.to_string_lossy().as_ref()));
    }
    Ok(left)
}

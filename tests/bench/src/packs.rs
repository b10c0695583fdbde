//! A toolbox of fifty packs with a thousand tools: is the Foot usable at once, and is all listed soon after the slowest one is there?

use std::time::Instant;

use anyhow::Context as _;
use serde_json::{Value, json};

use super::programs::Home;
use super::system::median;
use super::table::{Goal, Table};

const PACKS: usize = 50;
/// Tools of each pack.
const TOOLS: usize = 20;
/// How long the slowest server takes until it answers, in milliseconds: as an `npx` whose package is there already.
const SLOWEST_MS: u64 = 700;
/// Runs; the first one is not counted.
const RUNS: usize = 4;

/// Measures.
pub(crate) fn measure(table: &mut Table) -> anyhow::Result<()> {
    let (alone, all) = (home(1)?, home(PACKS)?);
    let (mut base, mut ours, mut native) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..RUNS {
        base.push(list(&alone, 1)?);
        ours.push(list(&all, PACKS)?);
        let begun = Instant::now();
        all.run("vancetope", &["tools", "call", "list_local_files", r#"{"path":"."}"#])?;
        native.push(begun.elapsed().as_secs_f64() * 1e3);
    }
    anyhow::ensure!(leftovers(&all)? == 0, "servers outlived their Foot");
    let warm = |mut all: Vec<f64>| median(all.split_off(1));
    table.value("50 packs, 1,000 tools: a native tool called at once", "ms", warm(native), Goal::None);
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

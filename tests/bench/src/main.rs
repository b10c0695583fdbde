//! `make bench`: the numbers of the main job, beside the least that they can cost on this machine, measured in the same run.
//!
//! The floors, the tool server and the idle clients are this program too, as processes of their own.

mod calls;
mod client;
mod crowd;
mod echo;
mod floor;
mod load;
mod own;
mod packs;
mod programs;
mod sdk;
mod start;
mod system;
mod table;
mod work;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::Context as _;
use serde_json::json;
use table::Table;

/// All measures together; a run that hangs ends with an error.
const RUN_WITHIN: Duration = Duration::from_secs(360);

/// The parts of a run, in their order.
const PARTS: [&str; 10] =
    ["start", "packs", "calls", "commits", "reconnect", "waiting", "flapping", "noisy", "morning", "idle"];

fn main() -> anyhow::Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["echo"] => echo::serve(0),
        ["echo", tools, wait] => {
            std::thread::sleep(Duration::from_millis(wait.parse()?));
            echo::serve(tools.parse()?)
        }
        ["floor-brain"] => small(floor::brain()),
        ["floor-foot", brain] => small(floor::foot(brain)),
        ["floor-local"] => small(floor::local()),
        ["floor-sdk-local"] => small(sdk::local()),
        ["crowd", addr, token, kind] => small(crowd::keep(addr, token, kind)),
        ["clients", addr, token] => small(client::keep(addr, token)),
        parts if parts.iter().all(|part| PARTS.contains(part)) => whole(parts),
        other => anyhow::bail!("{other:?}: expected parts of the bench: {}", PARTS.join(" ")),
    }
}

/// One thread.
fn small<T>(part: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, part)
}

fn whole(parts: &[&str]) -> anyhow::Result<()> {
    system::raise_open_files()?;
    std::thread::spawn(|| {
        std::thread::sleep(RUN_WITHIN);
        eprintln!("the run took more than {} s", RUN_WITHIN.as_secs());
        std::process::exit(1);
    });
    let wanted = |part: &str| parts.is_empty() || parts.contains(&part);
    let mut table = Table::default();
    let before = system::load();
    let mut client_rate = None;
    for part in PARTS.into_iter().filter(|part| wanted(part)) {
        eprintln!("{part}");
        let done = match part {
            "start" => start::measure(&mut table),
            "packs" => packs::measure(&mut table),
            "calls" => calls::measure(&mut table).map(|rate| client_rate = Some(rate)),
            "commits" => work::commits(&mut table),
            "reconnect" => work::reconnect(&mut table, client_rate),
            "waiting" => work::waiting(&mut table),
            "flapping" => crowd::flapping(&mut table),
            "noisy" => crowd::noisy(&mut table),
            "morning" => crowd::morning(&mut table),
            _ => client::idle(&mut table),
        };
        done.with_context(|| format!("in the part '{part}'"))?;
    }
    println!("{}", table.markdown());
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let profile = programs::profile();
    let about = json!({
        "at": now, "cores": cores, "load_before": before, "load_after": system::load(),
        "kernel": std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim(),
        "profile": profile.file_name().and_then(|n| n.to_str()),
    });
    let written = table.write(&profile.with_file_name("bench"), &now.to_string(), &about)?;
    println!("{cores} cores, load {before} before; kept in {}", written.display());
    Ok(())
}

//! Calls: over the laptop, on the server, large ones, and those that may not run twice; each beside its floor, round by round.

use std::time::Duration;

use serde_json::json;

use super::load::{Target, alone, together};
use super::own::Own;
use super::programs::{Brain, Home};
use super::system::{cpu, flush_micros, median};
use super::table::{Goal, Table};

/// Rounds of each measure; the middle one counts.
const ROUNDS: usize = 3;
/// Calls of a round, one after another.
const ALONE: usize = 3_000;
/// How long a round with several connections lasts.
const LASTING: Duration = Duration::from_millis(1_500);
/// Before the first round.
const WARM: Duration = Duration::from_millis(700);
/// What is sent.
const TEXT: &str = "the quick brown fox jumps over the lazy dog";

/// One way of a call, and the processes that it costs.
struct Way {
    target: Target,
    pids: Vec<i32>,
}

/// What was measured of a way, by round.
#[derive(Default)]
struct Found {
    p50: Vec<f64>,
    p99: Vec<f64>,
    rate: Vec<f64>,
    cpu: Vec<f64>,
}

impl Way {
    fn warm(&self) -> anyhow::Result<()> {
        together(&self.target, 16, WARM).map(drop)
    }

    fn alone(&self, calls: usize, found: &mut Found) -> anyhow::Result<()> {
        let run = alone(&self.target, calls, Duration::ZERO)?;
        found.p50.push(run.micros(0.5));
        found.p99.push(run.micros(0.99));
        Ok(())
    }

    fn together(&self, found: &mut Found) -> anyhow::Result<()> {
        found.rate.push(together(&self.target, 64, LASTING)?.rate());
        let before = cpu(&self.pids)?;
        let run = together(&self.target, 16, LASTING)?;
        found.cpu.push((cpu(&self.pids)? - before).as_secs_f64() * 1e6 / run.calls());
        Ok(())
    }
}

/// Measures; gives the rate of client calls.
pub(crate) fn measure(table: &mut Table) -> anyhow::Result<f64> {
    let home = Home::new()?;
    let exe = std::env::current_exe()?;
    let pack =
        json!({"name": "bench", "type": "mcp_server", "parameters": {"transport": "stdio", "command": [exe, "echo"]}});
    home.write("foot-tools/bench.json", &pack.to_string())?;
    let mut server_pack = pack;
    server_pack["name"] = json!("here");
    home.write("brain/packs/here.json", &server_pack.to_string())?;
    let brain = Brain::start(&home)?;
    let foot = brain.foot(&home, &["bench__echo", "here__echo"])?;
    let (brain_pid, foot_pid) = (brain.program.pid()?, foot.pid()?);
    let ours = |tool: &str, pids: &[i32], holds| {
        let body = json!({"arguments": {"text": TEXT}}).to_string();
        let path = format!("/api/v1/tools/{tool}/call");
        Way { target: Target::post(&brain.addr, &path, &brain.token, "json", &body, holds), pids: pids.to_vec() }
    };
    let floors = Floors::start()?;
    let ways = Ways {
        floor: floors.way("echo", &floors.path),
        floor_big: floors.way("big", &floors.path),
        local: floors.way("echo", &floors.local),
        sdk: floors.way("echo", &floors.sdk),
        routed: ours("bench__echo", &[brain_pid, foot_pid], TEXT),
        big: ours("bench__big", &[brain_pid, foot_pid], "xxxxxxxx"),
        write: ours("bench__write", &[brain_pid, foot_pid], TEXT),
        server: ours("here__echo", &[brain_pid], TEXT),
    };
    ways.measure(table, &home.path())
}

struct Ways {
    floor: Way,
    floor_big: Way,
    local: Way,
    sdk: Way,
    routed: Way,
    big: Way,
    write: Way,
    server: Way,
}

impl Ways {
    fn measure(&self, table: &mut Table, dir: &std::path::Path) -> anyhow::Result<f64> {
        let all =
            [&self.floor, &self.floor_big, &self.local, &self.sdk, &self.routed, &self.big, &self.write, &self.server];
        for way in all {
            way.warm()?;
        }
        let mut found: [Found; 8] = Default::default();
        for _ in 0..ROUNDS {
            for (way, found) in all.iter().zip(&mut found) {
                way.alone(ALONE, found)?;
            }
        }
        for _ in 0..ROUNDS {
            for (at, (way, found)) in all.iter().zip(&mut found).enumerate() {
                // Large results and writes are measured alone.
                if ![1, 5, 6].contains(&at) {
                    way.together(found)?;
                }
            }
        }
        let flush = flush_micros(dir, 200)?;
        let mid = |values: &Vec<f64>| median(values.clone());
        let [floor, floor_big, local, sdk, routed, big, write, server] = &found;
        let mut ratio = |what, unit, base, ours, goal| table.ratio(what, unit, base, ours, goal);
        ratio("routed laptop call, p50 at 1", "µs", mid(&floor.p50), mid(&routed.p50), Goal::Most(1.5));
        ratio("routed laptop call, p99 at 1", "µs", mid(&floor.p99), mid(&routed.p99), Goal::Most(1.8));
        ratio("routed laptop call, at 64", "calls/s", mid(&floor.rate), mid(&routed.rate), Goal::Least(0.5));
        ratio("routed, Brain and Foot, at 16", "CPU µs/call", mid(&floor.cpu), mid(&routed.cpu), Goal::Most(2.5));
        ratio(
            "server tool, p50 at 1 (base: floor, SDK, local)",
            "µs",
            mid(&sdk.p50),
            mid(&server.p50),
            Goal::Most(1.0),
        );
        ratio("server tool, p99 at 1", "µs", mid(&sdk.p99), mid(&server.p99), Goal::Most(1.0));
        ratio("server tool, at 64", "calls/s", mid(&sdk.rate), mid(&server.rate), Goal::Least(1.0));
        ratio("server tool, at 16", "CPU µs/call", mid(&sdk.cpu), mid(&server.cpu), Goal::Most(1.0));
        ratio("server tool, p50 at 1 (base: floor, local)", "µs", mid(&local.p50), mid(&server.p50), Goal::None);
        ratio("server tool, at 64 (base: floor, local)", "calls/s", mid(&local.rate), mid(&server.rate), Goal::None);
        ratio("server tool, at 16 (base: floor, local)", "CPU µs/call", mid(&local.cpu), mid(&server.cpu), Goal::None);
        ratio("64 KiB result over the laptop, p50 at 1", "µs", mid(&floor_big.p50), mid(&big.p50), Goal::Most(1.5));
        ratio("64 KiB result over the laptop, p99 at 1", "µs", mid(&floor_big.p99), mid(&big.p99), Goal::None);
        ratio(
            "call that may not run twice, p50 (base: safe call)",
            "µs",
            mid(&routed.p50),
            mid(&write.p50),
            Goal::None,
        );
        let more = mid(&write.p50) - mid(&routed.p50);
        ratio("what its durable write adds (base: a disk flush)", "µs", flush, more, Goal::Most(1.4));
        Ok(mid(&routed.rate))
    }
}

/// The floors' processes.
struct Floors {
    path: Floor,
    local: Floor,
    sdk: Floor,
}

struct Floor {
    addr: String,
    parts: Vec<Own>,
}

impl Floors {
    fn start() -> anyhow::Result<Self> {
        let mut brain = Own::start(&["floor-brain"])?;
        let socket = brain.line("socket ")?;
        let foot = Own::start(&["floor-foot", &socket])?;
        let path = Floor { addr: brain.line("ready ")?, parts: vec![brain, foot] };
        let one = |part: &str| {
            let mut part = Own::start(&[part])?;
            anyhow::Ok(Floor { addr: part.line("ready ")?, parts: vec![part] })
        };
        Ok(Self { path, local: one("floor-local")?, sdk: one("floor-sdk-local")? })
    }

    fn way(&self, tool: &str, floor: &Floor) -> Way {
        let body = json!({"name": tool, "arguments": {"text": TEXT}}).to_string();
        let holds = if tool == "big" { "xxxxxxxx" } else { TEXT };
        let pids = floor.parts.iter().filter_map(|part| part.pid().ok()).collect();
        Way { target: Target::post(&floor.addr, "/call", "none", "json", &body, holds), pids }
    }
}

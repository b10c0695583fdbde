//! `vance-brain`: the Brain and its command line.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;

/// How long the last spans may hold up the end.
const SPANS_WITHIN: Duration = Duration::from_secs(2);

/// Threads for I/O; more than four gain nothing while one writer serves them all.
const MAX_WORKERS: usize = 4;

/// Small things of sessions and calls come and go among each other: the system's allocator keeps half of the memory as holes.
#[global_allocator]
static MEMORY: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> anyhow::Result<ExitCode> {
    vance_mcp_host::guard::enter_if_asked();
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("another crypto provider is already installed"))?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let exit = vance_supervise::run(cores.min(MAX_WORKERS), vance_brain::cli::main()).context("no threads")?;
    vance_observability::spans::stop(SPANS_WITHIN);
    Ok(ExitCode::from(exit))
}

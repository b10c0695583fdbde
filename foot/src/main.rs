//! `vancetope`: the Foot and its command line.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;

/// A call makes and drops dozens of small values, which the C library's allocator takes a fifth of its time for.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long the last spans may hold up the end.
const SPANS_WITHIN: Duration = Duration::from_secs(2);

/// Threads for I/O: a Foot waits far more than it computes.
const WORKERS: usize = 2;

fn main() -> anyhow::Result<ExitCode> {
    vance_foot::native::enter_if_asked();
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("another crypto provider is already installed"))?;
    let exit = vance_supervise::run(WORKERS, vance_foot::cli::main()).context("no threads")?;
    vance_observability::spans::stop(SPANS_WITHIN);
    Ok(ExitCode::from(exit))
}

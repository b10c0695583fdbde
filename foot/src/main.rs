//! `vancetope`: the Foot and its command line.

use std::process::ExitCode;

use anyhow::Context as _;

/// Threads for I/O: a Foot waits far more than it computes.
const WORKERS: usize = 2;

fn main() -> anyhow::Result<ExitCode> {
    vance_foot::native::enter_if_asked();
    rustls::crypto::ring::default_provider()
        .install_default()
        .map_err(|_| anyhow::anyhow!("another crypto provider is already installed"))?;
    let exit = vance_supervise::run(WORKERS, vance_foot::cli::main()).context("no threads")?;
    Ok(ExitCode::from(exit))
}

//! The one spawner of the product: every child runs under a guard, so that no process outlives its owner.
//!
//! ```text
//! host (Brain or Foot)
//!  ├─ lease: a socket pair; the host's end closes when the host ends, even by `kill -9`
//!  └─ guard: this same program, started as `PROGRAM __guard FD -- ARGV…`; own session, subreaper
//!      └─ leader: the real program, in its own process group, on the host's pipes
//!          └─ descendants; those that call `setsid` or lose their parent come back to the guard
//! ```
//!
//! The guard ends the whole tree (SIGTERM, a grace, SIGKILL) when the leader ends, when the lease closes, when it is asked
//! to over the lease, or on SIGTERM; it ends itself when nothing is left. It says over the lease, a line each:
//! `pid N` or `fail TEXT` once, then `exit N` or `signal N`. The host says `end MS`.

mod child;
#[cfg(unix)]
mod fence;
mod find;
#[cfg(unix)]
mod keeper;
#[cfg(unix)]
mod tree;

use std::ffi::OsStr;
use std::time::Duration;

pub use child::{Exit, GuardedChild, Spawn, SpawnError, spawn};
pub use find::find_program;

/// First argument of a program that is to be the guard.
pub const GUARD_WORD: &str = "__guard";

/// Between SIGTERM and SIGKILL when nobody named a grace: the owner is gone or the leader ended by itself, so nobody waits for a long farewell.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(1);

/// Becomes the guard, and never returns, if the program was started as one. The first line of `main`, before any thread or runtime.
pub fn enter_if_asked() {
    let mut args = std::env::args_os().skip(1);
    if args.next().as_deref() != Some(OsStr::new(GUARD_WORD)) {
        return;
    }
    #[cfg(unix)]
    let code = keeper::run(args.collect());
    #[cfg(not(unix))]
    let code = 2;
    std::process::exit(code);
}

//! What the process asks of the system.

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Enough for every connection and socket that the server takes, and the files beside them.
const OPEN_FILES: u64 = 32_768;

/// Raises the limit of open files as far as it is wanted and allowed: many systems start programs with 1,024. Without it the
/// Brain still works, for fewer clients.
pub(super) fn raise_open_files() {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else { return };
    let wanted = hard.min(OPEN_FILES);
    if soft >= wanted {
        return;
    }
    match setrlimit(Resource::RLIMIT_NOFILE, wanted, hard) {
        Ok(()) => tracing::debug!(soft, wanted, "raised the limit of open files"),
        Err(error) => tracing::warn!(soft, wanted, %error, "cannot raise the limit of open files"),
    }
}

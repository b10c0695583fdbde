//! The native tools as a caller sees them: real files, real processes, the real program as the guard.
#![allow(clippy::unwrap_used, clippy::expect_used)]

#[path = "native/files.rs"]
mod files;
#[path = "native/foreign.rs"]
mod foreign;
#[path = "native/programs.rs"]
mod programs;
#[cfg(target_os = "linux")]
#[path = "native/sandboxed.rs"]
mod sandboxed;
#[path = "native/support.rs"]
mod support;

//! The Brain's shell: what owns the store, sockets, files and processes. Decisions live in `vance_brain_core`.

pub mod actors;
pub mod builtin;
pub mod guardrails;
pub mod home;
pub mod metrics;
pub mod store;
pub mod tokens;

//! The Brain's shell: what owns the store, sockets, files and processes. Decisions live in `vance_brain_core`.

pub mod actors;
pub mod api;
pub mod blobs;
pub mod builtin;
pub mod cli;
pub mod directory;
pub mod executor;
pub mod guardrails;
pub mod home;
pub mod http;
pub mod hub;
pub mod kept;
pub mod link;
pub mod metrics;
pub mod news;
pub mod outbox;
pub mod progress;
pub mod questions;
pub mod random;
pub mod recovery;
pub mod rows;
pub mod secrets;
pub mod serve;
pub mod store;
pub mod tls;
pub mod tokens;

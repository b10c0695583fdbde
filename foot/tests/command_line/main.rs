//! Every command of `vancetope` that talks to a Brain, against one that speaks just the API.
#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub)]

mod asked_by_servers;
mod asking;
mod calling;
mod consenting;
mod fake_brain;
mod harness;
mod import;
mod local;
mod packs;
mod prompt;
mod queries;
mod running;
mod serving;
mod setup;
mod signing_in;
mod terminal;
mod typing;
mod unattended;

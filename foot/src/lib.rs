//! The Foot: a program on a person's machine that offers its tools to the Brain, and the person's command line.

pub(crate) mod actors;
pub mod api;
pub mod cli;
pub(crate) mod control;
pub mod engine;
pub mod identity;
pub mod journal;
pub mod native;
pub mod packs;
pub mod paths;
pub(crate) mod secret;
pub mod trust;

//! The Brain's decisions as plain values and functions: no clock, no channel, no file. Time comes in as `now`, ids come in from the caller.

pub mod board;
pub mod config;
pub mod engine;
pub mod expression;
pub mod registry;
pub mod registry_file;
pub mod route;
pub mod session;
pub mod spec;
pub mod task;
pub mod tree_file;

//! The Foot's decisions: what to do about a call, a cut line, a pack file, a command. Plain values and functions; time,
//! ids and file texts come in from the shells in `vance-foot`. No clock, no socket, no file, no task.

pub mod calls;
pub mod command;
pub mod config;
pub mod levels;
pub mod link;
pub mod merge;
pub mod permissions;
pub mod select;

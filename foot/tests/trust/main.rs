//! Stories of the trust gate with the real program, real child processes and a terminal: for every attack the marker stays absent.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod answers;
mod attacks;
mod brains;
mod changes;
mod commands;
mod desk;
mod many;
mod rest;
mod stops;

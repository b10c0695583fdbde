//! The Foot: a program on a person's machine that offers its tools to the Brain, and the person's command line.

pub mod api;
pub mod cli;

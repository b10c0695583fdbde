//! One call is one trace: from the request over the task on the Brain to the tool on the Foot, as a collector receives it from
//! both processes.
#![allow(missing_docs)]

#[path = "tracing/away.rs"]
mod away;
#[path = "tracing/collector.rs"]
mod collector;
#[path = "tracing/rest.rs"]
mod rest;
#[path = "tracing/teller.rs"]
mod teller;
#[path = "tracing/trees.rs"]
mod trees;

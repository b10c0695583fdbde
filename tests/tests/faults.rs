//! What the Brain and the Foot survive, as real processes: kills, cuts, floods, full disks, broken servers. Effects are judged
//! by a ledger that only the tools write.
#![allow(missing_docs)]

#[path = "faults/cuts.rs"]
mod cuts;
#[path = "faults/storm.rs"]
mod storm;

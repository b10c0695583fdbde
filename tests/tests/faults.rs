//! What the Brain and the Foot survive, as real processes: kills, cuts, floods, full disks, broken servers. Effects are judged
//! by a ledger that only the tools write.
#![allow(missing_docs)]

#[path = "faults/blobs.rs"]
mod blobs;
#[path = "faults/cuts.rs"]
mod cuts;
#[path = "faults/disk.rs"]
mod disk;
#[path = "faults/load.rs"]
mod load;
#[path = "faults/noisy.rs"]
mod noisy;
#[path = "faults/packs.rs"]
mod packs;
#[path = "faults/panics.rs"]
mod panics;
#[path = "faults/races.rs"]
mod races;
#[path = "faults/releases.rs"]
mod releases;
#[path = "faults/sleep.rs"]
mod sleep;
#[path = "faults/states.rs"]
mod states;
#[path = "faults/storm.rs"]
mod storm;
#[path = "faults/versions.rs"]
mod versions;

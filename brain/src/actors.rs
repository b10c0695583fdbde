//! The Brain's actors: thin shells around decisions and resources, one file each.

pub mod store_gate;

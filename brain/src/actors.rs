//! The Brain's actors: thin shells around decisions and resources, one file each.

pub mod pack_loader;
pub mod registry;
pub mod scheduler;
pub mod session;
pub mod store_gate;
pub mod task;

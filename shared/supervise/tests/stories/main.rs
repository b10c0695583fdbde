//! What supervision promises, told with real actors on a virtual clock.
#![allow(clippy::unwrap_used, clippy::expect_used, unreachable_pub, missing_docs)]

mod escalation;
mod mailbox;
mod metrics;
mod panics;
mod probe;
mod restarts;
mod stops;
mod threads;

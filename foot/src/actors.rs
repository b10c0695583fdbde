//! The Foot's actors.
//!
//! ```text
//! foot (one for one)
//! ├── line (rest for one)         a new Dispatcher means a new line: its hello is the reconciliation
//! │   ├── dispatcher              table of calls; its past is the journal, its running calls are tasks that outlive it
//! │   └── link                    when to connect, ping, give up; the socket itself is one task (`line`)
//! └── packs (rest for one)        a new loader starts all packs anew
//!     ├── loader                  pack files, tool table
//!     └── servers (one for one)   a supervisor for each pack's server: one pack never harms another
//! ```
//!
//! A call's way: `line` → `dispatcher` → task (`run`) → tool → `dispatcher` → `line`. All but the native tools' own work is on
//! the one actor thread, so a call costs no wake-up of another thread. The tool table is an immutable snapshot in a watch
//! channel: the loader writes it, the dispatcher and the line read it.

pub(crate) mod announce;
pub(crate) mod catalogue;
pub(crate) mod connection;
pub(crate) mod dial;
pub(crate) mod dispatcher;
pub(crate) mod gate;
pub(crate) mod hosts;
pub(crate) mod kept;
pub(crate) mod line;
pub(crate) mod link;
pub(crate) mod loader;
pub(crate) mod questions;
pub(crate) mod run;
pub(crate) mod runs;

//! What Brain and Foot agree on: ids, names, tools, calls, packs and the wire. Vocabulary only: no I/O, no actors.

pub mod address;
pub mod blob;
pub mod call;
pub mod doc;
pub mod gate;
pub mod ids;
pub mod json;
pub mod launch;
pub mod limits;
pub mod mend;
pub mod names;
pub mod pack;
pub mod question;
pub mod schema;
pub mod secrets;
pub mod show;
pub mod summary;
pub mod tool;
pub mod trace;
pub mod wire;

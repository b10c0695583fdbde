//! One pack's server as one actor: a stdio child under a guard, streamable HTTP, or an HTTP API that an OpenAPI document describes.
//!
//! [`server()`] gives a handle to call with and a supervisor to start; [`guard`] is also what every other child of the product starts under.

mod addresses;
pub mod auth;
mod budget;
mod call;
mod client;
mod conn;
pub mod env;
mod fault;
pub mod files;
mod flights;
pub mod guard;
mod handle;
mod http;
mod lane;
mod life;
mod line;
mod link;
mod mask;
mod people;
mod reading;
pub mod rest;
pub mod sandbox;
mod server;
mod shared;
pub mod stamps;
mod stderr;
mod stdio;
mod tools;
mod vault;

pub use call::ProgressSink;
pub use conn::{CALL_ID_META, TRACEPARENT_META};
pub use handle::{CallRequest, EventSink, HostEnv, HostEvent, HostState, McpHandle, Progress};
pub use people::{Asking, Elicit, Elicited, People, Person, Question};
pub use server::{server, server_with_people};
pub use stdio::MAX_LINE_BYTES;
pub use tools::{MAX_LIST_BYTES, MAX_PAGES, MAX_TOOLS};
pub use vault::Vault;

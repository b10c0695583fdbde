//! `rest_api` packs without their I/O: an OpenAPI document becomes tools, arguments become requests, answers become results.
//!
//! The way of a call, as whoever does the I/O walks it:
//!
//! 1. [`document::Document::parse`] on the bytes; [`api::Api::load`] with the pack's plan. Both once; the `Api` is shared.
//! 2. [`settings::Settings::of`] once the pack may be started: secrets are expanded by a function of the caller's.
//! 3. [`exposure`] says which tools are offered, and what a call of one of them means.
//! 4. [`request::tokens`] names the OAuth tokens that the call needs; [`token`] decides whether those in hand will do.
//! 5. [`request::build`] checks the arguments and gives the request, or a fault with a code of [`error::Code`].
//! 6. [`attempt`] decides on retries, redirects and waits; [`result::shape`] makes the result.
//!
//! Nothing in here reads a clock, a file, a socket or the environment, and every text of a document is data.

pub mod api;
pub mod attempt;
mod cut;
pub mod document;
pub mod error;
pub mod exposure;
mod filter;
mod leads;
mod names;
pub mod operation;
mod raw;
pub mod request;
pub mod result;
mod schema;
mod security;
mod server;
pub mod settings;
mod text;
pub mod token;

//! The Brain's doors and keys, with real processes: who gets in, over what line, and what the Brain keeps to itself.
#![allow(missing_docs)]

#[path = "doors/encrypted.rs"]
mod encrypted;
#[path = "doors/logins.rs"]
mod logins;
#[path = "doors/secrets.rs"]
mod secrets;
#[path = "doors/tokens.rs"]
mod tokens;

//! The Brain's HTTP API, typed.

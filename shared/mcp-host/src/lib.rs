//! One MCP server as one actor: a stdio child under a guard, or streamable HTTP.

pub mod env;
pub mod guard;

//! Widely used MCP servers from npm and PyPI, in real Feet. `docs/servers.md` is the list: packs, calls and answers are taken from
//! there, and what `npx` and `uvx` would download stands in the tests' cache in the version of the page.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, dead_code)]

#[path = "servers/asked.rs"]
mod asked;
#[path = "servers/chrome.rs"]
mod chrome;
#[path = "servers/installed.rs"]
mod installed;
#[path = "servers/page.rs"]
mod page;
#[path = "servers/place.rs"]
mod place;
#[path = "servers/shelf.rs"]
mod shelf;
// One terminal for all who sit at one.
#[path = "../../foot/tests/command_line/terminal.rs"]
mod terminal;

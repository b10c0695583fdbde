//! The words of `vancetope packs`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use vance_shared::names::PackName;

pub(in crate::cli) const EXAMPLES: &str = "\
Examples:
  vancetope packs                          every pack file of both levels, and whether it counts
  vancetope packs check ~/.vancetope/foot-tools/chrome.json   every mistake with its line; exit 2 if there is one
  vancetope packs check chrome.json --dry-run                 what would be started, with which environment
  vancetope packs add chrome -- npx -y chrome-devtools-mcp@latest
  vancetope packs add jira --url https://mcp.example.org/mcp --header 'Authorization=Bearer ${env:JIRA_TOKEN}'
  vancetope packs import                   what other programs on this machine have
  vancetope packs import --from claude-desktop --dry-run
  vancetope packs diff chrome              what the project's pack changes in yours

Nothing here starts a pack or reaches its server.";

#[derive(Debug, Subcommand)]
pub(in crate::cli) enum PacksCommand {
    /// List the pack files of both levels (the default)
    List,
    /// Validate pack files and print every mistake as FILE:LINE: message
    Check(CheckArgs),
    /// Write a pack file for an MCP server
    Add(AddArgs),
    /// Take MCP servers over from another program's file
    Import(ImportArgs),
    /// Show what the project's packs change in yours; exit 1 if there is a difference
    Diff {
        /// Only this pack
        #[arg(value_name = "NAME", value_parser = PackName::parse)]
        pack: Option<PackName>,
    },
}

#[derive(Debug, Args)]
pub(in crate::cli) struct CheckArgs {
    #[arg(value_name = "FILE", required = true)]
    pub(super) files: Vec<PathBuf>,

    /// Show what would be started or reached, with real values
    #[arg(long)]
    pub(super) dry_run: bool,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct AddArgs {
    /// The pack's name: its tools are called NAME__TOOL
    #[arg(value_name = "NAME", value_parser = PackName::parse)]
    pub(super) pack: PackName,

    /// Into ./.vancetope/foot-tools, for everybody who works in this folder (it asks before it runs)
    #[arg(long)]
    pub(super) project: bool,

    /// A variable for the server; K alone takes the value from the Foot's environment
    #[arg(long, value_name = "K=V", value_parser = variable, conflicts_with = "url")]
    pub(super) env: Vec<(String, String)>,

    /// The server's working directory; . is the project, without it a private empty folder
    #[arg(long, value_name = "DIR", conflicts_with = "url")]
    pub(super) cwd: Option<String>,

    /// The address of a server that speaks streamable HTTP
    #[arg(long, value_name = "URL", conflicts_with = "command")]
    pub(super) url: Option<String>,

    /// A header for the server
    #[arg(long, value_name = "K=V", value_parser = header, requires = "url", conflicts_with = "command")]
    pub(super) header: Vec<(String, String)>,

    /// A label, so that task trees can ask for a capability
    #[arg(long, value_name = "LABEL")]
    pub(super) label: Vec<String>,

    /// What the pack is for
    #[arg(long, value_name = "TEXT")]
    pub(super) description: Option<String>,

    /// Replace a pack of this name
    #[arg(long)]
    pub(super) force: bool,

    /// The server's program and its arguments
    #[arg(value_name = "COMMAND", last = true)]
    pub(super) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(in crate::cli) struct ImportArgs {
    /// A file with `mcpServers`, `servers` or [mcp_servers]
    #[arg(value_name = "FILE", conflicts_with = "from")]
    pub(super) file: Option<PathBuf>,

    /// The program whose own file to read
    #[arg(long, value_name = "PROGRAM")]
    pub(super) from: Option<Program>,

    /// Only these servers, by their names there or here
    #[arg(long = "only", value_name = "NAME")]
    pub(super) only: Vec<String>,

    /// Show what would be written, and write nothing
    #[arg(long, conflicts_with = "yes")]
    pub(super) dry_run: bool,

    /// Write without asking
    #[arg(long)]
    pub(super) yes: bool,

    /// Replace packs that are there already
    #[arg(long)]
    pub(super) force: bool,
}

/// Programs whose MCP servers can be taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(in crate::cli) enum Program {
    /// claude_desktop_config.json
    ClaudeDesktop,
    /// ~/.claude.json
    ClaudeCode,
    /// ~/.cursor/mcp.json
    Cursor,
    /// mcp.json of the user's profile
    Vscode,
    /// ~/.codex/config.toml
    Codex,
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        None if !text.is_empty() => Ok((text.to_owned(), format!("${{env:{text}}}"))),
        Some(_) | None => Err("expected NAME=VALUE, or NAME for the Foot's own".to_owned()),
    }
}

fn header(text: &str) -> Result<(String, String), String> {
    // As `curl` writes it, too. Whichever comes first: values hold both.
    let at = text.find(['=', ':']).filter(|at| *at > 0).ok_or("expected NAME=VALUE")?;
    Ok((text[..at].to_owned(), text[at + 1..].trim_start().to_owned()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn variables_and_headers_are_read_as_people_write_them() {
        for (text, want) in [
            ("A=1", Some(("A", "1"))),
            ("A=b=c", Some(("A", "b=c"))),
            ("A", Some(("A", "${env:A}"))),
            ("=1", None),
            ("", None),
        ] {
            let got = variable(text).ok();
            assert_eq!(got.as_ref().map(|(k, v)| (k.as_str(), v.as_str())), want, "{text}");
        }
        for (text, want) in [
            ("Authorization=Bearer a=", Some(("Authorization", "Bearer a="))),
            ("Authorization: Bearer x", Some(("Authorization", "Bearer x"))),
            ("X-Time=12:30", Some(("X-Time", "12:30"))),
            ("X", None),
            ("=x", None),
        ] {
            let got = header(text).ok();
            assert_eq!(got.as_ref().map(|(k, v)| (k.as_str(), v.as_str())), want, "{text}");
        }
    }
}

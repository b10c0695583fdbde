//! The command line's words. One table feeds the parser, the help and the usage errors.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::tokens::Scope;

const EXAMPLES: &str = "\
Examples:
  vance-brain serve                        serve on 127.0.0.1:9990 from ~/.vancetope
  vance-brain check                        every mistake in the Brain's files, with its line
  vance-brain secret set JIRA_TOKEN        a credential for server packs
  vance-brain token new --name alice       a token for another person or machine

Environment:
  VANCE_HOME           instead of ~/.vancetope (--home)
  VANCE_BRAIN_LISTEN   HOST:PORT (--listen)
  VANCE_BRAIN_STORE    where events are kept (--store)
  VANCE_BRAIN_JSON=1   results and errors as JSON (--json)
  VANCE_LOG            a log filter such as `debug` or `warn,vance_brain=debug` (replaces -v)
  VANCE_LOG_FORMAT=json   log lines as JSON

Results go to standard output, log lines to standard error.
Exit codes: 0 done, 1 failed, 2 wrong usage or files with mistakes.";

const SERVE_EXAMPLES: &str = "\
Examples:
  vance-brain serve
  vance-brain serve --home /srv/vance --listen 127.0.0.1:0   any free port; the ready line names it
  VANCE_LOG_FORMAT=json vance-brain serve -v

An empty home will do. One line on standard output says when it is ready: `brain ready http://HOST:PORT`.
The token for this machine is in <home>/brain/local.token. SIGTERM and Ctrl-C let what runs finish, then it ends with 0.";

const CHECK_EXAMPLES: &str = "\
Examples:
  vance-brain check                        FILE:LINE: what, expected what
  vance-brain check --home ./vance --json | jq .problems

Looks at brain.yaml, tools.yaml, packs/*.json and engines/*.yaml of <home>/brain. Starts nothing, fetches nothing.
Exit codes: 0 no problems, 2 some.";

const OAUTH_EXAMPLES: &str = "\
Examples:
  vance-brain oauth login jira              in a browser on this machine, which comes back by itself
  vance-brain oauth login jira --device     by a code that is typed on any machine, where the server offers that
  vance-brain oauth login jira --forget

For server packs whose server asks for OAuth. Tokens are encrypted in <home>/brain/data and renewed by themselves; a running Brain uses
them at once. Through SSH a browser elsewhere reaches this machine with `ssh -L PORT:127.0.0.1:PORT` and `callbackPort` in the pack.";

const SECRET_EXAMPLES: &str = "\
Examples:
  vance-brain secret set JIRA_TOKEN                 asks for the value, without showing it
  vance-brain secret set JIRA_TOKEN < token.txt     from standard input, less one line break
  vance-brain secret list
  vance-brain secret rm JIRA_TOKEN
  vance-brain secret rotate                         another master key; no value changes

Server packs use {{secret:NAME}} in env values, headers and auth, brain.yaml in api_key (in quotes). Values are encrypted in
<home>/brain/data, and shown nowhere. A running Brain starts the packs that use a changed secret again.";

const TOKEN_EXAMPLES: &str = "\
Examples:
  vance-brain token new --name alice                    prints the token, this once
  vance-brain token new --name dashboard --scope api
  vance-brain token list
  vance-brain token revoke alice

A running Brain takes new tokens at once. Each name has its own sessions and tasks, which nobody else sees. Revoking ends open lines,
event streams and running calls; a new token of the same name finds the sessions again.
Scopes: foot (offer a machine's tools), api (tasks, sessions, calls, events), mcp (the MCP endpoint), admin (metrics).";

/// Runs task trees and routes every tool call.
#[derive(Debug, Parser)]
#[command(name = "vance-brain", version, after_help = EXAMPLES, arg_required_else_help = true)]
pub(super) struct Cli {
    /// Results as JSON on standard output, errors as {"error": {"code", "message"}}
    #[arg(long, global = true, env = "VANCE_BRAIN_JSON", hide_env = true, value_parser = clap::builder::FalseyValueParser::new())]
    pub(super) json: bool,

    /// Log more; -vv and -vvv still more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(super) verbose: u8,

    #[command(subcommand)]
    pub(super) command: Command,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Serve until SIGTERM or Ctrl-C
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(ServeArgs),
    /// Validate every file of the Brain
    #[command(after_help = CHECK_EXAMPLES)]
    Check(HomeArgs),
    /// Credentials of server packs and settings, encrypted
    #[command(after_help = SECRET_EXAMPLES)]
    Secret {
        #[command(subcommand)]
        command: SecretCommand,
    },
    /// Logins of server packs
    #[command(after_help = OAUTH_EXAMPLES)]
    Oauth {
        #[command(subcommand)]
        command: OAuthCommand,
    },
    /// Who may speak to the Brain
    #[command(after_help = TOKEN_EXAMPLES)]
    Token {
        #[command(subcommand)]
        command: TokenCommand,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum OAuthCommand {
    /// Log in to the server of a pack
    #[command(after_help = OAUTH_EXAMPLES)]
    Login(LoginArgs),
}

#[derive(Debug, Args)]
pub(super) struct LoginArgs {
    /// The pack
    pub(super) pack: String,

    /// By a code that is typed on another machine
    #[arg(long)]
    pub(super) device: bool,

    /// Forget the login
    #[arg(long, conflicts_with = "device")]
    pub(super) forget: bool,

    #[command(flatten)]
    pub(super) home: HomeArgs,
}

#[derive(Debug, Subcommand)]
pub(super) enum SecretCommand {
    /// Set a secret, from standard input
    #[command(
        after_help = "Examples:\n  vance-brain secret set JIRA_TOKEN\n  vance-brain secret set JIRA_TOKEN < token.txt"
    )]
    Set {
        /// 1 to 64 of [A-Za-z0-9_.-]
        name: String,
        #[command(flatten)]
        home: HomeArgs,
    },
    /// Names and days; never the values
    #[command(after_help = "Examples:\n  vance-brain secret list\n  vance-brain secret list --json | jq .")]
    List(HomeArgs),
    /// Remove a secret
    #[command(after_help = "Examples:\n  vance-brain secret rm JIRA_TOKEN")]
    Rm {
        /// Which
        name: String,
        #[command(flatten)]
        home: HomeArgs,
    },
    /// Take another master key
    #[command(after_help = "Examples:\n  vance-brain secret rotate")]
    Rotate(HomeArgs),
}

#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Make a token and print it, alone on its line
    #[command(
        after_help = "Examples:\n  vance-brain token new --name alice\n  vance-brain token new --name dashboard --scope api,admin > token.txt"
    )]
    New {
        /// Whose it is: 1 to 64 of [A-Za-z0-9_.-]
        #[arg(long)]
        name: String,
        /// What it may do
        #[arg(long = "scope", value_name = "SCOPE", value_delimiter = ',', default_value = "foot,api,mcp", value_parser = Scope::parse)]
        scopes: Vec<Scope>,
        #[command(flatten)]
        home: HomeArgs,
    },
    /// Names, scopes and days; never the tokens
    #[command(after_help = "Examples:\n  vance-brain token list\n  vance-brain token list --json | jq .tokens")]
    List(HomeArgs),
    /// End a token, and what it opened
    #[command(after_help = "Examples:\n  vance-brain token revoke alice")]
    Revoke {
        /// Which
        name: String,
        #[command(flatten)]
        home: HomeArgs,
    },
}

#[derive(Debug, Args)]
pub(super) struct ServeArgs {
    /// The home (default: ~/.vancetope)
    #[arg(long, env = "VANCE_HOME", value_name = "DIR", hide_env_values = true)]
    pub(super) home: Option<PathBuf>,

    /// Where to listen; port 0 picks a free one (default: brain.yaml's, else 127.0.0.1:9990)
    #[arg(long, env = "VANCE_BRAIN_LISTEN", value_name = "HOST:PORT", hide_env_values = true)]
    pub(super) listen: Option<String>,

    /// Where events are kept; this release knows `sqlite:`, which is <home>/brain/data
    #[arg(long, env = "VANCE_BRAIN_STORE", value_name = "URL", hide_env_values = true)]
    pub(super) store: Option<String>,
}

#[derive(Debug, Args)]
pub(super) struct HomeArgs {
    /// The home (default: ~/.vancetope)
    #[arg(long, env = "VANCE_HOME", value_name = "DIR", hide_env_values = true)]
    pub(super) home: Option<PathBuf>,
}

/// Looks at `--store` after the parser, which would repeat the value in its error: a database's address may carry a password.
pub(super) fn check_store(text: &str) -> Result<(), &'static str> {
    match text.split_once(':').map_or(text, |(scheme, _)| scheme) {
        "sqlite" => Ok(()),
        "mongodb" | "mongodb+srv" => Err("--store: MongoDB is not in this release: use sqlite:"),
        _ => Err("--store: expected sqlite:"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        let words = line.split(' ').filter(|w| !w.is_empty());
        Cli::try_parse_from(std::iter::once("vance-brain").chain(words))
    }

    #[test]
    fn the_table_is_sound_and_every_command_has_help_with_examples() {
        use clap::CommandFactory as _;
        let command = Cli::command();
        command.clone().debug_assert();
        let examples = |c: &clap::Command| c.get_after_help().is_some_and(|t| t.to_string().starts_with("Examples:"));
        assert!(examples(&command));
        for sub in command.get_subcommands() {
            assert!(sub.get_about().is_some() && examples(sub), "{}", sub.get_name());
            for inner in sub.get_subcommands() {
                assert!(inner.get_about().is_some() && examples(inner), "{} {}", sub.get_name(), inner.get_name());
            }
        }
    }

    #[test]
    fn what_is_accepted_and_what_is_not() {
        for (line, ok) in [
            ("", false),
            ("serve", true),
            ("serve --home /x --listen 127.0.0.1:0 --store sqlite: -vv", true),
            ("--json serve", true),
            ("serve extra", false),
            ("check --home /x --json", true),
            ("check --listen 127.0.0.1:0", false),
            ("secret list", true),
            ("secret set A --home /x", true),
            ("secret set", false),
            ("secret set A value", false),
            ("secret rm A --json", true),
            ("secret rotate", true),
            ("token new", false),
            ("token", false),
            ("token new --name a --scope foot,api --scope mcp --home /x", true),
            ("token new --name a --scope root", false),
            ("token list --json", true),
            ("token revoke a", true),
            ("token revoke", false),
            ("oauth login x", true),
            ("oauth login x --device --json", true),
            ("oauth login x --device --forget", false),
            ("oauth login", false),
        ] {
            let got = parse(line);
            assert_eq!(got.is_ok(), ok, "{line}: {got:?}");
        }
    }

    #[test]
    fn another_store_says_what_to_use_and_repeats_no_password() {
        for (text, want) in [
            ("sqlite:", Ok(())),
            ("sqlite", Ok(())),
            ("mongodb://u:secret@h/db", Err("--store: MongoDB is not in this release: use sqlite:")),
            ("mongodb+srv://h", Err("--store: MongoDB is not in this release: use sqlite:")),
            ("postgres://u:secret@h", Err("--store: expected sqlite:")),
        ] {
            assert_eq!(check_store(text), want, "{text}");
        }
    }
}

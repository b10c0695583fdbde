//! The command line's words. One table feeds the parser, the help and the usage errors.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{Args, CommandFactory as _, Parser, Subcommand};
use reqwest::Url;
use vance_shared::ids::{SessionId, TaskId};
use vance_shared::names::ToolName;

use super::doctor;
use super::login::{self, LoginArgs};
use super::packs::{self, PacksCommand};
use super::tasks::answer::Answers;
use super::trace::{self, TraceArgs};
use super::trust::{self, TrustCommand};
use crate::api::Verdict;

const EXAMPLES: &str = "\
Examples:
  vancetope                                the prompt: offer this machine's tools, run task trees, look around
  vancetope --no-ui                        offer this machine's tools to the local Brain, until Ctrl-C
  vancetope --daemon --name laptop         the same for a service manager
  vancetope --skill-one-shot plan.yaml     one task tree, unattended: only its result on standard output
  vancetope run plan.yaml                  submit a task tree, be a Foot for it, follow it live
  vancetope tasks --state blocked          what waits, and for what
  vancetope tools list                     the tools of this machine, no Brain needed
  vancetope --brain https://brain.example.org tasks

Environment:
  VANCE_BRAIN   the Brain's URL (--brain); else the one of `vancetope login`, else the one that runs from this home
  VANCE_TOKEN   the token; else the one of `vancetope login`, else the local Brain's, which is found by itself
  VANCE_HOME    instead of ~/.vancetope
  VANCE_FOOT_TOOLS_DIR    instead of <home>/foot-tools, where the packs are
  VANCE_LOG     a log filter such as `info` or `warn,vance_foot=debug` (replaces -v)
  VANCE_LOG_FILE   a file for log lines (--log-file)
  VANCE_LOG_FORMAT=json   log lines as JSON
  NO_COLOR=1    log lines without colours

Results go to standard output, log lines to standard error.
Exit codes: 0 done, 1 failed, 2 wrong usage or a file with mistakes; `run` also 3: something waits.";

const RUN_EXAMPLES: &str = "\
Examples:
  vancetope run plan.yaml                  follow until every task has ended
  vancetope run --no-wait plan.yaml        return as soon as what is left waits (exit 3)
  vancetope run - < plan.json              from standard input
  vancetope run plan.yaml --json | jq .    the final state of the tree

Ctrl-C cancels what still lives of the tree, twice leaves at once.
Exit codes: 0 all completed or skipped, 1 something failed or was cancelled, 2 usage or file error, 3 something waits.";

const TASKS_EXAMPLES: &str = "\
Examples:
  vancetope tasks                          all tasks
  vancetope tasks --state blocked --watch  what waits, then every change as it comes
  vancetope tasks show task_0198…          one task with its calls
  vancetope tasks resolve task_0198… --as done --output '{\"text\": \"sent\"}'";

const SESSIONS_EXAMPLES: &str = "\
Examples:
  vancetope sessions                       your sessions and who is attached
  vancetope sessions tools sess_123        a session's active tools, where they live, why one is missing

A client is `online`, or in `grace`: its line was cut a moment ago, and it may still come back to its calls.";

const TOOLS_EXAMPLES: &str = "\
Examples:
  vancetope tools                          this machine's tools: native ones and packs
  vancetope tools call read_local_file '{\"path\": \"README.md\"}'
  vancetope tools call web_search '{\"query\": \"actix\"}' --via-brain --timeout 20s";

/// Offers this machine's tools to a Brain, submits task trees, and shows what the Brain does with them.
#[derive(Debug, Parser)]
#[command(name = "vancetope", version, after_help = EXAMPLES)]
pub(super) struct Cli {
    /// Be a Foot in the foreground, for a service manager
    #[arg(long)]
    pub(super) daemon: bool,

    /// Run one task tree unattended, print its result and end, with the exit codes of `run`
    #[arg(long, value_name = "FILE", conflicts_with_all = ["daemon", "rest_api"])]
    pub(super) skill_one_shot: Option<PathBuf>,

    /// Also serve a small HTTP interface for debugging, on this machine alone
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = "127.0.0.1:0", value_parser = loopback)]
    pub(super) rest_api: Option<SocketAddr>,

    #[command(flatten)]
    pub(super) general: General,

    #[command(subcommand)]
    pub(super) command: Option<Command>,
}

/// What every command takes.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "General options")]
pub(super) struct General {
    /// The Brain's address
    #[arg(long, global = true, env = "VANCE_BRAIN", value_name = "URL", default_value = "http://127.0.0.1:9990", value_parser = brain_url)]
    pub(super) brain: Url,

    /// The session to work in (default: the default session of the token's owner)
    #[arg(long, global = true, value_name = "ID", value_parser = SessionId::parse, conflicts_with = "new_session")]
    pub(super) session: Option<SessionId>,

    /// Serve this session of yours, too; may be given several times
    #[arg(long, global = true, value_name = "ID", value_parser = SessionId::parse)]
    pub(super) also_session: Vec<SessionId>,

    /// Work in a new session
    #[arg(long, global = true)]
    pub(super) new_session: bool,

    /// This Foot's name for people and for `client:` in task trees (default: the machine's name)
    #[arg(long, global = true)]
    pub(super) name: Option<String>,

    /// Ignore ./.vancetope of the working directory
    #[arg(long, global = true)]
    pub(super) no_local: bool,

    /// Offer no tools and start no packs
    #[arg(long, global = true)]
    pub(super) no_tools: bool,

    /// No live view; without a subcommand: be a Foot in the foreground
    #[arg(long, global = true)]
    pub(super) no_ui: bool,

    /// Results as JSON on standard output, errors as {"error": {"code", "message"}}
    #[arg(long, global = true)]
    pub(super) json: bool,

    /// Write log lines to this file instead of standard error
    #[arg(long, global = true, env = "VANCE_LOG_FILE", value_name = "FILE")]
    pub(super) log_file: Option<PathBuf>,

    /// Log more; -vv and -vvv still more
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(super) verbose: u8,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Submit a task tree and follow it live
    #[command(after_help = RUN_EXAMPLES)]
    Run(RunArgs),
    /// Tasks as the Brain sees them
    #[command(after_help = TASKS_EXAMPLES)]
    Tasks(TasksArgs),
    /// Sessions as the Brain sees them
    #[command(after_help = SESSIONS_EXAMPLES)]
    Sessions {
        #[command(subcommand)]
        command: Option<SessionsCommand>,
    },
    /// This machine's tools
    #[command(after_help = TOOLS_EXAMPLES)]
    Tools {
        #[command(subcommand)]
        command: Option<ToolsCommand>,
    },
    /// What of a working directory may be loaded, and who said so
    #[command(after_help = trust::EXAMPLES)]
    Trust {
        #[command(subcommand)]
        command: Option<TrustCommand>,
    },
    /// Pack files
    #[command(after_help = packs::EXAMPLES)]
    Packs {
        #[command(subcommand)]
        command: Option<PacksCommand>,
    },
    /// Where a call went, and its trace
    #[command(after_help = trace::EXAMPLES)]
    Trace(TraceArgs),
    /// Pair this home with a Brain
    #[command(after_help = login::EXAMPLES)]
    Login(LoginArgs),
    /// Check the set-up and say what to fix
    #[command(after_help = doctor::EXAMPLES)]
    Doctor,
}

#[derive(Debug, Args)]
pub(super) struct RunArgs {
    /// A task tree, YAML or JSON; - is standard input
    #[arg(value_name = "FILE")]
    pub(super) file: PathBuf,

    /// Return once every task has ended or waits
    #[arg(long)]
    pub(super) no_wait: bool,
}

#[derive(Debug, Args)]
pub(super) struct TasksArgs {
    /// Only tasks in this state
    #[arg(long, global = true, value_name = "STATE", value_parser = ["pending", "running", "blocked", "queued", "completed", "failed", "cancelled", "skipped"])]
    pub(super) state: Option<String>,

    /// Go on with every change: `list` until Ctrl-C, `show` until the task has ended
    #[arg(long, global = true)]
    pub(super) watch: bool,

    #[command(subcommand)]
    pub(super) command: Option<TasksCommand>,
}

#[derive(Debug, Subcommand)]
pub(super) enum TasksCommand {
    /// List tasks (the default); --session ID for those of one session
    List,
    /// Show one task with its calls
    Show {
        /// The task's id, as `vancetope tasks` shows it
        #[arg(value_name = "TASK", value_parser = TaskId::parse)]
        id: TaskId,
    },
    /// Cancel a task and what runs for it
    Cancel {
        /// The task's id, as `vancetope tasks` shows it
        #[arg(value_name = "TASK", value_parser = TaskId::parse)]
        id: TaskId,
    },
    /// Run a failed, cancelled or skipped task again
    Retry {
        /// The task's id, as `vancetope tasks` shows it
        #[arg(value_name = "TASK", value_parser = TaskId::parse)]
        id: TaskId,
        /// Let another machine, or this one in another folder, go on with it
        #[arg(long)]
        any_client: bool,
    },
    /// Decide a call whose outcome is unknown
    Resolve {
        /// The task's id, as `vancetope tasks` shows it
        #[arg(value_name = "TASK", value_parser = TaskId::parse)]
        id: TaskId,
        /// It ran; it did not and shall not; run it again
        #[arg(long = "as", value_name = "VERDICT")]
        verdict: Verdict,
        /// What the call gave, as JSON (with `--as done`)
        #[arg(long, value_name = "JSON")]
        output: Option<String>,
    },
    /// Answer the question that a task waits with; without values it is asked field by field
    #[command(
        after_help = "Examples:\n  vancetope tasks answer task_0190\n  vancetope tasks answer task_0190 project=VANCE urgent=yes\n  vancetope tasks answer task_0190 '{\"project\": \"VANCE\"}'\n  vancetope tasks answer task_0190 --decline"
    )]
    Answer {
        /// The task's id, as `vancetope tasks` shows it; or a question's, of a call without a task
        #[arg(value_name = "TASK|QUESTION", value_parser = Answers::parse)]
        id: Answers,
        /// Say no; the tool decides what to do then
        #[arg(long, conflicts_with_all = ["cancel", "values"])]
        decline: bool,
        /// Say neither yes nor no
        #[arg(long, conflicts_with = "values")]
        cancel: bool,
        /// The fields, or all of them as one JSON object
        #[arg(value_name = "NAME=VALUE|JSON")]
        values: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum SessionsCommand {
    /// List your sessions (the default)
    List,
    /// Show one session with its clients
    Show {
        /// The session's id, as `vancetope sessions` shows it
        #[arg(value_name = "SESSION", value_parser = SessionId::parse)]
        id: SessionId,
    },
    /// Show a session's active tools
    Tools {
        /// The session's id, as `vancetope sessions` shows it
        #[arg(value_name = "SESSION", value_parser = SessionId::parse)]
        id: SessionId,
    },
}

#[derive(Debug, Subcommand)]
pub(super) enum ToolsCommand {
    /// List this machine's tools (the default); starts the packs, asks them, and ends
    List,
    /// Let this home's running Foot read its packs again; what it asks, it asks at its own terminal
    Reload,
    /// Call one tool and print what it gives
    Call(CallArgs),
}

#[derive(Debug, Args)]
pub(super) struct CallArgs {
    /// The tool's full name
    #[arg(value_name = "NAME", value_parser = ToolName::parse)]
    pub(super) tool: ToolName,

    /// Its arguments, a JSON object
    #[arg(value_name = "JSON", default_value = "{}", value_parser = json_object)]
    pub(super) arguments: String,

    /// Let the Brain route the call, as it does for tasks
    #[arg(long)]
    pub(super) via_brain: bool,

    /// Show the HTTP request that a tool of a rest_api pack would send, secrets included, and send nothing
    #[arg(long, conflicts_with = "via_brain")]
    pub(super) dry_run: bool,

    /// The call's deadline, such as 500ms, 30s or 5m
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = timeout)]
    pub(super) timeout: Duration,
}

/// True if a Brain is named, by the flag or by the variable.
pub(super) fn names_a_brain(argv: &[OsString]) -> bool {
    let matches = Cli::command().try_get_matches_from(argv);
    matches.is_ok_and(|matches| matches.value_source("brain").is_some_and(|source| source != ValueSource::DefaultValue))
}

/// True if the Brain is the one of the variable.
pub(super) fn brain_of_variable(argv: &[OsString]) -> bool {
    let matches = Cli::command().try_get_matches_from(argv);
    matches.is_ok_and(|matches| matches.value_source("brain") == Some(ValueSource::EnvVariable))
}

/// A Brain's address as a person writes it.
pub(super) fn brain_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|e| format!("{e}; expected for example http://127.0.0.1:9990"))?;
    if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
        return Err("expected http://HOST:PORT or https://HOST".to_owned());
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("a URL carries no user or password here; the token belongs in VANCE_TOKEN".to_owned());
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err("expected an address without `?` and `#`".to_owned());
    }
    Ok(url)
}

fn loopback(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_| "expected an address such as 127.0.0.1:0".to_owned())?;
    if !address.ip().is_loopback() {
        return Err("this interface is for this machine alone: expected 127.0.0.1:PORT or [::1]:PORT".to_owned());
    }
    Ok(address)
}

fn json_object(text: &str) -> Result<String, String> {
    let parsed: serde_json::Value = serde_json::from_str(text).map_err(|e| format!("not JSON: {e}"))?;
    if parsed.is_object() {
        Ok(text.to_owned())
    } else {
        Err("expected a JSON object such as {\"path\": \"x\"}".to_owned())
    }
}

fn timeout(text: &str) -> Result<Duration, String> {
    let timeout = vance_shared::doc::parse_duration(text)?;
    if timeout.is_zero() { Err("expected more than nothing".to_owned()) } else { Ok(timeout) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        let words = line.split(' ').filter(|w| !w.is_empty());
        Cli::try_parse_from(std::iter::once("vancetope").chain(words))
    }

    #[test]
    fn the_table_is_sound_and_every_command_has_help() {
        let command = Cli::command();
        command.clone().debug_assert();
        for sub in command.get_subcommands() {
            assert!(sub.get_about().is_some() && sub.get_after_help().is_some(), "{}", sub.get_name());
        }
    }

    #[test]
    fn what_is_accepted_and_what_is_not() {
        for (line, ok) in [
            ("", true),
            ("--no-ui", true),
            ("--daemon --name laptop --session sess_1 --no-local", true),
            ("--session sess_1 --new-session", false),
            ("--session a/b", false),
            ("--brain https://b.example.org/vance", true),
            ("--brain ftp://b", false),
            ("--brain http://u:p@b", false),
            ("--brain 127.0.0.1:9990", false),
            ("--rest-api", true),
            ("--rest-api 127.0.0.1:8080 --no-ui", true),
            ("--daemon --rest-api [::1]:0 --log-file foot.log", true),
            ("--rest-api 0.0.0.0:8080", false),
            ("--rest-api localhost", false),
            ("--skill-one-shot plan.yaml --json", true),
            ("--skill-one-shot", false),
            ("--skill-one-shot plan.yaml --daemon", false),
            ("run", false),
            ("run plan.yaml", true),
            ("run - --no-wait --json --no-tools -vv", true),
            ("--json run plan.yaml", true),
            ("tasks", true),
            ("tasks --state blocked --watch", true),
            ("tasks list --state blocked --session s --watch", true),
            ("tasks --state sleeping", false),
            ("tasks show", false),
            ("tasks show task_1 --json", true),
            ("tasks show a/../b", false),
            ("tasks cancel task_1", true),
            ("tasks retry task_1", true),
            ("tasks resolve task_1", false),
            ("tasks resolve task_1 --as done --output {}", true),
            ("tasks resolve task_1 --as maybe", false),
            ("sessions", true),
            ("sessions tools sess_1", true),
            ("tools", true),
            ("tools list --json", true),
            ("tools call git_status", true),
            ("tools call git_status []", false),
            ("tools call git/status", false),
            ("tools call x {} --via-brain --timeout 500ms", true),
            ("tools call x {} --timeout soon", false),
            ("tools call x {} --timeout 0s", false),
            ("packs check a.json b.json --json", true),
            ("packs check a.json --dry-run", true),
            ("packs check", false),
            ("packs", true),
            ("packs list", true),
            ("packs add a -- npx -y b", true),
            ("packs add a --env A=1 --env B --cwd . --label l --force -- npx -y b", true),
            ("packs add a --url https://x/mcp --header A=b --project", true),
            ("packs add a --url https://x/mcp --env A=1", false),
            ("packs add a --header A=b -- npx", false),
            ("packs add a --url https://x/mcp -- npx", false),
            ("packs add a__b -- npx", false),
            ("packs add a", true),
            ("packs import", true),
            ("packs import x.json --dry-run", true),
            ("packs import --from claude-desktop --yes --force --only a --only b", true),
            ("packs import x.json --from codex", false),
            ("packs import --dry-run --yes", false),
            ("trace task_1 --jaeger http://localhost:16686", true),
            ("trace", false),
            ("login https://b.example --token x", true),
            ("login b.example", false),
            ("login", false),
            ("doctor --json", true),
            ("packs diff", true),
            ("trust", true),
            ("trust list --json", true),
            ("trust show a", true),
            ("trust show a__b", false),
            ("trust review", true),
            ("trust revoke", false),
            ("trust revoke a", true),
            ("trust revoke --project", true),
            ("trust revoke --all", true),
            ("trust revoke a --all", false),
            ("trust deny a", true),
            ("trust undeny a", true),
            ("trust prune", true),
            ("trust log", true),
            ("trust allow --pack a", false),
            ("trust allow --pack a --digest sha256:12", false),
            (
                "trust allow --pack a --digest sha256:0000000000000000000000000000000000000000000000000000000000000000",
                true,
            ),
            ("packs diff a", true),
            ("shout", false),
        ] {
            let got = parse(line);
            assert_eq!(got.is_ok(), ok, "{line}: {got:?}");
        }
    }

    #[test]
    fn a_brain_is_named_wherever_the_flag_stands() {
        for (line, named) in [
            ("tasks", std::env::var_os("VANCE_BRAIN").is_some()),
            ("--brain http://127.0.0.1:9990 tasks", true),
            ("tasks --brain http://127.0.0.1:9990", true),
            ("tasks list --brain http://127.0.0.1:9990", true),
        ] {
            let argv: Vec<OsString> = std::iter::once("vancetope").chain(line.split(' ')).map(OsString::from).collect();
            assert_eq!(names_a_brain(&argv), named, "{line}");
        }
    }

    #[test]
    fn general_flags_count_wherever_they_stand() {
        for line in [
            "--json -v --session s1 tasks list",
            "tasks --json -v list --session s1",
            "tasks list --json -v --session s1",
        ] {
            let general = parse(line).unwrap().general;
            assert!(general.json && general.verbose == 1, "{line}");
            assert_eq!(general.session.unwrap().as_str(), "s1", "{line}");
        }
    }
}

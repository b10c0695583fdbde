//! The command line of `vance-brain`: results on standard output, all else on standard error.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage or a file with mistakes.

use std::ffi::OsString;
use std::io::{self, Write};

use clap::Parser as _;
use serde_json::{Value, json};
use vance_observability::logs;
use vance_shared::show::plain;

mod args;
mod check;
mod limits;
mod oauth;
mod secret;
mod token;

use crate::home::{Home, HomeError};
use crate::serve::{self, ServeError, ServeOptions};
use args::{Cli, Command, HomeArgs, ServeArgs};

/// Done.
pub const EXIT_OK: u8 = 0;
/// Failed.
pub const EXIT_FAILED: u8 = 1;
/// Wrong usage, or files with mistakes.
pub const EXIT_USAGE: u8 = 2;

/// Where output goes.
struct Screen<'a> {
    out: &'a mut dyn Write,
    remarks: &'a mut dyn Write,
    json: bool,
}

/// Runs the process's command and gives its exit code. Needs the runtime and the crypto provider; starts logging.
pub async fn main() -> u8 {
    let argv: Vec<OsString> = std::env::args_os().collect();
    let cli = match Cli::try_parse_from(&argv) {
        Ok(cli) => cli,
        Err(error) => return not_parsed(&error, &argv),
    };
    start_logging(&cli);
    match cli.command {
        Command::Serve(args) => serve(cli.json, args).await,
        Command::Check(args) => at_home(cli.json, args, check::check),
        Command::Token { command } => token::run(cli.json, command),
        Command::Secret { command } => secret::run(cli.json, command),
        Command::Oauth { command } => oauth::run(cli.json, command).await,
    }
}

/// Runs a command that needs the home and the screen.
fn at_home(json: bool, args: HomeArgs, run: impl FnOnce(&Home, &mut Screen<'_>) -> io::Result<u8>) -> u8 {
    let (mut out, mut remarks) = (io::stdout().lock(), io::stderr().lock());
    let mut screen = Screen { out: &mut out, remarks: &mut remarks, json };
    let exit = match home(args.home) {
        Ok(home) => run(&home, &mut screen),
        Err(error) => screen.failure("home", &error.to_string(), &Value::Null).map(|()| EXIT_FAILED),
    };
    written(exit)
}

async fn serve(json: bool, args: ServeArgs) -> u8 {
    let home = match home(args.home) {
        Ok(home) => home,
        Err(error) => return said(json, "home", &error.to_string(), &Value::Null, EXIT_FAILED),
    };
    // An empty variable says nothing.
    let given = |value: Option<String>| value.filter(|text| !text.is_empty());
    let (listen, store) = (given(args.listen), given(args.store));
    if let Some(Err(message)) = store.as_deref().map(args::check_store) {
        return said(json, "setting", message, &Value::Null, EXIT_USAGE);
    }
    limits::raise_open_files();
    let options = ServeOptions { home, listen, store };
    match serve::serve(options).await {
        Ok(()) => EXIT_OK,
        Err(error) => {
            let (problems, exit) = match &error {
                ServeError::Problems(problems) => (problems.as_slice(), EXIT_USAGE),
                ServeError::Setting(_) | ServeError::Tls(_) => (&[][..], EXIT_USAGE),
                ServeError::Home(_)
                | ServeError::Store(_)
                | ServeError::StoreNotReady
                | ServeError::Token(_)
                | ServeError::Listen { .. }
                | ServeError::GaveUp(_)
                | ServeError::Process { .. } => (&[][..], EXIT_FAILED),
            };
            let extra = if problems.is_empty() { Value::Null } else { json!(problems) };
            said(json, code(&error), &error.to_string(), &extra, exit)
        }
    }
}

/// Stable, snake_case.
fn code(error: &ServeError) -> &'static str {
    match error {
        ServeError::Problems(_) => "problems",
        ServeError::Home(_) => "home",
        ServeError::Store(_) | ServeError::StoreNotReady => "store",
        ServeError::Token(_) => "token",
        ServeError::Tls(_) => "tls",
        ServeError::Setting(_) => "setting",
        ServeError::Listen { .. } => "listen",
        ServeError::GaveUp(_) => "gave_up",
        ServeError::Process { .. } => "process",
    }
}

fn home(flag: Option<std::path::PathBuf>) -> Result<Home, HomeError> {
    let flag = flag.filter(|path| !path.as_os_str().is_empty());
    Home::resolve(flag.as_deref(), |name| std::env::var_os(name))
}

fn said(json: bool, code: &str, message: &str, problems: &Value, exit: u8) -> u8 {
    let (mut out, mut remarks) = (io::stdout().lock(), io::stderr().lock());
    let mut screen = Screen { out: &mut out, remarks: &mut remarks, json };
    written(screen.failure(code, message, problems).map(|()| exit))
}

/// Output that nobody takes any more is a failure; there is no place left to say so.
fn written(exit: io::Result<u8>) -> u8 {
    exit.unwrap_or(EXIT_FAILED)
}

impl Screen<'_> {
    /// One line of a result.
    fn line(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.out, "{text}")
    }

    /// One line for people only.
    fn remark(&mut self, text: &str) -> io::Result<()> {
        writeln!(self.remarks, "{text}")
    }

    /// Says why nothing came of it, with the mistakes that are to be mended.
    fn failure(&mut self, code: &str, message: &str, problems: &Value) -> io::Result<()> {
        if self.json {
            let mut error = json!({ "code": code, "message": message });
            if let (false, Some(error)) = (problems.is_null(), error.as_object_mut()) {
                error.insert("problems".to_owned(), problems.clone());
            }
            return self.line(&json!({ "error": error }).to_string());
        }
        for problem in problems.as_array().into_iter().flatten() {
            let text = |key: &str| problem.get(key).and_then(Value::as_str).unwrap_or_default();
            let line = problem.get("line").and_then(Value::as_u64).unwrap_or_default();
            writeln!(self.remarks, "{}:{line}: {}", plain(text("file")), text("message"))?;
        }
        writeln!(self.remarks, "error: {}", plain(message))
    }
}

/// Help and version are results; everything else is wrong usage, as JSON where `--json` stands.
fn not_parsed(error: &clap::Error, argv: &[OsString]) -> u8 {
    let text = error.render().to_string();
    let text = text.trim_end();
    if !error.use_stderr() {
        return written(writeln!(io::stdout(), "{text}").map(|()| EXIT_OK));
    }
    if argv.iter().any(|word| word == "--json") {
        return said(true, "usage", text.trim_start_matches("error: "), &Value::Null, EXIT_USAGE);
    }
    // clap writes for a terminal already; foreign words in it are escaped line by line.
    let lines: Vec<String> = text.lines().map(plain).collect();
    written(writeln!(io::stderr(), "{}", lines.join("\n")).map(|()| EXIT_USAGE))
}

/// A serving Brain says what it does, a command only what is wrong.
fn start_logging(cli: &Cli) {
    let level = match cli.command {
        Command::Serve(_) => logs::Level::Info,
        Command::Check(_) | Command::Token { .. } | Command::Secret { .. } | Command::Oauth { .. } => logs::Level::Warn,
    };
    let mut options = logs::Options::from_env(level.raised(cli.verbose));
    if let Err(error) = logs::init(&options) {
        options.filter = None;
        let again = logs::init(&options);
        tracing::warn!("{error}{}", if again.is_ok() { "; going on without it" } else { "" });
    }
}

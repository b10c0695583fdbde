//! The command line of `vancetope`: one module for each command, results on standard output, all else on standard error.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage or a file with mistakes, 3 (`run`) something waits.

use std::ffi::OsString;

use clap::Parser as _;
use vance_observability::logs;

mod access;
mod args;
mod ask;
mod context;
mod doctor;
mod failure;
mod foot;
mod interrupt;
mod login;
mod packs;
mod permissions;
mod run;
mod screen;
mod sessions;
mod settings;
mod stage;
mod tasks;
mod tools;
mod trace;

use args::{Cli, Command, SessionsCommand, ToolsCommand};
use context::Context;
use failure::{EXIT_OK, EXIT_USAGE, Failure};
pub use interrupt::{Interrupt, Interrupts};
pub use screen::Screen;
pub use settings::Environment;
pub use stage::Stage;

/// Runs the process's command and gives its exit code. Needs the runtime and the crypto provider; starts logging.
pub async fn main() -> u8 {
    let argv: Vec<OsString> = std::env::args_os().collect();
    let stage = Stage::of_process();
    start_logging(&argv, &stage);
    let interrupts = match Interrupts::listen() {
        Ok(interrupts) => interrupts,
        Err(error) => {
            tracing::error!("cannot listen for signals: {error}");
            return failure::EXIT_FAILED;
        }
    };
    execute(argv, Environment::of_process(), Screen::of_process(stage), interrupts).await
}

/// Runs one command line (the program's name first) and gives its exit code.
pub async fn execute(
    argv: impl IntoIterator<Item = impl Into<OsString>>,
    environment: Environment,
    mut screen: Screen,
    interrupts: Interrupts,
) -> u8 {
    let argv: Vec<OsString> = argv.into_iter().map(Into::into).collect();
    let cli = match Cli::try_parse_from(&argv) {
        Ok(cli) => cli,
        Err(error) => return not_parsed(&error, &argv, &mut screen),
    };
    screen.json = cli.general.json;
    let Cli { general, daemon, command } = cli;
    let mut context = Context { general, environment, screen, interrupts };
    let ended = match settings::pair(&mut context, &argv, command.as_ref()) {
        Ok(()) => dispatch(&mut context, daemon, command).await,
        Err(failure) => Err(failure),
    };
    context.screen.stage().release();
    match ended {
        Ok(exit) => exit,
        Err(failure) => {
            context.screen.failure(&failure);
            failure.exit()
        }
    }
}

async fn dispatch(context: &mut Context, daemon: bool, command: Option<Command>) -> Result<u8, Failure> {
    if daemon && command.is_some() {
        return Err(Failure::Usage("--daemon stands alone: it takes no subcommand".to_owned()));
    }
    match command {
        None if daemon || context.general.no_ui => foot::serve(context, daemon).await,
        None => Err(Failure::Usage(
            "the interactive prompt comes with a later release. What works now: `vancetope --no-ui` (be a Foot until Ctrl-C), \
             `vancetope run FILE` (submit a task tree and follow it), `vancetope --help` (everything else)"
                .to_owned(),
        )),
        Some(Command::Run(args)) => run::run(context, &args).await,
        Some(Command::Tasks(args)) => tasks::tasks(context, &args).await,
        Some(Command::Sessions { command }) => {
            sessions::sessions(context, &command.unwrap_or(SessionsCommand::List)).await
        }
        Some(Command::Packs { command }) => {
            packs::packs(context, &command.unwrap_or(packs::PacksCommand::List)).await
        }
        Some(Command::Trace(args)) => trace::trace(context, &args).await,
        Some(Command::Login(args)) => login::login(context, &args).await,
        Some(Command::Doctor) => doctor::doctor(context).await,
        Some(Command::Tools { command }) => tools::tools(context, &command.unwrap_or(ToolsCommand::List)).await,
    }
}

/// Help and version are results; everything else is wrong usage, as JSON where `--json` stands.
fn not_parsed(error: &clap::Error, argv: &[OsString], screen: &mut Screen) -> u8 {
    let text = error.render().to_string();
    if !error.use_stderr() {
        return match screen.line(text.trim_end()) {
            Ok(()) => EXIT_OK,
            Err(error) => Failure::Output(error).exit(),
        };
    }
    screen.json = argv.iter().any(|word| word == "--json");
    if screen.json {
        let text = text.trim_end().trim_start_matches("error: ").to_owned();
        screen.failure(&Failure::Usage(text));
    } else {
        // clap writes for a terminal already; foreign words in it are escaped line by line.
        let lines: Vec<String> = text.trim_end().lines().map(vance_shared::show::plain).collect();
        screen.remark(&lines.join("\n"));
    }
    EXIT_USAGE
}

/// Logs go through the live view. A long-running Foot says what it does, a command only what is wrong.
fn start_logging(argv: &[OsString], stage: &Stage) {
    let (level, verbose) = match Cli::try_parse_from(argv) {
        Ok(Cli { general, command: None, .. }) => (logs::Level::Info, general.verbose),
        // The table and the call's failure name the packs that are missing, and why.
        Ok(Cli { general, command: Some(Command::Tools { .. }), .. }) => (logs::Level::Error, general.verbose),
        Ok(Cli { general, .. }) => (logs::Level::Warn, general.verbose),
        Err(_) => (logs::Level::Warn, 0),
    };
    let stage = stage.clone();
    let mut options = logs::Options::from_env(level.raised(verbose));
    let writer = move || LogLine { stage: stage.clone(), line: Vec::new() };
    if let Err(error) = logs::init_with(&options, writer.clone()) {
        options.filter = None;
        let again = logs::init_with(&options, writer);
        tracing::warn!("{error}{}", if again.is_ok() { "; going on without it" } else { "" });
    }
}

/// One log line: written at once, with the live view out of the way and never into a question.
struct LogLine {
    stage: Stage,
    line: Vec<u8>,
}

impl std::io::Write for LogLine {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.line.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            return Ok(());
        }
        self.stage.write(stage::Stream::Err, &line, &mut std::io::stderr())
    }
}

impl Drop for LogLine {
    fn drop(&mut self) {
        // Standard error is closed: there is nobody to tell.
        drop(std::io::Write::flush(self));
    }
}

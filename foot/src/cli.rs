//! The command line of `vancetope`: one module for each command, results on standard output, all else on standard error.
//!
//! Exit codes: 0 done, 1 failed, 2 wrong usage or a file with mistakes, 3 (`run`) something waits.

use std::ffi::OsString;
use std::io::IsTerminal as _;

use clap::parser::ValueSource;
use clap::{CommandFactory as _, Parser as _};
use vance_observability::logs;

mod access;
mod args;
mod ask;
mod binding;
mod context;
mod doctor;
mod failure;
mod foot;
mod interrupt;
mod log_file;
mod login;
mod notify;
mod packs;
mod permissions;
mod progress;
mod repl;
mod rest;
mod run;
mod screen;
mod sessions;
mod settings;
mod stage;
mod tasks;
mod tools;
mod trace;
mod trust;

use crate::actors::loader::TOLD;
use args::{Cli, Command, SessionsCommand, ToolsCommand};
use context::Context;
use failure::{EXIT_OK, EXIT_USAGE, Failure};
pub use interrupt::{Interrupt, Interrupts};
use log_file::LogFile;
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
    let nobody = ask::unattended(&cli);
    let mut context = Context { general: cli.general.clone(), environment, screen, interrupts, nobody };
    let ended = match settings::pair(&mut context, &argv, cli.command.as_ref()) {
        Ok(()) => dispatch(&mut context, cli, names_brain(&argv)).await,
        Err(failure) => Err(failure),
    };
    context.screen.stage().release();
    match ended {
        Ok(exit) => exit,
        Err(failure) => {
            context.screen.failure(&failure);
            if let (Failure::Api(_), Some(unused)) = (&failure, context.environment.unused_home.clone()) {
                context.screen.remark(&format!("vancetope: {unused}"));
            }
            if let (Failure::Api(error), false) = (&failure, context.screen.json)
                && let Some(hint) = context.environment.to_unset(error)
            {
                context.screen.remark(&format!("vancetope: {hint}"));
            }
            failure.exit()
        }
    }
}

async fn dispatch(context: &mut Context, cli: Cli, names_brain: bool) -> Result<u8, Failure> {
    if needs_brain(&cli) && !names_brain {
        binding::bind(context).await?;
    }
    let Cli { general, daemon, skill_one_shot, rest_api, command: wanted } = cli;
    let alone =
        [(daemon, "--daemon"), (skill_one_shot.is_some(), "--skill-one-shot"), (rest_api.is_some(), "--rest-api")];
    if let (Some(_), Some((_, flag))) = (&wanted, alone.iter().find(|(given, _)| *given)) {
        return Err(Failure::Usage(format!("{flag} stands alone: it takes no subcommand")));
    }
    // Nobody can type, so the debug interface is the only way in.
    let headless = rest_api.is_some() && !std::io::stdin().is_terminal();
    match (wanted, skill_one_shot) {
        (Some(wanted), _) => command(context, wanted).await,
        (None, Some(file)) => run::one_shot(context, &file).await,
        (None, None) if daemon || general.no_ui || headless => foot::serve(context, daemon, rest_api).await,
        (None, None) => repl::repl(context, rest_api).await,
    }
}

/// Whether the person has said themselves which Brain or session they mean: then a project is not heard.
fn names_brain(argv: &[OsString]) -> bool {
    let given = |source| matches!(source, Some(ValueSource::CommandLine | ValueSource::EnvVariable));
    let matches = Cli::command().try_get_matches_from(argv);
    matches.is_ok_and(|matches| {
        ["brain", "session", "new_session"].into_iter().any(|word| given(matches.value_source(word)))
    })
}

/// Whether a command talks to a Brain.
fn needs_brain(cli: &Cli) -> bool {
    match &cli.command {
        None => true,
        Some(Command::Tools { command: Some(ToolsCommand::Call(call)) }) => call.via_brain,
        Some(command) => {
            matches!(command, Command::Run(_) | Command::Tasks(_) | Command::Sessions { .. } | Command::Trace(_))
        }
    }
}

/// Runs a subcommand.
async fn command(context: &mut Context, wanted: Command) -> Result<u8, Failure> {
    match wanted {
        Command::Run(args) => run::run(context, &args).await,
        Command::Tasks(args) => tasks::tasks(context, &args).await,
        Command::Sessions { command } => sessions::sessions(context, &command.unwrap_or(SessionsCommand::List)).await,
        Command::Packs { command } => packs::packs(context, &command.unwrap_or(packs::PacksCommand::List)).await,
        Command::Trace(args) => trace::trace(context, &args).await,
        Command::Login(args) => login::login(context, &args).await,
        Command::Doctor => doctor::doctor(context).await,
        Command::Trust { command } => trust::trust(context, &command.unwrap_or(trust::TrustCommand::List)).await,
        Command::Tools { command } => tools::tools(context, &command.unwrap_or(ToolsCommand::List)).await,
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

/// Logs go through the live view. A Foot without a prompt says what it does, all else only what is wrong.
fn start_logging(argv: &[OsString], stage: &Stage) {
    let (level, verbose) = match Cli::try_parse_from(argv) {
        Ok(Cli { general, daemon, command: None, .. }) if daemon || general.no_ui => {
            (logs::Level::Info, general.verbose)
        }
        Ok(Cli { general, .. }) => (logs::Level::Warn, general.verbose),
        Err(_) => (logs::Level::Warn, 0),
    };
    let mut options = logs::Options::from_env(level.raised(verbose));
    if let (0, Ok(cli)) = (verbose, Cli::try_parse_from(argv)) {
        options.filter = options.filter.or_else(|| quieter(&cli));
    }
    let (file, wrong) = log_file(argv);
    let lines = Lines { stage: stage.clone(), file };
    let writer = move || LogLine { to: lines.clone(), line: Vec::new() };
    if let Err(error) = logs::init_with(&options, writer.clone()) {
        options.filter = None;
        let again = logs::init_with(&options, writer);
        tracing::warn!("{error}{}", if again.is_ok() { "; going on without it" } else { "" });
    }
    if let Some(wrong) = wrong {
        tracing::warn!("{wrong}; log lines go to standard error");
    }
}

/// At the prompt: what is wrong, and that a pack's file has changed, which only a person can take up.
const PROMPT_LOGS: &str = "warn,rmcp=off,vance_foot::actors::loader::watcher=info";

/// The filter of a way of running that says some things itself.
fn quieter(cli: &Cli) -> Option<String> {
    let has_prompt = cli.command.is_none() && !cli.daemon && !cli.general.no_ui && cli.skill_one_shot.is_none();
    // The table and the call's failure name the packs that are missing, and why.
    let is_tools = matches!(cli.command, Some(Command::Tools { .. }));
    (has_prompt.then(|| PROMPT_LOGS.to_owned())).or(is_tools.then(|| format!("warn,rmcp=off,{TOLD}=error")))
}

/// The file for log lines, or what is wrong with it.
fn log_file(argv: &[OsString]) -> (Option<LogFile>, Option<String>) {
    let Some(path) = Cli::try_parse_from(argv).ok().and_then(|cli| cli.general.log_file) else { return (None, None) };
    match LogFile::open(&path) {
        Ok(file) => (Some(file), None),
        Err(error) => (None, Some(format!("{}: {error}", crate::paths::shown(&path)))),
    }
}

/// Where log lines go.
#[derive(Clone)]
struct Lines {
    stage: Stage,
    file: Option<LogFile>,
}

/// One log line: written at once, with the live view out of the way and never into a question.
struct LogLine {
    to: Lines,
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
        match &self.to.file {
            Some(file) => file.line(&line),
            None => self.to.stage.write(stage::Stream::Err, &line, &mut std::io::stderr()),
        }
    }
}

impl Drop for LogLine {
    fn drop(&mut self) {
        // Standard error is closed: there is nobody to tell.
        drop(std::io::Write::flush(self));
    }
}

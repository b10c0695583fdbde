//! One question of a command itself, asked while nothing else runs: may it write this, what is the token.

use std::io::IsTerminal as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};

use super::terminal::{Heard, Terminal};
use crate::cli::context::Context;
use crate::cli::failure::Failure;

/// Nothing waits behind the question but the person.
const PATIENCE: Duration = Duration::from_secs(600);

/// How asking went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::cli) enum Reply {
    /// There is no terminal, or it cannot be used to ask.
    Nobody,
    /// A whole line.
    Line(String),
    /// Silence, the end of the input, Ctrl-C: no.
    Nothing,
}

/// Takes a question back, once it is true.
pub(in crate::cli) type Over = Arc<AtomicBool>;

/// Asks.
pub(in crate::cli) async fn person(context: &Context, text: &str, choices: &str) -> Result<Reply, Failure> {
    person_until(context, text, choices, &Over::default()).await
}

/// The same, until the question is taken back.
pub(in crate::cli) async fn person_until(
    context: &Context,
    text: &str,
    choices: &str,
    over: &Over,
) -> Result<Reply, Failure> {
    ask(context, text, choices, false, over).await
}

/// Asks for what must not be seen.
pub(in crate::cli) async fn hidden(context: &Context, prompt: &str) -> Result<Reply, Failure> {
    ask(context, "", prompt, true, &Over::default()).await
}

async fn ask(context: &Context, text: &str, choices: &str, hide: bool, over: &Over) -> Result<Reply, Failure> {
    let stage = context.screen.stage();
    let streams = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    if context.general.json || !stage.is_own() || !streams || context.dumb() {
        return Ok(Reply::Nobody);
    }
    let none = |error: std::io::Error| Failure::Foot(format!("the terminal cannot be read: {error}"));
    let input = std::io::stdin().as_fd().try_clone_to_owned().map_err(none)?;
    let echo = input.try_clone().map_err(none)?;
    let mut terminal = Terminal::new(input, Box::new(std::io::stderr()), context.interrupts.pressed(), PATIENCE);
    if !terminal.is_ours() {
        return Ok(Reply::Nobody);
    }
    let stage = stage.clone();
    let (text, choices, over) = (text.to_owned(), choices.to_owned(), Arc::clone(over));
    // Ctrl-C is counted on the thread that waits here.
    let heard = tokio::task::spawn_blocking(move || {
        let _quiet = stage.question();
        let _unseen = if hide { Some(Unseen::from_now(echo)?) } else { None };
        let heard = terminal.ask(&text, &choices, &mut || over.load(Ordering::Relaxed));
        if hide || !matches!(heard, Heard::Line(_) | Heard::TooLong) {
            // The person's own line break was not shown, or never came.
            terminal.say("");
        }
        Ok::<Heard, std::io::Error>(heard)
    })
    .await
    .map_err(|error| Failure::Foot(format!("the question failed: {error}")))?
    .map_err(none)?;
    match heard {
        Heard::Line(line) => Ok(Reply::Line(line)),
        Heard::TooLong => Ok(Reply::Line(String::new())),
        Heard::Silence | Heard::End | Heard::Interrupted | Heard::TakenBack => Ok(Reply::Nothing),
        Heard::Fault(why) => Err(Failure::Foot(format!("the terminal cannot be read: {why}"))),
    }
}

/// What is typed does not show, until this goes.
struct Unseen {
    terminal: OwnedFd,
    before: Termios,
}

impl Unseen {
    fn from_now(terminal: OwnedFd) -> std::io::Result<Self> {
        let before = tcgetattr(&terminal)?;
        let mut now = before.clone();
        now.local_flags.remove(LocalFlags::ECHO);
        tcsetattr(&terminal, SetArg::TCSANOW, &now)?;
        Ok(Self { terminal, before })
    }
}

impl Drop for Unseen {
    fn drop(&mut self) {
        if let Err(error) = tcsetattr(&self.terminal, SetArg::TCSANOW, &self.before) {
            tracing::warn!("the terminal does not show what is typed any more ({error}); type: stty echo");
        }
    }
}

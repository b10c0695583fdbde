//! The reference server asks a person in the middle of a call, and somebody at the terminal answers.

use anyhow::Context as _;
use vance_tests::process::program;

use crate::installed::pack;
use crate::page::servers;
use crate::place::Place;
use crate::terminal::Terminal;

/// Fields that the server asks for are at most so many.
const MOST: usize = 40;

#[tokio::test(flavor = "multi_thread")]
async fn the_reference_server_asks_at_the_terminal_and_gets_what_was_typed() -> anyhow::Result<()> {
    let place = Place::new().await?;
    let everything = servers()?.into_iter().find(|server| server.name == "everything").context("everything")?;
    place.pack(&pack(&everything)?)?;
    // The test is the person who starts the program from a shell.
    #[allow(clippy::disallowed_methods)]
    let mut command = std::process::Command::new(program("vancetope")?);
    command.args(["tools", "call", "everything__trigger-elicitation-request", "{}"]).current_dir(place.home.project());
    command.env_remove("VANCE_BRAIN").env_remove("VANCE_TOKEN").env("VANCE_HOME", place.home.path());
    command.env("TERM", "xterm").env("NO_COLOR", "1");
    let mut terminal = Terminal::start(command);
    let asked = |terminal: &Terminal, times: usize| {
        terminal.until("the next question, or the answer", |_| {
            let raw = terminal.raw();
            raw.matches('\u{203a}').count() >= times || raw.contains("User provided")
        });
        terminal.raw().contains("User provided")
    };
    for question in 1..=MOST {
        if asked(&terminal, question) {
            break;
        }
        // To answer at all, the name, and for all else nothing, which leaves it out or takes its default.
        terminal.types(match question {
            1 => "1\n",
            2 => "Ada Lovelace\n",
            _ => "\n",
        });
    }
    let said = terminal.raw();
    assert!(said.contains("The server of pack 'everything' asks"), "{said}");
    let (exit, rows) = terminal.leaves();
    assert_eq!(exit, 0, "{rows:#?}");
    for part in ["Ada Lovelace", "Favorite Integer: 42"] {
        assert!(rows.iter().any(|row| row.contains(part)) || said.contains(part), "{part}: {rows:#?}");
    }
    place.is_quiet().await
}

//! What every command works with.

use std::io::IsTerminal as _;
use std::path::PathBuf;

use vance_shared::gate::Nobody;

use super::args::General;
use super::failure::Failure;
use super::interrupt::Interrupts;
use super::screen::Screen;
use super::settings::{Environment, token};
use crate::api::{Brain, Token};

/// One run of the program.
pub(super) struct Context {
    pub(super) general: General,
    pub(super) environment: Environment,
    pub(super) screen: Screen,
    pub(super) interrupts: Interrupts,
    /// Nobody may be asked, whatever the terminal: the program serves without a prompt, or runs unattended.
    pub(super) nobody: Option<Nobody>,
}

impl Context {
    /// The home.
    pub(super) fn home(&self) -> Result<PathBuf, Failure> {
        let none = || Failure::Usage("there is no home directory: set VANCE_HOME".to_owned());
        self.environment.home().ok_or_else(none)
    }

    /// The token for the Brain, if there is one.
    pub(super) fn token(&self) -> Result<Option<Token>, Failure> {
        Ok(token(&self.environment, &self.home()?, &self.general.brain))
    }

    /// The Brain.
    pub(super) fn brain(&self) -> Result<Brain, Failure> {
        Ok(Brain::new(self.general.brain.clone(), self.token()?)?)
    }

    /// True on a terminal that can do nothing but print.
    pub(super) fn dumb(&self) -> bool {
        std::env::var_os("TERM").is_some_and(|term| term == "dumb" || term.is_empty())
    }

    /// True if a person looks on, at a terminal that can draw.
    pub(super) fn live_view(&self) -> bool {
        let wanted = !self.general.no_ui && !self.general.json && self.screen.terminal;
        wanted && !self.dumb() && std::io::stderr().is_terminal()
    }
}

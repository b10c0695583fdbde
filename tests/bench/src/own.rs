//! This program again, as another process.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::Context as _;

/// A running part of the bench. Dropping it kills it.
pub(crate) struct Own {
    child: Child,
    lines: BufReader<ChildStdout>,
    /// Open while the part lives.
    _input: Option<ChildStdin>,
}

impl Own {
    /// Starts a part.
    pub(crate) fn start(args: &[&str]) -> anyhow::Result<Self> {
        #[allow(clippy::disallowed_methods)] // killed when it is dropped
        let mut command = Command::new(std::env::current_exe()?);
        let mut child = command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let lines = BufReader::new(child.stdout.take().context("stdout")?);
        let input = child.stdin.take();
        Ok(Self { child, lines, _input: input })
    }

    /// Waits for its next line, which begins so; gives the rest.
    pub(crate) fn line(&mut self, prefix: &str) -> anyhow::Result<String> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        let rest = line.strip_prefix(prefix).with_context(|| format!("'{line}' instead of '{prefix}…'"))?;
        Ok(rest.trim().to_owned())
    }

    /// Its id.
    pub(crate) fn pid(&self) -> anyhow::Result<i32> {
        Ok(i32::try_from(self.child.id())?)
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

//! Where results and remarks go: results on standard output, everything else on standard error, and a live view that steps aside for both.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write};

use comfy_table::Table;
use indicatif::MultiProgress;
use serde_json::Value;
use vance_shared::json::Raw;
use vance_shared::show::{is_visible, plain};

use super::failure::Failure;
use super::stage::{Stage, Stream};

/// The two streams of a command.
pub struct Screen {
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    /// Results are JSON.
    pub(super) json: bool,
    /// A person looks at standard output.
    pub(super) terminal: bool,
    stage: Stage,
}

impl Screen {
    /// Of this process. `stage` is the one that log lines go through, too.
    pub fn of_process(stage: Stage) -> Self {
        let terminal = io::stdout().is_terminal();
        Self { out: Box::new(io::stdout()), err: Box::new(io::stderr()), json: false, terminal, stage }
    }

    /// Into writers of the caller's; nobody looks at a terminal.
    pub fn into_writers(out: Box<dyn Write + Send>, err: Box<dyn Write + Send>) -> Self {
        Self { out, err, json: false, terminal: false, stage: Stage::hidden() }
    }

    /// The live view.
    pub(super) fn live(&self) -> &MultiProgress {
        self.stage.live()
    }

    /// Where lines, the live view and questions meet.
    pub(super) fn stage(&self) -> &Stage {
        &self.stage
    }

    /// A line of the result.
    pub(super) fn line(&mut self, text: &str) -> io::Result<()> {
        self.stage.write(Stream::Out, format!("{text}\n").as_bytes(), &mut *self.out)
    }

    /// A remark beside the result. A closed standard error costs only the remark.
    pub(super) fn remark(&mut self, text: &str) {
        if let Err(error) = self.stage.write(Stream::Err, format!("{text}\n").as_bytes(), &mut *self.err) {
            tracing::debug!("a remark was not written: {error}");
        }
    }

    /// A line that is the result for people, and a remark where the result is JSON.
    pub(super) fn progress(&mut self, text: &str) -> io::Result<()> {
        if self.json {
            self.remark(text);
            return Ok(());
        }
        self.line(text)
    }

    /// An answer as the Brain gave it. On a terminal whatever cannot be seen is escaped, which JSON can say itself.
    pub(super) fn raw(&mut self, body: &Raw) -> io::Result<()> {
        let text = body.get().trim();
        if self.terminal { self.line(&escaped_json(text)) } else { self.line(text) }
    }

    /// A JSON value.
    pub(super) fn value(&mut self, value: &Value) -> io::Result<()> {
        self.raw(&Raw::from(value.clone()))
    }

    /// A JSON value for people, over several lines.
    pub(super) fn pretty(&mut self, value: &Value) -> io::Result<()> {
        self.line(&escaped_json(&format!("{value:#}")))
    }

    /// Foreign text of several lines: as it is for a program, made safe for a terminal.
    pub(super) fn foreign<'t>(&self, text: &'t str) -> Cow<'t, str> {
        if !self.terminal {
            return Cow::Borrowed(text);
        }
        Cow::Owned(text.lines().map(plain).collect::<Vec<_>>().join("\n"))
    }

    /// A table, or a remark when it is empty.
    pub(super) fn table<const N: usize>(
        &mut self,
        head: [&str; N],
        rows: Vec<[String; N]>,
        empty: &str,
    ) -> io::Result<()> {
        if rows.is_empty() {
            self.remark(empty);
            return Ok(());
        }
        let mut table = Table::new();
        table.load_style(comfy_table::presets::NOTHING).set_header(head);
        for row in rows {
            table.add_row(row.iter().map(|cell| plain(cell)));
        }
        // Text goes on in a pipe, however long; a terminal wraps it itself.
        let text: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
        self.line(&text.join("\n"))
    }

    /// Says why a command failed, in the form that was asked for.
    pub(super) fn failure(&mut self, failure: &Failure) {
        if failure.is_closed_reader() {
            return;
        }
        if self.json {
            if let Err(error) = self.value(&failure.to_json()) {
                tracing::debug!("the error was not written: {error}");
            }
            return;
        }
        if let Failure::Mistakes { problems, .. } = failure {
            for problem in problems {
                let place = plain(&problem.file);
                match problem.line {
                    0 => self.remark(&format!("{place}: {}", plain(&problem.message))),
                    line => self.remark(&format!("{place}:{line}: {}", plain(&problem.message))),
                }
            }
            return;
        }
        let text = failure.to_string().lines().map(plain).collect::<Vec<_>>().join("\n");
        self.remark(&format!("vancetope: {text}"));
    }
}

/// JSON text with everything that cannot be seen as `\uXXXX` (it can only stand inside strings).
fn escaped_json(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut units = [0u16; 2];
    for c in text.chars() {
        if is_visible(c) || c == '\n' {
            out.push(c);
        } else {
            for unit in c.encode_utf16(&mut units) {
                out.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn json_on_a_terminal_steers_nothing_can_be_read_and_is_the_same_value() {
        let value = serde_json::json!({"a": "é\u{202e}\u{9b}😀\u{1b}茶"});
        let text = escaped_json(&value.to_string());
        assert!(text.chars().all(is_visible) && text.contains('é') && text.contains('茶'), "{text}");
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
    }
}

//! The prompt with its status line, and the way in which lines of others appear above it.
//!
//! reedline can print lines above the prompt, but counts on a prompt of one row with the cursor at its end. So only a token that
//! prints nothing goes that way. When it arrives, the prompt's right side is asked for before anything is written, and not after
//! the left one as in a painting; at that moment the rows are freed here, exactly, and the lines are written.

use std::borrow::Cow;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use reedline::{Color, Highlighter, Prompt, PromptEditMode, PromptHistorySearch, StyledText};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::cli::stage::Stage;

/// A line that reedline prints as nothing: up, and with the line's own end down again.
pub(super) const TOKEN: &str = "\x1b[1A";
/// What stands before the line that is typed.
pub(super) const INDICATOR: &str = "\u{203a} ";
/// What stands before the further lines of a text of several lines.
const CONTINUED: &str = "  ";
/// Width of a terminal that does not tell it.
const WIDTH: u16 = 80;

/// What the parts of the editor know of each other.
#[derive(Debug, Clone)]
pub(super) struct Scene {
    stage: Stage,
    status: Arc<Mutex<String>>,
    typed: Arc<Mutex<Typed>>,
    painting: Arc<AtomicBool>,
}

/// The line as it was last painted.
#[derive(Debug, Default)]
struct Typed {
    text: String,
    cursor: usize,
}

impl Scene {
    pub(super) fn new(stage: Stage) -> Self {
        Self { stage, status: Arc::default(), typed: Arc::default(), painting: Arc::default() }
    }

    /// Sets the status line; true if it is another one.
    pub(super) fn set_status(&self, text: &str) -> bool {
        let mut status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = *status != text;
        if is_new {
            text.clone_into(&mut status);
        }
        is_new
    }

    /// True if nothing was typed.
    pub(super) fn is_blank(&self) -> bool {
        self.typed.lock().unwrap_or_else(PoisonError::into_inner).text.trim().is_empty()
    }

    /// What moves the cursor to the prompt's first row and clears all from there.
    pub(super) fn clear(&self) -> String {
        let typed = self.typed.lock().unwrap_or_else(PoisonError::into_inner);
        let before = typed.text.get(..typed.cursor).unwrap_or(&typed.text);
        let up = 1 + rows_above(before, width());
        format!("\r\x1b[{up}A\x1b[J")
    }

    /// Frees the rows of the prompt and writes there what others have to say.
    fn show_above(&self) {
        let mut out = self.clear().into_bytes();
        for line in self.stage.lines_above().split_inclusive(|b| *b == b'\n') {
            out.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
            out.extend_from_slice(b"\r\n");
        }
        let typed = self.typed.lock().unwrap_or_else(PoisonError::into_inner);
        // reedline goes up by this next.
        out.extend(std::iter::repeat_n(b'\n', rows_that_reedline_goes_up(&typed.text, width())));
        if let Err(error) = std::io::stderr().write_all(&out) {
            tracing::debug!("the terminal was not written: {error}");
        }
    }
}

/// The terminal's width in columns.
pub(super) fn width() -> usize {
    usize::from(crossterm::terminal::size().map_or(WIDTH, |(columns, _)| if columns == 0 { WIDTH } else { columns }))
}

/// Rows between the first row of the text and the cursor at its end.
fn rows_above(before: &str, width: usize) -> usize {
    let (mut rows, mut column) = (0, INDICATOR.width());
    for c in before.chars() {
        if c == '\n' {
            (rows, column) = (rows + 1, CONTINUED.width());
            continue;
        }
        let wide = c.width().unwrap_or(0);
        if column + wide > width {
            (rows, column) = (rows + 1, 0);
        }
        column += wide;
    }
    rows + usize::from(column >= width)
}

/// The same estimate as in reedline's `print_external_message`.
fn rows_that_reedline_goes_up(text: &str, width: usize) -> usize {
    let rows = text.lines().enumerate().map(|(i, line)| (line.len() + if i == 0 { 3 } else { 0 }) / width + 1);
    rows.sum::<usize>().saturating_sub(1)
}

impl Prompt for Scene {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        self.painting.store(true, Ordering::Relaxed);
        let status = self.status.lock().unwrap_or_else(PoisonError::into_inner);
        // One row, whatever it says; the last column stays free, where terminals differ.
        let (mut line, mut column, room) = (String::new(), 0, width().saturating_sub(1));
        for c in status.chars() {
            column += c.width().unwrap_or(0);
            if column > room {
                break;
            }
            line.push(c);
        }
        Cow::Owned(format!("{line}\n"))
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        if !self.painting.swap(false, Ordering::Relaxed) {
            self.show_above();
        }
        Cow::Borrowed("")
    }

    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed(INDICATOR)
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed(CONTINUED)
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        Cow::Owned(format!("search: {} {INDICATOR}", search.term))
    }

    fn get_prompt_color(&self) -> Color {
        Color::DarkGray
    }

    fn get_indicator_color(&self) -> Color {
        Color::Default
    }
}

/// Takes note of what is painted, and paints it as it is.
pub(super) struct Watched(pub(super) Scene);

impl Highlighter for Watched {
    fn highlight(&self, line: &str, cursor: usize) -> StyledText {
        let mut typed = self.0.typed.lock().unwrap_or_else(PoisonError::into_inner);
        line.clone_into(&mut typed.text);
        typed.cursor = cursor;
        let mut text = StyledText::new();
        text.push((Default::default(), line.to_owned()));
        text
    }
}

/// What stays of a prompt once its line was entered: the line.
pub(super) struct Entered;

impl Prompt for Entered {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        Cow::Borrowed("")
    }

    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        Cow::Borrowed(INDICATOR)
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        Cow::Borrowed(CONTINUED)
    }

    fn render_prompt_history_search_indicator(&self, _: PromptHistorySearch) -> Cow<'_, str> {
        Cow::Borrowed(INDICATOR)
    }

    fn get_indicator_color(&self) -> Color {
        Color::Default
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_between_the_prompt_and_the_cursor() {
        for (before, width, want) in [
            ("", 20, 0),
            ("abc", 20, 0),
            (&"a".repeat(17), 20, 0),
            (&"a".repeat(18), 20, 1),
            (&"a".repeat(19), 20, 1),
            (&"a".repeat(38), 20, 2),
            ("a\nb", 20, 1),
            ("\u{65e5}\u{672c}\u{8a9e}\u{65e5}\u{672c}\u{8a9e}", 11, 1),
        ] {
            assert_eq!(rows_above(before, width), want, "{before:?} in {width}");
        }
    }

    #[test]
    fn a_status_line_is_one_row() {
        let scene = Scene::new(Stage::hidden());
        assert!(scene.set_status(&"x".repeat(500)) && !scene.set_status(&"x".repeat(500)));
        let left = scene.render_prompt_left().into_owned();
        assert!(left.ends_with("x\n") && left.len() <= width() && left.lines().count() == 1, "{left}");
    }
}

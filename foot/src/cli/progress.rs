//! How far a call is, for whoever waits for it at a terminal.

use std::io::IsTerminal as _;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use vance_shared::show::plain;

use super::context::Context;
use super::stage::Stage;
use crate::engine::Progress;

/// Between two lines on one call, where lines stay.
const LINE_EVERY: Duration = Duration::from_secs(1);
/// Longest message that is shown, in characters: a line, and no more of it.
const MAX_MESSAGE: usize = 160;

/// `40%: reading`, `40%`, `reading`; nothing if nothing is known. Safe to print.
pub(super) fn words(fraction: Option<f64>, message: Option<&str>) -> Option<String> {
    let percent = fraction.filter(|f| f.is_finite()).map(|f| format!("{:.0}%", f.clamp(0.0, 1.0) * 100.0));
    let message = message.map(str::trim).filter(|text| !text.is_empty()).map(|text| {
        let shown = plain(&text.chars().take(MAX_MESSAGE).collect::<String>());
        if text.chars().nth(MAX_MESSAGE).is_some() { format!("{shown}...") } else { shown }
    });
    match (percent, message) {
        (Some(percent), Some(message)) => Some(format!("{percent}: {message}")),
        (percent, message) => percent.or(message),
    }
}

/// Whether a line is due: another one than the last, and not at once after it.
#[derive(Debug, Default)]
pub(super) struct Pace {
    last: Option<(Instant, String)>,
}

impl Pace {
    /// True if it is to be said now.
    pub(super) fn is_due(&mut self, text: &str) -> bool {
        let due = self.last.as_ref().is_none_or(|(at, said)| said != text && at.elapsed() >= LINE_EVERY);
        if due {
            self.last = Some((Instant::now(), text.to_owned()));
        }
        due
    }
}

/// What is shown of one call that a command makes.
pub(super) struct Shown {
    stage: Stage,
    bar: Arc<OnceLock<ProgressBar>>,
    listener: Option<Progress>,
}

impl Shown {
    /// On standard error if that is a terminal: one line that changes where that can be, else a line a second.
    pub(super) fn new(context: &Context, tool: &str) -> Self {
        let stage = context.screen.stage().clone();
        let bar = Arc::<OnceLock<ProgressBar>>::default();
        let wanted = stage.is_own() && !context.general.json && std::io::stderr().is_terminal();
        let live = !context.general.no_ui && !context.dumb();
        let listener = wanted.then(|| {
            let (stage, bar, tool) = (stage.clone(), Arc::clone(&bar), plain(tool));
            let pace = Mutex::new(Pace::default());
            Arc::new(move |fraction: Option<f64>, message: Option<String>| {
                let Some(text) = words(fraction, message.as_deref()) else { return };
                let text = format!("{tool}: {text}");
                if live {
                    bar.get_or_init(|| stage.live().add(ProgressBar::new_spinner())).set_message(text);
                } else if pace.lock().unwrap_or_else(PoisonError::into_inner).is_due(&text) {
                    stage.remark(&text);
                }
            }) as Progress
        });
        Self { stage, bar, listener }
    }

    /// Hears of it.
    pub(super) fn listener(&self) -> Option<Progress> {
        self.listener.clone()
    }
}

impl Drop for Shown {
    fn drop(&mut self) {
        if let Some(bar) = self.bar.get() {
            bar.finish_and_clear();
            self.stage.live().remove(bar);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_one_safe_line() {
        for (fraction, message, want) in [
            (Some(0.4), Some("reading"), Some("40%: reading")),
            (Some(7.0), None, Some("100%")),
            (Some(f64::NAN), Some(" a\u{1b}[2J\nb "), Some("a\\x1b[2J\\nb")),
            (None, Some(""), None),
            (None, None, None),
        ] {
            assert_eq!(words(fraction, message).as_deref(), want, "{fraction:?} {message:?}");
        }
        assert_eq!(words(None, Some(&"x".repeat(1000))).map(|text| text.len()), Some(MAX_MESSAGE + 3));
    }

    #[test]
    fn lines_that_stay_come_one_a_second_and_none_twice() {
        let mut pace = Pace::default();
        assert!(pace.is_due("a") && !pace.is_due("b"));
        let long_ago = |pace: &mut Pace| {
            if let Some((at, _)) = &mut pace.last {
                *at = at.checked_sub(LINE_EVERY).unwrap_or(*at);
            }
        };
        long_ago(&mut pace);
        assert!(!pace.is_due("a") && pace.is_due("b"));
    }
}

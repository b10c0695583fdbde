//! Log lines on standard error: standard output belongs to results.

use std::fmt;
use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Replaces the level with a filter such as `warn,vance_foot=debug`.
pub const FILTER_VARIABLE: &str = "VANCE_LOG";
/// `json` gives one JSON object a line, `text` (or nothing) lines for people.
pub const FORMAT_VARIABLE: &str = "VANCE_LOG_FORMAT";

/// The library whose lines are in no log unless they are asked for by this name.
const QUIET: &str = "rmcp";

/// How much is logged without `-v` and without a filter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Errors alone: a command whose result says what went wrong on the way.
    Error,
    /// Warnings and errors: a command that a person waits for.
    Warn,
    /// Also what a service did: it has no other voice.
    Info,
    /// Also why.
    Debug,
    /// Everything, the libraries included.
    Trace,
}

impl Level {
    /// The level after so many `-v`.
    #[must_use]
    pub fn raised(self, times: u8) -> Self {
        (0..times.min(3)).fold(self, |level, _| match level {
            Self::Error => Self::Warn,
            Self::Warn => Self::Info,
            Self::Info => Self::Debug,
            Self::Debug | Self::Trace => Self::Trace,
        })
    }

    /// Our own crates at this level; libraries stay at warnings until more is asked for.
    fn directives(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "warn,vance=info",
            Self::Debug => "warn,vance=debug",
            Self::Trace => "info,vance=trace",
        }
    }
}

/// How a log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For people; coloured on a terminal.
    Text,
    /// One JSON object a line.
    Json,
}

/// What to log and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Used when there is no filter.
    pub level: Level,
    /// A filter in the usual syntax (`warn,vance_foot=debug`); replaces the level.
    pub filter: Option<String>,
    /// The look of a line.
    pub format: Format,
}

impl Options {
    /// From the command line's level and the environment ([`FILTER_VARIABLE`], [`FORMAT_VARIABLE`]).
    pub fn from_env(level: Level) -> Self {
        Self::of(level, std::env::var(FILTER_VARIABLE).ok(), std::env::var(FORMAT_VARIABLE).ok().as_deref())
    }

    /// The filter in effect. rmcp stays silent unless a filter names it: what goes wrong there reaches our own code, which says it once and
    /// with the pack, and its lines show payloads and addresses with the keys in them.
    fn directives(&self) -> String {
        let wanted = self.filter.as_deref().unwrap_or(self.level.directives());
        match wanted.contains(QUIET) {
            true => wanted.to_owned(),
            false => format!("{wanted},{QUIET}=off"),
        }
    }

    fn of(level: Level, filter: Option<String>, format: Option<&str>) -> Self {
        let filter = filter.filter(|text| !text.trim().is_empty());
        let format = if format == Some("json") { Format::Json } else { Format::Text };
        Self { level, filter, format }
    }
}

/// Why logging did not start.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// The filter cannot be read.
    #[error("{FILTER_VARIABLE}: {0}; expected for example `info` or `warn,vance_foot=debug`")]
    Filter(String),
    /// Something in this process already logs.
    #[error("logging was already started in this process")]
    Twice,
}

/// Starts logging on standard error, for the whole process, once.
pub fn init(options: &Options) -> Result<(), InitError> {
    init_with(options, std::io::stderr)
}

/// Starts logging into a writer of the caller's: a live view must step aside for a line.
pub fn init_with<W>(options: &Options, writer: W) -> Result<(), InitError>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let filter = EnvFilter::try_new(options.directives()).map_err(|e| InitError::Filter(e.to_string()))?;
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_ansi(colour);
    let started = match options.format {
        Format::Text => lines.with_target(false).try_init(),
        Format::Json => lines.json().flatten_event(true).with_ansi(false).try_init(),
    };
    started.map_err(|_| InitError::Twice)
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_v_raises_the_level_and_the_last_one_is_everything() {
        for (from, times, want) in [
            (Level::Error, 1, Level::Warn),
            (Level::Warn, 0, Level::Warn),
            (Level::Warn, 1, Level::Info),
            (Level::Warn, 2, Level::Debug),
            (Level::Info, 1, Level::Debug),
            (Level::Warn, 200, Level::Trace),
        ] {
            assert_eq!(from.raised(times), want, "{from:?} {times}");
        }
    }

    #[test]
    fn an_empty_filter_is_none_and_the_format_is_text_unless_json() {
        let options = Options::of(Level::Warn, Some(" ".into()), Some("yes"));
        assert_eq!(options, Options { level: Level::Warn, filter: None, format: Format::Text });
        assert_eq!(Options::of(Level::Warn, None, Some("json")).format, Format::Json);
    }

    #[test]
    fn a_bad_filter_says_what_is_expected() {
        let options = Options { level: Level::Warn, filter: Some("vance=loud".into()), format: Format::Text };
        let said = init(&options).unwrap_err().to_string();
        assert!(said.starts_with("VANCE_LOG: ") && said.contains("expected"), "{said}");
    }

    #[test]
    fn rmcp_is_silent_at_every_level_and_with_every_filter_that_does_not_name_it() {
        let said = |level: Level, filter: Option<&str>| {
            let options = Options { level, filter: filter.map(str::to_owned), format: Format::Text };
            let kept = Kept::default();
            let writer = kept.clone();
            let lines = tracing_subscriber::fmt()
                .with_env_filter(EnvFilter::try_new(options.directives()).unwrap())
                .with_writer(move || writer.clone());
            tracing::subscriber::with_default(lines.finish(), || {
                tracing::error!(target: "rmcp::transport::worker", "https://h/mcp?key=SEKRET");
                tracing::error!(target: "vance_foot", "ours");
            });
            let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
            (text.contains("SEKRET"), text.contains("ours"))
        };
        for level in [Level::Error, Level::Warn, Level::Info, Level::Debug, Level::Trace] {
            assert_eq!(said(level, None), (false, true), "{level}");
        }
        for filter in ["info", "trace", "warn,vance_foot=debug", "info,"] {
            assert_eq!(said(Level::Info, Some(filter)), (false, true), "{filter}");
        }
        assert_eq!(said(Level::Info, Some("info,rmcp=warn")), (true, true));
    }

    #[test]
    fn a_json_line_has_the_field_names_as_keys_and_libraries_stay_quiet() {
        let kept = Kept::default();
        let writer = kept.clone();
        let options = Options { level: Level::Info, filter: None, format: Format::Json };
        init_with(&options, move || writer.clone()).unwrap();
        tracing::info!(target: "vance_foot", ended = true, { crate::names::CALL_ID } = "call_1", "ended");
        tracing::info!(target: "hyper", "chatter");
        let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains("\"vance.call.id\":\"call_1\"") && text.contains("\"message\":\"ended\""), "{text}");
        assert!(init(&options).is_err(), "a second start is refused");
    }
}

//! `audit/trust.jsonl`: every decision on one line of JSON, each with the hash of the line before it. Nobody can take a line out of the middle
//! or change one without a trace. How far the log went stands in a second file ([`End`]), so that a cut end is noticed, too. The shell appends; what a
//! line says and whether the chain holds is decided here.
//!
//! A crash can leave a part of a line at the end. The next writer ends it and notes that as [`Event::Torn`], linked to what is there of it.

use serde::{Deserialize, Serialize};

use super::Digest;

/// The reason of an [`Event::Torn`].
const TORN: &str = "a line was cut short, as by a crash";

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A person said `1`.
    AllowedOnce,
    /// A person said `2`.
    AllowedAlways,
    /// Allowed by its digest, without a terminal.
    AllowedByDigest,
    /// A person said no.
    Refused,
    /// Nobody answered in time.
    TimedOut,
    /// There was nobody to ask, or the pack cannot be asked about.
    NotAsked,
    /// A consented file changed between the question and the start.
    Changed,
    /// Consent was taken back.
    Revoked,
    /// Denied for good.
    Denied,
    /// The denial ended.
    Undenied,
    /// Its directory is gone.
    Pruned,
    /// Its changed tools were looked at and accepted.
    ToolsAccepted,
    /// No decision: the line before this one was cut short by a crash.
    Torn,
    /// No decision: what was written before this is not there any more.
    Cut,
}

/// One decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// When, in UTC: `2026-03-01T12:00:00Z`.
    pub at: String,
    /// What was decided.
    pub event: Event,
    /// The project's directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The pack.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pack: Option<String>,
    /// What it runs or reaches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reach: Option<String>,
    /// What was consented to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The reason where there is one to give.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A line with its link to the one before.
#[derive(Serialize, Deserialize)]
struct Linked {
    #[serde(flatten)]
    line: Line,
    /// Hash of the line before, without its newline; none for the first.
    prev: Option<String>,
}

impl Line {
    /// What the log says about itself.
    fn about_itself(at: &str, event: Event, why: &str) -> Self {
        let reason = Some(why.to_owned());
        Self { at: at.to_owned(), event, project: None, pack: None, reach: None, digest: None, reason }
    }
}

/// Where the chain breaks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the trust log {why}")]
pub struct Broken {
    /// 1-based.
    pub line: usize,
    /// What is wrong.
    pub why: &'static str,
}

/// How far a log went when something was last written to it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Lines, torn ones included.
    pub lines: u64,
    /// Bytes.
    pub bytes: u64,
    /// Hash of the last line, without its newline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last: Option<String>,
}

impl End {
    /// Reads what was written down; none if that is no record of an end. Each line has a byte at least.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().filter(|end: &Self| end.lines <= end.bytes)
    }

    /// After `text` was appended, whose last line ends. `bytes`: how long the log is now.
    #[must_use]
    pub fn and(self, text: &str, bytes: u64) -> Self {
        let lines = self.lines.saturating_add(text.matches('\n').count() as u64);
        Self { lines, bytes, last: ended(text).last().map(hash).or(self.last) }
    }

    /// Whether a whole log still goes as far. What it holds beyond was written just before a crash.
    pub fn check(&self, text: &str) -> Result<(), Broken> {
        let Some(at) = usize::try_from(self.lines).ok().and_then(|lines| lines.checked_sub(1)) else { return Ok(()) };
        match ended(text).nth(at).map(hash) {
            None => Err(Broken { line: ended(text).count() + 1, why: "is missing: the log's end was cut off" }),
            there if there != self.last => Err(Broken { line: at + 1, why: "is not what was written there" }),
            Some(_) => Ok(()),
        }
    }

    /// The same before something is appended, as far as the log's length and end tell.
    pub fn continues(&self, bytes: u64, tail: &str) -> Result<(), String> {
        if bytes < self.bytes {
            return Err(format!("the log had {} lines, and its end was cut off", self.lines));
        }
        if bytes == self.bytes && ended(tail).last().map(hash) != self.last {
            return Err(format!("line {} is not what was written there", self.lines));
        }
        Ok(())
    }
}

/// The lines that have an end, without it.
fn ended(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'))
}

fn hash(text: &str) -> String {
    Digest::of(text.as_bytes()).to_string()
}

fn is_entry(line: &str) -> bool {
    serde_json::from_str::<Linked>(line).is_ok()
}

/// The text to append, its last newline included, with notes about the log itself before it. `tail`: the log's end, from the beginning of a line
/// on, long enough for the last entry. `cut`: why what is there is not what was written.
pub fn append(tail: &str, cut: Option<&str>, line: Line) -> Result<String, serde_json::Error> {
    let whole = tail.strip_suffix('\n').unwrap_or(tail);
    let starts = whole.match_indices('\n').map(|(at, _)| at + 1);
    let mut starts: Vec<usize> = std::iter::once(0).chain(starts).collect();
    // From the last entry on: normally that is the last line.
    let is_torn =
        !tail.is_empty() && (!tail.ends_with('\n') || starts.last().is_some_and(|at| !is_entry(&whole[*at..])));
    let line_at = |at: usize| whole[at..].split('\n').next().unwrap_or_default();
    while starts.len() > 1 && starts.last().is_some_and(|at| !is_entry(line_at(*at))) {
        starts.pop();
    }
    let mut prev = starts.last().filter(|_| !tail.is_empty()).map(|at| hash(&whole[*at..]));
    let mut text = String::new();
    if !tail.is_empty() && !tail.ends_with('\n') {
        text.push('\n');
    }
    let torn = is_torn.then_some((Event::Torn, TORN));
    let notes = torn.into_iter().chain(cut.map(|why| (Event::Cut, why)));
    let notes: Vec<Line> = notes.map(|(event, why)| Line::about_itself(&line.at, event, why)).collect();
    for line in notes.into_iter().chain([line]) {
        let written = serde_json::to_string(&Linked { line, prev })?;
        prev = Some(hash(&written));
        text.push_str(&written);
        text.push('\n');
    }
    Ok(text)
}

/// Reads a whole log and checks its chain. A line that a crash cut short is an [`Event::Torn`]; if it is the last one, without a time.
pub fn read(text: &str) -> Result<Vec<Line>, Broken> {
    let mut lines = Vec::new();
    // Where the last entry begins, and the first line behind it that is none.
    let (mut last, mut torn) = (0, None);
    let mut start = 0;
    for (at, line) in (1..).zip(text.split_inclusive('\n')) {
        let broken = |line, why| Broken { line, why };
        let Some(whole) = line.strip_suffix('\n') else {
            torn = torn.or(Some(at));
            break;
        };
        let here = start;
        start += line.len();
        let Ok(Linked { line, prev }) = serde_json::from_str(whole) else {
            torn = torn.or(Some(at));
            continue;
        };
        if let Some(torn) = torn.take().filter(|_| line.event != Event::Torn) {
            return Err(broken(torn, "is no entry"));
        }
        if prev != (here > 0).then(|| hash(&text[last..here - 1])) {
            return Err(broken(at, "does not follow from the line before it"));
        }
        lines.push(line);
        last = here;
    }
    if torn.is_some() {
        lines.push(Line::about_itself("", Event::Torn, TORN));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn line(pack: &str) -> Line {
        Line { pack: Some(pack.to_owned()), ..Line::about_itself("2026-03-01T12:00:00Z", Event::Denied, "é") }
    }

    fn log(packs: &[&str]) -> String {
        packs.iter().fold(String::new(), |text, pack| {
            let next = append(&text, None, line(pack)).unwrap();
            text + &next
        })
    }

    fn events(text: &str) -> Vec<Event> {
        read(text).unwrap().iter().map(|line| line.event).collect()
    }

    #[test]
    fn wherever_a_write_is_cut_the_log_goes_on_and_says_so() {
        let before = log(&["a", "b"]);
        let next = append(&before, None, line("c")).unwrap();
        for cut in 1..next.len() {
            let torn = String::from_utf8_lossy(&next.as_bytes()[..cut]);
            let text = format!("{before}{torn}");
            assert_eq!(events(&text), [Event::Denied, Event::Denied, Event::Torn], "{cut}");
            let noted = append(&text, None, line("d")).unwrap();
            let text_noted = format!("{text}{noted}");
            let wanted = match is_entry(&torn) {
                true => vec![Event::Denied, Event::Denied, Event::Denied, Event::Torn, Event::Denied],
                false => vec![Event::Denied, Event::Denied, Event::Torn, Event::Denied],
            };
            assert_eq!(events(&text_noted), wanted, "{cut}");
            // And what is cut while that is noted.
            for cut in (1..noted.len()).step_by(7) {
                let text = format!("{text}{}", &noted[..cut]);
                let text = format!("{text}{}", append(&text, None, line("e")).unwrap());
                assert!(is_entry(&torn) || events(&text).contains(&Event::Torn), "{text}");
                assert!(events(&text).ends_with(&[Event::Denied]), "{text}");
            }
        }
        // What is before a torn line belongs to the chain, too.
        let torn = format!("{before}{{\"at");
        let noted = torn.clone() + &append(&torn, None, line("c")).unwrap();
        let without: String =
            noted.split_inclusive('\n').enumerate().filter(|(at, _)| *at != 1).map(|(_, l)| l).collect();
        assert_eq!(read(&without).unwrap_err().line, 3);
        let garbage = format!("{before}x\n");
        assert_eq!(read(&format!("{garbage}{next}")).unwrap_err().line, 3);
    }

    #[test]
    fn an_end_that_was_cut_off_is_noticed() {
        let (long, short) = (log(&["a", "b", "c"]), log(&["a", "b"]));
        let end = End::default().and(&short, short.len() as u64);
        assert_eq!(
            end,
            End::default().and(&log(&["a"]), 1).and(short.split_inclusive('\n').next_back().unwrap(), end.bytes)
        );
        for (text, wanted) in [
            (&short, None),
            (&long, None),
            (&log(&["a"]), Some(2)),
            (&String::new(), Some(1)),
            (&log(&["a", "x"]), Some(2)),
        ] {
            assert_eq!(end.check(text).err().map(|broken| broken.line), wanted, "{text}");
            assert_eq!(end.continues(text.len() as u64, text).is_err(), wanted.is_some(), "{text}");
        }
        assert!(End::default().check("").is_ok() && End::default().continues(0, "").is_ok());
        let noted = append(&log(&["a"]), Some("it was cut"), line("d")).unwrap();
        assert_eq!(events(&(log(&["a"]) + &noted)), [Event::Denied, Event::Cut, Event::Denied]);
        assert_eq!(End::parse(&serde_json::to_string(&end).unwrap()), Some(end));
        for (text, is_one) in [
            (r#"{"lines":0,"bytes":0}"#, true),
            (r#"{"lines":18446744073709551615,"bytes":18446744073709551615}"#, true),
            (r#"{"lines":18446744073709551615,"bytes":0,"last":null}"#, false),
            (r#"{"lines":18446744073709551616,"bytes":18446744073709551616}"#, false),
            ("", false),
        ] {
            let end = End::parse(text);
            assert_eq!(end.is_some(), is_one, "{text}");
            // Whatever it says: no panic.
            let end = end.unwrap_or_default();
            assert_eq!(end.continues(9, "a\nb\n").is_err(), end.bytes > 9, "{text}");
            assert!(end.clone().and("a\n", u64::MAX).lines >= end.lines, "{text}");
        }
    }
}

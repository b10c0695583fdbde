//! What a server says on its diagnostics: into the log, bounded, and its last words into the reason of its end.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::time::Instant;
use vance_shared::names::PackName;
use vance_shared::show::plain;

use crate::mask::Mask;

/// More of a line says nothing to a reader of logs.
const LINE_BYTES: usize = 2_000;
/// Lines a second that are logged; the others are counted.
const LINES_A_SECOND: u32 = 100;
/// Last words that are kept.
const LAST_LINES: usize = 3;

/// The last lines of a server. A lock, because one task reads while the end is described in another.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastWords(Arc<Mutex<VecDeque<String>>>);

impl LastWords {
    /// Reads to the end, in the background: a server whose diagnostics nobody reads hangs.
    pub(crate) fn follow(pack: PackName, mask: Arc<Mask>, errors: impl AsyncRead + Send + Unpin + 'static) -> Self {
        let words = Self::default();
        let ours = words.clone();
        tokio::spawn(async move { ours.read(&pack, &mask, BufReader::new(errors)).await });
        words
    }

    async fn read(&self, pack: &PackName, mask: &Mask, mut errors: BufReader<impl AsyncRead + Unpin>) {
        // Half a value at the end of what is kept would not be found.
        let keep = LINE_BYTES + mask.longest();
        let mut line = Vec::new();
        let (mut second, mut shown, mut hidden) = (Instant::now(), 0_u32, 0_u64);
        while let Ok(true) = next_line(&mut errors, &mut line, keep).await {
            if second.elapsed() >= Duration::from_secs(1) {
                if hidden > 0 {
                    tracing::debug!(pack = %pack, lines = hidden, "more on its stderr");
                }
                (second, shown, hidden) = (Instant::now(), 0, 0);
            }
            let masked = mask.owned(String::from_utf8_lossy(&line).into_owned());
            let end = masked.floor_char_boundary(LINE_BYTES);
            let text = plain(masked.get(..end).unwrap_or_default().trim_end());
            line.clear();
            if text.is_empty() {
                continue;
            }
            if shown < LINES_A_SECOND {
                shown += 1;
                tracing::debug!(pack = %pack, "stderr: {text}");
            } else {
                hidden += 1;
            }
            let mut words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if words.len() == LAST_LINES {
                words.pop_front();
            }
            words.push_back(text);
        }
    }

    /// A reason with the last words behind it.
    pub(crate) fn add_to(&self, reason: String) -> String {
        let words = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if words.is_empty() {
            return reason;
        }
        let words: Vec<&str> = words.iter().map(|line| line.get(..300).unwrap_or(line)).collect();
        format!("{reason}; its last words: {}", words.join(" / "))
    }
}

/// One line, of which the first `keep` bytes are kept. `false`: the end.
async fn next_line(
    errors: &mut (impl AsyncBufReadExt + Unpin),
    line: &mut Vec<u8>,
    keep: usize,
) -> std::io::Result<bool> {
    let mut any = false;
    loop {
        let ready = errors.fill_buf().await?;
        if ready.is_empty() {
            return Ok(any);
        }
        any = true;
        let end = ready.iter().position(|byte| *byte == b'\n');
        let part = ready.get(..end.unwrap_or(ready.len())).unwrap_or_default();
        let room = keep.saturating_sub(line.len()).min(part.len());
        line.extend_from_slice(part.get(..room).unwrap_or_default());
        let taken = part.len() + usize::from(end.is_some());
        errors.consume(taken);
        if end.is_some() {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn the_last_words_are_kept_short_and_harmless() {
        let words = LastWords::default();
        let text = format!("one\ntwo\n\n{}\n\u{1b}[2Jfour", "x".repeat(1_000_000));
        words.read(&PackName::parse("p").unwrap(), &Mask::default(), BufReader::new(text.as_bytes())).await;
        let reason = words.add_to("gone".into());
        assert_eq!(reason, format!("gone; its last words: two / {} / \\x1b[2Jfour", "x".repeat(300)));
    }

    #[tokio::test]
    async fn a_server_that_says_its_secret_is_not_quoted_not_even_half_of_it() {
        let words = LastWords::default();
        let mask = Mask::new([("hunter2\nsecond-line".to_owned(), "{{secret:A}}".to_owned())]);
        let cut = "x".repeat(LINE_BYTES - 3);
        let text = format!("bad key hunter2 (second-line)\n{cut}hunter2\n'hunter2\\nsecond-line'");
        words.read(&PackName::parse("p").unwrap(), &mask, BufReader::new(text.as_bytes())).await;
        let said = words.0.lock().unwrap().clone();
        assert_eq!(said[0], "bad key {{secret:A}} ({{secret:A}})");
        assert_eq!((said[1].clone(), said[2].as_str()), (format!("{cut}{{{{s"), "'{{secret:A}}'"));
    }
}

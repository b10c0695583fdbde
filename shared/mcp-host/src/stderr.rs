//! What a server says on its diagnostics: into the log, bounded, and its last words into the reason of its end.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::time::Instant;
use vance_shared::launch::LaunchPlan;
use vance_shared::names::PackName;
use vance_shared::secrets;
use vance_shared::show::plain;

use crate::vault::Vault;

/// More of a line says nothing to a reader of logs.
const LINE_BYTES: usize = 2_000;
/// Lines a second that are logged; the others are counted.
const LINES_A_SECOND: u32 = 100;
/// Last words that are kept.
const LAST_LINES: usize = 3;

/// Secrets that are shorter are not looked for: they would be found everywhere.
const MIN_SECRET_BYTES: usize = 6;

/// Values that stand in no log, each with what stands in their place.
#[derive(Default)]
pub(crate) struct Secrets(Vec<(String, String)>);

impl Secrets {
    /// The secrets of a plan, as far as they are set.
    pub(crate) fn of(plan: &LaunchPlan, vault: Option<&dyn Vault>) -> Self {
        let Some(vault) = vault else { return Self::default() };
        let names = secrets::of_plan(plan).into_iter();
        let known = names.filter_map(|name| Some((vault.secret(&name).ok()?, format!("{{{{secret:{name}}}}}"))));
        Self(known.filter(|(value, _)| value.len() >= MIN_SECRET_BYTES).collect())
    }

    fn hide(&self, text: String) -> String {
        self.0.iter().fold(text, |text, (value, name)| match text.contains(value) {
            true => text.replace(value, name),
            false => text,
        })
    }
}

/// The last lines of a server. A lock, because one task reads while the end is described in another.
#[derive(Debug, Clone, Default)]
pub(crate) struct LastWords(Arc<Mutex<VecDeque<String>>>);

impl LastWords {
    /// Reads to the end, in the background: a server whose diagnostics nobody reads hangs.
    pub(crate) fn follow(pack: PackName, secrets: Secrets, errors: impl AsyncRead + Send + Unpin + 'static) -> Self {
        let words = Self::default();
        let ours = words.clone();
        tokio::spawn(async move { ours.read(&pack, &secrets, BufReader::new(errors)).await });
        words
    }

    async fn read(&self, pack: &PackName, secrets: &Secrets, mut errors: BufReader<impl AsyncRead + Unpin>) {
        let mut line = Vec::new();
        let (mut second, mut shown, mut hidden) = (Instant::now(), 0_u32, 0_u64);
        while let Ok(true) = next_line(&mut errors, &mut line).await {
            if second.elapsed() >= Duration::from_secs(1) {
                if hidden > 0 {
                    tracing::debug!(pack = %pack, lines = hidden, "more on its stderr");
                }
                (second, shown, hidden) = (Instant::now(), 0, 0);
            }
            let text = plain(&secrets.hide(String::from_utf8_lossy(&line).trim_end().to_owned()));
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

/// One line, of which the first [`LINE_BYTES`] are kept. `false`: the end.
async fn next_line(errors: &mut (impl AsyncBufReadExt + Unpin), line: &mut Vec<u8>) -> std::io::Result<bool> {
    let mut any = false;
    loop {
        let ready = errors.fill_buf().await?;
        if ready.is_empty() {
            return Ok(any);
        }
        any = true;
        let end = ready.iter().position(|byte| *byte == b'\n');
        let part = ready.get(..end.unwrap_or(ready.len())).unwrap_or_default();
        let room = LINE_BYTES.saturating_sub(line.len()).min(part.len());
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
        words.read(&PackName::parse("p").unwrap(), &Secrets::default(), BufReader::new(text.as_bytes())).await;
        let reason = words.add_to("gone".into());
        assert_eq!(reason, format!("gone; its last words: two / {} / \\x1b[2Jfour", "x".repeat(300)));
    }

    #[tokio::test]
    async fn a_server_that_says_its_secret_is_not_quoted() {
        let words = LastWords::default();
        let secrets = Secrets(vec![("hunter2".to_owned(), "{{secret:A}}".to_owned())]);
        let text = "bad key hunter2 (hunter2)";
        words.read(&PackName::parse("p").unwrap(), &secrets, BufReader::new(text.as_bytes())).await;
        assert_eq!(words.add_to("gone".into()), "gone; its last words: bad key {{secret:A}} ({{secret:A}})");
    }
}

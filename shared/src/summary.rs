//! How a task tree stands, in one line: `3 completed, 1 waiting for client`.

/// The order in which they are named.
const WORDS: [&str; 11] =
    ["completed", "failed", "cancelled", "skipped", "running", CLIENT, ANSWER, UNKNOWN, "blocked", "queued", "pending"];

const CLIENT: &str = "waiting for client";
const ANSWER: &str = "waiting for an answer";
const UNKNOWN: &str = "of unknown outcome";

/// How the reason of a waiting task begins, and the word for it.
const REASONS: [(&str, &str); 3] =
    [("Waiting for Client", CLIENT), ("Waiting for an answer", ANSWER), ("Outcome unknown", UNKNOWN)];

/// Of tasks, each with its state and, if it waits, its reason.
pub fn summary<'a>(tasks: impl IntoIterator<Item = (&'a str, Option<&'a str>)>) -> String {
    let mut counts = [0usize; WORDS.len()];
    let mut others = 0usize;
    for (state, reason) in tasks {
        let waits = matches!(state, "blocked" | "queued");
        let of_reason =
            |reason: &str| REASONS.iter().find(|(begin, _)| reason.starts_with(begin)).map(|(_, word)| *word);
        let word = reason.filter(|_| waits).and_then(of_reason).unwrap_or(state);
        match WORDS.iter().position(|w| *w == word).and_then(|at| counts.get_mut(at)) {
            Some(count) => *count += 1,
            None => others += 1,
        }
    }
    let named = counts.into_iter().zip(WORDS).chain([(others, "other")]).filter(|(count, _)| *count > 0);
    let parts: Vec<String> = named.map(|(count, word)| format!("{count} {word}")).collect();
    if parts.is_empty() { "no tasks".to_owned() } else { parts.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waits_is_counted_by_what_it_waits_for() {
        let client = Some("Waiting for Client for Tool: x");
        for (tasks, want) in [
            (&[][..], "no tasks"),
            (&[("completed", None), ("queued", client), ("completed", None)], "2 completed, 1 waiting for client"),
            (&[("blocked", client), ("queued", client), ("failed", None)], "1 failed, 2 waiting for client"),
            (
                &[
                    ("blocked", Some("Outcome unknown for Tool: x (call y)")),
                    ("blocked", Some("Waiting for an answer: z")),
                ],
                "1 waiting for an answer, 1 of unknown outcome",
            ),
            (&[("blocked", None), ("pending", None), ("dreaming", None)], "1 blocked, 1 pending, 1 other"),
            // A reason of the past says nothing about a task that has ended.
            (&[("completed", client)], "1 completed"),
        ] {
            assert_eq!(summary(tasks.iter().copied()), want);
        }
    }
}

//! What the gate would say of a project's pack now. Looks only: nothing is asked, written, started or reached.

use vance_shared::gate::{Once, Verdict};
use vance_shared::launch::LaunchPlan;

use crate::trust::Trust;

/// Between the lines of a question and its choices.
const CHOICES: &str = "Load it?";
/// The line above what is not as it was.
const CHANGED: &str = "  changed since you allowed it";

/// Where a project's pack stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Consent {
    /// It starts without asking.
    Trusted,
    /// It asks; if it was allowed before, with what has changed since, the first line saying when.
    Asks(Vec<String>),
    /// It neither starts nor asks.
    Denied(String),
}

/// Judges a plan; `replaces`: the user's own pack of its name.
pub(super) fn consent(trust: &Trust, plan: LaunchPlan, replaces: Option<&LaunchPlan>) -> Consent {
    match trust.judge(plan, &Once::default(), replaces).0 {
        Verdict::Trusted(_) => Consent::Trusted,
        Verdict::Denied(why) => Consent::Denied(why),
        Verdict::Ask(question) => Consent::Asks(changes(question.text())),
    }
}

/// The part of a question that says what is not as it was.
fn changes(question: &str) -> Vec<String> {
    let lines = question.lines().skip_while(|line| !line.starts_with(CHANGED));
    lines.take_while(|line| !line.starts_with(CHOICES)).map(|line| line.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_has_changed_is_taken_from_a_question() {
        let question = "Project tool pack 'a' from f\n  wants to run: x\n  changed since you allowed it on 2026-03-01:\n    - run y\n    + run x\nLoad it? [1] once";
        assert_eq!(changes(question), ["changed since you allowed it on 2026-03-01:", "- run y", "+ run x"]);
        assert_eq!(changes("Project tool pack 'a' from f\n  wants to run: x\nLoad it? [1] once"), Vec::<String>::new());
    }
}

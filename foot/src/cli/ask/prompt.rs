//! A question's words and what an answer means. Pure.

use vance_shared::show::ascii;

use crate::native::Question;

/// Largest question, in bytes: a screenful. Nothing is cut, so what is larger cannot be judged and is refused.
pub(super) const MAX_BYTES: usize = 4096;

/// What a person said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Once,
    Always,
    No,
}

/// The lines above the choices, and the choices; or its size if it is too large to be asked.
pub(super) fn text(question: &Question, file: &str) -> Result<(String, String), usize> {
    let mut text = format!("Tool '{}' needs your yes\n", question.tool);
    for (label, value) in &question.lines {
        text.push_str(&format!("  {:<15} {value}\n", format!("{label}:")));
    }
    if question.lines.is_empty() {
        text.push_str(&format!("  {}\n", question.what));
    }
    let choices = match &question.rule {
        Some(rule) => {
            text.push_str(&format!("  {:<15} - {}{}\n", "always adds:", ascii(rule), breadth(rule)));
            format!("Allow it? [1] once  [2] always (writes a rule to {})  [3] no \u{203a} ", ascii(file))
        }
        None => "Allow it? [1] once  [3] no \u{203a} ".to_owned(),
    };
    let bytes = text.len() + choices.len();
    if bytes > MAX_BYTES { Err(bytes) } else { Ok((text, choices)) }
}

/// A rule for a program covers more than was asked for.
fn breadth(rule: &str) -> &'static str {
    if rule.starts_with("{exec:") { "   (whatever words follow)" } else { "" }
}

/// The numbers that count.
pub(super) fn numbers(question: &Question) -> &'static str {
    if question.rule.is_some() { "1, 2, 3" } else { "1, 3" }
}

/// None if it is none of the choices, which is no.
pub(super) fn answer(line: &str, can_always: bool) -> Option<Answer> {
    match line.trim() {
        "1" => Some(Answer::Once),
        "2" if can_always => Some(Answer::Always),
        "3" => Some(Answer::No),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use vance_shared::ids::CallId;
    use vance_shared::names::ToolName;

    fn question(lines: &[(&'static str, &str)], rule: Option<&str>) -> Question {
        Question {
            call_id: CallId::generate(),
            tool: ToolName::parse("shell_execute").unwrap(),
            what: "running 'git' needs a yes".to_owned(),
            remedy: String::new(),
            lines: lines.iter().map(|(label, text)| (*label, (*text).to_owned())).collect(),
            rule: rule.map(str::to_owned),
        }
    }

    #[test]
    fn a_question_shows_what_is_wanted_and_what_always_would_add() {
        let lines = [("wants to run", "git status"), ("in folder", "/code/x")];
        let (text, choices) =
            text(&question(&lines, Some("{exec: [git, \"\u{e9}\"]}")), "/h/permissions.yaml").unwrap();
        assert_eq!(
            text,
            "Tool 'shell_execute' needs your yes\n\
             \x20 wants to run:   git status\n\
             \x20 in folder:      /code/x\n\
             \x20 always adds:    - {exec: [git, \"\\u{e9}\"]}   (whatever words follow)\n"
        );
        assert_eq!(choices, "Allow it? [1] once  [2] always (writes a rule to /h/permissions.yaml)  [3] no \u{203a} ");
        let (_, choices) = super::text(&question(&lines, None), "f").unwrap();
        assert_eq!(choices, "Allow it? [1] once  [3] no \u{203a} ");
    }

    #[test]
    fn what_is_too_large_to_be_shown_is_not_asked() {
        let long = "x".repeat(MAX_BYTES);
        assert!(text(&question(&[("wants to run", &long)], None), "f").is_err());
        assert!(text(&question(&[("wants to run", &long[..4000])], None), "f").is_ok());
    }

    #[test]
    fn only_a_choice_that_is_there_counts() {
        for (line, can_always, want) in [
            ("1", true, Some(Answer::Once)),
            (" 1 \r", false, Some(Answer::Once)),
            ("2", true, Some(Answer::Always)),
            ("2", false, None),
            ("3", true, Some(Answer::No)),
            ("", true, None),
            ("y", true, None),
            ("yes", true, None),
            ("11", true, None),
            ("1 2", true, None),
        ] {
            assert_eq!(answer(line, can_always), want, "{line:?}");
        }
    }
}

//! `${env:NAME}` and `{{secret:NAME}}` in a pack's texts. They are only checked here; expansion comes after consent.

use super::Report;
use crate::doc::{Kind, Node};

/// How `${env:NAME}` starts.
const OPEN: &str = "${env:";

/// A text whose `${env:NAME}` will be expanded: env values, headers, auth, defaultArgs.
pub(super) fn check_expanded(text: &str, place: &str, line: u32, report: &Report<'_>) {
    check_secret(text, place, line, report);
    let mut rest = text;
    while let Some(at) = rest.find(OPEN) {
        rest = &rest[at + OPEN.len()..];
        let Some((name, tail)) = rest.split_once('}') else {
            report.problems.add(line, format!("{place} has a `${{env:` without its end, expected ${{env:NAME}}"));
            return;
        };
        rest = tail;
        if !is_variable(name) {
            let shown = crate::show::quoted(name, 40);
            report
                .problems
                .add(line, format!("{place} names {shown}, expected ${{env:NAME}} with a name of [A-Za-z0-9_]"));
        } else if name.starts_with("VANCE_") {
            report.problems.add(line, format!("{place} names {name}, but VANCE_* is not available to packs"));
        }
    }
    if let Some(name) = shell_style(text) {
        report.warnings.add(
            line,
            format!("{place} holds ${{{name}}} as it stands; write ${{env:{name}}} if the variable is meant"),
        );
    }
}

/// A text in which nothing is expanded: command, cwd, url.
pub(super) fn check_literal(text: &str, place: &str, line: u32, report: &Report<'_>) {
    check_secret(text, place, line, report);
    if text.contains(OPEN) {
        report.problems.add(
            line,
            format!("{place} takes no ${{env:NAME}}; it works in `env`, `headers`, `auth` and `defaultArgs`"),
        );
    }
}

/// All texts of a value, as [`check_expanded`].
pub(super) fn check_value(node: &Node, place: &str, report: &Report<'_>) {
    match &node.kind {
        Kind::String(text) => check_expanded(text, place, node.line, report),
        Kind::Sequence(items) => items.iter().for_each(|item| check_value(item, place, report)),
        Kind::Mapping(entries) => entries.iter().for_each(|entry| check_value(&entry.value, place, report)),
        Kind::Null | Kind::Bool(_) | Kind::Number(_) => {}
    }
}

/// A name that an environment variable can have.
pub(super) fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn check_secret(text: &str, place: &str, line: u32, report: &Report<'_>) {
    if text.contains("{{secret:") {
        report
            .problems
            .add(line, format!("{place}: {{{{secret:NAME}}}} is not supported by this release; use ${{env:NAME}}"));
    }
}

/// The name in `${NAME}`, as other programs write it.
fn shell_style(text: &str) -> Option<&str> {
    text.split("${").skip(1).find_map(|rest| rest.split_once('}').map(|(name, _)| name).filter(|n| is_variable(n)))
}

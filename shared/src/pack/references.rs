//! `${env:NAME}` and `{{secret:NAME}}` in a pack's texts. They are only checked here; expansion comes after consent.

use super::Report;
use crate::doc::{Kind, Node};
use crate::launch::Origin;
use crate::secrets;

/// How `${env:NAME}` starts.
const OPEN: &str = "${env:";

/// A text whose references will be expanded: env values, headers, auth.
pub(super) fn check_expanded(text: &str, place: &str, line: u32, report: &Report<'_>) {
    check_secrets(text, place, line, report);
    check_variables(text, place, line, report);
}

fn check_variables(text: &str, place: &str, line: u32, report: &Report<'_>) {
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
    no_secrets(text, place, line, report);
    if text.contains(OPEN) {
        report.problems.add(
            line,
            format!("{place} takes no ${{env:NAME}}; it works in `env`, `headers`, `auth` and `defaultArgs`"),
        );
    }
}

/// All texts of arguments: variables are expanded there. Arguments are shown and stored, so no secret is.
pub(super) fn check_value(node: &Node, place: &str, report: &Report<'_>) {
    match &node.kind {
        Kind::String(text) => {
            no_secrets(text, place, node.line, report);
            check_variables(text, place, node.line, report);
        }
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

/// Secrets are the Brain's: a pack of a Foot has its user's environment.
fn check_secrets(text: &str, place: &str, line: u32, report: &Report<'_>) {
    match (report.origin, secrets::names(text)) {
        (_, Ok(names)) if names.is_empty() => {}
        (Origin::Server, Ok(_)) => {}
        (Origin::Server, Err(bad)) => report.problems.add(line, format!("{place} {bad}")),
        (Origin::Global | Origin::Project, _) => report.problems.add(
            line,
            format!("{place}: {{{{secret:NAME}}}} is for the server packs of a Brain; use ${{env:NAME}} here"),
        ),
    }
}

fn no_secrets(text: &str, place: &str, line: u32, report: &Report<'_>) {
    if secrets::mentions(text) {
        report.problems.add(
            line,
            format!("{place} takes no {{{{secret:NAME}}}}; it works in `env`, `headers` and `auth` of server packs"),
        );
    }
}

/// The name in `${NAME}`, as other programs write it.
fn shell_style(text: &str) -> Option<&str> {
    text.split("${").skip(1).find_map(|rest| rest.split_once('}').map(|(name, _)| name).filter(|n| is_variable(n)))
}

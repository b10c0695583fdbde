//! A stdio server: the command as a list, its working directory and its environment.

use std::collections::BTreeMap;

use super::{Report, references};
use crate::doc::{Fields, Kind, Node, ticked};
use crate::launch::{Origin, Transport};

/// Arguments that a person can still judge in the consent prompt; more are refused in a pack of the working directory.
const MAX_PROJECT_ARGS: usize = crate::gate::MAX_ARGS;
/// Bytes of a command line that a person can still judge.
const MAX_PROJECT_COMMAND_BYTES: usize = crate::gate::MAX_SHOWN_BYTES;
/// File endings that make a bare `dir/file` argument a script of the project.
pub(crate) const SCRIPT_ENDINGS: [&str; 8] = [".js", ".mjs", ".cjs", ".ts", ".py", ".sh", ".rb", ".json"];

/// Reads `command`, `cwd` and `env`.
pub(super) fn stdio(fields: &mut Fields<'_>, report: &Report<'_>) -> Option<Transport> {
    fields.require("command", "a list such as [\"npx\", \"-y\", \"chrome-devtools-mcp@latest\"]");
    let arguments = fields.take("args");
    let argv = fields.take("command").and_then(|node| argv(node, arguments, report));
    let line = fields.line_of("command");
    let cwd = fields.take_str("cwd").map(str::to_owned);
    if let Some(cwd) = &cwd {
        references::check_literal(cwd, "`cwd`", fields.line_of("cwd"), report);
        if cwd.is_empty() || cwd.contains('\0') {
            fields.add("cwd", "`cwd` is no path, expected \".\" for the project directory or another path");
        }
    }
    let env = env(fields, report);
    let argv = argv?;
    if cwd.is_none()
        && let Some(relative) = argv.iter().find(|a| is_relative_file(a))
    {
        report.warnings.add(line, format!(
            "{} is a relative path, but the server starts in a private empty directory; write the full path, or \"cwd\": \".\" for the project directory",
            crate::show::quoted(relative, 80)
        ));
    }
    Some(Transport::Stdio { argv, cwd, env })
}

fn argv(node: &Node, arguments: Option<&Node>, report: &Report<'_>) -> Option<Vec<String>> {
    let Kind::Sequence(items) = &node.kind else {
        let message = match node.as_str() {
            Some(text) => format!("`command` is one text, expected a list: \"command\": {}", as_list(text, arguments)),
            None => {
                format!("`command` is {}, expected a list such as [\"npx\", \"-y\", \"some-server\"]", node.describe())
            }
        };
        report.problems.add(node.line, message);
        return None;
    };
    if let Some(arguments) = arguments {
        report.odd(arguments.line, "`args` is not read, `command` holds the program and its arguments");
    }
    let mut argv = Vec::with_capacity(items.len());
    for item in items {
        match item.as_str() {
            Some(text) if !text.contains('\0') => {
                references::check_literal(text, "`command`", item.line, report);
                argv.push(text.to_owned());
            }
            Some(_) => report.problems.add(item.line, "`command` holds a NUL character"),
            None => report
                .problems
                .add(item.line, format!("`command` holds {}, expected text (in quotes)", item.describe())),
        }
    }
    let Some(program) = argv.first() else {
        if items.is_empty() {
            report.problems.add(node.line, "`command` is an empty list, expected the program and its arguments");
        }
        return None;
    };
    if program.trim().is_empty() {
        report.problems.add(node.line, "`command` has an empty program name");
        return None;
    }
    let first_word = program.split_whitespace().next().unwrap_or_default();
    if argv.len() == 1 && first_word != program && !first_word.contains(['/', '\\']) {
        let message = format!("`command` holds a whole command line in one text, expected {}", as_list(program, None));
        report.problems.add(node.line, message);
        return None;
    }
    let bytes: usize = argv.iter().map(String::len).sum();
    if report.origin == Origin::Project && (argv.len() > MAX_PROJECT_ARGS || bytes > MAX_PROJECT_COMMAND_BYTES) {
        report.problems.add(node.line, format!(
            "`command` has {} elements and {bytes} bytes, expected at most {MAX_PROJECT_ARGS} and {MAX_PROJECT_COMMAND_BYTES}: nobody can judge more in a prompt",
            argv.len()
        ));
    }
    Some(argv)
}

/// The list form of a command line, for messages.
fn as_list(text: &str, arguments: Option<&Node>) -> String {
    let mut words = split_words(text);
    words.extend(
        arguments.and_then(Node::as_list).unwrap_or_default().iter().filter_map(Node::as_str).map(str::to_owned),
    );
    let quoted: Vec<String> = words.iter().map(|w| serde_json::Value::from(w.as_str()).to_string()).collect();
    let whole = format!("[{}]", quoted.join(", "));
    if whole.chars().count() > 300 { "[\"PROGRAM\", \"ARGUMENT\", ...]".to_owned() } else { whole }
}

/// Words of a command line, quotes kept together: only for showing how to write it.
fn split_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in text.chars() {
        match (quote, c) {
            (Some(q), c) if c == q => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (Some(_) | None, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

fn is_relative_file(argument: &str) -> bool {
    if argument.starts_with("./") || argument.starts_with("../") || argument == "." {
        return true;
    }
    // With blanks it is a line for a shell, or code.
    let plain = !argument.starts_with(['/', '-', '@', '~']) && !argument.contains([':', '@', ' ', '\n']);
    plain && argument.contains('/') && SCRIPT_ENDINGS.iter().any(|ending| argument.ends_with(ending))
}

fn env(fields: &mut Fields<'_>, report: &Report<'_>) -> BTreeMap<String, String> {
    let mut env = BTreeMap::new();
    for (name, value, line) in fields.take_str_map("env", "names and texts").unwrap_or_default() {
        let place = format!("{} in `env`", ticked(name));
        if !references::is_variable(name) {
            report.problems.add(line, format!("{place} is no variable name, expected [A-Za-z_][A-Za-z0-9_]*"));
        } else if name == "PATH" {
            report.problems.add(line, "a pack may not set `PATH`; name the program by its full path in `command`");
        } else if name.starts_with("VANCE_") {
            report.problems.add(line, format!("{place}: VANCE_* belongs to Vancetope, a pack may not set it"));
        } else if report.origin == Origin::Project && (name.starts_with("LD_") || name.starts_with("DYLD_")) {
            report.problems.add(line, format!("{place}: a pack of the working directory may not set LD_* or DYLD_*"));
        }
        if value.contains('\0') {
            report.problems.add(line, format!("{place} holds a NUL character"));
        }
        references::check_expanded(value, &place, line, report);
        env.insert(name.to_owned(), value.to_owned());
    }
    env
}

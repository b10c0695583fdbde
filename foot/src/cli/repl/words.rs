//! What a typed line means. Pure.

use vance_shared::doc::nearest;

/// The commands of the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Name {
    Tools,
    Packs,
    Trust,
    Tasks,
    Run,
    Session,
    Connect,
    Help,
    Quit,
}

/// A command as people write it and what it is for. One table feeds the reader, the help and the completion.
pub(super) struct Row {
    pub(super) word: &'static str,
    pub(super) name: Name,
    /// Its arguments, for the help; nothing for another spelling of a command.
    pub(super) usage: &'static str,
    pub(super) about: &'static str,
}

const fn row(word: &'static str, name: Name, usage: &'static str, about: &'static str) -> Row {
    Row { word, name, usage, about }
}

/// All commands, in the help's order.
pub(super) const TABLE: &[Row] = &[
    row("/run", Name::Run, "FILE", "submit a task tree and follow it above the prompt"),
    row("/tasks", Name::Tasks, "[show|cancel|retry|... TASK]", "tasks of this session; as `vancetope tasks`"),
    row(
        "/tools",
        Name::Tools,
        "[NAME | call NAME JSON | reload]",
        "this machine's tools; one of them; try one; read packs anew",
    ),
    row("/packs", Name::Packs, "[check FILE | ...]", "the packs and what became of them; as `vancetope packs`"),
    row("/trust", Name::Trust, "[...]", "consent to packs of projects; as `vancetope trust`"),
    row("/session", Name::Session, "[list | new | ID]", "the session; all of yours; go to a new one or another one"),
    row("/connect", Name::Connect, "[URL]", "the line to the Brain; connect to another one"),
    row("/help", Name::Help, "", "this list"),
    row("/quit", Name::Quit, "", "leave (also Ctrl-D, or Ctrl-C twice)"),
    row("/tools-reload", Name::Tools, "", ""),
    row("/exit", Name::Quit, "", ""),
];

/// A line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
    /// Nothing to do.
    Blank,
    /// A command with its arguments.
    Command(Name, Vec<String>),
    /// A goal for the session's think process.
    Goal,
    /// No command; with what to say about it.
    Wrong(String),
}

/// Reads a line.
pub(super) fn read(line: &str) -> Line {
    let line = line.trim();
    if line.is_empty() {
        return Line::Blank;
    }
    if !line.starts_with('/') {
        return Line::Goal;
    }
    if let Some(words) = raw_call(line) {
        return Line::Command(Name::Tools, words);
    }
    let mut words = match split(line) {
        Ok(words) => words,
        Err(why) => return Line::Wrong(why.to_owned()),
    };
    let word = if words.is_empty() { String::new() } else { words.remove(0) };
    let Some(row) = TABLE.iter().find(|row| row.word == word) else {
        let shown = vance_shared::show::quoted(&word, 40);
        return Line::Wrong(match nearest(&word, TABLE.iter().map(|row| row.word)) {
            Some(near) => format!("there is no command {shown}, did you mean `{near}`?"),
            None => format!("there is no command {shown}; /help lists them"),
        });
    };
    if row.word == "/tools-reload" {
        words.insert(0, "reload".to_owned());
    }
    Line::Command(row.name, words)
}

/// `/tools call NAME {…}`: from the first brace on it is JSON, whose quotes are its own.
fn raw_call(line: &str) -> Option<Vec<String>> {
    let rest = line.strip_prefix("/tools")?.trim_start().strip_prefix("call")?;
    let (name, json) = rest.strip_prefix(char::is_whitespace)?.trim_start().split_once(char::is_whitespace)?;
    let json = json.trim_start();
    json.starts_with('{').then(|| vec!["call".to_owned(), name.to_owned(), json.to_owned()])
}

/// Words as a shell splits them, without anything else that a shell does.
pub(super) fn split(line: &str) -> Result<Vec<String>, &'static str> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None | Some('"'), '\\') => match chars.next() {
                Some(next) => word.get_or_insert_default().push(next),
                None => return Err("the line ends with a backslash that has nothing to stand before"),
            },
            (None, c) if c.is_whitespace() => words.extend(word.take()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    if quote.is_some() {
        return Err("a quotation mark is not closed");
    }
    words.extend(word);
    Ok(words)
}

/// A word as [`split`] reads it back.
pub(super) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "_-./:@%+=,~".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// The help.
pub(super) fn help() -> String {
    let rows = TABLE.iter().filter(|row| !row.about.is_empty());
    let mut text: Vec<String> =
        rows.map(|row| format!("  {:<42}{}", format!("{} {}", row.word, row.usage), row.about)).collect();
    text.push("Any other line is a goal for the session. Ctrl-C cancels what /run follows, twice leaves.".to_owned());
    text.push("Tab completes, the arrow keys go through earlier lines, Ctrl-R searches them; a line that begins with a blank is not kept.".to_owned());
    text.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lines_mean() {
        let command = |name, words: &[&str]| Line::Command(name, words.iter().map(|w| (*w).to_owned()).collect());
        for (line, want) in [
            ("", Line::Blank),
            ("   ", Line::Blank),
            ("clean up the kitchen", Line::Goal),
            ("/tools", command(Name::Tools, &[])),
            (r#"/tools call a__b  {"x": "it's"}"#, command(Name::Tools, &["call", "a__b", r#"{"x": "it's"}"#])),
            ("/tools call a__b '{}'", command(Name::Tools, &["call", "a__b", "{}"])),
            ("/tools call a__b", command(Name::Tools, &["call", "a__b"])),
            ("  /tools reload ", command(Name::Tools, &["reload"])),
            ("/tools-reload", command(Name::Tools, &["reload"])),
            ("/run 'my plan.yaml' --no-wait", command(Name::Run, &["my plan.yaml", "--no-wait"])),
            (r#"/tools call x "{\"a\": 1}""#, command(Name::Tools, &["call", "x", r#"{"a": 1}"#])),
            (r#"/tools call x '{"a": "\\"}'"#, command(Name::Tools, &["call", "x", r#"{"a": "\\"}"#])),
            ("/run ''", command(Name::Run, &[""])),
            ("/exit", command(Name::Quit, &[])),
            ("/tolls", Line::Wrong("there is no command '/tolls', did you mean `/tools`?".to_owned())),
            ("/xyzzyplugh", Line::Wrong("there is no command '/xyzzyplugh'; /help lists them".to_owned())),
            ("/run 'x", Line::Wrong("a quotation mark is not closed".to_owned())),
        ] {
            assert_eq!(read(line), want, "{line:?}");
        }
    }

    #[test]
    fn a_quoted_word_is_read_back() {
        for word in ["plain-1.yaml", "two words", "it's", r"a\b", "", "\"x\"", "$HOME"] {
            assert_eq!(split(&quoted(word)), Ok(vec![word.to_owned()]), "{word:?}");
        }
    }
}

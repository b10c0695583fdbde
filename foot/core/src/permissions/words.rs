//! Words as a person sees them in a question: each command line has one spelling, and pasted into bash it gives the same words.

use std::fmt::Write as _;

/// A word: bare, in `'…'`, or in `$'…'` with everything outside printable ASCII escaped.
pub(super) fn shown(word: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || "_@%+=:,./-".contains(c);
    if !word.is_empty() && word.chars().all(bare) {
        return word.to_owned();
    }
    if word.chars().all(|c| (' '..='~').contains(&c) && c != '\'') {
        return format!("'{word}'");
    }
    let mut out = String::from("$'");
    for c in word.chars() {
        let written = match c {
            '\'' | '\\' => write!(out, "\\{c}"),
            ' '..='~' => write!(out, "{c}"),
            c if c.is_ascii() => write!(out, "\\x{:02x}", u32::from(c)),
            c if u32::from(c) <= 0xffff => write!(out, "\\u{:04x}", u32::from(c)),
            c => write!(out, "\\U{:08x}", u32::from(c)),
        };
        debug_assert!(written.is_ok(), "writing to a String cannot fail");
    }
    out.push('\'');
    out
}

/// The words of a command line.
pub(super) fn line<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(shown).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_line_has_one_spelling() {
        for (words, want) in [
            (vec!["git", "status"], "git status"),
            (vec!["git status"], "'git status'"),
            (vec!["a", ""], "a ''"),
            (vec!["it's", "a\\b"], "$'it\\'s' 'a\\b'"),
            (vec!["a\n\u{1b}[2J", "\u{e9}\u{202e}\u{1f600}"], "$'a\\x0a\\x1b[2J' $'\\u00e9\\u202e\\U0001f600'"),
            (vec!["sh", "-c", "echo $HOME; ls"], "sh -c 'echo $HOME; ls'"),
        ] {
            assert_eq!(line(words), want);
        }
    }
}

//! Words as a person sees them in a question: each command line has one spelling, and pasted into bash it gives the same words.

use vance_shared::gate::quote;

/// The words of a command line.
pub(super) fn line<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(quote).collect::<Vec<_>>().join(" ")
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

//! Foreign text on its way to a person: printable ASCII stays, the rest is escaped. One function for prompts, errors and logs.

use std::fmt::Write as _;

/// Escapes everything outside printable ASCII (`\n` → `\n`, others → `\xHH` or `\u{H…}`): no ESC, no bidi, no zero-width, no newline reaches a terminal.
pub fn plain(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let written = match c {
            ' '..='~' => {
                out.push(c);
                Ok(())
            }
            '\n' => out.write_str("\\n"),
            '\t' => out.write_str("\\t"),
            '\r' => out.write_str("\\r"),
            c if c.is_ascii() => write!(out, "\\x{:02x}", u32::from(c)),
            c => write!(out, "\\u{{{:x}}}", u32::from(c)),
        };
        debug_assert!(written.is_ok(), "writing to a String cannot fail");
    }
    out
}

/// Like [`plain`], in single quotes, cut to about `max` characters with `…` said as `...`.
pub fn quoted(text: &str, max: usize) -> String {
    let mut shown = plain(&text.chars().take(max).collect::<String>());
    if text.chars().nth(max).is_some() {
        shown.push_str("...");
    }
    format!("'{shown}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_survives() {
        assert_eq!(plain("a\u{1b}[2J\nb\u{202e}c\u{200b}é"), "a\\x1b[2J\\nb\\u{202e}c\\u{200b}\\u{e9}");
        assert_eq!(quoted("abcdef", 3), "'abc...'");
    }
}

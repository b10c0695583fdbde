//! Foreign text on its way to a person. [`plain`] is for everything that people read; [`ascii`] is for what they decide on, where a letter that only
//! looks like another one would deceive them.

use std::fmt::Write as _;

/// Keeps what can be seen, in any script; escapes the rest (`\n` → `\n`, others → `\xHH` or `\u{H…}`): no ESC, no bidi, no zero-width, no newline
/// reaches a terminal.
pub fn plain(text: &str) -> String {
    escaped(text, is_visible)
}

/// Escapes everything outside printable ASCII: for names, addresses and commands that somebody is asked to trust.
pub fn ascii(text: &str) -> String {
    escaped(text, |c| matches!(c, ' '..='~'))
}

/// Like [`plain`], in single quotes, cut to about `max` characters with `…` said as `...`.
pub fn quoted(text: &str, max: usize) -> String {
    let mut shown = plain(&text.chars().take(max).collect::<String>());
    if text.chars().nth(max).is_some() {
        shown.push_str("...");
    }
    format!("'{shown}'")
}

/// Whether a character shows itself and steers nothing: no control, no format or bidi character, no line break, no space but the usual one, nothing
/// that is private or not assigned. Marks count: they belong to the letter before them.
pub fn is_visible(c: char) -> bool {
    if c.is_ascii() {
        return matches!(c, ' '..='~');
    }
    // The standard library's own table, which spares a mark only behind another character.
    let mut pair = [b'a'; 5];
    let length = c.encode_utf8(&mut pair[1..]).len();
    std::str::from_utf8(&pair[..=length]).is_ok_and(|pair| pair.escape_debug().count() == 2)
}

fn escaped(text: &str, stays: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        let written = match c {
            c if stays(c) => {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_survives() {
        assert_eq!(plain("a\u{1b}[2J\nb\u{202e}c\u{200b}é"), "a\\x1b[2J\\nb\\u{202e}c\\u{200b}é");
        assert_eq!(ascii("a\u{1b}\u{202e}é"), "a\\x1b\\u{202e}\\u{e9}");
        assert_eq!(quoted("abcdef", 3), "'abc...'");
        // C1, soft hyphen, joiners, directions, line and paragraph, no-break, isolates, mark of byte order, tags, private use.
        for c in
            "\u{7f}\u{85}\u{9b}\u{ad}\u{200d}\u{200e}\u{2028}\u{2029}\u{a0}\u{2066}\u{2069}\u{feff}\u{e0041}\u{e000}"
                .chars()
        {
            assert_eq!(plain(&c.to_string()).chars().next(), Some('\\'), "{c:?}");
        }
    }

    #[test]
    fn every_script_can_be_read() {
        for text in ["Grüße aus Köln", "茶", "Москва", "שלום", "नमस्ते", "e\u{301}", "→ 20 °C, 5 €", "😀", "a\\b'c\"d"]
        {
            assert_eq!(plain(text), text);
        }
    }
}

//! Bytes on their way to a result: bounded, valid UTF-8, cut where a reader expects it.

/// Default size of a text result.
pub(super) const DEFAULT_TEXT_BYTES: usize = 1024 * 1024;
/// Largest size that a caller may ask for.
pub(super) const MAX_TEXT_BYTES: usize = 4 * 1024 * 1024;
/// A text holds at most this many bytes as JSON, whatever was asked for: control characters take six bytes each there.
pub(super) const MAX_JSON_BYTES: usize = 6 * 1024 * 1024;

/// Bytes of a character inside a JSON string.
fn json_bytes(c: char) -> usize {
    match c {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        c if c < ' ' => 6,
        c => c.len_utf8(),
    }
}

/// The longest beginning that takes at most this many bytes as JSON.
pub(super) fn fit(text: &str, max_json_bytes: usize) -> &str {
    let mut used = 0;
    for (at, c) in text.char_indices() {
        used += json_bytes(c);
        if used > max_json_bytes {
            return &text[..at];
        }
    }
    text
}

/// The longest beginning of at most this many bytes that ends between characters.
pub(super) fn cut(text: &str, max_bytes: usize) -> &str {
    if text.len() <= max_bytes {
        return text;
    }
    let end = (0..=max_bytes).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[..end]
}

/// Bytes at the end that begin a character without ending it: they wait for the next read.
pub(super) fn unfinished(bytes: &[u8]) -> usize {
    let tail = &bytes[bytes.len().saturating_sub(3)..];
    for back in 1..=tail.len() {
        let byte = tail[tail.len() - back];
        if byte & 0b1100_0000 == 0b1000_0000 {
            continue;
        }
        let length = match byte {
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf7 => 4,
            _ => 1,
        };
        return if length > back { back } else { 0 };
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters() {
        for (max, want) in [(0, ""), (1, "a"), (2, "a"), (3, "aé"), (9, "aé")] {
            assert_eq!(cut("aé", max), want);
        }
        assert_eq!(fit("\u{1}\u{1}a", 12), "\u{1}\u{1}");
        assert_eq!(fit("a\nb", 3), "a\n");
    }

    #[test]
    fn half_a_character_waits() {
        for (bytes, want) in [
            ("aé".as_bytes(), 0),
            (&"aé".as_bytes()[..2], 1),
            (&"a€".as_bytes()[..3], 2),
            (b"a\xff", 0),
            (b"", 0),
            (&"a😀".as_bytes()[..4], 3),
        ] {
            assert_eq!(unfinished(bytes), want, "{bytes:?}");
        }
    }
}

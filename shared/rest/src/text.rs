//! Texts of a document on their way to a model: data, bounded, without what steers terminals or hides.

/// Characters of a tool's description.
pub(crate) const TOOL_CHARS: usize = 1024;
/// Characters of an argument's description.
pub(crate) const ARGUMENT_CHARS: usize = 300;

/// Removes control, bidi and invisible characters, trims, and cuts.
pub(crate) fn clean(text: &str, most: usize) -> String {
    let mut out = String::with_capacity(text.len().min(most * 4));
    let mut count = 0;
    for c in text.trim().chars() {
        let c = match c {
            '\u{2028}' | '\u{2029}' => '\n',
            c if hidden(c) => continue,
            c => c,
        };
        if count == most {
            out.pop();
            out.push('…');
            break;
        }
        out.push(c);
        count += 1;
    }
    out.truncate(out.trim_end().len());
    out
}

fn hidden(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c, '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{feff}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{202a}'..='\u{202e}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The shorter of two texts that say the same, or both.
pub(crate) fn joined(first: Option<&str>, second: Option<&str>) -> String {
    let (first, second) = (first.unwrap_or_default().trim(), second.unwrap_or_default().trim());
    match (first.is_empty(), second.is_empty()) {
        (_, true) => first.to_owned(),
        (true, false) => second.to_owned(),
        (false, false) if second.starts_with(first) => second.to_owned(),
        (false, false) => format!("{first}\n{second}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_or_hides_is_removed_and_long_texts_end_in_an_ellipsis() {
        assert_eq!(clean(" a\u{1b}[2J\u{202e}b\u{200b}\u{e0041}c\r\n d\u{2028}e ", 99), "a[2Jbc\n d\ne");
        assert_eq!(clean("abcdef", 3), "ab…");
        assert_eq!(clean("äöü", 3), "äöü");
        assert_eq!(joined(Some("List."), Some("List. All.")), "List. All.");
        assert_eq!(joined(Some("a"), None), "a");
        assert_eq!(joined(Some("a"), Some("b")), "a\nb");
    }
}

//! JSON as servers write it, put right where that loses nothing: half a surrogate pair (a text that was cut within an emoji), and numbers that
//! JSON does not have. And what of JSON no reader of ours can hold.

use std::borrow::Cow;

/// What a reader of trees goes down to.
pub const MAX_DEPTH: usize = 127;

const REPLACEMENT: &str = "\\ufffd";

/// JSON with U+FFFD in place of each half surrogate pair. Texts without any are handed back as they are.
pub fn surrogates(text: &str) -> Cow<'_, str> {
    let may_have = |word: &str| memchr::memmem::find(text.as_bytes(), word.as_bytes()).is_some();
    if !may_have("\\ud") && !may_have("\\uD") {
        return Cow::Borrowed(text);
    }
    let bytes = text.as_bytes();
    let (mut mended, mut kept, mut at) = (String::new(), 0, 0);
    while let Some(found) = memchr::memchr(b'\\', bytes.get(at..).unwrap_or_default()) {
        let begin = at + found;
        let Some(unit) = escaped_unit(bytes, begin) else {
            // Two bytes: what is escaped is no escape itself.
            at = begin + 2;
            continue;
        };
        at = begin + 6;
        match unit {
            0xD800..=0xDBFF if escaped_unit(bytes, at).is_some_and(|low| (0xDC00..=0xDFFF).contains(&low)) => at += 6,
            0xD800..=0xDFFF => {
                mended.push_str(text.get(kept..begin).unwrap_or_default());
                mended.push_str(REPLACEMENT);
                kept = at;
            }
            _ => {}
        }
    }
    if kept == 0 {
        return Cow::Borrowed(text);
    }
    mended.push_str(text.get(kept..).unwrap_or_default());
    Cow::Owned(mended)
}

/// All that can be put right, in a message that is at hand.
pub fn message(text: String) -> String {
    let text = match surrogates(&text) {
        Cow::Owned(mended) => mended,
        Cow::Borrowed(_) => text,
    };
    let may_have = |word: &str| memchr::memmem::find(text.as_bytes(), word.as_bytes()).is_some();
    let mended = (may_have("NaN") || may_have("Infinity")).then(|| numbers(&text)).flatten();
    mended.unwrap_or(text)
}

/// The code unit of a `\uXXXX` at a place.
fn escaped_unit(bytes: &[u8], at: usize) -> Option<u32> {
    let escape = bytes.get(at..at + 6)?;
    let digits = std::str::from_utf8(escape.strip_prefix(b"\\u")?).ok()?;
    digits.bytes().all(|digit| digit.is_ascii_hexdigit()).then(|| u32::from_str_radix(digits, 16).ok())?
}

/// JSON with `null` in place of `NaN` and `Infinity`, as JavaScript writes them; none if there are none.
pub fn numbers(text: &str) -> Option<String> {
    let (mut mended, mut kept) = (String::new(), 0);
    for (begin, part) in Outside::of(text) {
        let mut at = 0;
        while let Some((found, word)) = ["-Infinity", "Infinity", "NaN"]
            .into_iter()
            .filter_map(|word| part.get(at..)?.find(word).map(|found| (at + found, word)))
            .min_by_key(|(found, _)| *found)
        {
            mended.push_str(text.get(kept..begin + found)?);
            mended.push_str("null");
            at = found + word.len();
            kept = begin + at;
        }
    }
    if kept == 0 {
        return None;
    }
    mended.push_str(text.get(kept..)?);
    Some(mended)
}

/// Why a valid JSON text cannot be held as a tree; none if it can.
pub fn unreadable(text: &str) -> Option<String> {
    let (mut depth, mut deepest) = (0_usize, 0);
    for (_, part) in Outside::of(text) {
        for byte in part.bytes() {
            match byte {
                b'[' | b'{' => depth += 1,
                b']' | b'}' => depth = depth.saturating_sub(1),
                _ => {}
            }
            deepest = deepest.max(depth);
        }
        let huge = |number: &&str| number.contains(['e', 'E']) && number.parse().is_ok_and(|n: f64| n.is_infinite());
        if let Some(number) = part.split([',', ':', '[', ']', '{', '}', ' ']).map(str::trim).find(huge) {
            return Some(format!("the number {} is too large", crate::show::quoted(number, 40)));
        }
    }
    (deepest > MAX_DEPTH).then(|| format!("it is nested {deepest} levels deep, expected at most {MAX_DEPTH}"))
}

/// The parts of a JSON text outside its strings, each with its place.
struct Outside<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Outside<'a> {
    fn of(text: &'a str) -> Self {
        Self { text, at: 0 }
    }
}

impl<'a> Iterator for Outside<'a> {
    type Item = (usize, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let (begin, rest) = (self.at, self.text.get(self.at..).filter(|rest| !rest.is_empty())?);
        let Some(quote) = memchr::memchr(b'"', rest.as_bytes()) else {
            self.at = self.text.len();
            return Some((begin, rest));
        };
        let mut at = begin + quote + 1;
        loop {
            let inside = self.text.as_bytes().get(at..).unwrap_or_default();
            match memchr::memchr2(b'"', b'\\', inside) {
                Some(found) if inside.get(found) == Some(&b'\\') => at += found + 2,
                Some(found) => break self.at = at + found + 1,
                None => break self.at = self.text.len(),
            }
        }
        Some((begin, rest.get(..quote)?))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn half_a_pair_becomes_a_replacement_and_all_else_stays() {
        for (text, want) in [
            (r#""abc \ud83d""#, "abc \u{fffd}"),
            (r#""\ude00 x""#, "\u{fffd} x"),
            (r#""\ud83d\ud83d\ude00""#, "\u{fffd}😀"),
            (r#""\uD83D\u0041""#, "\u{fffd}A"),
            (r#""\ud83d\ude00""#, "😀"),
            (r#""\\ud83d""#, "\\ud83d"),
            (r#""\\\ud83d""#, "\\\u{fffd}"),
            (r#""\n\u00e4""#, "\nä"),
            (r#""ä\ud83dö""#, "ä\u{fffd}ö"),
        ] {
            assert_eq!(serde_json::from_str::<String>(&surrogates(text)).unwrap(), want, "{text}");
        }
        assert!(matches!(surrogates(r#""\ud83d\ude00""#), Cow::Borrowed(_)), "nothing to put right, nothing copied");
        for broken in [r#""\ud8"#, r#""\u"#, r#""\"#, r#""\ud83d\u"#, "\\uD83D"] {
            surrogates(broken);
        }
    }

    #[test]
    fn numbers_that_json_does_not_have_become_null_outside_of_strings() {
        for (text, want) in [
            (r#"{"a":NaN,"b":[-Infinity,Infinity,1]}"#, Some(r#"{"a":null,"b":[null,null,1]}"#)),
            (r#"{"NaN":"NaN \" Infinity"}"#, None),
            (r#"{"ä":"\\","b":NaN}"#, Some(r#"{"ä":"\\","b":null}"#)),
        ] {
            assert_eq!(numbers(text).as_deref(), want, "{text}");
        }
    }

    #[test]
    fn what_no_tree_can_hold_is_named() {
        let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        for depth in [1, MAX_DEPTH, MAX_DEPTH + 1, 5_000] {
            let text = nested(depth);
            let holds = serde_json::from_str::<serde_json::Value>(&text).is_ok();
            assert_eq!(unreadable(&text).is_none(), holds, "{depth}");
        }
        for (text, want) in [
            (r#"{"a":1e999}"#, Some("the number '1e999' is too large")),
            ("[-1E400 ]", Some("the number '-1E400' is too large")),
            (r#"{"a":"1e999 [[[","b":1e99,"true":false}"#, None),
        ] {
            assert_eq!(unreadable(text).as_deref(), want, "{text}");
            assert_eq!(serde_json::from_str::<serde_json::Value>(text).is_ok(), want.is_none(), "{text}");
        }
    }
}

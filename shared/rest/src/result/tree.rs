//! A large JSON text, read only as far as a result can show it: an answer of ten megabytes may hold five million values, and a model sees a few
//! thousand of them.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::value::RawValue;

/// Deeper is no answer that a model reads; it is what JSON values have as their own limit, too.
const MAX_DEPTH: usize = 128;
/// Values that are kept at the same time, at least: a few megabytes.
const MIN_VALUES: usize = 200_000;

/// A value; what was not kept is counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Tree<'a> {
    /// A number, `true`, `false` or `null`, as it was written.
    Leaf(&'a str),
    /// The beginning of a text, and how many characters follow.
    Text(Cow<'a, str>, usize),
    /// The first items, and how many follow.
    List(Vec<Tree<'a>>, usize),
    /// The first fields, and how many follow.
    Fields(Vec<(Cow<'a, str>, Tree<'a>)>, usize),
}

/// Why a reading ended.
enum Stop {
    /// Too deep.
    Deep,
    /// Too many values to keep.
    Full,
}

impl<'a> Tree<'a> {
    /// Reads a text of which `max_bytes` will be shown; none if it is no JSON.
    pub(super) fn parse(text: &'a str, max_bytes: usize) -> Option<Self> {
        serde_json::from_str::<&RawValue>(text).ok()?;
        // An item has a byte and a comma.
        let mut most = max_bytes / 2;
        loop {
            let values = MIN_VALUES.max(max_bytes / 2);
            let mut reader = Reader { text, at: 0, most, chars: max_bytes, values };
            match reader.value(0) {
                Ok(tree) => return Some(tree),
                Err(Stop::Deep) => return None,
                // With fewer of each list and object; with none of any it always suffices.
                Err(Stop::Full) => most /= 4,
            }
        }
    }
}

/// Walks over a text that is known to be JSON.
struct Reader<'a> {
    text: &'a str,
    at: usize,
    /// Items and fields that are kept of each value.
    most: usize,
    /// Characters that are kept of each text.
    chars: usize,
    /// Values that may still be kept.
    values: usize,
}

impl<'a> Reader<'a> {
    fn value(&mut self, depth: usize) -> Result<Tree<'a>, Stop> {
        if depth > MAX_DEPTH {
            return Err(Stop::Deep);
        }
        self.values = self.values.checked_sub(1).ok_or(Stop::Full)?;
        match self.peek() {
            Some(b'[') => {
                let (mut kept, mut more) = (Vec::new(), 0);
                self.at += 1;
                while self.next_in(b']') {
                    if kept.len() < self.most {
                        kept.push(self.value(depth + 1)?);
                    } else {
                        self.skip();
                        more += 1;
                    }
                }
                Ok(Tree::List(kept, more))
            }
            Some(b'{') => self.fields(depth),
            Some(b'"') => {
                let text = self.string();
                Ok(match text.char_indices().nth(self.chars) {
                    Some((end, _)) => {
                        let rest = text[end..].chars().count();
                        Tree::Text(text[..end].to_owned().into(), rest)
                    }
                    None => Tree::Text(text, 0),
                })
            }
            Some(_) | None => {
                let start = self.at;
                self.skip();
                Ok(Tree::Leaf(&self.text[start..self.at]))
            }
        }
    }

    fn fields(&mut self, depth: usize) -> Result<Tree<'a>, Stop> {
        let (mut kept, mut more) = (Vec::<(Cow<'a, str>, Tree<'a>)>::new(), 0);
        let mut known: HashMap<Cow<'a, str>, usize> = HashMap::new();
        self.at += 1;
        while self.next_in(b'}') {
            let key = self.string();
            // The colon, with blanks around it.
            self.peek();
            self.at += 1;
            match known.get(&key) {
                // As everywhere, the last one counts.
                Some(&at) => kept[at].1 = self.value(depth + 1)?,
                None if kept.len() < self.most => {
                    known.insert(key.clone(), kept.len());
                    kept.push((key, self.value(depth + 1)?));
                }
                None => {
                    self.peek();
                    self.skip();
                    more += 1;
                }
            }
        }
        Ok(Tree::Fields(kept, more))
    }

    /// The next byte that is no blank.
    fn peek(&mut self) -> Option<u8> {
        let rest = &self.text.as_bytes()[self.at..];
        let blanks = rest.iter().take_while(|b| b.is_ascii_whitespace()).count();
        self.at += blanks;
        rest.get(blanks).copied()
    }

    /// Whether another member of a list or an object follows; stands at it then.
    fn next_in(&mut self, end: u8) -> bool {
        if self.peek() == Some(b',') {
            self.at += 1;
        }
        match self.peek() {
            Some(byte) if byte == end => {
                self.at += 1;
                false
            }
            Some(_) => true,
            None => false,
        }
    }

    /// A text, decoded where it has to be.
    fn string(&mut self) -> Cow<'a, str> {
        self.peek();
        let start = self.at;
        self.skip_string();
        let written = &self.text[start..self.at];
        let inner = written.get(1..written.len().saturating_sub(1)).unwrap_or_default();
        match inner.contains('\\') {
            // Half a character, as `\ud800`, is shown as it was written.
            true => serde_json::from_str::<String>(written).map_or(Cow::Borrowed(inner), Cow::Owned),
            false => Cow::Borrowed(inner),
        }
    }

    fn skip_string(&mut self) {
        let bytes = self.text.as_bytes();
        self.at += 1;
        while let Some(byte) = bytes.get(self.at) {
            self.at += match byte {
                b'"' => {
                    self.at += 1;
                    return;
                }
                b'\\' => 2,
                _ => 1,
            };
        }
    }

    /// Over one value, however deep.
    fn skip(&mut self) {
        let bytes = self.text.as_bytes();
        let mut open = 0_usize;
        while let Some(byte) = bytes.get(self.at) {
            match byte {
                b'"' => self.skip_string(),
                b'[' | b'{' => {
                    open += 1;
                    self.at += 1;
                }
                b']' | b'}' | b',' if open == 0 => return,
                b']' | b'}' => {
                    open -= 1;
                    self.at += 1;
                }
                blank if blank.is_ascii_whitespace() && open == 0 => return,
                _ => self.at += 1,
            }
            if open == 0 && matches!(byte, b'"' | b']' | b'}') {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn leaf(text: &str) -> Tree<'_> {
        Tree::Leaf(text)
    }

    #[test]
    fn what_cannot_be_shown_is_counted_and_not_kept() {
        let text = r#" { "a" : [1, [2,"]"], {"x": "}"}, -3.50e1 , 5] , "b" : "ab\u0063d", "a":true, "c": null } "#;
        let tree = Tree::parse(text, 6).unwrap();
        let list = Tree::List(
            vec![
                leaf("1"),
                Tree::List(vec![leaf("2"), Tree::Text("]".into(), 0)], 0),
                Tree::Fields(vec![("x".into(), Tree::Text("}".into(), 0))], 0),
            ],
            2,
        );
        assert_ne!(tree, list);
        assert_eq!(
            tree,
            Tree::Fields(
                vec![
                    ("a".into(), leaf("true")),
                    ("b".into(), Tree::Text("abcd".into(), 0)),
                    ("c".into(), leaf("null"))
                ],
                0
            )
        );
        assert_eq!(Tree::parse(r#"[1, [2,"]"], {"x": "}"}, -3.50e1 , [5]]"#, 6).unwrap(), list);
        assert_eq!(Tree::parse("\"abcdefghi\"", 4).unwrap(), Tree::Text("abcd".into(), 5));
        assert_eq!(
            Tree::parse(r#"{"a":1,"b":[2,{}],"c":3}"#, 2).unwrap(),
            Tree::Fields(vec![("a".into(), leaf("1"))], 2)
        );
        assert_eq!(Tree::parse("\"\\ud800\"", 100).unwrap(), Tree::Text("\\ud800".into(), 0));
    }

    #[test]
    fn no_json_and_nothing_too_deep_is_read() {
        for text in
            ["", "[1", "{\"a\"}", "[1] 2", "nul", &"[".repeat(1000), &format!("{}{}", "[".repeat(200), "]".repeat(200))]
        {
            assert_eq!(Tree::parse(text, 1000), None, "{text}");
        }
    }

    #[test]
    fn lists_of_lists_are_kept_within_bounds() {
        let inner = format!("[{}]", vec!["0"; 1000].join(","));
        let text = format!("[{}]", vec![inner; 1000].join(","));
        let Some(Tree::List(kept, more)) = Tree::parse(&text, 48 * 1024) else { panic!("no list") };
        assert_eq!(kept.len() + more, 1000);
        let values: usize = kept.iter().map(|item| if let Tree::List(kept, _) = item { kept.len() } else { 0 }).sum();
        assert!(values <= MIN_VALUES && values > 50_000, "{values}");
    }
}

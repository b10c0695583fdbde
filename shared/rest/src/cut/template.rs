//! Path templates: `/users/{id}/m{b}?x={y}#only-for-the-document`.

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::operation::Piece;

/// What cannot stand in a URL as it is. `%` stays: templates may be encoded already.
const TEXT: &AsciiSet =
    &CONTROLS.add(b' ').add(b'"').add(b'<').add(b'>').add(b'\\').add(b'^').add(b'`').add(b'{').add(b'|').add(b'}');

/// The pieces of a template, and its placeholders in the order of their indices. What follows `#` only tells operations apart.
pub(crate) fn template(path: &str) -> (Vec<Piece>, Vec<String>) {
    let path = path.split('#').next().unwrap_or_default();
    let (mut pieces, mut names): (Vec<Piece>, Vec<String>) = (Vec::new(), Vec::new());
    let mut text = String::new();
    if !path.starts_with('/') {
        text.push('/');
    }
    let mut in_query = false;
    let mut rest = path;
    while let Some(at) = rest.find('{') {
        let Some(end) = rest[at..].find('}') else { break };
        let name = &rest[at + 1..at + end];
        in_query |= rest[..at].contains('?');
        text.extend(utf8_percent_encode(&rest[..at], TEXT));
        rest = &rest[at + end + 1..];
        if name.is_empty() {
            text.push_str("%7B%7D");
            continue;
        }
        if !text.is_empty() {
            pieces.push(Piece::Text(std::mem::take(&mut text)));
        }
        let index = names.iter().position(|known| known == name).unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        pieces.push(if in_query { Piece::QueryValue(index) } else { Piece::Value(index) });
    }
    text.extend(utf8_percent_encode(rest, TEXT));
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    (pieces, names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates_are_cut_at_their_placeholders() {
        let text = |text: &str| Piece::Text(text.to_owned());
        for (path, want, names) in [
            ("/a/{x}/m{y}", vec![text("/a/"), Piece::Value(0), text("/m"), Piece::Value(1)], vec!["x", "y"]),
            ("/{x}/{x}.json", vec![text("/"), Piece::Value(0), text("/"), Piece::Value(0), text(".json")], vec!["x"]),
            ("a b", vec![text("/a%20b")], vec![]),
            ("/?Action=A&v={v}#frag{z}", vec![text("/?Action=A&v="), Piece::QueryValue(0)], vec!["v"]),
            ("/job-1:{verb}", vec![text("/job-1:"), Piece::Value(0)], vec!["verb"]),
            ("/a{}/{open", vec![text("/a%7B%7D/%7Bopen")], vec![]),
        ] {
            assert_eq!(template(path), (want, names.into_iter().map(str::to_owned).collect()), "{path}");
        }
    }
}

//! `edit_local_file`: replaces one exact text by another.

use std::io::Read as _;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::json;
use vance_shared::tool::ToolResult;

use super::gate::{Call, Gate, blocking, blocking_result};
use super::roots::Resolved;
use super::write::{replace, unchanged};
use super::{Ended, failed};

/// Largest file that is edited: it is held in memory twice.
const MAX_FILE_BYTES: u64 = 16 * 1024 * 1024;

#[derive(Debug, Deserialize)]
struct Arguments {
    path: String,
    old_text: String,
    new_text: String,
    #[serde(default)]
    replace_all: bool,
}

pub(super) async fn run(gate: &Arc<Gate>, call: Call) -> Ended {
    let args: Arguments = call.parse()?;
    let (finder, path) = (Arc::clone(gate), args.path.clone());
    let at = blocking(move || finder.resolve(&path, true)).await?;
    // Whether a text is in a file is something read from it.
    gate.permit_read(&call, &at).await?;
    gate.permit_write(&call, &at).await?;
    call.halt.check()?;
    blocking_result(move || edit(&at, &args)).await
}

fn edit(at: &Resolved, args: &Arguments) -> Ended {
    let (mut file, meta) = at.file()?;
    if meta.len() > MAX_FILE_BYTES {
        return Err(failed(
            "file_too_large",
            format!("{} has {} bytes, at most {MAX_FILE_BYTES} can be edited", at.shown(), meta.len()),
        ));
    }
    let mut bytes = Vec::new();
    (&mut file).take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(|e| at.failure("read", &e))?;
    let Ok(text) = String::from_utf8(bytes) else {
        return Err(failed("binary_file", format!("{} is not UTF-8 text and cannot be edited", at.shown())));
    };
    let edited = replaced(&text, args).map_err(|why| failed("no_match", format!("{}: {why}", at.shown())))?;
    let (dir, name) = at.parent(false)?;
    unchanged(at, &dir, &name, &meta)?;
    replace(at, &dir, &name, edited.text.as_bytes(), Some(&meta))?;
    Ok(ToolResult::structured(json!({
        "path": at.real.to_string_lossy(), "replacements": edited.count, "first_line": edited.first_line, "size": edited.text.len(),
    })))
}

#[derive(Debug, PartialEq)]
struct Edited {
    text: String,
    count: usize,
    first_line: usize,
}

fn replaced(text: &str, args: &Arguments) -> Result<Edited, String> {
    if args.old_text == args.new_text {
        return Err("old_text and new_text are the same".to_owned());
    }
    let places: Vec<usize> = text.match_indices(&args.old_text).map(|(at, _)| at).collect();
    let line_of = |at: usize| text[..at].matches('\n').count() + 1;
    match places.as_slice() {
        [] => Err(not_found(text, &args.old_text)),
        [_, _, ..] if !args.replace_all => {
            let lines: Vec<String> = places.iter().take(5).map(|at| line_of(*at).to_string()).collect();
            Err(format!(
                "old_text occurs {} times (lines {}{}); give more of the surrounding text so that it occurs once, or pass `replace_all: true`",
                places.len(),
                lines.join(", "),
                if places.len() > 5 { ", ..." } else { "" },
            ))
        }
        [first, ..] => Ok(Edited {
            text: text.replace(&args.old_text, &args.new_text),
            count: places.len(),
            first_line: line_of(*first),
        }),
    }
}

fn not_found(text: &str, old: &str) -> String {
    let squeezed = |t: &str| t.split_whitespace().collect::<Vec<_>>().join(" ");
    if text.contains("\r\n") && text.contains(&old.replace('\n', "\r\n")) {
        return "old_text is not in the file with these line ends: the file uses \\r\\n".to_owned();
    }
    if !old.trim().is_empty() && squeezed(text).contains(&squeezed(old)) {
        return "old_text is in the file only with other blanks or line ends; copy it exactly as read_local_file shows it".to_owned();
    }
    "old_text is not in the file; read the file again and copy the text exactly".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For tables: `old>new`.
    fn args(text: &str) -> Arguments {
        let (old, new) = text.split_once('>').unwrap_or((text, ""));
        Arguments { path: String::new(), old_text: old.to_owned(), new_text: new.to_owned(), replace_all: false }
    }

    #[test]
    fn a_text_is_replaced_if_it_occurs_once() {
        for (text, change, want) in [
            ("a b c", "b>x", Ok("a x c")),
            ("a b b", "b>x", Err("occurs 2 times (lines 1, 1)")),
            ("a", "b>x", Err("is not in the file;")),
            ("a", "a>a", Err("are the same")),
            ("a\r\nb", "a\nb>x", Err("the file uses \\r\\n")),
            ("if  x {", "if x {>y", Err("only with other blanks")),
        ] {
            match (replaced(text, &args(change)), want) {
                (Ok(edited), Ok(want)) => assert_eq!(edited.text, want),
                (Err(why), Err(want)) => assert!(why.contains(want), "{why}"),
                (got, want) => panic!("{text:?} {change:?}: {got:?}, expected {want:?}"),
            }
        }
        let all = Arguments { replace_all: true, ..args("b>x") };
        assert_eq!(replaced("a\nb b", &all), Ok(Edited { text: "a\nx x".to_owned(), count: 2, first_line: 2 }));
    }
}

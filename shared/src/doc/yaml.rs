//! YAML 1.2 with the core schema, from parser events. One document, no anchors, aliases, tags or merge keys: the file says what it shows.

use std::borrow::Cow;
use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use super::json::duplicate;
use super::{Entry, Kind, MAX_DEPTH, Node, Problem, Problems, number};

/// Reads one YAML document. An empty file is `null` on line 1.
pub fn parse_yaml(file: &str, text: &str) -> Result<Node, Vec<Problem>> {
    let problems = Problems::new(file);
    let node = read_yaml(text, &problems);
    problems.into_result(node)
}

/// The same for a reader that has more to say about the file: a node in spite of problems, if they leave out none of its values.
pub fn read_yaml(text: &str, problems: &Problems) -> Option<Node> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Some((line, c)) = control_character(text) {
        // The parser would take NUL for the end of the file and drop the rest in silence.
        problems.add(line, format!("the control character U+{:04X} has no place in YAML, remove it", u32::from(c)));
        return None;
    }
    let mut reader =
        Reader { parser: Parser::new_from_str(text), problems, last_line: super::last_line(text), holes: false };
    let node = reader.document().ok();
    node.filter(|_| !reader.holes)
}

fn control_character(text: &str) -> Option<(u32, char)> {
    let bad = |c: char| (c.is_control() && !matches!(c, '\n' | '\r' | '\t' | '\u{85}')) || c == '\u{feff}';
    let (at, c) = text.char_indices().find(|(_, c)| bad(*c))?;
    let before = text[..at].bytes().filter(|b| *b == b'\n').count();
    Some((u32::try_from(before + 1).unwrap_or(u32::MAX), c))
}

/// The message for a number that would lose digits.
pub(super) fn too_large(text: &str) -> String {
    format!(
        "the number {} is too large to keep all its digits; write it as text, in quotes",
        crate::show::quoted(text, 40)
    )
}

/// The problem is noted; reading cannot go on.
struct Stop;

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    problems: &'a Problems,
    last_line: u32,
    /// A value could not be read; what stands in its place would only cause more complaints.
    holes: bool,
}

impl<'a> Reader<'a> {
    fn document(&mut self) -> Result<Node, Stop> {
        let mut root = None;
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamStart | Event::DocumentEnd | Event::Nothing => {}
                Event::DocumentStart(_) if root.is_some() => {
                    self.problems
                        .add(self.line(&span), "a second document starts here, expected one document in a file");
                    return Err(Stop);
                }
                Event::DocumentStart(_) => {
                    let (event, span) = self.next()?;
                    root = Some(self.node(event, span, 1)?);
                }
                Event::StreamEnd => return Ok(root.unwrap_or(Node { line: 1, kind: Kind::Null })),
                Event::Alias(_)
                | Event::Scalar(..)
                | Event::SequenceStart(..)
                | Event::SequenceEnd
                | Event::MappingStart(..)
                | Event::MappingEnd => return Err(self.stop(&span, "not valid YAML: content outside of the document")),
            }
        }
    }

    fn next(&mut self) -> Result<(Event<'a>, Span), Stop> {
        match self.parser.next_event() {
            Some(Ok(next)) => Ok(next),
            Some(Err(error)) => {
                let line = u32::try_from(error.marker().line()).unwrap_or(u32::MAX).clamp(1, self.last_line);
                self.problems.add(line, syntax(&error));
                Err(Stop)
            }
            None => {
                self.problems.add(self.last_line, "not valid YAML: the file ends in the middle");
                Err(Stop)
            }
        }
    }

    fn line(&self, span: &Span) -> u32 {
        u32::try_from(span.start.line()).unwrap_or(u32::MAX).clamp(1, self.last_line)
    }

    fn stop(&self, span: &Span, message: &str) -> Stop {
        self.problems.add(self.line(span), message);
        Stop
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node, Stop> {
        let line = self.line(&span);
        let kind = match event {
            Event::Scalar(text, style, anchor, tag) => {
                self.no_anchor(anchor, line);
                self.scalar(&text, style, tag.as_deref(), line)
            }
            Event::SequenceStart(anchor, tag) => {
                self.enter(anchor, tag, depth, line)?;
                let mut items = Vec::new();
                loop {
                    match self.next()? {
                        (Event::SequenceEnd, _) => break Kind::Sequence(items),
                        (event, span) => items.push(self.node(event, span, depth + 1)?),
                    }
                }
            }
            Event::MappingStart(anchor, tag) => {
                self.enter(anchor, tag, depth, line)?;
                self.mapping(depth)?
            }
            Event::Alias(_) => {
                self.problems.add(line, ALIAS);
                self.holes = true;
                Kind::Null
            }
            Event::Nothing
            | Event::StreamStart
            | Event::StreamEnd
            | Event::DocumentStart(_)
            | Event::DocumentEnd
            | Event::SequenceEnd
            | Event::MappingEnd => return Err(self.stop(&span, "not valid YAML: a value is missing")),
        };
        Ok(Node { line, kind })
    }

    fn mapping(&mut self, depth: usize) -> Result<Kind, Stop> {
        let mut seen = BTreeMap::new();
        let mut entries = Vec::new();
        loop {
            let (event, span) = self.next()?;
            let line = self.line(&span);
            let key = match event {
                Event::MappingEnd => return Ok(Kind::Mapping(entries)),
                Event::Scalar(text, style, anchor, _) => {
                    self.no_anchor(anchor, line);
                    if text.is_empty() && style == ScalarStyle::Plain {
                        self.problems.add(line, "a key is missing before `:`");
                    }
                    Some(text.into_owned())
                }
                other => {
                    self.problems.add(
                        line,
                        "a key is a list or a mapping, expected text; a value with {{ }} or a template stands in quotes",
                    );
                    self.node(other, span, depth + 1)?;
                    self.holes = true;
                    None
                }
            };
            let (event, span) = self.next()?;
            let nothing = matches!(&event, Event::Scalar(text, ScalarStyle::Plain, ..) if text.is_empty());
            let mut value = self.node(event, span, depth + 1)?;
            if nothing {
                // An absent value has the position of whatever comes next.
                value.line = line;
            }
            let Some(key) = key else { continue };
            match seen.get(&key) {
                Some(first) => self.problems.add(line, duplicate(&key, *first)),
                None => {
                    seen.insert(key.clone(), line);
                    entries.push(Entry { key, line, value });
                }
            }
        }
    }

    fn enter(&self, anchor: usize, tag: Option<Cow<'_, Tag>>, depth: usize, line: u32) -> Result<(), Stop> {
        self.no_anchor(anchor, line);
        if tag.is_some() {
            self.problems.add(line, "tags (!) are refused, remove it");
        }
        if depth > MAX_DEPTH {
            self.problems.add(line, format!("nested too deeply, expected at most {MAX_DEPTH} levels"));
            return Err(Stop);
        }
        Ok(())
    }

    fn no_anchor(&self, anchor: usize, line: u32) {
        if anchor > 0 {
            self.problems
                .add(line, "anchors (&) are refused, write the value out; text that starts with & stands in quotes");
        }
    }

    fn scalar(&mut self, text: &str, style: ScalarStyle, tag: Option<&Tag>, line: u32) -> Kind {
        let plain = match tag {
            None => style == ScalarStyle::Plain,
            Some(tag) if tag.is_yaml_core_schema() && tag.suffix == "str" => false,
            Some(_) => {
                self.problems.add(line, "tags (!) are refused, remove it; text that starts with ! stands in quotes");
                self.holes = true;
                return Kind::Null;
            }
        };
        if !plain {
            return Kind::String(text.to_owned());
        }
        core_schema(text).unwrap_or_else(|message| {
            self.problems.add(line, message);
            self.holes = true;
            Kind::Null
        })
    }
}

const ALIAS: &str = "aliases (*) are refused, write the value out; text that starts with * stands in quotes";

fn syntax(error: &ScanError) -> String {
    let info = error.info();
    if info.contains("unknown anchor") {
        return ALIAS.to_owned();
    }
    if info.contains("recursion limit") {
        return format!("nested too deeply, expected at most {MAX_DEPTH} levels");
    }
    let hint =
        if info.contains('@') || info.contains('%') { "; text that starts with @ or % stands in quotes" } else { "" };
    format!("not valid YAML: {info} (column {}){hint}", error.marker().col() + 1)
}

/// What an unquoted word is (YAML 1.2, core schema); the error says why it is nothing that JSON can hold.
pub fn core_schema(text: &str) -> Result<Kind, String> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Kind::Null),
        "true" | "True" | "TRUE" => return Ok(Kind::Bool(true)),
        "false" | "False" | "FALSE" => return Ok(Kind::Bool(false)),
        _ => {}
    }
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") || matches!(text, ".nan" | ".NaN" | ".NAN") {
        return Err(format!("{text} is a number that JSON cannot hold; text stands in quotes"));
    }
    for (prefix, radix) in [("0x", 16), ("0o", 8)] {
        if let Some(digits) = text.strip_prefix(prefix)
            && !digits.is_empty()
            && digits.chars().all(|c| c.is_digit(radix))
        {
            return u64::from_str_radix(digits, radix).map(|n| Kind::Number(n.into())).map_err(|_| too_large(text));
        }
    }
    if is_number(unsigned) {
        let signed = text.strip_prefix('+').unwrap_or(text);
        return number(signed).map(Kind::Number).ok_or_else(|| too_large(text));
    }
    Ok(Kind::String(text.to_owned()))
}

/// `[0-9]+`, or `(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`.
fn is_number(text: &str) -> bool {
    let digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (text, None),
    };
    let mantissa_ok = match mantissa.split_once('.') {
        Some((whole, fraction)) => digits(whole) && digits(fraction) && !(whole.is_empty() && fraction.is_empty()),
        None => !mantissa.is_empty() && digits(mantissa),
    };
    mantissa_ok && exponent.is_none_or(|e| !e.is_empty() && digits(e))
}

//! JSON: serde_json decides what is valid (nothing lenient), jsonc-parser gives the positions.

use std::cell::Cell;
use std::collections::BTreeMap;

use jsonc_parser::ast;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use super::{Entry, Kind, MAX_DEPTH, Node, Problem, Problems, number, ticked};

/// Every leniency off. serde_json has refused them before; this keeps the two readers on one grammar.
const STRICT: ParseOptions = ParseOptions {
    allow_comments: false,
    allow_loose_object_property_names: false,
    allow_trailing_commas: false,
    allow_missing_commas: false,
    allow_single_quoted_strings: false,
    allow_hexadecimal_numbers: false,
    allow_unary_plus_numbers: false,
    allow_bare_decimal_point_numbers: false,
    allow_non_finite_numbers: false,
    allow_extended_string_escapes: false,
};

/// Reads strict JSON. Duplicate keys at any depth, nesting beyond [`MAX_DEPTH`] and integers that no 64 bits hold are problems.
pub fn parse_json(file: &str, text: &str) -> Result<Node, Vec<Problem>> {
    let problems = Problems::new(file);
    let node = read_json(text, &problems);
    problems.into_result(node)
}

/// The same for a reader that has more to say about the file: a node in spite of problems, if they leave out none of its values.
pub fn read_json(text: &str, problems: &Problems) -> Option<Node> {
    // Editors on Windows write a byte order mark; it carries nothing.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Err(error) = serde_json::from_str::<serde_json::Value>(text) {
        problems.add(line_of_error(&error, text), syntax(&error, text));
        return None;
    }
    let parsed = match parse_to_ast(text, &CollectOptions::default(), &STRICT) {
        Ok(parsed) => parsed,
        Err(error) => {
            problems.add(Lines::of(text).at(error.range().start), format!("not valid JSON: {}", error.kind()));
            return None;
        }
    };
    let lines = Lines::of(text);
    let builder = Builder { problems, lines: &lines, holes: Cell::new(false) };
    let node = parsed.value.map(|value| builder.node(value, 1));
    node.filter(|_| !builder.holes.get())
}

fn line_of_error(error: &serde_json::Error, text: &str) -> u32 {
    u32::try_from(error.line()).unwrap_or(u32::MAX).clamp(1, super::last_line(text))
}

/// serde_json's words without its position, plus what the usual slips need to hear.
fn syntax(error: &serde_json::Error, text: &str) -> String {
    let whole = error.to_string();
    let words = whole.rsplit_once(" at line ").map_or(whole.as_str(), |(words, _)| words);
    if words.starts_with("recursion limit") {
        return format!("nested too deeply, expected at most {MAX_DEPTH} levels");
    }
    if text.trim().is_empty() {
        return "the file is empty, expected JSON".to_owned();
    }
    let line = text.split('\n').nth(error.line().saturating_sub(1)).unwrap_or_default();
    let hint = match line.as_bytes().get(error.column().saturating_sub(1)) {
        Some(b'/' | b'#') => "; comments have no place in JSON, remove them",
        Some(b'\'') => "; JSON text stands in double quotes",
        _ => "",
    };
    format!("not valid JSON: {words} (column {}){hint}", error.column())
}

/// Where each line starts, in bytes.
struct Lines(Vec<usize>);

impl Lines {
    fn of(text: &str) -> Self {
        Self(
            std::iter::once(0)
                .chain(text.bytes().enumerate().filter(|(_, b)| *b == b'\n').map(|(at, _)| at + 1))
                .collect(),
        )
    }

    fn at(&self, byte: usize) -> u32 {
        u32::try_from(self.0.partition_point(|start| *start <= byte)).unwrap_or(u32::MAX).max(1)
    }
}

struct Builder<'a> {
    problems: &'a Problems,
    lines: &'a Lines,
    /// A value could not be read; what stands in its place would only cause more complaints.
    holes: Cell<bool>,
}

impl Builder<'_> {
    fn node(&self, value: ast::Value<'_>, depth: usize) -> Node {
        use jsonc_parser::common::Ranged as _;
        let line = self.lines.at(value.start());
        let kind = match value {
            ast::Value::NullKeyword(_) => Kind::Null,
            ast::Value::BooleanLit(lit) => Kind::Bool(lit.value),
            ast::Value::StringLit(lit) => Kind::String(lit.value.into_owned()),
            ast::Value::NumberLit(lit) => match number(lit.value) {
                Some(number) => Kind::Number(number),
                None => {
                    self.problems.add(line, super::yaml::too_large(lit.value));
                    self.holes.set(true);
                    Kind::Null
                }
            },
            ast::Value::Array(_) | ast::Value::Object(_) if depth > MAX_DEPTH => {
                self.problems.add(line, format!("nested too deeply, expected at most {MAX_DEPTH} levels"));
                self.holes.set(true);
                Kind::Null
            }
            ast::Value::Array(array) => {
                Kind::Sequence(array.elements.into_iter().map(|v| self.node(v, depth + 1)).collect())
            }
            ast::Value::Object(object) => {
                let mut seen = BTreeMap::new();
                let mut entries = Vec::with_capacity(object.properties.len());
                for property in object.properties {
                    let line = self.lines.at(property.range.start);
                    let key = match property.name {
                        ast::ObjectPropName::String(lit) => lit.value.into_owned(),
                        ast::ObjectPropName::Word(lit) => lit.value.to_owned(),
                    };
                    let value = self.node(property.value, depth + 1);
                    match seen.get(&key) {
                        Some(first) => self.problems.add(line, duplicate(&key, *first)),
                        None => {
                            seen.insert(key.clone(), line);
                            entries.push(Entry { key, line, value });
                        }
                    }
                }
                Kind::Mapping(entries)
            }
        };
        Node { line, kind }
    }
}

/// The message for a key that was there before.
pub(super) fn duplicate(key: &str, first: u32) -> String {
    format!("the key {} is there twice, first on line {first}; remove one", ticked(key))
}

//! Edits of the store's text. The lines around an edit stay as they are, comments included; the one judge of an edit is the reader: it has
//! to find exactly the value that was meant, or the whole file is written anew (then unknown fields stay, comments below the head do not).

use std::borrow::Cow;

use serde_json::{Map, Value};

use super::{Book, FIELDS, yaml};
use crate::doc::{Entry as Field, Node, parse_yaml};

/// Puts an entry in the place of the one with its name, or behind the others.
pub(super) fn put(book: &mut Book, section: &str, project: &str, name: &str, fields: Map<String, Value>) {
    let mut wanted = book.root.clone();
    // A book that was read has lists here, or nothing.
    let Some(list) = list(&mut wanted, section, project) else { return };
    let at = list.iter().position(|item| named(item, name));
    let fields = match at.and_then(|at| list[at].as_object()) {
        Some(before) => {
            let unknown = before.iter().filter(|(key, _)| !FIELDS.contains(&key.as_str()));
            fields.into_iter().chain(unknown.map(|(key, value)| (key.clone(), value.clone()))).collect()
        }
        None => fields,
    };
    let entry = Value::Object(fields);
    match at {
        Some(at) => list[at] = entry.clone(),
        None => list.push(entry.clone()),
    }
    let before = ended(&book.text);
    let text = Lines::of(&before).and_then(|lines| lines.put(section, project, at, &entry));
    take(book, text, wanted);
}

/// Removes one entry, or all of a project; says how many it were.
pub(super) fn remove(book: &mut Book, section: &str, project: &str, name: Option<&str>) -> usize {
    let mut wanted = book.root.clone();
    let Some(projects) = wanted.get_mut(section).and_then(Value::as_object_mut) else { return 0 };
    let Some(list) = projects.get_mut(project).and_then(Value::as_array_mut) else { return 0 };
    let all = list.len();
    let at = list.iter().position(|item| name.is_none_or(|name| named(item, name)));
    list.retain(|item| name.is_some_and(|name| !named(item, name)));
    let (removed, left) = (all - list.len(), list.len());
    if removed == 0 {
        return 0;
    }
    let emptied = left == 0;
    if emptied {
        projects.shift_remove(project);
    }
    let section_emptied = projects.is_empty();
    if section_emptied {
        wanted.shift_remove(section);
    }
    let before = ended(&book.text);
    let text = Lines::of(&before).and_then(|lines| match (section_emptied, emptied, removed) {
        (true, _, _) => lines.without(section, None, None),
        (false, true, _) => lines.without(section, Some(project), None),
        (false, false, 1) => lines.without(section, Some(project), at),
        (false, false, _) => None,
    });
    take(book, text, wanted);
    removed
}

fn take(book: &mut Book, text: Option<String>, wanted: Map<String, Value>) {
    let value = Value::Object(wanted);
    let reads_as_meant = |text: &str| match parse_yaml("", text) {
        Ok(node) if node.is_null() => value.as_object().is_some_and(Map::is_empty),
        Ok(node) => node.to_value() == value,
        Err(_) => false,
    };
    let file = value.as_object().map(yaml::file).unwrap_or_default();
    // A head may end in the middle of what YAML takes for a line.
    let anew = format!("{}{file}", head(&book.text));
    let text = text.into_iter().chain([anew]).find(|text| reads_as_meant(text)).unwrap_or(file);
    let Value::Object(wanted) = value else { return };
    (book.text, book.root) = (text, wanted);
}

/// Comments and blank lines before the first field.
fn head(text: &str) -> String {
    ended(text).split_inclusive('\n').take_while(|line| is_remark(line)).collect()
}

/// With an end to its last line.
fn ended(text: &str) -> Cow<'_, str> {
    match text.is_empty() || text.ends_with('\n') {
        true => text.into(),
        false => format!("{text}\n").into(),
    }
}

fn is_remark(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}

fn named(item: &Value, name: &str) -> bool {
    item.get("name").and_then(Value::as_str) == Some(name)
}

fn list<'a>(root: &'a mut Map<String, Value>, section: &str, project: &str) -> Option<&'a mut Vec<Value>> {
    // A field that is there with nothing behind it is an empty one.
    let filled = |value: &mut Value, empty: Value| {
        if value.is_null() {
            *value = empty;
        }
    };
    let projects = root.entry(section).or_insert(Value::Null);
    filled(projects, Value::Object(Map::new()));
    let list = projects.as_object_mut()?.entry(project).or_insert(Value::Null);
    filled(list, Value::Array(Vec::new()));
    list.as_array_mut()
}

/// A file as lines, with the tree that says where things start.
struct Lines<'a> {
    lines: Vec<&'a str>,
    root: Node,
}

impl<'a> Lines<'a> {
    fn of(text: &'a str) -> Option<Self> {
        let root = parse_yaml("", text).ok()?;
        Some(Self { lines: text.split_inclusive('\n').collect(), root })
    }

    fn put(&self, section: &str, project: &str, at: Option<usize>, entry: &Value) -> Option<String> {
        let mut new = String::new();
        let Some((section_at, section_field)) = find(self.root.as_map().unwrap_or_default(), section) else {
            yaml::mapping(&wrap(section, wrap(project, Value::Array(vec![entry.clone()]))), 0, &mut new);
            return Some(self.spliced(self.lines.len(), self.lines.len(), &new));
        };
        let section_end = self.end_of(self.root.as_map()?, section_at, self.lines.len());
        let projects = section_field.value.as_map().unwrap_or_default();
        let Some(first) = projects.first() else {
            yaml::mapping(&wrap(section, wrap(project, Value::Array(vec![entry.clone()]))), 0, &mut new);
            return Some(self.spliced(index(section_field.line)?, section_end, &new));
        };
        let indent = self.indent(first.line);
        let Some((project_at, project_field)) = find(projects, project) else {
            yaml::mapping(&wrap(project, Value::Array(vec![entry.clone()])), indent, &mut new);
            return Some(self.spliced(section_end, section_end, &new));
        };
        let project_end = self.end_of(section_field.value.as_map()?, project_at, section_end);
        let items = project_field.value.as_list().unwrap_or_default();
        let Some(first) = items.first() else {
            yaml::mapping(&wrap(project, Value::Array(vec![entry.clone()])), indent, &mut new);
            return Some(self.spliced(index(project_field.line)?, project_end, &new));
        };
        yaml::item(entry, self.indent(first.line), &mut new);
        let (from, to) = match at {
            Some(at) => self.item(items, at, project_end)?,
            None => (project_end, project_end),
        };
        Some(self.spliced(from, to, &new))
    }

    fn without(&self, section: &str, project: Option<&str>, at: Option<usize>) -> Option<String> {
        let (section_at, section_field) = find(self.root.as_map()?, section)?;
        let section_end = self.end_of(self.root.as_map()?, section_at, self.lines.len());
        let Some(project) = project else { return Some(self.spliced(index(section_field.line)?, section_end, "")) };
        let (project_at, project_field) = find(section_field.value.as_map()?, project)?;
        let project_end = self.end_of(section_field.value.as_map()?, project_at, section_end);
        let Some(at) = at else { return Some(self.spliced(index(project_field.line)?, project_end, "")) };
        let (from, to) = self.item(project_field.value.as_list()?, at, project_end)?;
        Some(self.spliced(from, to, ""))
    }

    /// The lines of an element of a list.
    fn item(&self, items: &[Node], at: usize, end: usize) -> Option<(usize, usize)> {
        let from = index(items.get(at)?.line)?;
        let to = items.get(at + 1).and_then(|next| index(next.line)).unwrap_or(end);
        Some((from, self.back(from, to)))
    }

    /// The line behind a field: where the next one starts, without the remarks above that one.
    fn end_of(&self, fields: &[Field], at: usize, end: usize) -> usize {
        let from = fields.get(at).and_then(|field| index(field.line)).unwrap_or(end);
        let to = fields.get(at + 1).and_then(|next| index(next.line)).unwrap_or(end);
        self.back(from, to)
    }

    fn back(&self, from: usize, mut to: usize) -> usize {
        while to > from + 1 && self.lines.get(to - 1).is_some_and(|line| is_remark(line)) {
            to -= 1;
        }
        to
    }

    fn indent(&self, line: u32) -> usize {
        let line = index(line).and_then(|at| self.lines.get(at)).copied().unwrap_or_default();
        line.len() - line.trim_start_matches(' ').len()
    }

    fn spliced(&self, from: usize, to: usize, new: &str) -> String {
        let (before, after) = (self.lines.iter().take(from), self.lines.iter().skip(to));
        before.copied().chain([new]).chain(after.copied()).collect()
    }
}

fn index(line: u32) -> Option<usize> {
    usize::try_from(line).ok()?.checked_sub(1)
}

fn find<'a>(fields: &'a [Field], key: &str) -> Option<(usize, &'a Field)> {
    fields.iter().enumerate().find(|(_, field)| field.key == key)
}

fn wrap(key: &str, value: impl Into<Value>) -> Map<String, Value> {
    [(key.to_owned(), value.into())].into_iter().collect()
}

//! Names that models can use: sub-tools from operations, arguments from parameters.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use vance_shared::names::{MAX_NAME_BYTES, PackName, SUBTOOL_SEPARATOR, ToolName, fnv1a};

/// Longest argument name: what model providers accept as a property name.
const MAX_ARGUMENT_BYTES: usize = 64;

/// What an operation's name is made of.
pub(crate) struct Named<'a> {
    /// Upper case.
    pub(crate) method: &'a str,
    /// The path template.
    pub(crate) path: &'a str,
    /// The operation id, or the pack's own name for it.
    pub(crate) id: Option<&'a str>,
}

/// The tools' names, in the order of the operations. None: its like exists, and nothing tells them apart.
///
/// *All* members of a collision get the hash of their method and path, so that no name depends on the document's order.
pub(crate) fn tool_names(pack: &PackName, operations: &[Named<'_>]) -> Vec<Option<ToolName>> {
    let subs: Vec<String> = operations.iter().map(sub_tool).collect();
    let mut digits = vec![0usize; operations.len()];
    let name = |at: usize, digits: usize| full(pack, &subs[at], &operations[at], digits);
    // Each round lengthens the hashes of those that still collide; three lengths are enough for anything but the same operation twice.
    for longer in [6, 10, 16] {
        let mut users: HashMap<String, Vec<usize>> = HashMap::with_capacity(operations.len());
        for (at, digits) in digits.iter().enumerate() {
            users.entry(name(at, *digits)).or_default().push(at);
        }
        let clashing = users.into_values().filter(|users| users.len() > 1).flatten();
        let clashing: Vec<usize> = clashing.collect();
        if clashing.is_empty() {
            break;
        }
        for at in clashing {
            digits[at] = longer;
        }
    }
    let mut taken = BTreeSet::new();
    let names = digits.iter().enumerate().map(|(at, digits)| name(at, *digits));
    names.map(|name| taken.insert(name.clone()).then(|| ToolName::parse(&name).ok()).flatten()).collect()
}

fn full(pack: &PackName, sub: &str, operation: &Named<'_>, digits: usize) -> String {
    let whole = format!("{pack}{SUBTOOL_SEPARATOR}{sub}");
    if digits == 0 && whole.len() <= MAX_NAME_BYTES {
        return whole;
    }
    let digits = digits.max(6);
    let hash = fnv1a(format!("{} {}", operation.method, operation.path).as_bytes());
    let folded = if digits == 6 { ((hash >> 32) ^ hash) & 0xff_ffff } else { hash >> (64 - 4 * digits.min(16)) };
    let room = (MAX_NAME_BYTES - digits - 1).min(whole.len());
    format!("{}_{folded:0digits$x}", &whole[..room])
}

/// `issues/list` → `issues_list`; without an id `get_repos_by_owner`.
fn sub_tool(operation: &Named<'_>) -> String {
    let id = operation.id.map(|id| cleaned(id, |c| c.is_ascii_alphanumeric() || c == '-')).filter(|id| !id.is_empty());
    id.unwrap_or_else(|| {
        let mut name = operation.method.to_ascii_lowercase();
        let path = operation.path.replace('{', "/by_").replace('}', "/");
        for segment in path.split('/').map(|part| cleaned(part, |c| c.is_ascii_alphanumeric() || c == '-')) {
            if !segment.is_empty() {
                name.push('_');
                name.push_str(&segment);
            }
        }
        cleaned(&name, |c| c.is_ascii_alphanumeric() || c == '-')
    })
}

/// Every other character becomes `_`; runs of it are one, and none stands at the ends.
fn cleaned(text: &str, keep: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if keep(c) {
            out.push(c);
        } else if !out.ends_with('_') {
            out.push('_');
        }
    }
    out.trim_matches('_').to_owned()
}

/// A parameter as its argument's name is made from it: the name on the wire, and where it goes (`query`).
pub(crate) type Wire<'a> = (&'a str, &'static str);

/// The arguments' names, in the order of the parameters.
pub(crate) fn argument_names(wires: &[Wire<'_>]) -> Vec<String> {
    let plain: Vec<String> = wires.iter().map(|(name, _)| argument(name)).collect();
    let mut uses: BTreeMap<&str, usize> = BTreeMap::new();
    for name in &plain {
        *uses.entry(name).or_default() += 1;
    }
    let mut taken: BTreeSet<String> = BTreeSet::new();
    let mut names = Vec::with_capacity(wires.len());
    for (name, (_, place)) in plain.iter().zip(wires) {
        let wanted = if uses[name.as_str()] > 1 { suffixed(name, &format!("_{place}")) } else { name.clone() };
        let mut unique = wanted.clone();
        let mut count = 2;
        while taken.contains(&unique) || (unique != *name && uses.contains_key(unique.as_str())) {
            unique = suffixed(&wanted, &format!("_{count}"));
            count += 1;
        }
        taken.insert(unique.clone());
        names.push(unique);
    }
    names
}

fn argument(wire: &str) -> String {
    let fine = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.' | b'-');
    if (1..=MAX_ARGUMENT_BYTES).contains(&wire.len()) && wire.bytes().all(fine) {
        return wire.to_owned();
    }
    let spelt = wire.replace('<', "_lt").replace('>', "_gt");
    let mut name = cleaned(&spelt, |c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-'));
    // An underscore at the ends is a part of many names (`_page`) and is allowed.
    if spelt.starts_with('_') && !name.is_empty() {
        name.insert(0, '_');
    }
    if name.is_empty() {
        return "arg".to_owned();
    }
    name.truncate(MAX_ARGUMENT_BYTES);
    name
}

fn suffixed(name: &str, suffix: &str) -> String {
    format!("{}{suffix}", &name[..name.len().min(MAX_ARGUMENT_BYTES - suffix.len())])
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn names(pack: &str, operations: &[(&str, &str, Option<&str>)]) -> Vec<String> {
        let named: Vec<Named<'_>> =
            operations.iter().map(|(method, path, id)| Named { method, path, id: *id }).collect();
        let names = tool_names(&PackName::parse(pack).unwrap(), &named);
        names.into_iter().map(|name| name.map_or_else(|| "-".to_owned(), |name| name.to_string())).collect()
    }

    #[test]
    fn a_tool_is_named_after_its_operation_or_its_path() {
        for (method, path, id, want) in [
            ("GET", "/a", Some("issues/list-for.repo"), "p__issues_list-for_repo"),
            ("GET", "/a", Some("__x  y__"), "p__x_y"),
            ("GET", "/repos/{owner}/issues", None, "p__get_repos_by_owner_issues"),
            ("POST", "/", None, "p__post"),
            ("GET", "/{a}{b}.json", None, "p__get_by_a_by_b_json"),
            ("GET", "/a", Some("日本"), "p__get_a"),
        ] {
            assert_eq!(names("p", &[(method, path, id)]), [want]);
        }
    }

    #[test]
    fn members_of_a_collision_all_get_a_hash_in_any_order() {
        let (a, b) = (("GET", "/a", Some("foo/list")), ("GET", "/b", Some("foo.list")));
        assert_eq!(names("p", &[a, b]), ["p__foo_list_2c633e", "p__foo_list_2c6327"]);
        assert_eq!(names("p", &[b, a]), ["p__foo_list_2c6327", "p__foo_list_2c633e"]);
        // One that is called like the other's hashed name.
        let c = ("GET", "/c", Some("foo_list_2c633e"));
        let with = names("p", &[a, b, c]);
        assert_eq!(with.iter().collect::<BTreeSet<_>>().len(), 3, "{with:?}");
        assert_eq!(names("p", &[a, a])[1], "-", "nothing tells them apart");
        let long = "x".repeat(64);
        assert!(names(&long, &[a, b]).iter().all(|name| name.len() <= 64));
    }

    #[test]
    fn arguments_have_names_that_providers_accept() {
        let wires = [
            ("id", "path"),
            ("id", "query"),
            ("id_query", "header"),
            ("_page", "query"),
            ("x.y-z", "query"),
            ("[]", "query"),
        ];
        assert_eq!(argument_names(&wires), ["id_path", "id_query_2", "id_query", "_page", "x.y-z", "arg"]);
        let long = "é".repeat(10) + &"a".repeat(100);
        assert!(argument_names(&[(&long, "query"), (&long, "path")]).iter().all(|name| name.len() <= 64));
    }
}

//! From pack files to the packs that count: one pack a name, every file that does not count with its reason.
//!
//! The order is fixed: bytes → parse → one pack a name → `select` → consent → start. Nothing here starts, fetches or
//! resolves anything.

use std::collections::HashMap;

use vance_shared::doc::Problem;
use vance_shared::launch::Origin;
use vance_shared::names::PackName;
use vance_shared::pack::{Pack, parse_pack};

/// A pack file as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackFile {
    /// The path, for people.
    pub file: String,
    /// Its text.
    pub text: String,
    /// Whose it is.
    pub origin: Origin,
}

/// A pack with the file that it came from.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// The file.
    pub file: String,
    /// The pack.
    pub pack: Pack,
}

/// A pack that is not loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeftOut {
    /// Its name, or the file's where no name could be read.
    pub pack: String,
    /// The file.
    pub file: String,
    /// Why, and what to do.
    pub reason: String,
}

/// What a set of pack files comes to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Merged {
    /// One pack a name, in the files' order.
    pub packs: Vec<Found>,
    /// Files that cannot be loaded.
    pub failed: Vec<LeftOut>,
    /// Everything that is wrong in them, with file and line.
    pub problems: Vec<Problem>,
    /// What is odd in packs that load.
    pub warnings: Vec<Problem>,
}

/// Reads the files; of two packs with one name the first file's counts and the other one fails with both files named.
pub fn merge(files: impl IntoIterator<Item = PackFile>) -> Merged {
    let mut merged = Merged::default();
    let mut by_name: HashMap<PackName, String> = HashMap::new();
    for PackFile { file, text, origin } in files {
        let parsed = parse_pack(&file, &text, origin);
        let name = parsed.name.as_ref().map_or_else(|| stem(&file), ToString::to_string);
        merged.warnings.extend(parsed.warnings);
        let Some(pack) = parsed.pack else {
            let shown: Vec<String> =
                parsed.problems.iter().map(|p| format!("line {}: {}", p.line, p.message)).collect();
            merged.failed.push(LeftOut { pack: name, file, reason: shown.join("; ") });
            merged.problems.extend(parsed.problems);
            continue;
        };
        if let Some(first) = by_name.get(&pack.name) {
            let reason = format!("the name '{name}' is taken by {first}; give one of the two another name");
            merged.problems.push(Problem::new(file.clone(), 1, &reason));
            merged.failed.push(LeftOut { pack: name, file, reason });
            continue;
        }
        by_name.insert(pack.name.clone(), file.clone());
        merged.packs.push(Found { file, pack });
    }
    merged
}

/// `a/b/chrome.json` → `chrome`.
fn stem(file: &str) -> String {
    let name = file.rsplit(['/', '\\']).next().unwrap_or(file);
    vance_shared::show::plain(name.strip_suffix(".json").unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(file: &str, text: &str) -> PackFile {
        PackFile { file: file.to_owned(), text: text.to_owned(), origin: Origin::Global }
    }

    fn pack(name: &str) -> String {
        format!(r#"{{"name":"{name}","type":"mcp_server","parameters":{{"transport":"stdio","command":["true"]}}}}"#)
    }

    #[test]
    fn a_broken_file_fails_with_its_problems_and_harms_no_other() {
        let merged =
            merge([file("/h/a.json", &pack("a")), file("/h/b.json", "{\n\"name\": 1"), file("/h/c.json", &pack("c"))]);
        let names: Vec<&str> = merged.packs.iter().map(|f| f.pack.name.as_str()).collect();
        assert_eq!(names, ["a", "c"]);
        assert_eq!(merged.failed.len(), 1);
        assert_eq!((merged.failed[0].pack.as_str(), merged.failed[0].file.as_str()), ("b", "/h/b.json"));
        assert!(merged.failed[0].reason.starts_with("line "), "{}", merged.failed[0].reason);
        assert!(!merged.problems.is_empty());
    }

    #[test]
    fn of_two_packs_with_one_name_the_second_fails_and_names_the_first() {
        let merged = merge([file("/h/1.json", &pack("a")), file("/h/2.json", &pack("a"))]);
        assert_eq!(merged.packs.len(), 1);
        assert_eq!(merged.packs[0].file, "/h/1.json");
        assert!(merged.failed[0].reason.contains("/h/1.json"), "{}", merged.failed[0].reason);
    }
}

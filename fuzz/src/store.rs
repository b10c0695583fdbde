//! Edits of a store that was written by hand: they do what they say, what is written reads back, and the rest stays.

use std::path::Path;

use vance_shared::doc::Problem;
use vance_shared::gate::{Book, Denial, Entry, Project};
use vance_shared::names::PackName;

const OWN: &str = "/p";
/// In both files' words, so that one text gives an entry of either.
const CONSENT: &str = "\
trustedPacks: {/p: [{name: n, reach: 'npx: \"x\" #y', since: 2026-03-01}]}
trustedBrains: {/p: [{name: n, reach: 'npx: \"x\" #y', since: 2026-03-01}]}
";

type Parse = fn(&str, &str) -> Result<Book, Vec<Problem>>;

/// Allows, denies and revokes in a copy each.
pub(crate) fn edits(book: &Book, parse: Parse) {
    let (Ok(project), Ok(name)) = (Project::new(Path::new(OWN)), PackName::parse("n")) else { return };
    let Some(consent) = parse("f", CONSENT).ok().and_then(|book| book.find(&project, &name).cloned()) else { return };

    let mut allowed = book.clone();
    allowed.allow(&project, &consent);
    assert_eq!((allowed.find(&project, &name), allowed.denial(&project, &name)), (Some(&consent), None));
    same_elsewhere(book, &allowed, parse);

    let mut denied = book.clone();
    denied.deny(&project, &name, "2026-03-01");
    assert!(denied.denial(&project, &name).is_some() && denied.find(&project, &name).is_none());
    same_elsewhere(book, &denied, parse);

    for mut edited in [allowed, denied, book.clone()] {
        let before = edited.clone();
        let was = edited.find(&project, &name).is_some();
        assert_eq!(edited.revoke(&project, &name), was);
        edited.undeny(&project, &name);
        assert!(edited.find(&project, &name).is_none() && edited.denial(&project, &name).is_none());
        same_elsewhere(&before, &edited, parse);
        edited.revoke_all();
        assert_eq!(edited.entries().count(), 0);
        reads_back(&edited, parse);
    }
}

fn reads_back(book: &Book, parse: Parse) {
    assert_eq!(parse("f", book.to_yaml()).as_ref(), Ok(book), "{}", book.to_yaml());
}

fn same_elsewhere(before: &Book, after: &Book, parse: Parse) {
    reads_back(after, parse);
    let own = |project: &str, name: &PackName| project == OWN && name.as_str() == "n";
    let entries = |book: &Book| -> Vec<(String, Entry)> {
        let others = book.entries().filter(|(project, entry)| !own(project, &entry.name));
        others.map(|(project, entry)| (project.to_owned(), entry.clone())).collect()
    };
    let denials = |book: &Book| -> Vec<(String, Denial)> {
        let others = book.denials().filter(|(project, denial)| !own(project, &denial.name));
        others.map(|(project, denial)| (project.to_owned(), denial.clone())).collect()
    };
    assert_eq!(entries(before), entries(after), "{}\n{}", before.to_yaml(), after.to_yaml());
    assert_eq!(denials(before), denials(after), "{}\n{}", before.to_yaml(), after.to_yaml());
}

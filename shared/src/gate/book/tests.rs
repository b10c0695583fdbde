#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;
use serde_json::json;

use super::*;

const STORE: &str = "# mine

trustedPacks:
  # work
  /Users/me/src/repo:
    - name: chrome # good
      reach: npx -y chrome-devtools-mcp@latest
      note: from Anna
    # the second
    - name: jira
      reach: node ./tools/jira.js

  /Users/me/src/other:
  - {name: x, reach: y}
version: 1
";

fn project(dir: &str) -> Project {
    Project::new(Path::new(dir)).unwrap()
}

fn name(text: &str) -> PackName {
    PackName::parse(text).unwrap()
}

fn entry(pack: &str, reach: &str) -> Entry {
    Entry::new(name(pack), reach.to_owned(), Digest::of(reach.as_bytes()), &Facts::default(), "2026-03-01")
}

fn book(text: &str) -> Book {
    Book::parse("f", text).unwrap()
}

/// Lines that are in one text and not in the other.
fn difference(before: &str, after: &str) -> (Vec<String>, Vec<String>) {
    let only = |a: &str, b: &str| {
        a.lines().filter(|line| !b.lines().any(|other| other == *line)).map(str::to_owned).collect::<Vec<_>>()
    };
    (only(before, after), only(after, before))
}

#[test]
fn an_edit_touches_its_own_lines_only() {
    let repo = project("/Users/me/src/repo");
    let digest = |reach: &str| format!("      digest: {}", Digest::of(reach.as_bytes()));

    let mut edited = book(STORE);
    edited.allow(&repo, &entry("memory", "uvx m"));
    let (gone, come) = difference(STORE, edited.to_yaml());
    assert_eq!(gone, Vec::<String>::new());
    assert_eq!(come, ["    - name: memory", "      reach: uvx m", &digest("uvx m"), "      since: 2026-03-01"]);

    let mut edited = book(STORE);
    edited.allow(&repo, &entry("chrome", "npx x"));
    let (gone, come) = difference(STORE, edited.to_yaml());
    assert_eq!(gone, ["    - name: chrome # good", "      reach: npx -y chrome-devtools-mcp@latest"]);
    assert_eq!(come, ["    - name: chrome", "      reach: npx x", &digest("npx x"), "      since: 2026-03-01"]);
    assert!(edited.to_yaml().contains("      note: from Anna\n    # the second\n"), "{}", edited.to_yaml());

    let mut edited = book(STORE);
    assert!(edited.revoke(&repo, &name("jira")) && !edited.revoke(&repo, &name("jira")));
    let (gone, come) = difference(STORE, edited.to_yaml());
    assert_eq!((gone.len(), come.len()), (2, 0), "{}", edited.to_yaml());

    let mut edited = book(STORE);
    assert_eq!(edited.revoke_project(&project("/Users/me/src/other")), 1);
    let (gone, come) = difference(STORE, edited.to_yaml());
    assert_eq!((gone.len(), come.len()), (2, 0), "{}", edited.to_yaml());
    assert_eq!(edited.revoke_all(), 2);
    assert_eq!(edited.to_yaml(), "# mine\n\n\nversion: 1\n");

    let mut edited = book(STORE);
    edited.deny(&project("/p"), &name("evil"), "2026-03-01");
    assert_eq!(
        edited.to_yaml().strip_prefix(STORE),
        Some("deniedPacks:\n  /p:\n    - name: evil\n      since: 2026-03-01\n")
    );
}

#[test]
fn a_form_that_lines_cannot_extend_is_written_anew_and_loses_no_field() {
    for (text, other) in [
        ("", json!(null)),
        ("# only a remark", json!(null)),
        ("{}", json!(null)),
        ("trustedPacks:\nx: [1, {y: 2}]\n", json!([1, {"y": 2}])),
        ("trustedPacks: {}\nx: 1.5", json!(1.5)),
        ("trustedPacks:\n  /p:\n  /q: []\nx: \"é\\n\"\n", json!("é\n")),
        ("trustedPacks: {/p: [{name: b, reach: c}]} # flow\nx: true\n", json!(true)),
        ("---\nx: 7\n...\n", json!(7)),
        ("\u{feff}x: ~\ntrustedPacks:\r\n  /p:\r\n  - name: b\r\n    reach: c\r\n", json!(null)),
    ] {
        let mut edited = book(text);
        let kept = edited.entries().count();
        edited.allow(&project("/p"), &entry("a", "run me"));
        assert_eq!(book(edited.to_yaml()).find(&project("/p"), &name("a")), Some(&entry("a", "run me")), "{text}");
        assert_eq!(edited.entries().count(), kept + 1, "{text}");
        assert_eq!(edited.root.get("x").cloned().unwrap_or(Value::Null), other, "{text}");
    }
    let mut edited = book("# only a remark");
    edited.allow(&project("/p"), &entry("a", "run me"));
    assert!(edited.to_yaml().starts_with("# only a remark\ntrustedPacks:\n  /p:\n    - name: a\n"));
}

#[test]
fn a_store_with_a_mistake_trusts_nothing_and_says_where() {
    for (text, want) in [
        ("trustedPacks: x", "1: `trustedPacks` is 'x', expected project directories with lists"),
        ("trustedPacks:\n  /p: x", "2: `/p` is 'x', expected a list of packs"),
        ("trustedPacks:\n  /p:\n  - name: a", "3: an entry has no `reach`, expected what the pack runs or reaches"),
        ("trustedPacks:\n  /p:\n  - reach: a", "3: an entry has no `name`, expected the pack's name"),
        (
            "trustedPacks:\n  /p:\n  - {name: a__b, reach: c}",
            "3: `name`: a pack name has no `__` and no `_` at its ends, got 'a__b'",
        ),
        (
            "trustedPacks:\n  /p:\n  - {name: a, reach: c, digest: abc}",
            "3: `digest`: a digest is sha256: and 64 of [0-9a-f], got 'abc'",
        ),
        (
            "trustedPacks:\n  /p:\n  - {name: a, reach: c}\n  - {name: a, reach: d}",
            "4: 'a' is there twice in this project, remove one",
        ),
        (
            "trustedPacks:\n  /p: &x []\n  /q: *x",
            "2: anchors (&) are refused, write the value out; text that starts with & stands in quotes",
        ),
        ("trustedPacks: [", "1: not valid YAML"),
        ("- a", "1: the file is a list, expected a mapping (name: value)"),
        ("deniedPacks:\n  /p:\n  - a", "3: an entry is 'a', expected a mapping (name: value)"),
    ] {
        let problems = Book::parse("f", text).expect_err(text);
        let first = format!("{}: {}", problems[0].line, problems[0].message);
        assert!(first.starts_with(want), "{text}: {first}");
    }
    let long = format!("# {}\n", "x".repeat(MAX_STORE_BYTES));
    assert!(Book::parse("f", &long).is_err());
}

#[test]
fn what_is_gone_is_pruned() {
    let mut edited = book(STORE);
    edited.deny(&project("/gone"), &name("evil"), "2026-03-01");
    let gone = edited.prune(|dir| dir != Path::new("/Users/me/src/repo"));
    assert_eq!(gone, ["/Users/me/src/other", "/gone"]);
    assert_eq!((edited.entries().count(), edited.denials().count()), (2, 0));
    assert_eq!(edited, book(edited.to_yaml()));
}

#[test]
fn an_entry_remembers_what_was_shown() {
    let facts = Facts {
        env: [("A".to_owned(), "b: c # d\u{202e}".to_owned())].into(),
        headers: [("X-A".to_owned(), "1".to_owned())].into(),
        access: [("auth".to_owned(), "basic".to_owned())].into(),
        sends: ["T".to_owned()].into(),
        cwd: Some(".".to_owned()),
        files: [("x.js".to_owned(), Digest::of(b"").to_string())].into(),
        args: [("path".to_owned(), "\"/x\"".to_owned())].into(),
        replay: [("send".to_owned(), "safe".to_owned())].into(),
        labels: ["web".to_owned()].into(),
        leads: ["https://a.example/v1".to_owned(), "https://b.example".to_owned()].into(),
    };
    let entry = Entry { facts, document: Some(Digest::of(b"d")), ..entry("a", "node 'x y'") };
    let mut book = Book::empty();
    book.allow(&project("/p"), &entry);
    let read = Book::parse("f", book.to_yaml()).unwrap();
    assert_eq!(read.find(&project("/p"), &entry.name), Some(&entry));
}

fn strange() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::sample::select(vec![
            "",
            "~",
            "null",
            "true",
            "1",
            "0x1",
            "- a",
            "a: b",
            "a #b",
            "#",
            "*x",
            "&x",
            "!t",
            "{",
            "[",
            "é",
            "\u{1b}",
            "\u{2028}",
            "\n",
            " a ",
            "a\nb",
            "'",
            "\"",
            "\\",
            "? x",
            "2026-03-01",
            "<<",
            "%",
            "@",
            "`",
            "|",
            ">",
            "=",
            "\u{7f}\u{85}\u{feff}",
            "\u{1f600}"
        ])
        .prop_map(str::to_owned),
        ".{0,20}".prop_map(|text| text),
        Just("x".repeat(1500)),
    ]
}

#[derive(Debug, Clone)]
enum Edit {
    Allow(usize, usize, String),
    Revoke(usize, usize),
    RevokeProject(usize),
    Deny(usize, usize),
    Undeny(usize, usize),
    Prune(usize),
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let at = || 0..3usize;
    let edit = prop_oneof![
        4 => (at(), at(), strange()).prop_map(|(p, n, reach)| Edit::Allow(p, n, reach)),
        2 => (at(), at()).prop_map(|(p, n)| Edit::Revoke(p, n)),
        1 => at().prop_map(Edit::RevokeProject),
        1 => (at(), at()).prop_map(|(p, n)| Edit::Deny(p, n)),
        1 => (at(), at()).prop_map(|(p, n)| Edit::Undeny(p, n)),
        1 => at().prop_map(Edit::Prune),
    ];
    prop::collection::vec(edit, 0..8)
}

/// Any JSON that a file of ours can hold.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e9..1e9f64).prop_map(Value::from),
        strange().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((strange(), inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

#[test]
fn a_file_with_the_line_ends_of_another_age_still_reads_after_an_edit() {
    let mut edited = book("# mine\rversion: 1\n");
    edited.allow(&project("/p"), &entry("a", "b"));
    assert_eq!(Book::parse("f", edited.to_yaml()), Ok(edited.clone()), "{}", edited.to_yaml());
    assert!(edited.to_yaml().contains("version: 1"), "{}", edited.to_yaml());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_reads_back(fields in prop::collection::vec((strange(), value()), 0..5)) {
        let root: Map<String, Value> = fields.into_iter().collect();
        let text = yaml::file(&root);
        let read = crate::doc::parse_yaml("f", &text).map_err(|problems| TestCaseError::fail(format!("{problems:?}\n{text}")))?;
        let wanted = if root.is_empty() { Value::Null } else { Value::Object(root) };
        prop_assert_eq!(read.to_value(), wanted, "{}", text);
    }

    #[test]
    fn edits_do_what_they_say_and_keep_what_is_not_ours(
        start in prop::sample::select(vec!["", STORE, "x: 1\n", "trustedPacks:\n  /p1: [{name: n1, reach: r, extra: {a: [1]}}]\nx: 1\n"]),
        edits in edits(),
    ) {
        let projects = [project("/p0"), project("/p1"), project("/Users/me/src/repo")];
        let names = [name("n0"), name("n1"), name("chrome")];
        let mut book = book(start);
        let foreign = |book: &Book| {
            let mut root = book.root.clone();
            root.shift_remove(TRUSTED);
            root.shift_remove(DENIED);
            root
        };
        let before = foreign(&book);
        for edit in edits {
            match edit {
                Edit::Allow(p, n, reach) => {
                    let new = entry(names[n].as_str(), &reach);
                    book.allow(&projects[p], &new);
                    prop_assert_eq!(book.find(&projects[p], &names[n]), Some(&new));
                    prop_assert_eq!(book.denial(&projects[p], &names[n]), None);
                }
                Edit::Revoke(p, n) => {
                    book.revoke(&projects[p], &names[n]);
                    prop_assert_eq!(book.find(&projects[p], &names[n]), None);
                }
                Edit::RevokeProject(p) => {
                    book.revoke_project(&projects[p]);
                    prop_assert!(book.entries().all(|(dir, _)| dir != projects[p].key()));
                }
                Edit::Deny(p, n) => {
                    book.deny(&projects[p], &names[n], "2026-03-01");
                    prop_assert!(book.denial(&projects[p], &names[n]).is_some());
                    prop_assert_eq!(book.find(&projects[p], &names[n]), None);
                }
                Edit::Undeny(p, n) => {
                    book.undeny(&projects[p], &names[n]);
                    prop_assert_eq!(book.denial(&projects[p], &names[n]), None);
                }
                Edit::Prune(p) => {
                    book.prune(|dir| dir == projects[p].dir());
                    prop_assert!(book.entries().all(|(dir, _)| dir != projects[p].key()));
                }
            }
            let read = Book::parse("f", book.to_yaml());
            prop_assert_eq!(read.as_ref(), Ok(&book), "{}", book.to_yaml());
            prop_assert_eq!(&foreign(&book), &before);
        }
    }

    #[test]
    fn the_reader_never_panics(text in "(trustedPacks:\n  /p:\n  - )?.{0,60}", bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        for text in [text, String::from_utf8_lossy(&bytes).into_owned()] {
            if let Ok(mut book) = Book::parse("f", &text) {
                book.allow(&project("/p"), &entry("a", "b"));
                prop_assert!(book.find(&project("/p"), &name("a")).is_some(), "{}", book.to_yaml());
            }
        }
    }
}

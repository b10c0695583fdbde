#![allow(clippy::unwrap_used, clippy::expect_used)]

use proptest::prelude::*;

use super::*;

const PACKS: [&str; 3] = ["chrome", "jira", "memory"];

fn selected(text: &str) -> Vec<&'static str> {
    let config = parse_config("config.yaml", text);
    PACKS.into_iter().filter(|pack| config.tool_packs.reason_against(pack).is_none()).collect()
}

fn shown(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn each_field_is_optional_for_itself() {
    for (text, wanted) in [
        ("", &PACKS[..]),
        ("# nothing", &PACKS),
        ("{}", &PACKS),
        ("other: [1, {a: b}]", &PACKS),
        ("toolPacks:", &PACKS),
        ("toolPacks: {}", &PACKS),
        ("toolPacks: {enabled: true}", &PACKS),
        ("toolPacks: {enabled: }", &PACKS),
        ("toolPacks: {packs: []}", &PACKS),
        ("toolPacks: {packs: }", &PACKS),
        ("toolPacks: {disabledPacks: []}", &PACKS),
        ("toolPacks: {enabled: false}", &[]),
        ("toolPacks: {enabled: false, packs: [chrome]}", &[]),
        ("toolPacks: {enabled: true, packs: [chrome]}", &["chrome"]),
        ("toolPacks: {packs: [chrome, jira], disabledPacks: [jira]}", &["chrome"]),
        ("toolPacks: {disabledPacks: [jira]}", &["chrome", "memory"]),
        ("toolPacks: {packs: [chrom, Chrome, chrome_, 'chrome ']}", &[]),
        ("toolPacks: {disabledPacks: [chrom, JIRA]}", &PACKS),
        (
            "toolPacks:\n  enabled: true          # false = no packs at all in this project\n  packs: [chrome]        # Allow-list\n  disabledPacks: [jira]  # Deny-list\n",
            &["chrome"],
        ),
    ] {
        assert_eq!(selected(text), wanted, "{text}");
        let config = parse_config("config.yaml", text);
        assert_eq!((config.problems, config.warnings), (vec![], vec![]), "{text}");
    }
}

#[test]
fn a_reason_names_the_line() {
    let text = "toolPacks:\n  packs:\n  - chrome\n  - jira\n  disabledPacks:\n  - jira\n";
    let config = parse_config("config.yaml", text).tool_packs;
    assert_eq!(config.reason_against("memory").unwrap(), "not in the list `toolPacks.packs` of config.yaml:3");
    assert_eq!(config.reason_against("jira").unwrap(), "config.yaml:6 lists it in `toolPacks.disabledPacks`");
    let off = parse_config("config.yaml", "toolPacks:\n  enabled: false").tool_packs;
    assert_eq!(off.reason_against("chrome").unwrap(), "config.yaml:2 turns all packs off (`toolPacks.enabled: false`)");
}

#[test]
fn what_cannot_be_understood_selects_nothing() {
    for (text, want) in [
        ("toolPacks: [chrome]", "config.yaml:1: `toolPacks` is a list, expected a mapping (name: value)"),
        ("toolPacks:\n  packs: chrome", "config.yaml:2: `packs` is 'chrome', expected a list such as [chrome, jira]"),
        ("toolPacks:\n  packs: [1]", "config.yaml:2: `packs` holds the number 1, expected text"),
        ("toolPacks:\n  enabled: 'no'", "config.yaml:2: `enabled` is 'no', expected true or false"),
        (
            "x: &a 1\ny: *a",
            "config.yaml:1: anchors (&) are refused, write the value out; text that starts with & stands in quotes",
        ),
        ("- a", "config.yaml:1: the file is a list, expected a mapping (name: value)"),
    ] {
        let config = parse_config("config.yaml", text);
        assert_eq!(shown(&config.problems).first().map(String::as_str), Some(want));
        assert_eq!(selected(text), Vec::<&str>::new(), "{text}");
        let reason = config.tool_packs.reason_against("chrome").unwrap();
        assert!(reason.starts_with("config.yaml cannot be understood (line "), "{reason}");
    }
}

#[test]
fn names_and_fields_that_mean_nothing_are_mentioned_with_what_was_meant() {
    let config = parse_config(
        "c",
        "toolPacks:\n  packs: [chrom]\n  disabledPacks: [zzz]\n  disabledPack: [jira]\ntoolpacks: 1\nx: 1\n",
    );
    assert_eq!(
        shown(&config.warnings),
        ["c:4: unknown field `disabledPack` in `toolPacks`, did you mean `disabledPacks`?"]
    );
    assert_eq!(
        shown(&config.tool_packs.unmatched(&PACKS)),
        [
            "c:2: 'chrom' in `toolPacks.packs` is no pack that was found, did you mean 'chrome'?",
            "c:3: 'zzz' in `toolPacks.disabledPacks` is no pack that was found"
        ]
    );
    let config = parse_config("c", "x: 1\ntool_packs: {enabled: false}\n");
    assert_eq!(shown(&config.warnings), ["c:2: `tool_packs` is not read, did you mean `toolPacks`?"]);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_reader_never_panics_and_a_file_with_problems_selects_nothing(
        text in prop_oneof![
            "(toolPacks:\n  (packs|enabled|disabledPacks): )?.{0,40}",
            prop::collection::vec(any::<u8>(), 0..80).prop_map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        ]
    ) {
        let config = parse_config("config.yaml", &text);
        if !config.problems.is_empty() {
            prop_assert!(PACKS.iter().all(|pack| config.tool_packs.reason_against(pack).is_some()));
        }
        config.tool_packs.unmatched(&PACKS);
    }
}

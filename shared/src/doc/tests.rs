#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn shown(problems: Vec<Problem>) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn json_mistakes_have_line_and_words() {
    for (text, want) in [
        ("", "f:1: the file is empty, expected JSON"),
        ("{\n  \"a\": 1,\n}", "f:3: not valid JSON: trailing comma (column 1)"),
        (
            "{\n  // x\n}",
            "f:2: not valid JSON: key must be a string (column 3); comments have no place in JSON, remove them",
        ),
        ("{'a': 1}", "f:1: not valid JSON: key must be a string (column 2); JSON text stands in double quotes"),
        ("{\"a\": 1 \"b\": 2}", "f:1: not valid JSON: expected `,` or `}` (column 9)"),
        (
            "{\"a\": \"\u{1b}[2J\"}",
            "f:1: not valid JSON: control character (\\u0000-\\u001F) found while parsing a string (column 8)",
        ),
        ("[1] 2", "f:1: not valid JSON: trailing characters (column 5)"),
        ("{\"a\": 0x1F}", "f:1: not valid JSON: expected `,` or `}` (column 8)"),
        ("{\"a\": 01}", "f:1: not valid JSON: invalid number (column 8)"),
        ("{\n", "f:1: not valid JSON: EOF while parsing an object (column 0)"),
        (
            "[\n18446744073709551616]",
            "f:2: the number '18446744073709551616' is too large to keep all its digits; write it as text, in quotes",
        ),
        ("{\n\"a\": 1,\n\"a\": 2}", "f:3: the key `a` is there twice, first on line 2; remove one"),
        ("{\"x\":\n[{\"a\": {\"b\": 1,\n\"b\": 1}}]}", "f:3: the key `b` is there twice, first on line 2; remove one"),
        (
            "{\"\\u001b[2J\": 1,\n\"\\u001b[2J\": 1}",
            "f:2: the key `\\x1b[2J` is there twice, first on line 1; remove one",
        ),
    ] {
        assert_eq!(shown(parse_json("f", text).expect_err(text)), [want], "{text:?}");
    }
}

#[test]
fn yaml_mistakes_have_line_and_words() {
    for (text, want) in [
        ("a: 1\nb: 2\na: 3", "f:3: the key `a` is there twice, first on line 1; remove one"),
        ("a: 1\n---\nb: 2", "f:2: a second document starts here, expected one document in a file"),
        ("a: &x 1\n", "f:1: anchors (&) are refused, write the value out; text that starts with & stands in quotes"),
        (
            "a: 1\nb: *.md\n",
            "f:2: aliases (*) are refused, write the value out; text that starts with * stands in quotes",
        ),
        ("a: !!binary x\n", "f:1: tags (!) are refused, remove it; text that starts with ! stands in quotes"),
        ("a:\n  b: .inf\n", "f:2: .inf is a number that JSON cannot hold; text stands in quotes"),
        (
            "a: {{ x }}\n",
            "f:1: a key is a list or a mapping, expected text; a value with {{ }} or a template stands in quotes",
        ),
        ("a: 1\nb: \u{1b}[2J\n", "f:2: the control character U+001B has no place in YAML, remove it"),
        ("a: 1\nb: x\0y\n", "f:2: the control character U+0000 has no place in YAML, remove it"),
        (
            "a: 99999999999999999999\n",
            "f:1: the number '99999999999999999999' is too large to keep all its digits; write it as text, in quotes",
        ),
    ] {
        assert_eq!(shown(parse_yaml("f", text).expect_err(text)), [want], "{text:?}");
    }
    for (text, line, part) in [
        ("a: 1\nb: [1, 2\n", 2, "not valid YAML"),
        ("a: 1\n b: 2\n", 2, "not valid YAML"),
        ("tools: [@mcp:chrome]\n", 1, "stands in quotes"),
        ("a: \"x\n", 1, "not valid YAML"),
    ] {
        let problems = parse_yaml("f", text).expect_err(text);
        assert_eq!((problems.len(), problems[0].line), (1, line), "{problems:?}");
        assert!(problems[0].message.contains(part), "{problems:?}");
    }
}

#[test]
fn a_key_that_is_there_twice_hides_no_other_mistake_and_a_hole_causes_none() {
    for (text, json, whole) in [
        ("a: 1\na: 2\nb: &x 1\n", false, true),
        ("{\"a\": 1,\n\"a\": 2}", true, true),
        ("a: *x\n", false, false),
        ("a: !!binary x\n", false, false),
        ("a: 99999999999999999999\n", false, false),
        ("[99999999999999999999]", true, false),
        ("a: [", false, false),
    ] {
        let problems = Problems::new("f");
        let node = if json { read_json(text, &problems) } else { read_yaml(text, &problems) };
        assert_eq!((node.is_some(), problems.is_empty()), (whole, false), "{text}");
    }
}

#[test]
fn yaml_words_follow_the_core_schema() {
    let text = "- ~\n- yes\n- on\n- true\n- 'true'\n- 12\n- 0x1f\n- 0o17\n- +7\n- 1.5e3\n- 1.2.3\n- 12h\n-\n- |\n  a\n  b\n- .5\n- !!str 7\n- 2024-01-01\n- 1e\n";
    let want = json!([
        null,
        "yes",
        "on",
        true,
        "true",
        12,
        31,
        15,
        7,
        1500.0,
        "1.2.3",
        "12h",
        null,
        "a\nb\n",
        0.5,
        "7",
        "2024-01-01",
        "1e"
    ]);
    assert_eq!(parse_yaml("f", text).unwrap().to_value(), want);
    assert!(parse_yaml("f", "").unwrap().is_null());
    assert!(parse_yaml("f", "# nothing\n").unwrap().is_null());
}

#[test]
fn keys_and_values_keep_their_own_lines() {
    let yaml = "# x\na:\n  b: 1\n  c:\n  - d\n  - e: 1\n    f:\n";
    let json = "{\n\"a\": {\n\"b\": 1,\n\"c\": [\n\"d\",\n{\"e\": 1,\n\"f\": null}]}}";
    for (node, lines) in [
        (parse_yaml("f", yaml).unwrap(), [2, 3, 4, 5, 6, 7, 7]),
        (parse_json("f", json).unwrap(), [2, 3, 4, 5, 6, 7, 7]),
    ] {
        let a = &node.as_map().unwrap()[0];
        let inner = a.value.as_map().unwrap();
        let items = inner[1].value.as_list().unwrap();
        let last = items[1].as_map().unwrap();
        let got = [a.line, inner[0].line, inner[1].line, items[0].line, last[0].line, last[1].line, last[1].value.line];
        assert_eq!(got, lines);
    }
}

#[test]
fn nesting_ends_at_32_levels_in_both_languages() {
    for depth in [32usize, 33, 120, 129, 600, 100_000] {
        let text = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        for parsed in [parse_json("f", &text), parse_yaml("f", &text)] {
            match parsed {
                Ok(_) => assert_eq!(depth, 32),
                Err(problems) => {
                    assert_eq!(shown(problems), ["f:1: nested too deeply, expected at most 32 levels"], "{depth}");
                }
            }
        }
    }
}

#[test]
fn a_reader_collects_every_problem_of_a_mapping() {
    let text = "name: 5\ntimeot: 1s\ntimeout: [a]\nretry: 10\nmode: interactiv\nflag: yes\nlist: [a, 2]\nmap: {a: 1, b: c}\nn: 70\nzzz: 1\n";
    let node = parse_yaml("f", text).unwrap();
    let problems = Problems::new("f");
    let mut fields = Fields::of(&node, "a task", &problems).unwrap();
    fields.require("id", "a name such as fetch");
    assert_eq!(fields.take_str("id"), None);
    assert_eq!(fields.take_str("name"), None);
    assert_eq!(fields.take_duration("timeout"), None);
    assert_eq!(fields.take_duration("retry"), Some(Duration::from_secs(10)));
    assert_eq!(fields.take_enum("mode", &[("interactive", 1), ("autonomous", 2)]), None);
    assert_eq!(fields.take_bool("flag"), None);
    assert_eq!(fields.take_strs("list", "a list of names"), Some(vec![("a", 7)]));
    assert_eq!(fields.take_str_map("map", "names and texts"), Some(vec![("b", "c", 8)]));
    assert_eq!(fields.take_u64("n", 1..=64), None);
    fields.finish();
    assert_eq!(
        shown(problems.into_list()),
        [
            "f:1: a task has no `id`, expected a name such as fetch",
            "f:1: `name` is the number 5, expected text (in quotes)",
            "f:2: unknown field `timeot` in a task, did you mean `timeout`?",
            "f:3: `timeout` is a list, expected a duration such as 10m",
            "f:5: `mode` is 'interactiv', did you mean `interactive`?",
            "f:6: `flag` is 'yes', expected true or false",
            "f:7: `list` holds the number 2, expected text",
            "f:8: `a` in `map` is the number 1, expected text",
            "f:9: `n` is the number 70, expected a whole number from 1 to 64",
            "f:10: unknown field `zzz` in a task, expected one of: id, name, timeout, retry, mode, flag, list, map, n",
        ]
    );
}

#[test]
fn durations_read_as_people_write_them() {
    for (text, want) in [
        ("10m", Ok(600_000)),
        ("1s", Ok(1_000)),
        ("500ms", Ok(500)),
        ("1h30m", Ok(5_400_000)),
        ("1.5s", Ok(1_500)),
        ("0s", Ok(0)),
        ("10", Err("'10' has no unit, expected a duration such as 10s")),
        ("", Err("'' is not a duration, expected one such as 10m, 1s or 500ms")),
        ("m", Err("'m' is not a duration, expected one such as 10m, 1s or 500ms")),
        ("-1s", Err("'-1s' is not a duration, expected one such as 10m, 1s or 500ms")),
        ("1 s", Err("'1 s' is not a duration, expected one such as 10m, 1s or 500ms")),
        ("1y", Err("'1y' is not a duration, expected one such as 10m, 1s or 500ms")),
        ("1.2.3s", Err("'1.2.3s' is not a duration, expected one such as 10m, 1s or 500ms")),
        ("400d", Err("'400d' is too long, expected at most 366d")),
        ("300d300d", Err("'300d300d' is too long, expected at most 366d")),
    ] {
        let got = parse_duration(text);
        match want {
            Ok(ms) => assert_eq!(got, Ok(Duration::from_millis(ms)), "{text}"),
            Err(message) => assert_eq!(got, Err(message.to_owned()), "{text}"),
        }
    }
}

#[test]
fn a_flood_of_problems_is_cut_and_counted() {
    let problems = Problems::new("f");
    for line in 1..=300 {
        problems.add(line, "x");
    }
    let list = problems.into_list();
    assert_eq!(list.len(), MAX_PROBLEMS + 1);
    assert_eq!(list.last().unwrap().message, "and 100 more problems");
}

/// Text that looks like a file often enough to reach the deep corners.
fn nearly_a_file() -> impl Strategy<Value = String> {
    let bits = prop::sample::select(vec![
        "a", "b: ", ": ", "- ", "\n", "\n  ", "\n    ", "{", "}", "[", "]", ",", "\"", "'", "|", ">", "&x ", "*x",
        "!t ", "#", "?", "---", "...", "%", "@", "0x", "1", ".5", "e9", "null", "true", "\t", "\r", "\\u00", "{{ x }}",
        "é", "\u{2028}", "\u{0}", "\u{feff}", "<<",
    ]);
    prop_oneof![".{0,80}".prop_map(|s| s), prop::collection::vec(bits, 0..60).prop_map(|bits| bits.concat())]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.max(2000), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn readers_never_panic_and_lines_lie_within_the_file(text in nearly_a_file()) {
        for parsed in [parse_json("f", &text), parse_yaml("f", &text)] {
            for problem in parsed.err().unwrap_or_default() {
                prop_assert!(problem.line >= 1 && problem.line <= last_line(&text), "{problem}");
                prop_assert!(problem.message.chars().all(crate::show::is_visible), "{problem:?}");
            }
        }
    }

    #[test]
    fn strict_json_is_read_as_serde_reads_it(text in nearly_a_file()) {
        if let Ok(node) = parse_json("f", &text) {
            let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
            prop_assert_eq!(node.to_value(), serde_json::from_str::<serde_json::Value>(text).unwrap());
        }
    }
}

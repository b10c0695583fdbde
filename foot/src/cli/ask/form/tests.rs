#![allow(clippy::unwrap_used)]
use super::*;

fn one(property: &Value, required: bool) -> Field {
    let required = if required { json!(["f"]) } else { json!([]) };
    let schema = json!({"type": "object", "properties": {"f": property}, "required": required});
    fields(&schema).unwrap().remove(0)
}

#[test]
fn a_line_is_a_value_that_fits_or_it_is_said_why_not() {
    let colour = json!({"type": "string", "enum": ["red", "green"], "enumNames": ["Red", "Grass"]});
    let titled = json!({"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "g"}]});
    let numbers = json!({"enum": [30, 1, 2]});
    let several = json!({"type": "array", "items": {"type": "string", "enum": ["a", "b"]}, "maxItems": 2});
    let (text, whole) = (json!({"type": "string", "minLength": 2}), json!({"type": "integer", "minimum": 1}));
    let (number, yes_no) = (json!({"type": "number"}), json!({"type": "boolean"}));
    for (property, line, want) in [
        (&text, " Ada \r", Ok(json!("Ada"))),
        (&text, "A", Err("\"A\" is shorter than 2 characters")),
        (&whole, "3", Ok(json!(3))),
        (&whole, "18446744073709551615", Ok(json!(18_446_744_073_709_551_615_u64))),
        (&whole, "0", Err("0 is less than the minimum of 1")),
        (&whole, "3.5", Err("that is not a whole number")),
        (&whole, "three", Err("that is not a whole number")),
        (&number, "3", Ok(json!(3))),
        (&number, "-2.5", Ok(json!(-2.5))),
        (&number, "NaN", Err("that is not a number")),
        (&number, "1,5", Err("that is not a number")),
        (&yes_no, "yes", Ok(json!(true))),
        (&yes_no, "False", Ok(json!(false))),
        (&yes_no, "1", Err("that is neither yes nor no")),
        (&colour, "2", Ok(json!("green"))),
        (&colour, "red", Ok(json!("red"))),
        (&colour, "Grass", Ok(json!("green"))),
        (&colour, "3", Err("that is not one of these")),
        (&colour, "0", Err("that is not one of these")),
        (&titled, "Red", Ok(json!("r"))),
        (&titled, "g", Ok(json!("g"))),
        (&numbers, "1", Ok(json!(30))),
        (&numbers, "30", Ok(json!(30))),
        (&several, "1, b", Ok(json!(["a", "b"]))),
        (&several, "1, c", Err("that is not one of these")),
    ] {
        let got = one(property, true).value(line);
        assert_eq!(got, want.map(Some).map_err(str::to_owned), "{property} {line:?}");
    }
}

#[test]
fn an_empty_line_is_the_default_or_nothing_unless_the_field_is_required() {
    let (bare, with) = (json!({"type": "string"}), json!({"type": "string", "default": "x"}));
    for (property, required, want, prompt) in [
        (&bare, false, Ok(None), "  f (text, empty: nothing) \u{203a} "),
        (&bare, true, Err("it is required".to_owned()), "  f (text, required) \u{203a} "),
        (&with, true, Ok(None), "  f (text, empty: x) \u{203a} "),
    ] {
        let field = one(property, required);
        assert_eq!((field.value(" \r"), field.prompt().as_str()), (want, prompt), "{property}");
    }
}

#[test]
fn fields_come_in_their_order_and_what_no_line_can_hold_is_not_asked_for() {
    let object = json!({"type": "object"});
    let schema = json!({"properties": {"z": {"type": "string"}, "o": object, "a": {"type": "boolean"}}});
    let keys: Vec<String> = fields(&schema).unwrap().into_iter().map(|field| field.key).collect();
    assert_eq!(keys, ["z", "a"]);
    let needed = json!({"properties": {"o": object}, "required": ["o"]});
    assert_eq!(fields(&needed).unwrap_err(), "its field 'o' is more than a line");
    let many: Map<String, Value> = (0..33).map(|i| (format!("f{i}"), json!({"type": "string"}))).collect();
    assert_eq!(fields(&json!({ "properties": many })).unwrap_err(), "it has 33 fields, at most 32 are asked for");
    for empty in [json!({}), json!({"properties": 3}), json!(null)] {
        assert_eq!(fields(&empty), Ok(Vec::new()), "{empty}");
    }
}

#[test]
fn nothing_of_the_servers_words_steers_the_terminal_or_looks_like_ours() {
    let field = one(&json!({"type": "string", "description": "a\u{1b}[2J\n[1] x", "enum": ["q\n", "r"]}), false);
    assert_eq!(field.text(), "  a\\x1b[2J\\n[1] x\n    [1] q\\n\n    [2] r\n");
    let text =
        opening("The server of pack 'jira' asks", "one\u{202e}\ntwo\r\n[1] answer", None, std::slice::from_ref(&field));
    assert_eq!(text, "The server of pack 'jira' asks\n  one\\u{202e}\n  two\n  [1] answer\n  to fill in: f\n");
    let long = opening("The server of pack 'jira' asks", &"x\n".repeat(50), None, &[]);
    assert!(long.ends_with("  x\n  ... and 10 more line(s)\n  (nothing to fill in)\n"), "{long}");
}

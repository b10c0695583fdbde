#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;

fn doc(text: &str) -> Result<Document, DocumentError> {
    Document::parse(text.as_bytes(), None)
}

#[test]
fn json_and_yaml_say_their_version() {
    for (text, want) in [
        ("{\"swagger\": \"2.0\"}", Version::V2),
        ("swagger: 2.0", Version::V2),
        ("\u{feff}openapi: 3.0.3", Version::V30),
        ("openapi: 3.1", Version::V31),
        ("{openapi: 3.2.0}", Version::V32),
        ("{\"openapi\": \"3.9.1\"}", Version::V32),
    ] {
        assert_eq!(doc(text).unwrap().version(), want, "{text}");
    }
}

#[test]
fn what_is_no_document_is_refused_with_the_reason() {
    let deep = |n: usize| format!("{{\"openapi\": \"3.0.0\", \"x\": {}1{}}}", "[".repeat(n), "]".repeat(n));
    assert!(doc(&deep(100)).is_ok());
    for (text, want) in [
        (String::new(), "neither `openapi` nor `swagger`"),
        ("a: b".to_owned(), "neither `openapi` nor `swagger`"),
        ("openapi: 1.2".to_owned(), "its version is '1.2'"),
        ("{\"openapi\": ".to_owned(), "neither JSON nor YAML: EOF"),
        ("a: [".to_owned(), "neither JSON nor YAML"),
        (deep(200), "neither JSON nor YAML: recursion limit"),
        (format!("openapi: {}", "[".repeat(300)), "neither JSON nor YAML"),
    ] {
        let error = doc(&text).unwrap_err().to_string();
        assert!(error.contains(want), "{error}");
    }
    assert_eq!(Document::parse(&[0xff], None).unwrap_err(), DocumentError::NotText);
}

#[test]
fn anchors_aliases_and_merge_keys_are_answered() {
    let value =
        parse_value(b"a: &x {k: 1, l: 2}\nb: *x\nc:\n  <<: *x\n  k: 3\nd: {<<: [*x, {m: 4}]}\n200: on").unwrap();
    let want = json!({"a": {"k": 1, "l": 2}, "b": {"k": 1, "l": 2}, "c": {"k": 3, "l": 2},
        "d": {"k": 1, "l": 2, "m": 4}, "200": "on"});
    assert_eq!(value, want);
}

#[test]
fn aliases_that_multiply_are_refused() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for n in 1..12 {
        let before = format!("*a{}, ", n - 1).repeat(10);
        text.push_str(&format!("a{n}: &a{n} [{}]\n", before.trim_end_matches(", ")));
    }
    assert_eq!(parse_value(text.as_bytes()).unwrap_err(), DocumentError::TooMany);
    let within = parse_value(b"a: &a [*a]").unwrap_err();
    assert!(matches!(within, DocumentError::Syntax(_)), "{within}");
}

#[test]
fn references_are_followed_to_their_end_or_named() {
    let doc = doc("openapi: 3.0.0\na/b: {$ref: '#/c'}\nc: {k: 1}\nloop: {$ref: '#/loop'}\n'x y': 1").unwrap();
    assert_eq!(doc.follow(&json!({"$ref": "#/a~1b"})).unwrap(), &json!({"k": 1}));
    assert_eq!(doc.resolve("#/x%20y").unwrap(), &json!(1));
    for (reference, want) in [
        ("#/nope", "the reference #/nope leads nowhere"),
        ("http://x/y", "unresolved reference http://x/y"),
        ("#/loop", "the reference #/loop leads back to itself"),
    ] {
        assert_eq!(doc.follow(&json!({"$ref": reference})).unwrap_err().to_string(), want);
    }
}

#[test]
fn files_beside_the_document_are_put_in() {
    let root = json!({"openapi": "3.0.0", "a": {"$ref": "./x/other.yaml#/k"}, "b": {"$ref": "../up.yaml#/k"}, "c": {"$ref": "https://x/y#/k"}});
    assert_eq!(missing_files(&root, &[]), ["x/other.yaml"]);
    let other = json!({"k": {"$ref": "#/l"}, "l": {"$ref": "../third.yaml"}});
    let files = vec![("x/other.yaml".to_owned(), other)];
    assert_eq!(missing_files(&root, &files), ["third.yaml"]);
    let files = [files, vec![("third.yaml".to_owned(), json!({"end": true}))]].concat();
    let doc = Document::with_files(root, files, None).unwrap();
    assert_eq!(doc.follow(&doc.root()["a"]).unwrap(), &json!({"end": true}));
    assert!(doc.follow(&doc.root()["b"]).is_err() && doc.follow(&doc.root()["c"]).is_err());
}

#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn coerced(schema: &Value, value: &Value) -> Value {
    let mut value = value.clone();
    if let Some(coercion) = Coercion::of(schema) {
        coercion.apply(&mut value);
    }
    value
}

#[test]
fn a_text_becomes_what_the_schema_can_only_mean() {
    let of = |schema: Value| json!({"type": "object", "properties": {"a": schema}});
    let optional = json!({"anyOf": [{"type": "integer"}, {"type": "null"}]});
    let deep = json!({"type": "array", "items": {"type": "object", "properties": {"n": {"type": "number"}}}});
    let tuple = json!({"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "integer"}});
    for (schema, from, to) in [
        (json!({"type": "boolean"}), json!("true"), json!(true)),
        (json!({"type": "boolean"}), json!("false"), json!(false)),
        (json!({"type": "boolean"}), json!("yes"), json!("yes")),
        (json!({"type": "boolean"}), json!("1"), json!("1")),
        (json!({"type": "integer"}), json!("3"), json!(3)),
        (json!({"type": "integer"}), json!("-12"), json!(-12)),
        (json!({"type": "integer"}), json!("3.5"), json!("3.5")),
        (json!({"type": "integer"}), json!("007"), json!("007")),
        (json!({"type": "integer"}), json!(" 3"), json!(" 3")),
        (json!({"type": "integer"}), json!("18446744073709551615"), json!(u64::MAX)),
        (json!({"type": "integer"}), json!("18446744073709551616"), json!("18446744073709551616")),
        (json!({"type": "number"}), json!("3.5"), json!(3.5)),
        (json!({"type": "number"}), json!("0.1000000000000000055"), json!("0.1000000000000000055")),
        (json!({"type": "number"}), json!("NaN"), json!("NaN")),
        (json!({"type": "number"}), json!(""), json!("")),
        (json!({"type": "string"}), json!("3"), json!("3")),
        (json!({"type": ["integer", "null"]}), json!("3"), json!(3)),
        (json!({"type": ["integer", "boolean"]}), json!("true"), json!(true)),
        (json!({"type": ["integer", "string"]}), json!("3"), json!("3")),
        (json!({"anyOf": [{"type": "integer"}, {"type": "string"}]}), json!("3"), json!("3")),
        (json!({"oneOf": [{"type": "integer"}, {"format": "date"}]}), json!("3"), json!("3")),
        (optional.clone(), json!("3"), json!(3)),
        (optional, json!("null"), json!("null")),
        (json!({"allOf": [{"type": "integer"}]}), json!("3"), json!(3)),
        (json!({}), json!("3"), json!("3")),
        (json!(true), json!("3"), json!("3")),
        (json!({"enum": ["1", 1]}), json!("1"), json!("1")),
        (json!({"type": "array", "items": {"type": "integer"}}), json!(["1", 2, "x"]), json!([1, 2, "x"])),
        (deep, json!([{"n": "1.5", "m": "2"}]), json!([{"n": 1.5, "m": "2"}])),
        (tuple, json!(["1", "2"]), json!(["1", "2"])),
        (json!({"additionalProperties": {"type": "boolean"}}), json!({"x": "true"}), json!({"x": true})),
        (json!({"type": "integer"}), json!(["3"]), json!(["3"])),
        (json!({"type": "integer"}), json!(3.5), json!(3.5)),
    ] {
        assert_eq!(coerced(&of(schema.clone()), &json!({"a": from})), json!({"a": to}), "{schema} {from}");
    }
}

#[test]
fn references_within_the_schema_are_followed_also_in_circles() {
    let schema = json!({
        "$defs": {"tree": {"type": "object", "properties": {"n": {"type": "integer"}, "next": {"$ref": "#/$defs/tree"}}}},
        "type": "object",
        "properties": {"a": {"anyOf": [{"$ref": "#/$defs/tree"}, {"type": "null"}]}, "b": {"$ref": "http://elsewhere"}}
    });
    let value = json!({"a": {"n": "1", "next": {"n": "2"}}, "b": "3"});
    assert_eq!(coerced(&schema, &value), json!({"a": {"n": 1, "next": {"n": 2}}, "b": "3"}));
    let two = json!({"anyOf": [{"properties": {"n": {"type": "integer"}}}, {"properties": {"n": {"type": "string"}}}]});
    assert_eq!(coerced(&two, &json!({"n": "1"})), json!({"n": "1"}), "either branch may be meant");
}

#[test]
fn a_schema_of_texts_costs_nothing_and_a_wild_one_ends() {
    assert_eq!(Coercion::of(&json!({"type": "object", "properties": {"a": {"type": "string"}}})), None);
    let wild = json!({"type": "object", "additionalProperties": {"$ref": "#"}, "properties": {"a": {"$ref": "#"}, "b": {"$ref": "#"}}});
    assert_eq!(Coercion::of(&wild), None);
}

fn schemas() -> impl Strategy<Value = Value> {
    let word = prop::sample::select(vec!["boolean", "integer", "number", "string", "null", "array", "object"]);
    let leaf = prop_oneof![
        word.clone().prop_map(|word| json!({"type": word})),
        prop::collection::vec(word, 1..4).prop_map(|words| {
            let words: std::collections::BTreeSet<_> = words.into_iter().collect();
            json!({"type": words})
        }),
        Just(json!({})),
        Just(json!(true)),
        Just(json!({"enum": ["1", 2, "true"]})),
        Just(json!({"$ref": "#/$defs/d"})),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        let two = (inner.clone(), inner.clone());
        prop_oneof![
            two.clone().prop_map(|(a, b)| json!({"type": "object", "properties": {"a": a, "b": b}})),
            two.clone().prop_map(|(a, b)| json!({"properties": {"a": a}, "additionalProperties": b})),
            two.clone().prop_map(|(a, b)| json!({"properties": {"a": a}, "patternProperties": {"b": b}})),
            inner.clone().prop_map(|a| json!({"type": "array", "items": a})),
            two.clone().prop_map(|(a, b)| json!({"anyOf": [a, b]})),
            two.clone().prop_map(|(a, b)| json!({"oneOf": [a, b]})),
            two.clone().prop_map(|(a, b)| json!({"allOf": [a, b]})),
            two.prop_map(|(a, b)| json!({"prefixItems": [a], "items": b})),
        ]
    })
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop::sample::select(vec![
        json!("1"),
        json!("true"),
        json!("2.5"),
        json!("x"),
        json!(1),
        json!(2),
        json!(true),
        json!(null),
        json!(2.5),
    ]);
    leaf.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(prop::sample::select(vec!["a", "b", "c"]).prop_map(str::to_owned), inner, 0..3)
                .prop_map(|fields| Value::from(fields.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_valid_never_changes(schema in schemas(), of_d in schemas(), value in values()) {
        let mut schema = schema;
        if let Value::Object(map) = &mut schema {
            // Without circles, which a validator would follow for ever.
            let of_d = of_d.to_string().replace(r##"{"$ref":"#/$defs/d"}"##, "{}");
            map.insert("$defs".to_owned(), json!({"d": serde_json::from_str::<Value>(&of_d).unwrap()}));
        }
        let validator = jsonschema::validator_for(&schema).unwrap();
        let better = coerced(&schema, &value);
        if validator.is_valid(&value) {
            prop_assert_eq!(&better, &value);
        }
        prop_assert_eq!(coerced(&schema, &better), better);
    }
}

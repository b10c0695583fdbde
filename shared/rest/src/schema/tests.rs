#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};
use vance_shared::launch::Origin;
use vance_shared::launch::rest::{Refs, RestPlan, Spec};
use vance_shared::names::PackName;

use crate::api::Api;
use crate::document::Document;

fn schema_of(version: &str, schemas: Value, body: Value, change: impl FnOnce(&mut RestPlan)) -> Value {
    let document = json!({"openapi": version, "servers": [{"url": "https://a.example"}], "components": {"schemas": schemas},
        "paths": {"/x": {"post": {"requestBody": {"content": {"application/json": {"schema": body}}}}}}});
    let mut plan = RestPlan::new(PackName::parse("p").unwrap(), Origin::Global, Spec::Inline(Value::Null));
    change(&mut plan);
    let api = Api::load(Document::from_value(document, None).unwrap(), &plan);
    let schema = api.input_schema(&api.operations()[0]).value();
    assert!(jsonschema::draft202012::meta::is_valid(&schema), "{schema}");
    schema
}

fn body(version: &str, body: Value) -> Value {
    schema_of(version, json!({"R": {"type": "integer", "readOnly": true}, "S": {"type": "string"}}), body, |_| {})
        ["properties"]["body"]
        .clone()
}

#[test]
fn what_other_dialects_say_is_said_in_json_schema() {
    for (version, before, after) in [
        (
            "3.0.0",
            json!({"type": "object", "nullable": true, "allOf": [{"type": "object"}]}),
            json!({"anyOf": [{"type": "object", "allOf": [{"type": "object"}]}, {"type": "null"}]}),
        ),
        ("3.0.0", json!({"enum": ["a"], "nullable": true, "title": "T"}), json!({"enum": ["a", null], "title": "T"})),
        (
            "3.0.0",
            json!({"maximum": 5, "exclusiveMaximum": true, "minimum": 1, "exclusiveMinimum": false}),
            json!({"exclusiveMaximum": 5, "minimum": 1}),
        ),
        (
            "3.1.0",
            json!({"exclusiveMaximum": 5, "type": ["string", "string", "null"]}),
            json!({"exclusiveMaximum": 5, "type": ["string", "null"]}),
        ),
        (
            "3.0.0",
            json!({"$ref": "#/components/schemas/S", "minLength": 3, "description": "d"}),
            json!({"$ref": "#/$defs/S", "description": "d"}),
        ),
        (
            "3.1.0",
            json!({"$ref": "#/components/schemas/S", "minLength": 3, "description": "d"}),
            json!({"$ref": "#/$defs/S", "minLength": 3, "description": "d"}),
        ),
        (
            "3.0.0",
            json!({"required": true, "minLength": "3", "enum": "x", "type": "any", "xml": {}, "x-a": 1, "maxItems": 5.0}),
            json!({"maxItems": 5}),
        ),
        ("3.0.0", json!({"items": [{"type": "string"}]}), json!({"prefixItems": [{"type": "string"}]})),
        (
            "3.0.0",
            json!({"properties": {"r": {"$ref": "#/components/schemas/R"}, "s": true}, "required": ["r", "s"]}),
            json!({"properties": {"s": true}, "required": ["s"]}),
        ),
        (
            "3.0.0",
            json!({"allOf": [{"properties": {"r": {"readOnly": true}, "s": {}}}, {"required": ["r", "s"]}]}),
            json!({"allOf": [{"properties": {"s": {}}}, {"required": ["s"]}]}),
        ),
        ("3.1.0", json!(true), json!(true)),
        ("3.1.0", json!(7), json!({})),
        (
            "3.1.0",
            json!({"$id": "https://x", "$dynamicRef": "#meta", "$defs": {"a": {}}, "if": {"const": 1}, "then": false}),
            json!({"if": {"const": 1}, "then": false}),
        ),
    ] {
        assert_eq!(body(version, before.clone()), after, "{before}");
    }
}

#[test]
fn a_circle_of_references_neither_hangs_nor_fails() {
    let circle = json!({"A": {"$ref": "#/components/schemas/B"}, "B": {"allOf": [{"$ref": "#/components/schemas/A"}]},
        "T": {"type": "object", "properties": {"t": {"$ref": "#/components/schemas/T"}}}});
    for (refs, name) in [(Refs::Defs, "A"), (Refs::Inline, "A"), (Refs::Defs, "T"), (Refs::Inline, "T")] {
        let body = json!({"$ref": format!("#/components/schemas/{name}")});
        let schema = schema_of("3.0.0", circle.clone(), body, |plan| plan.refs = refs);
        assert_eq!(schema.to_string().contains("$ref"), refs == Refs::Defs, "{schema}");
        let checker = vance_shared::schema::Checker::of(&schema).unwrap();
        assert!(checker.check(&json!({"body": {"t": {"t": {}}}})).is_ok());
    }
}

#[test]
fn a_schema_stays_within_its_budget_and_loses_what_is_far_first() {
    let mut schemas = serde_json::Map::new();
    for n in 0..200 {
        let next = json!({"$ref": format!("#/components/schemas/S{}", n + 1)});
        let text = json!({"type": "string", "description": "d".repeat(100), "example": "e".repeat(50)});
        schemas.insert(format!("S{n}"), json!({"type": "object", "properties": {"next": next, "text": text}}));
    }
    for (most, examples, descriptions) in [(1 << 20, true, true), (48 << 10, false, true), (8 << 10, false, false)] {
        let body = json!({"$ref": "#/components/schemas/S0"});
        let schema = schema_of("3.0.0", schemas.clone().into(), body, |plan| plan.max_schema_bytes = most);
        let text = schema.to_string();
        assert!(text.len() <= most, "{} > {most}", text.len());
        assert_eq!((text.contains("examples"), text.contains("ddd")), (examples, descriptions), "{most}");
        assert_eq!(schema["$defs"]["S1"]["properties"]["text"]["type"], "string", "what is near stays");
    }
    let wide = (0..500).map(|n| (format!("property{n}"), json!({"type": "string", "enum": ["a", "b"]})));
    let wide = json!({"type": "object", "properties": wide.collect::<serde_json::Map<_, _>>()});
    let schema = schema_of("3.0.0", json!({}), wide, |plan| plan.max_schema_bytes = 2048);
    assert!(schema.to_string().len() <= 2048);
    assert_eq!(schema["properties"]["body"], json!({}));
}

#[test]
fn a_discriminator_at_any_depth_names_its_branches() {
    let schemas = json!({"A": {"type": "object"}, "B": {"type": "object"}});
    let choice = json!({"oneOf": [{"$ref": "#/components/schemas/A"}, {"$ref": "#/components/schemas/B"}, {"type": "string"}],
        "discriminator": {"propertyName": "k", "mapping": {"a": "A", "aa": "#/components/schemas/A"}}});
    let body = json!({"type": "array", "items": {"properties": {"x": choice}}});
    let schema = schema_of("3.0.0", schemas, body, |_| {});
    let branches = &schema["properties"]["body"]["items"]["properties"]["x"]["oneOf"];
    let named = |value: Value| json!({"properties": {"k": value}, "required": ["k"]});
    assert_eq!(branches[0]["allOf"][1], named(json!({"enum": ["a", "aa"]})));
    assert_eq!(branches[1]["allOf"][1], named(json!({"const": "B"})));
    assert_eq!(branches[2], json!({"type": "string"}));
}

#[test]
fn a_pattern_that_is_none_lets_the_rest_hold() {
    let document = json!({"openapi": "3.0.0", "servers": [{"url": "https://a.example"}], "paths": {"/x": {"get": {"parameters": [
        {"name": "a", "in": "query", "required": true, "schema": {"type": "string", "pattern": "(["}}]}}}});
    let plan = RestPlan::new(PackName::parse("p").unwrap(), Origin::Global, Spec::Inline(Value::Null));
    let api = Api::load(Document::from_value(document, None).unwrap(), &plan);
    let checker = api.checker(&api.operations()[0]).unwrap();
    assert!(checker.check(&json!({"a": "x"})).is_ok() && checker.check(&json!({})).is_err());
}

#[test]
fn a_document_cannot_make_work_without_end() {
    // Each schema is all of twenty others: as many ways as there are grains of sand.
    let mut schemas = serde_json::Map::new();
    for n in 0..30 {
        let all: Vec<Value> =
            (0..20).map(|_| json!({"$ref": format!("#/components/schemas/S{}", (n + 1) % 30)})).collect();
        schemas.insert(format!("S{n}"), json!({"allOf": all, "required": ["a"]}));
    }
    let inline =
        (0..9).fold(json!({"type": "string"}), |inner, _| json!({"anyOf": [inner.clone(), inner.clone(), inner]}));
    schemas.insert("Large".to_owned(), json!({"type": "string", "enum": (0..400).map(|n| format!("{n}{}", "x".repeat(90))).collect::<Vec<_>>(), "default": "d".repeat(100_000), "example": ["e".repeat(100_000)]}));
    let body = json!({"properties": {"s": {"$ref": "#/components/schemas/S0"}, "i": inline, "l": {"$ref": "#/components/schemas/Large"}}});
    let schema = schema_of("3.0.0", schemas.into(), body, |_| {});
    assert!(schema.to_string().len() <= 32 * 1024);
}

#[test]
fn a_chain_of_references_ends_open_and_the_arguments_stay_an_object() {
    let chain: Value = (0..150)
        .map(|n| {
            let next = json!({"$ref": format!("#/components/schemas/S{}", n + 1)});
            (format!("S{n}"), json!({"type": "object", "properties": {"next": next}}))
        })
        .chain([("S150".to_owned(), json!({"type": "string"}))])
        .collect::<serde_json::Map<_, _>>()
        .into();
    for refs in [Refs::Inline, Refs::Defs] {
        let schema =
            schema_of("3.0.0", chain.clone(), json!({"$ref": "#/components/schemas/S0"}), |plan| plan.refs = refs);
        assert_eq!(schema["type"], "object", "{refs:?} {schema}");
        let body = &schema["properties"]["body"];
        match refs {
            Refs::Inline => assert_eq!(body["properties"]["next"]["properties"]["next"]["type"], "object"),
            Refs::Defs => assert_eq!(body["$ref"], "#/$defs/S0"),
        }
    }
}

#[test]
fn a_large_definition_keeps_its_first_fields_when_its_depths_go() {
    let inner: Value = (0..20)
        .map(|n| (format!("q{n}"), json!({"type": "string", "enum": ["aaaaaaaaaaaaa", "bbbbbbbbbbbbb"]})))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let outer: Value = (0..60)
        .map(|n| (format!("field{n}"), json!({"type": "object", "properties": inner})))
        .collect::<serde_json::Map<_, _>>()
        .into();
    let schemas =
        json!({"A": {"type": "object", "properties": outer, "required": ["field1"], "additionalProperties": false}});
    for refs in [Refs::Defs, Refs::Inline] {
        let schema =
            schema_of("3.0.0", schemas.clone(), json!({"$ref": "#/components/schemas/A"}), |plan| plan.refs = refs);
        assert!(schema.to_string().len() <= 32 * 1024, "{}", schema.to_string().len());
        let a = if refs == Refs::Defs { &schema["$defs"]["A"] } else { &schema["properties"]["body"] };
        assert_eq!(a["properties"].as_object().map(serde_json::Map::len), Some(60), "{refs:?} {schema}");
        assert_eq!((&a["required"], &a["additionalProperties"]), (&json!(["field1"]), &json!(false)));
    }
}

//! Documents and arguments of any shape: nothing panics, nothing leaves its origin, nothing is lost without a reason.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use serde_json::{Map, Value, json};
use url::Url;
use vance_rest::api::Api;
use vance_rest::document::{Document, parse_value};
use vance_rest::exposure;
use vance_rest::request::{self, Context, Files};
use vance_rest::settings::Settings;
use vance_shared::launch::Origin;
use vance_shared::launch::rest::{Refs, RestPlan, Spec};
use vance_shared::names::PackName;

fn plan() -> RestPlan {
    let mut plan = RestPlan::new(PackName::parse("p").unwrap(), Origin::Global, Spec::Inline(Value::Null));
    plan.allow_insecure_http = true;
    plan
}

/// Any JSON.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        text().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((text(), inner), 0..5).prop_map(|pairs| pairs.into_iter().collect::<Value>()),
        ]
    })
}

/// Texts that somebody would try.
fn text() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(vec![
            "", ".", "..", "../..", "%2e%2e", "%252e%252e/", "..\\", "//evil.test", "https://evil.test", "@evil.test", "a/b", "a?b=c#d",
            "a\r\nX: y", "\0", "日本", "%", ";x=1", "..;/", "a&b=c", "+ ", "{id}", "#/components/schemas/A", "\u{202e}x", "[x]", "|", "\"",
        ])
        .prop_map(str::to_owned),
        2 => ".{0,12}",
        2 => "[a-z]{1,8}",
    ]
}

/// A schema, as documents have them: mostly right, sometimes not.
fn schema() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        6 => prop::sample::select(vec!["string", "integer", "number", "boolean", "object", "array", "file", "null", "any"])
            .prop_map(|kind| json!({"type": kind})),
        2 => prop::sample::select(vec!["A", "B", "C", "nope"]).prop_map(|name| json!({"$ref": format!("#/components/schemas/{name}")})),
        1 => Just(json!({"$ref": "other.yaml#/x", "nullable": true})),
        1 => any_json(),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        prop_oneof![
            prop::collection::vec((text(), inner.clone()), 0..4).prop_map(|pairs| {
                let required: Vec<Value> = pairs.iter().map(|(name, _)| name.as_str().into()).collect();
                json!({"type": "object", "properties": pairs.into_iter().collect::<Map<_, _>>(), "required": required, "nullable": true})
            }),
            (inner.clone(), any_json())
                .prop_map(|(items, example)| json!({"type": "array", "items": items, "example": example, "x-nullable": true})),
            (prop::sample::select(vec!["allOf", "oneOf", "anyOf"]), prop::collection::vec(inner.clone(), 0..3))
                .prop_map(|(keyword, list)| json!({keyword: list, "discriminator": {"propertyName": "kind"}, "nullable": true})),
            (inner.clone(), any_json()).prop_map(|(schema, odd)| {
                json!({"additionalProperties": schema, "required": odd, "enum": odd, "minLength": odd, "pattern": odd, "readOnly": odd, "exclusiveMinimum": true, "minimum": 1})
            }),
        ]
    })
}

fn parameter() -> impl Strategy<Value = Value> {
    let places = vec!["path", "query", "header", "cookie", "querystring", "body", "formData", "x"];
    let styles = vec!["form", "simple", "label", "matrix", "deepObject", "pipeDelimited", "spaceDelimited"];
    let formats = vec!["csv", "multi", "tsv", "pipes"];
    (
        (prop_oneof![text(), Just("id".to_owned()), Just("Authorization".to_owned())], prop::sample::select(places)),
        (prop::option::of(prop::sample::select(styles)), any::<Option<bool>>(), any::<Option<bool>>()),
        (schema(), prop::sample::select(formats), any::<bool>()),
    )
        .prop_map(|((name, place), (style, explode, required), (schema, format, content))| {
            let mut parameter = json!({"name": name, "in": place, "type": "array", "collectionFormat": format});
            if let Some(style) = style {
                parameter["style"] = style.into();
            }
            if let Some(explode) = explode {
                parameter["explode"] = explode.into();
            }
            if let Some(required) = required {
                parameter["required"] = required.into();
            }
            match content {
                true => parameter["content"] = json!({"application/json": {"schema": schema}}),
                false => parameter["schema"] = schema,
            }
            parameter
        })
}

fn operation() -> impl Strategy<Value = Value> {
    let types = vec![
        "application/json",
        "multipart/form-data",
        "application/x-www-form-urlencoded",
        "text/plain",
        "application/xml",
        "image/png",
        "*/*",
        "a\r\nb",
    ];
    (
        prop::option::of(text()),
        prop::collection::vec(parameter(), 0..4),
        prop::option::of((prop::sample::select(types), schema(), any::<bool>())),
        any_json(),
    )
        .prop_map(|(id, parameters, body, odd)| {
            let mut operation = json!({"parameters": parameters, "tags": odd, "deprecated": odd, "responses": odd, "consumes": ["multipart/form-data"]});
            if let Some(id) = id {
                operation["operationId"] = id.into();
            }
            if let Some((media_type, schema, required)) = body {
                operation["requestBody"] = json!({"required": required, "content": {media_type: {"schema": schema, "encoding": {"a": {"style": "deepObject"}}}}});
            }
            operation
        })
}

/// A document, and how many operations it has.
fn document() -> impl Strategy<Value = Value> {
    let versions = vec![("openapi", "3.0.3"), ("openapi", "3.1.0"), ("openapi", "3.2.0"), ("swagger", "2.0")];
    let paths = prop_oneof![
        Just("/a/{id}".to_owned()),
        Just("/{id}{x}/b".to_owned()),
        Just("/..{id}".to_owned()),
        Just("//{id}".to_owned()),
        Just("/a?x={id}#y".to_owned()),
        Just("{id}".to_owned()),
        text(),
    ];
    let methods = prop::sample::select(vec!["get", "post", "put", "delete", "query", "head"]);
    (
        prop::sample::select(versions),
        prop::collection::vec((paths, methods, operation()), 1..4),
        (schema(), schema(), schema()),
        prop::sample::select(vec!["https://api.example.com/v1", "/base/", "http://127.0.0.1:8080", "https://{a}/", "\\\\x"]),
    )
        .prop_map(|((key, version), operations, (a, b, c), server)| {
            let mut paths = Map::new();
            for (path, method, operation) in operations {
                let item = paths.entry(path).or_insert_with(|| json!({}));
                item[method] = operation;
            }
            let schemas = json!({"A": a, "B": b, "C": c});
            json!({key: version, "servers": [{"url": server}], "host": "api.example.com", "basePath": "/v1", "paths": paths,
                "components": {"schemas": schemas}, "definitions": schemas})
        })
}

/// What holds for every document.
fn holds(value: Value, arguments: &[(String, Value)], refs: Refs) {
    let count = value["paths"].as_object().map_or(0, |paths| {
        let newer = value["openapi"] == "3.2.0";
        let items = paths.iter().filter(|(path, _)| !path.starts_with("x-")).map(|(_, item)| item);
        items
            .map(|item| item.as_object().map_or(0, |item| item.keys().filter(|m| newer || *m != "query").count()))
            .sum()
    });
    let Ok(document) = Document::from_value(value, Url::parse("https://spec.example/x/openapi.json").ok()) else {
        return;
    };
    let plan = RestPlan { refs, max_schema_bytes: 4096, ..plan() };
    let api = Api::load(document, &plan);
    assert_eq!(api.operations().len() + api.skipped().len(), count, "an operation is a tool or has a reason");
    let names: BTreeSet<&str> = api.operations().iter().map(|operation| operation.name.as_str()).collect();
    assert_eq!(names.len(), api.operations().len(), "names are unique");
    assert!(names.iter().all(|name| name.len() <= 64));
    let settings = Settings::of(&plan, &|text| Ok(text.to_owned()));
    for tool in exposure::tools(&api) {
        let schema = tool.input_schema.value();
        assert!(jsonschema::draft202012::meta::is_valid(&schema), "{schema}");
        if refs == Refs::Inline {
            assert!(!schema.to_string().contains("\"$ref\":\"#/"), "{schema}");
        }
        let known = schema["properties"].as_object().cloned().unwrap_or_default();
        assert!(known.keys().all(|name| (1..=64).contains(&name.len())), "{schema}");
        let operation = api.operation(tool.name.as_str()).unwrap();
        // Each argument gets one of the values, whatever it is.
        let values = arguments.iter().cycle().map(|(_, value)| value.clone());
        let given: Map<String, Value> = known.keys().cloned().zip(values).collect();
        let tokens = BTreeMap::new();
        let context = Context { settings: &settings, tokens: &tokens, files: Files::Refused, call_id: Some("id-1") };
        for given in [Value::Object(given), arguments.iter().cloned().collect()] {
            let Ok(request) = request::build(&api, operation, &given, context) else { continue };
            if let Ok(base) = api.document_base() {
                assert_eq!(request.url.origin(), base.origin(), "{given}");
                let prefix = base.path().trim_end_matches('/');
                assert!(request.url.path().starts_with(prefix), "{} {given}", request.url);
                assert!(!request.url.path().split('/').any(|part| part == ".." || part == "."), "{}", request.url);
            }
            assert!(request.headers.iter().all(|(_, value)| value.chars().all(|c| c == '\t' || !c.is_control())));
            assert!(request.url.fragment().is_none() && request.url.username().is_empty());
            request.to_json();
        }
    }
}

proptest! {
    #[test]
    fn a_document_of_any_shape_gives_tools_or_reasons(
        value in document(),
        arguments in prop::collection::vec((text(), any_json()), 1..6),
        inline in any::<bool>(),
    ) {
        holds(value, &arguments, if inline { Refs::Inline } else { Refs::Defs });
    }

    #[test]
    fn a_value_in_the_path_stays_one_segment(value in text(), style in prop::sample::select(vec!["simple", "label", "matrix"])) {
        let document = json!({"openapi": "3.0.3", "servers": [{"url": "https://api.example.com/v1"}], "paths": {"/a/{id}/b": {"get": {
            "parameters": [{"name": "id", "in": "path", "required": true, "style": style, "schema": {}}]}}}});
        let api = Api::load(Document::from_value(document, None).unwrap(), &plan());
        let settings = Settings::of(&plan(), &|text| Ok(text.to_owned()));
        let context = Context { settings: &settings, tokens: &BTreeMap::new(), files: Files::Refused, call_id: None };
        if let Ok(request) = request::build(&api, &api.operations()[0], &json!({"id": value}), context) {
            let parts: Vec<&str> = request.url.path().split('/').collect();
            prop_assert_eq!((parts.len(), parts[1], parts[2], parts[4]), (5, "v1", "a", "b"), "{}", request.url);
            prop_assert!(request.url.query().is_none());
        }
    }

    #[test]
    fn any_bytes_are_a_document_or_an_error(bytes in prop_oneof![
        prop::collection::vec(any::<u8>(), 0..300),
        "[-a-z0-9 :{}\\[\\],\"'&*!|>%@<\n]{0,200}".prop_map(String::into_bytes),
        any_json().prop_map(|value| value.to_string().into_bytes()),
    ]) {
        if let Ok(value) = parse_value(&bytes) {
            // What was read once is read again.
            let text = value.to_string();
            prop_assert_eq!(parse_value(text.as_bytes()).unwrap(), value);
        }
    }
}

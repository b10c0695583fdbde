//! OpenAPI documents, and requests of one that has every style.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::{Value, json};
use vance_rest::api::Api;
use vance_rest::document::{Document, parse_value};
use vance_rest::exposure;
use vance_rest::request::{self, Context, Files};
use vance_rest::result::{Answer, shape};
use vance_rest::settings::Settings;
use vance_shared::launch::Origin;
use vance_shared::launch::rest::{Refs, RestPlan, Spec};
use vance_shared::names::PackName;

/// A document, alone or as the `spec` of something: tools have names of their own, and whatever is called stays where it belongs.
pub fn openapi(bytes: &[u8]) {
    let Ok(mut value) = parse_value(bytes) else { return };
    if let Some(spec) = value.get_mut("spec") {
        value = spec.take();
    }
    let Ok(document) = Document::from_value(value, "https://spec.example/x/openapi.json".parse().ok()) else { return };
    for refs in [Refs::Defs, Refs::Inline] {
        let Some(plan) = plan(refs) else { return };
        let api = Api::load(document.clone(), &plan);
        let names: BTreeSet<&str> = api.operations().iter().map(|operation| operation.name.as_str()).collect();
        assert_eq!(names.len(), api.operations().len());
        for tool in exposure::tools(&api) {
            let schema = tool.input_schema.value();
            let words = ["..", "a/b", "x"].iter().cycle();
            let known = schema["properties"].as_object().cloned().unwrap_or_default();
            let arguments: Value = known.keys().cloned().zip(words.map(|word| Value::from(*word))).collect();
            called(&api, &plan, tool.name.as_str(), &arguments);
        }
    }
}

/// Arguments as JSON, or the body of an answer.
pub fn request(bytes: &[u8]) {
    static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
        let at = |name: &str, place: &str, style: &str| json!({"name": name, "in": place, "style": style, "required": place == "path"});
        let parameters = json!([
            at("a", "path", "simple"),
            at("b", "path", "matrix"),
            at("q", "query", "form"),
            at("d", "query", "deepObject"),
            at("p", "query", "pipeDelimited"),
            at("h", "header", "simple"),
            at("c", "cookie", "form")
        ]);
        let body = |media_type: &str| json!({"parameters": parameters, "requestBody": {"content": {media_type: {}}}});
        json!({"openapi": "3.1.0", "servers": [{"url": "https://api.example/v1"}], "paths": {"/x/{a}/{b}/y": {
            "post": body("multipart/form-data"), "put": body("application/x-www-form-urlencoded"), "patch": body("application/json"),
            "delete": body("application/octet-stream")}}})
    });
    for kind in ["application/json", "text/plain; charset=utf-16", "image/png"] {
        let headers = [
            ("content-type".to_owned(), kind.to_owned()),
            ("link".to_owned(), String::from_utf8_lossy(bytes).into_owned()),
        ];
        let result = shape(Answer { status: 200, reason: "OK", headers: &headers, body: bytes }, 64);
        assert!(
            result.content.value().is_array()
                && result.structured.is_some_and(|structured| structured.value().is_object())
        );
    }
    let (Ok(arguments), Some(plan)) = (serde_json::from_slice::<Value>(bytes), plan(Refs::Defs)) else { return };
    let Ok(document) = Document::from_value(DOCUMENT.clone(), None) else { return };
    let api = Api::load(document, &plan);
    for operation in api.operations() {
        called(&api, &plan, operation.name.as_str(), &arguments);
    }
}

fn plan(refs: Refs) -> Option<RestPlan> {
    let mut plan = RestPlan::new(PackName::parse("p").ok()?, Origin::Global, Spec::Inline(Value::Null));
    plan.refs = refs;
    plan.max_schema_bytes = 4096;
    plan.allow_insecure_http = true;
    Some(plan)
}

fn called(api: &Api, plan: &RestPlan, name: &str, arguments: &Value) {
    let Some(operation) = api.operation(name) else { return };
    let settings = Settings::of(plan, &|text| Ok(text.to_owned()));
    let context = Context { settings: &settings, tokens: &BTreeMap::new(), files: Files::Refused, call_id: Some("c") };
    let Ok(request) = request::build(api, operation, arguments, context) else { return };
    request.to_json();
    assert!(!request.url.path().split('/').any(|part| part == ".." || part == "."), "{}", request.url);
    if let Ok(base) = api.document_base()
        && !operation.has_own_server()
    {
        assert_eq!(request.url.origin(), base.origin(), "{}", request.url);
        assert!(request.url.path().starts_with(base.path().trim_end_matches('/')), "{}", request.url);
    }
}

//! Small documents with the exact tools, requests and results that come of them: `cases/*.yaml`.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use vance_rest::api::Api;
use vance_rest::document::{Document, parse_value};
use vance_rest::request::{self, Context, Files};
use vance_rest::result::{Answer, shape};
use vance_rest::settings::Settings;
use vance_shared::launch::{LaunchPlan, Origin, Transport};
use vance_shared::pack::{PackBody, parse_pack};

struct Case {
    name: String,
    value: Value,
}

impl Case {
    fn api(&self) -> (Api, Settings) {
        let mut parameters = self.value.get("pack").cloned().unwrap_or_else(|| json!({}));
        let address = parameters.get("specUrl").and_then(Value::as_str).map(|url| url.parse().unwrap());
        if address.is_none() {
            parameters["specInline"] = self.value["spec"].clone();
        }
        let pack = json!({"name": "p", "type": "rest_api", "parameters": parameters}).to_string();
        let parsed = parse_pack(&self.name, &pack, Origin::Global);
        assert_eq!((parsed.problems, parsed.warnings), (vec![], vec![]), "{}", self.name);
        let Some(PackBody::Launch(LaunchPlan { transport: Transport::Rest(plan), .. })) =
            parsed.pack.map(|pack| pack.body)
        else {
            panic!("{}", self.name)
        };
        let document = Document::from_value(self.value["spec"].clone(), address).unwrap();
        (Api::load(document, &plan), Settings::of(&plan, &|text| Ok(text.to_owned())))
    }

    fn list(&self, key: &str) -> Vec<Value> {
        self.value["expect"].get(key).and_then(Value::as_array).cloned().unwrap_or_default()
    }
}

fn cases() -> Vec<Case> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let value = parse_value(&std::fs::read(&path).unwrap()).unwrap();
        let known = ["id", "about", "rule", "pack", "spec", "expect"];
        assert!(value.as_object().unwrap().keys().all(|key| known.contains(&key.as_str())), "{}", path.display());
        cases.push(Case { name: path.file_stem().unwrap().to_string_lossy().into_owned(), value });
    }
    cases.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(cases.len() >= 34, "the folder is read");
    cases
}

/// Whether all that is wanted is there, with these values.
fn holds(got: &Value, want: &Value) -> bool {
    match (got, want) {
        (Value::Object(got), Value::Object(want)) => want.iter().all(|(key, want)| got.get(key) == Some(want)),
        (got, want) => got == want,
    }
}

#[test]
fn every_case_gives_its_tools() {
    let mut wrong = Vec::new();
    for case in cases() {
        let (api, _) = case.api();
        if let Some(want) = case.value["expect"].get("tools").and_then(Value::as_array) {
            let mut names: Vec<&str> = api.operations().iter().map(|op| op.name.as_str()).collect();
            let mut wanted: Vec<&str> = want.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
            names.sort_unstable();
            wanted.sort_unstable();
            if names != wanted {
                wrong.push(format!("{}: tools {names:?}, expected {wanted:?}", case.name));
                continue;
            }
            for tool in want {
                let operation = api.operation(tool["name"].as_str().unwrap()).unwrap();
                let schema = api.input_schema(operation).value();
                let annotations = serde_json::to_value(&operation.annotations).unwrap();
                for (key, got) in [
                    ("inputSchema", &schema),
                    ("description", &operation.description.as_str().into()),
                    ("annotations", &annotations),
                ] {
                    let Some(want) = tool.get(key) else { continue };
                    let right = if key == "annotations" { holds(got, want) } else { got == want };
                    if !right {
                        wrong.push(format!("{} {}: {key}\n  {got}\nexpected\n  {want}", case.name, operation.name));
                    }
                }
            }
        }
        if let Some(want) = case.value["expect"].get("skipped") {
            let got: Value = api.skipped().iter().map(|skipped| skipped.operation.as_str()).collect();
            if got != *want {
                wrong.push(format!("{}: skipped {:?}, expected {want}", case.name, api.skipped()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A request as the cases write it.
fn written(dry: &Value, want: &Value) -> Value {
    let mut got = json!({"method": dry["method"], "url": dry["url"]});
    let headers = dry["headers"].as_object().unwrap().clone();
    let headers: serde_json::Map<String, Value> = headers.into_iter().filter(|(name, _)| name != "accept").collect();
    if !headers.is_empty() {
        got["headers"] = Value::Object(headers);
    }
    let body = ["json", "text", "multipart"].into_iter().find(|kind| want.get(kind).is_some());
    match body {
        // The exact text of a JSON body is its compact form.
        Some("text") if !dry["body"].is_string() => got["text"] = dry["body"].to_string().into(),
        Some(kind) => got[kind] = dry["body"].clone(),
        None if dry["body"].is_null() => {}
        None => got["unexpected body"] = dry["body"].clone(),
    }
    got
}

#[test]
fn every_call_gives_its_request_or_its_error() {
    let (mut wrong, mut count) = (Vec::new(), 0);
    for case in cases() {
        let (api, settings) = case.api();
        let context = Context { settings: &settings, tokens: &BTreeMap::new(), files: Files::Refused, call_id: None };
        for call in case.list("calls") {
            count += 1;
            let operation = api.operation(call["tool"].as_str().unwrap()).unwrap();
            let got = match request::build(&api, operation, &call["args"], context) {
                Ok(request) => written(&request.to_json(), &call["request"]),
                Err(fault) if fault.code == call["error"] => continue,
                Err(fault) => json!({"error": fault.code, "message": fault.message}),
            };
            let want = call.get("request").unwrap_or(&call["error"]);
            if got != *want {
                wrong.push(format!("{} {}\n  {got}\nexpected\n  {want}", case.name, call["args"]));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(count > 50, "calls were read: {count}");
}

#[test]
fn every_answer_gives_its_result() {
    let mut count = 0;
    for case in cases() {
        for response in case.list("responses") {
            count += 1;
            let headers: Vec<(String, String)> = response["headers"]
                .as_object()
                .unwrap()
                .iter()
                .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
                .collect();
            let base64 = response.get("bodyBase64").and_then(Value::as_str).map(decoded);
            let body = base64.unwrap_or_else(|| response["body"].as_str().unwrap_or_default().as_bytes().to_vec());
            let status = u16::try_from(response["status"].as_u64().unwrap()).unwrap();
            let reason = response["reason"].as_str().unwrap_or_default();
            let max =
                response.get("max").and_then(Value::as_u64).map_or(48 * 1024, |max| usize::try_from(max).unwrap());
            let result = shape(Answer { status, reason, headers: &headers, body: &body }, max);
            let got = json!({"isError": result.is_error, "content": result.content.value(), "structuredContent": result.structured.unwrap().value()});
            assert_eq!(got, response["result"], "{}", case.name);
        }
    }
    assert!(count >= 3, "answers were read");
}

fn decoded(text: &str) -> Vec<u8> {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.decode(text).unwrap()
}

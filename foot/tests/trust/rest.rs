//! A project's pack of an HTTP API: nothing of it is reached before a yes, and consent is to its document.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::desk::{Desk, endpoint};

fn pack(desk: &Desk, folder: &str, parameters: &Value) {
    let text = json!({"name": "api", "type": "rest_api", "parameters": parameters}).to_string();
    desk.put(&format!("{folder}/api.json"), &text);
}

const THEIRS: &str = "repo/.vancetope/foot-tools";

/// A document with one operation on this base.
fn document(base: &str, operation: &str) -> String {
    json!({
        "openapi": "3.1.0", "info": {"title": "t", "version": "1"}, "servers": [{"url": base}],
        "paths": {"/things/{id}": {"post": {
            "operationId": operation, "summary": "Changes a thing",
            "parameters": [
                {"name": "id", "in": "path", "required": true, "schema": {"type": "integer"}},
                {"name": "loud", "in": "query", "schema": {"type": "boolean"}},
            ],
            "requestBody": {"content": {"application/json": {"schema": {"type": "object", "properties": {"note": {"type": "string"}}}}}},
            "responses": {"200": {"description": "ok"}},
        }}},
    })
    .to_string()
}

#[test]
fn a_document_is_not_fetched_before_a_yes_and_the_question_names_both_addresses() {
    let desk = Desk::new();
    let ((base, base_came), (spec, spec_came)) = (endpoint(), endpoint());
    pack(&desk, THEIRS, &json!({"specUrl": spec, "baseUrl": base, "timeoutSeconds": 3}));
    let none = |when: &str| assert_eq!((base_came(), spec_came()), (0, 0), "{when}");
    let reason = desk.loads("api");
    assert!(reason.contains("needs consent"), "{reason}");
    none("nobody was there to ask");
    let file = desk.text(&format!("{THEIRS}/api.json"));
    for words in [
        &["packs", "check", file.as_str()][..],
        &["packs", "check", &file, "--dry-run"],
        &["packs", "list"],
        &["trust", "show", "api"],
        &["tools", "call", "api__anything", "{}", "--dry-run"],
        &["tools", "call", "api__anything", "{}"],
    ] {
        desk.alone(words);
        none(&words.join(" "));
    }
    let ended = desk.answered("3\n");
    let asked = format!("  wants to reach: {base} (spec: {spec})\n");
    assert!(ended.text.contains(&asked), "{}", ended.text);
    none("they said no");
    desk.answered("1\n");
    assert!(spec_came() > 0, "a yes fetches it");
    assert_eq!(base_came(), 0, "and calls nothing");
}

#[test]
fn a_document_that_changes_asks_again() {
    let desk = Desk::new();
    let (base, came) = endpoint();
    desk.put("repo/.vancetope/foot-tools/docs/openapi.json", &document(&base, "change"));
    pack(&desk, THEIRS, &json!({"specFile": "docs/openapi.json"}));
    let ended = desk.answered("2\n");
    assert!(ended.text.contains(&format!("  wants to reach: {base}")), "{}", ended.text);
    assert!(ended.text.contains("api__change"), "{}", ended.text);
    assert_eq!(desk.loads("api"), "up");
    desk.put("repo/.vancetope/foot-tools/docs/openapi.json", &document(&base, "change_more"));
    let reason = desk.loads("api");
    assert!(reason.contains("needs consent"), "{reason}");
    let ended = desk.answered("3\n");
    assert!(ended.text.contains("changed since you allowed it on 20"), "{}", ended.text);
    assert!(!ended.text.contains("api__change_more"), "{}", ended.text);
    assert_eq!(came(), 0);
}

fn json_of(desk: &Desk, words: &[&str]) -> Value {
    let mut command: Command = desk.command(words);
    command.env("KEY", "k1").stdin(Stdio::null());
    let ended = command.output().unwrap();
    let out = String::from_utf8(ended.stdout).unwrap();
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out} {}", String::from_utf8_lossy(&ended.stderr)))
}

#[test]
fn a_check_lists_the_tools_of_a_document_and_a_dry_run_shows_the_request_and_neither_reaches_the_api() {
    let desk = Desk::new();
    let (base, came) = endpoint();
    desk.put("home/foot-tools/docs/openapi.json", &document(&base, "change"));
    let parameters = json!({"specFile": "docs/openapi.json", "headers": {"X-Key": "${env:KEY}"}});
    pack(&desk, "home/foot-tools", &parameters);
    let checked = json_of(&desk, &["packs", "check", &desk.text("home/foot-tools/api.json"), "--json"]);
    assert_eq!((&checked["ok"], &checked["problems"], &checked["skipped"]), (&json!(true), &json!([]), &json!([])));
    let tools = checked["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 1, "{checked}");
    let name = tools[0]["name"].as_str().unwrap();
    assert!(
        name.ends_with("change") && tools[0]["description"].as_str().unwrap().contains("Changes a thing"),
        "{checked}"
    );
    assert_eq!(tools[0]["inputSchema"]["properties"]["id"]["type"], "integer", "{checked}");

    let arguments = r#"{"id": "7", "loud": true, "body": {"note": "a b"}}"#;
    let planned = json_of(&desk, &["tools", "call", "api__change", arguments, "--dry-run", "--json"]);
    assert_eq!(planned["method"], "POST", "{planned}");
    let root = base.trim_end_matches('/');
    assert_eq!(planned["url"], format!("{root}/things/7?loud=true"), "{planned}");
    let headers = planned["headers"].to_string().to_lowercase();
    assert!(headers.contains("x-key") && headers.contains("content-type"), "{planned}");
    let body = &planned["body"];
    assert!(body.to_string().contains("note") && body.to_string().contains("a b"), "{planned}");
    let wrong = json_of(&desk, &["tools", "call", "api__change", r#"{"id": "x"}"#, "--dry-run", "--json"]);
    assert_eq!(wrong["error"]["code"], "invalid_argument", "{wrong}");
    assert_eq!(came(), 0);
}

#![allow(clippy::unwrap_used)]

use vance_shared::launch::Origin;
use vance_shared::launch::rest::{RestPlan, Spec};
use vance_shared::names::PackName;

use super::*;
use crate::document::Document;

fn api(count: usize, exposure: Exposure) -> Api {
    let mut paths = Map::new();
    for n in 0..count {
        let description = format!("Number {n}.");
        paths.insert(
            format!("/things/{{id}}/part{n}"),
            json!({"get": {"operationId": format!("things/get-part{n}"), "tags": [if n == 7 { "Seven" } else { "rest" }], "summary": description},
                "post": {"operationId": format!("things/set-part{n}"), "requestBody": {"required": true, "content": {"application/json": {}}}}}),
        );
    }
    let document = json!({"openapi": "3.1.0", "servers": [{"url": "https://a.example"}], "paths": paths});
    let mut plan = RestPlan::new(PackName::parse("p").unwrap(), Origin::Global, Spec::Inline(Value::Null));
    plan.exposure = exposure;
    Api::load(Document::from_value(document, None).unwrap(), &plan)
}

fn answer(api: &Api, tool: &str, arguments: Value) -> Value {
    match called(api, tool, &arguments).unwrap() {
        Called::Answer(result) => result.structured.unwrap().value(),
        Called::Operation(operation, _) => panic!("{}", operation.name),
    }
}

#[test]
fn a_small_pack_offers_its_operations_and_a_large_one_three_tools() {
    for (count, exposure, tools_offered) in [
        (5, Exposure::Auto, 10),
        (64, Exposure::Auto, 128),
        (65, Exposure::Auto, 3),
        (65, Exposure::Tools, 130),
        (1, Exposure::Search, 3),
    ] {
        assert_eq!(tools(&api(count, exposure)).len(), tools_offered, "{count} {exposure:?}");
    }
}

#[test]
fn a_thousand_operations_are_found_described_and_called() {
    let api = api(500, Exposure::Auto);
    let names: Vec<String> = tools(&api).iter().map(|tool| tool.name.to_string()).collect();
    assert_eq!(names, ["p__search", "p__describe", "p__call"]);
    let found = answer(&api, "search", json!({"query": "get part42 things", "limit": 2}));
    assert_eq!(found["operations"][0]["name"], "things_get-part42");
    assert_eq!(found["operations"][0]["required"], json!(["id"]));
    assert_eq!(found["operations"].as_array().map(Vec::len), Some(2));
    let found = answer(&api, "search", json!({"tag": "seven", "method": "GET"}));
    assert_eq!(
        (found["total"].as_u64(), &found["operations"][0]["operation"]),
        (Some(1), &json!("GET /things/{id}/part7"))
    );
    let page = answer(&api, "search", json!({"offset": 990, "limit": 50}));
    assert_eq!((page["total"].as_u64(), page["operations"].as_array().map(Vec::len)), (Some(1000), Some(10)));
    let described = answer(&api, "describe", json!({"names": ["things_set-part3"]}));
    assert_eq!(described["operations"][0]["inputSchema"]["required"], json!(["id", "body"]));
    let call = json!({"name": "things_get-part3", "arguments": {"id": 1}});
    match called(&api, "call", &call).unwrap() {
        Called::Operation(operation, arguments) => {
            assert_eq!((operation.id.as_deref(), arguments), (Some("things/get-part3"), json!({"id": 1})));
        }
        Called::Answer(_) => panic!("not an answer"),
    }
}

#[test]
fn what_an_operation_is_called_finds_it_first() {
    let operations = [
        ("actions/list-repo-variables", "GET", "/repos/{owner}/{repo}/actions/variables", "List repository variables"),
        ("repos/get-all-topics", "GET", "/repos/{owner}/{repo}/topics", "Get all repository topics"),
        (
            "repos/get",
            "GET",
            "/repos/{owner}/{repo}",
            "Get a repository\n\nThe parent and source objects are there for a fork.",
        ),
        ("pulls/list-files", "GET", "/repos/{owner}/{repo}/pulls/{n}/files", "List pull requests files"),
        ("pulls/list", "GET", "/repos/{owner}/{repo}/pulls", "List pull requests"),
        ("pulls/create", "POST", "/repos/{owner}/{repo}/pulls", "Create a pull request"),
        (
            "pulls/create-review",
            "POST",
            "/repos/{owner}/{repo}/pulls/{n}/reviews",
            "Create a review for a pull request",
        ),
        ("issues/createIssueComment", "POST", "/repos/{owner}/{repo}/issues/{n}/comments", "Create an issue comment"),
        ("issues/create", "POST", "/repos/{owner}/{repo}/issues", "Create an issue"),
        ("pulls/merge", "PUT", "/repos/{owner}/{repo}/pulls/{n}/merge", "Merge a pull request"),
    ];
    let mut paths = Map::new();
    for (id, method, path, summary) in operations {
        let operation = json!({"operationId": id, "summary": summary});
        let at = paths.entry(path).or_insert_with(|| json!({}));
        at[method.to_lowercase()] = operation;
    }
    let document = json!({"openapi": "3.1.0", "servers": [{"url": "https://a.example"}], "paths": paths});
    let plan = RestPlan {
        exposure: Exposure::Search,
        ..RestPlan::new(PackName::parse("p").unwrap(), Origin::Global, Spec::Inline(Value::Null))
    };
    let api = Api::load(Document::from_value(document, None).unwrap(), &plan);
    for (query, want) in [
        ("get a repository", "repos_get"),
        ("list pull requests", "pulls_list"),
        ("create pull request", "pulls_create"),
        ("create an issue", "issues_create"),
        ("merge a pull request", "pulls_merge"),
        ("issue comment", "issues_createIssueComment"),
        ("pulls merge", "pulls_merge"),
        ("repositories", "repos_get"),
        ("reviewing", ""),
        ("review", "pulls_create-review"),
    ] {
        let found = answer(&api, "search", json!({"query": query}));
        assert_eq!(found["operations"][0]["name"].as_str().unwrap_or_default(), want, "{query}: {found}");
    }
    let found = answer(&api, "search", json!({"query": "a variable"}));
    assert_eq!(found["total"], 1, "a word of one letter finds nothing: {found}");
}

#[test]
fn the_pack_says_which_operations_are_only_found_by_search() {
    let mut plan = RestPlan::new(PackName::parse("p").unwrap(), Origin::Global, Spec::Inline(Value::Null));
    let operation = |id: &str| json!({"get": {"operationId": id}});
    let document = json!({"openapi": "3.1.0", "servers": [{"url": "https://a.example"}],
        "paths": {"/a": operation("a"), "/b": operation("b"), "/s": operation("search")}});
    for (exposure, deferred, want) in [
        (Exposure::Auto, vec![], vec!["p__a", "p__b", "p__search"]),
        (Exposure::Auto, vec![("b", true)], vec!["p__a", "p__search", "p__describe", "p__call"]),
        (Exposure::Search, vec![("a", false)], vec!["p__a", "p__search", "p__describe", "p__call"]),
    ] {
        plan.exposure = exposure;
        plan.deferred_overrides = deferred.into_iter().map(|(name, is)| (name.to_owned(), is)).collect();
        let api = Api::load(Document::from_value(document.clone(), None).unwrap(), &plan);
        let names: Vec<String> = tools(&api).iter().map(|tool| tool.name.to_string()).collect();
        assert_eq!(names, want, "{exposure:?}");
        for (name, spec) in names.iter().zip(tools(&api)) {
            // A name never means two things.
            let sub = name.trim_start_matches("p__");
            let arguments = json!({"names": ["a"], "name": "a"});
            let arguments = if sub == "search" { json!({}) } else { arguments };
            let answered = matches!(called(&api, sub, &arguments), Ok(Called::Answer(_)));
            assert_eq!(answered, sub == "search" && spec.description.starts_with("Searches"), "{name}");
        }
    }
}

#[test]
fn what_is_not_there_is_said_with_what_is_near() {
    let api = api(70, Exposure::Auto);
    for (tool, arguments, want) in [
        ("call", json!({"name": "things_get-prt3"}), "did you mean things_get-part3?"),
        ("describe", json!({"names": ["x"]}), "there is no operation 'x'"),
        ("search", json!({"words": "x"}), "'words' was unexpected"),
        ("things_get-part999", json!({}), "there is no operation"),
    ] {
        let fault = called(&api, tool, &arguments).unwrap_err();
        assert_eq!(fault.code, "invalid_argument");
        assert!(fault.message.contains(want), "{}", fault.message);
    }
}

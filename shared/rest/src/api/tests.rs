#![allow(clippy::unwrap_used)]

use serde_json::json;
use vance_shared::launch::rest::Spec;
use vance_shared::names::PackName;

use vance_shared::launch::Origin;

use super::*;

fn plan() -> RestPlan {
    RestPlan::new(PackName::parse("p").unwrap(), Origin::Global, Spec::Inline(Value::Null))
}

fn load(paths: Value, plan: &RestPlan) -> Api {
    let document = json!({"openapi": "3.1.0", "servers": [{"url": "https://a.example"}], "paths": paths});
    Api::load(Document::from_value(document, None).unwrap(), plan)
}

#[test]
fn labels_and_replay_follow_the_method_unless_the_pack_says_otherwise() {
    let paths = json!({"/a": {"get": {"operationId": "g"}, "post": {"operationId": "find/it", "deprecated": true}, "put": {"operationId": "u"}, "patch": {"operationId": "c"}},
        "/k": {"post": {"operationId": "k", "parameters": [{"name": "idempotency-key", "in": "header"}]}}});
    let mut plan = plan();
    plan.labels = vec!["own".to_owned()];
    plan.method_labels.insert("PATCH".to_owned(), vec!["careful".to_owned()]);
    plan.label_overrides.insert("find/it".to_owned(), vec!["read-only".to_owned()]);
    let api = load(paths, &plan);
    for (id, labels, replay, read_only) in [
        ("g", &["read-only"][..], Replay::Safe, true),
        ("find/it", &["read-only", "deprecated"], Replay::Safe, true),
        ("u", &["write", "side-effect"], Replay::Safe, false),
        ("c", &["careful"], Replay::Unsafe, false),
        ("k", &["write", "side-effect"], Replay::Unsafe, false),
    ] {
        let operation = api.operation(id).unwrap();
        let all: Vec<&str> = ["own", "rest", "rest:p"].into_iter().chain(labels.iter().copied()).collect();
        assert_eq!(operation.labels, all, "{id}");
        assert_eq!((operation.replay, operation.annotations.read_only_hint), (replay, Some(read_only)), "{id}");
    }
    assert_eq!(api.operation("find_it").unwrap().description, "[DEPRECATED] POST /a");
}

#[test]
fn what_the_pack_leaves_out_is_counted_and_what_it_misses_is_said() {
    let mut plan = plan();
    plan.include = vec!["g*".to_owned(), "nope".to_owned()];
    plan.disabled_sub_tools = vec!["g2".to_owned()];
    plan.deprecated = Deprecated::Skip;
    plan.name_overrides = [("g1", "first"), ("x", "y")].map(|(a, b)| (a.to_owned(), b.to_owned())).into();
    let get = |id: &str, deprecated: bool| json!({"get": {"operationId": id, "deprecated": deprecated}});
    let paths =
        json!({"/1": get("g1", false), "/2": get("g2", false), "/3": get("g3", true), "/4": get("other", false)});
    let api = load(paths, &plan);
    let names: Vec<&str> = api.operations().iter().map(Operation::sub_tool).collect();
    assert_eq!((names, api.left_out()), (vec!["first"], 3));
    assert_eq!(api.warnings(), ["the pattern 'nope' means no operation", "'x' is no operation that is offered"]);
}

#[test]
fn a_pack_says_which_operations_take_a_key_and_no_other_does() {
    let paths = json!({"/a": {"post": {"operationId": "make"}, "patch": {"operationId": "change"}},
        "/k": {"post": {"operationId": "k", "parameters": [{"name": "Idempotency-Key", "in": "header"}]}}});
    let mut plan = plan();
    plan.idempotency_key = vec!["POST /a".to_owned(), "POST /nowhere".to_owned()];
    let api = load(paths, &plan);
    let of = |id: &str| api.operation(id).map(|operation| (operation.repeats_by_key(), operation.replay)).unwrap();
    // The key is the call's: who calls anew has another one, so none of them is safe to call anew.
    assert_eq!([of("make"), of("k")], [(true, Replay::Unsafe); 2]);
    assert_eq!(of("change"), (false, Replay::Unsafe));
    assert_eq!(api.warnings(), ["the pattern 'POST /nowhere' means no operation"]);
}

#[test]
fn names_that_the_document_does_not_have_are_said() {
    use vance_shared::launch::rest::Credential;
    let mut plan = plan();
    plan.auth = RestAuth::Schemes([("Kye".to_owned(), Credential::Value("v".to_owned()))].into());
    plan.server_variables = [("region", "eu"), ("regoin", "eu")].map(|(a, b)| (a.to_owned(), b.to_owned())).into();
    let document = json!({"openapi": "3.1.0", "servers": [{"url": "https://a.example"}],
        "components": {"securitySchemes": {"Key": {"type": "apiKey", "in": "header", "name": "X-Key"}}},
        "paths": {"/a": {"get": {"servers": [{"url": "https://{region}.a.example", "variables": {"region": {"default": "us"}}}]}}}});
    plan.allowed_hosts = Some(vec!["eu.a.example".to_owned()]);
    let api = Api::load(Document::from_value(document, None).unwrap(), &plan);
    assert_eq!(
        api.warnings(),
        [
            "the document has no security scheme 'Kye': it has 'Key'",
            "no server of the document has the variable 'regoin'"
        ]
    );
}

#[test]
fn a_header_that_cannot_be_sent_costs_what_needs_it() {
    let header = |required: bool| json!({"parameters": [{"name": "a b", "in": "header", "required": required}]});
    let api = load(json!({"/a": {"get": header(false), "put": header(true)}}), &plan());
    assert_eq!(api.operations().len(), 1);
    assert_eq!(api.skipped()[0].reason, "the header 'a b' has a name that cannot be sent");
}

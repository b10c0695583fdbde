#![allow(clippy::unwrap_used, clippy::type_complexity)]

use serde_json::{Value, json};
use vance_shared::launch::Origin;
use vance_shared::launch::rest::{Credential, RestAuth, RestOAuth, RestPlan, Spec};
use vance_shared::names::PackName;

use super::*;
use crate::document::Document;

fn plan() -> RestPlan {
    RestPlan::new(PackName::parse("p").unwrap(), Origin::Global, Spec::Inline(Value::Null))
}

fn load(document: Value, plan: &RestPlan) -> (Api, Settings) {
    let expand = |text: &str| match text {
        "${env:UNSET}" => Err("environment variable UNSET is not set".to_owned()),
        text => Ok(text.replace("${env:K}", "k3y")),
    };
    (Api::load(Document::from_value(document, None).unwrap(), plan), Settings::of(plan, &expand))
}

fn built_with(api: &Api, settings: &Settings, arguments: &Value, tokens: &[(&str, &str)]) -> Result<Request, Fault> {
    let tokens = tokens.iter().map(|(key, token)| ((*key).to_owned(), (*token).to_owned())).collect();
    let context = Context { settings, tokens: &tokens, files: Files::Planned, call_id: Some("call-1") };
    build(api, &api.operations()[0], arguments, context)
}

/// One GET operation below `/a`.
fn get(operation: Value) -> Value {
    document("/a", "get", operation)
}

fn document(path: &str, method: &str, operation: Value) -> Value {
    json!({"openapi": "3.1.0", "servers": [{"url": "https://api.example.com/v1"}], "paths": {path: {method: operation}}})
}

fn url_of(parameter: Value, value: &Value) -> String {
    let path = if parameter["in"] == "path" { "/a/{x}" } else { "/a" };
    let (api, settings) = load(document(path, "get", json!({"parameters": [parameter]})), &plan());
    let request =
        built_with(&api, &settings, &json!({"x": value}), &[]).unwrap_or_else(|fault| panic!("{}", fault.message));
    let cookie = request.headers.iter().find(|(name, _)| name == "cookie" || name == "x");
    let url = request.url.as_str().trim_start_matches("https://api.example.com/v1/a").to_owned();
    cookie.map_or(url, |(_, value)| value.clone())
}

#[test]
fn every_style_writes_texts_lists_and_objects() {
    let (text, list, object) = (json!("a b"), json!(["a", "b,c", null, 1]), json!({"k": "v w", "n": null, "l": [1]}));
    for (place, style, explode, wants) in [
        ("path", "simple", false, ["/a%20b", "/a,b%2Cc,1", "/k,v%20w,l,%5B1%5D"]),
        ("path", "simple", true, ["/a%20b", "/a,b%2Cc,1", "/k=v%20w,l=%5B1%5D"]),
        ("path", "label", false, ["/.a%20b", "/.a,b%2Cc,1", "/.k,v%20w,l,%5B1%5D"]),
        ("path", "label", true, ["/.a%20b", "/.a.b%2Cc.1", "/.k=v%20w.l=%5B1%5D"]),
        ("path", "matrix", false, ["/;x=a%20b", "/;x=a,b%2Cc,1", "/;x=k,v%20w,l,%5B1%5D"]),
        ("path", "matrix", true, ["/;x=a%20b", "/;x=a;x=b%2Cc;x=1", "/;k=v%20w;l=%5B1%5D"]),
        ("query", "form", true, ["?x=a%20b", "?x=a&x=b%2Cc&x=1", "?k=v%20w&l=%5B1%5D"]),
        ("query", "form", false, ["?x=a%20b", "?x=a,b%2Cc,1", "?x=k,v%20w,l,%5B1%5D"]),
        ("query", "spaceDelimited", false, ["?x=a%20b", "?x=a%20b%2Cc%201", "?x=k%20v%20w%20l%20%5B1%5D"]),
        ("query", "pipeDelimited", false, ["?x=a%20b", "?x=a%7Cb%2Cc%7C1", "?x=k%7Cv%20w%7Cl%7C%5B1%5D"]),
        (
            "query",
            "deepObject",
            true,
            ["?x=a%20b", "?x%5B%5D=a&x%5B%5D=b%2Cc&x%5B%5D=1", "?x%5Bk%5D=v%20w&x%5Bl%5D%5B%5D=1"],
        ),
        ("header", "simple", false, ["a b", "a,b,c,1", "k,v w,l,[1]"]),
        ("header", "simple", true, ["a b", "a,b,c,1", "k=v w,l=[1]"]),
        ("cookie", "form", true, ["x=a%20b", "x=a; x=b%2Cc; x=1", "k=v%20w; l=%5B1%5D"]),
        ("cookie", "form", false, ["x=a%20b", "x=a,b%2Cc,1", "x=k,v%20w,l,%5B1%5D"]),
    ] {
        for (value, want) in [&text, &list, &object].into_iter().zip(wants) {
            let parameter = json!({"name": "x", "in": place, "required": true, "style": style, "explode": explode});
            assert_eq!(url_of(parameter, value), want, "{place} {style} {explode} {value}");
        }
    }
}

#[test]
fn contents_and_reserved_characters_are_written_as_the_document_says() {
    let json_content = json!({"name": "x", "in": "query", "content": {"application/json": {}}});
    assert_eq!(url_of(json_content, &json!({"a": [1]})), "?x=%7B%22a%22%3A%5B1%5D%7D");
    let reserved = json!({"name": "x", "in": "query", "allowReserved": true});
    assert_eq!(url_of(reserved, &json!("a/b?c=d&e#f,g")), "?x=a/b?c%3Dd%26e%23f,g");
    let (api, settings) = load(document("/a?Action=x&v={v}#Action=x", "get", json!({})), &plan());
    let request = built_with(&api, &settings, &json!({"v": "1&w=2"}), &[]).unwrap();
    assert_eq!(request.url.as_str(), "https://api.example.com/v1/a?Action=x&v=1%26w%3D2");
}

#[test]
fn a_body_is_sent_as_its_type_says() {
    for (media_type, body, sent, want) in [
        ("application/json", json!([1]), "application/json", json!([1])),
        ("*/*", json!("x"), "application/json", json!("x")),
        ("text/csv", json!("a,b"), "text/csv", json!("a,b")),
        ("application/octet-stream", json!({"base64": "aGk=", "contentType": "image/png"}), "image/png", json!("hi")),
        ("image/*", json!({"text": "hi"}), "application/octet-stream", json!("hi")),
        ("application/zip", json!({"path": "/x/a.zip"}), "application/zip", json!({"path": "/x/a.zip"})),
        (
            "application/x-www-form-urlencoded",
            json!({"a": [1, 2], "b": null, "c": {"d": 1}}),
            "application/x-www-form-urlencoded",
            json!("a=1&a=2&c=%7B%22d%22%3A1%7D"),
        ),
        (
            "multipart/form-data",
            json!({"f": {"path": "/x/y.png"}, "n": 1}),
            "multipart/form-data",
            json!([{"name": "f", "filename": "y.png", "contentType": "image/png", "data": {"path": "/x/y.png"}}, {"name": "n", "data": "1"}]),
        ),
    ] {
        let (api, settings) =
            load(document("/a", "post", json!({"requestBody": {"content": {media_type: {}}}})), &plan());
        let request = built_with(&api, &settings, &json!({"body": body}), &[])
            .unwrap_or_else(|fault| panic!("{media_type}: {}", fault.message));
        let shown = request.to_json();
        assert_eq!((shown["headers"]["content-type"].as_str(), &shown["body"]), (Some(sent), &want), "{media_type}");
    }
}

#[test]
fn what_the_pack_and_the_document_say_about_headers_is_sent() {
    let parameters =
        json!([{"name": "Idempotency-Key", "in": "header", "required": true}, {"name": "X-Fixed", "in": "header"}]);
    let responses = json!({"200": {"content": {"application/vnd.a+json": {}, "text/html": {}}}});
    let mut plan = plan();
    plan.headers = [("X-Fixed", "f"), ("X-Secret", "${env:K}")].map(|(n, v)| (n.to_owned(), v.to_owned())).into();
    let (api, settings) =
        load(document("/a", "post", json!({"parameters": parameters, "responses": responses})), &plan);
    let header = |request: &Request, name: &str| request.to_json()["headers"][name].clone();
    let request = built_with(&api, &settings, &json!({}), &[]).unwrap();
    assert_eq!(header(&request, "idempotency-key"), "call-1");
    assert_eq!((header(&request, "x-fixed"), header(&request, "x-secret")), (json!("f"), json!("k3y")));
    assert_eq!(header(&request, "accept"), "application/vnd.a+json, */*;q=0.5");
    let request = built_with(&api, &settings, &json!({"Idempotency-Key": "mine"}), &[]).unwrap();
    assert_eq!(header(&request, "idempotency-key"), "mine");
    assert_eq!(built_with(&api, &settings, &json!({"X-Fixed": "g"}), &[]).unwrap_err().code, "invalid_argument");
    assert!(!format!("{request:?}").contains("k3y"), "a request does not show what it carries");
}

fn secured(security: Value) -> Value {
    let mut document = get(
        json!({"security": security, "parameters": [{"name": "k", "in": "query"}, {"name": "sid", "in": "cookie"}]}),
    );
    document["components"] = json!({"securitySchemes": {
        "Header": {"type": "apiKey", "in": "header", "name": "X-Key"},
        "Query": {"type": "apiKey", "in": "query", "name": "k"},
        "Cookie": {"type": "apiKey", "in": "cookie", "name": "sid"},
        "Basic": {"type": "http", "scheme": "basic"},
        "Bearer": {"type": "http", "scheme": "bearer"},
        "Digest": {"type": "http", "scheme": "Digest"},
        "OAuth": {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "/token", "scopes": {}}}},
        "Elsewhere": {"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": "http://evil.test/token", "scopes": {}}}},
    }});
    document
}

#[test]
fn credentials_go_where_their_scheme_says_and_nothing_empty_is_sent() {
    let value = |text: &str| Credential::Value(text.to_owned());
    let basic = Credential::Basic { user: "u".to_owned(), password: "p".to_owned() };
    let all = |names: &[&str]| json!([names.iter().map(|name| ((*name).to_owned(), json!([]))).collect::<Map<_, _>>()]);
    for (security, given, want) in [
        (all(&["Header"]), vec![("Header", value("v"))], Ok("x-key=v")),
        (all(&["Query"]), vec![("Query", value("v&w"))], Ok("?k=v%26w")),
        (all(&["Cookie"]), vec![("Cookie", value("v;w"))], Ok("cookie=sid=v%3Bw")),
        (all(&["Basic"]), vec![("Basic", basic.clone())], Ok("authorization=Basic dTpw")),
        (all(&["Bearer"]), vec![("Bearer", Credential::Token("${env:K}".to_owned()))], Ok("authorization=Bearer k3y")),
        (all(&["Digest"]), vec![("Digest", value("x"))], Ok("authorization=Digest x")),
        (all(&["OAuth"]), vec![("OAuth", Credential::Token("t".to_owned()))], Ok("authorization=Bearer t")),
        (all(&["Header", "Query"]), vec![("Header", value("a")), ("Query", value("b"))], Ok("?k=b x-key=a")),
        (json!([{"Bearer": []}, {"Header": []}]), vec![("Header", value("v"))], Ok("x-key=v")),
        (json!([{"Bearer": []}, {}]), vec![("Header", value("v"))], Ok("")),
        (json!([]), vec![("Header", value("v"))], Ok("")),
        (Value::Null, vec![("Header", value("v"))], Ok("x-key=v")),
        (all(&["Bearer"]), vec![("Header", value("v"))], Err(("auth_missing", "set `auth.schemes` for Bearer"))),
        (
            all(&["Header"]),
            vec![("Header", value("${env:UNSET}"))],
            Err(("auth_missing", "environment variable UNSET is not set")),
        ),
        (all(&["Header"]), vec![("Header", basic)], Err(("auth_missing", "needs `value`"))),
        (all(&["Header"]), vec![("Header", value("a\nb"))], Err(("auth_failed", "no header can carry"))),
    ] {
        let mut plan = plan();
        plan.auth = RestAuth::Schemes(given.into_iter().map(|(name, given)| (name.to_owned(), given)).collect());
        let (api, settings) = load(secured(security.clone()), &plan);
        match (built_with(&api, &settings, &json!({}), &[]), want) {
            (Ok(request), Ok(want)) => {
                let query = request.url.query().map(|query| format!("?{query}"));
                let headers = request.headers.iter().filter(|(name, _)| name != "accept");
                let shown = query.into_iter().chain(headers.map(|(name, value)| format!("{name}={value}")));
                assert_eq!(shown.collect::<Vec<_>>().join(" "), want, "{security}");
            }
            (Err(fault), Err((code, part))) => {
                assert!(fault.code == code && fault.message.contains(part), "{security}: {fault:?}");
            }
            (got, _) => panic!("{security}: {:?}", got.map(|request| request.to_json())),
        }
    }
}

#[test]
fn tokens_are_asked_for_where_the_pack_or_the_documents_own_host_says() {
    let oauth = |token_url: Option<&str>| RestOAuth {
        client_id: "i".to_owned(),
        client_secret: Some("${env:K}".to_owned()),
        token_url: token_url.map(str::to_owned),
        ..RestOAuth::default()
    };
    let mut plan = plan();
    plan.allowed_hosts = Some(Vec::new());
    for (scheme, token_url, want) in [
        ("OAuth", None, Ok("https://api.example.com/token")),
        ("OAuth", Some("https://login.example/t"), Ok("https://login.example/t")),
        ("Elsewhere", None, Err("auth_failed")),
        ("Bearer", None, Err("auth_failed")),
    ] {
        let credential = Credential::OAuth(oauth(token_url));
        plan.auth = RestAuth::Schemes([(scheme.to_owned(), credential)].into());
        let (api, settings) = load(secured(json!([{scheme: ["read"]}])), &plan);
        match (tokens(&api, &api.operations()[0], &settings), want) {
            (Ok(needs), Ok(want)) => {
                let [need] = needs.as_slice() else { panic!("{needs:?}") };
                assert_eq!((need.endpoint.as_str(), need.client_secret.as_deref()), (want, Some("k3y")));
                assert_eq!(need.scopes, ["read"]);
                assert!(!format!("{need:?}").contains("k3y"));
                let request = built_with(&api, &settings, &json!({}), &[(need.key.as_str(), "t")]).unwrap();
                assert!(request.headers.contains(&("authorization".to_owned(), "Bearer t".to_owned())));
                assert_eq!(built_with(&api, &settings, &json!({}), &[]).unwrap_err().code, "auth_failed");
            }
            (Err(fault), Err(code)) => assert_eq!(fault.code, code),
            (got, _) => panic!("{scheme}: {got:?}"),
        }
    }
}

#[test]
fn requests_go_to_hosts_that_the_pack_means() {
    let elsewhere = get(json!({"servers": [{"url": "https://other.example/x"}]}));
    let plain =
        json!({"openapi": "3.0.0", "servers": [{"url": "http://api.example.com"}], "paths": {"/a": {"get": {}}}});
    let local =
        json!({"openapi": "3.0.0", "servers": [{"url": "http://localhost:1/b/"}], "paths": {"/a": {"get": {}}}});
    let none = json!({"openapi": "3.0.0", "paths": {"/a": {"get": {}}}});
    let credentials =
        json!({"openapi": "3.0.0", "servers": [{"url": "https://u:p@api.example.com"}], "paths": {"/a": {"get": {}}}});
    type Change = fn(&mut RestPlan);
    let cases: [(&Value, Change, Result<&str, &str>); 13] = [
        (&elsewhere, |_| {}, Ok("https://other.example/x/a")),
        (&elsewhere, |plan| plan.origin = Origin::Project, Err("host_not_allowed")),
        (&elsewhere, |plan| plan.spec = Spec::Url("https://s.example".to_owned()), Err("host_not_allowed")),
        (&elsewhere, |plan| plan.allowed_hosts = Some(vec![]), Err("host_not_allowed")),
        (
            &elsewhere,
            |plan| plan.allowed_hosts = Some(vec!["other.example".to_owned()]),
            Ok("https://other.example/x/a"),
        ),
        (
            &elsewhere,
            |plan| plan.base_url = Some("https://b.example/c?t=${env:K}".to_owned()),
            Ok("https://b.example/c/a?t=k3y"),
        ),
        (&elsewhere, |plan| plan.base_url = Some("${env:UNSET}".to_owned()), Err("auth_missing")),
        (&elsewhere, |plan| plan.base_url = Some("ftp://${env:K}".to_owned()), Err("no_server")),
        (&plain, |_| {}, Err("no_server")),
        (&plain, |plan| plan.allow_insecure_http = true, Ok("http://api.example.com/a")),
        (&local, |_| {}, Ok("http://localhost:1/b/a")),
        (&none, |_| {}, Err("no_server")),
        (&credentials, |_| {}, Err("no_server")),
    ];
    for (at, (document, change, want)) in cases.into_iter().enumerate() {
        let mut plan = plan();
        change(&mut plan);
        let (api, settings) = load(document.clone(), &plan);
        let got = built_with(&api, &settings, &json!({}), &[]);
        let got = got.as_ref().map(|request| request.url.as_str()).map_err(|fault| fault.code.as_str());
        assert_eq!(got, want, "{at}");
    }
}

#[test]
fn the_base_of_a_document_that_a_project_fetched_counts_once_somebody_said_yes_to_it() {
    let document = |base: &str| json!({"openapi": "3.0.0", "servers": [{"url": base}], "paths": {"/a": {"get": {}}, "/b": {"servers": [{"url": "https://up.example"}], "get": {}}}});
    type Change = fn(&mut RestPlan);
    let cases: [(&str, Change, [Result<&str, &str>; 2], &[&str]); 7] = [
        (
            "https://s.example/v1",
            |_| {},
            [Ok("https://s.example/v1/a"), Err("host_not_allowed")],
            &["https://up.example"],
        ),
        ("https://b.example/v1", |_| {}, [Err("host_not_allowed"); 2], &["https://b.example/v1", "https://up.example"]),
        ("http://b.example/v1", |_| {}, [Err("host_not_allowed"), Err("host_not_allowed")], &["https://up.example"]),
        (
            "https://b.example/v1",
            |plan| plan.allowed_hosts = Some(vec!["b.example".to_owned()]),
            [Ok("https://b.example/v1/a"), Err("host_not_allowed")],
            &["https://up.example"],
        ),
        (
            "https://b.example/v1",
            |plan| {
                plan.document_base = Some("https://b.example/v1".to_owned());
                plan.document_hosts = vec!["https://up.example".to_owned()];
            },
            [Ok("https://b.example/v1/a"), Ok("https://up.example/b")],
            &[],
        ),
        (
            "https://evil.example/v1",
            |plan| plan.document_base = Some("https://b.example/v1".to_owned()),
            [Err("host_not_allowed"); 2],
            &["https://evil.example/v1", "https://up.example"],
        ),
        (
            "https://b.example/v1",
            |plan| plan.base_url = Some("https://own.example".to_owned()),
            [Ok("https://own.example/a"), Ok("https://own.example/b")],
            &[],
        ),
    ];
    for (base, change, wants, leads) in cases {
        let mut plan = plan();
        (plan.origin, plan.spec) = (Origin::Project, Spec::Url("https://s.example/api.json".to_owned()));
        plan.auth = RestAuth::Header { name: "X-Key".to_owned(), value: "${env:K}".to_owned() };
        change(&mut plan);
        let (api, settings) = load(document(base), &plan);
        let context = Context { settings: &settings, tokens: &[].into(), files: Files::Refused, call_id: None };
        for (operation, want) in api.operations().iter().zip(wants) {
            let got = build(&api, operation, &json!({}), context);
            let got = got.as_ref().map(|request| request.url.as_str()).map_err(|fault| fault.code.as_str());
            assert_eq!(got, want, "{base} {}", operation.path);
        }
        let found: Vec<&str> =
            api.leads().base.iter().map(Url::as_str).chain(api.leads().hosts.iter().map(String::as_str)).collect();
        assert_eq!(found, leads, "{base}");
        assert_eq!(api.warnings().iter().any(|said| said.contains("\"allowedHosts\": [")), !leads.is_empty(), "{base}");
    }
}

#[test]
fn a_secret_of_the_client_goes_to_no_host_that_only_a_fetched_document_names() {
    let mut plan = plan();
    (plan.origin, plan.spec) = (Origin::Project, Spec::Url("https://s.example/api.json".to_owned()));
    let oauth =
        RestOAuth { client_id: "i".to_owned(), client_secret: Some("${env:K}".to_owned()), ..RestOAuth::default() };
    plan.auth = RestAuth::Schemes([("OAuth".to_owned(), Credential::OAuth(oauth))].into());
    for (base_url, allowed) in
        [(None, false), (Some("https://own.example"), false), (Some("https://api.example.com"), true)]
    {
        plan.base_url = base_url.map(str::to_owned);
        let (api, settings) = load(secured(json!([{"OAuth": ["read"]}])), &plan);
        let needs = tokens(&api, &api.operations()[0], &settings);
        assert_eq!(needs.is_ok(), allowed, "{base_url:?} {needs:?}");
    }
}

#[test]
fn no_argument_takes_the_place_of_a_credential_however_it_is_written() {
    let whole = json!({"parameters": [{"name": "q", "in": "querystring", "content": {"text/plain": {"schema": {"type": "string"}}}}]});
    let reserved =
        json!({"parameters": [{"name": "q", "in": "query", "allowReserved": true, "schema": {"type": "string"}}]});
    let mut keyed = plan();
    keyed.auth = RestAuth::Query { name: "api_key".to_owned(), value: "${env:K}".to_owned() };
    for (operation, q, want) in [
        (&whole, "x=1&api_key=evil", "x=1&api_key=k3y"),
        (&whole, "api%5Fkey=evil&x=1", "x=1&api_key=k3y"),
        (&whole, "x=1;api_key=evil", "x=1&api_key=k3y"),
        (&whole, "x=api_key", "x=api_key&api_key=k3y"),
        (&reserved, "a;api_key=evil", "q=a;api_key%3Devil&api_key=k3y"),
    ] {
        let mut document = get(operation.clone());
        document["openapi"] = "3.2.0".into();
        let (api, settings) = load(document, &keyed);
        let request = built_with(&api, &settings, &json!({"q": q}), &[]).unwrap();
        assert_eq!(request.url.query(), Some(want), "{q}");
    }
    let cookies = json!({"parameters": [
        {"name": "c", "in": "cookie", "schema": {"type": "string"}},
        {"name": "o", "in": "cookie", "explode": true, "schema": {"type": "object"}}]});
    let mut own = plan();
    own.headers.insert("Cookie".to_owned(), "sess=${env:K}; b=1&2".to_owned());
    for (arguments, want) in [
        (json!({}), "sess=k3y; b=1&2"),
        (json!({"c": "x"}), "sess=k3y; b=1&2; c=x"),
        (json!({"o": {"sess": "evil", "d": "y"}}), "sess=k3y; b=1&2; d=y"),
    ] {
        let (api, settings) = load(get(cookies.clone()), &own);
        let request = built_with(&api, &settings, &arguments, &[]).unwrap();
        assert!(request.headers.contains(&("cookie".to_owned(), want.to_owned())), "{arguments} {:?}", request.headers);
    }
}

#[test]
fn a_credential_in_a_header_of_the_document_stays_beside_cookies_and_out_of_the_connection() {
    let of = |header: &str| {
        let mut document = get(json!({"parameters": [{"name": "c", "in": "cookie", "schema": {"type": "string"}}]}));
        document["components"] =
            json!({"securitySchemes": {"Key": {"type": "apiKey", "in": "header", "name": header}}});
        document["security"] = json!([{"Key": []}]);
        let mut plan = plan();
        plan.auth = RestAuth::Schemes([("Key".to_owned(), Credential::Value("sid=k; n=1".to_owned()))].into());
        let (api, settings) = load(document, &plan);
        built_with(&api, &settings, &json!({"c": "x"}), &[])
    };
    assert!(of("Cookie").unwrap().headers.contains(&("cookie".to_owned(), "c=x; sid=k; n=1".to_owned())));
    for header in ["Host", "transfer-encoding"] {
        assert_eq!(of(header).unwrap_err().code, "auth_failed", "{header}");
    }
}

#[test]
fn values_put_together_make_no_dot_segment_either() {
    let parameter = |name: &str| json!({"name": name, "in": "path", "required": true, "schema": {"type": "string"}});
    let (api, settings) =
        load(document("/p/{a}{b}", "get", json!({"parameters": [parameter("a"), parameter("b")]})), &plan());
    for (a, b, good) in [("%2e%2", "e", false), ("%", "2e", false), (".", ".", false), ("a", "b", true)] {
        assert_eq!(built_with(&api, &settings, &json!({"a": a, "b": b}), &[]).is_ok(), good, "{a} {b}");
    }
}

#[test]
fn the_key_of_a_call_is_sent_where_the_pack_says_so() {
    let of = |patterns: &[&str]| {
        let mut plan = plan();
        plan.idempotency_key = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        let (api, settings) = load(document("/a", "post", json!({})), &plan);
        let request = built_with(&api, &settings, &json!({}), &[]).unwrap();
        request.headers.into_iter().find(|(name, _)| name == "idempotency-key").map(|(_, value)| value)
    };
    for (patterns, want) in
        [(&["POST *"][..], Some("call-1")), (&["*"], Some("call-1")), (&["PUT *"], None), (&[], None)]
    {
        assert_eq!(of(patterns).as_deref(), want, "{patterns:?}");
    }
}

#[test]
fn arguments_that_do_not_fit_are_named() {
    let operation = json!({"parameters": [{"name": "count", "in": "query", "schema": {"type": "integer"}}, {"name": "X-H", "in": "header"}]});
    let (api, settings) = load(get(operation), &plan());
    for (arguments, want) in [
        (json!({"count": "many"}), "arguments/count"),
        (json!({"conut": 1}), "there is no argument 'conut', did you mean count?; known: count, X-H"),
        (json!([1]), "the arguments are no object"),
        (json!({"X-H": "a\u{0}"}), "'X-H' holds characters that no header can carry"),
        (json!({"X-H": "ä"}), "'X-H' holds characters that no header can carry"),
    ] {
        let fault = built_with(&api, &settings, &arguments, &[]).unwrap_err();
        assert!(fault.code == "invalid_argument" && fault.message.contains(want), "{}", fault.message);
    }
    let request = built_with(&api, &settings, &json!({"count": "3"}), &[]).unwrap();
    assert_eq!(request.url.query(), Some("count=3"), "a text that can only mean a number");
    assert!(built_with(&api, &settings, &Value::Null, &[]).is_ok());
}

//! Who gets in, from where, and what the door says.

use std::collections::BTreeSet;

use axum::routing::MethodFilter;
use serde_json::Value;

use super::super::handlers::OPENAPI;
use super::super::routes::ROUTES;
use super::in_world;

fn word(method: MethodFilter) -> &'static str {
    if method == MethodFilter::GET { "GET" } else { "POST" }
}

fn concrete(path: &str) -> String {
    path.replace("{id}", "x_1").replace("{name}", "now")
}

#[test]
fn a_route_is_open_to_its_scope_and_to_nobody_else() {
    in_world(async |world| {
        for route in ROUTES {
            let (method, path) = (word(route.method), concrete(route.path));
            if path == "/api/v1/events" {
                continue;
            }
            let scopes: &[&str] = match path.as_str() {
                "/healthz" | "/readyz" => &["none", "wrong", "foot", "api", "admin"],
                "/metrics" => &["api", "admin"],
                "/ws" => &["foot"],
                _ => &["api"],
            };
            for (scope, token) in [
                ("none", None),
                ("wrong", Some(crate::tokens::Token::generate().unwrap())),
                ("foot", Some(world.foot.clone())),
                ("api", Some(world.other.clone())),
                ("admin", Some(world.admin.clone())),
            ] {
                let request = world.anyone(method, &path);
                let reply = match &token {
                    Some(token) => request.token(token).send().await,
                    None => request.send().await,
                };
                let said = reply.said();
                let what = format!("{method} {path} with {scope}: {said}");
                if scopes.contains(&scope) {
                    assert!(reply.status != 401 && reply.status != 403, "{what}");
                } else if matches!(scope, "none" | "wrong") {
                    assert_eq!(said, "401 unauthorized", "{what}");
                    assert!(reply.head.contains("www-authenticate: bearer"), "{}", reply.head);
                } else {
                    assert_eq!(said, "403 forbidden", "{what}");
                    assert!(reply.message().contains("scope"), "{}", reply.message());
                }
            }
        }
        let reply = world.anyone("GET", "/api/v1/events").token(&world.foot).send().await;
        assert_eq!(reply.said(), "403 forbidden");
        assert_eq!(world.anyone("GET", "/nothing").send().await.said(), "401 unauthorized");
        let basic = world.anyone("GET", "/api/v1/tasks").header("Authorization", "Basic abc").send().await;
        assert_eq!(basic.said(), "401 unauthorized");
        let twice = world.ask("GET", "/api/v1/tasks").token(&world.other).send().await;
        assert_eq!(twice.said(), "401 unauthorized", "two tokens are none");
    });
}

#[test]
fn a_foreign_page_gets_nothing_on_any_route() {
    in_world(async |world| {
        let port = world.addr.port();
        let paths = ROUTES.iter().map(|r| (word(r.method), concrete(r.path))).chain([("GET", "/nothing".to_owned())]);
        for (method, path) in paths {
            let foreign = world.ask(method, &path).host(Some("evil.com")).send().await;
            assert_eq!(foreign.said(), "403 host_not_allowed", "{path}");
            let page = world.ask(method, &path).header("Origin", "https://evil.com").send().await;
            assert_eq!(page.said(), "403 origin_not_allowed", "{path}");
        }
        for (host, status) in [
            (format!("127.0.0.1:{port}"), 200),
            (format!("localhost:{port}"), 200),
            ("brain.example.com".to_owned(), 200),
            (format!("127.evil.com:{port}"), 403),
            (format!("localhost:{port}@evil.com"), 403),
            // Behind a tunnel the port is another.
            ("127.0.0.1:1".to_owned(), 200),
        ] {
            assert_eq!(world.ask("GET", "/healthz").host(Some(&host)).send().await.status, status, "{host}");
        }
        assert_eq!(world.ask("GET", "/healthz").host(None).send().await.status, 403);
        let twice = world.ask("GET", "/healthz").header("Host", "evil.com").send().await;
        assert_eq!(twice.said(), "400 bad_header");
        let absolute = world.ask("GET", "http://evil.com/healthz").send().await;
        assert_eq!(absolute.said(), "403 host_not_allowed");
        let own = format!("http://localhost:{port}");
        assert_eq!(world.ask("GET", "/healthz").header("Origin", &own).send().await.status, 200);
    });
}

#[test]
fn what_is_wrong_is_said_in_one_shape() {
    in_world(async |world| {
        let unknown = world.ask("GET", "/api/v2/\u{1b}").send().await;
        assert_eq!(unknown.status, 400, "hyper refuses what is no path");
        let unknown = world.ask("GET", "/api/v2/tasks").send().await;
        assert_eq!(unknown.said(), "404 not_found");
        assert!(unknown.message().contains("'/api/v2/tasks'"), "{}", unknown.message());
        for (method, path, allow) in [
            ("PUT", "/api/v1/tasks", &["get", "post"][..]),
            ("GET", "/api/v1/tasks/x/cancel", &["post"]),
            ("DELETE", "/api/v1/sessions", &["get"]),
            ("POST", "/healthz", &["get"]),
        ] {
            let reply = world.ask(method, path).send().await;
            assert_eq!(reply.said(), "405 method_not_allowed", "{method} {path}");
            let allowed = reply.head.lines().find_map(|l| l.strip_prefix("allow: ")).unwrap_or_default().to_owned();
            assert!(allow.iter().all(|m| allowed.contains(m)), "{method} {path}: {allowed}");
        }
        for (path, part) in [
            ("/api/v1/tasks?sate=blocked", "did you mean `state`"),
            ("/api/v1/tasks?state=sleeping", "`state` is one of"),
            ("/api/v1/tasks?limit=0", "`limit`"),
            ("/api/v1/tasks?state=failed&state=failed", "twice"),
            ("/api/v1/sessions?x=1", "takes none"),
            ("/api/v1/events?after=soon", "whole number"),
        ] {
            let reply = world.ask("GET", path).send().await;
            assert_eq!(reply.said(), "400 bad_query", "{path}");
            assert!(reply.message().contains(part), "{path}: {}", reply.message());
        }
        let path = "/api/v1/tools/now/call";
        for (body, part) in [
            (&b"{\n\"argumens\": {}}"[..], "request body:2: "),
            (b"{\n\n\"timeout\": \"soon\"}", "request body:3: "),
            (b"{\n\"a\xff\"}", "request body:2: the body is not UTF-8"),
            (b"[", "request body:1: "),
        ] {
            let reply = world.ask("POST", path).body(body).send().await;
            assert_eq!(reply.said(), "400 bad_request");
            assert!(reply.message().contains(part), "{}", reply.message());
            assert!(reply.json()["error"]["problems"][0]["line"].is_u64(), "{}", reply.json());
        }
        let verdict =
            world.ask("POST", "/api/v1/tasks/x/resolve").body("{\"as\": \"maybe\",\n\"outptu\": 1}").send().await;
        assert_eq!(verdict.json()["error"]["problems"].as_array().map(Vec::len), Some(2), "{}", verdict.message());
        let reply = world.ask("POST", "/api/v1/tasks").header("Vance-Client", "a b").body("tasks: []").send().await;
        assert_eq!(reply.said(), "400 bad_header");
    });
}

#[test]
fn what_is_too_large_is_an_answer() {
    in_world(async |world| {
        let sent = world.ask("POST", "/api/v1/tasks").body(vec![b' '; 5 * 1024 * 1024]).send().await;
        assert_eq!(sent.said(), "413 too_large");
        let announced = world.ask("POST", "/api/v1/tasks").header("Content-Length", "99999999999").send().await;
        assert_eq!(announced.said(), "413 too_large");
        let asks =
            world.ask("POST", "/api/v1/tasks").header("Expect", "100-continue").header("Content-Length", "5000000");
        assert_eq!(asks.send().await.said(), "413 too_large");
        let header = world.ask("GET", "/healthz").header("X-Big", &"x".repeat(40 * 1024)).send().await;
        assert_eq!(header.status, 431);
        let many = (0..200).fold(world.ask("GET", "/healthz"), |r, i| r.header(&format!("X-{i}"), "1")).send().await;
        assert_eq!(many.status, 431);
    });
}

#[test]
fn guessing_tokens_costs_others_nothing() {
    in_world(async |world| {
        let guesses = (0..300).map(|_| world.anyone("GET", "/api/v1/tasks").send());
        let (guesses, known) = tokio::join!(
            futures_util::future::join_all(guesses),
            futures_util::future::join_all((0..20).map(|_| world.ask("GET", "/api/v1/tasks").send()))
        );
        assert!(guesses.iter().all(|r| ["429 busy", "401 unauthorized"].contains(&r.said().as_str())));
        assert!(known.iter().all(|r| r.status == 200));
    });
}

#[test]
fn health_is_open_and_says_little_to_strangers() {
    in_world(async |world| {
        let health = world.anyone("GET", "/healthz").send().await;
        assert_eq!(health.json(), serde_json::json!({"status": "ok"}));
        assert_eq!(world.anyone("HEAD", "/healthz").send().await.status, 200);
        let ready = world.anyone("GET", "/readyz").send().await;
        assert_eq!(ready.json(), serde_json::json!({"status": "ready"}));
        let known = world.ask("GET", "/readyz").send().await.json();
        assert_eq!(known["details"]["store"], "ok", "{known}");
        let metrics = world.anyone("GET", "/metrics").token(&world.admin).send().await;
        assert!(metrics.head.contains("content-type: text/plain"), "{}", metrics.head);
    });
}

#[test]
fn the_description_and_the_router_name_the_same_routes() {
    let doc: Value = serde_json::from_str(OPENAPI).unwrap();
    let paths = doc["paths"].as_object().unwrap();
    let methods = |item: &Value| item.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    let described: BTreeSet<String> =
        paths.iter().flat_map(|(path, item)| methods(item).into_iter().map(move |m| format!("{m} {path}"))).collect();
    let served: BTreeSet<String> =
        ROUTES.iter().map(|r| format!("{} {}", word(r.method).to_lowercase(), r.path)).collect();
    assert_eq!(described, served);
    assert_eq!(doc["openapi"], "3.1.0");
    assert_eq!(doc["info"]["version"], env!("CARGO_PKG_VERSION"));
}

#[test]
fn the_description_holds_the_contracts_shapes_and_no_loose_end() {
    let doc: Value = serde_json::from_str(OPENAPI).unwrap();
    for (schema, fields) in [
        ("Submitted", "tree_id session_id tasks"),
        (
            "Task",
            "task_id id tree_id session_id parent goal state blocked_reason skip_reason error output created_at updated_at calls",
        ),
        ("Call", "call_id tool route client_id machine attempts outcome trace_id started_at ended_at"),
        ("ToolResult", "text structured content"),
        ("SessionTool", "name location available unavailable_reason labels replay clients input_schema output_schema"),
        ("CallRequest", "arguments session client execution_target timeout durable"),
        ("CallAnswer", "call result"),
        ("Error", "error"),
        ("Event", "seq kind at task_id id tree_id session_id state reason"),
    ] {
        for field in fields.split(' ') {
            assert!(doc["components"]["schemas"][schema]["properties"].get(field).is_some(), "{schema}.{field}");
        }
    }
    let mut references = Vec::new();
    collect(&doc, &mut references);
    for reference in &references {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(doc.pointer(pointer).is_some(), "{reference}");
    }
    assert!(references.len() > 50);
}

fn collect(value: &Value, references: &mut Vec<String>) {
    if let Some(reference) = value.get("$ref").and_then(Value::as_str) {
        references.push(reference.to_owned());
    }
    let inside: Vec<&Value> = match value {
        Value::Object(map) => map.values().collect(),
        Value::Array(items) => items.iter().collect(),
        _ => Vec::new(),
    };
    inside.into_iter().for_each(|value| collect(value, references));
}

#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::UNIX_EPOCH;

use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use vance_brain_core::config::{Secret, WebSearch, WebSearchKind};
use vance_shared::call::Fault;

use super::*;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(30);

type Asked = HashMap<String, String>;

/// Requests that reached the server.
#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

async fn serve(router: Router) -> String {
    // Another test may have been first.
    drop(rustls::crypto::ring::default_provider().install_default());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    format!("http://{address}")
}

fn json_answer(value: Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

fn endless() -> Body {
    let chunk = vec![b'x'; 64 * 1024];
    Body::from_stream(futures_util::stream::repeat_with(move || Ok::<_, std::io::Error>(chunk.clone())))
}

/// Faults that any provider may have, chosen by the query.
async fn fault(query: &str) -> Option<Response> {
    Some(match query {
        "limited" => (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, "7")], "slow down").into_response(),
        "broken" => (StatusCode::INTERNAL_SERVER_ERROR, "Traceback \u{1b}[2J").into_response(),
        "html" => ([(header::CONTENT_TYPE, "text/html")], "<html>Welcome</html>").into_response(),
        "slow" => std::future::pending().await,
        "endless" => endless().into_response(),
        "denied" => (StatusCode::FORBIDDEN, "no").into_response(),
        "away" => (StatusCode::FOUND, [(header::LOCATION, "http://127.0.0.1:1/steal")]).into_response(),
        _ => return None,
    })
}

async fn searxng(Query(asked): Query<Asked>) -> Response {
    let query = asked["q"].clone();
    if let Some(response) = fault(&query).await {
        return response;
    }
    assert_eq!(asked["format"], "json");
    let hit = |n: usize| {
        json!({"url": format!("https://example.org/{n}"), "title": format!("Hit {n} &amp; more"), "content": format!("about {query}"),
            "engine": "duckduckgo", "score": 1.0, "category": "general", "publishedDate": null})
    };
    let mut results: Vec<Value> = if query == "nothing" { vec![] } else { (1..=25).map(hit).collect() };
    if let Some(language) = asked.get("language") {
        results = vec![json!({"url": "https://example.org", "title": language, "content": null})];
    }
    json_answer(
        json!({"query": query, "number_of_results": 0, "results": results, "answers": [], "suggestions": [], "unresponsive_engines": []}),
    )
}

async fn brave(headers: HeaderMap, Query(asked): Query<Asked>) -> Response {
    let query = asked["q"].as_str();
    if headers.get("x-subscription-token").is_none_or(|token| token != "key-1") {
        let error = json!({"type": "ErrorResponse", "error": {"code": "SUBSCRIPTION_TOKEN_INVALID", "status": 422}});
        return (StatusCode::UNPROCESSABLE_ENTITY, error.to_string()).into_response();
    }
    if let Some(response) = fault(query).await {
        return response;
    }
    if query == "nothing" {
        return json_answer(json!({"type": "search", "query": {"original": query}}));
    }
    let hit = |n: usize| {
        json!({"type": "search_result", "title": format!("Hit {n}"), "url": format!("https://example.org/{n}"),
            "description": format!("<strong>{query}</strong> it&#x27;s &lt;here&gt;"), "language": "en"})
    };
    let count: usize = asked["count"].parse().unwrap();
    let results: Vec<Value> = (1..=count).map(hit).collect();
    json_answer(json!({"type": "search", "query": {"original": query}, "web": {"type": "search", "results": results}}))
}

async fn providers() -> String {
    serve(Router::new().route("/search", get(searxng)).route("/res/v1/web/search", get(brave))).await
}

fn api_key(key: &str) -> ApiKey {
    let key = key.to_owned();
    ApiKey::new(move || Ok(key.clone()))
}

fn search_of(kind: WebSearchKind, base: &str, key: Option<&str>) -> Builtins {
    let web_search = Some(SearchProvider { kind, base_url: Some(base.to_owned()), api_key: key.map(api_key) });
    Builtins::new(BuiltinConfig { web_search, http_fetch_allow_private: false })
}

async fn call_within(builtins: &Builtins, tool: &str, arguments: Value, timeout: Duration) -> Outcome {
    let (tool, arguments) = (tool.to_owned(), Raw::from(arguments));
    builtins.call(BuiltinCall { tool, arguments, timeout, cancel: CancellationToken::new(), context: None }).await
}

async fn call(builtins: &Builtins, tool: &str, arguments: Value) -> Outcome {
    call_within(builtins, tool, arguments, PATIENCE).await
}

fn done(outcome: Outcome) -> ToolResult {
    match outcome {
        Outcome::Done(result) => result,
        other => panic!("{other:?}"),
    }
}

fn structured(outcome: Outcome) -> Value {
    done(outcome).structured.unwrap().value()
}

fn failure(outcome: Outcome) -> Fault {
    match outcome {
        Outcome::Failed { error, .. } => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_tool_is_described_and_may_run_twice() {
    let specs = Builtins::new(BuiltinConfig::default()).specs();
    let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    assert_eq!(names, ["web_search", "http_fetch", "task_note", "now"]);
    for spec in specs {
        assert!(spec.labels.contains(&"built_in".to_owned()) && spec.labels.contains(&"read-only".to_owned()));
        assert_eq!(spec.replay, Replay::Safe);
        assert_eq!(spec.input_schema.value()["type"], "object");
        for schema in [&spec.input_schema, spec.output_schema.as_ref().unwrap()] {
            assert!(
                vance_shared::schema::check_arguments(schema, &json!([])).is_err(),
                "{}: a broken schema",
                spec.name
            );
        }
    }
}

#[tokio::test]
async fn results_of_both_providers_look_the_same() {
    let base = providers().await;
    let both = [
        search_of(WebSearchKind::Searxng, &format!("{base}/"), None),
        search_of(WebSearchKind::Brave, &base, Some("key-1")),
    ];
    let hits = |answer: &Value| answer["results"].as_array().unwrap().len();
    for (builtins, title, snippet) in
        [(&both[0], "Hit 2 & more", "about rust & co?"), (&both[1], "Hit 2", "rust & co? it's <here>")]
    {
        let answer = structured(call(builtins, "web_search", json!({"query": "rust & co?", "count": 3})).await);
        assert_eq!(hits(&answer), 3);
        assert_eq!(answer["results"][1], json!({"title": title, "url": "https://example.org/2", "snippet": snippet}));
        assert_eq!(hits(&structured(call(builtins, "web_search", json!({"query": "x"})).await)), 10);
        assert_eq!(structured(call(builtins, "web_search", json!({"query": "nothing"})).await), json!({"results": []}));
    }
    let answer = structured(call(&both[0], "web_search", json!({"query": "x", "language": "de"})).await);
    assert_eq!(answer["results"], json!([{"title": "de", "url": "https://example.org", "snippet": ""}]));
}

#[tokio::test]
async fn a_providers_faults_are_answers() {
    let base = providers().await;
    let (searxng, brave) =
        (search_of(WebSearchKind::Searxng, &base, None), search_of(WebSearchKind::Brave, &base, Some("key-1")));
    for (query, code, says) in [
        ("limited", "rate_limited", "try again after 7 s"),
        ("broken", "upstream_error", "answered 500: 'Traceback \\x1b[2J'"),
        ("html", "upstream_error", "'<html>Welcome</html>'): is base_url right?"),
        ("endless", "upstream_error", "over 2097152 bytes"),
        ("denied", "not_configured", "answered 403"),
        ("away", "upstream_error", "answered 302"),
    ] {
        for builtins in [&searxng, &brave] {
            let fault = failure(call(builtins, "web_search", json!({"query": query})).await);
            assert_eq!(fault.code, code, "{query}: {fault:?}");
            assert!(fault.message.contains(says), "{query}: {fault:?}");
        }
    }
    let fault = failure(call_within(&brave, "web_search", json!({"query": "slow"}), Duration::from_millis(50)).await);
    assert_eq!((fault.code.as_str(), fault.message.as_str()), ("timeout", "web_search gave no answer within 50 ms"));
    let fault =
        failure(call(&search_of(WebSearchKind::Brave, &base, Some("old")), "web_search", json!({"query": "x"})).await);
    assert!(fault.code == "not_configured" && fault.message.contains("web_search.api_key"), "{fault:?}");
    assert!(!fault.message.contains("old"), "{fault:?}");
    let fault = failure(
        call(&search_of(WebSearchKind::Searxng, "http://127.0.0.1:1", None), "web_search", json!({"query": "hush"}))
            .await,
    );
    for part in ["refused", "http://127.0.0.1:1 ", "web_search.base_url"] {
        assert!(fault.code == "upstream_error" && fault.message.contains(part), "{fault:?}");
    }
    assert!(!fault.message.contains("hush"), "{fault:?}");
}

#[tokio::test]
async fn without_a_provider_the_call_says_what_to_write() {
    let fault = failure(call(&Builtins::new(BuiltinConfig::default()), "web_search", json!({"query": "x"})).await);
    assert_eq!(fault.code, "not_configured");
    for line in ["web_search: {kind: searxng, base_url: ", "web_search: {kind: brave, api_key: "] {
        assert!(fault.message.contains(line), "{}", fault.message);
    }
}

#[test]
fn the_configurations_credential_is_looked_up_at_each_call_and_never_shown() {
    let of = |key: &str| BrainConfig {
        web_search: Some(WebSearch {
            kind: WebSearchKind::Brave,
            base_url: None,
            api_key: Some(Secret::parse(key).unwrap()),
        }),
        ..BrainConfig::default()
    };
    let lookup = |name: &str| (name == "KEY").then(|| "hush".to_owned());
    let none = |name: &str| Err(format!("the secret {name} is not set"));
    let config = BuiltinConfig::of(&of("${env:KEY}"), lookup, none);
    let key = |config: &BuiltinConfig| config.web_search.as_ref().unwrap().api_key.as_ref().unwrap().get();
    assert_eq!(key(&config).as_deref(), Ok("hush"));
    assert!(!format!("{config:?}").contains("hush"));
    let secret = key(&BuiltinConfig::of(&of("{{secret:KEY}}"), lookup, none)).unwrap_err();
    assert_eq!(secret, "brain.yaml: web_search.api_key: the secret KEY is not set");
    let error = key(&BuiltinConfig::of(&of("${env:OTHER}"), lookup, none)).unwrap_err();
    assert_eq!(error, "brain.yaml: web_search.api_key: environment variable OTHER is not set");
    // Set anew, and used from then on.
    let count = std::sync::atomic::AtomicU32::new(0);
    let next = move |_: &str| Ok(count.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string());
    let config = BuiltinConfig::of(&of("{{secret:KEY}}"), lookup, next);
    assert_eq!((key(&config).unwrap(), key(&config).unwrap()), ("0".to_owned(), "1".to_owned()));
}

#[tokio::test]
async fn arguments_are_checked_before_anything_runs() {
    let builtins = Builtins::new(BuiltinConfig::default());
    for (tool, arguments, says) in [
        ("web_search", json!({}), "query"),
        ("web_search", json!({"query": "x", "count": 0}), "count"),
        ("web_search", json!({"query": "x", "cuont": 1}), "cuont"),
        ("web_search", json!("x"), "arguments"),
        ("http_fetch", json!({"url": 7}), "arguments/url"),
        ("http_fetch", json!({"url": "file:///etc/passwd"}), "http or https"),
        ("http_fetch", json!({"url": "no address"}), "arguments/url"),
        ("http_fetch", json!({"url": "https://me:secret@example.org"}), "user name"),
        ("task_note", json!({"text": ""}), "arguments/text"),
        ("now", json!({"timezone": "Mars"}), "UTC or an offset"),
    ] {
        let fault = failure(call(&builtins, tool, arguments).await);
        assert_eq!(fault.code, "invalid_argument", "{fault:?}");
        assert!(fault.message.contains(says), "{fault:?}");
    }
    assert_eq!(failure(call(&builtins, "rm", json!({})).await).code, "unknown_tool");
}

#[tokio::test]
async fn the_clock_and_the_note() {
    let clock: Clock = Arc::new(|| UNIX_EPOCH + Duration::from_millis(1_709_208_000_123));
    let builtins = Builtins::with_clock(BuiltinConfig::default(), clock);
    assert_eq!(
        structured(call(&builtins, "now", json!({})).await),
        json!({"time": "2024-02-29T12:00:00Z", "utc": "2024-02-29T12:00:00Z", "weekday": "Thursday", "unix_ms": 1_709_208_000_123_i64})
    );
    let there = structured(call(&builtins, "now", json!({"timezone": "+13:00"})).await);
    assert_eq!((&there["time"], &there["weekday"]), (&json!("2024-03-01T01:00:00+13:00"), &json!("Friday")));
    let note = structured(call(&builtins, "task_note", json!({"text": "remember"})).await);
    assert_eq!(note, json!({"noted": true, "text": "remember"}));
}

#[tokio::test]
async fn a_cancel_ends_a_call() {
    let base = providers().await;
    let cancel = CancellationToken::new();
    let (tool, arguments) = ("web_search".to_owned(), Raw::from(json!({"query": "slow"})));
    let call = BuiltinCall { tool, arguments, timeout: PATIENCE, cancel: cancel.clone(), context: None };
    let builtins = search_of(WebSearchKind::Searxng, &base, None);
    let (outcome, ()) = tokio::join!(builtins.call(call), async { cancel.cancel() });
    assert_eq!(outcome.word(), "cancelled");
}

async fn site() -> (String, Count) {
    let count = Count::default();
    let page =
        |kind: &'static str, body: &'static [u8]| get(move || async move { ([(header::CONTENT_TYPE, kind)], body) });
    let to = |to: &'static str| get(move || async move { (StatusCode::FOUND, [(header::LOCATION, to)]) });
    let router = Router::new()
        .route("/html", page("text/html; charset=utf-8", "<p>h\u{e9}</p>".as_bytes()))
        .route("/latin", page("text/plain; charset=ISO-8859-1", b"h\xe9"))
        .route("/json", page("application/problem+json", b"{\"a\":1}"))
        .route("/binary", page("image/png", b"\x89PNG\x00"))
        .route("/half", page("text/plain", "ab\u{e9}".as_bytes()))
        .route("/untyped", get(|| async { Response::new(Body::from("plain")) }))
        .route("/missing", get(|| async { (StatusCode::NOT_FOUND, "no such page") }))
        .route("/endless", get(|| async { ([(header::CONTENT_TYPE, "text/plain")], endless()) }))
        .route("/slow", get(std::future::pending::<String>))
        .route("/redirect", to("/html?from=redirect"))
        .route("/loop", to("/loop"))
        .route("/elsewhere", to("http://example.org/x?token=1"))
        .route("/odd", to("file:///etc/passwd"))
        .route(
            "/counted",
            get(|State(count): State<Count>| async move { count.0.fetch_add(1, Ordering::Relaxed).to_string() }),
        )
        .with_state(count.clone());
    (serve(router).await, count)
}

fn fetcher(allow_private: bool) -> Builtins {
    Builtins::new(BuiltinConfig { web_search: None, http_fetch_allow_private: allow_private })
}

#[tokio::test]
async fn a_page_is_given_by_what_it_is() {
    let (base, _) = site().await;
    let builtins = fetcher(true);
    for (path, text, kind) in [
        ("/html", "<p>h\u{e9}</p>", "text/html; charset=utf-8"),
        ("/latin", "h\u{e9}", "text/plain; charset=ISO-8859-1"),
        ("/json", "{\"a\":1}", "application/problem+json"),
    ] {
        let result = done(call(&builtins, "http_fetch", json!({"url": format!("{base}{path}")})).await);
        assert_eq!(result.joined_text(), text);
        let about = result.structured.unwrap().value();
        assert_eq!(
            (&about["content_type"], &about["status"], &about["truncated"]),
            (&json!(kind), &json!(200), &json!(false))
        );
    }
    let result = done(call(&builtins, "http_fetch", json!({"url": format!("{base}/untyped")})).await);
    assert_eq!(result.joined_text(), "plain");
    let url = format!("{base}/binary");
    let result = done(call(&builtins, "http_fetch", json!({ "url": url })).await);
    let blob = json!([{"type": "resource", "resource": {"uri": url, "mimeType": "image/png", "blob": "iVBORwA="}}]);
    assert_eq!(result.content.value(), blob);
}

#[tokio::test]
async fn a_body_is_cut_at_its_limit_and_between_characters() {
    let (base, _) = site().await;
    let builtins = fetcher(true);
    let result = done(call(&builtins, "http_fetch", json!({"url": format!("{base}/endless")})).await);
    assert_eq!(result.joined_text().len(), 1024 * 1024);
    assert_eq!(result.structured.unwrap().value()["truncated"], json!(true));
    let result = done(call(&builtins, "http_fetch", json!({"url": format!("{base}/half"), "max_bytes": 3})).await);
    assert_eq!(result.joined_text(), "ab");
}

#[tokio::test]
async fn a_bad_status_is_a_failed_call_that_keeps_its_payload() {
    let (base, _) = site().await;
    match call(&fetcher(true), "http_fetch", json!({"url": format!("{base}/missing?key=1")})).await {
        Outcome::Failed { error, result: Some(result) } => {
            assert_eq!(error.code, "http_status");
            assert_eq!(error.message, format!("{base}/missing answered 404 Not Found"));
            assert_eq!(result.joined_text(), "no such page");
        }
        other => panic!("{other:?}"),
    }
    let slow = json!({"url": format!("{base}/slow")});
    assert_eq!(
        failure(call_within(&fetcher(true), "http_fetch", slow, Duration::from_millis(50)).await).code,
        "timeout"
    );
}

#[tokio::test]
async fn redirects_stay_at_their_origin() {
    let (base, _) = site().await;
    let builtins = fetcher(true);
    let fetch = |path: &str| call(&builtins, "http_fetch", json!({"url": format!("{base}{path}")}));
    assert_eq!(structured(fetch("/redirect").await)["url"], json!(format!("{base}/html?from=redirect")));
    for (path, says) in [
        ("/loop", "more than 5 redirects"),
        ("/elsewhere", "another origin: http://example.org/x. Fetch"),
        ("/odd", "'file:///etc/passwd', which is no address to fetch"),
    ] {
        let fault = failure(fetch(path).await);
        assert_eq!(fault.code, "redirect_refused");
        assert!(fault.message.contains(says), "{fault:?}");
    }
}

#[tokio::test]
async fn private_addresses_are_refused_before_anything_is_sent() {
    let (base, count) = site().await;
    let port = base.rsplit(':').next().unwrap();
    let names = ["127.0.0.1", "localhost", "127.1", "[::1]", "[::ffff:127.0.0.1]"];
    for host in names {
        let fault =
            failure(call(&fetcher(false), "http_fetch", json!({"url": format!("http://{host}:{port}/counted")})).await);
        assert_eq!(fault.code, "address_refused", "{host}: {fault:?}");
        assert!(fault.message.contains("http_fetch"), "{fault:?}");
    }
    let metadata = json!({"url": "http://169.254.169.254/latest/meta-data/"});
    assert_eq!(failure(call(&fetcher(false), "http_fetch", metadata).await).code, "address_refused");
    assert_eq!(count.0.load(Ordering::Relaxed), 0);
    let allowed = call(&fetcher(true), "http_fetch", json!({"url": format!("http://localhost:{port}/counted")})).await;
    assert_eq!(done(allowed).joined_text(), "0");
}

#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;

fn shaped(status: u16, content_type: Option<&str>, body: &[u8]) -> (Value, Value, bool) {
    let headers: Vec<(String, String)> =
        content_type.into_iter().map(|said| ("Content-Type".to_owned(), said.to_owned())).collect();
    let result = shape(Answer { status, reason: "Words", headers: &headers, body }, 100);
    (result.content.value(), result.structured.unwrap().value(), result.is_error)
}

#[test]
fn a_body_is_json_text_or_bytes() {
    let text = |text: &str| json!([{"type": "text", "text": text}]);
    for (content_type, body, content, structured) in [
        (
            Some("application/json"),
            &b" {\"n\": 12345678901234567890123}\n"[..],
            text("{\"n\": 12345678901234567890123}"),
            None,
        ),
        (Some("application/problem+json"), b"{}", text("{}"), Some(json!({"status": 200, "body": {}}))),
        (Some("application/json"), b"no json", text("no json"), Some(json!({"status": 200, "body": "no json"}))),
        (None, b"[1]", text("[1]"), Some(json!({"status": 200, "body": [1]}))),
        (None, b"abc", text("abc"), Some(json!({"status": 200, "body": "abc"}))),
        (Some("text/plain; charset=ISO-8859-1"), b"\xe4", text("ä"), Some(json!({"status": 200, "body": "ä"}))),
        (Some("text/csv; charset=utf-16"), b"\xff\xfea\0", text("a"), Some(json!({"status": 200, "body": "a"}))),
        (Some("image/svg+xml"), b"<svg/>", text("<svg/>"), Some(json!({"status": 200, "body": "<svg/>"}))),
        (
            Some("text/plain"),
            b"\xff",
            json!([{"type": "resource", "resource": {"uri": "response:body", "mimeType": "text/plain", "blob": "/w=="}}]),
            Some(json!({"status": 200})),
        ),
        (
            Some("audio/wav"),
            b"\x01",
            json!([{"type": "audio", "mimeType": "audio/wav", "data": "AQ=="}]),
            Some(json!({"status": 200})),
        ),
        (
            None,
            b"a\0",
            json!([{"type": "resource", "resource": {"uri": "response:body", "mimeType": "application/octet-stream", "blob": "YQA="}}]),
            Some(json!({"status": 200})),
        ),
        (Some("text/html"), b"", text("HTTP 200 Words (no content)"), Some(json!({"status": 200}))),
    ] {
        let (got, all, failed) = shaped(200, content_type, body);
        assert_eq!(got, content, "{content_type:?} {body:?}");
        assert!(!failed);
        if let Some(structured) = structured {
            assert_eq!(all, structured, "{content_type:?} {body:?}");
        }
    }
}

#[test]
fn a_refusal_says_its_status_and_keeps_its_body() {
    let (content, structured, failed) = shaped(404, Some("application/json"), b"{\"message\":\"no\"}");
    assert!(failed);
    assert_eq!(
        content,
        json!([{"type": "text", "text": "HTTP 404 Words"}, {"type": "text", "text": "{\"message\":\"no\"}"}])
    );
    assert_eq!(structured, json!({"status": 404, "body": {"message": "no"}}));
    let (content, _, failed) = shaped(302, None, b"");
    assert!(failed);
    assert_eq!(content, json!([{"type": "text", "text": "HTTP 302 Words"}]));
    assert!(!shaped(304, None, b"").2);
}

#[test]
fn what_is_too_long_is_cut_and_says_so() {
    let (content, structured, _) = shaped(200, Some("text/plain"), "ä".repeat(100).as_bytes());
    let shown = content[0]["text"].as_str().unwrap();
    assert!(shown.len() <= 100 && shown.ends_with("more bytes"), "{shown}");
    assert_eq!(structured["truncated"], true);
    let (content, structured, _) = shaped(200, Some("image/png"), &vec![0; MAX_BINARY_BYTES + 1]);
    assert_eq!(content[0]["text"], "image/png, 1048577 bytes: more than the 1048576 that a result holds");
    assert_eq!(structured, json!({"status": 200, "truncated": true}));
}

#[test]
fn headers_that_say_something_are_kept() {
    let names =
        ["Link", "link", "X-RateLimit-Remaining", "ETag", "X-Request-Id", "Set-Cookie", "Server", "Retry-After"];
    let headers: Vec<(String, String)> =
        names.iter().map(|name| ((*name).to_owned(), format!("{name}\u{202e}"))).collect();
    let result = shape(Answer { status: 200, reason: "", headers: &headers, body: b"1" }, 100);
    assert_eq!(
        result.structured.unwrap().value()["headers"],
        json!({"link": "Link, link", "x-ratelimit-remaining": "X-RateLimit-Remaining", "etag": "ETag", "x-request-id": "X-Request-Id", "retry-after": "Retry-After"})
    );
}

#[test]
fn an_answer_of_millions_of_values_says_how_many_are_missing() {
    let zeros = format!("{{\"all\": [{}], \"total\": 2000000}}", vec!["0"; 2_000_000].join(","));
    let (content, structured, _) = shaped(200, Some("application/json"), zeros.as_bytes());
    let shown: Value = serde_json::from_str(content[0]["text"].as_str().unwrap()).unwrap();
    assert_eq!(shown["total"], 2_000_000);
    let all = shown["all"].as_array().unwrap();
    let kept = all.len() - 1;
    assert_eq!(all[kept], format!("… {} more items", 2_000_000 - kept));
    assert_eq!((&structured["body"], &structured["truncated"]), (&shown, &json!(true)));
}

#[test]
fn a_refusal_is_the_status_and_how_the_servers_words_begin() {
    let said = |body: &[u8], media: &str| {
        let headers = [("content-type".to_owned(), media.to_owned())];
        let answer = Answer { status: 404, reason: "Not Found", headers: &headers, body };
        refusal(answer, &shape(answer, 10_000))
    };
    assert_eq!(said(b"", "text/plain"), "HTTP 404 Not Found");
    assert_eq!(
        said(b"{\"error\": \"no such item\"}", "application/json"),
        "HTTP 404 Not Found: {\"error\": \"no such item\"}"
    );
    assert_eq!(said("kein\n  Gerät\u{202e}".as_bytes(), "text/plain; charset=utf-8"), "HTTP 404 Not Found: kein Gerät");
    assert_eq!(said(&[b'x'; 5000], "text/plain").chars().count(), "HTTP 404 Not Found: ".len() + MAX_REFUSAL_CHARS);
}

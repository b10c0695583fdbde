//! OAuth2 tokens of a pack: when the one in hand will do, what to ask for, and what an answer means.

use std::collections::BTreeMap;

use serde_json::Value;
use url::form_urlencoded;
use vance_shared::call::Fault;

use crate::error::Code;
use crate::request::{Payload, Request, TokenNeed, base64};

/// A token is not used in its last minute: the request must still arrive with it.
const SPARE_SECONDS: u64 = 60;
/// Where the server does not say how long.
const USUAL_SECONDS: u64 = 3600;

/// A token in hand.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    /// Goes into `Authorization: Bearer`.
    pub access: String,
    /// Seconds since 1970 from which on it is not used.
    pub until: u64,
    /// A newer refresh token than the pack's, if the server gave one.
    pub refresh: Option<String>,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Token(until {})", self.until)
    }
}

/// Tokens by [`TokenNeed::key`], and who is being asked for. One owner, no lock: the actor that holds it.
#[derive(Debug, Default)]
pub struct Tokens {
    held: BTreeMap<String, Token>,
    asked: BTreeMap<String, ()>,
}

/// What a call that needs a token does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Use it.
    Use(String),
    /// Ask the server; others wait meanwhile.
    Ask,
    /// Somebody asks already: wait for that.
    Wait,
}

impl Tokens {
    /// Decides for one call.
    pub fn decide(&mut self, need: &TokenNeed, now: u64) -> Decision {
        if let Some(token) = self.held.get(&need.key).filter(|token| now < token.until) {
            return Decision::Use(token.access.clone());
        }
        match self.asked.insert(need.key.clone(), ()) {
            Some(()) => Decision::Wait,
            None => Decision::Ask,
        }
    }

    /// Somebody asked, with or without success: who waits decides again (after a failure: fails with the same fault).
    pub fn answered(&mut self, need: &TokenNeed, token: Option<Token>) {
        self.asked.remove(&need.key);
        if let Some(mut token) = token {
            let before = self.held.remove(&need.key);
            token.refresh = token.refresh.or_else(|| before.and_then(|before| before.refresh));
            self.held.insert(need.key.clone(), token);
        }
    }

    /// The token in hand, whether or not it may still be used.
    pub fn held(&self, need: &TokenNeed) -> Option<&str> {
        self.held.get(&need.key).map(|token| token.access.as_str())
    }

    /// The server refused the token (401): it is not used again, its refresh token is.
    pub fn refused(&mut self, need: &TokenNeed, access: &str) {
        if let Some(token) = self.held.get_mut(&need.key).filter(|token| token.access == access) {
            token.until = 0;
        }
    }

    /// The request for a token. `in_body`: the client's secret goes there, for servers that do not take it by `Authorization`.
    pub fn request(&self, need: &TokenNeed, in_body: bool) -> Request {
        let newer = self.held.get(&need.key).and_then(|token| token.refresh.as_ref());
        let refresh = newer.or(need.refresh_token.as_ref());
        let mut form = form_urlencoded::Serializer::new(String::new());
        match refresh {
            Some(refresh) => form.append_pair("grant_type", "refresh_token").append_pair("refresh_token", refresh),
            None => form.append_pair("grant_type", "client_credentials"),
        };
        if !need.scopes.is_empty() {
            form.append_pair("scope", &need.scopes.join(" "));
        }
        let mut headers = vec![
            ("accept".to_owned(), "application/json".to_owned()),
            ("content-type".to_owned(), "application/x-www-form-urlencoded".to_owned()),
        ];
        match &need.client_secret {
            Some(secret) if !in_body => {
                // RFC 6749, 2.3.1: both are form-encoded first.
                let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
                let pair = format!("{}:{}", encode(&need.client_id), encode(secret));
                headers.push(("authorization".to_owned(), format!("Basic {}", base64(pair.as_bytes()))));
            }
            secret => {
                form.append_pair("client_id", &need.client_id);
                if let Some(secret) = secret {
                    form.append_pair("client_secret", secret);
                }
            }
        }
        headers.sort();
        Request { method: "POST".to_owned(), url: need.endpoint.clone(), headers, body: Payload::Text(form.finish()) }
    }
}

/// What the token endpoint's answer means. Its texts are not shown beyond the error's own code.
pub fn read(status: u16, body: &[u8], now: u64) -> Result<Token, Fault> {
    let value: Value = serde_json::from_slice(body).unwrap_or(Value::Null);
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    match text("access_token").filter(|token| !token.is_empty()) {
        Some(access) if (200..300).contains(&status) && !access.bytes().all(|byte| byte.is_ascii_graphic()) => {
            Err(Code::AuthFailed.fault("the token endpoint gave a token with characters that no header can carry"))
        }
        Some(access) if (200..300).contains(&status) => {
            let number = |value: &Value| value.as_u64().or_else(|| value.as_str()?.parse().ok());
            let lasts = value.get("expires_in").and_then(number).unwrap_or(USUAL_SECONDS);
            // A token that lasts less than the spare is used for half of its life.
            let until = now.saturating_add(lasts.saturating_sub(SPARE_SECONDS.min(lasts / 2)));
            Ok(Token { access: access.to_owned(), until, refresh: text("refresh_token").map(str::to_owned) })
        }
        Some(_) | None => {
            let why =
                text("error").map(|error| format!(" ({})", vance_shared::show::quoted(error, 80))).unwrap_or_default();
            Err(Code::AuthFailed
                .fault(format!("the token endpoint answered with HTTP {status}{why} instead of a token")))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn need(refresh: Option<&str>) -> TokenNeed {
        TokenNeed {
            key: "k".to_owned(),
            endpoint: "https://a.example/token".parse().unwrap(),
            client_id: "i:d".to_owned(),
            client_secret: Some("s&".to_owned()),
            scopes: vec!["a".to_owned(), "b".to_owned()],
            refresh_token: refresh.map(str::to_owned),
        }
    }

    #[test]
    fn one_asks_the_others_wait_and_a_token_is_used_until_a_minute_before_its_end() {
        let (mut tokens, need) = (Tokens::default(), need(None));
        assert_eq!(tokens.decide(&need, 0), Decision::Ask);
        assert_eq!(tokens.decide(&need, 0), Decision::Wait);
        tokens.answered(&need, None);
        assert_eq!(tokens.decide(&need, 0), Decision::Ask, "after a failure the next one asks");
        let token = read(200, b"{\"access_token\": \"t\", \"expires_in\": 100}", 1000).unwrap();
        tokens.answered(&need, Some(token));
        assert_eq!(tokens.decide(&need, 1049), Decision::Use("t".to_owned()));
        assert_eq!(tokens.decide(&need, 1050), Decision::Ask, "100 s less 50");
        let long = read(200, b"{\"access_token\": \"t\", \"expires_in\": \"600\"}", 1000).unwrap();
        assert_eq!(long.until, 1540);
        tokens.answered(&need, Some(long));
        tokens.refused(&need, "another");
        assert_eq!(tokens.decide(&need, 1000), Decision::Use("t".to_owned()));
        tokens.refused(&need, "t");
        assert_eq!(tokens.decide(&need, 1000), Decision::Ask);
    }

    #[test]
    fn a_request_shows_the_client_in_one_place() {
        let mut tokens = Tokens::default();
        let text = |request: &Request| match &request.body {
            Payload::Text(text) => text.clone(),
            other => panic!("{other:?}"),
        };
        let request = tokens.request(&need(None), false);
        assert_eq!(text(&request), "grant_type=client_credentials&scope=a+b");
        let want = ("authorization".to_owned(), format!("Basic {}", base64(b"i%3Ad:s%26")));
        assert_eq!(request.headers[1], want);
        let request = tokens.request(&need(Some("r1")), true);
        assert_eq!(
            text(&request),
            "grant_type=refresh_token&refresh_token=r1&scope=a+b&client_id=i%3Ad&client_secret=s%26"
        );
        let token = read(200, b"{\"access_token\": \"t\", \"refresh_token\": \"r2\"}", 0).unwrap();
        tokens.answered(&need(Some("r1")), Some(token));
        assert!(text(&tokens.request(&need(Some("r1")), true)).contains("refresh_token=r2"), "the newer one");
    }

    #[test]
    fn an_answer_without_a_token_is_a_fault_that_shows_no_secret() {
        for (status, body, want) in [
            (400, &b"{\"error\": \"invalid_client\", \"hint\": \"s3cret\"}"[..], "HTTP 400 ('invalid_client')"),
            (200, b"{}", "HTTP 200 instead"),
            (500, b"<html>", "HTTP 500 instead"),
            (200, b"{\"access_token\": \"s3cret\\r\\nX: y\"}", "no header can carry"),
            (401, b"{\"access_token\": \"x\"}", "HTTP 401 instead"),
        ] {
            let fault = read(status, body, 0).unwrap_err();
            assert_eq!(fault.code, "auth_failed");
            assert!(fault.message.contains(want) && !fault.message.contains("s3cret"), "{}", fault.message);
        }
    }
}

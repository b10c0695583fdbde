//! Named tokens: each its own principal, good at once, and gone with all that it opened.

use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;

use super::stream::Reader;
use super::ws::client;
use super::{World, in_world};
use crate::tokens::book::TokenBook;
use crate::tokens::{Scope, Token};

const ALL_BUT_ADMIN: [Scope; 3] = [Scope::Foot, Scope::Api, Scope::Mcp];

impl World {
    fn book(&self) -> TokenBook {
        TokenBook::new(self.dir.path())
    }

    /// As a command does, and then the running Brain.
    fn named(&self, name: &str, scopes: &[Scope]) -> Token {
        let token = self.book().add(name, scopes, "").unwrap();
        assert!(self.book().show(&self.principals));
        token
    }

    fn revoke(&self, name: &str) {
        self.book().revoke(name).unwrap();
        assert!(self.book().show(&self.principals));
    }
}

fn hello(extra: &[(&str, &str)]) -> Value {
    let mut hello = json!({"type": "client_connected", "client_type": "desktop", "available_tools": []});
    for (key, value) in extra {
        hello[*key] = json!(value);
    }
    hello
}

#[test]
fn two_principals_do_not_see_each_other() {
    in_world(async |world| {
        let (alice, bob) = (world.named("alice", &ALL_BUT_ADMIN), world.named("bob", &ALL_BUT_ADMIN));
        let (_foot, welcome) = client(world, &alice, hello(&[("client_id", "foot_a")])).await;
        assert_eq!(welcome["session_id"], "default.alice", "{welcome}");
        let get = async |token: &Token, path: &str| world.anyone("GET", path).token(token).send().await;
        assert_eq!(get(&alice, "/api/v1/sessions/default.alice").await.status, 200);
        for path in ["/api/v1/sessions/default.alice", "/api/v1/sessions/default.alice/tools"] {
            assert_eq!(get(&bob, path).await.said(), "403 forbidden", "{path}");
        }
        let sessions = get(&bob, "/api/v1/sessions").await.json();
        assert_eq!(sessions["sessions"], json!([]), "{sessions}");
        let tree = "tasks: [{id: a, steps: [{call: now, with: {}}]}]";
        let submit = async |token: &Token, path: &str| world.anyone("POST", path).token(token).body(tree).send().await;
        assert_eq!(submit(&bob, "/api/v1/tasks?session=default.alice").await.said(), "403 forbidden");
        let body = r#"{"session": "default.alice"}"#;
        let call = world.anyone("POST", "/api/v1/tools/now/call").token(&bob).body(body).send().await;
        assert_eq!(call.said(), "403 forbidden");
        let submitted = submit(&alice, "/api/v1/tasks").await;
        assert_eq!(submitted.status, 201, "{}", submitted.message());
        let task = submitted.json()["tasks"][0]["task_id"].as_str().unwrap().to_owned();
        assert_eq!(get(&bob, &format!("/api/v1/tasks/{task}")).await.said(), "404 task_not_found");
        let cancel = world.anyone("POST", &format!("/api/v1/tasks/{task}/cancel")).token(&bob).send().await;
        assert_eq!(cancel.said(), "404 task_not_found");
        // Nor over the wire, under the other's session or identity.
        for extra in [("session_id", "default.alice"), ("client_id", "foot_a")] {
            let (mut socket, answer) = client(world, &bob, hello(&[extra])).await;
            assert_eq!((&answer["type"], &answer["code"]), (&json!("error"), &json!("forbidden")), "{answer}");
            assert_eq!(closed(&mut socket).await, 4403);
        }
    });
}

#[test]
fn a_new_token_works_at_once_and_within_its_scopes() {
    in_world(async |world| {
        for (scope, path, status) in [
            (Scope::Api, "/api/v1/tasks", 200),
            (Scope::Foot, "/api/v1/tasks", 403),
            (Scope::Mcp, "/api/v1/tasks", 403),
            (Scope::Admin, "/api/v1/tasks", 403),
            (Scope::Admin, "/metrics", 200),
            (Scope::Foot, "/metrics", 403),
        ] {
            let token = world.named("one", &[scope]);
            let reply = world.anyone("GET", path).token(&token).send().await;
            assert_eq!(reply.status, status, "{} {path}", scope.word());
            if status == 403 {
                let text = reply.message();
                assert!(text.contains("scope") && text.contains(scope.word()), "{text}");
            }
            world.revoke("one");
            assert_eq!(world.anyone("GET", path).token(&token).send().await.said(), "401 unauthorized");
        }
    });
}

#[test]
fn revoking_ends_the_line_and_the_stream_and_nobody_elses() {
    in_world(async |world| {
        let (alice, bob) = (world.named("alice", &ALL_BUT_ADMIN), world.named("bob", &ALL_BUT_ADMIN));
        let (mut hers, _) = client(world, &alice, hello(&[])).await;
        let (mut his, _) = client(world, &bob, hello(&[])).await;
        let events = |token: &Token| {
            let request = world.anyone("GET", "/api/v1/events").token(token);
            Reader::open(request.header("Connection", "close"))
        };
        let (mut her_events, _) = events(&alice).await;
        let (_his_events, _) = events(&bob).await;
        world.revoke("alice");
        assert_eq!(closed(&mut hers).await, 4401);
        assert!(her_events.block().await.is_none(), "the stream ends");
        // With a new token she finds what was hers.
        let again = world.named("alice", &ALL_BUT_ADMIN);
        assert_eq!(world.anyone("GET", "/api/v1/sessions/default.alice").token(&again).send().await.status, 200);
        assert_eq!(world.anyone("GET", "/api/v1/sessions").token(&bob).send().await.status, 200);
        let quiet = timeout(Duration::from_millis(300), his.next()).await;
        assert!(quiet.is_err(), "{quiet:?}");
    });
}

#[test]
fn revoking_ends_the_calls_that_the_token_runs() {
    in_world(async |world| {
        let alice = world.named("alice", &ALL_BUT_ADMIN);
        let mut offers = hello(&[]);
        offers["available_tools"] = json!([{"name": "slow", "type": "client"}]);
        let (mut hers, welcome) = client(world, &alice, offers).await;
        assert_eq!(welcome["type"], "welcome", "{welcome}");
        let request = world.anyone("POST", "/api/v1/tools/slow/call").token(&alice).body(r#"{"timeout": "60s"}"#);
        let call = tokio::spawn(request.send());
        loop {
            let frame = timeout(Duration::from_secs(10), hers.next()).await.expect("the call").unwrap().unwrap();
            if frame.to_text().is_ok_and(|text| text.contains("\"call\"")) {
                break;
            }
        }
        world.revoke("alice");
        let answer = timeout(Duration::from_secs(10), call).await.expect("an answer at once").unwrap();
        assert_eq!(answer.said(), "401 unauthorized", "{}", answer.message());
    });
}

#[test]
fn one_token_cannot_take_all_event_streams() {
    in_world(async |world| {
        let mut hers = Vec::new();
        for _ in 0..crate::http::MAX_OWN_EVENT_STREAMS {
            hers.push(Reader::open(world.anyone("GET", "/api/v1/events").token(&world.other)).await);
        }
        let more = world.anyone("GET", "/api/v1/events").token(&world.other).send().await;
        assert!(more.said() == "429 busy" && more.message().contains("'other'"), "{}", more.message());
        Reader::open(world.ask("GET", "/api/v1/events")).await;
        drop(hers);
        // A place comes back when the Brain has seen that its reader is gone.
        let again = async {
            while world.anyone("GET", "/api/v1/events?after=x").token(&world.other).send().await.status == 429 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(Duration::from_secs(20), again).await.expect("a place");
    });
}

/// The code of the close that comes next.
async fn closed<S>(socket: &mut tokio_tungstenite::WebSocketStream<S>) -> u16
where
    S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin,
{
    loop {
        match timeout(Duration::from_secs(10), socket.next()).await.expect("a close") {
            Some(Ok(Message::Close(Some(close)))) => return close.code.into(),
            Some(Ok(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

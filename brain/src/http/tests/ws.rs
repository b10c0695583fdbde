//! The handshake of the wire.

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use super::client::Request;
use super::{World, in_world};
use crate::tokens::Token;

/// A client of the wire, and the answer to its hello (an error, or a welcome).
pub(super) async fn client(world: &World, token: &Token, hello: Value) -> (WebSocketStream<TcpStream>, Value) {
    let mut request = format!("ws://{}/ws", world.addr).into_client_request().unwrap();
    let bearer = format!("Bearer {}", token.reveal()).parse().unwrap();
    request.headers_mut().insert("Authorization", bearer);
    let stream = TcpStream::connect(world.addr).await.unwrap();
    let (mut socket, response) = tokio_tungstenite::client_async(request, stream).await.unwrap();
    assert_eq!(response.status(), 101);
    socket.send(Message::text(hello.to_string())).await.unwrap();
    let answer = match socket.next().await.unwrap().unwrap() {
        Message::Text(text) => serde_json::from_str(&text).unwrap(),
        other => panic!("{other:?}"),
    };
    (socket, answer)
}

fn handshake(world: &World) -> Request {
    world
        .anyone("GET", "/ws")
        .header("Upgrade", "websocket")
        .header("Sec-WebSocket-Version", "13")
        .header("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
}

#[test]
fn a_handshake_that_is_none_is_refused_with_the_reason() {
    in_world(async |world| {
        let foot = &world.foot;
        let whole = || handshake(world).header("Connection", "keep-alive, Upgrade");
        let part = |names: &[(&str, &str)]| {
            names.iter().fold(world.anyone("GET", "/ws").token(foot), |r, (name, value)| r.header(name, value))
        };
        let (up, con) = (("Upgrade", "websocket"), ("Connection", "Upgrade"));
        let (v13, key) = (("Sec-WebSocket-Version", "13"), ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="));
        for (request, want) in [
            (whole(), "401 unauthorized"),
            (whole().token(&world.other), "403 forbidden"),
            (whole().token(foot).header("Origin", "https://evil.com"), "403 origin_not_allowed"),
            (whole().token(foot).host(Some("evil.com")), "403 host_not_allowed"),
            (part(&[]), "426 upgrade_required"),
            (part(&[con, v13, key]), "426 upgrade_required"),
            (part(&[("Upgrade", "h2c"), con, v13, key]), "426 upgrade_required"),
            (part(&[up, v13, key]), "426 upgrade_required"),
            (part(&[up, con, ("Sec-WebSocket-Version", "8"), key]), "426 upgrade_required"),
            (part(&[up, con, key]), "426 upgrade_required"),
            (part(&[up, con, v13]), "400 bad_handshake"),
            (part(&[up, con, v13, ("Sec-WebSocket-Key", "short")]), "400 bad_handshake"),
            (part(&[up, con, v13, key, key]), "400 bad_header"),
        ] {
            let reply = request.send().await;
            assert_eq!(reply.said(), want);
            if reply.status == 426 {
                assert!(reply.head.contains("sec-websocket-version: 13"), "{}", reply.head);
                assert!(reply.head.contains("upgrade: websocket"), "{}", reply.head);
            }
        }
        assert_eq!(world.anyone("POST", "/ws").token(foot).send().await.status, 405);
    });
}

#[test]
fn a_handshake_opens_the_wire_and_the_first_frame_is_answered() {
    in_world(async |world| {
        let hello = json!({
            "type": "client_connected", "session_id": "sess_1", "client_type": "desktop",
            "available_tools": [{"name": "read_local_file", "type": "client"}],
        });
        let (mut socket, welcome) = client(world, &world.local, hello).await;
        assert_eq!((&welcome["type"], &welcome["session_id"]), (&json!("welcome"), &json!("sess_1")), "{welcome}");
        let session = world.ask("GET", "/api/v1/sessions/sess_1").send().await.json();
        assert_eq!(session["clients"][0]["presence"], "online", "{session}");
        socket.close(None).await.unwrap();
    });
}

//! Old and new releases meet: a common version or a clear message, never a hang. The other release is played by the test, frame by
//! frame, against the real program.

use anyhow::Context as _;
use futures_util::SinkExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use vance_tests::api::Api;
use vance_tests::home::Home;
use vance_tests::process::{Brain, Process};
use vance_tests::socket::Socket;
use vance_tests::wait::{PATIENCE, until};

const OLDER: &str = "this Foot and the Brain have no common protocol version; update the older of the two";

fn hello(protocol: &Value) -> Value {
    json!({"type": "client_connected", "protocol": protocol, "client_id": "foot_a",
           "available_tools": [{"name": "git_status"}]})
}

/// A welcome as this release's Brain writes it, with something else in it.
fn welcome(hello: &Value, other: Value) -> Value {
    let mut welcome = json!({
        "type": "welcome", "session_id": "sess_1", "client_id": hello["client_id"], "epoch": 1, "protocol": 1,
        "heartbeat_ms": 10_000, "inflight": [],
        "limits": {"frame_bytes": 1_048_576, "message_bytes": 8_388_608, "inflight_calls": 64},
    });
    for (key, value) in other.as_object().cloned().unwrap_or_default() {
        welcome[key] = value;
    }
    welcome
}

/// A Foot whose Brain is the test.
fn foot_of(home: &Home, listener: &TcpListener) -> anyhow::Result<Process> {
    let url = format!("http://{}", listener.local_addr()?);
    Process::start_with("vancetope", home, &["--daemon", "--brain", &url], &[("VANCE_TOKEN", "vbt_test")])
}

#[tokio::test]
async fn a_client_of_another_release_gets_the_common_version_or_is_told_both() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    for versions in [json!([1]), json!([0, 1]), json!([3, 2, 1]), json!([]), Value::Null] {
        let mut hello = hello(&versions);
        if versions.is_null() {
            hello.as_object_mut().context("an object")?.remove("protocol");
        }
        let (_socket, welcome) = Socket::hello(brain.addr(), api.token(), &hello).await?;
        assert_eq!(welcome["protocol"], 1, "{versions}: {welcome}");
    }
    for versions in [json!([0]), json!([2]), json!([2, 3])] {
        let mut socket = Socket::connect(brain.addr(), api.token()).await?;
        socket.send(&hello(&versions)).await?;
        let error = socket.next("error").await?;
        let shown = versions.to_string().replace(',', ", ");
        let message = format!("this Brain speaks protocol 1, the client {shown}: use releases that have one in common");
        assert_eq!((&error["code"], &error["message"]), (&json!("no_common_protocol"), &json!(message)));
        let closed = socket.any().await.map_or_else(|e| e.to_string(), |frame| frame.to_string());
        assert_eq!(closed, "closed: 4406");
    }
    Ok(())
}

#[tokio::test]
async fn a_newer_client_that_says_more_than_we_know_is_served() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let mut newer = hello(&json!([2, 1]));
    newer["future"] = json!({"deep": [1, {"x": null}]});
    newer["inflight"] = json!({"running": [], "paused": ["call_x"]});
    newer["available_tools"][0]["cost"] = json!(7);
    newer["available_tools"][0]["type"] = json!("quantum");
    let (mut socket, _) = Socket::hello(brain.addr(), api.token(), &newer).await?;
    let tree = api.submit("tasks:\n- {id: a, steps: [{call: git_status, as: s}]}\n").await?;
    let call = socket.next("call").await?;
    socket.send(&json!({"type": "call_paused", "call_id": call["call_id"]})).await?;
    assert_eq!(socket.next("error").await?["code"], "unknown_type");
    socket
        .send(&json!({"type": "result", "call_id": call["call_id"], "attempt": 1, "cost": 3,
            "outcome": {"done": {"content": [{"type": "text", "text": "clean"}], "cost": 3}}}))
        .await?;
    assert_eq!(tree.until("a", "completed").await?["output"]["s"]["text"], "clean");
    Ok(())
}

#[tokio::test]
async fn a_peer_that_speaks_something_else_is_let_go() -> anyhow::Result<()> {
    let home = Home::new()?;
    let brain = Brain::start(&home).await?;
    let api = Api::new(&home, &brain.url)?;
    let upgrade = |version: &str| {
        format!(
            "GET /ws HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: {version}\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            brain.addr(),
            api.token()
        )
    };
    // The WebSocket of before its standard; another protocol altogether; and one that stays silent after the upgrade.
    let peers = [
        (upgrade("8"), "HTTP/1.1 4"),
        ("SSH-2.0-OpenSSH_9.9\r\n\r\n".to_owned(), "HTTP/1.1 400"),
        (upgrade("13"), "HTTP/1.1 101"),
    ];
    for (said, answer) in peers {
        let mut stream = TcpStream::connect(brain.addr()).await?;
        stream.write_all(said.as_bytes()).await?;
        let mut heard = Vec::new();
        while !heard.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if timeout(PATIENCE, stream.read(&mut byte)).await.context("an answer")?? == 0 {
                break;
            }
            heard.extend(byte);
        }
        let heard = String::from_utf8_lossy(&heard).into_owned();
        assert!(heard.starts_with(answer), "{said:?}: {heard:?}");
        if answer.ends_with("101") {
            let mut rest = Vec::new();
            timeout(PATIENCE, stream.read_to_end(&mut rest)).await.context("it is let go")??;
            assert!(String::from_utf8_lossy(&rest).contains("no client_connected within 5 s"), "{rest:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_foot_says_that_its_brain_is_of_another_release_and_stops_asking() -> anyhow::Result<()> {
    // A Brain that knows how to refuse, and one that goes on in its own version.
    for refuses in [true, false] {
        let home = Home::new()?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut foot = foot_of(&home, &listener)?;
        let (mut brain, hello) = Socket::accept(&listener).await?;
        assert_eq!(hello["protocol"], json!([1]), "{hello}");
        if refuses {
            brain.send(&json!({"type": "error", "code": "no_common_protocol", "message": "I speak 2 only"})).await?;
            let close = CloseFrame { code: 4406.into(), reason: "no_common_protocol".into() };
            brain.0.send(Message::Close(Some(close))).await?;
        } else {
            brain.send(&welcome(&hello, json!({"protocol": 2}))).await?;
        }
        until("the message", || async { Ok(foot.log().contains(OLDER).then_some(())) })
            .await
            .with_context(|| format!("refuses {refuses}: {}", foot.log()))?;
        assert!(!refuses || foot.log().contains("I speak 2 only"), "{}", foot.log());
        // It does not knock again: nothing would be different.
        assert!(timeout(std::time::Duration::from_secs(3), listener.accept()).await.is_err());
        foot.kill9().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_newer_brain_that_says_more_than_we_know_is_understood() -> anyhow::Result<()> {
    let home = Home::new()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let _foot = foot_of(&home, &listener)?;
    let (mut brain, hello) = Socket::accept(&listener).await?;
    let more = json!({"limits": {"frame_bytes": 1_048_576, "message_bytes": 8_388_608, "inflight_calls": 64, "sparks": 9}, "moon": "full"});
    brain.send(&welcome(&hello, more)).await?;
    brain.send(&json!({"type": "please_dance", "tempo": 120})).await?;
    assert_eq!(brain.next("error").await?["code"], "unknown_type");
    brain
        .send(&json!({"type": "call", "call_id": "call_1", "attempt": 1, "tool": "list_local_files", "arguments": {"path": "."},
            "timeout_ms": 20_000, "cap_ms": 20_000, "colour": "blue",
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}))
        .await?;
    let result = brain.next("result").await?;
    assert_eq!(result["call_id"], "call_1", "{result}");
    Ok(())
}

#[tokio::test]
async fn what_answers_in_the_brains_place_is_named_and_the_brain_is_awaited() -> anyhow::Result<()> {
    let home = Home::new()?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let foot = foot_of(&home, &listener)?;
    // A server without the wire.
    let (mut stream, _) = timeout(PATIENCE, listener.accept()).await??;
    stream.write_all(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await?;
    until("the status", || async { Ok(foot.log().contains("HTTP status 404").then_some(())) }).await?;
    // One that takes the hello and says nothing that we understand.
    let (mut brain, _) = Socket::accept(&listener).await?;
    brain.send(&json!({"type": "welcome", "hello": "you"})).await?;
    assert_eq!(brain.next("error").await?["code"], "malformed_frame");
    until("it is named", || async { Ok(foot.log().contains("answer is not understood").then_some(())) }).await?;
    // It is given up after a while, and the true Brain is found.
    let (mut brain, hello) = Socket::accept(&listener).await?;
    brain.send(&welcome(&hello, json!({}))).await?;
    brain.send(&json!({"type": "ping", "nonce": 5})).await?;
    assert_eq!(brain.next("pong").await?["nonce"], 5);
    Ok(())
}

//! A Brain for tests: listens, and says and hears exactly what the story says.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::SocketAddr;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::server::{ErrorResponse, Request, Response};
use tokio_tungstenite::tungstenite::http::StatusCode;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::{WebSocketStream, accept_hdr_async};
use vance_shared::ids::{CallId, ClientId, SessionId};
use vance_shared::json::Raw;
use vance_shared::trace::TraceContext;
use vance_shared::wire::{Call, ClientConnected, Decoded, Limits, ToBrain, ToFoot, Welcome, decode_to_brain, encode};

pub(super) struct Brain {
    listener: TcpListener,
    pub(super) url: String,
}

/// What the upgrade asked for.
#[derive(Default)]
pub(super) struct Asked {
    pub(super) path: String,
    pub(super) authorization: Option<String>,
    pub(super) has_origin: bool,
}

pub(super) struct Line {
    socket: WebSocketStream<TcpStream>,
    pub(super) request: Asked,
    client_id: Option<ClientId>,
}

pub(super) fn id(n: usize) -> CallId {
    CallId::parse(&format!("call_{n}")).unwrap()
}

pub(super) fn call(n: usize, tool: &str) -> Call {
    Call {
        call_id: id(n),
        attempt: 1,
        tool: tool.to_owned(),
        arguments: Raw::empty_object(),
        timeout_ms: 20_000,
        cap_ms: 20_000,
        answer_ms: None,
        traceparent: TraceContext::root(),
    }
}

impl Brain {
    pub(super) async fn listen() -> Self {
        Self::listen_at("127.0.0.1:0".parse().unwrap()).await
    }

    pub(super) async fn listen_at(address: SocketAddr) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        Self { listener, url }
    }

    /// The next connection, before its hello.
    pub(super) async fn accept(&self) -> Line {
        let (tcp, _) = self.listener.accept().await.unwrap();
        tcp.set_nodelay(true).unwrap();
        let mut asked = Asked::default();
        #[allow(clippy::result_large_err)] // the library's own callback shape
        let look = |request: &Request, response: Response| {
            let header = |name: &str| request.headers().get(name).map(|v| v.to_str().unwrap().to_owned());
            asked = Asked {
                path: request.uri().path().to_owned(),
                authorization: header("authorization"),
                has_origin: header("origin").is_some(),
            };
            Ok(response)
        };
        let socket = accept_hdr_async(tcp, look).await.unwrap();
        Line { socket, request: asked, client_id: None }
    }

    /// The next connection, welcomed.
    pub(super) async fn attach(&self) -> Line {
        let mut line = self.accept().await;
        line.hello().await;
        line.welcome(vec![]).await;
        line
    }

    /// Answers the next upgrade with a status.
    pub(super) async fn refuse_one(&self, status: u16) {
        let (tcp, _) = self.listener.accept().await.unwrap();
        #[allow(clippy::result_large_err)] // the library's own callback shape
        let refuse = |_: &Request, _: Response| {
            let mut response = ErrorResponse::new(None);
            *response.status_mut() = StatusCode::from_u16(status).unwrap();
            Err(response)
        };
        accept_hdr_async(tcp, refuse).await.unwrap_err();
    }
}

impl Line {
    pub(super) async fn hello(&mut self) -> ClientConnected {
        let text = self.text().await;
        assert!(text.len() <= vance_shared::limits::HELLO_FRAME_BYTES);
        let Decoded::Frame(ToBrain::ClientConnected(hello)) = decode_to_brain(&text) else {
            panic!("no hello: {text}")
        };
        self.client_id.clone_from(&hello.client_id);
        hello
    }

    pub(super) async fn welcome(&mut self, inflight: Vec<CallId>) {
        let welcome = Welcome {
            session_id: SessionId::parse("sess_1").unwrap(),
            client_id: self.client_id.clone().unwrap(),
            epoch: 1,
            protocol: 1,
            heartbeat_ms: 10_000,
            limits: Limits::default(),
            refused: vec![],
            inflight,
        };
        self.send(ToFoot::Welcome(welcome)).await;
    }

    pub(super) async fn send(&mut self, frame: ToFoot) {
        self.send_text(encode(&frame)).await;
    }

    pub(super) async fn send_text(&mut self, text: String) {
        self.socket.send(Message::text(text)).await.unwrap();
    }

    /// The next frame that is not a ping or news of tools.
    pub(super) async fn next(&mut self) -> ToBrain {
        loop {
            match decode_to_brain(&self.text().await) {
                Decoded::Frame(ToBrain::Ping(_) | ToBrain::ToolsChanged(_)) => {}
                Decoded::Frame(frame) => return frame,
                other => panic!("{other:?}"),
            }
        }
    }

    /// The next frame, whatever it is.
    pub(super) async fn any(&mut self) -> ToBrain {
        match decode_to_brain(&self.text().await) {
            Decoded::Frame(frame) => frame,
            other => panic!("{other:?}"),
        }
    }

    pub(super) async fn until(&mut self, wanted: impl Fn(&ToBrain) -> bool) {
        while !wanted(&self.next().await) {}
    }

    async fn text(&mut self) -> String {
        loop {
            let message = tokio::time::timeout(Duration::from_secs(10), self.socket.next()).await;
            match message.expect("no frame came").expect("the line ended").unwrap() {
                Message::Text(text) => return text.as_str().to_owned(),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    /// The code with which the other end closes the line.
    pub(super) async fn closed(&mut self) -> u16 {
        loop {
            let message = tokio::time::timeout(Duration::from_secs(10), self.socket.next()).await;
            if let Message::Close(close) = message.expect("no close came").expect("the line was cut").unwrap() {
                return close.unwrap().code.into();
            }
        }
    }

    /// Cuts the line without a word.
    pub(super) fn cut(self) {
        drop(self);
    }

    pub(super) async fn close(&mut self, code: u16) {
        let frame = CloseFrame { code: code.into(), reason: "".into() };
        self.socket.close(Some(frame)).await.unwrap();
    }
}

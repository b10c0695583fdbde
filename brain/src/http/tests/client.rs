//! A client that can also say what no client should.

use std::net::SocketAddr;

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::tokens::Token;

pub(super) struct Request {
    addr: SocketAddr,
    head: String,
    host: Option<String>,
    body: Option<Vec<u8>>,
}

#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: Vec<u8>,
}

impl Request {
    pub(super) fn new(addr: SocketAddr, method: &str, path: &str) -> Self {
        Self { addr, head: format!("{method} {path} HTTP/1.1\r\n"), host: Some(addr.to_string()), body: None }
    }

    pub(super) fn token(self, token: &Token) -> Self {
        self.header("Authorization", &format!("Bearer {}", token.reveal()))
    }

    pub(super) fn header(mut self, name: &str, value: &str) -> Self {
        self.head.push_str(&format!("{name}: {value}\r\n"));
        self
    }

    pub(super) fn host(mut self, host: Option<&str>) -> Self {
        self.host = host.map(str::to_owned);
        self
    }

    pub(super) fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Sends it and gives the open connection.
    pub(super) async fn open(self) -> TcpStream {
        let mut head = self.head;
        if let Some(host) = &self.host {
            head.push_str(&format!("Host: {host}\r\n"));
        }
        if let Some(body) = &self.body {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        let mut stream = TcpStream::connect(self.addr).await.unwrap();
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(&self.body.unwrap_or_default()).await.unwrap();
        stream
    }

    /// Sends it and reads the whole answer.
    pub(super) async fn send(self) -> Reply {
        let mut stream = self.header("Connection", "close").open().await;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.unwrap();
        let end = bytes.windows(4).position(|w| w == b"\r\n\r\n").expect("an answer");
        let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head: head.to_ascii_lowercase(), body: bytes[end + 4..].to_vec() }
    }
}

impl Reply {
    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// `STATUS CODE` of an error, `STATUS` of anything else.
    pub(super) fn said(&self) -> String {
        match self.json()["error"]["code"].as_str() {
            Some(code) => format!("{} {code}", self.status),
            None => self.status.to_string(),
        }
    }

    pub(super) fn message(&self) -> String {
        self.json()["error"]["message"].as_str().unwrap_or_default().to_owned()
    }
}

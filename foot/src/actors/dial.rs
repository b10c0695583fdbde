//! How the bytes of a line travel: TCP, or what a simulation puts in its place. TLS and the WebSocket are laid over it.

use std::io;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

/// A connection.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for S {}

/// Opens a connection to a host (a name or an address) and port.
pub type Dial = Arc<dyn Fn(String, u16) -> BoxFuture<'static, io::Result<Box<dyn ByteStream>>> + Send + Sync>;

/// TCP, each frame sent at once.
pub(crate) fn tcp() -> Dial {
    Arc::new(|host, port| {
        Box::pin(async move {
            let stream = TcpStream::connect((host, port)).await?;
            stream.set_nodelay(true)?;
            Ok(Box::new(stream) as Box<dyn ByteStream>)
        })
    })
}

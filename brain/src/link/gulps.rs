//! Reads of a socket: small ones while little comes, large ones in the middle of a large frame. Ten thousand idle sockets may hold
//! small buffers only, and a frame of 64 KiB read through one costs more in system calls than in all the rest.

use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A large read.
const GULP_BYTES: usize = 128 * 1024;

thread_local! {
    /// Where large reads go first: one for all sockets of a thread, empty before the first of them.
    static GULP: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A socket that is read in gulps while more is there.
pub(super) struct Gulps<S> {
    io: S,
    /// Read, and not taken yet; given back as soon as it is.
    rest: Box<[u8]>,
    taken: usize,
    /// The last read filled its buffer: more is there.
    thirsty: bool,
}

impl<S> Gulps<S> {
    pub(super) fn new(io: S) -> Self {
        Self { io, rest: Box::default(), taken: 0, thirsty: false }
    }

    fn pour(&mut self, into: &mut ReadBuf<'_>) {
        let rest = self.rest.get(self.taken..).unwrap_or_default();
        self.taken += put(rest, into);
        if self.taken >= self.rest.len() {
            (self.rest, self.taken) = (Box::default(), 0);
        }
    }
}

/// As much as there is room for.
fn put(bytes: &[u8], into: &mut ReadBuf<'_>) -> usize {
    let fits = bytes.len().min(into.remaining());
    into.put_slice(bytes.get(..fits).unwrap_or_default());
    fits
}

impl<S: AsyncRead + Unpin> AsyncRead for Gulps<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if !this.rest.is_empty() {
            this.pour(into);
            return Poll::Ready(Ok(()));
        }
        if !this.thirsty {
            let room = into.remaining();
            ready!(Pin::new(&mut this.io).poll_read(cx, into))?;
            this.thirsty = into.remaining() == 0 && room > 0;
            return Poll::Ready(Ok(()));
        }
        GULP.with_borrow_mut(|gulp| {
            gulp.resize(GULP_BYTES, 0);
            let mut read = ReadBuf::new(gulp);
            ready!(Pin::new(&mut this.io).poll_read(cx, &mut read))?;
            this.thirsty = read.remaining() == 0;
            let poured = put(read.filled(), into);
            this.rest = read.filled().get(poured..).unwrap_or_default().into();
            Poll::Ready(Ok(()))
        })
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Gulps<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn what_comes_is_what_was_sent_whatever_the_sizes_of_the_reads() {
        let sent: Vec<u8> = (0..700_000u32).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
        let (mut far, near) = tokio::io::duplex(300_000);
        let copy = sent.clone();
        let sending = tokio::spawn(async move { far.write_all(&copy).await });
        let (mut gulps, mut got) = (Gulps::new(near), Vec::new());
        for size in [1, 4096, 4096, 10, 4096, 200_000, 4096].into_iter().cycle() {
            let mut buffer = vec![0; size];
            let read = gulps.read(&mut buffer).await.unwrap();
            got.extend_from_slice(&buffer[..read]);
            if read == 0 {
                break;
            }
        }
        sending.await.unwrap().unwrap();
        assert!(got == sent);
        assert_eq!((gulps.rest.len(), gulps.thirsty), (0, false), "nothing is kept");
    }
}

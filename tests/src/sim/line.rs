//! What may happen to one connection: it is cut, it swallows everything in silence, or it delivers late, while the next
//! connection of the same two hosts is already open.

use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Which end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The Foot's.
    Foot,
    /// The Brain's.
    Brain,
}

#[derive(Debug, Default)]
struct Fate {
    cut: bool,
    swallows: bool,
    /// What arrives from now on waits this long first.
    late: Option<Duration>,
    /// It is cut when so many bytes more are written.
    fuse: Option<usize>,
    waiting: Vec<Waker>,
}

/// What happens to one end.
#[derive(Debug, Clone, Default)]
pub(super) struct Control(Arc<Mutex<Fate>>, Arc<AtomicUsize>);

impl Control {
    fn lock(&self) -> MutexGuard<'_, Fate> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set(&self, change: impl FnOnce(&mut Fate)) {
        let waiting = {
            let mut fate = self.lock();
            change(&mut fate);
            std::mem::take(&mut fate.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// This end hears of an error.
    pub(super) fn cut(&self) {
        self.set(|fate| fate.cut = true);
    }

    /// This end hears nothing any more, and nobody hears it.
    pub(super) fn swallow(&self) {
        self.set(|fate| fate.swallows = true);
    }

    /// This end is cut when it has written so many bytes more: in the middle of what is large.
    pub(super) fn cut_after(&self, bytes: usize) {
        self.set(|fate| fate.fuse = Some(bytes));
    }

    fn wrote(&self, bytes: usize) {
        let mut fate = self.lock();
        let left = fate.fuse.map(|left| left.saturating_sub(bytes));
        fate.fuse = left.filter(|left| *left > 0);
        let burnt = left == Some(0);
        drop(fate);
        if burnt {
            self.1.fetch_add(1, Ordering::Relaxed);
            self.cut();
        }
    }

    /// What arrives at this end is late.
    pub(super) fn delay(&self, by: Duration) {
        self.set(|fate| fate.late = Some(by));
    }
}

/// All ends that are open, by Foot.
#[derive(Debug, Default)]
pub(super) struct Lines(Vec<(usize, End, Weak<Mutex<Fate>>)>, Arc<AtomicUsize>);

impl Lines {
    /// A new end.
    pub(super) fn open(&mut self, foot: usize, end: End) -> Control {
        self.0.retain(|(_, _, fate)| fate.strong_count() > 0);
        let control = Control(Arc::default(), Arc::clone(&self.1));
        self.0.push((foot, end, Arc::downgrade(&control.0)));
        control
    }

    /// Ends that were cut in the middle of what they wrote.
    pub(super) fn cut_in_parts(&self) -> usize {
        self.1.load(Ordering::Relaxed)
    }

    /// The ends of a Foot's connections.
    pub(super) fn of(&self, foot: usize, end: End) -> Vec<Control> {
        let ends = self.0.iter().filter(|(f, e, _)| *f == foot && *e == end);
        ends.filter_map(|(_, _, fate)| Some(Control(fate.upgrade()?, Arc::clone(&self.1)))).collect()
    }
}

/// A connection whose fate is in the simulation's hands.
pub(super) struct Line<S> {
    stream: S,
    control: Control,
    late: Option<Pin<Box<Sleep>>>,
}

impl<S> Line<S> {
    /// Lays the fate over a stream.
    pub(super) fn new(stream: S, control: Control) -> Self {
        Self { stream, control, late: None }
    }

    fn poll_fate(&mut self, cx: &Context<'_>) -> Poll<io::Result<bool>> {
        let mut fate = self.control.lock();
        if fate.cut {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        if !fate.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            fate.waiting.push(cx.waker().clone());
        }
        if let Some(late) = fate.late.take() {
            self.late = Some(Box::pin(sleep(late)));
        }
        Poll::Ready(Ok(fate.swallows))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Line<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.poll_fate(cx) {
            Poll::Ready(Ok(false)) => {}
            Poll::Ready(Ok(true)) | Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
        }
        if let Some(late) = &mut self.late {
            if late.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            self.late = None;
        }
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Line<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.poll_fate(cx) {
            Poll::Ready(Ok(false)) => {
                let wrote = Pin::new(&mut self.stream).poll_write(cx, bytes);
                if let Poll::Ready(Ok(bytes)) = wrote {
                    self.control.wrote(bytes);
                }
                wrote
            }
            Poll::Ready(Ok(true)) => Poll::Ready(Ok(bytes.len())),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

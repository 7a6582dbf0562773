//! The stream of a connection with two time limits: for a head that has begun, and for a reader that takes no byte.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::HttpLimits;
use super::table::{ConnectionPhase, OpenConnection};
use crate::base::metrics::{ConnectionLimit, Metrics};

/// A stream whose reads and writes fail after their time limit.
#[derive(Debug)]
pub(super) struct LimitedStream<S> {
    inner: S,
    connection: Arc<OpenConnection>,
    head: StreamLimit,
    write: StreamLimit,
    /// Start of the time in which the reader takes no byte.
    stalled: Option<Instant>,
    metrics: Arc<Metrics>,
}

/// A time limit of a wait.
#[derive(Debug)]
struct StreamLimit {
    limit: ConnectionLimit,
    time: Duration,
    timer: Option<Pin<Box<Sleep>>>,
}

impl StreamLimit {
    fn new(limit: ConnectionLimit, time: Duration) -> Self {
        Self { limit, time, timer: None }
    }

    /// `Pending` until the time that began at `since` is over, and then an error.
    fn poll_late<T>(&mut self, since: Instant, cx: &mut Context<'_>, metrics: &Metrics) -> Poll<io::Result<T>> {
        let ends = since + self.time;
        let timer = self.timer.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(ends)));
        if timer.deadline() != ends {
            timer.as_mut().reset(ends);
        }
        ready!(timer.as_mut().poll(cx));
        metrics.count_timeout(self.limit);
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S> LimitedStream<S> {
    pub(super) fn new(inner: S, limits: &HttpLimits, connection: Arc<OpenConnection>, metrics: Arc<Metrics>) -> Self {
        Self {
            inner,
            connection,
            head: StreamLimit::new(ConnectionLimit::Head, limits.head_time),
            write: StreamLimit::new(ConnectionLimit::Write, limits.write_time),
            stalled: None,
            metrics,
        }
    }

    fn limit_write<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_pending() {
            let since = *self.stalled.get_or_insert_with(Instant::now);
            return self.write.poll_late(since, cx, &self.metrics);
        }
        self.stalled = None;
        written
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LimitedStream<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        let read = Pin::new(&mut this.inner).poll_read(cx, buf);
        if buf.filled().len() > before {
            this.connection.note_read();
        }
        match this.connection.in_phase_since(ConnectionPhase::Head) {
            Some(since) if read.is_pending() => this.head.poll_late(since, cx, &this.metrics),
            _ => read,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LimitedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.limit_write(cx, written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(cx, bytes);
        self.limit_write(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

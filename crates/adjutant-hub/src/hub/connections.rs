//! The connections to the hub: their maximum number, and how long a connection may take to send a
//! call.
//!
//! ```text
//!  Silent ── head of a call received ──> Busy ── reply ──> Idle ── first byte of the next ──> Silent
//! ```
//! Over HTTP, a connection is also closed when it is idle for too long or reads nothing of a reply.
//!
//! A connection that is silent for too long is closed. At the maximum, a new connection replaces
//! the one that has been unused for longest. If all are busy, the first call on the new connection
//! is refused.

use crate::sock::Stream;
use futures::task::AtomicWaker;
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;
use tokio::time::{Instant, Sleep};

/// How long a connection may take to send the head of a call, counted from its opening or from the
/// first byte.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
/// How many connections beyond the limit get an error; further ones are closed at once.
const REFUSED_MAX: usize = 8;

/// The phase of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Waiting for a call, or for the rest of its head.
    Silent,
    /// This many calls are being served.
    Busy(u32),
    /// All calls have been answered.
    Idle,
}

/// The shared state of one connection.
#[derive(Debug)]
pub(super) struct Line {
    /// The phase, and when it began.
    phase: Mutex<(Phase, Instant)>,
    /// Whether the connection is within the limit. If not, its first call is refused.
    is_admitted: bool,
    closing: AtomicBool,
    reader: AtomicWaker,
    /// Notified when the phase changes.
    changed: Notify,
}

impl Line {
    fn phase(&self) -> MutexGuard<'_, (Phase, Instant)> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether calls on this connection are served: it is within the limit and was not
    /// replaced.
    pub(super) fn has_place(&self) -> bool {
        self.is_admitted && !self.closing.load(Ordering::SeqCst)
    }

    fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.reader.wake();
    }

    /// Marks a call as being served until the returned guard is dropped.
    pub(super) fn call(self: &Arc<Self>) -> Answering {
        let mut phase = self.phase();
        let calls = if let (Phase::Busy(calls), _) = *phase {
            calls
        } else {
            0
        };
        *phase = (Phase::Busy(calls + 1), Instant::now());
        drop(phase);
        self.changed.notify_one();
        Answering(Arc::clone(self))
    }

    /// Returns the number of calls that are being served.
    pub(super) fn open_calls(&self) -> u32 {
        if let (Phase::Busy(calls), _) = *self.phase() {
            calls
        } else {
            0
        }
    }

    /// Waits until the connection takes too long to send a call, or has been idle for `idle_max`.
    pub(super) async fn expired(&self, idle_max: Duration) {
        loop {
            let (phase, since) = *self.phase();
            let end = match phase {
                Phase::Silent => since + HEAD_TIME_MAX,
                Phase::Idle => since + idle_max,
                Phase::Busy(_) => {
                    self.changed.notified().await;
                    continue;
                }
            };
            if end <= Instant::now() {
                return;
            }
            tokio::select! {
                () = tokio::time::sleep_until(end) => {}
                () = self.changed.notified() => {}
            }
        }
    }

    /// Records that bytes have arrived.
    fn record_input(&self) {
        let mut phase = self.phase();
        if phase.0 == Phase::Idle {
            *phase = (Phase::Silent, Instant::now());
            drop(phase);
            self.changed.notify_one();
        }
    }
}

/// A guard for a call that is being served.
#[derive(Debug)]
pub(super) struct Answering(Arc<Line>);

impl Drop for Answering {
    fn drop(&mut self) {
        let mut phase = self.0.phase();
        let now = Instant::now();
        *phase = match phase.0 {
            Phase::Busy(calls) if calls > 1 => (Phase::Busy(calls - 1), now),
            _ => (Phase::Idle, now),
        };
        drop(phase);
        self.0.changed.notify_one();
    }
}

/// All open connections.
#[derive(Debug)]
pub(super) struct Connections {
    open_max: usize,
    /// How long a peer may read nothing while a reply is written. `None`: without a limit.
    write_takes_max: Option<Duration>,
    lines: Mutex<(u64, HashMap<u64, Arc<Line>>)>,
    /// Notified when the number of connections changes.
    changed: Notify,
    opened: Notify,
}

impl Connections {
    pub(super) fn new(open_max: usize) -> Self {
        Self {
            open_max,
            write_takes_max: None,
            lines: Mutex::default(),
            changed: Notify::new(),
            opened: Notify::new(),
        }
    }

    /// Limits how long a peer may read nothing while a reply is written.
    pub(super) fn with_write_limit(self, write_takes_max: Duration) -> Self {
        Self {
            write_takes_max: Some(write_takes_max),
            ..self
        }
    }

    pub(super) fn open_max(&self) -> usize {
        self.open_max
    }

    fn lines(&self) -> MutexGuard<'_, (u64, HashMap<u64, Arc<Line>>)> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a connection. `None`: there are too many even to send a refusal.
    pub(super) fn admit<S>(self: &Arc<Self>, stream: S) -> Option<Guarded<S>> {
        // A phase is locked while `lines` is locked, and never the reverse.
        let mut lines = self.lines();
        let mut is_admitted = lines.1.len() < self.open_max;
        if !is_admitted {
            // The connection that has been unused for longest.
            let unused = |line: &&Arc<Line>| {
                !matches!(line.phase().0, Phase::Busy(_)) && !line.closing.load(Ordering::SeqCst)
            };
            if let Some(line) = lines
                .1
                .values()
                .filter(unused)
                .min_by_key(|line| line.phase().1)
            {
                // It is counted until its task drops it, so one that is closing is not chosen a
                // second time.
                line.close();
                is_admitted = true;
            } else if lines.1.len() >= self.open_max + REFUSED_MAX {
                return None;
            }
        }
        let line = Arc::new(Line {
            phase: Mutex::new((Phase::Silent, Instant::now())),
            is_admitted,
            closing: AtomicBool::new(false),
            reader: AtomicWaker::new(),
            changed: Notify::new(),
        });
        lines.0 += 1;
        let number = lines.0;
        lines.1.insert(number, Arc::clone(&line));
        drop(lines);
        self.changed.notify_one();
        self.opened.notify_one();
        Some(Guarded {
            stream,
            line,
            number,
            stalled: None,
            connections: Arc::clone(self),
        })
    }

    pub(super) fn open(&self) -> usize {
        self.lines().1.len()
    }

    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Closes connections that take too long to send a call.
    pub(super) async fn close_silent(&self) {
        loop {
            let mut next: Option<Instant> = None;
            let now = Instant::now();
            for line in self.lines().1.values() {
                let (phase, since) = *line.phase();
                let end = since + HEAD_TIME_MAX;
                match phase {
                    Phase::Silent if end <= now => line.close(),
                    Phase::Silent => next = Some(next.map_or(end, |next| next.min(end))),
                    Phase::Busy(_) | Phase::Idle => {}
                }
            }
            match next {
                Some(next) => tokio::time::sleep_until(next).await,
                // An idle connection that sends part of a call is checked when the next connection
                // opens.
                None => self.opened.notified().await,
            }
        }
    }
}

/// A connection that is counted and can be closed by others.
#[derive(Debug)]
pub(super) struct Guarded<S = Stream> {
    stream: S,
    line: Arc<Line>,
    number: u64,
    /// Ends when the peer has read nothing for too long.
    stalled: Option<Pin<Box<Sleep>>>,
    connections: Arc<Connections>,
}

impl<S> Guarded<S> {
    pub(super) fn line(&self) -> Arc<Line> {
        Arc::clone(&self.line)
    }

    /// Returns the number of the connection, which no other has.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    pub(super) fn get_ref(&self) -> &S {
        &self.stream
    }

    /// Fails a write that waits for too long.
    fn limited<T>(
        &mut self,
        cx: &mut Context<'_>,
        polled: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        let Some(limit) = self.connections.write_takes_max else {
            return polled;
        };
        if polled.is_ready() {
            self.stalled = None;
            return polled;
        }
        let stalled = self
            .stalled
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        match stalled.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S> Drop for Guarded<S> {
    fn drop(&mut self) {
        self.connections.lines().1.remove(&self.number);
        self.connections.changed.notify_one();
    }
}

impl<S: AsFd> AsFd for Guarded<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if polled.is_ready() {
            if buf.filled().len() > before {
                self.line.record_input();
            }
            return polled;
        }
        // Before the flag is read: `close` sets it before it wakes, so one of the two is noticed.
        self.line.reader.register(cx.waker());
        // Reads as if the peer had closed the connection.
        if self.line.closing.load(Ordering::SeqCst) {
            Poll::Ready(Ok(()))
        } else {
            Poll::Pending
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.limited(cx, polled)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.limited(cx, polled)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    const LIMIT: Duration = Duration::from_millis(50);
    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn idle_connection_expires_and_a_busy_one_does_not() {
        let connections = Arc::new(Connections::new(1));
        let line = connections.admit(()).expect("admitted").line();
        let answering = line.call();
        assert!(
            tokio::time::timeout(2 * LIMIT, line.expired(LIMIT))
                .await
                .is_err(),
            "it is busy"
        );
        drop(answering);
        tokio::time::timeout(LONG, line.expired(LIMIT))
            .await
            .expect("it has been idle for longer");
    }

    #[tokio::test]
    async fn peer_that_reads_nothing_is_disconnected() {
        let connections = Arc::new(Connections::new(1).with_write_limit(LIMIT));
        let (stream, mut peer) = duplex(64);
        let mut stream = connections.admit(stream).expect("admitted");
        let slow = async {
            // Reads on within the limit.
            for _ in 0..4 {
                tokio::time::sleep(LIMIT / 4).await;
                peer.read_exact(&mut [0; 64]).await.expect("bytes");
            }
        };
        let (written, ()) = tokio::join!(stream.write_all(&[0; 256]), slow);
        written.expect("a slow peer that reads is served");
        let stalled = tokio::time::timeout(LONG, stream.write_all(&[0; 256]))
            .await
            .expect("it ends by itself");
        assert_eq!(
            stalled.expect_err("nothing is read").kind(),
            io::ErrorKind::TimedOut
        );
    }
}

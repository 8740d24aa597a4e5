//! The socket of a session, without a runtime: the thread that waits for a reply reads and writes
//! it.

use super::address::Address;
use crate::{sock, tcp};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// How long connecting to one address may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// After this long without an acknowledged byte, a connection counts as lost.
const ACKNOWLEDGEMENT_TIMEOUT: Duration = Duration::from_secs(15);

/// A connected socket that never blocks. Clones share it.
#[derive(Clone)]
pub(super) struct Socket(Arc<Inner>);

struct Inner {
    stream: Stream,
    /// Whether a write found no space.
    is_full: AtomicBool,
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Connects to the first address that accepts.
    pub(super) fn connect(address: &Address) -> io::Result<Self> {
        let stream = match address.directory() {
            Some(directory) => Stream::Unix(sock::connect_without_blocking(&format!(
                "{directory}/.s.PGSQL.{}",
                address.port()
            ))?),
            None => Stream::Tcp(connect_tcp(address.host(), address.port())?),
        };
        Ok(Self(Arc::new(Inner {
            stream,
            is_full: AtomicBool::new(false),
        })))
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match &self.0.stream {
            Stream::Tcp(stream) => stream.as_fd(),
            Stream::Unix(stream) => stream.as_fd(),
        }
    }

    /// Waits until the socket can be read, or written if that was awaited. Returns `false` at the
    /// time limit.
    pub(super) fn wait(&self, until: Instant) -> io::Result<bool> {
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let write = if self.0.is_full.swap(false, Ordering::Relaxed) {
                PollFlags::OUT
            } else {
                PollFlags::empty()
            };
            let mut fds = [PollFd::from_borrowed_fd(self.fd(), PollFlags::IN | write)];
            let limit = Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            };
            match poll(&mut fds, Some(&limit)) {
                Ok(0) => return Ok(false),
                Ok(_) => return Ok(true),
                Err(Errno::INTR) => self.0.is_full.store(!write.is_empty(), Ordering::Relaxed),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut problem = io::Error::new(io::ErrorKind::NotFound, format!("{host} has no address"));
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT_TIMEOUT) {
            Ok(stream) => {
                tcp::detect_loss(&stream, ACKNOWLEDGEMENT_TIMEOUT)?;
                stream.set_nonblocking(true)?;
                return Ok(stream);
            }
            Err(error) => problem = error,
        }
    }
    Err(problem)
}

/// Turns a result of the socket into that of a poll. The thread that polls waits for the socket
/// itself, so no waker is kept.
fn polled<T>(result: io::Result<T>) -> Poll<io::Result<T>> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
        result => Poll::Ready(result),
    }
}

/// Repeats work that a signal interrupts.
fn uninterrupted<T>(mut work: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match work() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let space = into.initialize_unfilled();
        let read = uninterrupted(|| match &self.0.stream {
            Stream::Tcp(stream) => (&*stream).read(space),
            Stream::Unix(stream) => (&*stream).read(space),
        });
        polled(read).map_ok(|count| into.advance(count))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = polled(uninterrupted(|| match &self.0.stream {
            Stream::Tcp(stream) => (&*stream).write(bytes),
            Stream::Unix(stream) => (&*stream).write(bytes),
        }));
        self.0
            .is_full
            .store(written.is_pending(), Ordering::Relaxed);
        written
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // The socket is closed when the session is dropped.
        Poll::Ready(Ok(()))
    }
}

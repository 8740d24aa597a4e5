//! A connection that wakes its process only for events that it waits for.
//!
//! Tokio's streams are always registered for writability, too. A Unix socket becomes writable
//! whenever the peer reads, so every sent message would wake its sender needlessly.

use std::io::{self, IoSlice, Write};
use std::mem::MaybeUninit;
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};

/// Maximum number of bytes that are read at once.
const READ_BYTES: usize = 16 * 1024;

/// One end of a connection.
#[derive(Debug)]
pub struct Stream {
    stream: AsyncFd<UnixStream>,
    /// The same socket registered for writability, only while a write waits.
    writable: Option<AsyncFd<UnixStream>>,
}

impl Stream {
    /// Wraps a connection.
    ///
    /// # Errors
    /// The descriptor cannot be registered.
    pub fn new(stream: tokio::net::UnixStream) -> io::Result<Self> {
        Ok(Self {
            stream: register(stream.into_std()?, Interest::READABLE)?,
            writable: None,
        })
    }

    /// Returns the process that listens at the other end, as it was when the connection was made.
    #[must_use]
    pub fn server(&self) -> Option<rustix::process::Pid> {
        crate::process::peer_pid(self.stream.get_ref()).ok()
    }

    fn poll_write_with(
        &mut self,
        cx: &mut Context<'_>,
        write: impl Fn(&UnixStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let done = match &self.writable {
                None => write(self.stream.get_ref()),
                Some(writable) => {
                    let mut guard = ready!(writable.poll_write_ready(cx))?;
                    match guard.try_io(|writable| write(writable.get_ref())) {
                        Ok(done) => done,
                        Err(_no_room_yet) => continue,
                    }
                }
            };
            match done {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.writable = Some(register(
                        self.stream.get_ref().try_clone()?,
                        Interest::WRITABLE,
                    )?);
                }
                done => {
                    self.writable = None;
                    return Poll::Ready(done);
                }
            }
        }
    }
}

#[expect(
    deprecated,
    reason = "the replacement is unsafe because of types that do not own their descriptor; this one does"
)]
fn register(stream: UnixStream, interest: Interest) -> io::Result<AsyncFd<UnixStream>> {
    AsyncFd::with_interest(stream, interest)
}

impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.get_ref().as_fd()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Callers offer buffers far larger than most messages, which would have to be zeroed first.
        let mut space = [MaybeUninit::uninit(); READ_BYTES];
        let space = &mut space[..READ_BYTES.min(buf.remaining())];
        loop {
            let mut guard = ready!(self.stream.poll_read_ready(cx))?;
            match guard.try_io(|stream| Ok(rustix::io::read(stream.get_ref(), &mut *space)?)) {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Ok(Ok((read, left))) => {
                    // The socket is drained, so another read would block.
                    if !read.is_empty() && !left.is_empty() {
                        guard.clear_ready();
                    }
                    buf.put_slice(read);
                    return Poll::Ready(Ok(()));
                }
                Err(_nothing_yet) => {}
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.get_mut()
            .poll_write_with(cx, |mut stream| stream.write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.get_mut()
            .poll_write_with(cx, |mut stream| stream.write_vectored(parts))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream.get_ref().shutdown(Shutdown::Write))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    fn pair() -> (Stream, Stream) {
        let (near, far) = tokio::net::UnixStream::pair().expect("a pair");
        (
            Stream::new(near).expect("near"),
            Stream::new(far).expect("far"),
        )
    }

    #[tokio::test]
    async fn message_larger_than_the_buffer_arrives_whole() {
        let (mut near, mut far) = pair();
        let sent: Vec<u8> = (0..8_000_000_u32)
            .map(|number| number.to_le_bytes()[number as usize % 4])
            .collect();
        let mut got = Vec::new();
        let write = async {
            near.write_all(&sent).await.expect("written");
            assert!(near.writable.is_none(), "no write is waiting");
            near.shutdown().await.expect("shut down");
        };
        let (read, ()) = tokio::join!(far.read_to_end(&mut got), write);
        assert_eq!(read.expect("read"), sent.len());
        assert!(got == sent);
        // The other direction is still open.
        far.write_all(b"back").await.expect("written");
        drop(far);
        let mut back = String::new();
        near.read_to_string(&mut back).await.expect("read");
        assert_eq!(back, "back");
    }

    #[tokio::test]
    async fn messages_are_exchanged_and_a_close_is_seen() {
        let (mut near, mut far) = pair();
        let echo = async {
            let mut bytes = [0; 64];
            loop {
                let count = far.read(&mut bytes).await.expect("read");
                if count == 0 {
                    return;
                }
                far.write_all(&bytes[..count]).await.expect("written");
            }
        };
        let ask = async {
            for round in 0..1_000_u32 {
                near.write_all(&round.to_le_bytes()).await.expect("written");
                let mut back = [0; 4];
                near.read_exact(&mut back).await.expect("read");
                assert_eq!(back, round.to_le_bytes());
            }
            drop(near);
        };
        tokio::join!(echo, ask);
    }
}

//! Detects that a client has closed its connection, even while the rest of its request is unread.

use std::io;
use std::os::fd::AsFd;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Watches a connection independently of its server, which detects the end only when it reads.
#[derive(Debug)]
pub(super) struct HangUp(TcpStream);

impl HangUp {
    pub(super) fn of(stream: &TcpStream) -> io::Result<Self> {
        let same = std::net::TcpStream::from(stream.as_fd().try_clone_to_owned()?);
        Ok(Self(TcpStream::from_std(same)?))
    }

    /// Waits until the client has closed the connection. Cancel safe.
    pub(super) async fn wait(&self) {
        loop {
            let Ok(ready) = self.0.ready(Interest::READABLE).await else {
                return std::future::pending().await;
            };
            if ready.is_read_closed() {
                return;
            }
            // Clears the readiness without reading, to wait for the kernel's next notification.
            drop(self.0.try_io(Interest::READABLE, || {
                Err::<(), _>(io::ErrorKind::WouldBlock.into())
            }));
        }
    }
}

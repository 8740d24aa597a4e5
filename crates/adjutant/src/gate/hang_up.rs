//! Notices that a client has closed its connection, also while the rest of its request is unread.

use std::io;
use std::os::fd::AsFd;
use tokio::io::Interest;
use tokio::net::TcpStream;

/// Watches a connection beside its server, which notices the end only when it reads.
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
            let Ok(ready) = self.0.ready(Interest::READABLE).await else { return std::future::pending().await };
            if ready.is_read_closed() {
                return;
            }
            // Nothing is read here: it waits for the next report of the kernel.
            drop(self.0.try_io(Interest::READABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into())));
        }
    }
}

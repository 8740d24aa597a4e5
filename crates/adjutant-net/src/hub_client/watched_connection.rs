//! A connection for calls whose silence is watched: while no reply arrives, other connections check
//! whether the hub responds.

use super::connection::{HubConnection, RawReply, Request};
use super::failure::CallFailure;
use super::presence::{confirm_unresponsive, is_hub_busy};
use crate::config::Home;
use adjutant_core::units::duration;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// How long a hub may take to reply, in addition to the wait that a call requests. After that, the
/// call is repeated with its key on another connection, so a lost reply delays the caller but never
/// blocks it.
pub(super) const NO_REPLY: Duration = if cfg!(test) {
    Duration::from_millis(600)
} else {
    Duration::from_secs(15)
};
/// After this long without a reply, another connection checks whether the hub responds.
const PRESENCE_CHECK_AFTER: Duration = if cfg!(test) {
    Duration::from_millis(200)
} else {
    Duration::from_secs(3)
};
/// How often [`NO_REPLY`] is waited again for a hub that answers others: a repetition of the call
/// would add to its work.
const BUSY_WAITS_MAX: u32 = 20;
/// How much later than requested the timer may fire, so that it need not be reset for every call.
const TIMER_SLACK: Duration = if cfg!(test) {
    Duration::ZERO
} else {
    Duration::from_secs(5)
};

/// A connection with a reusable timer. Setting a new timer for every call would wake the runtime
/// each time.
pub(super) struct WatchedConnection {
    connection: HubConnection,
    timer: Pin<Box<Sleep>>,
}

impl WatchedConnection {
    /// Connects to a socket.
    ///
    /// # Errors
    /// The socket cannot be connected to.
    pub(super) async fn open(socket: &Path) -> io::Result<Self> {
        Ok(Self {
            connection: HubConnection::open(socket).await?,
            timer: Box::pin(tokio::time::sleep(PRESENCE_CHECK_AFTER)),
        })
    }

    /// Returns whether another call can use the connection.
    pub(super) fn is_reusable(&self) -> bool {
        self.connection.is_reusable()
    }

    /// Returns whether the server has kept the connection open and sent nothing since the last
    /// reply.
    pub(super) async fn is_open(&mut self) -> bool {
        self.connection.is_open().await
    }

    /// Sends a request and waits for the reply up to `limit`. If the server is the hub of `home`,
    /// checks in the meantime whether it responds.
    pub(super) async fn exchange(
        &mut self,
        request: Request,
        limit: Option<Duration>,
        home: Option<&Home>,
    ) -> Result<RawReply, CallFailure> {
        let later = NO_REPLY - PRESENCE_CHECK_AFTER;
        if let Some(limit) = limit {
            self.set_reply_timer(if home.is_some() { limit - later } else { limit });
        }
        let Self { connection, timer } = self;
        let server = connection.server();
        let exchanged = async {
            let exchanged = connection.exchange(request).await;
            exchanged.map_err(|error| CallFailure::Connection(error.to_string()))
        };
        let Some(limit) = limit else {
            return exchanged.await;
        };
        let silence = async {
            timer.as_mut().await;
            if let Some(home) = home {
                if let Some(hanging) = confirm_unresponsive(home).await {
                    return CallFailure::Refused(hanging);
                }
                timer.as_mut().reset(Instant::now() + later);
                timer.as_mut().await;
                for _ in 0..BUSY_WAITS_MAX {
                    if !is_hub_busy(home, server).await {
                        break;
                    }
                    timer.as_mut().reset(Instant::now() + NO_REPLY);
                    timer.as_mut().await;
                }
            }
            CallFailure::NoReply(format!("no reply in {}", duration::of(limit)))
        };
        tokio::select! {
            biased;
            exchanged = exchanged => exchanged,
            broken = silence => Err(broken),
        }
    }

    /// Lets the timer fire after `limit`, or up to [`TIMER_SLACK`] later.
    fn set_reply_timer(&mut self, limit: Duration) {
        let (end, earliest) = (self.timer.deadline(), Instant::now() + limit);
        if end < earliest || end > earliest + TIMER_SLACK {
            self.timer.as_mut().reset(earliest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::Lock;
    use crate::sock;
    use hyper::body::Bytes;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;

    async fn read_request(from: &mut UnixStream) -> String {
        let mut got = Vec::new();
        while !got.ends_with(b"{}") {
            assert!(from.read_buf(&mut got).await.expect("read") > 0);
        }
        String::from_utf8(got).expect("text")
    }

    async fn reply(to: &mut UnixStream, body: &str) {
        let reply = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        to.write_all(reply.as_bytes()).await.expect("written");
    }

    /// A repetition would add to the work of a hub that is busy with the call, and a hub that
    /// answers others is not hung.
    #[tokio::test]
    async fn busy_hub_is_waited_for() {
        let dir = tempfile::tempdir().expect("a directory");
        let home = Home::at(&dir.path().join("home")).expect("a home");
        home.ensure().expect("a home");
        let held = Lock::try_take(&home.dir, &home.hub_lock())
            .expect("takes")
            .expect("free");
        held.write_pid(rustix::process::getpid()).expect("writes");
        let listener = sock::bind(&home.socket()).expect("a socket");
        let mut near = WatchedConnection::open(&home.socket())
            .await
            .expect("connected");
        let (mut busy, _) = listener.accept().await.expect("accepted");
        let hub = async {
            let sent = read_request(&mut busy).await;
            // It is asked on other connections after the first silence, and after each further one.
            for _ in 0..3 {
                let (mut other, _) = listener.accept().await.expect("accepted");
                read_request(&mut other).await;
                reply(&mut other, "{}").await;
            }
            reply(&mut busy, "done").await;
            sent
        };
        let request = Request::post("/api/v1/hub", Bytes::from_static(b"{}"));
        let (replied, sent) =
            tokio::join!(near.exchange(request, Some(NO_REPLY), Some(&home)), hub);
        assert_eq!(&replied.expect("a reply").body[..], b"done");
        assert_eq!(sent.matches("POST ").count(), 1, "the call was sent once");
    }
}

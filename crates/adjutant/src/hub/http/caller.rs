//! The program at the other end of a connection: its user and process, and its token.

use super::limits::{TokenConnection, TokenLimits};
use crate::hub::connections::Line;
use crate::process::tcp_peer::{TcpPeer, find_tcp_peer};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::OnceCell;

/// The state of a connection.
pub(super) struct Caller {
    pub(super) line: Arc<Line>,
    /// The number of the connection.
    pub(super) number: u64,
    /// Whether many calls of one runner share the connection.
    pub(super) is_shared: bool,
    /// Both ends of the connection: the hub's and the caller's.
    ends: (SocketAddr, SocketAddr),
    /// Determined at the first call with a token, and valid for the life of the connection.
    peer: OnceCell<TcpPeer>,
    /// Counts the connection for the token of its newest call.
    token: Mutex<Option<TokenConnection>>,
}

impl Caller {
    pub(super) fn new(line: Arc<Line>, number: u64, (own, peer): (SocketAddr, SocketAddr), is_shared: bool) -> Self {
        let ends = (canonical(own), canonical(peer));
        Self { line, number, is_shared, ends, peer: OnceCell::new(), token: Mutex::new(None) }
    }

    /// Returns the hub's end of the connection.
    pub(super) fn own(&self) -> SocketAddr {
        self.ends.0
    }

    /// Returns the token of the newest call.
    pub(super) fn token(&self) -> Option<i64> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(TokenConnection::token)
    }

    /// Records the token of a call. Returns `false` if the token has too many connections.
    pub(super) fn set_token(&self, limits: &Arc<TokenLimits>, token: i64) -> bool {
        let mut current = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        if current.as_ref().map(TokenConnection::token) != Some(token) {
            // The connection first stops counting for the earlier token.
            *current = None;
            *current = limits.admit(token);
        }
        current.is_some()
    }

    /// Returns the caller's user and process. A failure is not cached: the next call retries.
    pub(super) async fn peer(&self, home: &Path) -> io::Result<&TcpPeer> {
        let ((own, peer), home) = (self.ends, home.to_owned());
        let find = || async move { tokio::task::spawn_blocking(move || find_tcp_peer(own, peer, &home)).await.map_err(io::Error::other)? };
        self.peer.get_or_try_init(find).await
    }
}

/// Returns the address of an IPv4 connection to an IPv6 listener as that of IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip if ip == address.ip() => address,
        ip => SocketAddr::new(ip, address.port()),
    }
}

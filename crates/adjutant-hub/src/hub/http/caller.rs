//! The program at the other end of a connection: its user and process, and its token.

use super::limits::{TokenConnection, TokenLimits};
use crate::attempt_processes::Place;
use crate::attempt_processes::tcp_caller::{TcpCaller, TcpCallers};
use crate::hub::connections::Line;
use crate::ops::{Ops, live_attempts};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// The state of a connection.
pub(super) struct HttpCaller {
    pub(super) line: Arc<Line>,
    /// The number of the connection.
    pub(super) number: u64,
    /// Whether many calls of one runner share the connection.
    pub(super) is_shared: bool,
    /// Both ends of the connection: the hub's and the caller's.
    ends: (SocketAddr, SocketAddr),
    /// Determined at the first call with a token, and checked again at each further call and before
    /// each reply.
    peer: Mutex<Option<Arc<TcpCaller>>>,
    tcp_callers: Arc<TcpCallers>,
    /// Counts the connection for the token of its newest call.
    token: Mutex<Option<TokenConnection>>,
}

impl HttpCaller {
    pub(super) fn new(
        line: Arc<Line>,
        number: u64,
        (own, peer): (SocketAddr, SocketAddr),
        is_shared: bool,
        tcp_callers: Arc<TcpCallers>,
    ) -> Self {
        let ends = (canonical(own), canonical(peer));
        Self {
            line,
            number,
            is_shared,
            ends,
            peer: Mutex::new(None),
            tcp_callers,
            token: Mutex::new(None),
        }
    }

    /// Returns the hub's end of the connection.
    pub(super) fn own(&self) -> SocketAddr {
        self.ends.0
    }

    /// Returns the token of the newest call.
    pub(super) fn token(&self) -> Option<i64> {
        self.token
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .as_ref()
            .map(TokenConnection::token)
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

    /// Returns the caller's user and process, as they are now. A failure is not cached: the next
    /// call retries. A process of a run keeps being the caller, whatever holds the connection
    /// later.
    pub(super) async fn peer(&self, ops: &Ops) -> io::Result<Arc<TcpCaller>> {
        let known = self.known_peer();
        if let Some(known) =
            known.filter(|known| known.place != Place::Outside || known.is_unchanged())
        {
            return Ok(known);
        }
        let ((own, peer), tcp_callers, ops) =
            (self.ends, Arc::clone(&self.tcp_callers), ops.clone());
        let find = move || {
            let live = || {
                let attempts = live_attempts(ops.store()).map_err(io::Error::other)?;
                Ok(attempts.into_iter().map(|id| id.dir(ops.home())).collect())
            };
            tcp_callers.find(own, peer, &ops.home().dir, live)
        };
        let found = Arc::new(
            tokio::task::spawn_blocking(find)
                .await
                .map_err(io::Error::other)??,
        );
        *self.peer.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&found));
        Ok(found)
    }

    /// Returns the caller as the last check has found it. `None`: no check was needed, or none has
    /// succeeded.
    pub(super) fn known_peer(&self) -> Option<Arc<TcpCaller>> {
        self.peer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Returns the address of an IPv4 connection to an IPv6 listener as that of IPv4.
fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip if ip == address.ip() => address,
        ip => SocketAddr::new(ip, address.port()),
    }
}

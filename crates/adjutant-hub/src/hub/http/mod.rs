//! HTTP for callers with a token: the calls of the contract, the event history as a stream, and MCP
//! for parents.
//!
//! Each request is checked in this order before any lookup: its `Host`, its `Origin`, its token. So
//! a web page of another site reaches nothing, even if its name resolves to this machine (DNS
//! rebinding). There are no cookies and no CORS headers. A process of a run is refused, even with a
//! valid token.

mod admission;
mod answer;
mod asked;
mod caller;
mod contract;
mod dashboard;
mod events;
mod hubs;
mod limits;
mod mcp;
mod names;
mod openapi;
mod peers;
mod problem;
mod routes;
mod runners;
mod serve;
mod stream;

use super::Shared;
use super::calls::Calls;
use super::connections::Connections;
use crate::attempt_processes::tcp_caller::TcpCallers;
use crate::config::{HttpSettings, TlsFiles};
use crate::ops::Tokens;
use crate::tls::TlsServer;
use caller::HttpCaller;
pub(super) use dashboard::SignIns;
use futures::FutureExt;
use limits::TokenLimits;
pub use mcp::McpServer;
pub(crate) use mcp::NewMcpServer;
use names::OwnNames;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Divisor of the hub's maximum number of connections for the additional HTTP connections.
const CONNECTIONS_PART: usize = 4;
const CONNECTIONS_MAX: usize = 1024;
/// Divisor of the number of HTTP connections for those of one token.
const TOKEN_PART: usize = 2;
/// Timeout for a peer that reads nothing of a reply.
const WRITE_TAKES_MAX: Duration = Duration::from_secs(30);
/// How often unused sessions are looked for.
const SESSION_CHECK_INTERVAL: Duration = Duration::from_secs(600);
/// The delay after a failure to accept a connection, for example because no file descriptor is
/// free.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// The state that all connections share.
pub(super) struct Http {
    hub: Shared,
    calls: Arc<Calls>,
    names: OwnNames,
    tls: Option<Arc<TlsServer>>,
    connections: Arc<Connections>,
    limits: Arc<TokenLimits>,
    tcp_callers: Arc<TcpCallers>,
    links: answer::Links,
    servers: mcp::Servers,
    pages: events::Pages,
    /// Taken for each post of a peer.
    peer_posts: Semaphore,
}

/// The listeners.
#[derive(Debug)]
pub(super) struct HttpListener {
    listener: TcpListener,
    /// The same port of the other loopback address, because `localhost` can be either.
    other: Option<TcpListener>,
    address: SocketAddr,
    names: OwnNames,
    tls: Option<Arc<TlsServer>>,
    /// The base address for callers.
    url: String,
}

impl HttpListener {
    /// Reads the certificate and opens the listeners.
    pub(super) async fn bind(settings: &HttpSettings) -> io::Result<Self> {
        let tls = match settings.tls.clone() {
            Some(TlsFiles { cert, key }) => Some(Arc::new(
                TlsServer::load(cert, key).await.map_err(io::Error::other)?,
            )),
            None => None,
        };
        let listener = TcpListener::bind(settings.listen).await?;
        let address = listener.local_addr()?;
        let (other, has_localhost) = other_listener(address).await;
        let own: Vec<SocketAddr> = other
            .iter()
            .filter_map(|other| other.local_addr().ok())
            .chain([address])
            .collect();
        let scheme = if tls.is_some() { "https" } else { "http" };
        let names = OwnNames::new(scheme, &own, has_localhost, settings.public_url.as_ref());
        let url = match &settings.public_url {
            // Without a proxy, the public address is that of the hub, and the certificate is for
            // it.
            Some(url) if tls.is_some() => url.to_string().trim_end_matches('/').to_owned(),
            _ => format!("{scheme}://{}", reachable(address)),
        };
        Ok(Self {
            listener,
            other,
            address,
            names,
            tls,
            url,
        })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns its certificate, if it has one.
    pub(super) fn tls(&self) -> Option<Arc<TlsServer>> {
        self.tls.clone()
    }

    /// Returns the name of this machine in the certificate.
    pub(super) fn name_of_machine(&self, machine: &str) -> Option<String> {
        self.tls
            .as_ref()
            .and_then(|tls| tls.name_of_machine(machine))
    }

    /// Returns the base address for callers.
    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Serves until `closing` is cancelled and all connections have ended. Aborting the task aborts
    /// calls in progress.
    pub(super) async fn serve(self, hub: Shared, calls: Arc<Calls>, closing: CancellationToken) {
        let connections_max =
            (hub.connections.open_max() / CONNECTIONS_PART).clamp(1, CONNECTIONS_MAX);
        let connections = Arc::new(
            Connections::new(connections_max)
                .with_write_limit(crate::failpoint::unread_max().unwrap_or(WRITE_TAKES_MAX)),
        );
        let limits = Arc::new(TokenLimits::new((connections_max / TOKEN_PART).max(1)));
        let http = Arc::new(Http {
            hub,
            calls,
            names: self.names,
            tls: self.tls,
            connections,
            limits,
            tcp_callers: Arc::default(),
            links: answer::Links::default(),
            servers: mcp::Servers::default(),
            pages: events::Pages::default(),
            peer_posts: Semaphore::new(peers::READING_MAX),
        });
        // Subscribes before the first call, so that no revocation is missed.
        let revocations = Tokens::of(&http.hub.ops).revocations();
        let mut session_check =
            tokio::time::interval(crate::failpoint::unused_max().unwrap_or(SESSION_CHECK_INTERVAL));
        let mut open = JoinSet::new();
        loop {
            tokio::select! {
                accepted = accept(&self.listener, self.other.as_ref()), if !closing.is_cancelled() => match accepted {
                    Ok(stream) => if let Some(admitted) = http.connections.admit(stream) {
                        open.spawn(stream::serve(Arc::clone(&http), admitted, closing.clone()).boxed());
                    },
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection over HTTP");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                // At the end of the hub, the store ends connections that wait for it.
                Some(ended) = open.join_next() => if let Err(error) = ended && !closing.is_cancelled() {
                    tracing::error!(%error, "a connection over HTTP failed");
                },
                () = revocations.wait() => http.servers.drop_revoked(&http.hub),
                _ = session_check.tick() => {
                    let http = Arc::clone(&http);
                    open.spawn(async move { http.servers.close_idle_sessions().await }.boxed());
                }
                () = closing.cancelled(), if open.is_empty() => return,
            }
        }
    }
}

/// Returns the address for callers on this machine: the loopback address, if the hub listens on all
/// addresses.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => (Ipv4Addr::LOCALHOST, address.port()).into(),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => (Ipv6Addr::LOCALHOST, address.port()).into(),
        _ => address,
    }
}

/// Opens the same port of the other loopback address. The second value is whether `localhost`
/// always leads to this hub: it does not if another program has the port of the other address.
async fn other_listener(address: SocketAddr) -> (Option<TcpListener>, bool) {
    let other = match address.ip() {
        IpAddr::V4(Ipv4Addr::LOCALHOST) => IpAddr::from(Ipv6Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST) => IpAddr::from(Ipv4Addr::LOCALHOST),
        _ => return (None, false),
    };
    match TcpListener::bind((other, address.port())).await {
        Ok(listener) => (Some(listener), true),
        Err(error) => {
            let is_absent = matches!(
                error.kind(),
                io::ErrorKind::AddrNotAvailable | io::ErrorKind::Unsupported
            );
            let is_absent = is_absent || error.raw_os_error() == Some(libc::EAFNOSUPPORT);
            tracing::info!(%error, %other, "callers over HTTP have one address");
            (None, is_absent)
        }
    }
}

async fn accept(listener: &TcpListener, other: Option<&TcpListener>) -> io::Result<TcpStream> {
    let other = async {
        match other {
            Some(other) => other.accept().await,
            None => std::future::pending().await,
        }
    };
    tokio::select! {
        accepted = listener.accept() => accepted,
        accepted = other => accepted,
    }
    .map(|(stream, _)| stream)
}

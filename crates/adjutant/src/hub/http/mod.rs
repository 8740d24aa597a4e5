//! HTTP for callers with a token: the calls of the contract, the event history as a stream, and MCP for parents.
//!
//! Each request is checked in this order, before anything about it is looked up: its `Host`, its `Origin`, its token. So a
//! web page of another site, also one whose name resolves to this machine, reaches nothing. There are no cookies and no
//! CORS headers. Where a process runs does not matter here: a run has no token.

mod events;
mod mcp;
mod names;
mod problem;
mod serve;

use super::Shared;
use super::calls::Calls;
use super::connections::{Connections, Guarded, Line};
use crate::config::HttpSettings;
use axum::body::Body;
use axum::http::Request;
use futures::FutureExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use names::OwnNames;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The part of the hub's connections that HTTP adds to them.
const CONNECTIONS_PART: usize = 4;
const CONNECTIONS_MAX: usize = 1024;
/// How long a connection may be idle.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// How long a peer may read nothing of a reply.
const WRITE_TAKES_MAX: Duration = Duration::from_secs(30);
/// Largest head of a request, in bytes.
const HEAD_BYTES_MAX: usize = 32 * 1024;
const HEADERS_MAX: usize = 64;
/// The pause after a failure to accept a connection, for instance without free descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// What all connections share.
pub(super) struct Http {
    hub: Shared,
    calls: Arc<Calls>,
    names: OwnNames,
    connections: Arc<Connections>,
    servers: mcp::Servers,
}

/// The open port.
pub(super) struct HttpListener {
    listener: TcpListener,
    address: SocketAddr,
    names: OwnNames,
}

impl HttpListener {
    /// Opens the port.
    pub(super) async fn bind(settings: &HttpSettings) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("cannot listen on {}: {error}", settings.listen);
        let listener = TcpListener::bind(settings.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        Ok(Self { listener, address, names: OwnNames::new(address, settings.public_url.as_ref()) })
    }

    /// Returns the base address for callers on this machine.
    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Serves until `closing` is cancelled; calls in progress then end with the task.
    pub(super) async fn serve(self, hub: Shared, calls: Arc<Calls>, closing: CancellationToken) {
        let connections_max = (hub.connections.open_max() / CONNECTIONS_PART).clamp(1, CONNECTIONS_MAX);
        let connections = Arc::new(Connections::new(connections_max).with_write_limit(WRITE_TAKES_MAX));
        let http = Arc::new(Http { hub, calls, names: self.names, connections, servers: mcp::Servers::default() });
        let mut open = JoinSet::new();
        loop {
            tokio::select! {
                accepted = self.listener.accept(), if !closing.is_cancelled() => match accepted {
                    Ok((stream, _)) => if let Some(admitted) = http.connections.admit(stream) {
                        open.spawn(connection(Arc::clone(&http), admitted, closing.clone()).boxed());
                    },
                    Err(error) => {
                        tracing::warn!(%error, "cannot accept a connection over HTTP");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                },
                Some(ended) = open.join_next() => if let Err(error) = ended {
                    tracing::error!(%error, "a connection over HTTP failed");
                },
                () = closing.cancelled(), if open.is_empty() => return,
            }
        }
    }
}

/// The state of one connection.
pub(super) struct Caller {
    line: Arc<Line>,
    /// The token of the newest call.
    token: Mutex<Option<i64>>,
}

impl Caller {
    fn token(&self) -> Option<i64> {
        *self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_token(&self, token: Option<i64>) {
        *self.token.lock().unwrap_or_else(PoisonError::into_inner) = token;
    }
}

async fn connection(http: Arc<Http>, stream: Guarded<TcpStream>, closing: CancellationToken) {
    if let Err(error) = stream.get_ref().set_nodelay(true) {
        tracing::debug!(%error, "replies over HTTP may be delayed");
    }
    let caller = Arc::new(Caller { line: stream.line(), token: Mutex::new(None) });
    // Before the first call, so that no revocation is missed.
    let revocations = http.hub.ops.token_revocations();
    let service = {
        let (http, caller) = (Arc::clone(&http), Arc::clone(&caller));
        service_fn(move |request: Request<Incoming>| {
            let (http, caller) = (Arc::clone(&http), Arc::clone(&caller));
            async move { Ok::<_, Infallible>(serve::answered(&http, &caller, request.map(Body::new)).await) }.boxed()
        })
    };
    let mut served =
        pin!(http1::Builder::new().max_headers(HEADERS_MAX).max_buf_size(HEAD_BYTES_MAX).serve_connection(TokioIo::new(stream), service));
    let mut is_closing = false;
    loop {
        tokio::select! {
            ended = served.as_mut() => {
                if let Err(error) = ended {
                    tracing::debug!(%error, "a connection over HTTP broke");
                }
                return;
            }
            () = caller.line.expired(IDLE_MAX) => return,
            () = revocations.wait() => {
                let is_in_use = caller.token().is_none_or(|token| http.hub.ops.is_token_in_use(token).unwrap_or_else(|error| {
                    tracing::error!(%error, "cannot check the token of a connection, which is closed");
                    false
                }));
                if !is_in_use {
                    return;
                }
            }
            () = closing.cancelled(), if !is_closing => {
                served.as_mut().graceful_shutdown();
                is_closing = true;
            }
        }
    }
}

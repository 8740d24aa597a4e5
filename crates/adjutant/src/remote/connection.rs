//! Connections to the hub: one call at a time on each, which the caller's future drives.

use super::address::HubAddress;
use crate::link::{BUNDLE_LINE_BYTES_MAX, BUNDLE_TYPE, REPOSITORY_BYTES_MAX};
use crate::spool::{self, FileBody};
use crate::{tcp, tls};
use adjutant_core::Fingerprint;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use std::fs::File;
use std::future::poll_fn;
use std::io::Seek;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;

/// Maximum number of idle connections.
const IDLE_MAX: usize = 8;
/// How long the hub's machine may acknowledge nothing that was sent. It may be busy with a large body for a while.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Largest reply, in bytes.
const REPLY_BYTES_MAX: usize = 64 * 1024 * 1024;

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

type Body = FileBody;

/// The body of a request.
#[derive(Debug)]
pub enum Outgoing {
    Whole(Bytes),
    /// The rest of a file.
    File(File),
}

/// A connection, which makes progress only while it is polled.
type Driven = Pin<Box<Connection<TokioIo<Box<dyn Stream>>, Body>>>;

/// An open connection.
struct Link {
    sender: SendRequest<Body>,
    connection: Driven,
}

/// A reply with any status.
#[derive(Debug, Clone)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Bytes,
}

/// Which certificate of the hub is trusted.
#[derive(Debug, Clone)]
pub enum Trust {
    /// By the CA certificates of this machine.
    Installed,
    /// By the CA certificates of a file.
    File(PathBuf),
    /// Only this one.
    Fingerprint(Fingerprint),
}

/// The connections to the hub.
pub struct Connections {
    pub address: HubAddress,
    trust: Trust,
    connector: OnceCell<TlsConnector>,
    // Locked only between awaits.
    idle: Mutex<Vec<Link>>,
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Connections {
    #[must_use]
    pub fn new(address: HubAddress, trust: Trust) -> Self {
        Self { address, trust, connector: OnceCell::new(), idle: Mutex::default() }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Link>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Posts a body and reads the reply.
    ///
    /// # Errors
    /// There is no reply: it is unknown whether the call took effect.
    pub async fn post(&self, path: &str, headers: &[(&str, &str)], body: Bytes) -> Result<Reply, String> {
        self.carry(path, headers, Outgoing::Whole(body), None).await
    }

    /// Posts a body of any size and reads the reply, whose body goes to the file if it is a bundle.
    ///
    /// # Errors
    /// There is no reply: it is unknown whether the call took effect.
    pub async fn carry(&self, path: &str, headers: &[(&str, &str)], body: Outgoing, to: Option<&File>) -> Result<Reply, String> {
        let mut request = Request::post(path).header("host", &self.address.authority).header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = match body {
            Outgoing::Whole(body) => Full::new(body).map_err(|never| match never {}).boxed_unsync(),
            Outgoing::File(mut file) => {
                let rest = file.metadata().and_then(|meta| Ok(meta.len().saturating_sub(file.stream_position()?)));
                request = request.header("content-length", rest.map_err(|error| error.to_string())?);
                spool::body_of(file)
            }
        };
        let request = request.body(body).map_err(|error| error.to_string())?;
        let mut link = match self.take_idle().await {
            Some(link) => link,
            None => self.connect().await?,
        };
        let reply = exchange(&mut link, request, to).await?;
        let mut idle = self.idle();
        if idle.len() < IDLE_MAX {
            idle.push(link);
        }
        Ok(reply)
    }

    /// Takes an idle connection that the hub has kept open.
    async fn take_idle(&self) -> Option<Link> {
        loop {
            let mut link = self.idle().pop()?;
            let has_ended = poll_fn(|cx| Poll::Ready(link.connection.as_mut().poll(cx).is_ready())).await;
            if !has_ended && link.sender.is_ready() {
                return Some(link);
            }
        }
    }

    async fn connect(&self) -> Result<Link, String> {
        let HubAddress { host, port, tls_name, .. } = &self.address;
        let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(|error| format!("{host}:{port}: {error}"))?;
        if let Err(error) = tcp::detect_loss(&stream, SILENCE_MAX) {
            tracing::debug!(%error, "calls of the hub may be delayed");
        }
        let stream: Box<dyn Stream> = match tls_name {
            Some(name) => {
                let trust = self.trust.clone();
                let load = move || match trust {
                    Trust::Installed => tls::connector(),
                    Trust::File(file) => tls::connector_for(&file),
                    Trust::Fingerprint(fingerprint) => tls::pinned_connector(fingerprint.as_str()),
                };
                let connector =
                    self.connector.get_or_try_init(|| async { tokio::task::spawn_blocking(load).await.map_err(|error| error.to_string())? });
                Box::new(connector.await?.connect(name.clone(), stream).await.map_err(|error| format!("TLS to {host} failed: {error}"))?)
            }
            None => Box::new(stream),
        };
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        Ok(Link { sender, connection: Box::pin(connection) })
    }
}

async fn exchange(link: &mut Link, request: Request<Body>, to: Option<&File>) -> Result<Reply, String> {
    let Link { sender, connection } = link;
    let answered = async {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let (head, body) = response.into_parts();
        let is_bundle = head.status.is_success() && head.headers.get("content-type").is_some_and(|kind| kind == BUNDLE_TYPE);
        if let Some(to) = to.filter(|_| is_bundle) {
            let bytes_max = REPOSITORY_BYTES_MAX + BUNDLE_LINE_BYTES_MAX;
            spool::receive(body, to, bytes_max).await.map_err(|error| format!("the bundle cannot be received: {error}"))?;
            return Ok(Reply { status: head.status, headers: head.headers, body: Bytes::new() });
        }
        let body = Limited::new(body, REPLY_BYTES_MAX).collect().await.map_err(|error| error.to_string())?.to_bytes();
        Ok(Reply { status: head.status, headers: head.headers, body })
    };
    tokio::pin!(answered);
    tokio::select! {
        biased;
        answered = &mut answered => answered,
        ended = connection => match ended {
            // A reply that was read before the connection ended still counts.
            Ok(()) => answered.await,
            Err(error) => Err(error.to_string()),
        },
    }
}

//! Connections to the hub: one for many calls, if both can, else one call at a time on each, which
//! the caller's future drives.

use super::address::HubAddress;
use super::error::CallError;
use super::reply::{Body, HubReply, read_reply};
use super::shared::SharedConnection;
use crate::http_client::{AnyStream, Endpoint, IdleLinks, Link};
use crate::tls::{self, Trust, TrustError};
use crate::{spool, tcp};
use http::{Request, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use std::fs::File;
use std::io::Seek;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio_rustls::{TlsConnector, rustls};

/// Maximum number of idle connections.
const IDLE_MAX: usize = 8;
/// How long opening the shared connection may take, because other calls wait for it.
const OPEN_MAX: Duration = Duration::from_secs(5);
/// How long the hub's machine may acknowledge nothing that was sent. It may be busy with a large
/// body for a while.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The body of a request.
#[derive(Debug)]
pub enum Outgoing {
    Whole(Bytes),
    /// The rest of a file.
    File(File),
}

/// TLS to the hub.
struct Connectors {
    /// For one call at a time.
    single: TlsConnector,
    /// For a shared connection. A hub that has none answers as to `single`.
    shared: TlsConnector,
}

/// A new connection.
enum Opened {
    Shared(SharedConnection),
    Single(Link<Body>),
}

/// The connections to the hub.
pub struct Connections {
    pub address: HubAddress,
    trust: Trust,
    connectors: OnceCell<Connectors>,
    idle: IdleLinks<Body>,
    /// The connection for all calls without a large body. Locked while it is opened, so that there
    /// is one.
    shared: tokio::sync::Mutex<Option<SharedConnection>>,
    may_share: bool,
    /// Whether the hub may have a shared connection. If not, calls do not wait for one to be
    /// opened.
    is_shared: AtomicBool,
}

impl std::fmt::Debug for Connections {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connections")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Connections {
    /// With one connection for each call in progress.
    #[must_use]
    pub fn new(address: HubAddress, trust: Trust) -> Self {
        Self {
            address,
            trust,
            connectors: OnceCell::new(),
            idle: IdleLinks::new(IDLE_MAX, None),
            shared: tokio::sync::Mutex::default(),
            may_share: false,
            is_shared: AtomicBool::new(false),
        }
    }

    /// With one connection for all calls of a runner, if the hub has TLS and offers it.
    #[must_use]
    pub fn shared(address: HubAddress, trust: Trust) -> Self {
        let may_share = !address.is_plain();
        Self {
            may_share,
            is_shared: AtomicBool::new(may_share),
            ..Self::new(address, trust)
        }
    }

    /// Posts a body and reads the reply, for at most `limit`.
    ///
    /// # Errors
    /// There is no reply: it is unknown whether the call took effect.
    pub async fn post(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
        limit: Duration,
    ) -> Result<HubReply, CallError> {
        let mut used = None;
        let replied = async {
            if let Some(shared) = self.take_shared().await? {
                let request = self.request(path, headers, Outgoing::Whole(body), true)?;
                return used.insert(shared).call(request).await;
            }
            let replied = self.carry(path, headers, Outgoing::Whole(body), None).await;
            if replied.is_err() {
                // The next one may be a newer hub.
                self.is_shared.store(self.may_share, Ordering::Relaxed);
            }
            replied
        };
        if let Ok(replied) = tokio::time::timeout(limit, replied).await {
            return replied;
        }
        // The hub may not receive what is sent on this connection. Later calls open another one.
        // If it is locked, another call is already opening one.
        if let Some((used, mut shared)) = used.zip(self.shared.try_lock().ok()) {
            shared.take_if(|shared| shared.is_same(&used));
        }
        Err(CallError::NoReply(limit))
    }

    /// Posts a body of any size and reads the reply, whose body goes to the file if it is a bundle.
    /// The call has a connection of its own.
    ///
    /// # Errors
    /// There is no reply: it is unknown whether the call took effect.
    pub async fn carry(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: Outgoing,
        to: Option<&File>,
    ) -> Result<HubReply, CallError> {
        let request = self.request(path, headers, body, false)?;
        let mut link = match self.idle.take().await {
            Some(link) => link,
            None => self.connect_single().await?,
        };
        let response = link.sender.send_request(request);
        let replied = async {
            let failed = |error: hyper::Error| match error {
                error if error.is_parse() && self.address.is_plain() => CallError::NotHttp(error),
                error => error.into(),
            };
            read_reply(response.await.map_err(failed)?, to).await
        };
        let reply = link.drive(replied).await?;
        self.idle.keep(link);
        Ok(reply)
    }

    /// `is_shared`: for HTTP/2, which needs a whole address.
    fn request(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: Outgoing,
        is_shared: bool,
    ) -> Result<Request<Body>, CallError> {
        let authority = &self.address.authority;
        let mut request = match is_shared {
            true => Request::post(format!("https://{authority}{path}")).version(Version::HTTP_2),
            false => Request::post(path),
        };
        request = request
            .header("host", authority)
            .header("content-type", "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = match body {
            Outgoing::Whole(body) => Full::new(body)
                .map_err(|never| match never {})
                .boxed_unsync(),
            Outgoing::File(mut file) => {
                let rest = file
                    .metadata()
                    .and_then(|meta| Ok(meta.len().saturating_sub(file.stream_position()?)));
                request = request.header("content-length", rest.map_err(CallError::File)?);
                spool::body_of(file)
            }
        };
        Ok(request.body(body)?)
    }

    /// Returns the connection for all calls, which is opened if there is none. `None`: this hub has
    /// none.
    async fn take_shared(&self) -> Result<Option<SharedConnection>, CallError> {
        if !self.is_shared.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let mut shared = self.shared.lock().await;
        if let Some(open) = shared.as_ref().filter(|shared| !shared.is_closed()) {
            return Ok(Some(open.clone()));
        }
        // Another call has learned meanwhile that this hub has none.
        if !self.is_shared.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let opened = tokio::time::timeout(OPEN_MAX, self.connect(true)).await;
        match opened.unwrap_or(Err(CallError::NoConnection(OPEN_MAX)))? {
            Opened::Shared(opened) => Ok(Some(shared.insert(opened).clone())),
            Opened::Single(link) => {
                self.is_shared.store(false, Ordering::Relaxed);
                self.idle.keep(link);
                Ok(None)
            }
        }
    }

    async fn connect_single(&self) -> Result<Link<Body>, CallError> {
        match self.connect(false).await? {
            Opened::Single(link) => Ok(link),
            Opened::Shared(_) => Err(CallError::OtherProtocol),
        }
    }

    async fn connect(&self, shared: bool) -> Result<Opened, CallError> {
        let Endpoint {
            host,
            port,
            tls_name,
        } = &self.address.endpoint;
        let stream = TcpStream::connect((host.as_str(), *port)).await;
        let stream = stream.map_err(|source| CallError::Connect {
            host: host.clone(),
            port: *port,
            source,
        })?;
        if let Err(error) = tcp::detect_loss(&stream, SILENCE_MAX) {
            tracing::debug!(%error, "calls of the hub may be delayed");
        }
        let stream: AnyStream = match tls_name {
            Some(name) => {
                let trust = self.trust.clone();
                let load = || async {
                    let loaded = tokio::task::spawn_blocking(|| Connectors::load(trust));
                    Ok::<_, CallError>(loaded.await??)
                };
                let Connectors {
                    single,
                    shared: both,
                } = self.connectors.get_or_try_init(load).await?;
                let connector = if shared { both } else { single };
                let stream = connector
                    .connect(name.clone(), stream)
                    .await
                    .map_err(|error| tls_failure(host, *port, error))?;
                if stream.get_ref().1.alpn_protocol() == Some(tls::SHARED) {
                    return Ok(Opened::Shared(
                        SharedConnection::open(Box::new(stream)).await?,
                    ));
                }
                Box::new(stream)
            }
            None => Box::new(stream),
        };
        Ok(Opened::Single(Link::open(stream, None).await?))
    }
}

impl Connectors {
    /// Blocks.
    fn load(trust: Trust) -> Result<Self, TrustError> {
        let mut config = trust.config()?;
        let mut with = |protocols: &[&[u8]]| {
            config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
            TlsConnector::from(Arc::new(config.clone()))
        };
        Ok(Self {
            single: with(&[tls::HTTP_1]),
            shared: with(&[tls::SHARED, tls::HTTP_1]),
        })
    }
}

/// Describes a failed handshake. It names the right scheme if the hub uses plain HTTP.
fn tls_failure(host: &str, port: u16, source: std::io::Error) -> CallError {
    let host = host.to_owned();
    let tls_error = source
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls_error {
        Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => {
            CallError::NoTls { host, port, source }
        }
        _ => CallError::Tls { host, source },
    }
}

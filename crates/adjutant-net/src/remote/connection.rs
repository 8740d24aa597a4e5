//! Connections to the hub: one for many calls, if both can, else one call at a time on each, which the caller's future drives.

use super::address::HubAddress;
use super::reply::{Body, Reply, Stream, read_reply};
use super::shared::SharedConnection;
use crate::spool;
use crate::{tcp, tls};
use adjutant_core::Fingerprint;
use http::{Request, Version};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use std::fs::File;
use std::future::poll_fn;
use std::io::Seek;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio_rustls::{TlsConnector, rustls};

/// Maximum number of idle connections.
const IDLE_MAX: usize = 8;
/// How long opening the shared connection may take, because other calls wait for it.
const OPEN_MAX: Duration = Duration::from_secs(5);
/// How long the hub's machine may acknowledge nothing that was sent. It may be busy with a large body for a while.
const SILENCE_MAX: Duration = Duration::from_secs(60);

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
    is_encrypted: bool,
}

/// Which certificate of the hub is trusted.
#[derive(Debug, Clone)]
pub enum Trust {
    /// By the CA certificates of this machine.
    Installed,
    /// By the CA certificates of a file.
    File(PathBuf),
    /// Only certificates with one of these keys.
    Fingerprints(Vec<Fingerprint>),
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
    Single(Link),
}

/// The connections to the hub.
pub struct Connections {
    pub address: HubAddress,
    trust: Trust,
    connectors: OnceCell<Connectors>,
    // Locked only between awaits.
    idle: Mutex<Vec<Link>>,
    /// The connection for all calls without a large body. Locked while it is opened, so that there is one.
    shared: tokio::sync::Mutex<Option<SharedConnection>>,
    may_share: bool,
    /// Whether the hub may have a shared connection. If not, calls do not wait for one to be opened.
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
            idle: Mutex::default(),
            shared: tokio::sync::Mutex::default(),
            may_share: false,
            is_shared: AtomicBool::new(false),
        }
    }

    /// With one connection for all calls of a runner, if the hub has TLS and offers it.
    #[must_use]
    pub fn shared(address: HubAddress, trust: Trust) -> Self {
        let may_share = address.tls_name.is_some();
        Self {
            may_share,
            is_shared: AtomicBool::new(may_share),
            ..Self::new(address, trust)
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Link>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
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
    ) -> Result<Reply, String> {
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
        Err(format!("no reply in {} s", limit.as_secs()))
    }

    /// Posts a body of any size and reads the reply, whose body goes to the file if it is a bundle. The call has a connection of its own.
    ///
    /// # Errors
    /// There is no reply: it is unknown whether the call took effect.
    pub async fn carry(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: Outgoing,
        to: Option<&File>,
    ) -> Result<Reply, String> {
        let request = self.request(path, headers, body, false)?;
        let mut link = match self.take_idle().await {
            Some(link) => link,
            None => self.connect_single().await?,
        };
        let reply = exchange(&mut link, request, to).await?;
        let mut idle = self.idle();
        if idle.len() < IDLE_MAX {
            idle.push(link);
        }
        Ok(reply)
    }

    /// `is_shared`: for HTTP/2, which needs a whole address.
    fn request(
        &self,
        path: &str,
        headers: &[(&str, &str)],
        body: Outgoing,
        is_shared: bool,
    ) -> Result<Request<Body>, String> {
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
                request =
                    request.header("content-length", rest.map_err(|error| error.to_string())?);
                spool::body_of(file)
            }
        };
        request.body(body).map_err(|error| error.to_string())
    }

    /// Returns the connection for all calls, which is opened if there is none. `None`: this hub has none.
    async fn take_shared(&self) -> Result<Option<SharedConnection>, String> {
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
        match opened
            .unwrap_or_else(|_| Err(format!("no connection in {} s", OPEN_MAX.as_secs())))?
        {
            Opened::Shared(opened) => Ok(Some(shared.insert(opened).clone())),
            Opened::Single(link) => {
                self.is_shared.store(false, Ordering::Relaxed);
                self.idle().push(link);
                Ok(None)
            }
        }
    }

    /// Takes an idle connection that the hub has kept open.
    async fn take_idle(&self) -> Option<Link> {
        loop {
            let mut link = self.idle().pop()?;
            let has_ended =
                poll_fn(|cx| Poll::Ready(link.connection.as_mut().poll(cx).is_ready())).await;
            if !has_ended && link.sender.is_ready() {
                return Some(link);
            }
        }
    }

    async fn connect_single(&self) -> Result<Link, String> {
        match self.connect(false).await? {
            Opened::Single(link) => Ok(link),
            Opened::Shared(_) => {
                Err("the hub has another protocol than the one that was offered".to_owned())
            }
        }
    }

    async fn connect(&self, shared: bool) -> Result<Opened, String> {
        let HubAddress {
            host,
            port,
            tls_name,
            ..
        } = &self.address;
        let stream = TcpStream::connect((host.as_str(), *port))
            .await
            .map_err(|error| format!("{host}:{port}: {error}"))?;
        if let Err(error) = tcp::detect_loss(&stream, SILENCE_MAX) {
            tracing::debug!(%error, "calls of the hub may be delayed");
        }
        let stream: Box<dyn Stream> = match tls_name {
            Some(name) => {
                let trust = self.trust.clone();
                let load = || async {
                    tokio::task::spawn_blocking(|| Connectors::load(trust))
                        .await
                        .map_err(|error| error.to_string())?
                };
                let Connectors {
                    single,
                    shared: both,
                } = self.connectors.get_or_try_init(load).await?;
                let connector = if shared { both } else { single };
                let stream = connector
                    .connect(name.clone(), stream)
                    .await
                    .map_err(|error| tls_failure(&self.address, &error))?;
                if stream.get_ref().1.alpn_protocol() == Some(tls::SHARED) {
                    return Ok(Opened::Shared(
                        SharedConnection::open(Box::new(stream)).await?,
                    ));
                }
                Box::new(stream)
            }
            None => Box::new(stream),
        };
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        Ok(Opened::Single(Link {
            sender,
            connection: Box::pin(connection),
            is_encrypted: tls_name.is_some(),
        }))
    }
}

impl Connectors {
    /// Blocks.
    fn load(trust: Trust) -> Result<Self, String> {
        let mut config = match trust {
            Trust::Installed => tls::installed_config()?,
            Trust::File(file) => tls::file_config(&file)?,
            Trust::Fingerprints(fingerprints) => tls::pinned_config(&fingerprints)?,
        };
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
fn tls_failure(address: &HubAddress, error: &std::io::Error) -> String {
    let HubAddress { host, port, .. } = address;
    let tls_error = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>());
    match tls_error {
        Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)) => {
            format!("{host}:{port} does not use TLS: use an http address, or set [tls] at the hub")
        }
        _ => format!("TLS to {host} failed: {error}"),
    }
}

/// Describes a call without a reply. A hub with a certificate answers plain HTTP with bytes that are not HTTP.
fn http_failure(error: &hyper::Error, is_encrypted: bool) -> String {
    if error.is_parse() && !is_encrypted {
        format!(
            "the reply is not HTTP: use an https address if the hub has a certificate ({error})"
        )
    } else {
        error.to_string()
    }
}

async fn exchange(
    link: &mut Link,
    request: Request<Body>,
    to: Option<&File>,
) -> Result<Reply, String> {
    let Link {
        sender,
        connection,
        is_encrypted,
    } = link;
    let answered = async {
        let response = sender
            .send_request(request)
            .await
            .map_err(|error| http_failure(&error, *is_encrypted))?;
        read_reply(response, to).await
    };
    tokio::pin!(answered);
    tokio::select! {
        biased;
        answered = &mut answered => answered,
        ended = connection => match ended {
            // A reply that was read before the connection ended still counts.
            Ok(()) => answered.await,
            Err(error) => Err(http_failure(&error, *is_encrypted)),
        },
    }
}

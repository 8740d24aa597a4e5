//! Connections to the API. They go to the configured host only: no proxy from the environment is used, and no redirect is followed.
//!
//! A connection has no task. The future that waits for the response or reads its body drives it, so dropping either
//! closes it.

use super::BUFFER_BYTES_MAX;
use super::headers::Key;
use super::request_body::RequestBody;
use crate::tls;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{self, Connection, SendRequest};
use hyper_util::rt::TokioIo;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError};
use std::task::Context;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// Timeout for name lookup, connection and TLS together.
const CONNECT_MAX: Duration = Duration::from_secs(30);
/// The time after which the next address of the host is tried in parallel.
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(300);
/// Maximum number of the host's addresses to try.
const ADDRESSES_MAX: usize = 16;
/// Timeout for the head of a response. A model that thinks without streaming takes minutes.
const HEAD_MAX: Duration = Duration::from_secs(60 * 60);
/// Maximum number of idle connections, and how long they are kept.
const IDLE_MAX: usize = 4;
const IDLE_TIME_MAX: Duration = Duration::from_secs(20);

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

type AnyStream = Box<dyn Stream>;

/// The API.
pub(super) struct Upstream {
    host: String,
    port: u16,
    /// The name in the server's certificate. `None`: plain HTTP.
    tls_name: Option<ServerName<'static>>,
    connector: OnceCell<TlsConnector>,
    /// The path of the base URL, without a trailing slash.
    base_path: String,
    pub(super) authority: HeaderValue,
    pub(super) key: Key,
    // Locked only between awaits.
    idle: Mutex<Vec<(Link, Instant)>>,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream")
            .field("host", &self.host)
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

/// A connection, which makes progress only while it is polled.
type Driven = Pin<Box<Connection<TokioIo<AnyStream>, RequestBody>>>;

/// A connection to the API.
pub(super) struct Link {
    sender: SendRequest<RequestBody>,
    /// `None`: the connection has ended.
    connection: Option<Driven>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link")
            .field("is_open", &self.connection.is_some())
            .finish_non_exhaustive()
    }
}

impl Link {
    /// Reads and writes as far as possible.
    pub(super) fn advance(&mut self, cx: &mut Context<'_>) {
        if let Some(connection) = &mut self.connection
            && connection.as_mut().poll(cx).is_ready()
        {
            // The response or its body returns the same error.
            self.connection = None;
        }
    }

    async fn is_usable(&mut self) -> bool {
        poll_fn(|cx| {
            self.advance(cx);
            std::task::Poll::Ready(())
        })
        .await;
        self.connection.is_some() && self.sender.is_ready()
    }
}

impl Upstream {
    pub(super) fn new(base_url: &Uri, key: &str) -> io::Result<Self> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
        let authority = base_url
            .authority()
            .ok_or_else(|| invalid("the base URL of the API has no host"))?;
        let host = authority
            .host()
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        let is_tls = base_url.scheme_str() != Some("http");
        let tls_name = is_tls
            .then(|| {
                ServerName::try_from(host.clone())
                    .map_err(|_| invalid("the host of the API is not a valid TLS name"))
            })
            .transpose()?;
        Ok(Self {
            port: authority
                .port_u16()
                .unwrap_or(if is_tls { 443 } else { 80 }),
            tls_name,
            connector: OnceCell::new(),
            base_path: base_url.path().trim_end_matches('/').to_owned(),
            authority: HeaderValue::from_str(authority.as_str())
                .map_err(|_| invalid("the base URL of the API is not valid"))?,
            key: Key::new(key).ok_or_else(|| {
                invalid("the key of the API contains characters that no header may have")
            })?,
            idle: Mutex::default(),
            host,
        })
    }

    /// Returns the path of a request to the API, without the key.
    pub(super) fn path(&self, asked: &Uri) -> Result<Uri, http::Error> {
        let query = asked.query().map(|query| {
            query
                .split('&')
                .filter(|pair| !pair.starts_with("key="))
                .collect::<Vec<_>>()
                .join("&")
        });
        let path = format!("{}{}", self.base_path, asked.path());
        let path_and_query: PathAndQuery = match query.filter(|query| !query.is_empty()) {
            Some(query) => format!("{path}?{query}").parse()?,
            None => path.parse()?,
        };
        Uri::builder().path_and_query(path_and_query).build()
    }

    /// Sends a request and waits for the head of the response. Calls `note_sent` before the first byte is sent.
    pub(super) async fn send(
        &self,
        mut request: Request<RequestBody>,
        note_sent: impl FnOnce(),
    ) -> Result<(Response<Incoming>, Link), String> {
        let mut note_sent = Some(note_sent);
        let mut kept = self.take_idle().await;
        loop {
            let is_kept = kept.is_some();
            let mut link = match kept.take() {
                Some(link) => link,
                None => tokio::time::timeout(CONNECT_MAX, self.connect())
                    .await
                    .unwrap_or_else(|_| {
                        Err(format!(
                            "{} does not accept a connection within {} s",
                            self.host,
                            CONNECT_MAX.as_secs()
                        ))
                    })?,
            };
            if let Some(note) = note_sent.take() {
                note();
            }
            let answered = tokio::time::timeout(HEAD_MAX, exchange(&mut link, request));
            match answered.await {
                Err(_) => {
                    return Err(format!(
                        "{} has not answered within {} minutes",
                        self.host,
                        HEAD_MAX.as_secs() / 60
                    ));
                }
                Ok(Ok(response)) => return Ok((response, link)),
                Ok(Err(mut failed)) => match failed.take_message() {
                    // The API had closed the idle connection, and no byte of the request was sent.
                    Some(unsent) if is_kept => request = unsent,
                    _ => {
                        return Err(format!(
                            "no response from {}: {}",
                            self.host,
                            describe_error(failed.error())
                        ));
                    }
                },
            }
        }
    }

    /// Keeps a connection for reuse after its response was read.
    pub(super) fn keep(&self, link: Link) {
        let mut idle = self.idle();
        if link.connection.is_some() && idle.len() < IDLE_MAX {
            idle.push((link, Instant::now()));
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<(Link, Instant)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes an idle connection that is still open.
    async fn take_idle(&self) -> Option<Link> {
        loop {
            let (mut link, since) = self.idle().pop()?;
            if since.elapsed() < IDLE_TIME_MAX && link.is_usable().await {
                return Some(link);
            }
        }
    }

    async fn connect(&self) -> Result<Link, String> {
        let addresses = tokio::net::lookup_host((self.host.as_str(), self.port))
            .await
            .map_err(|error| format!("{} cannot be looked up: {error}", self.host))?;
        let stream = connect_to_any(addresses)
            .await
            .map_err(|error| format!("{} cannot be reached: {error}", self.host))?;
        self.hand_shake(stream).await
    }

    async fn hand_shake(&self, stream: TcpStream) -> Result<Link, String> {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "requests to the API may be delayed");
        }
        let stream: AnyStream = match &self.tls_name {
            Some(name) => {
                let new = || async {
                    tokio::task::spawn_blocking(tls::connector)
                        .await
                        .map_err(|error| error.to_string())?
                };
                let connector = self.connector.get_or_try_init(new).await?;
                Box::new(
                    connector
                        .connect(name.clone(), stream)
                        .await
                        .map_err(|error| format!("TLS with {} failed: {error}", self.host))?,
                )
            }
            None => Box::new(stream),
        };
        let mut client = http1::Builder::new();
        client.max_buf_size(BUFFER_BYTES_MAX);
        let (sender, connection) = client
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        Ok(Link {
            sender,
            connection: Some(Box::pin(connection)),
        })
    }
}

/// Connects to the first address that accepts.
async fn connect_to_any(addresses: impl IntoIterator<Item = SocketAddr>) -> io::Result<TcpStream> {
    let mut addresses = addresses.into_iter().take(ADDRESSES_MAX).peekable();
    let mut attempts = FuturesUnordered::new();
    let mut failed = io::Error::new(io::ErrorKind::AddrNotAvailable, "it has no address");
    loop {
        if let Some(address) = addresses.next() {
            attempts.push(TcpStream::connect(address));
        }
        tokio::select! {
            attempt = attempts.next() => match attempt {
                Some(Ok(stream)) => return Ok(stream),
                Some(Err(error)) => failed = error,
                None => return Err(failed),
            },
            () = tokio::time::sleep(NEXT_ADDRESS_AFTER), if addresses.peek().is_some() => {}
        }
    }
}

/// Sends a request over a connection, and drives it until the head of the response has arrived.
async fn exchange(
    link: &mut Link,
    request: Request<RequestBody>,
) -> Result<Response<Incoming>, TrySendError<Request<RequestBody>>> {
    let mut response = pin!(link.sender.try_send_request(request).fuse());
    let connection = &mut link.connection;
    poll_fn(|cx| {
        if let Some(driven) = connection
            && driven.as_mut().poll(cx).is_ready()
        {
            *connection = None;
        }
        response.as_mut().poll(cx)
    })
    .await
}

/// Describes an error of the connection, without any of its content.
fn describe_error(error: &hyper::Error) -> String {
    let cause = std::error::Error::source(error)
        .map(|cause| format!(": {cause}"))
        .unwrap_or_default();
    format!("{error}{cause}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::{TcpListener, TcpSocket};

    #[tokio::test]
    async fn next_address_is_tried_while_one_is_silent() {
        // The queue of this listener is full: it neither accepts nor refuses.
        let silent = TcpSocket::new_v4().expect("a socket");
        silent
            .bind("127.0.0.1:0".parse().expect("an address"))
            .expect("a port");
        let silent = silent.listen(0).expect("a listener");
        let silent_address = silent.local_addr().expect("an address");
        let _queued = TcpStream::connect(silent_address)
            .await
            .expect("the queue has one place");
        let closed = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port")
            .local_addr()
            .expect("an address");
        let open = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = open.local_addr().expect("an address");
        for before in [
            vec![silent_address],
            vec![closed],
            vec![silent_address, closed, silent_address],
        ] {
            let connecting = connect_to_any(before.into_iter().chain([address]));
            let stream = tokio::time::timeout(CONNECT_MAX, connecting)
                .await
                .expect("the next address is tried")
                .expect("it accepts");
            assert_eq!(stream.peer_addr().expect("an address"), address);
        }
        assert!(connect_to_any([closed]).await.is_err() && connect_to_any([]).await.is_err());
    }
}

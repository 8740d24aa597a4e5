//! Connections to the API. They go to the configured host only: no proxy from the environment is
//! used, and no redirect is followed.

use super::BUFFER_BYTES_MAX;
use super::headers::Key;
use super::request_body::RequestBody;
use crate::http_client::{self, AnyStream, Endpoint, IdleLinks};
use crate::tls::Trust;
use adjutant_core::units::duration;
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, Uri};
use hyper::body::Incoming;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;

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

/// A connection to the API.
pub(super) type Link = http_client::Link<RequestBody>;

/// Why there is no response of the API.
#[derive(Debug, thiserror::Error)]
pub(super) enum UpstreamError {
    #[error("{host} cannot be looked up: {source}")]
    Lookup { host: String, source: io::Error },
    #[error("{host} cannot be reached: {source}")]
    Connect { host: String, source: io::Error },
    #[error(
        "{host} does not accept a connection within {}",
        duration::of(CONNECT_MAX)
    )]
    ConnectTimeout { host: String },
    /// The machine has no certificates to trust.
    #[error("{0}")]
    Trust(String),
    #[error("TLS with {host} failed: {source}")]
    Tls { host: String, source: io::Error },
    #[error(transparent)]
    Handshake(#[from] hyper::Error),
    #[error("{host} has not answered within {}", duration::of(HEAD_MAX))]
    ResponseTimeout { host: String },
    #[error("no response from {host}: {}", describe_error(source))]
    NoResponse { host: String, source: hyper::Error },
}

/// The API.
pub(super) struct Upstream {
    endpoint: Endpoint,
    connector: OnceCell<TlsConnector>,
    /// The path of the base URL, without a trailing slash.
    base_path: String,
    pub(super) authority: HeaderValue,
    pub(super) key: Key,
    idle: IdleLinks<RequestBody>,
}

impl std::fmt::Debug for Upstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upstream")
            .field("endpoint", &self.endpoint)
            .finish_non_exhaustive()
    }
}

impl Upstream {
    pub(super) fn new(base_url: &Uri, key: &str) -> io::Result<Self> {
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
        let authority = base_url
            .authority()
            .ok_or_else(|| invalid("the base URL of the API has no host"))?;
        Ok(Self {
            endpoint: Endpoint::of(base_url)
                .map_err(|_| invalid("the host of the API is not a valid TLS name"))?,
            connector: OnceCell::new(),
            base_path: base_url.path().trim_end_matches('/').to_owned(),
            authority: HeaderValue::from_str(authority.as_str())
                .map_err(|_| invalid("the base URL of the API is not valid"))?,
            key: Key::new(key).ok_or_else(|| {
                invalid("the key of the API contains characters that no header may have")
            })?,
            idle: IdleLinks::new(IDLE_MAX, Some(IDLE_TIME_MAX)),
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

    /// Sends a request and waits for the head of the response. Calls `note_sent` before the first
    /// byte is sent.
    pub(super) async fn send(
        &self,
        mut request: Request<RequestBody>,
        note_sent: impl FnOnce(),
    ) -> Result<(Response<Incoming>, Link), UpstreamError> {
        let host = || self.endpoint.host.clone();
        let mut note_sent = Some(note_sent);
        let mut kept = self.idle.take().await;
        loop {
            let is_kept = kept.is_some();
            let mut link = match kept.take() {
                Some(link) => link,
                None => tokio::time::timeout(CONNECT_MAX, self.connect())
                    .await
                    .unwrap_or_else(|_| Err(UpstreamError::ConnectTimeout { host: host() }))?,
            };
            // Once: the second try, on a new connection, sends the same request.
            if let Some(note) = note_sent.take() {
                note();
            }
            let response = link.sender.try_send_request(request);
            match tokio::time::timeout(HEAD_MAX, link.drive(response)).await {
                Err(_) => return Err(UpstreamError::ResponseTimeout { host: host() }),
                Ok(Ok(response)) => return Ok((response, link)),
                Ok(Err(mut failed)) => match failed.take_message() {
                    // The API had closed the idle connection, and no byte of the request was sent.
                    Some(unsent) if is_kept => request = unsent,
                    _ => {
                        return Err(UpstreamError::NoResponse {
                            host: host(),
                            source: failed.into_error(),
                        });
                    }
                },
            }
        }
    }

    /// Keeps a connection for reuse after its response was read.
    pub(super) fn keep(&self, link: Link) {
        self.idle.keep(link);
    }

    async fn connect(&self) -> Result<Link, UpstreamError> {
        let Endpoint {
            host,
            port,
            tls_name,
        } = &self.endpoint;
        let addresses = tokio::net::lookup_host((host.as_str(), *port))
            .await
            .map_err(|source| UpstreamError::Lookup {
                host: host.clone(),
                source,
            })?;
        let stream = connect_to_any(addresses)
            .await
            .map_err(|source| UpstreamError::Connect {
                host: host.clone(),
                source,
            })?;
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "requests to the API may be delayed");
        }
        let stream: AnyStream = match tls_name {
            Some(name) => {
                let new = || async {
                    tokio::task::spawn_blocking(|| Trust::Installed.connector())
                        .await
                        .map_err(|error| UpstreamError::Trust(error.to_string()))?
                        .map_err(|error| UpstreamError::Trust(error.to_string()))
                };
                let connector = self.connector.get_or_try_init(new).await?;
                let stream = connector.connect(name.clone(), stream).await;
                Box::new(stream.map_err(|source| UpstreamError::Tls {
                    host: host.clone(),
                    source,
                })?)
            }
            None => Box::new(stream),
        };
        Ok(Link::open(stream, Some(BUFFER_BYTES_MAX)).await?)
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

//! One request and its whole reply over a connection of its own.

use super::endpoint::Endpoint;
use super::link::{AnyStream, BoxError, Link, RequestBody};
use crate::tcp;
use adjutant_core::units::duration;
use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use hyper::body::Bytes;
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// The limits of an exchange.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// From the name lookup to the end of the reply.
    pub total: Duration,
    /// Of the name lookup with the connection, and of the TLS handshake.
    pub connect: Duration,
    /// How long the other machine may acknowledge nothing.
    pub silence_max: Duration,
    /// Largest head of the reply. `None`: the default of the HTTP library.
    pub head_bytes_max: Option<usize>,
    /// Largest body of the reply.
    pub body_bytes_max: usize,
}

/// Why an exchange failed. The texts do not name the server.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    #[error("no reply within {}", duration::of(*.0))]
    TimedOut(Duration),
    #[error("TLS is needed, but the endpoint has none")]
    NoTls,
    #[error(transparent)]
    NoConnection(#[from] io::Error),
    #[error(transparent)]
    ConnectionLost(#[from] hyper::Error),
    /// The body of the reply is too large, or ends early.
    #[error(transparent)]
    BodyNotRead(BoxError),
}

/// Sends a request and reads the reply, whatever its status is. `tls`: for an endpoint with TLS.
///
/// # Errors
/// There is no whole reply within the limits.
pub async fn exchange<B: RequestBody>(
    endpoint: &Endpoint,
    tls: Option<&TlsConnector>,
    request: Request<B>,
    limits: &Limits,
) -> Result<Response<Bytes>, ExchangeError> {
    let replied = async {
        let stream = connect(endpoint, tls, limits).await?;
        let mut link = Link::open(stream, limits.head_bytes_max).await?;
        let response = link.sender.send_request(request);
        let read = async {
            let (head, body) = response.await?.into_parts();
            let body = Limited::new(body, limits.body_bytes_max).collect().await;
            let body = body.map_err(ExchangeError::BodyNotRead)?.to_bytes();
            Ok(Response::from_parts(head, body))
        };
        link.drive(read).await
    };
    let replied = timeout(limits.total, replied).await;
    replied.unwrap_or(Err(ExchangeError::TimedOut(limits.total)))
}

async fn connect(
    endpoint: &Endpoint,
    tls: Option<&TlsConnector>,
    limits: &Limits,
) -> Result<AnyStream, ExchangeError> {
    let late = |text: &str| io::Error::new(io::ErrorKind::TimedOut, text);
    let address = (endpoint.host.as_str(), endpoint.port);
    let connected = timeout(limits.connect, TcpStream::connect(address)).await;
    let stream = connected.map_err(|_| late("no connection in time"))??;
    tcp::detect_loss(&stream, limits.silence_max).map_err(io::Error::from)?;
    let Some(name) = &endpoint.tls_name else {
        return Ok(Box::new(stream));
    };
    let tls = tls.ok_or(ExchangeError::NoTls)?;
    let encrypted = timeout(limits.connect, tls.connect(name.clone(), stream)).await;
    let stream = encrypted
        .map_err(|_| late("no TLS handshake in time"))?
        .map_err(|error| io::Error::new(error.kind(), format!("TLS failed: {error}")))?;
    Ok(Box::new(stream))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::Empty;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// Returns the result of an exchange with a server that sends some bytes and closes.
    async fn exchange_with(reply: &[u8]) -> Result<Response<Bytes>, ExchangeError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let url = format!("http://{address}").parse().expect("an address");
        let endpoint = Endpoint::of(&url).expect("an endpoint");
        let limits = Limits {
            total: Duration::from_secs(60),
            connect: Duration::from_secs(60),
            silence_max: Duration::from_secs(60),
            head_bytes_max: Some(8 * 1024),
            body_bytes_max: 4,
        };
        let request = Request::new(Empty::<Bytes>::new());
        let served = async {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut received = Vec::new();
            while !received.ends_with(b"\r\n\r\n") {
                stream.read_buf(&mut received).await.expect("a request");
            }
            stream.write_all(reply).await
        };
        tokio::join!(exchange(&endpoint, None, request, &limits), served).0
    }

    #[tokio::test]
    async fn reply_has_any_status_and_limited_size() {
        let moved =
            b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1/\r\ncontent-length: 4\r\n\r\nbody";
        let reply = exchange_with(moved).await.expect("a reply");
        assert_eq!(
            (reply.status().as_u16(), &reply.body()[..]),
            (302, &b"body"[..])
        );
        for unread in [
            &b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nlarge"[..],
            b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nbo",
        ] {
            let failed = exchange_with(unread).await.expect_err("no whole body");
            assert!(matches!(failed, ExchangeError::BodyNotRead(_)), "{failed}");
        }
        let long_head = format!("HTTP/1.1 200 OK\r\na: {}", "a".repeat(16 * 1024));
        for lost in [&b""[..], b"no HTTP\r\n\r\n", long_head.as_bytes()] {
            let failed = exchange_with(lost).await.expect_err("no head");
            assert!(
                matches!(failed, ExchangeError::ConnectionLost(_)),
                "{failed}"
            );
        }
    }
}

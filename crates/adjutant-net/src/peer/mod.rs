//! Calls of other hubs. Each call is one request over its own connection. No redirect is followed, and a reply has a limited
//! size. Callers decide what to send and when; this module does not use the store.

use crate::link::peer::{MESSAGE_BYTES_MAX, PeerCall};
use crate::{tcp, tls};
use adjutant_core::Fingerprint;
use http::{Request, StatusCode, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;

/// Time limit of connecting, TLS included.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// Time limit of a call, from the connection to the end of the reply, without the wait that it asks for: time for a large page.
const CALL_LIMIT: Duration = Duration::from_secs(20);
/// A connection whose other end does not acknowledge a probe for this long is lost.
const SILENCE_MAX: Duration = Duration::from_secs(12);
/// Largest head of a reply.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Longest explanation of a peer that is shown, in characters.
const DETAIL_CHARS_MAX: usize = 300;

/// Why a call of a peer failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    #[error("{0}")]
    Unreachable(String),
    #[error("it does not accept this hub's token (revoked?)")]
    TokenRefused,
    #[error("no such chat is shared with this hub")]
    NotShared,
    #[error("it answered {0}")]
    Failed(String),
    #[error("its reply cannot be used: {0}")]
    Unusable(String),
}

/// A hub with what is needed to call it. Cheap to clone; the token is never shown.
#[derive(Clone)]
pub struct PeerHub {
    host: String,
    authority: String,
    port: u16,
    prefix: String,
    token: String,
    tls: Option<TlsConnector>,
}

impl std::fmt::Debug for PeerHub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PeerHub")
            .field("authority", &self.authority)
            .finish_non_exhaustive()
    }
}

/// Checks the address of a peer: `http` or `https`, without a user, a query or a fragment.
///
/// # Errors
/// A message for people.
pub fn checked_url(text: &str, allow_plain: bool) -> Result<Uri, String> {
    let url: Uri = text
        .trim_end_matches('/')
        .parse()
        .map_err(|_| "use an address such as https://hub.example.org:7317".to_owned())?;
    let host = url.host().unwrap_or_default();
    if host.is_empty()
        || url.query().is_some()
        || url
            .authority()
            .is_none_or(|authority| authority.as_str().contains('@'))
    {
        return Err("use an address such as https://hub.example.org:7317".to_owned());
    }
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = adjutant_core::address::is_loopback(name);
    match url.scheme_str() {
        Some("https") => Ok(url),
        Some("http") if is_loopback || allow_plain => Ok(url),
        Some("http") => Err("http sends the token and the chats in plain text: use https, or accept it with --plain".to_owned()),
        _ => Err("use an address that begins with https://".to_owned()),
    }
}

impl PeerHub {
    /// Prepares calls of the hub at an address. Blocks while it reads the installed CA certificates. `fingerprints`: those of the trusted keys, with
    /// commas between them.
    ///
    /// # Errors
    /// The address or TLS cannot be used.
    pub fn new(url: &str, fingerprints: Option<&str>, token: String) -> Result<Self, PeerError> {
        let url = checked_url(url, true).map_err(PeerError::Unreachable)?;
        let is_tls = url.scheme_str() == Some("https");
        let tls = match (is_tls, fingerprints) {
            (false, _) => None,
            (true, Some(listed)) => {
                let listed = Fingerprint::parse_list(listed)
                    .map_err(|error| PeerError::Unreachable(error.to_string()))?;
                Some(tls::pinned_connector(&listed))
            }
            (true, None) => Some(tls::connector()),
        };
        let host = url
            .host()
            .unwrap_or_default()
            .trim_start_matches('[')
            .trim_end_matches(']')
            .to_owned();
        Ok(Self {
            host,
            authority: url.authority().map(ToString::to_string).unwrap_or_default(),
            port: url.port_u16().unwrap_or(if is_tls { 443 } else { 80 }),
            prefix: url.path().trim_end_matches('/').to_owned(),
            token,
            tls: tls.transpose().map_err(PeerError::Unreachable)?,
        })
    }

    /// Makes a call.
    ///
    /// # Errors
    /// There is no reply, or one that is not a success.
    pub async fn call<C: PeerCall>(&self, call: &C) -> Result<C::Reply, PeerError> {
        let body =
            serde_json::to_vec(call).map_err(|error| PeerError::Unusable(error.to_string()))?;
        let limit = CALL_LIMIT + Duration::from_millis(call.wait_ms());
        let exchanged = tokio::time::timeout(limit, self.exchange(C::PATH, body)).await;
        let (status, body) = exchanged.map_err(|_| {
            PeerError::Unreachable(format!(
                "{}: no reply within {} s",
                self.authority,
                limit.as_secs()
            ))
        })??;
        match status {
            StatusCode::OK => serde_json::from_slice(&body)
                .map_err(|error| PeerError::Unusable(error.to_string())),
            StatusCode::UNAUTHORIZED => Err(PeerError::TokenRefused),
            StatusCode::NOT_FOUND => Err(PeerError::NotShared),
            status => Err(PeerError::Failed(explained(status, &body))),
        }
    }

    async fn exchange(&self, path: &str, body: Vec<u8>) -> Result<(StatusCode, Bytes), PeerError> {
        let unreachable = |error: &dyn std::fmt::Display| {
            PeerError::Unreachable(format!("{}: {error}", self.authority))
        };
        let connect = tokio::time::timeout(
            CONNECT_LIMIT,
            TcpStream::connect((self.host.as_str(), self.port)),
        )
        .await;
        let stream = connect
            .map_err(|_| unreachable(&"no connection in time"))?
            .map_err(|error| unreachable(&error))?;
        // A reply that waits for an entry is silent for most of a minute.
        tcp::detect_loss(&stream, SILENCE_MAX).map_err(|error| unreachable(&error))?;
        let request = Request::post(format!("{}{path}", self.prefix))
            .header("host", &self.authority)
            .header("authorization", format!("Bearer {}", self.token))
            .header(
                "user-agent",
                concat!("adjutant/", env!("CARGO_PKG_VERSION")),
            )
            .header("content-type", "application/json")
            .header("connection", "close")
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| unreachable(&error))?;
        match &self.tls {
            None => exchange(stream, request).await,
            Some(tls) => {
                let name = ServerName::try_from(self.host.clone())
                    .map_err(|_| unreachable(&"the host is not a valid TLS name"))?;
                let handshake =
                    tokio::time::timeout(CONNECT_LIMIT, tls.connect(name, stream)).await;
                let stream = handshake.map_err(|_| unreachable(&"no TLS handshake in time"))?;
                exchange(
                    stream.map_err(|error| unreachable(&format!("TLS failed: {error}")))?,
                    request,
                )
                .await
            }
        }
        .map_err(|error| match error {
            PeerError::Unreachable(problem) => unreachable(&problem),
            error => error,
        })
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    request: Request<Full<Bytes>>,
) -> Result<(StatusCode, Bytes), PeerError> {
    let lost = |error: &dyn std::fmt::Display| PeerError::Unreachable(error.to_string());
    let handshake = http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .handshake(TokioIo::new(stream))
        .await;
    let (mut sender, connection) = handshake.map_err(|error| lost(&error))?;
    tokio::pin!(connection);
    let read = async {
        let response = sender
            .send_request(request)
            .await
            .map_err(|error| lost(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), MESSAGE_BYTES_MAX)
            .collect()
            .await;
        Ok((
            status,
            body.map_err(|error| PeerError::Unusable(error.to_string()))?
                .to_bytes(),
        ))
    };
    tokio::pin!(read);
    tokio::select! {
        read = &mut read => read,
        ended = &mut connection => match ended {
            // A reply that was read before the connection ended still counts.
            Ok(()) => read.await,
            Err(error) => Err(lost(&error)),
        },
    }
}

/// Returns a status with the explanation of the peer, in one line.
fn explained(status: StatusCode, body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Problem {
        detail: String,
    }
    match serde_json::from_slice::<Problem>(body) {
        Ok(Problem { detail }) => format!(
            "{status}: {}",
            adjutant_core::quote::quote_line(&detail, DETAIL_CHARS_MAX)
        ),
        Err(_) => status.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_needs_loopback_or_consent() {
        for url in [
            "http://127.0.0.1:7317",
            "http://[::1]:7317/",
            "http://localhost:7317",
            "https://hub.example.org",
            "https://hub.example.org/adj",
        ] {
            assert!(checked_url(url, false).is_ok(), "{url}");
        }
        let refused = checked_url("http://hub.example.org:7317", false).expect_err("refused");
        assert!(refused.contains("plain text"), "{refused}");
        assert!(checked_url("http://hub.example.org:7317", true).is_ok());
        for url in [
            "",
            "hub",
            "ftp://hub",
            "https://",
            "https://user:password@hub",
            "https://hub?x=1",
            "https://a b",
        ] {
            assert!(checked_url(url, true).is_err(), "{url}");
        }
    }
}

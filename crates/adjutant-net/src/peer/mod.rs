//! Calls of other hubs. Each call is one request over its own connection. No redirect is followed,
//! and a reply has a limited size. Callers decide what to send and when; this module does not use
//! the store.

use crate::http_client::{self, Endpoint, ExchangeError, Limits};
use crate::protocol::peer::{MESSAGE_BYTES_MAX, PeerCall};
use crate::tls::Trust;
use adjutant_core::Fingerprint;
use http::{Request, StatusCode, Uri};
use http_body_util::Full;
use hyper::body::Bytes;
use serde::Deserialize;
use std::time::Duration;
use tokio_rustls::TlsConnector;

/// The limits of a call. The wait that it asks for is added to the total.
const LIMITS: Limits = Limits {
    // Time for a large page.
    total: Duration::from_secs(20),
    connect: Duration::from_secs(10),
    // A reply that waits for an entry is silent for most of a minute.
    silence_max: Duration::from_secs(12),
    head_bytes_max: Some(64 * 1024),
    body_bytes_max: MESSAGE_BYTES_MAX,
};
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
    endpoint: Endpoint,
    authority: String,
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

/// Why the address of a peer cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PeerUrlProblem {
    #[error("use an address such as https://hub.example.org:7317")]
    NotAddress,
    #[error(
        "http sends the token and the chats in plain text: use https, or accept it with --plain"
    )]
    PlainText,
    #[error("use an address that begins with https://")]
    NotHttps,
}

/// Checks the address of a peer: `http` or `https`, without a user, a query or a fragment.
///
/// # Errors
/// It is another address.
pub fn checked_url(text: &str, allow_plain: bool) -> Result<Uri, PeerUrlProblem> {
    let url: Uri = text
        .trim_end_matches('/')
        .parse()
        .map_err(|_| PeerUrlProblem::NotAddress)?;
    let host = url.host().unwrap_or_default();
    if host.is_empty()
        || url.query().is_some()
        || url
            .authority()
            .is_none_or(|authority| authority.as_str().contains('@'))
    {
        return Err(PeerUrlProblem::NotAddress);
    }
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = adjutant_core::address::is_loopback(name);
    match url.scheme_str() {
        Some("https") => Ok(url),
        Some("http") if is_loopback || allow_plain => Ok(url),
        Some("http") => Err(PeerUrlProblem::PlainText),
        _ => Err(PeerUrlProblem::NotHttps),
    }
}

fn unreachable(error: impl std::fmt::Display) -> PeerError {
    PeerError::Unreachable(error.to_string())
}

impl PeerHub {
    /// Prepares calls of the hub at an address. Blocks while it reads the installed CA
    /// certificates. `fingerprints`: those of the trusted keys, with commas between them.
    ///
    /// # Errors
    /// The address or TLS cannot be used.
    pub fn new(url: &str, fingerprints: Option<&str>, token: String) -> Result<Self, PeerError> {
        let url = checked_url(url, true).map_err(unreachable)?;
        let endpoint = Endpoint::of(&url).map_err(unreachable)?;
        let trust = match (endpoint.tls_name.is_some(), fingerprints) {
            (false, _) => None,
            (true, Some(listed)) => {
                let listed = Fingerprint::parse_list(listed).map_err(unreachable)?;
                Some(Trust::Fingerprints(listed))
            }
            (true, None) => Some(Trust::Installed),
        };
        let tls = trust.map(|trust| trust.connector());
        Ok(Self {
            endpoint,
            authority: url.authority().map(ToString::to_string).unwrap_or_default(),
            prefix: url.path().trim_end_matches('/').to_owned(),
            token,
            tls: tls.transpose().map_err(unreachable)?,
        })
    }

    /// Makes a call.
    ///
    /// # Errors
    /// There is no reply, or one that is not a success.
    pub async fn call<C: PeerCall>(&self, call: &C) -> Result<C::Reply, PeerError> {
        let unreachable = |error: &dyn std::fmt::Display| {
            PeerError::Unreachable(format!("{}: {error}", self.authority))
        };
        let unusable = |error: &dyn std::fmt::Display| PeerError::Unusable(error.to_string());
        let body = serde_json::to_vec(call).map_err(|error| unusable(&error))?;
        let request = Request::post(format!("{}{}", self.prefix, C::PATH))
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
        let limits = Limits {
            total: LIMITS.total + Duration::from_millis(call.wait_ms()),
            ..LIMITS
        };
        let reply = http_client::exchange(&self.endpoint, self.tls.as_ref(), request, &limits)
            .await
            .map_err(|error| match error {
                ExchangeError::BodyNotRead(error) => unusable(&error),
                error => unreachable(&error),
            })?;
        match reply.status() {
            StatusCode::OK => {
                serde_json::from_slice(reply.body()).map_err(|error| unusable(&error))
            }
            StatusCode::UNAUTHORIZED => Err(PeerError::TokenRefused),
            StatusCode::NOT_FOUND => Err(PeerError::NotShared),
            status => Err(PeerError::Failed(explained(status, reply.body()))),
        }
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
        assert_eq!(refused, PeerUrlProblem::PlainText);
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

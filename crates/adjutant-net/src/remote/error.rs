//! Why a call of a hub on another machine has no reply.

use crate::spool::NotReceived;
use crate::tls::TrustError;
use adjutant_core::units::duration;
use std::io;
use std::time::Duration;
use tokio::task::JoinError;

/// Why a call has no reply. It is unknown whether it took effect.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("no reply in {}", duration::of(*.0))]
    NoReply(Duration),
    #[error("no connection in {}", duration::of(*.0))]
    NoConnection(Duration),
    #[error("{host}:{port}: {source}")]
    Connect {
        host: String,
        port: u16,
        source: io::Error,
    },
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error("{host}:{port} does not use TLS: use an http address, or set [tls] at the hub")]
    NoTls {
        host: String,
        port: u16,
        source: io::Error,
    },
    #[error("TLS to {host} failed: {source}")]
    Tls { host: String, source: io::Error },
    #[error("the hub has another protocol than the one that was offered")]
    OtherProtocol,
    /// A hub with a certificate answers plain HTTP with bytes that are not HTTP.
    #[error("the reply is not HTTP: use an https address if the hub has a certificate ({0})")]
    NotHttp(#[source] hyper::Error),
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error(transparent)]
    Request(#[from] http::Error),
    /// The file with the body cannot be read.
    #[error(transparent)]
    File(io::Error),
    #[error("the bundle cannot be received: {0}")]
    Bundle(#[source] NotReceived),
    /// The body of the reply is too large, or ends early.
    #[error(transparent)]
    BodyNotRead(Box<dyn std::error::Error + Send + Sync>),
    #[error(transparent)]
    Task(#[from] JoinError),
}

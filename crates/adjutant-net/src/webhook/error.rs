//! Why a delivery failed. The texts are for people, and contain no secret.

use crate::config::WebhookProblem;
use crate::http_client::InvalidTlsName;
use crate::tls::TrustError;
use adjutant_core::units::duration;
use http::StatusCode;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
use tokio::task::JoinError;

/// Time limit of a delivery, from the name lookup to the response's status.
pub(super) const DELIVERY_LIMIT: Duration = Duration::from_secs(15);
/// Shortest secret, in bytes.
pub(super) const SECRET_BYTES_MIN: usize = 16;
pub(super) const SECRET_BYTES_MAX: u64 = 4 * 1024;

/// Why a delivery failed.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    #[error("no response within {}", duration::of(DELIVERY_LIMIT))]
    TimedOut,
    #[error("the webhook has changed meanwhile; it is tried again")]
    Changed,
    #[error(transparent)]
    Secret(#[from] SecretError),
    #[error("token: it is not the token of a bot")]
    NotATelegramToken,
    #[error(transparent)]
    Address(#[from] WebhookProblem),
    #[error("url_from: {0}")]
    AddressInSecret(#[source] WebhookProblem),
    /// The path of an address, which can contain a secret.
    #[error("the address cannot be used")]
    Path(#[source] http::uri::InvalidUri),
    #[error(transparent)]
    AddressParts(#[from] http::uri::InvalidUriParts),
    #[error(transparent)]
    TlsName(#[from] InvalidTlsName),
    #[error("{name} cannot be looked up: {source}")]
    Lookup { name: String, source: io::Error },
    #[error("{0} has no address")]
    NoAddress(String),
    #[error("{name} is {address}, a private address: set allow_private = true to allow it")]
    PrivateAddress { name: String, address: IpAddr },
    #[error("{address}: {source}")]
    Connect {
        address: SocketAddr,
        source: io::Error,
    },
    #[error(transparent)]
    Request(#[from] http::Error),
    #[error("{0} cannot be sent: it has characters that are not allowed")]
    Header(&'static str),
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error("TLS failed: {0}")]
    Tls(#[source] io::Error),
    #[error(transparent)]
    Http(#[from] hyper::Error),
    #[error("no response: {0}")]
    NoResponse(#[source] hyper::Error),
    #[error("the response was {0}")]
    Status(StatusCode),
    #[error(transparent)]
    Program(#[from] ProgramError),
    #[error(transparent)]
    Date(#[from] jiff::Error),
    #[error(transparent)]
    Task(#[from] JoinError),
}

/// Why a secret cannot be read. `field`: the key in the configuration.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    #[error("{field} {path}: {source}")]
    Io {
        field: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("{field} {path}: larger than {SECRET_BYTES_MAX} bytes")]
    TooLarge { field: &'static str, path: PathBuf },
    #[error("{field} {path} is accessible to other users: chmod 600")]
    NotPrivate { field: &'static str, path: PathBuf },
    #[error("{field}: the variable {name} is not set for the hub")]
    NoVariable { field: &'static str, name: String },
    #[error("{field}: must be one line without spaces")]
    NotOneLine { field: &'static str },
    #[error("secret_file {path}: behind whsec_: {source}")]
    Encoding {
        path: PathBuf,
        source: base64::DecodeError,
    },
    #[error("secret_file {0}: shorter than {SECRET_BYTES_MIN} bytes")]
    TooShort(PathBuf),
}

/// Why a program has not taken a message.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error("{field}: names no program")]
    NoProgram { field: &'static str },
    #[error("{0} was not found on the hub's PATH: install it (libnotify), or set notify.command")]
    NotFound(&'static str),
    #[error("{program}: {source}")]
    Start { program: String, source: io::Error },
    /// `said`: the end of its standard error, in one line.
    #[error("{program} {}{}", ending(*.code), explanation(.said))]
    Failed {
        program: String,
        /// `None`: a signal ended it.
        code: Option<i32>,
        said: String,
    },
}

fn ending(code: Option<i32>) -> String {
    code.map_or_else(
        || "was killed by a signal".to_owned(),
        |code| format!("ended with exit code {code}"),
    )
}

fn explanation(said: &str) -> String {
    if said.is_empty() {
        String::new()
    } else {
        format!(": {said}")
    }
}

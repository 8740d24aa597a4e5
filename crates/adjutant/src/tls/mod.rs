//! TLS: connections to other machines, and the hub's own certificate for callers over HTTP.

mod client;
mod server;

pub use client::{connector, connector_for, file_config, installed_config, pinned_config, pinned_connector};
pub use server::TlsServer;

use sha2::{Digest, Sha256};
use tokio_rustls::rustls::pki_types::CertificateDer;

/// The protocol of most callers (ALPN): one call at a time.
pub const HTTP_1: &[u8] = b"http/1.1";
/// The protocol of runners: HTTP/2, for many calls at the same time. It has a name of its own, so that browsers continue with HTTP/1.1.
pub const SHARED: &[u8] = b"adjutant/h2";

/// Returns the SHA-256 of a certificate, in hexadecimal.
fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    Sha256::digest(certificate).iter().map(|byte| format!("{byte:02x}")).collect()
}

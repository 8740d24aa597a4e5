//! TLS: connections to other machines, and the hub's own certificate for callers over HTTP.

mod client;
mod server;

pub use client::{connector, connector_for, pinned_connector};
pub use server::TlsServer;

use sha2::{Digest, Sha256};
use tokio_rustls::rustls::pki_types::CertificateDer;

/// Returns the SHA-256 of a certificate, in hexadecimal.
fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    Sha256::digest(certificate).iter().map(|byte| format!("{byte:02x}")).collect()
}

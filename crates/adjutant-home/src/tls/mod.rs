//! TLS: connections to other machines, and the hub's own certificate for callers over HTTP.

mod client;
mod server;

pub use client::{Trust, TrustError};
pub use server::{CertificateProblem, TlsServer};

use adjutant_core::hex;
use sha2::{Digest, Sha256};
use tokio_rustls::rustls::Error;
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::server::ParsedCertificate;

/// The protocol of most callers (ALPN): one call at a time.
pub const HTTP_1: &[u8] = b"http/1.1";
/// The protocol of runners: HTTP/2, for many calls at the same time. It has a name of its own, so
/// that browsers continue with HTTP/1.1.
pub const SHARED: &[u8] = b"adjutant/h2";

/// Returns the SHA-256 of the public key of a certificate (its `SubjectPublicKeyInfo` in DER), in
/// hexadecimal. A renewed certificate with the same key has the same one.
///
/// # Errors
/// The certificate cannot be parsed.
fn fingerprint(certificate: &CertificateDer<'_>) -> Result<String, Error> {
    let key = ParsedCertificate::try_from(certificate)?.subject_public_key_info();
    Ok(hex(Sha256::digest(&key)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_rustls::rustls::pki_types::pem::PemObject;

    #[test]
    fn renewed_certificate_has_the_fingerprint_of_its_key() {
        let of = |name: &str| {
            let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../adjutant/tests/fixtures/tls")
                .join(name);
            fingerprint(&CertificateDer::from_pem_file(file).expect("a certificate"))
                .expect("a fingerprint")
        };
        assert_eq!(
            of("server.pem"),
            of("expired.pem"),
            "both have the key of the server"
        );
        assert_ne!(of("server.pem"), of("hub.pem"));
    }
}

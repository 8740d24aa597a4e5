//! TLS to other machines, with the CA certificates of this one or of a file.

use adjutant_core::Fingerprint;
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

/// Reads the installed CA certificates and sets up TLS. Blocks.
///
/// # Errors
/// No CA certificates are installed.
pub fn connector() -> Result<TlsConnector, String> {
    installed_config().map(to_connector)
}

/// Sets up TLS that trusts only the CA certificates of a file. Blocks.
///
/// # Errors
/// The file cannot be read, or contains no certificate.
pub fn connector_for(file: &Path) -> Result<TlsConnector, String> {
    file_config(file).map(to_connector)
}

/// Sets up TLS that trusts only certificates whose public key has one of these fingerprints, whatever their names and their authority are.
///
/// # Errors
/// TLS cannot be set up.
pub fn pinned_connector(fingerprints: &[Fingerprint]) -> Result<TlsConnector, String> {
    pinned_config(fingerprints).map(to_connector)
}

/// As [`connector`], as a configuration that can be changed.
///
/// # Errors
/// No CA certificates are installed.
pub fn installed_config() -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err(format!(
            "no CA certificates are installed{}",
            found
                .errors
                .first()
                .map_or_else(String::new, |error| format!(": {error}"))
        ));
    }
    config_with(roots)
}

/// As [`connector_for`], as a configuration that can be changed.
///
/// # Errors
/// The file cannot be read, or contains no certificate.
pub fn file_config(file: &Path) -> Result<ClientConfig, String> {
    let problem = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| problem(&error))? {
        roots
            .add(certificate.map_err(|error| problem(&error))?)
            .map_err(|error| problem(&error))?;
    }
    if roots.is_empty() {
        return Err(problem(&"no certificate in it"));
    }
    config_with(roots)
}

/// As [`pinned_connector`], as a configuration that can be changed.
///
/// # Errors
/// TLS cannot be set up.
pub fn pinned_config(fingerprints: &[Fingerprint]) -> Result<ClientConfig, String> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(Pinned {
        fingerprints: fingerprints.to_vec(),
        provider: Arc::clone(&provider),
    });
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(config
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth())
}

/// Accepts certificates with these public keys. The handshake still proves that the server has the private key.
#[derive(Debug)]
struct Pinned {
    fingerprints: Vec<Fingerprint>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let found = super::fingerprint(certificate)?;
        if self
            .fingerprints
            .iter()
            .any(|fingerprint| fingerprint.as_str() == found)
        {
            return Ok(ServerCertVerified::assertion());
        }
        Err(Error::General(format!(
            "the certificate is another one: the fingerprint of its key is {found}"
        )))
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            certificate,
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            certificate,
            signed,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

fn config_with(roots: RootCertStore) -> Result<ClientConfig, String> {
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

fn to_connector(config: ClientConfig) -> TlsConnector {
    TlsConnector::from(Arc::new(config))
}

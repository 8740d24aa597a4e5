//! TLS to other machines, with the CA certificates of this one or of a file.

use adjutant_core::Fingerprint;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{self, CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

/// Which certificates of a server are trusted.
#[derive(Debug, Clone)]
pub enum Trust {
    /// By the CA certificates of this machine.
    Installed,
    /// By the CA certificates of a file.
    File(PathBuf),
    /// Only certificates whose public key has one of these fingerprints, whatever their names and
    /// their authority are.
    Fingerprints(Vec<Fingerprint>),
}

/// Why connections cannot be set up with these certificates.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    #[error("no CA certificates are installed{}", shown(.0.as_ref()))]
    NoneInstalled(#[source] Option<rustls_native_certs::Error>),
    #[error("{path}: {source}")]
    Pem {
        path: PathBuf,
        source: pki_types::pem::Error,
    },
    #[error("{path}: {source}")]
    Certificate { path: PathBuf, source: Error },
    #[error("{0}: no certificate in it")]
    NoneInFile(PathBuf),
    #[error(transparent)]
    Protocols(#[from] Error),
}

fn shown(cause: Option<&rustls_native_certs::Error>) -> String {
    cause.map_or_else(String::new, |cause| format!(": {cause}"))
}

impl Trust {
    /// Reads the certificates and sets up TLS. Blocks.
    ///
    /// # Errors
    /// There is no CA certificate, or the file cannot be read.
    pub fn connector(&self) -> Result<TlsConnector, TrustError> {
        self.config()
            .map(|config| TlsConnector::from(Arc::new(config)))
    }

    /// As [`Trust::connector`], as a configuration that can be changed.
    ///
    /// # Errors
    /// There is no CA certificate, or the file cannot be read.
    pub fn config(&self) -> Result<ClientConfig, TrustError> {
        match self {
            Self::Installed => installed_config(),
            Self::File(file) => file_config(file),
            Self::Fingerprints(fingerprints) => pinned_config(fingerprints),
        }
    }
}

fn installed_config() -> Result<ClientConfig, TrustError> {
    let mut roots = RootCertStore::empty();
    let found = rustls_native_certs::load_native_certs();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err(TrustError::NoneInstalled(found.errors.into_iter().next()));
    }
    config_with(roots)
}

fn file_config(file: &Path) -> Result<ClientConfig, TrustError> {
    let unreadable = |source| TrustError::Pem {
        path: file.to_owned(),
        source,
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(unreadable)? {
        roots
            .add(certificate.map_err(unreadable)?)
            .map_err(|source| TrustError::Certificate {
                path: file.to_owned(),
                source,
            })?;
    }
    if roots.is_empty() {
        return Err(TrustError::NoneInFile(file.to_owned()));
    }
    config_with(roots)
}

fn pinned_config(fingerprints: &[Fingerprint]) -> Result<ClientConfig, TrustError> {
    let provider = Arc::new(ring::default_provider());
    let verifier = Arc::new(Pinned {
        fingerprints: fingerprints.to_vec(),
        provider: Arc::clone(&provider),
    });
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth())
}

/// Accepts certificates with these public keys. The handshake still proves that the server has the
/// private key.
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

fn config_with(roots: RootCertStore) -> Result<ClientConfig, TrustError> {
    let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

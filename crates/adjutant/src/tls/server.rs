//! TLS for callers: a certificate and its key from files that the user has named.
//!
//! When the files change (a renewed certificate), new connections use the new ones. While those are unusable, the earlier ones stay in use.

use crate::{clock, files};
use std::fs::Metadata;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{CertificateError, Error, RootCertStore, ServerConfig, crypto};
use tokio_rustls::server::TlsStream;

/// Longest file: a chain of certificates with some to spare.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// The files are compared with the loaded ones at most once in this time.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The certificate of the hub.
#[derive(Debug)]
pub struct TlsServer {
    cert: PathBuf,
    key: PathBuf,
    current: Mutex<Current>,
}

#[derive(Debug)]
struct Current {
    loaded: Loaded,
    /// The files when they were last read, successfully or not.
    stamps: [Option<Stamp>; 2],
    checked: Instant,
}

/// Changes when a file is replaced or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    changed: (i64, i64),
}

#[derive(Clone)]
struct Loaded {
    acceptor: TlsAcceptor,
    certificate: Arc<CertificateDer<'static>>,
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loaded").finish_non_exhaustive()
    }
}

impl TlsServer {
    /// Reads the files. Blocks.
    ///
    /// # Errors
    /// A file cannot be read or has the wrong content, other users can read the key, the key is not that of the certificate, or
    /// the certificate is not valid now.
    pub fn load(cert: &Path, key: &Path) -> Result<Self, String> {
        let stamps = [stamp(cert), stamp(key)];
        let current = Mutex::new(Current { loaded: load(cert, key)?, stamps, checked: Instant::now() });
        Ok(Self { cert: cert.to_owned(), key: key.to_owned(), current })
    }

    /// Performs the handshake with a caller. The caller limits its time.
    ///
    /// # Errors
    /// The connection broke, or the peer does not speak TLS.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> io::Result<TlsStream<S>> {
        let acceptor = self.current().acceptor;
        acceptor.accept(stream).await
    }

    /// Returns whether the certificate is for this host: a name or an address, without a port.
    #[must_use]
    pub fn is_for(&self, host: &str) -> bool {
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let Ok(name) = ServerName::try_from(host) else { return false };
        let certificate = self.current().certificate;
        ParsedCertificate::try_from(&*certificate).is_ok_and(|certificate| verify_server_name(&certificate, &name).is_ok())
    }

    /// Returns the newest usable files.
    fn current(&self) -> Loaded {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.checked.elapsed() >= CHECK_INTERVAL {
            current.checked = Instant::now();
            let stamps = [stamp(&self.cert), stamp(&self.key)];
            if stamps != current.stamps {
                current.stamps = stamps;
                match load(&self.cert, &self.key) {
                    Ok(loaded) => {
                        current.loaded = loaded;
                        tracing::info!(cert = %self.cert.display(), "the certificate was read again");
                    }
                    Err(problem) => tracing::error!(%problem, "the earlier certificate stays in use"),
                }
            }
        }
        current.loaded.clone()
    }
}

/// `None`: the file is not there, or cannot be examined.
fn stamp(path: &Path) -> Option<Stamp> {
    let meta: Metadata = path.metadata().ok()?;
    Some(Stamp { device: meta.dev(), inode: meta.ino(), changed: (meta.ctime(), meta.ctime_nsec()) })
}

fn load(cert: &Path, key: &Path) -> Result<Loaded, String> {
    let chain = certificates(cert)?;
    let certificate = chain.first().cloned().ok_or_else(|| format!("{} contains no certificate", cert.display()))?;
    check_time(cert, &chain)?;
    let unusable = |error: Error| match error {
        Error::InconsistentKeys(_) => format!("{} is not the key of the certificate in {}", key.display(), cert.display()),
        error => format!("{} and {} cannot be used: {error}", cert.display(), key.display()),
    };
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().map_err(unusable)?;
    let mut config = config.with_no_client_auth().with_single_cert(chain, private_key(key)?).map_err(unusable)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Loaded { acceptor: TlsAcceptor::from(Arc::new(config)), certificate: Arc::new(certificate) })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = files::read_named(path, FILE_BYTES_MAX).map_err(|error| format!("the certificate {} cannot be read: {error}", path.display()))?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    chain.map_err(|error| format!("{} is no PEM file of certificates: {error}", path.display()))
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, String> {
    let failed = |error: io::Error| format!("the key {} cannot be read: {error}", path.display());
    let file = files::open_named(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    let own = rustix::process::getuid().as_raw();
    if meta.uid() != 0 && meta.uid() != own {
        return Err(format!("the key {} belongs to another user (uid {})", path.display(), meta.uid()));
    }
    if meta.mode() & 0o077 != 0 {
        return Err(format!("the key {} is accessible to other users: chmod 600", path.display()));
    }
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX).read_to_end(&mut text).map_err(failed)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| format!("{} is no PEM file with a private key: {error}", path.display()))
}

/// Refuses a certificate that is not valid now. Of the checks of a client, only this one counts here: with the certificate as its own
/// authority, no other certificate is needed, and the first check is that of the time.
fn check_time(path: &Path, chain: &[CertificateDer<'static>]) -> Result<(), String> {
    let Some((own, others)) = chain.split_first() else { return Ok(()) };
    let parsed = ParsedCertificate::try_from(own).map_err(|error| format!("the certificate in {} cannot be used: {error}", path.display()))?;
    let mut roots = RootCertStore::empty();
    roots.add(own.clone()).map_err(|error| format!("the certificate in {} cannot be used: {error}", path.display()))?;
    let now = UnixTime::since_unix_epoch(Duration::from_millis(u64::try_from(clock::now().0).unwrap_or_default()));
    let algorithms = crypto::ring::default_provider().signature_verification_algorithms;
    match verify_server_cert_signed_by_trust_anchor(&parsed, &roots, others, now, algorithms.all) {
        Err(Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. })) => {
            Err(format!("the certificate in {} has expired", path.display()))
        }
        Err(Error::InvalidCertificate(CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. })) => {
            Err(format!("the certificate in {} is not valid yet", path.display()))
        }
        Ok(()) | Err(_) => Ok(()),
    }
}

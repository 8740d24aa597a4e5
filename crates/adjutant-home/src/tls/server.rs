//! TLS for callers: a certificate and its key from files that the user has named.
//!
//! When the files change (a renewed certificate), new connections use the new ones. While those are
//! unusable, the earlier ones stay in use.
//!
//! The files are read in a thread of their own, for which callers wait a limited time: their file
//! system may not answer.

use crate::{clock, failpoint, files};
use adjutant_core::units::duration;
use std::fs::Metadata;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, oneshot};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use tokio_rustls::rustls::pki_types::pem::{self, PemObject};
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::ParsedCertificate;
use tokio_rustls::rustls::{CertificateError, Error, RootCertStore, ServerConfig, crypto};
use tokio_rustls::server::TlsStream;
use webpki::EndEntityCert;

/// Longest file: a chain of certificates with some to spare.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// The files are compared with the loaded ones at most once in this time.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long callers wait until the files are read.
const READ_TAKES_MAX: Duration = Duration::from_secs(2);

/// The certificate of the hub.
#[derive(Debug)]
pub struct TlsServer {
    files: Files,
    current: Mutex<Current>,
    /// Notified when the public key has changed.
    changed: Notify,
}

#[derive(Debug, Clone)]
struct Files {
    cert: PathBuf,
    key: PathBuf,
}

#[derive(Debug)]
struct Current {
    loaded: Loaded,
    /// The files when they were last read, successfully or not.
    stamps: [Option<Stamp>; 2],
    checked: Instant,
    /// Whether a thread compares them.
    is_checking: bool,
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
    fingerprint: String,
}

impl std::fmt::Debug for Loaded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loaded").finish_non_exhaustive()
    }
}

/// Why the certificate of the hub and its key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateProblem {
    #[error(
        "the certificate {cert} and the key {key} cannot be read: their file system has not answered for {}; \
         make it answer and restart the hub, or name files on another one in [tls]",
        duration::of(READ_TAKES_MAX)
    )]
    Unanswered { cert: PathBuf, key: PathBuf },
    /// The files are not read in a thread.
    #[error(transparent)]
    Thread(#[from] io::Error),
    #[error(transparent)]
    ThreadEnded(#[from] oneshot::error::RecvError),
    #[error("the certificate {path} cannot be read: {source}")]
    CertificateIo { path: PathBuf, source: io::Error },
    #[error("{path} is not a PEM file of certificates: {source}")]
    CertificateFormat { path: PathBuf, source: pem::Error },
    #[error("{0} contains no certificate")]
    NoCertificate(PathBuf),
    #[error("the certificate in {path} cannot be used: {source}")]
    Certificate { path: PathBuf, source: Error },
    #[error("the certificate in {0} has expired")]
    Expired(PathBuf),
    #[error("the certificate in {0} is not valid yet")]
    NotValidYet(PathBuf),
    #[error("the key {path} cannot be read: {source}")]
    KeyIo { path: PathBuf, source: io::Error },
    #[error("the key {path} belongs to another user (uid {uid})")]
    ForeignKey { path: PathBuf, uid: u32 },
    #[error("the key {0} is accessible to other users: chmod 600")]
    OpenKey(PathBuf),
    #[error("{path} is not a PEM file with a private key: {source}")]
    KeyFormat { path: PathBuf, source: pem::Error },
    #[error("{key} is not the key of the certificate in {cert}")]
    OtherKey { cert: PathBuf, key: PathBuf },
    #[error("{cert} and {key} cannot be used: {source}")]
    Unusable {
        cert: PathBuf,
        key: PathBuf,
        source: Error,
    },
}

impl Files {
    fn stamps(&self) -> [Option<Stamp>; 2] {
        [stamp(&self.cert), stamp(&self.key)]
    }

    fn unanswered(&self) -> CertificateProblem {
        let Self { cert, key } = self.clone();
        CertificateProblem::Unanswered { cert, key }
    }

    /// Returns why the certificate and the key cannot be used together.
    fn unusable(&self, source: Error) -> CertificateProblem {
        let Self { cert, key } = self.clone();
        match source {
            Error::InconsistentKeys(_) => CertificateProblem::OtherKey { cert, key },
            source => CertificateProblem::Unusable { cert, key, source },
        }
    }
}

/// Calls `read` in a thread outside the runtime's pool, because it may block for as long as a file
/// system does not answer. It is not awaited when the process exits.
fn in_thread<T: Send + 'static>(
    read: impl FnOnce() -> T + Send + 'static,
) -> io::Result<oneshot::Receiver<T>> {
    let (sender, result) = oneshot::channel();
    std::thread::Builder::new()
        .name("certificate".to_owned())
        .spawn(move || {
            failpoint::hold("certificate");
            if sender.send(read()).is_err() {
                tracing::debug!("the certificate was read after its caller had stopped waiting");
            }
        })?;
    Ok(result)
}

impl TlsServer {
    /// Reads the files.
    ///
    /// # Errors
    /// A file cannot be read within two seconds or has the wrong content, other users can read the
    /// key, the key is not that of the certificate, or the certificate is not valid now.
    pub async fn load(cert: PathBuf, key: PathBuf) -> Result<Self, CertificateProblem> {
        let files = Files { cert, key };
        let read = {
            let files = files.clone();
            in_thread(move || (files.stamps(), load(&files)))?
        };
        let (stamps, loaded) = timeout(READ_TAKES_MAX, read)
            .await
            .map_err(|_| files.unanswered())??;
        let current = Mutex::new(Current {
            loaded: loaded?,
            stamps,
            checked: Instant::now(),
            is_checking: false,
        });
        Ok(Self {
            files,
            current,
            changed: Notify::new(),
        })
    }

    /// Performs the handshake with a caller. The caller limits its time.
    ///
    /// # Errors
    /// The connection broke, or the peer does not speak TLS.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(
        self: &Arc<Self>,
        stream: S,
    ) -> io::Result<TlsStream<S>> {
        if let Some(check) = self.check_files()
            && timeout(READ_TAKES_MAX, check).await.is_err()
        {
            tracing::error!(problem = %self.files.unanswered(), "the earlier certificate stays in use");
        }
        let acceptor = self.locked().loaded.acceptor.clone();
        acceptor.accept(stream).await
    }

    /// Returns the SHA-256 of the public key of the certificate, in hexadecimal.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        self.locked().loaded.fingerprint.clone()
    }

    /// Reads the files again if they have changed, in a thread of its own, for callers whose
    /// connections stay open.
    pub fn refresh(self: &Arc<Self>) {
        // Nobody waits for the result.
        drop(self.check_files());
    }

    /// Waits until the certificate has another public key than that with this fingerprint, and
    /// returns the new one. Notices it when a caller connects.
    pub async fn other_fingerprint(&self, than: &str) -> String {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let current = self.fingerprint();
            if current != than {
                return current;
            }
            changed.await;
        }
    }

    /// Returns whether the certificate is for this host: a name or an address, without a port.
    #[must_use]
    pub fn is_for(&self, host: &str) -> bool {
        let host = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'))
            .unwrap_or(host);
        let Ok(name) = ServerName::try_from(host) else {
            return false;
        };
        let certificate = Arc::clone(&self.locked().loaded.certificate);
        ParsedCertificate::try_from(&*certificate)
            .is_ok_and(|certificate| verify_server_name(&certificate, &name).is_ok())
    }

    /// Returns the name by which other machines know this one, if the certificate decides it: the
    /// name of the machine, with a domain or without, or the only name in the certificate.
    #[must_use]
    pub fn name_of_machine(&self, machine: &str) -> Option<String> {
        if self.is_for(machine) {
            return Some(machine.to_owned());
        }
        let certificate = Arc::clone(&self.locked().loaded.certificate);
        let certificate = EndEntityCert::try_from(&*certificate).ok()?;
        let names: Vec<&str> = certificate
            .valid_dns_names()
            .filter(|name| !name.contains('*') && !name.eq_ignore_ascii_case("localhost"))
            .collect();
        let first_label = |name: &str| {
            name.split('.')
                .next()
                .unwrap_or_default()
                .to_ascii_lowercase()
        };
        let of_machine = names
            .iter()
            .find(|name| first_label(name) == first_label(machine));
        of_machine
            .or(names.first().filter(|_| names.len() == 1))
            .map(|name| (*name).to_owned())
    }

    fn locked(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a thread that reads the files again if they have changed. `None`: they were compared
    /// just now, or another thread does it.
    fn check_files(self: &Arc<Self>) -> Option<oneshot::Receiver<()>> {
        let mut current = self.locked();
        if current.is_checking || current.checked.elapsed() < CHECK_INTERVAL {
            return None;
        }
        current.checked = Instant::now();
        let server = Arc::clone(self);
        match in_thread(move || server.read_changed()) {
            Ok(check) => {
                current.is_checking = true;
                Some(check)
            }
            Err(error) => {
                tracing::error!(%error, "the files of the certificate cannot be compared, the earlier certificate stays in use");
                None
            }
        }
    }

    /// Reads the files if they have changed. Blocks.
    fn read_changed(&self) {
        let earlier = self.locked().stamps;
        let stamps = self.files.stamps();
        let read = (stamps != earlier).then(|| load(&self.files));
        let mut current = self.locked();
        (current.stamps, current.is_checking) = (stamps, false);
        match read {
            Some(Ok(loaded)) => {
                let replaced = std::mem::replace(&mut current.loaded, loaded);
                tracing::info!(cert = %self.files.cert.display(), "the certificate was read again");
                if replaced.fingerprint != current.loaded.fingerprint {
                    tracing::warn!(
                        fingerprint = current.loaded.fingerprint,
                        "the certificate has another key: runners and peers that trust only the earlier one need --fingerprint with this one too"
                    );
                    self.changed.notify_waiters();
                }
            }
            Some(Err(problem)) => tracing::error!(%problem, "the earlier certificate stays in use"),
            None => {}
        }
    }
}

/// `None`: the file is not there, or cannot be examined.
fn stamp(path: &Path) -> Option<Stamp> {
    let meta: Metadata = path.metadata().ok()?;
    Some(Stamp {
        device: meta.dev(),
        inode: meta.ino(),
        changed: (meta.ctime(), meta.ctime_nsec()),
    })
}

fn load(files: &Files) -> Result<Loaded, CertificateProblem> {
    let Files { cert, key } = files;
    let chain = certificates(cert)?;
    let certificate = chain
        .first()
        .cloned()
        .ok_or_else(|| CertificateProblem::NoCertificate(cert.clone()))?;
    check_time(cert, &chain)?;
    let provider = Arc::new(crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| files.unusable(error))?;
    let mut config = config
        .with_no_client_auth()
        .with_single_cert(chain, private_key(key)?)
        .map_err(|error| files.unusable(error))?;
    config.alpn_protocols = vec![super::SHARED.to_vec(), super::HTTP_1.to_vec()];
    let fingerprint =
        super::fingerprint(&certificate).map_err(|source| CertificateProblem::Certificate {
            path: cert.clone(),
            source,
        })?;
    Ok(Loaded {
        acceptor: TlsAcceptor::from(Arc::new(config)),
        certificate: Arc::new(certificate),
        fingerprint,
    })
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, CertificateProblem> {
    let text = files::read_named(path, FILE_BYTES_MAX).map_err(|source| {
        CertificateProblem::CertificateIo {
            path: path.to_owned(),
            source,
        }
    })?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    chain.map_err(|source| CertificateProblem::CertificateFormat {
        path: path.to_owned(),
        source,
    })
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, CertificateProblem> {
    let failed = |source| CertificateProblem::KeyIo {
        path: path.to_owned(),
        source,
    };
    let file = files::open_named(path).map_err(failed)?;
    let meta = file.metadata().map_err(failed)?;
    let own = rustix::process::getuid().as_raw();
    if meta.uid() != 0 && meta.uid() != own {
        return Err(CertificateProblem::ForeignKey {
            path: path.to_owned(),
            uid: meta.uid(),
        });
    }
    if meta.mode() & 0o077 != 0 {
        return Err(CertificateProblem::OpenKey(path.to_owned()));
    }
    let mut text = Vec::new();
    file.take(FILE_BYTES_MAX)
        .read_to_end(&mut text)
        .map_err(failed)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|source| CertificateProblem::KeyFormat {
        path: path.to_owned(),
        source,
    })
}

/// Refuses a certificate that is not valid now. Of the checks of a client, only this one counts
/// here: with the certificate as its own authority, no other certificate is needed, and the first
/// check is that of the time.
fn check_time(path: &Path, chain: &[CertificateDer<'static>]) -> Result<(), CertificateProblem> {
    let Some((own, others)) = chain.split_first() else {
        return Ok(());
    };
    let unusable = |source| CertificateProblem::Certificate {
        path: path.to_owned(),
        source,
    };
    let parsed = ParsedCertificate::try_from(own).map_err(unusable)?;
    let mut roots = RootCertStore::empty();
    roots.add(own.clone()).map_err(unusable)?;
    let now = UnixTime::since_unix_epoch(Duration::from_millis(
        u64::try_from(clock::now().0).unwrap_or_default(),
    ));
    let algorithms = crypto::ring::default_provider().signature_verification_algorithms;
    match verify_server_cert_signed_by_trust_anchor(&parsed, &roots, others, now, algorithms.all) {
        Err(Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        )) => Err(CertificateProblem::Expired(path.to_owned())),
        Err(Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        )) => Err(CertificateProblem::NotValidYet(path.to_owned())),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    async fn load_fixture(name: &str) -> TlsServer {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../adjutant/tests/fixtures/tls");
        let dir = tempfile::tempdir().expect("a directory");
        let key = dir.path().join("key.pem");
        std::fs::copy(fixtures.join(format!("{name}.key")), &key).expect("copied");
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).expect("private");
        TlsServer::load(fixtures.join(format!("{name}.pem")), key)
            .await
            .expect("a certificate")
    }

    #[tokio::test]
    async fn name_of_the_machine_is_one_of_the_certificate() {
        // For `hub.example.org` and `*.lan.example.org`.
        let hub = load_fixture("hub").await;
        for (machine, name) in [
            ("hub", "hub.example.org"),
            ("a.lan.example.org", "a.lan.example.org"),
            ("gpu7", "hub.example.org"),
        ] {
            assert_eq!(
                hub.name_of_machine(machine).as_deref(),
                Some(name),
                "{machine}"
            );
        }
        // Only for `localhost`.
        assert_eq!(load_fixture("server").await.name_of_machine("gpu7"), None);
    }
}

//! The address for callers over HTTP, and its TLS.

use super::values::UnusableValues;
use ::http::Uri;
use serde::Deserialize;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// Where the hub listens for callers over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpSettings {
    pub listen: SocketAddr,
    /// The address that callers use: of a proxy on this machine, or of the hub itself.
    pub public_url: Option<Uri>,
    /// `None`: without TLS.
    pub tls: Option<TlsFiles>,
}

/// The certificate of the hub (with its chain) and its key, as PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
}

/// The part of the configuration that applies to all addresses.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HttpConfig {
    pub public_url: Option<Uri>,
    pub tls: Option<TlsFiles>,
    /// Other machines may connect without TLS.
    pub without_tls: bool,
}

/// As the file declares it.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileTls {
    cert: Option<PathBuf>,
    key: Option<PathBuf>,
}

/// Why an address for callers over HTTP cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HttpProblem {
    #[error("use an address and a port, such as 127.0.0.1:7317")]
    ListenAddress,
    #[error(
        "other machines could connect, and tokens would cross the network in plain text: set cert and key in [tls]; \
         or use 127.0.0.1 with an SSH tunnel or a proxy; or accept plain text with listen_without_tls = true"
    )]
    PlainText,
    #[error("use an address without a path, such as https://adj.example.org")]
    PublicUrl,
}

impl HttpConfig {
    /// Returns the settings for an address.
    ///
    /// # Errors
    /// Other machines could connect to it without TLS.
    pub fn settings(&self, listen: SocketAddr) -> Result<HttpSettings, HttpProblem> {
        if !listen.ip().is_loopback() && self.tls.is_none() && !self.without_tls {
            return Err(HttpProblem::PlainText);
        }
        Ok(HttpSettings {
            listen,
            public_url: self.public_url.clone(),
            tls: self.tls.clone(),
        })
    }
}

/// Parses an address to listen on.
///
/// # Errors
/// It is not an address with a port.
pub fn listen_address(text: &str) -> Result<SocketAddr, HttpProblem> {
    text.parse().map_err(|_| HttpProblem::ListenAddress)
}

/// The values of the file.
#[derive(Debug)]
pub(super) struct FileHttp<'a> {
    pub(super) listen: Option<&'a str>,
    pub(super) public_url: Option<&'a str>,
    pub(super) without_tls: bool,
    pub(super) tls: FileTls,
}

/// Reads this part of the file, at `config`. Invalid values are reported.
pub(super) fn read(
    file: FileHttp<'_>,
    config: &Path,
    unusable: &mut UnusableValues,
) -> (Option<SocketAddr>, HttpConfig) {
    let FileHttp {
        listen,
        public_url,
        without_tls,
        tls,
    } = file;
    let public_url = public_url.and_then(|text| unusable.check("public_url", public_address(text)));
    let beside = |path: PathBuf| config.parent().unwrap_or(Path::new("/")).join(path);
    let has_tls = tls.cert.is_some() || tls.key.is_some();
    let tls = match tls {
        FileTls {
            cert: Some(cert),
            key: Some(key),
        } => Some(TlsFiles {
            cert: beside(cert),
            key: beside(key),
        }),
        FileTls {
            cert: None,
            key: None,
        } => None,
        FileTls { cert, key: _ } => {
            unusable.report(
                if cert.is_none() {
                    "tls.cert"
                } else {
                    "tls.key"
                },
                "missing: TLS needs the certificate and its key, as PEM files",
            );
            None
        }
    };
    if without_tls && has_tls {
        unusable.report(
            "listen_without_tls",
            "contradicts [tls]: leave one of them out",
        );
    }
    let http = HttpConfig {
        public_url,
        tls,
        without_tls,
    };
    let listen = listen.and_then(|text| unusable.check("listen", listen_address(text)));
    if let Some(listen) = listen.filter(|_| !has_tls) {
        unusable.check("listen", http.settings(listen));
    }
    (listen, http)
}

fn public_address(text: &str) -> Result<Uri, HttpProblem> {
    let url: Uri = text.parse().map_err(|_| HttpProblem::PublicUrl)?;
    let has_name = url
        .authority()
        .is_some_and(|authority| !authority.host().is_empty() && !authority.as_str().contains('@'));
    let is_web = matches!(url.scheme_str(), Some("https" | "http"));
    if has_name && is_web && url.path() == "/" && url.query().is_none() {
        Ok(url)
    } else {
        Err(HttpProblem::PublicUrl)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_machines_need_tls_or_the_consent_to_plain_text() {
        let tls = HttpConfig {
            tls: Some(TlsFiles {
                cert: "/c".into(),
                key: "/k".into(),
            }),
            ..HttpConfig::default()
        };
        let plain = HttpConfig {
            without_tls: true,
            ..HttpConfig::default()
        };
        for local in [
            "127.0.0.1:7317",
            "[::1]:7317",
            "127.0.0.1:0",
            "127.8.8.8:80",
        ] {
            assert!(
                HttpConfig::default()
                    .settings(listen_address(local).expect("an address"))
                    .is_ok(),
                "{local}"
            );
        }
        for other in [
            "0.0.0.0:7317",
            "[::]:7317",
            "192.168.1.5:7317",
            "[::ffff:192.168.1.5]:80",
        ] {
            let listen = listen_address(other).expect("an address");
            let refused = HttpConfig::default().settings(listen).expect_err("refused");
            let refused = refused.to_string();
            assert!(
                refused.contains("[tls]") && refused.contains("listen_without_tls"),
                "{refused}"
            );
            assert!(
                tls.settings(listen).is_ok() && plain.settings(listen).is_ok(),
                "{other}"
            );
        }
        for bad in ["localhost:7317", "7317", "127.0.0.1"] {
            assert!(listen_address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn certificate_and_key_belong_together() {
        let read = |listen: &str, without_tls: bool, cert: Option<&str>, key: Option<&str>| {
            let mut unusable = UnusableValues::default();
            let tls = FileTls {
                cert: cert.map(PathBuf::from),
                key: key.map(PathBuf::from),
            };
            let file = FileHttp {
                listen: Some(listen),
                public_url: None,
                without_tls,
                tls,
            };
            let (_, http) = read(file, Path::new("/etc/adj/config.toml"), &mut unusable);
            (http, unusable.fields().join(" "))
        };
        let (http, problem) = read("0.0.0.0:1", false, Some("c.pem"), Some("/k.pem"));
        assert_eq!(
            (http.tls, problem.as_str()),
            (
                Some(TlsFiles {
                    cert: "/etc/adj/c.pem".into(),
                    key: "/k.pem".into()
                }),
                ""
            )
        );
        assert_eq!(read("127.0.0.1:1", false, Some("c.pem"), None).1, "tls.key");
        assert_eq!(read("0.0.0.0:1", false, None, Some("k.pem")).1, "tls.cert");
        assert_eq!(
            read("0.0.0.0:1", true, Some("c.pem"), Some("k.pem")).1,
            "listen_without_tls"
        );
        assert_eq!(read("0.0.0.0:1", false, None, None).1, "listen");
    }

    #[test]
    fn public_url_has_no_path() {
        for bad in [
            "adj.example.org",
            "https://adj.example.org/x",
            "ftp://adj.example.org",
            "https://u@adj.example.org",
            "https://",
        ] {
            assert!(public_address(bad).is_err(), "{bad}");
        }
        assert!(
            public_address("https://adj.example.org").is_ok()
                && public_address("https://adj.example.org/").is_ok()
        );
    }
}
